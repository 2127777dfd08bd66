"""Weights that start at zero: one-signed and frozen coordinates, and what they can reach."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import flowbias as fb

RNG = np.random.default_rng(8)
X = RNG.standard_normal((4, 9))
START = RNG.uniform(0.2, 1.5, (2, 9))
DEPTHS = pytest.mark.parametrize("depth", [2, 3])


@DEPTHS
def test_frozen_coordinates_stay_at_zero(depth):
    plus, minus = START.copy()
    frozen = np.isin(np.arange(9), [1, 5])
    plus[frozen] = minus[frozen] = 0.0
    y = RNG.standard_normal(4)
    solution = fb.limit(fb.DiagonalNet.from_weights(plus, minus, depth=depth), X, y)
    assert solution.status is fb.Status.CERTIFIED
    assert not solution.w[frozen].any()
    free = fb.DiagonalNet.from_weights(plus[~frozen], minus[~frozen], depth=depth)
    assert_allclose(solution.w[~frozen], fb.limit(free, X[:, ~frozen], y).w, atol=1e-11)


@DEPTHS
def test_one_signed_coordinates_keep_their_sign(depth):
    model = fb.DiagonalNet.from_weights(START[0], np.zeros(9), depth=depth)
    y = X @ RNG.uniform(0.1, 1.0, 9)  # inside the cone
    solution = fb.limit(model, X, y)
    assert solution.status is fb.Status.CERTIFIED
    assert (solution.w > 0).all()
    assert_allclose(X @ solution.w, y, atol=1e-10)


@DEPTHS
def test_outside_the_cone_the_flow_reaches_its_nearest_point(depth):
    model = fb.DiagonalNet.from_weights(START[0], np.zeros(9), depth=depth)
    positive = np.abs(X)  # a cone that is not everything
    y = np.array([1.0, -2.0, 0.5, 1.0])
    solution = fb.limit(model, positive, y)
    assert solution.status is fb.Status.PROJECTED
    nearest, distance = scipy.optimize.nnls(positive, y)
    assert_allclose(positive @ solution.w, positive @ nearest, atol=1e-9)
    assert_allclose(solution.distance, distance / np.linalg.norm(y), rtol=1e-9)
    assert (solution.w >= 0).all()


def test_untied_start_with_k_zero():
    """u+ = v+ and u- = v- = 0: the predictor u^2 can only be positive."""
    u = RNG.uniform(0.3, 1.0, 9)
    model = fb.UntiedDiagonalNet.from_weights(u, 0 * u, u, 0 * u)
    y = X @ RNG.uniform(0.1, 1.0, 9)
    solution = fb.limit(model, X, y)
    tied = fb.limit(fb.DiagonalNet.from_weights(u, 0 * u, depth=2), X, y)
    assert_allclose(solution.w, tied.w, atol=1e-11)
    assert solution.status is fb.Status.CERTIFIED


@DEPTHS
def test_everything_driven_to_zero(depth):
    model = fb.DiagonalNet.from_weights([0.7], [0.0], depth=depth)
    X, y = np.ones((3, 1)), -np.ones(3)
    solution = fb.limit(model, X, y)
    assert solution.status is fb.Status.PROJECTED
    assert solution.w == [0.0]
    assert fb.flow(model, X, y, t=[1.0]).w[0] > 0.0


def test_everything_frozen():
    with pytest.raises(fb.InputError, match=r"model: must have a coordinate that can move"):
        fb.limit(fb.DiagonalNet.from_weights(np.zeros(9), np.zeros(9), depth=2), X, np.ones(4))


@pytest.mark.parametrize("scale", [1.0, 1e-247])
def test_weights_that_start_too_small_for_their_curvature_are_driven_to_zero_all_the_same(scale):
    # w' at the start underflows at the second scale: these weights are at zero already.
    positive = np.abs(X)
    model = fb.DiagonalNet.from_weights(scale * START[0], np.zeros(9), depth=3)
    y = np.array([1.0, -2.0, 0.5, 1.0])
    solution = fb.limit(model, positive, y)
    assert solution.status is fb.Status.PROJECTED
    nearest, _ = scipy.optimize.nnls(positive, y)
    assert_allclose(positive @ solution.w, positive @ nearest, atol=1e-9)
