"""Limits of sums of linear neurons, and of starts that vanish."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.limits.neurons.sum_of_neurons import neuron_sum_limit
from flowbias.limits.neurons.vanishing import neuron_rich_limit
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.results.solution import Status
from tests.limits.neuron_flows import TOL, limit, random_problem
from tests.oracles import ORACLES

# The figure the project promises; the references carry 15 digits.
ORACLE_ATOL = 1e-9
BALANCED = [
    pytest.param(problem, case, id=problem["id"])
    for problem in ORACLES["problems"]
    for case in problem["limits"]
    if case["model"] == "balanced_multi_neuron"
]


@pytest.mark.parametrize(("problem", "case"), BALANCED)
def test_balanced_oracle(problem, case):
    a, e = np.array(case["params"]["a0"]), np.array(case["params"]["direction"])
    model = NeuronSum(a, np.outer(a, e / np.linalg.norm(e)))
    solution = neuron_sum_limit(model, problem["X"], problem["y"], TOL)
    assert np.abs(solution.w - case["beta"]).max() <= ORACLE_ATOL
    assert solution.status is Status.CERTIFIED
    assert "strictly balanced" in solution.route
    assert solution.potential.delta == 0.0


def test_copies_of_one_neuron_end_as_it_does():
    rng = np.random.default_rng(7)
    X, y, w = random_problem(rng)
    u = rng.standard_normal(4)
    u /= np.linalg.norm(u)
    many = neuron_sum_limit(NeuronSum(1.7 * u, np.outer(u, w)), X, y, TOL)
    assert_allclose(many.w, limit(1.7, w, X, y).w, atol=1e-12)
    assert "copies of one neuron" in many.route


def test_unbalanced_neurons_are_integrated_and_say_so():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((2, 5)), rng.standard_normal(2)
    model = NeuronSum(rng.standard_normal(3), rng.standard_normal((3, 5)))
    solution = neuron_sum_limit(model, X, y, TOL)
    assert solution.status is Status.INTEGRATED
    assert solution.w.shape == (5,)
    assert solution.feasibility < 1e-12
    # The identity compares two flows in different unknowns; both are followed to about 1e-10.
    assert solution.details["null_space_defect"] < 1e-8
    end = fb.flow(model, X, y, route="parameter", residual=1e-10).w[-1]
    assert_allclose(solution.w, end, atol=max(1e-8, 10 * solution.error))
    # |a_i| = ||w_i|| neuron by neuron is not enough for the 3/2-power.
    a = model.a
    W = a[:, None] * model.W / np.linalg.norm(model.W, axis=1)[:, None]
    assert neuron_sum_limit(NeuronSum(a, W), X, y, TOL).status is Status.INTEGRATED


def test_vanishing_start_is_the_shortest_fit():
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((2, 5)), rng.standard_normal(2)
    a, w = 0.7, rng.standard_normal(5)
    rich = neuron_rich_limit(a, w, X, y)
    assert_allclose(rich.w, np.linalg.pinv(X) @ y, atol=1e-12)
    factor = np.exp(rich.details["visible_log_factor"])
    start = limit(factor * a, factor * w, X, y)
    assert np.linalg.norm(start.w - rich.w) <= 1e-3 * np.linalg.norm(rich.w)
    # And it says when, not only that: a hundred times larger is visible.
    larger = limit(100 * factor * a, 100 * factor * w, X, y)
    assert np.linalg.norm(larger.w - rich.w) > 1e-3 * np.linalg.norm(rich.w)


SADDLES = [
    (Neuron(1.0, [1.0]), [[1.0]], [-1.0]),
    (Neuron(0.0, [0.0, 1.0]), [[1.0, 0.0]], [1.0]),
    (Neuron(-1.0, [1.0, 0.0]), np.diag([2.0, 1.0]), [1.0, 0.0]),
    (Neuron(-5.0, [3.0, 4.0, 7.0]), 1e120 * np.eye(2, 3), [0.3, 0.4]),
    (NeuronSum([0.6, 0.8], [[0.6], [0.8]]), [[1.0]], [-1.0]),
    (NeuronSum([0.0, 0.0], [[0.0, 1.0], [0.0, 2.0]]), [[1.0, 0.0]], [1.0]),
    (NeuronSum([0.0, 0.0], [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]), [[1.0, 0.0, 0.0]], [1.0]),
    (NeuronSum([1.0, 2.0], [[-1.0, 3.0], [-2.0, 1.0]]), [[1.0, 0.0]], [1.0]),
]


@pytest.mark.parametrize(("model", "X", "y"), SADDLES)
def test_vanishing_start_that_never_leaves_a_saddle_has_no_limit(model, X, y):
    rich = fb.rich_limit(model, X, y, throw=False)
    assert rich.status is Status.STALLED
    assert "saddle" in rich.route
    assert not rich.w.any()
    a, W = model.initial_parameters()
    smaller = type(model)(*(1e-6 * np.asarray(part) for part in (np.squeeze(a), W)))
    if np.abs(X).max() < 1e70:  # beyond it sums are refused
        assert not fb.limit(smaller, X, y, throw=False).status.ok
    # Off that set by a little, in a or in W, the same start has one.
    moved = type(model)(np.squeeze(a) + 1e-6, W)
    assert_allclose(fb.rich_limit(moved, X, y).w, np.linalg.lstsq(X, y)[0])


def test_limit_of_a_sum_that_nothing_moves_says_so():
    model, X, y = SADDLES[6]
    assert "saddle" in fb.limit(model, X, y, throw=False).message


@pytest.mark.parametrize("seed", range(6))
def test_vanishing_sums_reach_the_shortest_fit(seed):
    """Followed by an integrator that shares nothing with the library, against what grows near 0."""
    rng = np.random.default_rng([15, seed])
    X, y = rng.standard_normal((2, 4)), rng.standard_normal(2)
    a, W = 1e-3 * rng.standard_normal(3), 1e-3 * rng.standard_normal((3, 4))
    u = X.T @ y / np.linalg.norm(X.T @ y)
    a = -W @ u + 1e-3 * (seed + 1) * a  # little of it grows

    def velocity(_, state):
        outer, inner = state[:3], state[3:].reshape(3, 4)
        pull = X.T @ (y - X @ (outer @ inner))
        return np.concatenate([inner @ pull, np.outer(outer, pull).ravel()])

    start = np.concatenate([a, W.ravel()])
    end = solve_ivp(velocity, (0.0, 2000.0), start, method="LSODA", rtol=1e-10, atol=1e-14).y[:, -1]
    rich = fb.rich_limit(NeuronSum(a, W), X, y)
    assert rich.status is Status.CERTIFIED
    # What is left of the start: ||K|| ||a(inf)||, both known from above.
    length = np.linalg.norm(rich.w)
    left = np.linalg.norm(W) * np.sqrt(a @ a + length)
    assert np.linalg.norm(end[:3] @ end[3:].reshape(3, 4) - rich.w) <= left + 1e-6 * length


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_nothing_is_a_small_share_of_a_limit_of_zero(a):
    rich = fb.rich_limit(Neuron(a, [1.0, 2.0]), [[1.0, 0.0]], [0.0])
    assert rich.details["visible_log_factor"] == -np.inf
    within = fb.rich_limit(Neuron(a, [1.0, 0.0]), [[1.0, 0.0]], [0.0])
    assert within.details["visible_log_factor"] == np.inf


@pytest.mark.parametrize(
    "model", [Neuron(1.0, [1.0, 2.0], 0.3), fb.LinearNet(np.eye(2), np.eye(2))], ids=repr
)
def test_models_without_a_known_rich_limit_hear_of_those_that_have_one(model):
    with pytest.raises(InputError, match="POWER_DUAL or RICH_COSTS or NEURON or NEURON_SUM"):
        fb.rich_limit(model, np.eye(2), [1.0, 1.0])
