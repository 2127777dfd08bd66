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
from flowbias.estimators.intercepts.frames import warn_of
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.regressors import LinearInterpolator
from flowbias.estimators.stages import StagesRegressorCV
from flowbias.estimators.start import log_scales_of, network
from flowbias.ground.arguments import read_tolerance
from flowbias.ground.typing import FloatArray
from flowbias.results.solution import SolveError


@dataclass(eq=False, repr=False, kw_only=True)
class FlowRegressorCV(LinearInterpolator):
    """The predictor along a flow: cross-validation chooses the scale of its start and when to stop.

    Large starts behave like ridge regression, small ones like a selection of features; the least of
    them is the vanishing start, whose path is followed by its stages. What the time is to each of
    them is a penalty. All are judged where the residual on all data passes the same levels: the
    stages of all folds have hundreds of times, and the least of so many errors is luck.

    Starts are often closer to each other than the errors tell, and the best of them by those errors
    is then the luckiest. So the coefficients are a mean over the starts, each stopped at its own
    time, weighted by the root of the likelihood of the samples left out: mse^(-n/4), for Gaussian
    noise whose variance is fitted too. A start that is clearly better has all the weight. The root,
    since it bounds what the mean loses to the best of them. [Leung and Barron 2006]

    Parameters
    ----------
    scales, log_scales : what to try; by default n_scales of them, see `implicit_bias_path`
    n_scales : number of the default scales
    stages : whether to try the vanishing start as well
    average : whether to take the mean over starts; False for the best of them alone
    n_times, eps : of each start, as for EarlyStoppedRegressorCV
    depth, shape, loss, fit_intercept, tol : as for EarlyStoppedRegressor
    cv : number of folds, splitter, or list of splits; by default five folds, shuffled, twice:
        starts are often closer to each other than one partition tells
    n_jobs : starts at a time, as in joblib

    Chosen: `best_`, an EarlyStoppedRegressorCV or a StagesRegressorCV with all that they keep;
    `scale_`, 0 for the vanishing start, `log_scale_` and `time_` (tau_ of the stages). `mse_` holds
    the least error of every start tried, `log_scales_` their log-scales, `weights_` their parts in
    the coefficients; NaN and 0, with a warning, where a start could not be followed. certificate_,
    status_ and dual_coef_ are those of the best, None where it is not alone.

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, noise_var=0.1, rng=0)
    >>> fitted = fb.estimators.FlowRegressorCV(n_scales=2, n_times=4, cv=2).fit(X, y)
    >>> len(fitted.mse_)
    3
    """

    scales: Any = None
    log_scales: Any = None
    n_scales: int = 3
    stages: bool = True
    average: bool = True
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
        read_tolerance("tol", self.tol)
        check_n_jobs(self.n_jobs)
        X, y, weight = self._read_data(X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        frame, depth = self._frame(samples), network(self.depth, shape=self.shape).depth
        given = self.scales, self.log_scales
        # scale^depth from twice the size of a coefficient of the least-norm fit, if all are alike:
        # larger starts are all the same. Far below it a flow takes its time to leave the start, and
        # goes where the stages go.
        alike = 1.0 / np.sqrt(X.shape[1])
        starts_at = partial(log_scales_of, *given, frame, depth, self.shape, self.n_scales)
        logs = starts_at(eps=1e-4, end=2.0 * alike)
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
            start._read_data(X, y, weight)
        errors = side_by_side(self.n_jobs, map(delayed(_or_failure), judges))
        least = np.array([np.nan if failure else error for error, failure in errors])
        self.mse_ = folds[0].in_plain_units(least)
        self.log_scales_ = np.append(logs, -np.inf) if self.stages else logs
        weights = likelihoods(least, samples.total_weight)
        if not self.average:
            weights = np.where(weights == weights.max(), weights, 0.0)
        settled = [
            _or_failure(partial(start._settle, samples)) if weight > 0.0 else (None, failure)
            for start, weight, (_, failure) in zip(starts, weights, errors, strict=True)
        ]
        self._take(starts, weights, [failure for _, failure in settled])
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

    def _take(
        self, starts: list[Any], weights: FloatArray, failures: list[Exception | None]
    ) -> None:
        """The mean of those that could be followed."""
        weights = np.where([failure is None for failure in failures], weights, 0.0)
        if not weights.any():
            raise next(failure for failure in failures if failure is not None)
        told = [
            (log, None if f is None else str(f))
            for log, f in zip(self.log_scales_, failures, strict=True)
        ]
        warn_of(told, f"{type(self).__name__} (never chosen where so)", "log_scale")
        self.weights_ = weights / weights.sum()
        parts = [(w, start) for w, start in zip(self.weights_, starts, strict=True) if w > 0.0]
        self.coef_ = sum(w * start.coef_ for w, start in parts)
        self.intercept_ = sum(w * start.intercept_ for w, start in parts)
        chosen = int(np.argmax(self.weights_))
        self.best_ = starts[chosen]
        self._keep_scale(float(self.log_scales_[chosen]))
        self.time_ = self.best_.time_ if np.isfinite(self.log_scale_) else self.best_.tau_
        self.n_iter_ = self.best_.n_iter_
        for name in ("certificate_", "status_", "dual_coef_"):
            setattr(self, name, getattr(self.best_, name) if len(parts) == 1 else None)


def likelihoods(mse: FloatArray, n: float, least: float = 0.01) -> FloatArray:
    """mse^(-n/4) beside that of the best; 0 below `least`, which is not worth a fit, and at NaN."""
    best = np.nanmin(mse) if np.isfinite(mse).any() else 0.0
    ratio = np.divide(best, mse, out=np.array(mse == best, dtype=float), where=mse > best)
    weights = ratio ** (0.25 * n)
    return np.where(weights >= least, weights, 0.0)


def _or_failure(step: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a step for one start returns, or why it cannot be followed: others may do."""
    try:
        return step(), None
    except SolveError as failure:
        return None, failure
