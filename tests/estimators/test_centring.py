"""An intercept absorbs any shift of the data: fits must not see more of it than its rounding."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import flowbias as fb
from flowbias.estimators import (
    EarlyStoppedRegressor,
    ImplicitBiasRegressor,
    ImplicitBiasRegressorCV,
    MinNormRegressor,
    RichRegressor,
    leave_one_out,
    leave_one_out_refits,
)
from flowbias.estimators.intercepts.samples import centred, without

RNG = np.random.default_rng(8)
X = RNG.standard_normal((12, 30))
Y = X[:, 0] - X[:, 1] + 0.1 * RNG.standard_normal(12)
SHIFTS = [1e2, 1e3, 1e4, 1e6]
WEIGHT = RNG.uniform(0.5, 2.0, 12)


def allowed(shift):
    """The shift rounds X by shift * eps; no quantity here answers more than 1000 times as much."""
    return 1e3 * shift * np.finfo(float).eps


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
@pytest.mark.parametrize(
    "estimator",
    [
        MinNormRegressor(),
        ImplicitBiasRegressor(scale=0.1),
        ImplicitBiasRegressor(depth=3, scale=0.5),
        RichRegressor(),
        ImplicitBiasRegressorCV(scales=[1.0, 0.1], cv=3),
        EarlyStoppedRegressor(time=0.05),
    ],
    ids=repr,
)
def test_coefficients_do_not_see_the_mean_of_x(estimator, weight, shift):
    found = clone(estimator).fit(X + shift, Y, sample_weight=weight)
    expected = clone(estimator).fit(X, Y, sample_weight=weight)
    assert_allclose(found.coef_, expected.coef_, atol=allowed(shift))


@pytest.mark.parametrize("shift", SHIFTS)
def test_nor_that_of_y(shift):
    found = MinNormRegressor().fit(X, Y + shift)
    assert found.status_ == "CERTIFIED"
    assert_allclose(found.coef_, MinNormRegressor().fit(X, Y).coef_, atol=allowed(shift))


@pytest.mark.parametrize("shift", SHIFTS)
def test_nor_do_leave_one_out_and_standard_errors(shift):
    model = fb.DiagonalNet(depth=2, scale=0.1)
    for residuals in (leave_one_out, lambda *a, **k: leave_one_out_refits(*a, **k).residuals):
        found = residuals(model, X + shift, Y, fit_intercept=True)
        assert_allclose(found, residuals(model, X, Y, fit_intercept=True), atol=allowed(shift))
    fitted, moved = (ImplicitBiasRegressor(scale=0.1).fit(A, Y) for A in (X, X + shift))
    assert_allclose(moved.leave_one_out(X + shift, Y), fitted.leave_one_out(X, Y), atol=1e-7)
    before, after = fitted.uncertainty(X, Y), moved.uncertainty(X + shift, Y)
    assert after.degrees_of_freedom == pytest.approx(12.0)
    assert_allclose(after.w_error, before.w_error, atol=allowed(shift))


@pytest.mark.parametrize("shift", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_trained_bias_of_either_sign_beside_a_large_mean(shift, sign, depth):
    data = X + shift, sign * Y
    fitted = ImplicitBiasRegressor(depth, 0.1, fit_intercept="trained").fit(*data)
    assert fitted.certificate_.ok
    mirrored = ImplicitBiasRegressor(depth, 0.1, fit_intercept="trained").fit(X + shift, -sign * Y)
    assert_allclose(fitted.intercept_, -mirrored.intercept_, rtol=1e-6)


def test_a_sample_at_the_mean_and_a_constant_column_are_zeros():
    values = np.column_stack([[0.1, 0.3, 0.2], [0.7, 0.7, 0.7]]) + 1e3
    rest, mean = centred(values, None)
    assert_array_equal(rest[2], 0.0)
    assert_array_equal(rest[:, 1], 0.0)
    assert_allclose(mean, [1000.2, 1000.7])


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
def test_a_small_entry_is_kept_and_nothing_is_left_along_the_mean(weight):
    # One entry within rounding of its column's mean, in a row that is not.
    values = X + 1e6
    values[0, 0] = np.average(values[1:, 0], weights=None if weight is None else weight[1:])
    rest, _ = centred(values, weight)
    mean = np.average(rest, axis=0, weights=weight)
    assert np.abs(mean).max() <= 4.0 * np.finfo(float).eps * np.abs(rest).max()
    e = np.ones(12) if weight is None else np.sqrt(weight)
    along = e @ without(e, e[:, None] * values)
    assert np.abs(along).max() <= 100.0 * np.finfo(float).eps * np.abs(rest).max()


def test_rows_that_centring_loses_are_not_fitted_in_silence():
    # The means of the large rows swallow the small ones, which decide between the columns.
    X = np.array([[1.0, 1.0, 1.0], [-1.0, 2.0, 1.0], [1e-11, 0.0, 2e-11], [0.0, 3e-11, 1e-11]])
    with pytest.raises(fb.SolveError, match="centring loses rows"):
        RichRegressor().fit(1e3 * X, np.array([1.0, 2.0, 1e-11, -1e-11]))
    RichRegressor(fit_intercept=False).fit(1e3 * X, np.array([1.0, 2.0, 1e-11, -1e-11]))
