"""Flows of deep networks from starts so small that neither time nor dual has digits for them."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

import flowbias as fb
from flowbias.flows import integrate
from flowbias.flows.coordinates import DualCoordinates
from flowbias.flows.slacks import SlackCoordinates, StepClock
from flowbias.flows.trajectory import FlowStatus

# Residual 1e-8 of the flow, magnified by the condition of the columns that are awake.
NEAR = 1e-6


def data(seed, n=4, d=10, *, sparse=False):
    rng = np.random.default_rng([30, seed])
    X = rng.standard_normal((n, d))
    return X, X[:, :2] @ [1.0, -2.0] if sparse else rng.standard_normal(n)


@pytest.mark.parametrize(
    ("depth", "log_scale"), [(3, -60.0), (4, -200.0), (5, -30.0), (2.5, -200.0)]
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("even", [False, True], ids=["uneven", "even"])
def test_tiny_starts_are_followed_to_their_limits(depth, log_scale, sparse, even):
    X, y = data(1, sparse=sparse)
    w0 = np.ones(10) if even else np.linspace(0.5, 2.0, 10)
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale, w0=w0)
    path = fb.flow(model, X, y)
    assert path.status is FlowStatus.CONVERGED
    assert path.distance_to_limit <= NEAR
    assert path.conserved_drift <= 1e-9
    assert (np.diff(path.t) >= 0.0).all()
    assert (np.diff(path.loss) <= 1e-9 * path.loss[0]).all()
    assert_allclose(path.at(path.t[-1]), path.w[-1])


@pytest.mark.parametrize(("depth", "log_scale"), [(3, -4.0), (4, -3.0), (5, -2.0)])
def test_slacks_follow_the_flow_of_the_weights(monkeypatch, depth, log_scale):
    """At scales where both can: against the weights themselves, which share nothing with slacks."""
    X, y = data(2, n=3, d=7)
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale)
    t = np.unique(fb.flow(model, X, y).t[::20])[1:]
    weights = fb.flow(model, X, y, t=t, rtol=1e-12, route="parameter")
    monkeypatch.setattr(integrate, "needs_slacks", lambda *_: True)
    slacks = fb.flow(model, X, y, t=t, rtol=1e-12)
    assert isinstance(slacks._coordinates, SlackCoordinates)
    # Local errors of 1e-12 in thousands of steps, which grow while coordinates wake.
    assert_allclose(slacks.w, weights.w, rtol=0, atol=1e-6)
    for ours, theirs in zip(slacks.parameters(t[3]), weights.parameters(t[3]), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6)


def test_times_between_states_are_those_of_the_scalar_flow():
    """One coordinate: p' = -(1 - p^-3), so that from p to p' the time is an integral."""
    path = fb.flow(fb.DiagonalNet(depth=3, log_scale=-60.0), [[1.0]], [1.0], rtol=1e-11)
    w = path.w[:, 0]
    first, last = int(np.argmax(w > 0.01)), int(np.argmax(w > 0.9))
    slacks = w[[last, first]] ** (-1.0 / 3.0)
    expected = quad(lambda p: 1.0 / (1.0 - p**-3.0), *slacks, epsrel=1e-12)[0]
    # Between them t, about 4e25, is one number; mirror rate 3 for depth 3.
    assert path.t[first] == path.t[last]
    assert_allclose(3.0 * path.elapsed[first + 1 : last + 1].sum(), expected, rtol=1e-7)
    assert_allclose(path.t[last], np.exp(60.0) / 3.0, rtol=1e-6)


def test_which_flows_need_slacks():
    X, y = data(4)
    tiny, small = (fb.flow(fb.DiagonalNet(3, log_scale=s), X, y, t=[1.0]) for s in (-60.0, -2.0))
    assert isinstance(tiny._coordinates, SlackCoordinates)
    assert isinstance(small._coordinates, DualCoordinates)


def test_awkward_data():
    X, y = data(5, n=3, d=8)
    tiny = fb.DiagonalNet(depth=3, log_scale=-60.0)
    mixed = fb.DiagonalNet.from_weights(np.r_[1.0, np.full(7, 1e-20)], np.full(8, 3e-20), depth=4)
    one_sided = fb.DiagonalNet.from_weights(
        np.full(8, 1e-20), np.r_[np.zeros(3), np.full(5, 3e-20)], depth=4
    )
    for model, inputs, outputs in (
        (tiny, np.vstack([X, X[:1]]), np.r_[y, y[:1]]),
        (tiny, np.vstack([X, X[:1]]), np.r_[y, y[:1] + 1.0]),
        (tiny, np.vstack([X, 0.0 * X[:1]]), np.r_[y, 0.0]),
        (tiny, np.hstack([X, 0.0 * X[:, :1]]), y),
        (tiny, np.eye(3), [1.0, -2.0, 0.0]),
        (tiny, np.ones((1, 3)), [1.0]),
        (tiny, 1e6 * X, 1e-3 * y),
        (mixed, X, y),
        (one_sided, X, y),
        (fb.DepthPotential(depth=3, log_scale=-60.0), X, y),
    ):
        path = fb.flow(model, inputs, outputs, loss="mean")
        assert path.status is FlowStatus.CONVERGED
        assert path.distance_to_limit <= NEAR
    # Equal and opposite columns keep equal slacks, also where rows are dependent.
    twins = np.hstack([X, X[:, :1], -X[:, 1:2]])
    for inputs, outputs in ((twins, y), (np.vstack([twins, twins[:1]]), np.r_[y, y[:1]])):
        path = fb.flow(tiny, inputs, outputs)
        assert path.status is FlowStatus.CONVERGED
        assert path.distance_to_limit <= NEAR
    rests = fb.flow(tiny, X, 0.0 * y)
    assert rests.status.ok
    assert not rests.w.any()


# Features 7 and 2 of the first, 1 of the second wake when others do: which of many fits of one l1
# norm the flow ends at is decided by slacks of 1e-80 of those that it began with.
TIED = (
    (
        [[-2, 2, 0, 0, 1, -1, 2, -2], [-1, -1, 0, 0, -2, -2, -2, -2], [-2, 2, -2, 1, 1, -1, -1, 0]],
        [-1, 2, -2],
        fb.DiagonalNet(4, log_scale=-100.0),
    ),
    ([[0, -1, 2, -1, 1], [-1, 0, 2, -2, 1]], [0, 1], fb.DiagonalNet(2.5, log_scale=-100.0)),
)


@pytest.mark.parametrize(("X", "y", "model"), TIED)
def test_columns_that_wake_together_are_said_to(X, y, model):
    path = fb.flow(model, X, y)
    assert path.status is FlowStatus.TIED
    assert "wake together" in path.message
    assert path.residual[-1] <= 1e-8
    # By times far beyond as well; tied ones fade like a power of time, over 80 decades of it.
    later = fb.flow(model, X, y, t=[path.t[-1], 1.2 * path.t[-1]])
    assert later.status is FlowStatus.TIED
    assert later.stats.steps < 20_000


def test_columns_that_wake_together_and_cannot_share_are_no_tie():
    # y is out of reach, and features 0 and 1 are alike to it at the start: they are independent.
    X = np.array([[-2.0, -1, -2], [2, 2, 0], [-2, -2, -1], [0, 1, 0]])
    path = fb.flow(fb.DiagonalNet(6, log_scale=-20.0), X, [-1.0, -2, 1, 1])
    assert path.status is FlowStatus.CONVERGED
    assert path.distance_to_limit <= NEAR


def test_at_the_end_of_the_double_range_no_step_is_short_enough():
    # Slacks of 1e-300 of the start's, which may be followed for a while, in steps of 1e-315.
    up = np.exp(-176.2) * np.array([1.7, 1.0, 1.9, 2.0, 1.0, 1.8, 1.9, 1.3])
    down = np.exp(-176.2) * np.array([0.0, 0.0, 0.0, 0.0, 0.9, 0.0, 0.9, 0.0])
    X = -np.array([[1.2, 1.2, 0.4, 0.8, 0.8, 0.8, 0.8, 0.4]])
    run = fb.flow(fb.DiagonalNet.from_weights(up, down, depth=6), X, [-2183.0], throw=False)
    assert not run.status.ok


def test_times_asked_for_and_travel():
    X, y = data(6)
    model = fb.DiagonalNet(depth=3, log_scale=-60.0)
    path = fb.flow(model, X, y)
    end = path.t[-1]
    at_times = fb.flow(model, X, y, t=np.linspace(0.0, 1.5 * end, 4))
    assert at_times.status is FlowStatus.FOLLOWED
    assert_allclose(at_times.w[-1], path.w[-1], atol=1e-7)
    assert_allclose(at_times.elapsed, [0.0, 0.5 * end, 0.5 * end, 0.5 * end], rtol=1e-12)
    again = pickle.loads(pickle.dumps(path))
    assert_allclose(again.at(0.7 * end), path.at(0.7 * end))


def test_the_clock_keeps_what_a_double_does_not():
    clock = StepClock()
    for length in (1e26, 0.5, 0.25, 2e26):
        clock.tick(length)
    assert_allclose(clock.durations(np.arange(5.0)), [0.0, 1e26, 0.5, 0.25, 2e26])
    assert clock._low[3] == 0.75
    # The last reading of a time that several share, and back.
    assert_allclose(clock.readings(np.array([0.5e26, 1e26, 2e26, 9e26])), [0.5, 3.0, 3.5, 4.0])
    assert_allclose(clock.times(np.array([0.5, 3.5])), [0.5e26, 2e26])
    clock.turn_back(1.0)
    assert clock.end == clock.last == 1e26
