"""Scales no double can hold, starts of mixed size, one-sided and frozen coordinates: vs 60 digits.

References evaluate the defining formulas with mpmath at the exact double arguments.
"""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.potentials import (
    DepthPotential,
    DistancePotential,
    Hypentropy,
    UntiedPotential,
)

# Logarithms up to 2e4 are exact doubles, so only the ordinary roundings remain.
RELATIVE = 5e-15
DIGITS = 60
# Predictors across the range a fit can produce.
W = [1e-150, 1e-12, 0.3, 7.0, 1e12, 1e150]
EXTREME_LOG_SCALES = [-1e4, -800.0, -360.0, -50.0, 50.0, 290.0, 305.0, 360.0, 1e3, 1e4]


def relative_error(actual, expected):
    """|actual/expected - 1| as a float; 0 if both are below the normal doubles."""
    expected = mp.mpf(expected)
    if abs(expected) < mp.mpf(10) ** -300:
        return 0.0 if abs(actual) < 1e-299 else np.inf
    if abs(expected) > mp.mpf(10) ** 308:
        return 0.0 if np.isinf(actual) else np.inf
    return float(abs(mp.mpf(float(actual)) / expected - 1))


def asinh_potential(w, log_s, log_unit):
    """(value, grad) of Q with grad = asinh(w/s), in units of exp(log_unit)."""
    w, s = mp.mpf(float(w)), mp.exp(log_s)
    unit = mp.exp(mp.mpf(log_unit))
    grad = mp.asinh(w / s)
    return (w * grad - w * w / (s + mp.sqrt(s * s + w * w))) / unit, grad / unit


@pytest.mark.parametrize("log_scale", EXTREME_LOG_SCALES)
@pytest.mark.parametrize("w", W)
def test_hypentropy_at_any_scale(log_scale, w):
    potential = Hypentropy(log_scale=log_scale)
    with mp.workdps(DIGITS):
        log_s = 2 * mp.mpf(log_scale) + mp.log(2)
        value, grad = asinh_potential(w, log_s, potential.log_unit)
        assert relative_error(potential.value_terms(w), value) <= RELATIVE
        assert relative_error(potential.grad(w), grad) <= RELATIVE


@pytest.mark.parametrize("log_scale", EXTREME_LOG_SCALES)
@pytest.mark.parametrize("w", W)
def test_hypentropy_dual_at_any_scale(log_scale, w):
    potential = Hypentropy(log_scale=log_scale)
    z = float(potential.grad(w))
    with mp.workdps(DIGITS):
        unit, s = mp.exp(mp.mpf(potential.log_unit)), 2 * mp.exp(2 * mp.mpf(log_scale))
        x = mp.mpf(z) * unit
        # The exponent z + 2 log_scale is rounded once, hence |log w| more units.
        rtol = RELATIVE + 1.2e-16 * abs(np.log(w))
        assert relative_error(potential.grad_dual(z), s * mp.sinh(x)) <= rtol
        assert relative_error(potential.hess_dual(z), s * mp.cosh(x) * unit) <= rtol
        conjugate = 2 * s * mp.sinh(x / 2) ** 2 / unit
        assert relative_error(potential.conjugate_terms(z), conjugate) <= rtol


@given(
    scale=st.floats(-150.0, 150.0).map(lambda e: 10.0**e),
    w=st.floats(-150.0, 150.0).map(lambda e: 10.0**e),
)
def test_hypentropy_given_as_a_number_loses_no_digits(scale, w):
    potential = Hypentropy(scale=scale)
    with mp.workdps(DIGITS):
        log_s = mp.log(2 * mp.mpf(scale) ** 2)
        value, grad = asinh_potential(w, log_s, potential.log_unit)
        assert relative_error(potential.value_terms(w), value) <= RELATIVE
        assert relative_error(potential.grad(w), grad) <= RELATIVE


