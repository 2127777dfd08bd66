"""The predictor at finite times as an estimator."""

import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import flowbias as fb
from flowbias.estimators import EarlyStoppedRegressorCV, ImplicitBiasRegressor
from flowbias.estimators.early_stopping import EarlyStoppedRegressor, flow_time_path, levels_of


@parametrize_with_checks(
    [
        EarlyStoppedRegressor(time=0.1),
        EarlyStoppedRegressor(time=0.1, fit_intercept="trained"),
        EarlyStoppedRegressorCV(times=[0.1, np.inf], cv=2),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def data(n=10, d=25, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.3
    size = n if outputs is None else (n, outputs)
    return X, X[:, :1].sum(axis=1).reshape((n, *[1] * (outputs is not None))) + rng.standard_normal(
        size
    )


@pytest.mark.parametrize("options", [{"scale": 0.3}, {"depth": 3, "scale": 0.5}, {"shape": 0.5}])
def test_path_follows_the_flow_to_its_limit(options):
    X, y = data()
    model = (
        fb.UntiedDiagonalNet(scale=1.0, **options)
        if "shape" in options
        else fb.DiagonalNet(**options)
    )
    times, coefs = flow_time_path(X, y, [0.0, 0.1, 1.0, np.inf], loss="half", **options)
    assert coefs.shape == (25, 4)
    np.testing.assert_array_equal(times, [0.0, 0.1, 1.0, np.inf])
    np.testing.assert_allclose(coefs[:, :3].T, fb.flow(model, X, y, t=times[:3]).w, atol=1e-7)
    np.testing.assert_allclose(coefs[:, 3], fb.limit(model, X, y).w, atol=1e-10)


def test_estimator_is_a_column_of_the_path():
    X, y = data(outputs=2)
    _, coefs = flow_time_path(X, y, [0.1, np.inf], scale=0.3)
    assert coefs.shape == (2, 25, 2)
    for j, time in enumerate((0.1, np.inf)):
        fitted = EarlyStoppedRegressor(time, scale=0.3, fit_intercept=False).fit(X, y)
        np.testing.assert_allclose(fitted.coef_, coefs[:, :, j], atol=1e-8)
        assert len(fitted.n_iter_) == 2
        assert min(fitted.n_iter_) >= 1
    np.testing.assert_array_equal(EarlyStoppedRegressor(0.0).fit(X, y).coef_, 0.0)


def test_limit_is_the_other_estimator():
    X, y = data()
    for fit_intercept in (False, True, "trained"):
        options = {"scale": 0.2, "fit_intercept": fit_intercept}
        stopped = EarlyStoppedRegressor(np.inf, **options).fit(X, y)
        limit = ImplicitBiasRegressor(**options).fit(X, y)
        np.testing.assert_array_equal(stopped.coef_, limit.coef_)
        assert stopped.intercept_ == limit.intercept_
        np.testing.assert_array_equal(stopped.dual_coef_, limit.dual_coef_)
        assert stopped.certificate_ == limit.certificate_
        assert stopped.status_ == limit.status_
        assert stopped.n_iter_ == limit.n_iter_
        late = EarlyStoppedRegressor(1e4, **options).fit(X, y)
        np.testing.assert_allclose(late.coef_, limit.coef_, atol=1e-7)
        assert late.intercept_ == pytest.approx(limit.intercept_, abs=1e-7)


def test_trained_bias_moves_as_in_the_parameters():
    # d theta/dt = -grad of half the mean square, followed in the parameters themselves.
    X, y = data(6, 4)
    weight = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 3.0])

    def velocity(_, theta):
        plus, minus, bias = theta[:4], theta[4:8], theta[8]
        misfit = weight * (X @ (plus**2 - minus**2) + bias - y) / weight.sum()
        slope = X.T @ misfit
        return np.concatenate([-2 * plus * slope, 2 * minus * slope, [-misfit.sum()]])

    start = np.append(np.full(8, 0.5), 0.0)
    end = solve_ivp(velocity, (0.0, 2.0), start, rtol=1e-11, atol=1e-12).y[:, -1]
    fitted = EarlyStoppedRegressor(2.0, scale=0.5, fit_intercept="trained").fit(X, y, weight)
    np.testing.assert_allclose(fitted.coef_, end[:4] ** 2 - end[4:8] ** 2, atol=1e-8)
    assert fitted.intercept_ == pytest.approx(end[8], abs=1e-8)


def test_centred_intercept_fits_best_at_every_time():
    X, y = data()
    fitted = EarlyStoppedRegressor(0.05).fit(X, y)
    assert np.mean(y - fitted.predict(X)) == pytest.approx(0.0, abs=1e-12)
    by_hand = fb.flow(
        fb.DiagonalNet(depth=2, scale=1.0),
        X - X.mean(axis=0),
        y - y.mean(),
        t=[0.05],
        loss="half_mean",
    )
    np.testing.assert_allclose(fitted.coef_, by_hand.w[0], atol=1e-8)


def test_default_times_pass_the_levels_of_the_residual():
    X, y = data()
    times, coefs = flow_time_path(X, y, n_times=8, eps=1e-2, scale=0.3)
    residual = np.linalg.norm(X @ coefs - y[:, None], axis=0) / np.linalg.norm(y)
    np.testing.assert_allclose(residual, levels_of(8, 1e-2), rtol=0.05)
    assert (np.diff(times) > 0).all()
    # Of several outputs the slowest decides, whichever comes last.
    alone = [flow_time_path(X, part, n_times=4, eps=0.1)[0] for part in (y, 3.0 * y[::-1])]
    for outputs in ((y, 3.0 * y[::-1]), (3.0 * y[::-1], y)):
        together, _ = flow_time_path(X, np.column_stack(outputs), n_times=4, eps=0.1)
        np.testing.assert_allclose(together, np.maximum(*alone))
    # Nothing to learn: any time will do.
    assert len(flow_time_path(X, np.zeros(10))[0]) == 1


def test_cross_validation_chooses_the_best_time_of_its_own_errors():
    X, y = data(20, 40)
    y = X[:, 0] + np.random.default_rng(1).standard_normal(20)
    fitted = EarlyStoppedRegressorCV(n_times=6, cv=4, scale=0.3).fit(X, y)
    assert fitted.mse_path_.shape == (7, 4)
    assert fitted.times_[-1] == np.inf
    best = fitted.times_[np.argmin(fitted.mse_path_.mean(axis=1))]
    assert fitted.time_ == best
    again = EarlyStoppedRegressor(best, scale=0.3).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, again.coef_)
    # One of the errors by hand.
    train, test = list(KFold(4).split(X))[2]
    part = EarlyStoppedRegressor(fitted.times_[3], scale=0.3).fit(X[train], y[train])
    by_hand = np.mean((part.predict(X[test]) - y[test]) ** 2)
    assert fitted.mse_path_[3, 2] == pytest.approx(by_hand)


