"""Potentials that do not separate: the checks find what is wrong, and limits are theirs."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.potentials import JointPotential, check_potential, potential_checks


@dataclass(frozen=True)
class Ellipsoid(JointPotential):
    """Q(w) = w^T A w / 2: everything is known in closed form."""

    A: np.ndarray
    tilt: float = 0.0  # breaks the symmetry of the Hessian
    wrong_value: float = 1.0
    wrong_grad: float = 1.0
    wrong_hess: float = 1.0
    wrong_conjugate: float = 1.0
    claimed_convexity: float = 1.0

    @property
    def dimension(self):
        return len(self.A)

    def value(self, w):
        return self.wrong_value * float(w @ self.A @ w) / 2.0

    def grad(self, w):
        return self.wrong_grad * self.A @ w

    def grad_dual(self, z):
        return np.linalg.solve(self.A, z)

    def hess_dual(self, z):
        skew = np.triu(np.ones_like(self.A), 1)
        return self.wrong_hess * np.linalg.inv(self.A) + self.tilt * (skew - skew.T)

    def conjugate(self, z):
        return self.wrong_conjugate * float(z @ np.linalg.solve(self.A, z)) / 2.0

    def strong_convexity(self, w, radius):
        return self.claimed_convexity * float(np.linalg.eigvalsh(self.A)[0])


@dataclass(frozen=True)
class HypentropyAlong(JointPotential):
    """A hypentropy in rotated coordinates: joint, curved, and known through the separable one."""

    turn: np.ndarray
    separable: fb.Hypentropy

    @property
    def dimension(self):
        return len(self.turn)

    def value(self, w):
        return self.separable.value(self.turn @ w)

    def grad(self, w):
        return self.turn.T @ self.separable.grad(self.turn @ w)

    def grad_dual(self, z):
        return self.turn.T @ self.separable.grad_dual(self.turn @ z)

    def hess_dual(self, z):
        return (self.turn.T * self.separable.hess_dual(self.turn @ z)) @ self.turn

    def conjugate(self, z):
        return self.separable.conjugate(self.turn @ z)


def _ellipsoid(**wrong):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    return Ellipsoid(root @ root.T + np.eye(4), **wrong)


def _turned(d, scale, seed=0):
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
    return HypentropyAlong(turn, fb.Hypentropy(scale=scale))


@pytest.mark.parametrize("potential", [_ellipsoid(), _turned(3, 0.5)], ids=["ellipsoid", "turned"])
def test_a_sound_potential_passes(potential):
    check_potential(potential)


WRONG = {
    "grad against difference quotient": {"wrong_value": 1.01},
    "conjugate against difference quotient": {"wrong_conjugate": 1.01},
    "hess_dual against difference quotient": {"wrong_hess": 1.01},
    "round trip of w": {"wrong_grad": 1.01},
    "round trip of z": {"wrong_grad": 1.01},
    "Fenchel equality": {"wrong_value": 1.01},
    "convexity": {"tilt": 1e-3},
    "strong convexity": {"claimed_convexity": 1.01},
}


@pytest.mark.parametrize("name", WRONG)
def test_each_check_finds_its_error(name):
    checks = dict(potential_checks(_ellipsoid(**WRONG[name])))
    with pytest.raises(AssertionError, match=name):
        checks[name]()


def test_every_check_has_an_error_of_its_own():
    assert set(WRONG) == {name for name, _ in potential_checks(_ellipsoid())}


def test_points_outside_the_domain_are_refused():
    with pytest.raises(AssertionError, match="dual_points"):
        check_potential(_ellipsoid(), dual_points=np.full((2, 4), np.nan))


def test_limit_of_an_ellipsoid_is_weighted_least_norm():
    potential, rng = _ellipsoid(), np.random.default_rng(1)
    X, y = rng.standard_normal((2, 4)), rng.standard_normal(2)
    solution = fb.limit(potential, X, y)
    inverse = np.linalg.inv(potential.A)
    exact = inverse @ X.T @ np.linalg.solve(X @ inverse @ X.T, y)
    assert_allclose(solution.w, exact, rtol=1e-12)
    assert solution.status is fb.Status.CERTIFIED
    assert np.linalg.norm(solution.w - exact) <= solution.certificate.error_bound < 1e-10


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
def test_limit_follows_a_rotation(scale):
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((3, 6)), rng.standard_normal(3)
    turned = _turned(6, scale)
    joint = fb.limit(turned, X, y)
    separable = fb.limit(turned.separable, X @ turned.turn.T, y)
    assert_allclose(turned.turn @ joint.w, separable.w, atol=1e-10)
    assert joint.status is fb.Status.CERTIFIED
    sensitivity = joint.sensitivity().dw_dy
    assert_allclose(turned.turn @ sensitivity, separable.sensitivity().dw_dy, rtol=1e-7, atol=1e-9)


def test_a_bound_covers_a_perturbed_solution():
    potential, rng = _ellipsoid(), np.random.default_rng(3)
    X, y = rng.standard_normal((2, 4)), rng.standard_normal(2)
    solution = fb.limit(potential, X, y)
    for size in (1e-12, 1e-6, 1e-2):
        off = solution.w + size * rng.standard_normal(4)
        certificate = fb.certify(X, y, off, solution.dual, potential)
        assert np.linalg.norm(off - solution.w) <= certificate.error_bound <= 1e3 * size
        # Off the fit alone: nothing is wrong with the stationarity of what repairs it.
        unfit = solution.w + size * np.linalg.pinv(X) @ np.ones(2)
        certificate = fb.certify(X, y, unfit, solution.dual, potential)
        distance = np.linalg.norm(unfit - solution.w)
        assert distance <= certificate.error_bound <= 2.0 * distance + 1e-12


def test_a_wrong_size_is_refused():
    with pytest.raises(fb.InputError, match="one column per coordinate"):
        fb.limit(_ellipsoid(), np.ones((1, 3)), [1.0])


def test_what_is_not_stationary_is_not_certified():
    potential = _ellipsoid()
    X, y = np.ones((1, 4)), np.ones(1)
    certificate = fb.certify(X, y, fb.min_norm(X, y).w, [0.1], potential)
    assert not certificate.ok
