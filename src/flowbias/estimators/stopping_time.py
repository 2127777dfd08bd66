"""The stopping time by cross-validation: one flow per fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.estimators.early_stopping import StoppedFlow, times_of
from flowbias.estimators.folds import Fold, Linear, folds_of
from flowbias.estimators.samples import Samples, read_data


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

        sample_weight counts in the fits, in the errors within a fold and in their average.
        """
        X, y, weight = read_data(self, X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        times = times_of(self.times, self._flows(samples), self.n_times, self.eps)
        if self.times is None:
            times = np.append(times, np.inf)
        folds = folds_of(self.cv, X, y, weight, groups)
        self.mse_path_ = np.stack([self._errors(fold, times) for fold in folds], axis=-1)
        self.times_ = times
        average = np.average(self.mse_path_, axis=-1, weights=[fold.share for fold in folds])
        # The first, so the earliest, where several do equally well.
        self.time_ = float(times[int(np.argmin(average))])
        self._stop_at(samples, self.time_)
        return self

    def _errors(self, fold: Fold, times: FloatArray) -> FloatArray:
        """Mean squared error on the part left out, at each time."""
        samples = fold.samples()
        along = zip(*self._flows(samples).coefficients(times), strict=True)
        keep = 0 if samples.single else slice(None)
        return np.array([fold.mse(Linear(coef[keep], b[keep])) for coef, b in along])