def test_nothing_certifies_a_finite_time():
    X, y = data()
    fitted = EarlyStoppedRegressor(np.inf).fit(X, y).set_params(time=1.0).fit(X, y)
    assert fitted.certificate_ is fitted.status_ is fitted.dual_coef_ is None


def test_default_times_are_distinct():
    # The residual comes to rest at its rounding: no time is left for the levels below.
    times, coefs = flow_time_path(*data(3, 4), n_times=9, eps=1e-30)
    assert len(times) < 9
    assert (np.diff(times) > 0.0).all()
    assert coefs.shape == (4, len(times))


def test_folds_count_by_their_weight():
    X, y = data(12, 20, seed=6)
    weight = np.repeat([10.0, 1.0, 0.1], 4)
    fitted = EarlyStoppedRegressorCV(n_times=5, cv=KFold(3), scale=0.3).fit(X, y, weight)
    share = [weight[test].sum() for _, test in KFold(3).split(X)]
    chosen = np.argmin(np.average(fitted.mse_path_, axis=1, weights=share))
    assert fitted.time_ == fitted.times_[chosen]
    assert chosen != np.argmin(fitted.mse_path_.mean(axis=1))


def test_a_limit_not_certified_is_warned_of_and_never_chosen():
    X, y = data(8, 12)
    options = {"tol": 1e-30, "cv": 2}
    with pytest.warns(ConvergenceWarning, match="1 of 1 limits are not certified, at time inf"):
        fitted = EarlyStoppedRegressorCV(n_times=3, **options).fit(X, y)
    assert np.isnan(fitted.mse_path_[-1]).all()
    assert np.isfinite(fitted.mse_path_[:-1]).all()
    assert np.isfinite(fitted.time_)
    with (
        pytest.warns(ConvergenceWarning),
        pytest.raises(fb.InputError, match="times: must include a finite one"),
    ):
        EarlyStoppedRegressorCV(times=[np.inf], **options).fit(X, y)


def test_a_clock_without_a_rate_says_what_to_use_instead():
    stopped = EarlyStoppedRegressor(1.0, depth=3, log_scale=-1000.0, fit_intercept="trained")
    with pytest.raises(fb.InputError, match=r'log_scale: must leave .*fit_intercept="centered"'):
        stopped.fit(*data())


@pytest.mark.parametrize("unit", [1e150, 1e160, 1e290])
def test_rates_beyond_the_doubles_are_named(unit):
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for fit in (EarlyStoppedRegressor(1.0).fit, EarlyStoppedRegressorCV(n_times=2).fit):
            with pytest.raises(fb.InputError, match="X: must leave the rates of the flow"):
                fit(X * unit, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": [1.0, 0.5]}, "times: must be non-negative and increasing"),
        ({"times": [[1.0]]}, "times: must be non-negative and increasing"),
        ({"times": [-1.0]}, "times: must be non-negative"),
        ({"times": [1.0, np.inf, np.inf]}, "times: must be non-negative and increasing"),
        ({"n_times": 0}, "n_times: must be a whole number >= 1"),
        ({"n_times": 2.5}, "n_times: must be a whole number >= 1"),
        ({"eps": 1.0}, "eps: must lie in"),
        ({"eps": 0.0}, "eps: must lie in"),
        ({"loss": "log"}, "loss: must be one of"),
    ],
)
def test_bad_paths(options, message):
    with pytest.raises(fb.InputError, match=message):
        flow_time_path(*data(), **options)


@pytest.mark.parametrize("time", [-1.0, np.nan, "late", None])
def test_bad_time(time):
    with pytest.raises(fb.InputError, match="time: must be a number >= 0"):
        EarlyStoppedRegressor(time).fit(*data())


def test_tol_is_checked_at_every_time():
    X, y = data()
    with pytest.raises(fb.InputError, match="tol: must be a positive number"):
        EarlyStoppedRegressor(time=1.0, tol=-1.0).fit(X, y)
    with pytest.raises(fb.InputError, match="tol: must be a positive number"):
        flow_time_path(X, y, [1.0], tol=0.0)
