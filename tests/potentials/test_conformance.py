"""The public checks hold for every registered potential, and catch a wrong one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.potentials import (
    L2,
    BiasedDepthPotential,
    DepthPotential,
    DistancePotential,
    Hypentropy,
    HyperbolicPotential,
    Provides,
    UntiedPotential,
    check_potential,
    potential_checks,
)
from tests.registry import NONSMOOTH_POTENTIALS, POTENTIALS

SMOOTH = pytest.mark.parametrize(
    ("potential", "tolerance"), [pytest.param(p, tol, id=name) for name, p, tol in POTENTIALS]
)
UNBIASED = pytest.mark.parametrize(
    "potential",
    [pytest.param(p, id=name) for name, p, _ in POTENTIALS if np.all(p.grad(np.zeros(1)) == 0.0)],
)
CHECKS = [
    pytest.param(check, id=f"{name}-{title}")
    for name, potential, _ in POTENTIALS
    for title, check in potential_checks(potential)
]
magnitudes = st.floats(-150.0, 150.0).map(lambda exponent: 10.0**exponent)
predictors = st.lists(st.tuples(magnitudes, st.sampled_from([-1.0, 1.0])), min_size=1, max_size=8)
# Vector instructions round the entries of a group otherwise than one alone.
IN_LINE = 1e-14


def column(pairs):
    """Signed numbers as a column, so that they broadcast against any coordinates."""
    return np.array([size * sign for size, sign in pairs])[:, None]


@pytest.mark.parametrize("check", CHECKS)
def test_public_check(check):
    check()


@SMOOTH
@given(pairs=predictors)
def test_round_trip(potential, tolerance, pairs):
    w = column(pairs)
    z = potential.grad(w)
    back, slope = potential.grad_dual(z), potential.hess_dual(z)
    with np.errstate(all="ignore"):
        allowed = tolerance * (np.abs(w) + np.abs(z) * slope)
        # Judged where z is a normal number inside the domain: elsewhere the digits are not in z.
        judged = (np.abs(z) > 1e-290) & np.isfinite(z) & np.isfinite(back) & (slope < 1e290)
        error = np.abs(back - w)
    assert np.all(error[judged] <= allowed[judged])


@SMOOTH
@given(pairs=predictors)
def test_fenchel_inequality(potential, tolerance, pairs):
    w = column(pairs)
    z = potential.grad(w[::-1])  # any dual points: here those of other predictors
    with np.errstate(all="ignore"):
        value, conjugate, product = potential.value_terms(w), potential.conjugate_terms(z), z * w
        size = np.abs(value) + np.abs(conjugate) + np.abs(product)
        gap = value + conjugate - product
    judged = np.isfinite(size) & (size > 1e-290)
    assert np.all(gap[judged] >= -10.0 * tolerance * size[judged])


@UNBIASED
@given(pairs=predictors)
def test_odd_or_even_where_the_start_is_unbiased(potential, pairs):
    w = column(pairs)
    np.testing.assert_array_equal(potential.grad(-w), -potential.grad(w))
    np.testing.assert_array_equal(potential.value_terms(-w), potential.value_terms(w))
    z = potential.grad(w)
    np.testing.assert_array_equal(potential.grad_dual(-z), -potential.grad_dual(z))
    np.testing.assert_array_equal(potential.hess_dual(-z), potential.hess_dual(z))


@SMOOTH
def test_is_its_own_trivial_model(potential, tolerance):
    assert potential.potential is potential
    assert potential.shift == 0.0
    assert Provides.POTENTIAL in potential.provides
    assert len(repr(potential)) < 160


@SMOOTH
def test_fields_cannot_be_changed(potential, tolerance):
    with pytest.raises(dataclasses.FrozenInstanceError):
        potential.log_unit = 1.0
    for name in ("log_plus", "log_minus", "log_scale", "weights"):
        array = getattr(potential, name, None)
        if array is not None:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0.0


@SMOOTH
def test_totals_and_shapes(potential, tolerance):
    width = np.size(potential.grad(np.ones(1)))
    w = 0.5 * np.ones((4, width))
    for function in (potential.grad, potential.value_terms):
        assert function(w).shape == (4, width)
        np.testing.assert_allclose(function(w)[2], function(w[2]), rtol=IN_LINE)
    z = np.nan_to_num(potential.grad(0.25 * w), posinf=0.0, neginf=0.0)
    for function in (potential.grad_dual, potential.hess_dual, potential.conjugate_terms):
        assert function(z).shape == (4, width)
        np.testing.assert_allclose(function(z)[2], function(z[2]), rtol=IN_LINE)
    assert potential.hess_growth(z, 0.1).shape == (4, width)
    assert isinstance(potential.value(w[0]), float)
    assert isinstance(potential.conjugate(z[0]), float)
    assert potential.value(w[0]) == pytest.approx(np.sum(potential.value_terms(w[0])), rel=IN_LINE)


@SMOOTH
def test_inputs_are_left_alone(potential, tolerance):
    w = np.array([[0.5]])
    w.setflags(write=False)
    for name in ("grad", "value_terms", "grad_dual", "hess_dual", "conjugate_terms"):
        getattr(potential, name)(w)


@pytest.mark.parametrize(
    "family",
    [
        lambda log: Hypentropy(log_scale=log),
        lambda log: UntiedPotential(log_scale=log, shape=0.3),
        lambda log: HyperbolicPotential(2.0 * log, 2.0 * log - 1.0, rate=2.0),
        lambda log: DepthPotential(5, log_scale=log),
        lambda log: DistancePotential(log_scale=log),
        lambda log: BiasedDepthPotential(3, log, log - 0.5),
    ],
)
def test_scale_derivative(family):
    z, step = np.array([-0.3, 0.02, 0.5]), 1e-5
    difference = (family(step).grad_dual(z) - family(-step).grad_dual(z)) / (2.0 * step)
    # Central difference: step^2 times a third derivative of order 10^3 close to a pole.
    np.testing.assert_allclose(family(0.0).scale_derivative(z), difference, rtol=1e-6)


def test_no_scale_no_derivative():
    assert L2().scale_derivative(np.ones(2)) is None


def test_bregman_is_the_distance_of_values_above_the_tangent():
    potential = Hypentropy(scale=0.5)
    w, reference = np.array([1.0, -2.0]), np.array([0.5, 0.25])
    expected = (
        potential.value(w)
        + potential.conjugate(potential.grad(reference))
        - np.sum(potential.grad(reference) * w)
    )
    assert potential.bregman(w, reference) == pytest.approx(expected, rel=1e-14)
    assert potential.bregman(w, w) == 0.0


@pytest.mark.parametrize("potential", [p for _, p in NONSMOOTH_POTENTIALS])
def test_l1_says_what_it_is_not(potential):
    assert potential.provides == {Provides.COSTS}
    with pytest.raises(TypeError, match=r"grad_dual.*basis_pursuit"):
        potential.grad_dual(np.zeros(2))
    with pytest.raises(TypeError, match=r"hess_dual.*Hypentropy"):
        potential.hess_dual(np.zeros(2))
    assert potential.value(np.array([1.0, -3.0])) == 7.0
    np.testing.assert_array_equal(potential.grad(np.array([-1.0, 0.0])), [-1.0, 0.0])
    np.testing.assert_array_equal(potential.conjugate_terms([[1.0, 2.5]]), [[0.0, np.inf]])


class WrongSlope(L2):
    def hess_dual(self, z):
        return 1.001 * super().hess_dual(z)


class WrongConjugate(L2):
    def conjugate_terms(self, z):
        return super().conjugate_terms(z) + 1e-9


class WrongDualMap(Hypentropy):
    def grad_dual(self, z):
        return super().grad_dual(z) * (1.0 + 1e-10)


class WrongGrad(Hypentropy):
    def grad(self, w):
        return super().grad(w) * 1.001


class WrongGrowth(Hypentropy):
    def hess_growth(self, z, radius):
        return 0.5 * super().hess_growth(z, radius) + 0.5


@pytest.mark.parametrize(
    ("potential", "check"),
    [
        (WrongSlope(), "hess_dual against difference quotient"),
        (WrongConjugate(), "Fenchel equality"),
        (WrongDualMap(0.1), "round trip of w"),
        (WrongGrad(0.1), "grad against difference quotient"),
        (WrongGrowth(0.1), "hess_growth bound"),
    ],
)
def test_checks_catch(potential, check):
    by_name = dict(potential_checks(potential))
    with pytest.raises(AssertionError, match=check):
        by_name[check]()
    with pytest.raises(AssertionError):
        check_potential(potential)


def test_check_with_unusable_points_says_so():
    with pytest.raises(AssertionError, match=r"dual_points: .* Pass dual_points inside"):
        check_potential(Hypentropy(scale=1.0), dual_points=[1e6])
    check_potential(Hypentropy(scale=1.0), dual_points=[0.5, -2.0, 30.0])
