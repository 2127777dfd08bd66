"""The scale by cross-validation: the errors are those of honest fits, fold by fold."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut
from threadpoolctl import threadpool_info, threadpool_limits

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressor, ImplicitBiasRegressorCV
from flowbias.estimators.intercepts.frames import CentredFrame
from flowbias.estimators.scale_walk import ScaleWalk
from flowbias.results.solution import Status

RNG = np.random.default_rng(3)
X = RNG.standard_normal((18, 30)) + 1.0
Y = X[:, 0] - 2.0 * X[:, 3] + 0.3 * RNG.standard_normal(18)
LOGS = np.linspace(1.0, -7.0, 6)
# Limits of folds have residuals of 1e-6 times their error: that of its square is twice as large,
# and a few times more where rows depend on each other.
COMPARED = 1e-5
WEIGHT = RNG.uniform(0.5, 2.0, 18)
TALL, TALL_Y = RNG.standard_normal((40, 3)), RNG.standard_normal(40)


def refitted(estimator, A, b, weight, log_scales):
    """The mean squared errors again, by one fit per scale and fold."""
    errors = np.empty((len(log_scales), 3))
    for j, (train, test) in enumerate(KFold(3).split(A)):
        for i, log_scale in enumerate(log_scales):
            parameters = estimator.get_params()
            shared = {name: parameters[name] for name in ("depth", "shape", "fit_intercept")}
            one = ImplicitBiasRegressor(**shared, log_scale=log_scale)
            one.fit(A[train], b[train], None if weight is None else weight[train])
            square = np.square(one.predict(A[test]) - b[test]).reshape(len(test), -1).mean(axis=1)
            errors[i, j] = np.average(square, weights=None if weight is None else weight[test])
    return errors


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"depth": 3},
        {"shape": 0.5},
        {"fit_intercept": False},
        {"fit_intercept": "trained"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
def test_errors_are_those_of_refits(parameters, weight):
    fitted = ImplicitBiasRegressorCV(log_scales=LOGS, cv=KFold(3), **parameters).fit(X, Y, weight)
    errors = refitted(fitted, X, Y, weight, LOGS)
    assert_allclose(fitted.mse_path_, errors, rtol=COMPARED)
    assert_array_equal(fitted.score_path_, -fitted.mse_path_)
    share = None if weight is None else [weight[test].sum() for _, test in KFold(3).split(X)]
    best = int(np.argmin(np.average(errors, axis=1, weights=share)))
    assert fitted.log_scale_ == LOGS[best]
    assert fitted.scale_ == np.exp(LOGS[best])
    one = ImplicitBiasRegressor(log_scale=LOGS[best], **parameters).fit(X, Y, weight)
    # Residuals of both are 1e-13 at most, times the condition of 18 rows of 30.
    assert_allclose(fitted.coef_, one.coef_, rtol=0, atol=1e-11 * np.abs(one.coef_).max())
    assert_allclose(fitted.intercept_, one.intercept_, atol=1e-11)
    assert fitted.certificate_.ok


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("depth", [2, 3])
def test_the_refit_goes_on_from_the_duals_of_the_folds(depth, fit_intercept, monkeypatch):
    def cold(*_, **__):
        pytest.fail("the refit was solved for from scratch")

    monkeypatch.setattr("flowbias.estimators.intercepts.frames.limit", cold)
    fitted = ImplicitBiasRegressorCV(
        log_scales=2.0 / depth * LOGS, cv=KFold(3), depth=depth, fit_intercept=fit_intercept
    ).fit(X, Y)
    assert fitted.status_ == "CERTIFIED"


def test_a_refit_that_cannot_go_on_starts_from_scratch(monkeypatch):
    honest = ImplicitBiasRegressorCV(log_scales=LOGS, cv=KFold(3)).fit(X, Y)
    spoiled = ScaleWalk.duals_at
    for factor in (np.nan, 1e6):
        monkeypatch.setattr(
            ScaleWalk, "duals_at", lambda walk, at, factor=factor: factor * spoiled(walk, at)
        )
        fitted = ImplicitBiasRegressorCV(log_scales=LOGS, cv=KFold(3)).fit(X, Y)
        assert fitted.status_ == "CERTIFIED"
        # As above.
        assert_allclose(fitted.coef_, honest.coef_, rtol=0, atol=1e-11 * np.abs(Y).max())


def test_over_determined_folds():
    fitted = ImplicitBiasRegressorCV(log_scales=LOGS[:2], cv=KFold(3)).fit(TALL, TALL_Y)
    assert_allclose(fitted.mse_path_, refitted(fitted, TALL, TALL_Y, None, LOGS[:2]), rtol=1e-9)
    assert fitted.log_scale_ == LOGS[0]  # all scales do equally well: the largest


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_samples_that_are_there_twice_are_walked_as_well(fit_intercept, monkeypatch):
    """Rows depend on each other in every fold: from scratch that takes 40 times as long."""

    def cold(*_):
        pytest.fail("a limit was solved for from scratch")

    monkeypatch.setattr("flowbias.estimators.intercepts.frames.limit_with_state", cold)
    A, b = np.vstack([X, X[:9]]), np.append(Y, Y[:9])
    logs = np.linspace(1.0, -7.0, 20)
    cv = ImplicitBiasRegressorCV(log_scales=logs, cv=KFold(3), fit_intercept=fit_intercept)
    fitted = cv.fit(A, b)
    assert_allclose(
        fitted.mse_path_[::6], refitted(fitted, A, b, None, logs[::6]), rtol=COMPARED, atol=1e-15
    )


def test_nothing_to_learn():
    """A training part in which nothing varies predicts its mean, whatever the part left out has."""
    train, test = np.arange(6, 18), np.arange(6)
    A = np.where(np.arange(18)[:, None] < 6, X[:, :2], 1.0)
    fitted = ImplicitBiasRegressorCV(n_scales=2, cv=[(train, test)]).fit(A, Y)
    error = np.mean((Y[test] - Y[train].mean()) ** 2)
    assert_allclose(fitted.mse_path_, [[error], [error]], rtol=1e-12)


def test_several_outputs():
    both = np.column_stack([Y, Y**2])
    fitted = ImplicitBiasRegressorCV(log_scales=LOGS[:3], cv=KFold(3)).fit(X, both)
    assert_allclose(fitted.mse_path_, refitted(fitted, X, both, None, LOGS[:3]), rtol=COMPARED)
    assert fitted.coef_.shape == (2, 30)


def test_depth_is_chosen_too():
    depths = [2, 3, 5]
    fitted = ImplicitBiasRegressorCV(n_scales=4, depth=depths, cv=3).fit(X, Y)
    assert fitted.mse_path_.shape == (3, 4, 3)
    assert fitted.log_scales_.shape == (3, 4)
    i, j = np.unravel_index(fitted.mse_path_.mean(axis=2).argmin(), (3, 4))
    assert (fitted.depth_, fitted.log_scale_) == (depths[i], fitted.log_scales_[i, j])
    for i, depth in enumerate(depths):
        alone = ImplicitBiasRegressorCV(n_scales=4, depth=depth, cv=3).fit(X, Y)
        assert_array_equal(alone.mse_path_, fitted.mse_path_[i])


def test_scoring():
    fitted = ImplicitBiasRegressorCV(
        log_scales=LOGS, cv=KFold(3), scoring="neg_mean_absolute_error"
    ).fit(X, Y, WEIGHT)
    train, test = next(KFold(3).split(X))
    one = ImplicitBiasRegressor(log_scale=LOGS[2]).fit(X[train], Y[train], WEIGHT[train])
    expected = mean_absolute_error(Y[test], one.predict(X[test]), sample_weight=WEIGHT[test])
    assert_allclose(-fitted.score_path_[2, 0], expected, rtol=COMPARED)
    share = [WEIGHT[test].sum() for _, test in KFold(3).split(X)]
    best = np.average(fitted.score_path_, axis=1, weights=share).argmax()
    assert fitted.log_scale_ == LOGS[best]


def test_groups_reach_the_splitter():
    groups = np.repeat([0, 1, 2], 6)
    fitted = ImplicitBiasRegressorCV(log_scales=LOGS[:2], cv=GroupKFold(3))
    fitted.fit(X, Y, groups=groups)
    train = groups != groups[0]
    held = [test for _, test in GroupKFold(3).split(X, Y, groups)]
    column = next(j for j, test in enumerate(held) if 0 in test)
    one = ImplicitBiasRegressor(log_scale=LOGS[0]).fit(X[train], Y[train])
    expected = np.mean((one.predict(X[~train]) - Y[~train]) ** 2)
    assert_allclose(fitted.mse_path_[0, column], expected, rtol=COMPARED)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_jobs_do_not_change_the_answer_or_the_threads():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        one, two = (
            ImplicitBiasRegressorCV(n_scales=3, cv=3, n_jobs=n).fit(X, Y) for n in (None, 2)
        )
        assert blas_threads() == before
    # Folds that are judged together are so in steps of their own.
    assert_allclose(one.mse_path_, two.mse_path_, rtol=COMPARED)
    assert one.log_scale_ == two.log_scale_


# --- what is not certified ---------------------------------------------------------------------


def test_what_is_not_certified_is_never_chosen(monkeypatch):
    honest = ImplicitBiasRegressorCV(log_scales=LOGS, cv=KFold(3)).fit(X, Y)
    best = int(np.flatnonzero(honest.log_scale_ == LOGS)[0])

    solver = CentredFrame.alone

    def spoiled(*arguments):
        solve = solver(*arguments)

        def solved(log_scale):
            solution = solve(log_scale)
            return replace(solution, status=Status.STALLED) if log_scale == LOGS[best] else solution

        return solved

    monkeypatch.setattr(ScaleWalk, "run", lambda walk: None)
    monkeypatch.setattr(CentredFrame, "alone", spoiled)
    with pytest.warns(ConvergenceWarning, match="3 of 18 limits are not certified"):
        fitted = ImplicitBiasRegressorCV(log_scales=LOGS, cv=KFold(3)).fit(X, Y)
    assert np.isnan(fitted.mse_path_[best]).all()
    others = np.delete(honest.mse_path_.mean(axis=1), best)
    assert fitted.log_scale_ == np.delete(LOGS, best)[others.argmin()]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_certified_is_an_error():
    with pytest.raises(fb.InputError, match="log_scales: must include one whose limits are cert"):
        ImplicitBiasRegressorCV(log_scales=LOGS[:2], cv=2, tol=1e-30).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": []}, "depth: must be a number or a non-empty list"),
        ({"depth": [2, 1]}, "depth: must be >= 2"),
        ({"depth": [2, 3], "shape": 0.5}, "shape: must be 0 unless depth is 2"),
        ({"fit_intercept": "no"}, "fit_intercept: must be one of"),
        ({"n_jobs": "x"}, "n_jobs: must be None or a nonzero integer, got 'x'. Pass 1"),
        ({"n_jobs": 0}, "n_jobs: must be None or a nonzero integer, got 0"),
        ({"n_jobs": 1.5}, "n_jobs: must be None or a nonzero integer, got 1.5"),
        ({"tol": 0.0}, "tol: must be a positive number"),
    ],
)
def test_bad_input(parameters, message):
    with pytest.raises(fb.InputError, match=message):
        ImplicitBiasRegressorCV(**parameters).fit(X, Y)


def test_numbers_may_be_strings_everywhere():
    options = {"n_scales": "3", "eps": ".1", "shape": "0.5", "depth": "2"}
    read = {"n_scales": 3, "eps": 0.1, "shape": 0.5, "depth": 2}
    texts, numbers = (ImplicitBiasRegressorCV(**o, cv=2).fit(X, Y) for o in (options, read))
    assert_array_equal(texts.log_scales_, numbers.log_scales_)
    assert_array_equal(texts.coef_, numbers.coef_)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_scale_beyond_the_doubles_is_chosen_by_its_logarithm():
    fitted = ImplicitBiasRegressorCV(log_scales=[800.0], depth=2, cv=2, fit_intercept=False)
    fitted.fit(X, Y)
    assert (fitted.log_scale_, fitted.scale_) == (800.0, np.inf)


def test_warnings_point_at_the_call():
    with pytest.warns(ConvergenceWarning) as caught, pytest.raises(fb.InputError):
        ImplicitBiasRegressorCV(log_scales=LOGS, cv=2, tol=1e-30).fit(X, Y)
    assert {warning.filename for warning in caught} == {__file__}


def test_a_fold_without_weight_is_refused():
    weight = np.where(np.arange(18) < 9, 0.0, 1.0)
    with pytest.raises(ValueError, match="sample_weight"):
        ImplicitBiasRegressorCV(log_scales=LOGS[:2], cv=KFold(2)).fit(X, Y, weight)


# --- the walk ----------------------------------------------------------------------------------


def test_inference_is_that_of_the_chosen_network():
    found = ImplicitBiasRegressorCV(log_scales=LOGS, depth=[2, 3], cv=3).fit(X, Y)
    direct = ImplicitBiasRegressor(found.depth_, log_scale=found.log_scale_).fit(X, Y)
    assert_array_equal(found.leave_one_out(X, Y), direct.leave_one_out(X, Y))
    with pytest.raises(NotFittedError):
        ImplicitBiasRegressorCV().leave_one_out(X, Y)


@pytest.mark.parametrize(
    ("message", "parameters", "weight"),
    [
        ("scoring: must be a number", {"cv": LeaveOneOut(), "scoring": "r2"}, None),
        ("cv: must have at least one split", {"cv": []}, None),
        ("cv: must be able to split 18 samples, got 19", {"cv": 19}, None),
        (
            "cv: must be able to split 18 samples, got Group.*fit\\(X, y, groups=",
            {"cv": GroupKFold(2)},
            None,
        ),
        ("cv: must leave samples in both parts .*got 0 to train on", {"cv": [([], [1])]}, None),
        ("cv: must leave samples in both parts .* and 0 to test", {"cv": [([1], [])]}, None),
        ("^scales: must be a non-empty list", {"scales": []}, None),
        ("^scales: must be a non-empty list", {"scales": [[1.0, 2.0]]}, None),
        ("scoring: must take sample_weight", {"scoring": "neg_max_error"}, np.ones(len(Y))),
        ("scoring: must take sample_weight", {"scoring": lambda *_: 1.0}, np.ones(len(Y))),
        ("n_scales: must be a whole number", {"n_scales": [3]}, None),
    ],
)
@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
def test_what_cannot_choose_a_scale_is_named(message, parameters, weight):
    estimator = ImplicitBiasRegressorCV(**{"n_scales": 3, "cv": 3} | parameters)
    with pytest.raises(fb.InputError, match=message):
        estimator.fit(X, Y, sample_weight=weight)


def test_a_callable_with_weights_gets_them():
    seen = []

    def score(estimator, A, b, sample_weight=None):
        seen.append(sample_weight)
        return -float(np.square(estimator.predict(A) - b).sum())

    weight = np.arange(1.0, len(Y) + 1.0)
    ImplicitBiasRegressorCV(scales=[1.0], cv=2, scoring=score).fit(X, Y, sample_weight=weight)
    assert_array_equal(np.concatenate(seen), weight)
