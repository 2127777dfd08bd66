"""The stopping time by cross-validation: one flow per fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.estimators.early_stopping import StoppedFlow, times_of
from flowbias.estimators.fitting import warn_of
from flowbias.estimators.folds import Fold, Linear, folds_of
from flowbias.estimators.samples import Samples, read_data
from flowbias.problem import InputError


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
        times = times_of(self.times, self._flows(samples), self.n_times, self.eps)
        if self.times is None:
            times = np.append(times, np.inf)
        folds = folds_of(self.cv, X, y, weight, groups)
        errors, failures = zip(*(self._errors(fold, times) for fold in folds), strict=True)
        where = f"{type(self).__name__} (never chosen where so)"
        warn_of([(np.inf, failure) for failure in failures], where, "time")
        self.mse_path_, self.times_ = np.stack(errors, axis=-1), times
        average = np.average(self.mse_path_, axis=-1, weights=[fold.share for fold in folds])
        if np.isnan(average).all():
            raise InputError(
                "times: must include a finite one, or limits that are certified in every fold, got "
                f"{self.times!r}. Add a time, or take a larger tol ({self.tol:g})."
            )
        # The first, so the earliest, where several do equally well.
        self.time_ = float(times[int(np.nanargmin(average))])
        self._stop_at(samples, self.time_)
        return self

    def _errors(self, fold: Fold, times: FloatArray) -> tuple[FloatArray, str | None]:
        """Mean squared error on the part left out, at each time; NaN for a limit that failed."""
        samples = fold.samples()
        coefs, intercepts, failure = self._flows(samples).coefficients(times, throw=False)
        keep = 0 if samples.single else slice(None)
        mse = np.array(
            [fold.mse(Linear(w[keep], b[keep])) for w, b in zip(coefs, intercepts, strict=True)]
        )
        if failure is not None:
            mse[-1] = np.nan
        return mse, failure
