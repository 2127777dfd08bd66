"""Function values against 30-digit references, computed by two independent methods."""

import json
from pathlib import Path

import numpy as np
import pytest

from flowbias.potentials import DepthPotential, DistancePotential, Hypentropy, UntiedPotential

ORACLES = json.loads(
    (Path(__file__).resolve().parents[1] / "oracles" / "oracles.json").read_text(encoding="utf-8")
)["functions"]
# The aim is 1e-15; about ten roundings of 1.1e-16 each add up to this.
RELATIVE = 2e-15


def table(name, **conditions):
    """The columns of an oracle table as arrays."""
    rows = [row for row in ORACLES[name] if all(row[k] == v for k, v in conditions.items())]
    assert rows
    return {key: np.array([row[key] for row in rows]) for key in rows[0] if "str" not in key}


def assert_close(actual, expected, rtol=RELATIVE):
    # atol 0: at z = 1e-100 an absolute tolerance would pass anything.
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=0.0)


def below_underflow(expected):
    """Values that a double can still hold to all digits."""
    return np.abs(expected) > 1e-300


def test_hypentropy_is_q_at_scale_one():
    oracle = table("q")
    potential = Hypentropy(scale=1.0)
    assert_close(potential.value_terms(oracle["z"]), oracle["q"])
    assert_close(potential.grad(oracle["z"]), oracle["dq"])


@pytest.mark.parametrize("scale", [1e-3, 0.7, 1e4])
def test_hypentropy_scales_as_q(scale):
    oracle = table("q")
    with np.errstate(over="ignore"):
        w, expected = oracle["z"] * scale**2, oracle["q"] * scale**2
    fits = (np.abs(w) < 1e300) & below_underflow(expected)
    # Rounding z scale^2 costs one more unit, which the large-z logarithm does not amplify.
    assert_close(Hypentropy(scale).value_terms(w)[fits], expected[fits], 3e-15)
    assert_close(Hypentropy(scale).grad(w)[fits], oracle["dq"][fits], 3e-15)


def test_hypentropy_curvature():
    # q'' is 1 / w'(z) at z = q'(w); w' amplifies the rounding of z by |z| itself.
    oracle = table("q")
    slope = Hypentropy(scale=1.0).hess_dual(oracle["dq"])
    fits = slope < 1e300
    allowed = RELATIVE * (1.0 + np.abs(oracle["dq"]))
    assert np.all(np.abs(slope * oracle["d2q"] - 1.0)[fits] <= allowed[fits])


@pytest.mark.parametrize("depth", [3, 4, 5, 10])
def test_depth_potential_is_q_of_its_depth(depth):
    oracle = table(f"q_D{depth}")
    potential = DepthPotential(depth, scale=1.0)
    assert_close(potential.value_terms(oracle["z"]), oracle["q"])
    assert_close(potential.grad(oracle["z"]), oracle["hinv"])
    assert_close(potential.dual_slack(oracle["z"]), oracle["one_minus_hinv"])


@pytest.mark.parametrize("depth", [3, 4, 5, 10])
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_depth_potential_scales(depth, scale):
    oracle = table(f"q_D{depth}")
    w = oracle["z"] * scale**depth
    expected = oracle["q"] * scale**2
    fits = (np.abs(w) < 1e300) & below_underflow(expected) & (expected < 1e300)
    potential = DepthPotential(depth, scale)
    # scale^depth as computed here rounds as well, and w scales with it.
    assert_close(potential.value_terms(w)[fits], expected[fits], 5e-15)
    assert_close(potential.grad(w)[fits], (oracle["hinv"] * scale ** (2.0 - depth))[fits], 5e-15)


@pytest.mark.parametrize("depth", [3, 4, 5, 10])
def test_depth_dual_map_inverts_the_oracle(depth):
    oracle = table(f"q_D{depth}")
    x, k = oracle["hinv"], depth / (depth - 2.0)
    moderate = oracle["one_minus_hinv"] > 1e-3
    # hinv is rounded; w moves by k/(1-x) relative to that.
    allowed = RELATIVE * (1.0 + k / oracle["one_minus_hinv"][moderate])
    w = DepthPotential(depth, scale=1.0).grad_dual(x[moderate])
    assert np.all(np.abs(w / oracle["z"][moderate] - 1.0) <= allowed)


def test_distance_is_r():
    oracle = table("r")
    potential = DistancePotential(scale=1.0)
    assert_close(potential.value_terms(oracle["z"]), oracle["r"])
    assert_close(potential.grad(oracle["z"]), oracle["dr"])


@pytest.mark.parametrize("scale", [1e-3, 50.0])
def test_distance_scales_as_r(scale):
    oracle = table("r")
    w, expected = oracle["z"] * scale**2, oracle["r"] * scale**2
    fits = (np.abs(w) < 1e300) & below_underflow(expected)
    potential = DistancePotential(scale=scale)
    assert_close(potential.value_terms(w)[fits], expected[fits], 3e-15)
    assert_close(potential.grad(w)[fits], oracle["dr"][fits], 3e-15)


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1e5, 1e90])
def test_distance_is_the_depth_4_potential_it_declares(scale):
    """grad R = grad Q_4 / exp(log_unit) with the attributes of the power family."""
    distance = DistancePotential(scale=scale)
    assert distance.depth == 4
    depth4 = DepthPotential(4, log_scale=distance.log_plus)
    w = np.array([1e-3, 1.0, -50.0])
    factor = np.exp(depth4.log_unit - distance.log_unit)
    # The unit goes through log(scale), |log(scale)| = 207 at most.
    rtol = 2.3e-16 * (10.0 + 8.0 * abs(np.log(scale)))
    assert_close(distance.grad(w), depth4.grad(w) * factor, rtol)
    assert_close(distance.value_terms(w), depth4.value_terms(w) * factor, rtol)


@pytest.mark.parametrize("sqrt_k", sorted({row["sqrt_k"] for row in ORACLES["q_k"]}))
def test_untied_potential_is_q_k(sqrt_k):
    oracle = table("q_k", sqrt_k=sqrt_k)
    potential = UntiedPotential.from_sqrt_k(sqrt_k)
    assert_close(potential.value_terms(oracle["x"]), oracle["q_k"])
    assert_close(potential.grad(oracle["x"]), oracle["dq_k"])


@pytest.mark.parametrize("shape", [0.0, 0.5, -0.99])
def test_untied_scale_and_shape_give_sqrt_k(shape):
    scale = 0.3
    sqrt_k = 4.0 * scale**2 * (1.0 + shape**2) / (1.0 - shape**2)
    z = np.array([-3.0, 1e-5, 0.4])
    expected = 0.5 * sqrt_k * np.sinh(2.0 * z)
    assert_close(UntiedPotential(scale, shape=shape).grad_dual(z), expected, 5e-15)


def test_untied_shape_zero_is_half_the_tied_potential():
    w = np.array([-2.0, 1e-9, 0.3])
    tied, untied = Hypentropy(scale=0.3), UntiedPotential(scale=0.3)
    assert_close(untied.value_terms(w), 0.5 * tied.value_terms(w))
    assert_close(untied.grad(w), 0.5 * tied.grad(w))