def test_units_follow_the_largest_scale():
    assert Hypentropy(scale=[1e-300, 1e100]).log_unit == 0.0
    assert Hypentropy(log_scale=-1e4).log_unit == 0.0
    assert Hypentropy(log_scale=[1e4, 900.0]).log_unit == -2e4
    assert UntiedPotential(log_scale=[1e4, 900.0]).log_unit == -2e4
    assert DepthPotential(3, log_scale=-100.0).log_unit == 0.0
    assert DepthPotential(3, log_scale=[-1e4, -1e4, -2.0]).log_unit == 1e4
    assert DepthPotential(5, log_scale=-1e4).log_unit == 3e4


def test_huge_scale_is_linear():
    potential = Hypentropy(log_scale=[1e4, 1e4 - 1.0])
    w = np.array([1e-150, 2.0, -1e150])[:, None]
    expected = w / (2.0 * np.array([1.0, np.exp(-2.0)]))
    np.testing.assert_allclose(potential.grad(w), expected, rtol=RELATIVE)
    np.testing.assert_allclose(potential.grad_dual(expected), w * np.ones(2), rtol=RELATIVE)


def log_cosh(t):
    return mp.log1p(2 * mp.sinh(t / 2) ** 2)


def natural_dual(ratio, depth):
    """atanh of h_D^{-1}(ratio) by mpmath: 2 cosh(t)^k sinh(kt) = ratio."""
    k = mp.mpf(depth) / (depth - 2)
    log_ratio = mp.log(ratio)

    def log_h(t):
        return mp.log(2) + k * log_cosh(t) + mp.log(mp.sinh(k * t)) - log_ratio

    t = mp.log1p(ratio) / (2 * k)
    for _ in range(60):
        step = log_h(t) / (k * mp.tanh(t) + k * mp.coth(k * t))
        t -= step
        if abs(step) < abs(t) * mp.mpf(10) ** -(mp.mp.dps - 10):
            break
    return t


def power_potential(w, depth, a):
    """(value, grad, slack) of the tied depth-D potential with start a, in its own units."""
    t = natural_dual(mp.mpf(float(w)) / a**depth, depth)
    m, x = mp.mpf(2) / (depth - 2), mp.tanh(t)
    dual = (depth - 2) * mp.expm1(m * log_cosh(t) + log_cosh(m * t))
    reach = a ** (2 - depth)
    return w * reach * x - a**2 * dual, reach * x, reach * 2 / (mp.exp(2 * t) + 1)


@pytest.mark.parametrize("log_scale", [-1e4, -800.0, -60.0, 0.5, 60.0, 200.0, 1e3, 1e4])
@pytest.mark.parametrize("depth", [3, 4, 7])
def test_depth_potential_at_any_scale(log_scale, depth):
    potential = DepthPotential(depth, log_scale=log_scale)
    with mp.workdps(DIGITS):
        a, unit = mp.exp(mp.mpf(log_scale)), mp.exp(mp.mpf(potential.log_unit))
        for w in (1e-12, 0.3, 1e12):
            value, grad, slack = (v / unit for v in power_potential(mp.mpf(w), depth, a))
            assert relative_error(potential.value_terms(w), value) <= RELATIVE
            assert relative_error(potential.grad(w), grad) <= RELATIVE
            # The slack is a^(2-D) (w/a^D)^(-1/k): log(w/a^D) is rounded once before exp.
            rtol = RELATIVE + 2.3e-16 * (depth * abs(log_scale) + 30)
            assert relative_error(potential.dual_slack(w), slack) <= rtol


@pytest.mark.parametrize("depth", [2.1, 3, 4, 7, 50])
def test_depth_grad_between_its_linear_and_its_flat_part(depth):
    w = np.logspace(-10.0, 2.0, 60)
    grad = DepthPotential(depth, scale=1.0).grad(w)
    with mp.workdps(DIGITS):
        errors = [
            relative_error(actual, mp.tanh(natural_dual(mp.mpf(x), mp.mpf(depth))))
            for actual, x in zip(grad, w, strict=True)
        ]
    # A handful of roundings: solving for t by logarithms alone would leave |log w| of them.
    assert max(errors) <= 1e-15


