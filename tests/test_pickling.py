"""Solutions, failures and trajectories of predictors travel between processes, and still answer."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import flowbias as fb

X, Y, _ = fb.datasets.sparse_regression(n=5, d=12, sparsity=2, noise_var=0.01, rng=0)


def sent(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize(
    "model",
    [
        fb.L2(),
        fb.DiagonalNet(2, 0.1),
        fb.DiagonalNet(3, 0.1),
        fb.UntiedDiagonalNet(scale=0.1, shape=0.5),
        fb.Neuron(a=2.0, w=np.ones(12)),
    ],
    ids=repr,
)
def test_solutions(model):
    solution = fb.limit(model, X, Y)
    arrived = sent(solution)
    assert_array_equal(arrived.w, solution.w)
    assert repr(arrived) == repr(solution)
    assert_array_equal(arrived.sensitivity().dw_dy, solution.sensitivity().dw_dy)


def test_solutions_for_matrices():
    solution = fb.limit(fb.LinearNet.gaussian(12, 1, width=5, scale=0.1, rng=0), X, Y)
    assert repr(sent(solution)) == repr(solution)


@pytest.mark.parametrize("model", [fb.DiagonalNet(2, 0.1), fb.Neuron(a=2.0, w=np.ones(12))])
def test_trajectories(model):
    trajectory = fb.flow(model, X, Y)
    arrived = sent(trajectory)
    assert_array_equal(arrived.w, trajectory.w)
    assert_array_equal(arrived.at(0.5), trajectory.at(0.5))


def test_failures():
    with pytest.raises(fb.SolveError) as failed:
        fb.limit(fb.DiagonalNet(2, 0.1), X, Y, tol=1e-30)
    arrived = sent(failed.value)
    assert str(arrived) == str(failed.value)
    assert arrived.solution.status is fb.Status.STALLED
    assert_array_equal(arrived.solution.w, failed.value.solution.w)
