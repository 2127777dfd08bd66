"""Stages stopped early: by a time, a number of features, a criterion, or cross-validation."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold

import flowbias as fb
from flowbias.estimators import (
    EarlyStoppedRegressorCV,
    FlowRegressorCV,
    ImplicitBiasRegressorCV,
    RichRegressor,
    StagesRegressor,
    StagesRegressorCV,
)
from flowbias.estimators.early_stopping import levels_of
from flowbias.estimators.flow_cv import likelihoods
from flowbias.estimators.stages import Judged, StepFunction
from flowbias.flows.trajectory import FlowError


@pytest.fixture
def data():
    return fb.datasets.sparse_regression(60, 120, sparsity=4, noise_var=0.04, rng=3)


def test_the_end_of_the_path_interpolates_as_the_rich_limit_does(data):
    X, y, _ = data
    end = StagesRegressor(tau=np.inf).fit(X, y)
    assert_allclose(end.coef_, RichRegressor().fit(X, y).coef_, atol=1e-9)
    assert_allclose(end.predict(X), y, atol=1e-9)


def test_it_stops_where_it_is_told(data):
    X, y, _ = data
    three = StagesRegressor(n_features=3).fit(X, y)
    assert np.count_nonzero(three.coef_) == 3
    again = StagesRegressor(tau=three.tau_ * 1.0001).fit(X, y)
    assert_allclose(again.coef_, three.coef_)
    # Unshrunk: least squares on the features in use, with an intercept.
    used = np.column_stack([X[:, three.coef_ != 0], np.ones(len(y))])
    fit = np.linalg.lstsq(used, y)[0]
    assert_allclose(three.coef_[three.coef_ != 0], fit[:-1], rtol=1e-9)
    assert_allclose(three.intercept_, fit[-1], atol=1e-9)


def test_a_criterion_weighs_features_against_the_fit(data):
    X, y, w_true = data
    n = len(y)
    path = StagesRegressor(tau=np.inf).fit(X, y).path_
    counts = np.array([len(stage.support) for stage in path])
    rss = np.array([stage.residual @ stage.residual for stage in path])
    for criterion, cost in (("aic", 2.0), ("bic", np.log(n))):
        fitted = StagesRegressor(criterion=criterion).fit(X, y)
        few = counts < n - 1
        value = n * np.log(rss[few] / n) + cost * counts[few] * n / (n - counts[few] - 1)
        assert np.count_nonzero(fitted.coef_) == counts[few][np.argmin(value)]
    sparse, dense = (
        np.count_nonzero(StagesRegressor(criterion=c).fit(X, y).coef_) for c in ("bic", "aic")
    )
    assert np.count_nonzero(w_true) <= sparse <= dense


def by_hand(X, y, splits, tau):
    """Mean squared error of the stage at tau, over the splits."""
    errors = []
    for train, test in splits:
        part = StagesRegressor(tau=tau).fit(X[train], y[train])
        errors.append(np.mean((part.predict(X[test]) - y[test]) ** 2))
    return np.array(errors)


def test_cross_validation_is_that_of_single_fits(data):
    X, y, _ = data
    cv = KFold(4)
    fitted = StagesRegressorCV(cv=cv).fit(X, y)
    splits = list(cv.split(X))
    for k in np.linspace(1, len(fitted.taus_) - 2, 6).astype(int):
        between = 0.5 * (fitted.taus_[k] + fitted.taus_[k + 1])
        assert_allclose(fitted.mse_path_[k], by_hand(X, y, splits, between), rtol=1e-9)
    assert_allclose(
        by_hand(X, y, splits, fitted.tau_).mean(), fitted.mse_path_.mean(axis=1).min(), rtol=1e-9
    )
    assert_allclose(fitted.coef_, StagesRegressor(tau=fitted.tau_).fit(X, y).coef_)


def test_one_standard_error_is_sparser(data):
    X, y, _ = data
    least, simple = (StagesRegressorCV(rule=rule).fit(X, y) for rule in ("min", "1se"))
    assert simple.tau_ <= least.tau_
    times = np.array([0.0, 1.0, 2.0])
    # Means 9, 3.5 and 3; the least has a standard error of 1 / sqrt(2), and 3.5 is within it.
    folds = [
        StepFunction(times, np.array([9.0, 3.0, 2.0])),
        StepFunction(times, np.array([9.0, 4.0, 4.0])),
    ]
    chosen = {rule: Judged.of(folds, np.ones(2), rule).tau for rule in ("min", "1se")}
    assert chosen == {"min": np.inf, "1se": 1.5}


def test_it_recovers_with_less_error_than_a_lasso(data):
    # The Lasso pays for its penalty with shrinkage, and keeps more features.
    errors = []
    for seed in range(6):
        X, y, w_true = fb.datasets.sparse_regression(100, 200, sparsity=5, noise_var=0.01, rng=seed)
        fits = [model.fit(X, y) for model in (StagesRegressorCV(), LassoCV())]
        errors.append([np.sum((fit.coef_ - w_true) ** 2) for fit in fits])
    ours, lasso = np.mean(errors, axis=0)
    assert ours < 0.5 * lasso


def test_outputs_are_fitted_one_by_one(data):
    X, y, _ = data
    both = StagesRegressorCV().fit(X, np.column_stack([y, 1000.0 * y[::-1]]))
    alone = StagesRegressorCV().fit(X, y)
    assert_allclose(both.coef_[0], alone.coef_, rtol=1e-9)
    assert_allclose(both.tau_[0], alone.tau_, rtol=1e-9)
    assert (len(both.path_), len(both.mse_path_), both.coef_.shape) == (2, 2, (2, 120))


def test_sparse_data_weights_and_groups(data):
    X, y, _ = data
    few = np.where(np.abs(X) > 1.0, X, 0.0)
    dense, sparse = (StagesRegressorCV().fit(D, y) for D in (few, scipy.sparse.csr_array(few)))
    assert_allclose(sparse.coef_, dense.coef_, atol=1e-10)
    twice = np.where(np.arange(60) < 20, 2.0, 1.0)
    repeated = np.concatenate([np.arange(60), np.arange(20)])
    weighted = StagesRegressor(n_features=5).fit(X, y, sample_weight=twice)
    assert_allclose(
        weighted.coef_, StagesRegressor(n_features=5).fit(X[repeated], y[repeated]).coef_, atol=1e-9
    )
    groups = np.arange(60) // 12
    grouped = StagesRegressorCV(cv=GroupKFold(5), n_jobs=2).fit(X, y, groups=groups)
    blocks = [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in range(5)]
    listed = StagesRegressorCV(cv=blocks).fit(X, y)
    assert_allclose(grouped.tau_, listed.tau_)


def test_nothing_to_learn():
    X, y = np.ones((6, 3)), np.arange(6.0)
    for model in (StagesRegressor(), StagesRegressorCV(cv=3)):
        fitted = model.fit(X, y)
        assert not fitted.coef_.any()
        assert_allclose(fitted.intercept_, 2.5)


def test_the_standard_error_has_no_unit():
    # Squares of these errors leave the double range.
    times = np.array([0.0, 1.0, 2.0])
    errors = (np.array([9.0, 3.0, 2.0]), np.array([9.0, 4.0, 4.0]))
    for unit in (1e-200, 1e200):
        folds = [StepFunction(times, unit * error) for error in errors]
        assert Judged.of(folds, np.ones(2), "1se").tau == 1.5


def test_the_grid_is_where_some_fold_changes():
    folds = [
        StepFunction(np.array([0.0, 1.0]), np.array([4.0, 2.0])),
        StepFunction(np.array([0.0, 3.0]), np.array([4.0, 9.0])),
    ]
    judged = Judged.of(folds, np.ones(2), "min")
    assert judged.taus.tolist() == [0.0, 1.0, 3.0]
    assert judged.mse.tolist() == [[4.0, 4.0], [2.0, 4.0], [2.0, 9.0]]
    assert judged.tau == 2.0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (StagesRegressor(tau=-1.0), "tau: must be a number >= 0, got -1.0"),
        (StagesRegressor(n_features="five"), "n_features: must be a number >= 0"),
        (StagesRegressor(tau=1.0, n_features=2), "at most one must be given"),
        (StagesRegressor(criterion="cp"), "criterion: must be one of 'aic', 'bic', got 'cp'"),
        (StagesRegressor(fit_intercept="trained"), "fit_intercept: must be one of"),
        (StagesRegressorCV(rule="max"), "rule: must be one of 'min', '1se'"),
        (StagesRegressorCV(n_jobs=0), "n_jobs: must be None or a nonzero integer"),
    ],
)
def test_what_cannot_be_is_refused(model, words, data):
    with pytest.raises(fb.InputError, match=words):
        model.fit(*data[:2])


# --- scale and time together ----------------------------------------------------------------------


def test_a_start_and_a_time_are_chosen_together(data):
    X, y, _ = data
    fitted = FlowRegressorCV(n_scales=2, n_times=6, eps=0.1, cv=3).fit(X, y)
    assert fitted.log_scales_.shape == fitted.mse_.shape == (3,)
    alone = [
        EarlyStoppedRegressorCV(log_scale=log, n_times=6, eps=0.1, cv=3).fit(X, y)
        for log in fitted.log_scales_[:2]
    ]
    least = [one.mse_path_.mean(axis=1).min() for one in alone]
    assert_allclose(fitted.mse_[:2], least, rtol=1e-9)
    # Few features that count, and little noise: the vanishing start is best.
    assert (fitted.scale_, fitted.time_) == (0.0, fitted.best_.tau_)
    assert_allclose(fitted.mse_[2], fitted.best_.mse_path_.mean(axis=1).min(), rtol=1e-12)
    assert_allclose(fitted.coef_, StagesRegressor(tau=fitted.time_).fit(X, y).coef_)


def test_the_stages_are_judged_as_often_as_a_flow(data):
    # The least of hundreds of errors would be luck: only where the residual passes a level.
    X, y, _ = data
    stages = FlowRegressorCV(n_scales=1, n_times=6, eps=0.1, cv=3).fit(X, y).best_
    every = StagesRegressorCV(cv=3).fit(X, y)
    assert len(stages.taus_) <= 6 + 2 < len(every.taus_)
    known = StepFunction(every.taus_, every.mse_path_)
    assert_allclose(stages.mse_path_, known.at(stages.taus_), rtol=1e-9)
    path = stages.path_
    first = [path.stopped(residual=level) for level in levels_of(6, 0.1)]
    times = {stage.time for stage in (path[0], *first, path[-1])}
    judged = {path.stopped(tau=tau / len(y)).time for tau in stages.taus_}
    assert judged == times


def test_levels_are_dense_where_noisy_data_are_left():
    levels = levels_of(11, 0.02)
    # Evenly spaced in log((1 - r) / r), from 0.98 to 0.02: as many above a half as below.
    assert_allclose(levels, 1.0 - levels[::-1], rtol=1e-12)
    assert_allclose(levels[[0, 5]], [0.98, 0.5], rtol=1e-12)


def test_it_splits_twice_unless_told_otherwise(data):
    X, y, _ = data
    few = {"scales": [1.0], "stages": False, "n_times": 3, "eps": 0.1}
    fitted = FlowRegressorCV(**few).fit(X, y)
    assert fitted.best_.mse_path_.shape[1] == 10
    twice = RepeatedKFold(n_splits=5, n_repeats=2, random_state=0)
    same = FlowRegressorCV(**few, cv=twice).fit(X, y)
    assert_allclose(same.best_.mse_path_, fitted.best_.mse_path_, rtol=1e-9)


def test_many_features_that_count_a_little_want_a_large_start():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 80))
    y = X @ rng.standard_normal(80) + 3.0 * rng.standard_normal(50)
    fitted = FlowRegressorCV(n_scales=3, n_times=10, eps=0.05).fit(X, y)
    assert fitted.scale_ > 0.0
    assert fitted.best_.time_ == fitted.time_


def test_without_stages_only_flows_are_tried(data):
    X, y, _ = data
    fitted = FlowRegressorCV(scales=[1.0], stages=False, n_times=4, eps=0.1, cv=2).fit(X, y)
    one = EarlyStoppedRegressorCV(scale=1.0, n_times=4, eps=0.1, cv=2).fit(X, y)
    assert_allclose(fitted.coef_, one.coef_)
    assert fitted.log_scales_.tolist() == [0.0]


def test_a_start_that_cannot_be_followed_is_not_chosen(data, monkeypatch):
    X, y, _ = data
    few = {"scales": [1.0, 0.1], "n_times": 3, "eps": 0.1, "cv": 2}

    def failing(*args, **kwargs):
        raise FlowError("stopped", None)

    monkeypatch.setattr(EarlyStoppedRegressorCV, "_judge", failing)
    with pytest.warns(ConvergenceWarning, match="never chosen where so"):
        fitted = FlowRegressorCV(**few).fit(X, y)
    assert np.isnan(fitted.mse_).tolist() == [True, True, False]
    assert fitted.scale_ == 0.0
    with pytest.raises(FlowError, match="stopped"):
        FlowRegressorCV(**few, stages=False).fit(X, y)


def test_the_largest_start_is_no_different_from_larger_ones():
    """And the next one is: none is tried twice, for twice its weight in the mean."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 80))
    y = X @ rng.standard_normal(80) + 3.0 * rng.standard_normal(50)
    few = {"n_times": 6, "eps": 0.1, "cv": 3}
    logs = FlowRegressorCV(**few).fit(X, y).log_scales_
    assert len(logs) == 4
    larger = [logs[0] + np.log(3.0), *logs[:2]]
    kernel, largest, next_one = (
        FlowRegressorCV(**few, log_scales=larger, stages=False).fit(X, y).mse_
    )
    assert_allclose(largest, kernel, rtol=0.01)
    assert abs(next_one / kernel - 1.0) > 0.05


