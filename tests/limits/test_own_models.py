"""A user's own model joins by declaring what it provides."""

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.potentials import HyperbolicPotential, Potential, Provides, check_potential


@dataclass(frozen=True)
class Softplus(Potential):
    """A potential of one's own, Q*(z) = sum z^2/2 + log cosh z: five functions and nothing else."""

    def value_terms(self, w):
        z = self.grad(w)
        return z * w - self.conjugate_terms(z)

    def grad(self, w):
        z = np.asarray(w, dtype=float) / 2.0
        for _ in range(60):
            z = z - (z + np.tanh(z) - w) / (2.0 - np.tanh(z) ** 2)
        return z

    def grad_dual(self, z):
        return z + np.tanh(z)

    def hess_dual(self, z):
        return 2.0 - np.tanh(z) ** 2

    def conjugate_terms(self, z):
        # log cosh z, by two forms because either one cancels where the other does not
        near = np.log1p(2.0 * np.sinh(np.clip(z, -1.0, 1.0) / 2.0) ** 2)
        far = np.abs(z) + np.log1p(np.exp(-2.0 * np.abs(z))) - np.log(2.0)
        return z**2 / 2.0 + np.where(np.abs(z) < 1.0, near, far)


@dataclass(frozen=True)
class OwnModel:
    """Only what `limit` asks for."""

    potential: Potential
    shift: float = 0.0
    provides: frozenset = frozenset({Provides.POTENTIAL})


RNG = np.random.default_rng(9)
X, Y = RNG.standard_normal((5, 16)), 3.0 * RNG.standard_normal(5)


def test_own_potential_passes_the_public_checks():
    check_potential(Softplus())


def limit_of_softplus(shift):
    """Newton's method on X w(shift + X^T nu) = y in 40 digits, rounded at the end."""
    with mpmath.workdps(40):
        A, y, nu = mpmath.matrix(X.tolist()), mpmath.matrix(Y.tolist()), mpmath.zeros(len(Y), 1)
        for _ in range(40):
            z = [shift + value for value in A.T * nu]
            w = mpmath.matrix([value + mpmath.tanh(value) for value in z])
            slopes = mpmath.diag([2 - mpmath.tanh(value) ** 2 for value in z])
            nu += mpmath.lu_solve(A * slopes * A.T, y - A * w)
        assert mpmath.norm(y - A * w) < 1e-30
        return np.array([float(value) for value in w])


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_own_potential(shift):
    solution = fb.limit(OwnModel(Softplus(), shift), X, Y)
    assert solution.status is fb.Status.CERTIFIED
    assert solution.route == "dual Newton"
    assert_allclose(Softplus().grad(solution.w), shift + X.T @ solution.dual, atol=1e-9)
    # No bound on how its curvature changes was declared: the gap alone bounds the error.
    error = np.linalg.norm(solution.w - limit_of_softplus(shift))
    assert error <= solution.certificate.error_bound < 1e-12


def test_potential_as_its_own_model():
    assert_allclose(
        fb.limit(fb.Hypentropy(scale=0.1), X, Y).w,
        fb.limit(fb.DiagonalNet(depth=2, scale=0.1), X, Y).w,
        atol=1e-12,
    )


@pytest.mark.parametrize("log_scale", [0.0, -3.0, -20.0])
def test_general_route_agrees_with_the_special_one(log_scale):
    """The same potential, declared as nothing but a potential: damped Newton must get there too."""
    potential = fb.Hypentropy(log_scale=log_scale)
    general = fb.limit(OwnModel(potential), X, Y)
    assert general.route == "dual Newton"
    assert_allclose(general.w, fb.limit(potential, X, Y).w, atol=1e-9)


def test_declared_exponential_form_is_used():
    potential = HyperbolicPotential(np.full(16, -30.0), np.full(16, -31.0), rate=1.5)
    own = OwnModel(potential, provides=potential.provides)
    solution = fb.limit(own, X, Y)
    assert solution.route == "interior point and Newton"
    assert solution.status is fb.Status.CERTIFIED
