"""The predictor at a finite time of the flow, as an estimator.

    d theta/dt = -grad L,    L = (c/2) sum weight_i (<x_i, w> + b - y_i)^2

Stopping early is a second kind of regularization beside the scale: at t = 0 the coefficients are 0,
at t = inf they are the limit. The default loss "half_mean" divides by the number of samples (the
sum of their weights), so that a time means the same in every fold. With centred data the intercept
is at every time the one that fits best: the flow of w beside a bias that moves infinitely fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowbias.estimators.folds import Fold, folds_of
from flowbias.estimators.intercepts import FRAMES
from flowbias.estimators.intercepts.frames import Frame, OutputFits, plain, warn_of
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.regressors import LinearInterpolator, checked_data
from flowbias.estimators.start import network
from flowbias.flows.integrate import flow
from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import (
    LARGEST_SIZE,
    InputError,
    as_float,
    read_tolerance,
    shown,
)
from flowbias.ground.tolerances import TO_CHOOSE
from flowbias.ground.typing import FloatArray
from flowbias.potentials.scale import read_real

# The relative residual at the first of the default times.
FIRST_RESIDUAL = 0.98
# Local error per step: coefficients to about as many digits.
COEFFICIENT_RTOL = 1e-9


class AtTimes(NamedTuple):
    """coef (n_times, k, d), intercept (n_times, k), and what a limit not certified says."""

    coef: FloatArray
    intercept: FloatArray
    failure: str | None


class FlowTimes:
    """The flows of one frame, one per output, read at times that may include infinity."""

    def __init__(self, frame: Frame, net: Any, loss: Any, tol: float) -> None:
        self.frame, self.net, self.tol = frame, net, tol
        #: with a potential, and what it is fitted to
        self.model, self.X = frame.mirror(net)
        self.loss = loss_constant(loss, frame.samples.total_weight)
        #: of the integrator, for each output followed last
        self.steps: list[int] = []

    def followed(
        self, times: FloatArray, rtol: float = COEFFICIENT_RTOL
    ) -> tuple[FloatArray, FloatArray]:
        """coef (n_times, k, d) and intercept (n_times, k) at finite times."""
        self.steps = []
        along = np.stack([self._along(y, times, rtol) for y in self.frame.y.T], axis=1)
        coefs, intercepts = zip(*(self.frame.coefficients(w) for w in along), strict=True)
        return np.stack(coefs), np.stack(intercepts)

    def _along(self, y: FloatArray, times: FloatArray, rtol: float) -> FloatArray:
        if not self.frame.moves:
            self.steps.append(0)
            return np.zeros((len(times), self.X.shape[1]))
        trajectory = flow(self.model, self.X, y, t=times, loss=self.loss, rtol=rtol)
        self.steps.append(trajectory.stats.steps)
        return np.asarray(trajectory.w)

    def limit(self, *, throw: bool) -> OutputFits:
        """At infinity; without `throw` a limit that is not certified says so in `failure`."""
        return self.frame.limits(self.frame.model(self.net), self.tol, throw=throw)

    def coefficients(
        self, times: FloatArray, *, throw: bool = True, rtol: float = COEFFICIENT_RTOL
    ) -> AtTimes:
        """At increasing times, the last of which may be infinite."""
        finite = times[np.isfinite(times)]
        parts = [self.followed(finite, rtol)] if finite.size else []
        failure = None
        if finite.size < times.size:
            fit = self.limit(throw=throw)
            parts.append((fit.coef[None], fit.intercept[None]))
            failure = fit.failure
        coefs, intercepts = (np.concatenate(part) for part in zip(*parts, strict=True))
        return AtTimes(coefs, intercepts, failure)

    def informative(self, residuals: FloatArray) -> FloatArray:
        """Times at which the relative residual of the slowest output passes these."""
        levels = -np.log(residuals)
        times = np.zeros(len(levels))
        for y in self.frame.y.T if self.frame.moves else ():
            trajectory = flow(
                self.model,
                self.X,
                y,
                loss=self.loss,
                residual=float(residuals[-1]),
                rtol=TO_CHOOSE,
                # A row that is rounding, as centring leaves one, need not be fitted for a grid.
                throw=False,
            )
            with np.errstate(divide="ignore"):
                passed = np.maximum.accumulate(-np.log(trajectory.residual))
            times = np.maximum(times, np.interp(levels, passed, trajectory.t))
        # Where nothing moves any time will do.
        return np.unique(times[times > 0.0]) if times.any() else np.ones(1)


def flow_time_path(
    X: Any,
    y: Any,
    times: Any = None,
    *,
    n_times: int = 50,
    eps: float = 1e-3,
    depth: float = 2,
    scale: float = 1.0,
    log_scale: float | None = None,
    shape: float = 0.0,
    loss: str | float = "half_mean",
    tol: float = 1e-8,
) -> tuple[FloatArray, FloatArray]:
    """Coefficients along the flow of a diagonal network, in the style of `lasso_path`.

    As `lasso_path` it fits no intercept: centre X and y for one. One flow per output.

    Parameters
    ----------
    X, y : the data; y (n,) or (n, n_targets)
    times : increasing, may end with np.inf, the limit; by default those at which the relative
        residual passes n_times levels down to `eps`
    n_times, eps : of the default times
    depth, scale, log_scale, shape : of the network and its start
    loss : as for `flow`
    tol : of the flow and of the limit

    Returns
    -------
    times : (n_times,), increasing
    coefs : (n_features, n_times), or (n_targets, n_features, n_times) for y of two dimensions

    Raises
    ------
    InputError for data or a start that cannot be used

    >>> X, y, _ = fb.datasets.sparse_regression(n=10, d=30, rng=0)
    >>> times, coefs = fb.estimators.flow_time_path(X, y, n_times=4)
    >>> coefs.shape
    (30, 4)
    """
    read_tolerance("tol", tol)
    X, y = checked_data(X, y)
    samples = Samples.of(X, y)
    flows = FlowTimes(plain(samples), network(depth, scale, log_scale, shape), loss, tol)
    chosen = times_of(times, flows, n_times, eps)
    coefs = np.moveaxis(flows.coefficients(chosen).coef, 0, -1)
    return chosen, samples.shaped(coefs)


def times_of(times: Any, flows: FlowTimes, n_times: Any, eps: Any) -> FloatArray:
    """The times asked for, or informative ones."""
    return flows.informative(levels_of(n_times, eps)) if times is None else _read_times(times)


def levels_of(n_times: Any, eps: Any) -> FloatArray:
    """Relative residuals r from FIRST_RESIDUAL to eps, evenly spaced in log((1 - r) / r).

    So in the logarithm of what is fitted at first, where noisy data are best left, and of what is
    left at last. Long before anything happens, and long after, there is nothing to choose from.
    """
    count, share = as_float(n_times), as_float(eps)
    if count is None or not 1 <= count <= LARGEST_SIZE or count % 1:
        raise InputError(
            f"n_times: must be a whole number >= 1, got {shown(n_times)}. Pass n_times=50."
        )
    if share is None or not np.finfo(np.float64).tiny <= share < FIRST_RESIDUAL:
        raise InputError(
            f"eps: must lie in (0, {FIRST_RESIDUAL}), got {shown(eps)}. It is the relative "
            "residual at the last time: pass eps=1e-3."
        )
    odds = np.geomspace(1.0 / FIRST_RESIDUAL - 1.0, 1.0 / share - 1.0, int(count))
    return np.asarray(1.0 / (1.0 + odds))


def _read_times(times: Any) -> FloatArray:
    read = np.atleast_1d(read_real("times", times, "Pass increasing times, for instance [0.1, 1]."))
    if read.ndim != 1 or read.size == 0 or not _increase_from_0(read):
        raise InputError(
            f"times: must be non-negative and increasing, got {shown(times)}. "
            "Sort them with np.unique(times); np.inf is the limit."
        )
    return read


def _increase_from_0(times: FloatArray) -> bool:
    # No difference of two infinities, which is no number.
    return bool((times >= 0.0).all() and (times[1:] > times[:-1]).all())


@dataclass(eq=False, repr=False, kw_only=True)
class StoppedFlow(LinearInterpolator):
    """What estimators along a flow share: the start, the clock and the intercept."""

    depth: float = 2
    scale: float = 1.0
    log_scale: float | None = None
    shape: float = 0.0
    loss: str | float = "half_mean"
    fit_intercept: bool | str = True
    tol: float = 1e-8

    _intercepts = tuple(FRAMES)

    def _flows(self, samples: Samples) -> FlowTimes:
        read_tolerance("tol", self.tol)
        net = network(self.depth, self.scale, self.log_scale, self.shape)
        return FlowTimes(self._frame(samples), net, self.loss, self.tol)

    def _stop_at(self, samples: Samples, time: float) -> None:
        """Set the attributes of the estimator fitted at this time."""
        flows = self._flows(samples)
        if time == np.inf:
            self._keep(flows.limit(throw=True), samples)
            return
        coef, intercept = (part[0] for part in flows.followed(np.array([time])))
        self._keep_linear(samples, coef, intercept, flows.steps)
        self.certificate_ = self.status_ = self.dual_coef_ = None


@dataclass(eq=False, repr=False)
class EarlyStoppedRegressor(StoppedFlow):
    """The predictor of a diagonal network after training for a time.

    Parameters
    ----------
    time : when to stop; np.inf is the limit, ImplicitBiasRegressor
    depth, scale, log_scale, shape, fit_intercept : as for ImplicitBiasRegressor
    loss : "half_mean", "half", "mean", "sum" or a number c in (c/2) ||.||^2: sets the clock
    tol : of the certificate at time = np.inf

    certificate_, status_ and dual_coef_ are those of the limit at np.inf, and None before.

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fb.estimators.EarlyStoppedRegressor(time=1.0, scale=0.1).fit(X, y).coef_.shape
    (30,)
    """

    time: float = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EarlyStoppedRegressor:
        """Follow the flow on (X, y) up to `time`.

        sample_weight multiplies the squared error of a sample in the loss; unlike in the limit it
        changes the predictor even where the data can be interpolated.
        """
        stop = as_float(self.time)
        if stop is None or not stop >= 0.0:
            raise InputError(
                f"time: must be a number >= 0, got {shown(self.time)}. Pass np.inf for the limit."
            )
        samples = Samples.of(*self._read_data(X, y, sample_weight))
        self._stop_at(samples, stop)
        return self


@dataclass(eq=False, repr=False, kw_only=True)
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

    times: Any = None
    n_times: int = 50
    eps: float = 1e-3
    cv: Any = None

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> EarlyStoppedRegressorCV:
        """Choose the time, then follow the flow on all data up to it.

        sample_weight counts in the fits, in the errors within a fold and in their average. A limit
        that is not certified is warned of and never chosen.
        """
        X, y, weight = self._read_data(X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        self._judge(samples, folds_of(self.cv, X, y, weight, groups))
        self._settle(samples)
        return self

    def _settle(self, samples: Samples) -> None:
        """Follow the flow on all data up to the time chosen."""
        self._stop_at(samples, self.time_)

    def _judge(self, samples: Samples, folds: list[Fold]) -> float:
        """Choose the time, and return the average error at it, in the units of the folds."""
        self.times_, errors = errors_in_time(self, samples, folds)
        self.mse_path_ = folds[0].in_plain_units(errors)
        average = np.average(errors, axis=-1, weights=[fold.share for fold in folds])
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
    """The times that an estimator tries, and the errors (n_times, n_folds) at each, in units."""
    times = times_of(estimator.times, estimator._flows(samples), estimator.n_times, estimator.eps)
    if estimator.times is None:
        times = np.append(times, np.inf)
    errors: list[FloatArray] = []
    failures: list[str | None] = []
    tried = times
    for fold in folds:
        error, failure = _errors(estimator, fold, tried)
        errors.append(np.pad(error, (0, len(times) - len(tried)), constant_values=np.nan))
        if len(tried) == len(times):
            failures.append(failure)
        if failure is not None and len(times) > 1:
            # It cannot be chosen any more, and may take long to fail in the other folds.
            tried = times[np.isfinite(times)]
    where = f"{type(estimator).__name__} (never chosen where so)"
    warn_of([(np.inf, failure) for failure in failures], where, "time")
    return times, np.stack(errors, axis=-1)


def _errors(
    estimator: EarlyStoppedRegressorCV, fold: Fold, times: FloatArray
) -> tuple[FloatArray, str | None]:
    """On the part left out, at each time; NaN for a limit that failed."""
    coefs, intercepts, failure = estimator._flows(fold.samples()).coefficients(
        times, throw=False, rtol=TO_CHOOSE
    )
    mse = fold.errors(zip(coefs, intercepts, strict=True))
    if failure is not None:
        mse[-1] = np.nan
    return mse, failure
