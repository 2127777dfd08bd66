"""Non-uniform, tilted, one-sided and frozen coordinates, against 60-digit formulas."""

import mpmath as mp
import numpy as np
import pytest

from flowbias.potentials import (
    BiasedDepthPotential,
    DepthPotential,
    Hypentropy,
    HyperbolicPotential,
)

ABSENT = -np.inf
DIGITS = 60


def close(actual, expected, rtol, scale=0):
    """|actual - expected| <= rtol (|expected| + scale)."""
    error = abs(mp.mpf(float(actual)) - mp.mpf(expected))
    return error <= rtol * (abs(mp.mpf(expected)) + scale)


def test_nonuniform_equals_coordinate_by_coordinate():
    scales, w = np.array([1e-100, 1e-3, 1.0, 1e60]), np.array([2.0, -1e-8, 5.0, 1e3])
    for family in (Hypentropy, lambda scale: DepthPotential(3, scale)):
        together = family(scales)
        apart = [family(scale) for scale in scales]
        assert together.log_unit == 0.0
        for name in ("grad", "value_terms"):
            alone = [getattr(p, name)(x) for p, x in zip(apart, w, strict=True)]
            # Vector instructions round the entries of a group otherwise than one alone.
            np.testing.assert_allclose(getattr(together, name)(w), alone, rtol=1e-14)


@pytest.mark.parametrize(
    ("log_plus", "log_minus"),
    [(0.0, 1.0), (-3.0, -900.0), (-2e4, -1e4), (5.0, 5.0 + 1e-9), (-700.0, 300.0)],
)
@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_tilted_exponentials(log_plus, log_minus, rate):
    potential = HyperbolicPotential(log_plus, log_minus, rate)
    with mp.workdps(DIGITS + 500):
        lp, lm = mp.mpf(log_plus), mp.mpf(log_minus)
        for w in (-1e10, -0.3, -1e-9, 1e-9, 0.5, 1e10):
            root = mp.sqrt(mp.mpf(w) ** 2 + 4 * mp.exp(lp + lm))
            larger = mp.log((abs(mp.mpf(w)) + root) / 2)
            exact = (larger - lp if w > 0 else lm - larger) / rate
            # Either logarithm may be the one that is rounded; both are at hand, no more than that.
            size = min(abs(log_plus), abs(log_minus)) + abs(np.log(abs(w)))
            assert close(potential.grad(w), exact, 1e-15, size)
            z = mp.mpf(float(potential.grad(w)))
            plus, minus = mp.exp(lp + rate * z), mp.exp(lm - rate * z)
            # Each exponent is rounded to eps of its size, |log| of what it is the exponent of.
            rtol = 4e-16 * (2 + abs(np.log(abs(w))) + abs(float((lm - lp) / 2) if w < 1e-8 else 0))
            assert close(potential.grad_dual(float(z)), plus - minus, rtol, plus + minus)
            assert close(potential.hess_dual(float(z)), rate * (plus + minus), rtol)
            conjugate = (mp.sqrt(plus) - mp.sqrt(minus)) ** 2 / rate
            assert close(potential.conjugate_terms(float(z)), conjugate, rtol, plus + minus)
            value = exact * w - (larger_energy(lp, lm, exact, rate))
            assert close(potential.value_terms(w), value, 1e-14, abs(exact * w) + abs(w))


def larger_energy(lp, lm, z, rate):
    return (mp.exp((lp + rate * z) / 2) - mp.exp((lm - rate * z) / 2)) ** 2 / rate


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("log", [-1e4, -2.0, 3.0])
def test_one_sided_exponential(sign, log):
    logs = (log, ABSENT) if sign > 0 else (ABSENT, log)
    potential = HyperbolicPotential(*logs, rate=2.0)
    size = np.array([1e-100, 0.3, 1e50])
    exact_grad = sign * (np.log(size) - log) / 2.0
    np.testing.assert_allclose(potential.grad(sign * size), exact_grad, rtol=1e-15)
    expected = size * (np.log(size) - log - 1.0) / 2.0
    np.testing.assert_allclose(potential.value_terms(sign * size), expected, rtol=2e-15)
    z = potential.grad(sign * size)
    rtol = 2.3e-16 * (abs(log) + 250.0)  # z carries log(w) - log to relative eps
    np.testing.assert_allclose(potential.grad_dual(z), sign * size, rtol=rtol)
    np.testing.assert_allclose(potential.hess_dual(z), 2.0 * size, rtol=rtol)
    np.testing.assert_allclose(potential.conjugate_terms(z), 0.5 * size, rtol=rtol)
    # The other sign is out of reach; 0 is the end of the domain.
    assert potential.value_terms(-sign * 1.0) == np.inf
    assert np.isnan(potential.grad(-sign * 1.0))
    assert potential.value_terms(0.0) == 0.0
    assert potential.grad(0.0) == -sign * np.inf


@pytest.mark.parametrize(
    "potential",
    [HyperbolicPotential(ABSENT, ABSENT), BiasedDepthPotential(3, ABSENT, ABSENT)],
    ids=repr,
)
def test_frozen_coordinate(potential):
    z = np.array([-1e3, 0.0, 5.0])
    for name in ("grad_dual", "hess_dual", "conjugate_terms"):
        np.testing.assert_array_equal(getattr(potential, name)(z), 0.0)
    np.testing.assert_array_equal(potential.value_terms([0.0, 1e-300, -2.0]), [0.0, np.inf, np.inf])
    assert potential.grad(0.0) == 0.0
    assert np.isnan(potential.grad(1.0))


