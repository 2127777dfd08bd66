"""Where the flow of a linear neuron ends: at a fit, at zero, at a saddle; and what is undecided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowbias as fb
from flowbias.limits.neurons.parts import NeuronParts
from flowbias.limits.neurons.sign import InputFlow
from flowbias.models.neuron import Neuron
from flowbias.results.solution import Status
from tests.limits.neuron_flows import limit, random_problem


def test_zero_outer_weight_moves_at_once():
    rng = np.random.default_rng(3)
    X, y, w = random_problem(rng)
    solution = limit(0.0, w, X, y)
    assert solution.status is Status.CERTIFIED
    assert np.sign(solution.details["a"]) == np.sign(w @ X.T @ y)


@pytest.mark.parametrize("a", [0.3, 4.0])
def test_zero_target(a):
    """y = 0: the loss of the zero predictor is the least there is, and a keeps its sign."""
    rng = np.random.default_rng(4)
    X, w = rng.standard_normal((2, 5)), rng.standard_normal(5)
    solution = limit(a, w, X, np.zeros(2))
    assert solution.status is Status.CERTIFIED
    moving = np.linalg.pinv(X) @ X @ w
    D = a**2 - moving @ moving
    assert_allclose(solution.w, np.sqrt(max(D, 0.0)) * (w - moving), atol=1e-12)


def test_saddles_are_no_limits():
    X, y = np.array([[2.0, 0.0]]), np.array([1.0])
    resting = limit(0.0, [0.0, 1.0], X, y)  # w is orthogonal to what the data pulls at
    assert resting.status is Status.STALLED
    assert "saddle" in resting.route
    assert not resting.w.any()
    with pytest.raises(fb.SolveError):
        resting.checked(True)
    trapped = limit(-1.0, [1.0], [[2.0]], [1.0])  # balanced, one dimension, against the data
    assert trapped.status is Status.STALLED
    assert "ends in the saddle" in trapped.route
    near = limit(-1.0, [1.0, 0.0], np.diag([2.0, 1.0]), [1.0, 0.0])
    assert near.status is Status.STALLED
    assert "too close to call" in near.route
    # Off balance by a little, either way, the same start has a limit.
    assert limit(-1.1, [1.0, 0.1], np.diag([2.0, 1.0]), [1.0, 0.5]).status is Status.CERTIFIED
    assert limit(-0.9, [1.0], [[2.0]], [1.0]).details["sign_change"] == 1.0


def test_a_saddle_has_no_outer_weight():
    """a tends to 0 there, whatever the closed form would say of a fit."""
    assert limit(0.0, [0.0, 1.29], [[2.0, 0.0]], [1.0]).details["a"] == 0.0
    assert limit(-1.29, [1.29], [[2.0]], [1.0]).details["a"] == 0.0


def test_resting_at_zero_loss_is_no_saddle():
    """a = 0 and y = 0: the start is a global minimum."""
    rng = np.random.default_rng(10)
    X, w = rng.standard_normal((2, 5)), rng.standard_normal(5)
    for inner in (w, w - np.linalg.pinv(X) @ X @ w):
        solution = limit(0.0, inner, X, np.zeros(2))
        assert solution.status is Status.CERTIFIED
        assert not solution.w.any()
        assert fb.flow(Neuron(0.0, inner), X, np.zeros(2)).status.ok


def test_no_derivative_at_the_kink():
    solution = limit(0.3, [1.0, 0.5], [[1.0, 0.0]], [0.0])
    assert solution.details["a"] == 0.0
    with pytest.raises(fb.InputError, match="must come by a route that has a derivative"):
        solution.sensitivity()


@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e-120, 1e120])
@pytest.mark.parametrize("a", [1.0, 0.1, 0.0, -0.1])
def test_targets_that_cancel_are_targets_of_zero(a, stretch):
    """All of y is outside the range of X: what rounding leaves of its projection is no target."""
    rng = np.random.default_rng(13)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    X[0] *= 1e3
    twice, against = np.vstack([X, X]), stretch * np.concatenate([y, -y])
    for inner in (w, 0.0 * w) if a else (w,):
        solution, zero = limit(a, inner, twice, against), limit(a, inner, X, np.zeros(3))
        assert solution.status is Status.PROJECTED
        assert solution.distance == 1.0
        assert_allclose(solution.w, zero.w, atol=1e-12)
        rich = fb.rich_limit(Neuron(a, inner), twice, against)
        assert rich.status is Status.PROJECTED
        assert not rich.w.any()


def test_a_small_projection_is_still_a_target():
    rng = np.random.default_rng(14)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    twice, nearly = np.vstack([X, X]), np.concatenate([y + 1e-4 * y, -y])
    solution = limit(-1e-3, 1e-3 * w, twice, nearly)
    assert solution.status is Status.PROJECTED
    assert_allclose(X @ solution.w, 0.5e-4 * y, atol=1e-12)


def test_settled_states_stay_settled():
    """The criterion is one of the loss: true from some time on, and never before a sign change."""
    rng = np.random.default_rng(6)
    seen = 0
    for _ in range(40):
        X, y, w = random_problem(rng)
        a = -np.sign(w @ X.T @ y) * 0.3 * np.linalg.norm(w)
        solution = limit(a, w, X, y)
        if not solution.details["sign_change"]:
            continue
        seen += 1
        flow = InputFlow.of(NeuronParts.of(a, w, fb.Regression(X, y)))
        path = solve_ivp(flow.velocity, (0.0, 200.0), flow.start, rtol=1e-10, atol=1e-12)
        settled = np.array([flow.is_settled(state, 1e-9) for state in path.y.T])
        first = int(np.argmax(settled))
        assert settled[first:].all()
        assert (np.sign(path.y[0, first:]) == np.sign(solution.details["a"])).all()
        assert np.sign(path.y[0, 0]) == np.sign(a)
        if seen == 5:
            break
    assert seen == 5


@given(seed=st.integers(0, 10**6), a=st.floats(-2.0, 2.0))
def test_settled_means_a_loss_below_that_of_zero(seed, a):
    rng = np.random.default_rng(seed)
    X, y, w = random_problem(rng)
    flow = InputFlow.of(NeuronParts.of(a or 1.0, w, fb.Regression(X, y)))
    outer, inputs = flow.start[0], flow.start[1:]
    loss, zero = np.sum((outer * inputs - flow.target) ** 2), np.sum(flow.target**2)
    assert flow.is_settled(flow.start, 1e-9) == (loss < zero * (1 - 1e-8)) or abs(
        loss - zero
    ) < 1e-6 * (zero + np.sum((outer * inputs) ** 2))


def test_too_close_to_call_is_not_called():
    """Between starts that end on different branches lies one that leads into a saddle."""
    X, y, w = np.diag([2.0, 1.0]), np.array([1.0, 0.3]), np.array([1.0, 0.5])
    keeps, turns = -1.2, -0.01
    assert limit(keeps, w, X, y).details["sign_change"] == 0.0
    assert limit(turns, w, X, y).details["sign_change"] == 1.0
    while turns - keeps > 1e-11:
        middle = 0.5 * (keeps + turns)
        solution = limit(middle, w, X, y)
        if not solution.status.ok:
            assert "too close to call" in solution.route
            return
        if solution.details["sign_change"]:
            turns = middle
        else:
            keeps = middle
    pytest.fail("a start within 1e-11 of the other branch was called")
