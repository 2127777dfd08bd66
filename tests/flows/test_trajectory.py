"""What a trajectory offers, and the corners of its domain."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flowbias.flows import FlowStatus, flow
from flowbias.flows.march import RISE
from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((3, 8)), RNG.standard_normal(3)
MODELS = [DiagonalNet(2, 0.2), DiagonalNet(3, 0.3), UntiedDiagonalNet(0.3, shape=-0.5)]
models = pytest.mark.parametrize("model", MODELS, ids=repr)


@models
def test_shapes_and_start(model):
    trajectory = flow(model, X, Y)
    steps = len(trajectory.t)
    assert trajectory.t[0] == 0.0
    assert trajectory.w.shape == (steps, 8)
    assert trajectory.dual.shape == (steps, 3)
    assert trajectory.loss.shape == trajectory.residual.shape == (steps,)
    assert_allclose(trajectory.residual[0], 1.0, rtol=1e-15)
    assert_allclose(trajectory.loss[0], 0.5 * Y @ Y, rtol=1e-15)
    assert_array_equal(trajectory.w[0], np.zeros(8))
    assert trajectory.status is FlowStatus.CONVERGED
    assert trajectory.stats.steps == steps - 1
    assert "converged" in repr(trajectory)
    assert "route=dual" in repr(trajectory)


@models
def test_the_loss_falls_all_the_way(model):
    residual = flow(model, X, Y).residual
    assert np.all(residual[1:] <= RISE * residual[:-1])
    assert residual[-1] <= 1e-8


@models
def test_dense_output_is_as_good_as_the_steps(model):
    trajectory = flow(model, X, Y, t=[1.0])
    times = np.linspace(0.0, 1.0, 37)
    assert_allclose(trajectory.at(times), flow(model, X, Y, t=times).w, rtol=0, atol=1e-9)
    one = trajectory.at(0.4)
    assert one.shape == (8,)
    assert_allclose(model.predictor(trajectory.parameters(0.4)), one, rtol=1e-11, atol=1e-14)


@models
def test_times_beyond_convergence(model):
    trajectory = flow(model, X, Y, t=[0.0, 1e-300, 1.0, 1e6, 1e300])
    assert trajectory.status is FlowStatus.FOLLOWED
    assert_allclose(trajectory.w[1], trajectory.w[0], atol=1e-290)
    assert_array_equal(trajectory.w[3], trajectory.w[4])
    # At rest up to the rounding of the residual, times a condition number.
    assert trajectory.distance_to_limit < 1e-10
    assert trajectory.t_end == np.inf
    assert_allclose(trajectory.at(1e200), trajectory.w[-1], rtol=1e-13)


def test_only_the_start():
    trajectory = flow(MODELS[0], X, Y, t=[0.0])
    assert_array_equal(trajectory.w, np.zeros((1, 8)))
    assert trajectory.stats.steps == 0


def test_beyond_the_end_says_so():
    trajectory = flow(MODELS[0], X, Y, t=[1.0])
    assert_allclose(trajectory.t_end, 1.0)
    for t in (1.1, -0.1, np.nan):
        with pytest.raises(InputError, match=r"t: must lie in \[0, 1\]"):
            trajectory.at(t)


def test_a_regression_is_a_problem():
    problem = Regression(X, Y)
    assert_array_equal(flow(MODELS[0], problem).w, flow(MODELS[0], X, Y).w)


def test_nothing_to_fit():
    trajectory = flow(MODELS[0], X, np.zeros(3))
    assert_array_equal(trajectory.w, np.zeros((1, 8)))
    assert trajectory.residual.tolist() == [0.0]
    # A biased start has something to unlearn; residuals are then relative to the start.
    biased = flow(DiagonalNet.from_weights(0.5, 0.3, depth=2), X, np.zeros(3))
    # The same norm by two products, whose sums may be taken in another order.
    assert_allclose(biased.residual[0], 1.0, rtol=1e-14)
    assert np.abs(X @ biased.w[-1]).max() < 1e-7


def test_more_samples_than_features_take_as_many_unknowns_as_features():
    tall, y = RNG.standard_normal((60, 4)), RNG.standard_normal(60)
    trajectory = flow(DiagonalNet(2, 0.2), tall, y)
    assert trajectory._states.shape[1] == 4
    assert_allclose(trajectory.w[-1], np.linalg.lstsq(tall, y)[0], rtol=1e-6)
    z = trajectory.dual[-1] @ tall
    assert_allclose(trajectory.model.potential.grad(trajectory.w[-1]), z, rtol=1e-9)


def test_one_sample_one_feature_in_closed_form():
    # w = s sinh z, dz/dt = 4 (y - w): tanh-free check through the conserved speed,
    # t = int dz / (4 (y - s sinh z)), by quadrature.
    scale, y = 0.5, 2.0
    s = 2.0 * scale**2
    trajectory = flow(DiagonalNet(2, scale), [[1.0]], [y], t=[0.3])
    end = np.arcsinh(trajectory.w[0, 0] / s)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    z = 0.5 * end * (nodes + 1.0)
    elapsed = 0.5 * end * np.sum(weights / (4.0 * (y - s * np.sinh(z))))
    assert_allclose(elapsed, 0.3, rtol=1e-9)


def test_cone_that_cannot_reach_y():
    # All weights of one sign: the flow ends at the nonnegative least-squares fit, and residuals
    # are relative to what can be reached.
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    trajectory = flow(DiagonalNet.from_weights([0.5, 0.5], 0.0, depth=2), X, [1.0, -1.0])
    assert trajectory.status is FlowStatus.CONVERGED
    assert_allclose(trajectory.w[-1], [1.0, 0.0], atol=1e-7)
    assert_allclose(trajectory.loss[-1], 0.5, rtol=1e-6)
    assert trajectory.distance_to_limit < 1e-7


def test_frozen_coordinates_never_move():
    model = DiagonalNet.from_weights([0.3] * 7 + [0.0], [0.3] * 7 + [0.0], depth=3)
    trajectory = flow(model, X, Y)
    assert_array_equal(trajectory.w[:, -1], 0.0)
    assert trajectory.distance_to_limit < 1e-6
    nothing = flow(DiagonalNet.from_weights(0.0, 0.0, depth=2), X, Y)
    assert_array_equal(nothing.w, np.zeros((1, 8)))


def test_times_of_any_shape_are_read_once():
    run = flow(DiagonalNet(2, 0.1), np.eye(2, 3), np.ones(2))
    times = run.t_end * np.array([[0.0, 0.5], [0.7, 1.0]])
    assert_allclose(run.at(times), [run.at(row) for row in times])
    assert run.at([]).shape == (0, 3)
    with pytest.raises(InputError, match="t: must be a real number or an array of them, got"):
        run.at("soon")