def test_mixed_sides_in_one_array():
    potential = HyperbolicPotential([0.5, ABSENT, 0.5, ABSENT], [ABSENT, 1.0, 1.0, ABSENT])
    assert potential.value(np.array([1.0, -1.0, 1.0, 0.0])) < np.inf
    assert potential.value(np.array([-1.0, -1.0, 1.0, 0.0])) == np.inf
    w = potential.grad_dual(np.zeros(4))
    expected = [np.exp(0.5), -np.exp(1.0), np.exp(0.5) - np.exp(1.0), 0.0]
    np.testing.assert_allclose(w, expected, rtol=1e-15)


def biased_reference(potential, z):
    """(w, w', Q*) of the biased form at the exact double z."""
    depth, unit = mp.mpf(potential.depth), mp.exp(mp.mpf(potential.log_unit))
    k = depth / (depth - 2)
    w = slope = conjugate = mp.mpf(0)
    for sign, log in ((1, float(potential.log_plus)), (-1, float(potential.log_minus))):
        if log == ABSENT:
            continue
        c = mp.exp((2 - depth) * mp.mpf(log))
        rest = c - sign * mp.mpf(float(z)) * unit
        w += sign * rest**-k
        slope += k * rest ** (-k - 1) * unit
        conjugate += (rest ** (1 - k) - c ** (1 - k)) / (k - 1) / unit
    return w, slope, conjugate


BIASED = [
    (3, -1.0, -2.0),
    (3, -1.0, -1.0),
    (4, 0.3, 0.3 - 1e-9),
    (4, 0.0, -40.0),
    (5, -3.0, ABSENT),
    (6, ABSENT, 0.7),
    (2.2, -0.5, 0.1),
]


@pytest.mark.parametrize(("depth", "log_plus", "log_minus"), BIASED)
@pytest.mark.parametrize("fraction", [-0.99, -0.3, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 0.3, 0.99])
def test_biased_depth(depth, log_plus, log_minus, fraction):
    potential = BiasedDepthPotential(depth, log_plus, log_minus)
    log_reach = (2.0 - depth) * max(log_plus, log_minus) - potential.log_unit
    z = fraction * float(np.exp(min(log_reach, 200.0)))
    with mp.workdps(DIGITS + 60):
        w, slope, conjugate = biased_reference(potential, z)
        # 1e-13 as asked of the biased form; z next to the pole amplifies its rounding by 100 k.
        assert close(potential.grad_dual(z), w, 1e-13, abs(z) * slope)
        assert close(potential.hess_dual(z), slope, 1e-13)
        assert close(potential.conjugate_terms(z), conjugate, 1e-13)
        value = mp.mpf(z) * w - conjugate
        w_double = float(w)
        energy = abs(z * w) + 1e-13 * w**2 / slope
        # Rounding w by |w| eps moves z by |w| / w' eps, and Q by |z| times that plus its square.
        assert close(potential.grad(w_double), z, 1e-13, abs(w) / slope)
        assert close(potential.value_terms(w_double), value, 1e-13, energy)


def test_biased_depth_with_equal_sides_is_the_tied_potential():
    w = np.array([-1e8, -0.2, 1e-9, 3.0])
    for depth, log_scale in ((3, -2.0), (5, 0.4), (3, -1e4)):
        tied = DepthPotential(depth, log_scale=log_scale)
        biased = BiasedDepthPotential(depth, log_scale, log_scale)
        assert tied.log_unit == biased.log_unit
        np.testing.assert_allclose(biased.grad(w), tied.grad(w), rtol=1e-13)
        np.testing.assert_allclose(biased.value_terms(w), tied.value_terms(w), rtol=1e-13)


def test_biased_depth_starts_at_its_start():
    potential = BiasedDepthPotential(3, [0.1, -2.0, ABSENT], [-0.4, ABSENT, 0.2])
    expected = [np.exp(0.3) - np.exp(-1.2), np.exp(-6.0), -np.exp(0.6)]
    np.testing.assert_allclose(potential.start, expected, rtol=1e-15)
    np.testing.assert_array_equal(potential.grad_dual(np.zeros(3)), potential.start)
    np.testing.assert_allclose(potential.value_terms(potential.start), 0.0, atol=1e-28)
    np.testing.assert_allclose(potential.grad(potential.start), 0.0, atol=1e-15)


def test_biased_depth_domain():
    potential = BiasedDepthPotential(4, [0.0, 0.0, ABSENT], [0.0, ABSENT, 0.0])
    np.testing.assert_array_equal(potential.grad_dual([1.0, 2.0, -1.0]), [np.inf, np.inf, -np.inf])
    np.testing.assert_array_equal(potential.conjugate_terms([1.0, 2.0, -1.0]), np.inf)
    assert potential.value_terms([0.1, -1.0, 1.0])[0] < np.inf
    np.testing.assert_array_equal(potential.value_terms([0.1, -1.0, 1.0])[1:], np.inf)
    # Q(0) of a one-sided branch is finite: a^2/m, the limit of z w - Q* at the far end.
    np.testing.assert_allclose(potential.value_terms(np.zeros(3)), [0.0, 1.0, 1.0], atol=1e-28)
