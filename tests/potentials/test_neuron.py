"""The potential of linear neurons: oracles, conformance, extremes, the kink at delta < 0."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.ground.arguments import InputError
from flowbias.potentials import check_potential
from flowbias.potentials.neuron import BalancedNeuronPotential, NeuronPotential
from tests.oracles import ORACLES

ROWS = ORACLES["functions"]["qhat_delta"]
# About ten roundings of 1.1e-16 each; a vector's length adds two.
RELATIVE = 2e-15
DIRECTION = np.array([0.6, -0.8])
DELTAS = st.sampled_from([0.0, 1.0, 1e-9, 1e12, -1.0, -1e-9, -1e12, 1e140, -1e140])
LENGTHS = st.floats(-150.0, 150.0).map(lambda e: 10.0**e)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"x={row['x']:g},delta={row['delta']:g}")
def test_oracle(row):
    potential, w = NeuronPotential(row["delta"]), row["x"] * DIRECTION
    assert_allclose(potential.value(w), row["qhat_centered"], rtol=RELATIVE, atol=0.0)
    assert_allclose(potential.grad(w), row["dqhat"] * DIRECTION, rtol=RELATIVE, atol=0.0)
    weights = potential.weights(row["x"])
    assert_allclose(weights, (row["abs_a"], row["norm_w"]), rtol=RELATIVE, atol=0.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1e-6, 1e6])
def test_conformance(delta):
    check_potential(NeuronPotential(delta))


@pytest.mark.parametrize("delta", [-1e-3, -1.0, -50.0])
def test_conformance_outside_the_ball(delta):
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((6, 4))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    radius = 1.5 * np.sqrt(-delta)
    points = radius * np.geomspace(1.05, 30.0, 6)[:, None] * directions
    check_potential(NeuronPotential(delta), dual_points=points)


def test_balanced_is_the_three_halves_power():
    potential, w = BalancedNeuronPotential(), np.array([3.0, -4.0])
    check_potential(potential)
    assert_allclose(potential.value(w), 5.0**1.5)
    assert_allclose(potential.grad(w), 1.5 * 5.0**-0.5 * w)
    assert potential == BalancedNeuronPotential()
    assert repr(potential) == "BalancedNeuronPotential()"


@given(delta=DELTAS, x=LENGTHS)
@example(delta=1e140, x=1e-85)  # the square of ||w|| is below the double range
def test_round_trip_and_fenchel_at_any_size(delta, x):
    potential, w = NeuronPotential(delta), x * DIRECTION
    z = potential.grad(w)
    value, conjugate, pairing = potential.value(w), potential.conjugate(z), float(z @ w)
    assert np.isfinite([value, conjugate, pairing]).all()
    # The smallest of them are subnormal, 5e-324 apart.
    assert_allclose(value + conjugate, pairing, rtol=1e-14, atol=5 * 5e-324)
    a, m = potential.weights(x)
    if a > 1e-7 * m:
        # w = |a| z/1.5, a^2 = m^2 + delta: for delta < 0 the rounding of m counts (m/a)^2 times.
        assert_allclose(potential.grad_dual(z), w, rtol=1e-14 * (1.0 + (m / a) ** 2))


@given(delta=DELTAS, x=LENGTHS)
def test_hessians_are_inverse_to_each_other(delta, x):
    potential, w = NeuronPotential(delta), x * DIRECTION
    a, m = potential.weights(x)
    if a <= 1e-4 * m:
        return
    dual = potential.hess_dual(potential.grad(w))
    across = np.array([-DIRECTION[1], DIRECTION[0]])
    # Relative to the larger of the two: the smaller may be nothing but its rounding.
    radial, tangential = potential.curvatures(x)
    assert radial <= tangential * (1 + 1e-15)
    rtol = 1e-13 * (1.0 + (m / a) ** 2)
    assert_allclose(dual @ DIRECTION, DIRECTION / radial, rtol=rtol, atol=rtol / radial)
    assert_allclose(across @ dual @ across, 1.0 / tangential, rtol=rtol + 1e-15 * (m / a) ** 2)


@given(delta=DELTAS, x=LENGTHS, share=st.floats(0.0, 2.0), at=st.floats(-1.0, 1.0))
def test_strong_convexity_holds_in_the_whole_ball(delta, x, share, at):
    potential = NeuronPotential(delta)
    least = potential.strong_convexity(x * DIRECTION, share * x)
    inside = abs(x + at * share * x)
    assert least <= potential.curvatures(inside)[0] * (1 + 1e-14)


def test_kink_below_zero():
    potential = NeuronPotential(-4.0)
    inside = np.array([0.0, 2.9])  # the ball has radius 3
    assert not potential.grad_dual(inside).any()
    assert potential.conjugate(inside) == 0.0
    assert not potential.hess_dual(inside).any()
    assert potential.value(np.zeros(2)) == 0.0
    tiny = 1e-12 * DIRECTION
    assert_allclose(np.linalg.norm(potential.grad(tiny)), 3.0)
    assert_allclose(potential.value(tiny), 3.0 * 1e-12)
    assert not potential.determined(np.zeros(2)).any()
    assert potential.determined(tiny).all()
    assert potential.strong_convexity(tiny, 1e-11) == 0.0


@pytest.mark.parametrize("delta", [np.nan, np.inf, "many", 1e201, None])
def test_bad_delta(delta):
    with pytest.raises(InputError, match=r"delta: must be a finite number .* a\^2 - \|\|w\|\|\^2"):
        NeuronPotential(delta)
