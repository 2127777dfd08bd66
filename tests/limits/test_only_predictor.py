"""Data that leave one predictor: it is the limit of every model, in any units of the features."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.limits.routes import only_predictor
from flowbias.problems.regression import Regression

ROUTE = "the only predictor"
MODELS = [
    fb.L2(),
    fb.DiagonalNet(2, 1e-3),
    fb.DiagonalNet(2, 1e3),
    fb.DiagonalNet(3, 1.0),
    fb.UntiedDiagonalNet(0.1, shape=0.5),
    fb.DiagonalNet(2, 0.1, w0=[1.0, 2.0, 0.5, 1.0, 3.0, 1.0]),
]


def in_units(decades, seed=0, n=30, d=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * 10.0 ** np.linspace(-decades, decades, d), rng


def least_squares(X, y):
    """By the singular values of columns of unit length, which have no units."""
    lengths = np.linalg.norm(X, axis=0)
    return np.linalg.lstsq(X / lengths, y)[0] / lengths


@pytest.mark.parametrize("decades", [0, 4, 6])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_more_samples_than_features(model, decades):
    X, rng = in_units(decades)
    y = rng.standard_normal(30)
    solution = fb.limit(model, X, y, tol=1e-8)
    assert_allclose(solution.w, least_squares(X, y), rtol=1e-9)
    assert solution.status is fb.Status.PROJECTED
    assert solution.route == ROUTE
    # The triple proves itself, and the residual is orthogonal to every column.
    again = fb.certify(X, y, solution.w, solution.dual, solution.potential, solution.shift)
    assert again.feasibility < 1e-12
    residual = X @ solution.w - y
    assert np.abs((X / np.linalg.norm(X, axis=0)).T @ residual).max() < 1e-12


def test_columns_too_far_apart_for_one_rank():
    """Of condition 1e18; in units of their lengths they are as independent as any."""
    X, rng = in_units(9)
    y = rng.standard_normal(30)
    assert_allclose(only_predictor(Regression(X, y)).target, least_squares(X, y), rtol=1e-9)


def test_a_dual_to_the_last_digits_that_it_has():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20, 6)) * 10.0 ** rng.uniform(-5, 5, 6)
        X *= 10.0 ** rng.uniform(-4, 4, (20, 1))
        solution = fb.limit(fb.DiagonalNet(2, 1e-3), X, rng.standard_normal(20), tol=1e-8)
        assert solution.route == ROUTE


@pytest.mark.parametrize("decades", [0, 4])
def test_the_l1_norm_has_nothing_to_choose(decades):
    X, rng = in_units(decades)
    y = rng.standard_normal(30)
    rich = fb.rich_limit(fb.DiagonalNet(3, 1.0), X, y, tol=1e-8)
    for solution in (fb.basis_pursuit(X, y, tol=1e-8), rich):
        assert_allclose(solution.w, least_squares(X, y), rtol=1e-9)
        assert solution.status is fb.Status.PROJECTED
        assert solution.details["dual_margin"] == 1.0


def test_its_derivatives():
    X, rng = in_units(6)
    solution = fb.limit(fb.DiagonalNet(2, 0.1), X, rng.standard_normal(30))
    sensitivity = solution.sensitivity()
    lengths = np.linalg.norm(X, axis=0)
    inverse = np.linalg.pinv(X / lengths) / lengths[:, None]
    assert_allclose(sensitivity.dw_dy * lengths[:, None], inverse * lengths[:, None], atol=1e-12)
    assert_allclose(sensitivity.dw_dlog_scale / solution.w, 0.0, atol=1e-12)


def test_outputs_that_can_be_fitted_are():
    X, rng = in_units(4, n=6)
    w = rng.standard_normal(6)
    solution = fb.limit(fb.DiagonalNet(2, 0.1), X, X @ w, tol=1e-8)
    assert solution.status is fb.Status.CERTIFIED
    assert_allclose(X @ solution.w, X @ w, atol=1e-10 * np.abs(X @ w).max())


def test_nothing_of_an_orthogonal_output_is_fitted():
    X, rng = in_units(4)
    y = rng.standard_normal(30)
    y -= X @ least_squares(X, y)
    assert not only_predictor(Regression(X, y)).target.any()


@pytest.mark.parametrize(
    "X",
    [
        np.ones((2, 3)),
        np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]),
        np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]),
        np.array([[1.0, 1.0 + 1e-16], [2.0, 2.0], [3.0, 3.0]]),
    ],
    ids=["more features", "a column of zeros", "multiples", "multiples to rounding"],
)
def test_there_is_a_choice(X):
    assert only_predictor(Regression(X, np.ones(len(X)))) is None


def test_rounding_is_not_taken_for_a_part_that_no_predictor_fits():
    # w is 4e12 and X w is rounded to 1e-3: some w fits y, but none in doubles.
    X, y = np.array([[1.0, 2.0], [1.0, 2.0 + 1e-12]]), np.array([1.0, 5.0])
    assert only_predictor(Regression(X, y)) is None
    assert only_predictor(Regression(X, X @ [1.0, 1.0])).distance == 0.0


@pytest.mark.parametrize("depth", [2, 3])
def test_sides_that_are_closed(depth):
    """The only predictor has entries of a sign that weights from such starts never take."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    assert (np.linalg.lstsq(X, y)[0] < 0.0).any()
    positive = fb.DiagonalNet.from_weights(np.full(4, 0.1), np.zeros(4), depth=depth)
    nearest = scipy.optimize.nnls(X, y)[0]
    assert_allclose(fb.limit(positive, X, y).w, nearest, atol=1e-9)
    assert_allclose(fb.rich_limit(positive, X, y).w, nearest, atol=1e-9)


@given(seed=st.integers(0, 10**6), decades=st.floats(0.0, 5.0))
def test_units_of_a_feature_are_those_of_its_coefficient(seed, decades):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 9)), int(rng.integers(1, 3))
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    unit = 10.0 ** rng.uniform(-decades, decades, d)
    here, there = (only_predictor(Regression(A, y)) for A in (X, X * unit))
    assert_allclose(there.target * unit, here.target, rtol=1e-10, atol=1e-12)
    assert there.distance == pytest.approx(here.distance, rel=1e-10, abs=1e-10)