@pytest.mark.parametrize("log_scale", [-60.0, -3.0, 2.0, 140.0, 1e3, 1e4])
@pytest.mark.parametrize("depth", [3, 2.1, 6])
def test_depth_dual_at_any_scale(log_scale, depth):
    potential = DepthPotential(depth, log_scale=log_scale)
    reach = np.minimum(potential.reach, 1e100)
    with mp.workdps(DIGITS):
        a, unit = mp.exp(mp.mpf(log_scale)), mp.exp(mp.mpf(potential.log_unit))
        k = mp.mpf(depth) / (mp.mpf(depth) - 2)
        for fraction in (1e-30, 1e-3, 0.4, 0.999):
            z = float(fraction * reach)
            x = mp.mpf(z) * unit * a ** (mp.mpf(depth) - 2)
            # x = z/reach is rounded twice, and amplified by the pole: (k+1)/(1-x).
            rtol = RELATIVE + 4e-16 * float((k + 1) / (1 - x) * min(1, 1000 * x))
            t, m = mp.atanh(x), k - 1
            w = a ** mp.mpf(depth) * 2 * mp.cosh(t) ** k * mp.sinh(k * t)
            assert relative_error(potential.grad_dual(z), w) <= rtol
            slope = a ** (2 * mp.mpf(depth) - 2) * unit
            hess = slope * k * ((1 - x) ** (-k - 1) + (1 + x) ** (-k - 1))
            assert relative_error(potential.hess_dual(z), hess) <= rtol
            dual = a**2 / unit * 2 / m * mp.expm1(m * log_cosh(t) + log_cosh(m * t))
            assert relative_error(potential.conjugate_terms(z), dual) <= rtol


def test_depth_dual_ends_at_its_reach():
    potential = DepthPotential(4, scale=[0.5, 2.0])
    np.testing.assert_array_equal(potential.reach, [4.0, 0.25])
    np.testing.assert_array_equal(potential.grad_dual([-4.0, 1.0]), [-np.inf, np.inf])
    np.testing.assert_array_equal(potential.conjugate_terms([-5.0, 0.25]), np.inf)
    np.testing.assert_array_equal(potential.hess_growth(np.zeros(2), [5.0, 0.125]), [np.inf, 8.0])


@pytest.mark.parametrize("log_scale", [-1e4, -300.0, 100.0, 1e3])
def test_distance_at_any_scale(log_scale):
    potential = DistancePotential(log_scale=log_scale)
    with mp.workdps(DIGITS):
        alpha = mp.exp(mp.mpf(log_scale))
        unit = mp.exp(mp.mpf(potential.log_unit)) * alpha  # R / unit; 1 unless the scale is huge
        for w in (1e-9, 0.3, 1e9):
            value, grad, _ = power_potential(mp.mpf(w), 4, mp.sqrt(alpha))
            assert relative_error(potential.value_terms(w), alpha * value / unit) <= RELATIVE
            assert relative_error(potential.grad(w), alpha * grad / unit) <= RELATIVE


def test_zero_is_zero_at_any_scale():
    for potential in (
        DepthPotential(3, log_scale=-1e4),
        DepthPotential(5, log_scale=-1e6),
        DistancePotential(log_scale=-1e4),
        Hypentropy(log_scale=-1e6),
    ):
        assert potential.value(np.zeros(3)) == 0.0
        assert not potential.grad(np.zeros(3)).any()


@pytest.mark.parametrize(
    ("depth", "log_scale"), [(2.00131, 208.0), (3.0, 100.0), (7.0, 39.4), (100.0, 2.857)]
)
def test_conjugates_of_duals_whose_squares_are_no_doubles(depth, log_scale):
    potential = DepthPotential(depth=depth, log_scale=log_scale)
    w = np.array([0.3, -1.4])
    z = potential.grad(w)
    assert not np.square(z).any()
    # So far below the scale Q is quadratic to rounding, and Q*(z) = z w / 2.
    assert_allclose(potential.conjugate_terms(z), 0.5 * z * w, rtol=RELATIVE)
