"""Rows in small units are constraints like the others: a flow has converged when it fits each."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import FlowStatus, flow
from flowbias.flows import march as marching
from flowbias.models import DiagonalNet, Neuron, UntiedDiagonalNet

MODELS = [DiagonalNet(2, 0.3), DiagonalNet(3, 0.3), UntiedDiagonalNet(0.4, shape=0.5)]
EVERY = pytest.mark.parametrize("model", MODELS, ids=repr)
# Each row is fitted to 1e-8 of its size; between that and w stand the condition of the rows in
# equal units, below 100 here, and the slopes w'(z), which range over a few decades.
NEAR = 1e-5


def uneven(seed, decades, dependent=False):
    """Four rows in units that are powers of ten, and outputs that some w fits."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4, 9))
    if dependent:
        X[0] = X[1] - X[2]
    X *= np.logspace(0.0, -decades, 4)[rng.permutation(4), None]
    return X, X @ rng.standard_normal(9)


def largest_share(X, y, w):
    """What is left of the row that fits worst, relative to the terms it is a difference of."""
    return np.max(np.abs(X @ w - y) / (np.abs(y) + np.abs(X) @ np.abs(w)))


@EVERY
@pytest.mark.parametrize("decades", [3.0, 6.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_end_is_the_limit_in_any_units(model, decades, seed):
    X, y = uneven(seed, decades)
    trajectory = flow(model, X, y)
    assert trajectory.status is FlowStatus.CONVERGED
    assert largest_share(X, y, trajectory.w[-1]) <= 1.01e-8
    assert trajectory.residual[-1] <= 1e-8
    assert trajectory.distance_to_limit < NEAR


@EVERY
@pytest.mark.parametrize("decades", [3.0, 6.0])
def test_dependent_rows_in_any_units(model, decades):
    X, y = uneven(5, decades, dependent=True)
    trajectory = flow(model, X, y)
    assert trajectory._states.shape[1] == 3
    assert trajectory.distance_to_limit < NEAR


@EVERY
@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("decades", [9.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_flow_that_does_not_get_there_does_not_say_it_does(model, dependent, decades, seed):
    # Times are squares of the units: more than the steps of an integrator in doubles may span.
    X, y = uneven(seed, decades, dependent)
    trajectory = flow(model, X, y, throw=False)
    assert trajectory.status is FlowStatus.STOPPED or trajectory.distance_to_limit < NEAR


def test_a_neuron_fits_each_row_too():
    X, y = uneven(1, 3.0)
    trajectory = flow(Neuron(a=1.0, w=np.full(9, 0.1)), X, y)
    assert trajectory.status is FlowStatus.CONVERGED
    assert largest_share(X, y, trajectory.w[-1]) <= 1.01e-8


def test_a_row_that_is_to_be_zero_has_the_size_of_its_terms():
    X, y = uneven(2, 3.0)
    y[1] = 0.0
    trajectory = flow(MODELS[0], X, y)
    assert trajectory.status is FlowStatus.CONVERGED
    assert_allclose(X[1] @ trajectory.w[-1], 0.0, atol=1e-7 * np.abs(X[1]).max())


@pytest.mark.parametrize("t", [None, [10.0, 2000.0]])
def test_a_row_that_nothing_is_asked_of_holds_nothing_up(t):
    # All that it sees of the limit is zero: what is left of it is always all of its own size.
    X = [[1.0, 0.7, 0.0], [0.5, 0.1, 0.7]]
    trajectory = flow(DiagonalNet(2, log_scale=-500.0 * np.log(10.0)), X, [0.0, 1.0], t=t)
    assert trajectory.status is (FlowStatus.CONVERGED if t is None else FlowStatus.FOLLOWED)
    assert_allclose(trajectory.w[-1], [0.0, 0.0, 1.0 / 0.7], atol=1e-7)


def test_a_flow_that_stops_says_which_row_holds_it_up(monkeypatch):
    X, y = uneven(0, 9.0)
    monkeypatch.setattr(marching, "PATIENCE", 5)
    monkeypatch.setattr(marching, "FALL", 1.0)  # no fall is deep enough
    stopped = flow(MODELS[0], X, y, throw=False)
    assert stopped.status is FlowStatus.STOPPED
    worst = largest_share(X, y, stopped.w[-1])
    assert f"in the row that fits worst {worst:.1e} of its own size" in stopped.message