def test_starts_that_are_about_as_good_are_averaged():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 80))
    y = X @ rng.standard_normal(80) + 3.0 * rng.standard_normal(50)
    few = {"scales": [30.0, 0.3], "stages": False, "n_times": 6, "eps": 0.1, "cv": 3}
    fitted, alone = (FlowRegressorCV(**few, average=a).fit(X, y) for a in (True, False))
    expected = fitted.mse_ ** (-0.25 * len(y))
    # Of sums of 50 squares, to a power of 12.5.
    assert_allclose(fitted.weights_, expected / expected.sum(), rtol=1e-10)
    assert fitted.weights_.min() > 0.0
    starts = [EarlyStoppedRegressorCV(scale=s, n_times=6, eps=0.1, cv=3) for s in (30.0, 0.3)]
    coefs = [start.fit(X, y).coef_ for start in starts]
    # Each flow is integrated to nine digits.
    assert_allclose(fitted.coef_, fitted.weights_ @ coefs, rtol=1e-7)
    assert fitted.status_ is None
    assert sorted(alone.weights_.tolist()) == [0.0, 1.0]
    assert_allclose(alone.coef_, coefs[int(np.argmax(alone.weights_))], rtol=1e-7)


def test_likelihoods_leave_out_what_is_worse_or_unknown():
    assert_allclose(likelihoods(np.array([1.0, 1.01, np.nan]), 100), [1.0, 1.01**-25.0, 0.0])
    assert likelihoods(np.array([1.0, 1.3]), 100).tolist() == [1.0, 0.0]
    assert likelihoods(np.array([0.0, 1.0, 0.0]), 100).tolist() == [1.0, 0.0, 1.0]
    assert likelihoods(np.array([np.nan]), 100).tolist() == [0.0]


