"""The stopping time by cross-validation, and the scale of the start with it: one flow per fold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import RepeatedKFold
from sklearn.utils.parallel import Parallel, delayed

from flowbias.estimators.cross_validation import check_n_jobs, one_thread_each
from flowbias.estimators.early_stopping import RTOL_TO_CHOOSE, StoppedFlow, levels_of, times_of
from flowbias.estimators.fitting import warn_of
from flowbias.estimators.folds import Fold, Linear, folds_of
from flowbias.estimators.intercepts.frames import frame_of
from flowbias.estimators.regressors import LinearInterpolator
from flowbias.estimators.samples import Samples, read_data
from flowbias.estimators.stages import StagesRegressorCV
from flowbias.estimators.start import log_scales_of
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import check_tol
from flowbias.results.result import SolveError

# scale^depth at the smallest default scale, as a share of that at the largest: below it a flow
# takes its time to leave the start, and goes where the stages go.
LEAST = 1e-6


class EarlyStoppedRegressorCV(StoppedFlow):
    """`EarlyStoppedRegressor` whose time cross-validation chooses.

    Parameters
    ----------
    times : what to try, increasing; by default n_times at which the residual on all data passes
        levels down to eps, and np.inf, the limit
    n_times, eps : number and end of the default times
    depth, scale, log_scale, shape, loss, fit_intercept, tol : as for EarlyStoppedRegressor
    cv : number of folds (default 5), splitter, or list of splits

    Chosen by mean squared error: `mse_path_` (n_times, n_folds), `times_`, `time_`.

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fitted = fb.estimators.EarlyStoppedRegressorCV(n_times=3, cv=2).fit(X, y)
    >>> bool(fitted.time_ in fitted.times_)
    True
    """

    def __init__(
        self,
        *,
        times: Any = None,
        n_times: int = 50,
        eps: float = 1e-3,
        depth: float = 2,
        scale: float = 1.0,
        log_scale: float | None = None,
        shape: float = 0.0,
        loss: str | float = "half_mean",
        fit_intercept: bool | str = True,
        cv: Any = None,
        tol: float = 1e-8,
    ) -> None:
        self.times = times
        self.n_times = n_times
        self.eps = eps
        self.depth = depth
        self.scale = scale
        self.log_scale = log_scale
        self.shape = shape
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.tol = tol

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> EarlyStoppedRegressorCV:
        """Choose the time, then follow the flow on all data up to it.

        sample_weight counts in the fits, in the errors within a fold and in their average. A limit
        that is not certified is warned of and never chosen.
        """
        X, y, weight = read_data(self, X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        self._judge(samples, folds_of(self.cv, X, y, weight, groups))
        self._settle(samples)
        return self

    def _settle(self, samples: Samples) -> None:
        """Follow the flow on all data up to the time chosen."""
        self._stop_at(samples, self.time_)

    def _judge(self, samples: Samples, folds: list[Fold]) -> float:
        """Choose the time, and return the average error at it."""
        self.times_, self.mse_path_ = errors_in_time(self, samples, folds)
        average = np.average(self.mse_path_, axis=-1, weights=[fold.share for fold in folds])
        if np.isnan(average).all():
            raise InputError(
                "times: must include a finite one, or limits that are certified in every fold, got "
                f"{self.times!r}. Add a time, or take a larger tol ({self.tol:g})."
            )
        # The first, so the earliest, where several do equally well.
        self.time_ = float(self.times_[int(np.nanargmin(average))])
        return float(np.nanmin(average))


def errors_in_time(
    estimator: EarlyStoppedRegressorCV, samples: Samples, folds: list[Fold]
) -> tuple[FloatArray, FloatArray]:
    """The times that an estimator tries, and the mean squared error (n_times, n_folds) at each."""
    times = times_of(estimator.times, estimator._flows(samples), estimator.n_times, estimator.eps)
    if estimator.times is None:
        times = np.append(times, np.inf)
    errors, failures = zip(*(_errors(estimator, fold, times) for fold in folds), strict=True)
    where = f"{type(estimator).__name__} (never chosen where so)"
    warn_of([(np.inf, failure) for failure in failures], where, "time")
    return times, np.stack(errors, axis=-1)


def _errors(
    estimator: EarlyStoppedRegressorCV, fold: Fold, times: FloatArray
) -> tuple[FloatArray, str | None]:
    """Mean squared error on the part left out, at each time; NaN for a limit that failed."""
    samples = fold.samples()
    coefs, intercepts, failure = estimator._flows(samples).coefficients(
        times, throw=False, rtol=RTOL_TO_CHOOSE
    )
    keep = 0 if samples.single else slice(None)
    mse = np.array(
        [fold.mse(Linear(w[keep], b[keep])) for w, b in zip(coefs, intercepts, strict=True)]
    )
    if failure is not None:
        mse[-1] = np.nan
    return mse, failure


class FlowRegressorCV(LinearInterpolator):
    """The predictor along a flow: cross-validation chooses the scale of its start and when to stop.

    Large starts behave like ridge regression, small ones like a selection of features; the least of
    them is the vanishing start, whose path is followed by its stages. What the time is to each of
    them is a penalty. All are judged where the residual on all data passes the same levels: the
    stages of all folds have hundreds of times, and the least of so many errors is luck.

    Parameters
    ----------
    scales, log_scales : what to try; by default n_scales of them, see `implicit_bias_path`
    n_scales : number of the default scales
    stages : whether to try the vanishing start as well
    n_times, eps : of each start, as for EarlyStoppedRegressorCV
    depth, shape, loss, fit_intercept, tol : as for EarlyStoppedRegressor
    cv : number of folds, splitter, or list of splits; by default five folds, shuffled, twice:
        starts are often closer to each other than one partition tells
    n_jobs : starts at a time, as in joblib

    Chosen: `best_`, an EarlyStoppedRegressorCV or a StagesRegressorCV with all that they keep;
    `scale_`, 0 for the vanishing start, `log_scale_` and `time_` (tau_ of the stages). `mse_` holds
    the least error of every start tried, `log_scales_` their log-scales; NaN, with a warning, where
    a start could not be followed.

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, noise_var=0.1, rng=0)
    >>> fitted = fb.estimators.FlowRegressorCV(n_scales=2, n_times=4, cv=2).fit(X, y)
    >>> len(fitted.mse_)
    3
    """

    def __init__(
        self,
        *,
        scales: Any = None,
        log_scales: Any = None,
        n_scales: int = 4,
        stages: bool = True,
        n_times: int = 30,
        eps: float = 1e-3,
        depth: float = 2,
        shape: float = 0.0,
        loss: str | float = "half_mean",
        fit_intercept: bool | str = True,
        cv: Any = None,
        n_jobs: int | None = None,
        tol: float = 1e-8,
    ) -> None:
        self.scales = scales
        self.log_scales = log_scales
        self.n_scales = n_scales
        self.stages = stages
        self.n_times = n_times
        self.eps = eps
        self.depth = depth
        self.shape = shape
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.n_jobs = n_jobs
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> FlowRegressorCV:
        """Choose a start and a time by the errors on the parts left out, then follow that flow.

        sample_weight counts in the fits, in the errors within a fold and in their average.
        """
        check_tol(self.tol)
        check_n_jobs(self.n_jobs)
        X, y, weight = read_data(self, X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        frame = frame_of(samples, self.fit_intercept, self._intercepts)
        given = self.scales, self.log_scales
        logs = log_scales_of(*given, frame, self.depth, self.shape, self.n_scales, LEAST)
        levels = levels_of(self.n_times, self.eps)
        cv = RepeatedKFold(n_splits=5, n_repeats=2, random_state=0) if self.cv is None else self.cv
        # Every start is judged on the same splits, and as often.
        folds = folds_of(cv, X, y, weight, groups)
        starts: list[Any] = [self._flow(float(log)) for log in logs]
        judges = [partial(start._judge, samples, folds) for start in starts]
        if self.stages:
            common = {"depth": self.depth, "fit_intercept": self.fit_intercept, "tol": self.tol}
            starts.append(StagesRegressorCV(**common))
            judges.append(partial(starts[-1]._judge, samples, folds, levels))
        for start in starts:
            read_data(start, X, y, weight)
        with one_thread_each(self.n_jobs):
            judged = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(_error_or_failure)(judge) for judge in judges
            )
        self.mse_ = np.array([error for error, _ in judged])
        self.log_scales_ = np.append(logs, -np.inf) if self.stages else logs
        failures = [failure for _, failure in judged]
        if np.isnan(self.mse_).all():
            raise next(failure for failure in failures if failure is not None)
        where = f"{type(self).__name__} (never chosen where so)"
        warn_of(
            [(log, f and str(f)) for log, f in zip(self.log_scales_, failures, strict=True)],
            where,
            "log_scale",
        )
        best = int(np.nanargmin(self.mse_))
        starts[best]._settle(samples)
        self._take(starts[best], float(self.log_scales_[best]))
        return self

    def _flow(self, log_scale: float) -> EarlyStoppedRegressorCV:
        return EarlyStoppedRegressorCV(
            log_scale=log_scale,
            n_times=self.n_times,
            eps=self.eps,
            depth=self.depth,
            shape=self.shape,
            loss=self.loss,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
        )

    def _take(self, best: Any, log_scale: float) -> None:
        self.best_, self.log_scale_ = best, log_scale
        with np.errstate(over="ignore"):
            self.scale_ = float(np.exp(log_scale))
        self.time_ = best.time_ if np.isfinite(log_scale) else best.tau_
        for name in ("coef_", "intercept_", "certificate_", "status_", "dual_coef_", "n_iter_"):
            setattr(self, name, getattr(best, name))


def _error_or_failure(judge: Callable[[], float]) -> tuple[float, Exception | None]:
    """The error of a start, NaN where it cannot be followed: others may do."""
    try:
        return judge(), None
    except SolveError as failure:
        return np.nan, failure
