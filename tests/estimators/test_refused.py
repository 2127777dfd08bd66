"""What the regressors refuse, and in which words."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, MinNormRegressor, RichRegressor
from tests.estimators.test_regressors import ALL, EVERY, WEIGHT, X, Y


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": 1.0}, "depth: must be >= 2"),
        ({"scale": -0.1}, "scale: must be > 0"),
        ({"scale": [1.0, 2.0]}, "scale: must be a single number"),
        ({"log_scale": np.inf}, "log_scale"),
        ({"shape": 1.0}, "shape: must lie in"),
        ({"shape": [0.1, 0.2]}, "shape: must be a single number"),
        ({"shape": 0.5, "depth": 3}, "shape: must be 0 unless depth is 2, got 0.5 at depth 3"),
        ({"fit_intercept": "centred"}, "fit_intercept: must be one of"),
        ({"fit_intercept": None}, "fit_intercept: must be one of"),
        ({"fit_intercept": np.array([1, 0])}, r"fit_intercept: must be one of.*got array\(\[1, 0"),
        ({"tol": 0.0}, "tol: must be a positive number, got 0.0. Leave it out for the default"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(fb.InputError, match=message):
        ImplicitBiasRegressor(**parameters).fit(X, Y)


@pytest.mark.parametrize("estimator", [MinNormRegressor(), RichRegressor()], ids=repr)
def test_extremes_have_no_clock_for_a_trained_bias(estimator):
    with pytest.raises(fb.InputError, match="fit_intercept: must be one of False, True"):
        estimator.set_params(fit_intercept="trained").fit(X, Y)


def test_bad_data_get_scikit_learns_own_words():
    fitted = MinNormRegressor().fit(X, Y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clone(fitted).fit(np.where(X > 2.0, np.nan, X), Y)
    with pytest.raises(ValueError, match="X has 19 features, but MinNormRegressor is expecting 20"):
        fitted.predict(X[:, :19])


@pytest.mark.parametrize("words", [np.full(8, "a"), np.full(8, "1.5"), np.full(8, "NaT", "M8[D]")])
@EVERY
def test_outputs_that_are_words(estimator, words):
    with pytest.raises(fb.InputError, match=r"y: must hold numbers, got \S+ such as .* call one 0"):
        clone(estimator).fit(X, words)


def test_weights_that_leave_no_sample_are_refused():
    # By scikit-learn, or where its version lets them pass by us: in either's words.
    with pytest.raises(fb.InputError, match=r"sample_weight: must be .* got "):
        MinNormRegressor().fit(X, Y, np.zeros(8))


@pytest.mark.parametrize("weight", [-WEIGHT, np.ones(3), np.full(8, np.nan), ["a"]])
def test_bad_weights_are_shown(weight):
    wanted = r"sample_weight: must be one finite weight >= 0 per sample \(8\).*, got \S+.*Leave it"
    with pytest.raises(fb.InputError, match=wanted):
        MinNormRegressor().fit(X, Y, weight)


@EVERY
def test_what_is_not_certified_is_not_returned(estimator):
    with pytest.raises(fb.SolveError, match="not certified"):
        clone(estimator).set_params(tol=1e-30).fit(X, Y)


@pytest.mark.parametrize(
    "estimator", [ImplicitBiasRegressor(fit_intercept="trained"), RichRegressor()], ids=repr
)
def test_a_sparse_matrix_too_large_to_be_made_dense(estimator):
    big = scipy.sparse.random_array((200, 60_000), density=1e-5, rng=0, format="csr")
    with pytest.raises(fb.InputError, match="X: must have at most 10000000 entries, zeros count"):
        estimator.fit(big, np.ones(200))


@EVERY
def test_a_failed_fit_leaves_an_estimator_unfitted(estimator):
    broken = clone(estimator).set_params(fit_intercept="neither")
    with pytest.raises(fb.InputError, match="fit_intercept"):
        broken.fit(X, Y)
    with pytest.raises(NotFittedError):
        broken.predict(X)


@pytest.mark.parametrize("estimator", [*ALL, ImplicitBiasRegressor()], ids=repr)
@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (1e307, 1.0, "^X: must have entries of at most 1e.300 in size, got .*e.307. Measure it"),
        (1.0, 1e307, "^y: must have entries of at most 1e.300 in size, got .*e.307. Measure it"),
        (1e-300, 1e290, "^y: must be at most 1e.153 times the length of its row of X"),
    ],
)
def test_units_beyond_the_doubles(estimator, x, y, match):
    with pytest.raises(fb.InputError, match=match):
        clone(estimator).fit(x * X, y * Y)
