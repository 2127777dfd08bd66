"""The flow of neurons: few unknowns against all weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.flows.coordinates import NeuronCoordinates
from flowbias.flows.fit import fit_of
from flowbias.flows.integrate import flow
from flowbias.ground.arguments import InputError
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 6))
Y = RNG.standard_normal(3)
W = RNG.standard_normal(6)
TIMES = [0.01, 0.3, 2.0]
STARTS = [Neuron(2.0, W), Neuron(-0.4, W), Neuron(0.0, W), Neuron(3.0, 0.0 * W)]


def coordinates(model, data, target):
    problem = Regression(data, target)
    return NeuronCoordinates(model, fit_of(problem, model.initial, None), 1.0)


@pytest.mark.parametrize("model", STARTS, ids=repr)
@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 1, 2, 2]], ids=["independent", "dependent"])
def test_rank_plus_one_unknowns_move_as_all_weights_do(model, rows):
    at = coordinates(model, X[rows], Y[rows])
    assert at.start.size == 4
    state = at.start + 0.1 * np.arange(4.0)
    velocity = at.velocity(0.0, state)
    weights = at.parameters(state)
    pull = X[rows].T @ (Y[rows] - X[rows] @ at.predictor(state))
    expected = model.parameter_gradient(weights, pull)
    assert_allclose(velocity[0], expected.a[0])
    assert_allclose(velocity[1:] @ at.fit.rows, expected.w)
    assert_allclose(at.predictor(state), weights.a * weights.w)
    assert_allclose(at.predictor(np.stack([state, state]))[1], at.predictor(state))


@pytest.mark.parametrize("model", STARTS, ids=repr)
def test_jacobian(model):
    at = coordinates(model, X, Y)
    state, h = at.start + 0.2, 1e-6
    moves = h * np.eye(4)
    by_difference = np.stack(
        [(at.velocity(0, state + m) - at.velocity(0, state - m)) / (2 * h) for m in moves], axis=1
    )
    assert_allclose(at.jacobian(0.0, state), by_difference, atol=1e-7)


def test_dual_is_the_certificates():
    model = Neuron(2.0, W)
    at = coordinates(model, X, Y)
    dual = neuron_limit(model, X, Y, 1e-10).dual
    limit = neuron_limit(model, X, Y, 1e-10)
    state = np.concatenate([[limit.details["a"]], dual / 1.5])
    assert_allclose(at.dual(state), dual)
    assert_allclose(at.predictor(state), limit.w)
    state[0] *= -1.0
    assert np.isnan(at.dual(state)).all()


@pytest.mark.parametrize("model", [Neuron(2.0, W), Neuron(-0.4, W)], ids=repr)
def test_parameter_flow_ends_at_the_limit_and_conserves_delta(model):
    trajectory = flow(model, X, Y, route="parameter", residual=1e-9)
    limit = neuron_limit(model, X, Y, 1e-10)
    assert_allclose(trajectory.w[-1], limit.w, atol=1e-7)
    assert trajectory.conserved_drift < 1e-9


def test_sum_conserves_its_balance():
    model = NeuronSum(RNG.standard_normal(2), RNG.standard_normal((2, 6)))
    assert flow(model, X, Y, t=TIMES, route="parameter").conserved_drift < 1e-9


def test_flow_takes_the_short_way():
    """`fb.flow` picks rank + 1 unknowns, and ends where the flow of all weights does."""
    rng = np.random.default_rng(11)
    X, y = rng.standard_normal((3, 8)), rng.standard_normal(3)
    model = fb.Neuron(1.3, 0.4 * rng.standard_normal(8))
    short = fb.flow(model, X, y, t=[0.1, 1.0, 10.0])
    long = fb.flow(model, X, y, t=[0.1, 1.0, 10.0], route="parameter")
    assert short.route == "neuron"
    assert_allclose(short.w, long.w, atol=1e-9)
    assert_allclose(fb.flow(model, X, y, residual=1e-11).w[-1], fb.limit(model, X, y).w, atol=1e-9)


def test_vanishing_start_gives_the_shortest_fit():
    rng = np.random.default_rng(12)
    X, y = rng.standard_normal((3, 8)), rng.standard_normal(3)
    for model in (fb.Neuron(1.3, np.ones(8)), fb.NeuronSum([1.0, 2.0], np.eye(8)[:2])):
        assert_allclose(fb.rich_limit(model, X, y).w, fb.min_norm(X, y).w, atol=1e-12)


@pytest.mark.parametrize(
    ("data", "target", "weights", "name"),
    [
        (1e150, 1.0, 1.0, "X"),
        (1e-150, 1.0, 1.0, "X"),
        (1.0, 1e150, 1.0, "y"),
        (1.0, 1.0, 1e-90, "a, w"),
    ],
)
def test_sizes_whose_products_leave_the_double_range_are_refused(data, target, weights, name):
    with pytest.raises(InputError, match=rf"^{name}: must have a largest entry between 1e-70 and"):
        fb.flow(Neuron(weights, weights * W), data * X, target * Y)


def test_sizes_within_it_are_not():
    trajectory = fb.flow(Neuron(1.0, W), 1e60 * X, 1e60 * Y)
    limit = neuron_limit(Neuron(1.0, W), X, Y, 1e-10)
    assert_allclose(trajectory.w[-1], limit.w, atol=1e-6)


@pytest.mark.parametrize("size", [1e100, 1e150, 1e200])
def test_a_speed_out_of_the_double_range_is_refused(size):
    model = NeuronSum([1.0, 0.5], np.stack([W, 1.0 - 2.0 * W]))
    with pytest.raises(InputError, match=r"X, y: must leave the flow's speed .* Rescale X, y"):
        fb.flow(model, size * X, Y)
