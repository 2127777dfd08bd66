"""Derivatives of the limit against differences of limits."""

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.limits.sensitivity import joint_sensitivity, weighted_inverse
from flowbias.models.reachable import Reachable
from flowbias.potentials.neuron import NeuronPotential
from flowbias.results.solution import UnresolvedError

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((6, 15)), RNG.standard_normal(6)
W0 = RNG.uniform(0.5, 2.0, 15)
MODELS = [
    fb.DiagonalNet(depth=2, scale=2.0),
    fb.DiagonalNet(depth=2, scale=0.05, w0=W0),
    fb.DiagonalNet(depth=3, scale=0.3),
    fb.DiagonalNet(depth=5, scale=0.6, w0=W0),
    fb.UntiedDiagonalNet(scale=0.2, shape=0.5),
]
models = pytest.mark.parametrize("model", MODELS, ids=repr)
# Central differences: h^2 of truncation and 1e-13 / h of rounding balance near 1e-8.
STEP, ACCURACY = 1e-5, {"rtol": 1e-5, "atol": 1e-7}


@models
def test_in_y(model):
    found = fb.limit(model, X, Y).sensitivity().dw_dy
    assert found.shape == (15, 6)
    for j in range(6):
        move = STEP * np.eye(6)[j]
        difference = fb.limit(model, X, Y + move).w - fb.limit(model, X, Y - move).w
        assert_allclose(found[:, j], difference / (2 * STEP), **ACCURACY)
    # X w = y for every y.
    assert_allclose(X @ found, np.eye(6), atol=1e-9)


@models
def test_in_log_scale(model):
    found = fb.limit(model, X, Y).sensitivity().dw_dlog_scale
    log_scale = float(model.log_scale)
    up, down = (fb.limit(model.at_log_scale(log_scale + s), X, Y).w for s in (STEP, -STEP))
    assert_allclose(found, (up - down) / (2 * STEP), **ACCURACY)
    assert_allclose(X @ found, np.zeros(6), atol=1e-9)


def test_where_y_is_projected():
    """Both halves of a contradicting pair move the limit by half."""
    doubled_X, doubled_y = np.vstack([X, X[:1]]), np.append(Y, Y[0] + 1.0)
    solution = fb.limit(MODELS[0], doubled_X, doubled_y)
    found = solution.sensitivity().dw_dy
    assert_allclose(found[:, 0], found[:, 6], rtol=1e-8, atol=1e-12)
    alone = fb.limit(MODELS[0], X, Y + 0.5 * np.eye(6)[0]).sensitivity().dw_dy
    assert_allclose(found[:, 0] + found[:, 6], alone[:, 0], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_on_a_cone(depth):
    """One-signed coordinates, with y out of their reach: those driven to zero stay there."""
    positive = np.abs(X[:4])
    model = fb.DiagonalNet.from_weights(RNG.uniform(0.3, 1.0, 15), np.zeros(15), depth=depth)
    y = np.array([1.0, -2.0, 0.5, 1.0])
    found = fb.limit(model, positive, y).sensitivity().dw_dy
    for j in range(4):
        move = STEP * np.eye(4)[j]
        up, down = fb.limit(model, positive, y + move).w, fb.limit(model, positive, y - move).w
        assert_allclose(found[:, j], (up - down) / (2 * STEP), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("log_scale", [-5.0, -20.0, -150.0, -300.0])
def test_where_fewer_coordinates_than_samples_carry_the_fit(log_scale):
    """dw/dy = W X^T H^-1, though H is singular to working precision: once more with 700 digits."""
    model = fb.DiagonalNet(depth=2, log_scale=log_scale)
    # The column that carries the fit last: a factorization must not need it first.
    rolled = np.roll(X, -1, axis=1)
    solution = fb.limit(model, rolled, X[:, 0])
    assert (np.abs(solution.w) > 0.1).sum() < len(X)
    weights = model.potential.hess_dual(rolled.T @ solution.dual)
    with mp.workdps(700):
        rows, W = mp.matrix(rolled.tolist()), mp.diag(weights.tolist())
        expected = np.array((W * rows.T * mp.inverse(rows * W * rows.T)).tolist(), dtype=float)
    found = solution.sensitivity()
    # What the normal equations may leave, times the few that a residual counts for.
    assert_allclose(found.dw_dy, expected, atol=1e-11)
    assert_allclose(rolled @ found.dw_dlog_scale, 0.0, atol=1e-11 * -log_scale)


def test_weights_of_any_spread_in_any_order():
    constraint = fb.Regression(X, Y).constraint
    ascending = 10.0 ** np.linspace(-80.0, 0.0, 15)
    for weights in (ascending, ascending[::-1], np.ones(15)):
        answer = weighted_inverse(constraint, weights).answer
        assert_allclose((constraint.row_scale[:, None] * X) @ answer, np.eye(6), atol=1e-12)


def test_beyond_the_double_range_it_is_refused():
    solution = fb.limit(fb.DiagonalNet(depth=2, log_scale=-1000.0), X, X[:, 0])
    with pytest.raises(fb.SolveError, match=r"not resolved .* Take a larger scale") as refused:
        solution.sensitivity()
    assert refused.value.solution is solution


def test_a_joint_potential_that_moves_nowhere_is_refused():
    # The dual map of a neuron with delta < 0 rests at z = 0.
    problem = fb.Regression(X, Y)
    reach = Reachable(problem.constraint, None, 0.0)
    with pytest.raises(UnresolvedError, match="not resolved"):
        joint_sensitivity(reach, NeuronPotential(-1.0), np.zeros(15))


def test_extremes_have_none():
    with pytest.raises(fb.InputError, match="solution: must come by a route that has a derivative"):
        fb.basis_pursuit(X, Y).sensitivity()
