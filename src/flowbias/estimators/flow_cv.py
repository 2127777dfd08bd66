"""The scale of the start and the stopping time by cross-validation: one flow per fold and start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import RepeatedKFold
from sklearn.utils.parallel import delayed

from flowbias.estimators.early_stopping import EarlyStoppedRegressorCV, levels_of
from flowbias.estimators.folds import check_n_jobs, folds_of, side_by_side
from flowbias.estimators.regressors import LinearInterpolator, warn_of
from flowbias.estimators.samples import Samples, read_data
from flowbias.estimators.stages import StagesRegressorCV
from flowbias.estimators.start import log_scales_of
from flowbias.flows.trajectory import FlowError
from flowbias.limits.solve import check_tol
from flowbias.results.solution import SolveError

# scale^depth at the smallest default scale, as a share of that at the largest: below it a flow
# takes its time to leave the start, and goes where the stages go.
LEAST = 1e-6


@dataclass(eq=False, repr=False, kw_only=True)
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

    scales: Any = None
    log_scales: Any = None
    n_scales: int = 4
    stages: bool = True
    n_times: int = 30
    eps: float = 1e-3
    depth: float = 2
    shape: float = 0.0
    loss: str | float = "half_mean"
    fit_intercept: bool | str = True
    cv: Any = None
    n_jobs: int | None = None
    tol: float = 1e-8

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> FlowRegressorCV:
        """Choose a start and a time by the errors on the parts left out, then follow that flow.

        sample_weight counts in the fits, in the errors within a fold and in their average.
        """
        check_tol(self.tol)
        check_n_jobs(self.n_jobs)
        X, y, weight = read_data(self, X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        frame = self._frame(samples)
        given = self.scales, self.log_scales
        logs = log_scales_of(*given, frame, self.depth, self.shape, self.n_scales, LEAST)
        levels = levels_of(self.n_times, self.eps)
        cv = RepeatedKFold(n_splits=5, n_repeats=2, random_state=0) if self.cv is None else self.cv
        # Every start is judged on the same splits, and as often.
        folds = folds_of(cv, X, y, weight, groups)
        starts: list[Any] = [self._flow(float(log)) for log in logs]
        judges = [partial(start._judge, samples, folds) for start in starts]
        if self.stages:
            starts.append(
                StagesRegressorCV(depth=self.depth, fit_intercept=self.fit_intercept, tol=self.tol)
            )
            judges.append(partial(starts[-1]._judge, samples, folds, levels))
        for start in starts:
            read_data(start, X, y, weight)
        judged = side_by_side(self.n_jobs, map(delayed(_error_or_failure), judges))
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
    except (FlowError, SolveError) as failure:
        return np.nan, failure