@pytest.mark.parametrize(
    ("estimator", "rtol"),
    [
        (ImplicitBiasRegressorCV(n_scales=4, cv=3), 1e-9),
        # The steps of the integrator differ, and with them the times.
        (FlowRegressorCV(n_scales=2, n_times=4, eps=0.1, cv=3), 0.01),
    ],
)
def test_squares_of_y_that_vanish_choose_the_same(estimator, rtol, data):
    X, y, _ = data
    usual, scaled = (clone(estimator).fit(X, k * y) for k in (1.0, 2.0**-990))
    largest = np.abs(usual.coef_).max()
    assert_allclose(scaled.coef_ * 2.0**990, usual.coef_, atol=rtol * largest)
    assert scaled.log_scale_ == pytest.approx(usual.log_scale_ - 495.0 * np.log(2.0), rel=1e-9)


def test_too_few_samples_for_the_folds_are_refused_in_our_words(data):
    X, y, _ = data
    few = X[:4], y[:4]
    for estimator in (StagesRegressorCV(), EarlyStoppedRegressorCV(), FlowRegressorCV()):
        with pytest.raises(fb.InputError, match="cv: must be able to split 4 samples"):
            estimator.fit(*few)


@pytest.mark.parametrize("rule", ["min", "1se"])
@pytest.mark.parametrize("unit", [2.0**990, 2.0**-990])
def test_squares_of_y_beyond_the_doubles_choose_the_same(data, rule, unit):
    X, y, _ = data
    usual, scaled = (StagesRegressorCV(rule=rule, cv=3).fit(X, k * y) for k in (1.0, unit))
    assert_allclose(scaled.coef_ / unit, usual.coef_, rtol=1e-12)
    assert np.count_nonzero(usual.coef_) > 0


def test_no_error_in_units_whose_squares_are_no_doubles():
    found = StagesRegressorCV(cv=2).fit(np.vstack([np.eye(3)] * 2), np.full(6, 2.0**700))
    assert found.intercept_ == 2.0**700
    assert not found.mse_path_.any()
