"""The path of a vanishing start, stopped early, as estimators: sparse regression without shrinkage.

On a stage the coefficients in use are the least-squares ones (of their sign), not those of a Lasso,
which are pulled towards zero; and they are chosen by the path, not one after the other as in
orthogonal matching pursuit. tau is the slow time of `fb.stages` for the loss (1/2n) sum r^2, where
n is the sum of the weights, so that it means the same in every fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.parallel import delayed

from flowbias.certificates.stage_certificate import weights_of
from flowbias.estimators.folds import Fold, check_n_jobs, folds_of, side_by_side
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.regressors import LinearInterpolator
from flowbias.estimators.start import network
from flowbias.ground.arguments import InputError, as_float, read_tolerance, shown
from flowbias.ground.extended import length
from flowbias.ground.typing import FloatArray
from flowbias.limits.inverse_scale_space import Stage
from flowbias.limits.stage_path import StagePath
from flowbias.limits.stages import stages, uncertified_stages

#: What a feature costs, beside n log(rss / n), by the name of the criterion.
CRITERIA: dict[str, Callable[[float], float]] = {"aic": lambda n: 2.0, "bic": math.log}
#: How cross-validation chooses: the least error, or the fewest stages within one standard error.
RULES = ("min", "1se")


class StagesBase(LinearInterpolator):
    """What estimators along the stages share."""

    depth: float
    max_stages: int | None

    def _paths(self, frame: Frame) -> list[StagePath | None]:
        """One certified path per output; None where X is zero and nothing moves."""
        model = network(self.depth)
        if not frame.moves:
            return [None] * frame.y.shape[1]
        columns = (np.ascontiguousarray(y) for y in frame.y.T)
        return [
            stages(model, frame.X, y, max_stages=self.max_stages, tol=self.tol) for y in columns
        ]

    def _stop(
        self, frame: Frame, paths: Sequence[StagePath | None], chosen: Sequence[Stage | None]
    ) -> None:
        """Set the attributes of the estimator stopped at one stage per output."""
        w = np.zeros((len(chosen), self.n_features_in_))
        for row, stage in zip(w, chosen, strict=True):
            if stage is not None:
                row[list(stage.support)] = stage.coefficients
        samples = frame.samples
        counts = [1 if path is None else len(path) for path in paths]
        self._keep_linear(samples, *frame.coefficients(w), counts)
        self.path_ = samples.shaped(list(paths))
        self.certificate_ = samples.shaped([path and path.certificate for path in paths])
        self.status_ = samples.shaped([path and path.status.name for path in paths])
        self.dual_coef_ = None


@dataclass(eq=False, repr=False)
class StagesRegressor(StagesBase):
    """The path of a vanishing start stopped at a time, a number of features, or by a criterion.

    Parameters
    ----------
    depth : float >= 2
    tau : slow time at which to stop; np.inf is the end of the path, RichRegressor
    n_features : stop before there are ever more
    criterion : "bic" or "aic", where neither of them is given: n log(rss / n) plus log(n) or 2 for
        each of k features, times n / (n - k - 1) since k may come near n
    max_stages : of the path, where it would be long
    fit_intercept : True ("centered") or False
    tol : of the certificate

    `path_` is the whole path, a `StagePath` of the data less their means; `tau_` where it stopped.

    >>> X, y, _ = fb.datasets.sparse_regression(n=40, d=60, sparsity=3, noise_var=0.01, rng=0)
    >>> fitted = fb.estimators.StagesRegressor(n_features=3).fit(X, y)
    >>> int((fitted.coef_ != 0).sum()), fitted.status_
    (3, 'CERTIFIED')
    """

    depth: float = 2
    _: KW_ONLY
    tau: float | None = None
    n_features: int | None = None
    criterion: str = "bic"
    max_stages: int | None = None
    fit_intercept: bool | str = True
    tol: float = 1e-8

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StagesRegressor:
        """Follow the stages on (X, y), and stop.

        sample_weight multiplies the squared error of a sample in the loss. SolveError where the
        path could not be certified.
        """
        read_tolerance("tol", self.tol)
        self._check_rules()
        samples = Samples.of(*self._read_data(X, y, sample_weight))
        frame = self._frame(samples)
        paths = self._paths(frame)
        clock = frame.samples.total_weight
        chosen = [None if path is None else self._chosen(path, clock) for path in paths]
        self._stop(frame, paths, chosen)
        times = [0.0 if stage is None else stage.time * clock for stage in chosen]
        self.tau_ = times[0] if samples.single else np.array(times)
        return self

    def _check_rules(self) -> None:
        for name, value in (("tau", self.tau), ("n_features", self.n_features)):
            number = as_float(value)
            if value is not None and (number is None or not number >= 0.0):
                raise InputError(f"{name}: must be a number >= 0, got {shown(value)}.")
        if as_float(self.n_features) == np.inf:
            raise InputError(
                "n_features: must be finite, got inf. Pass how many are to be selected."
            )
        if self.tau is not None and self.n_features is not None:
            raise InputError(
                f"tau, n_features: at most one must be given, got {self.tau!r} and "
                f"{self.n_features!r}. Leave one out."
            )
        _check_choice("criterion", self.criterion, CRITERIA)

    def _chosen(self, path: StagePath, clock: float) -> Stage:
        if self.tau is not None:
            return path.stopped(tau=self.tau / clock)
        if self.n_features is not None:
            return path.stopped(n_features=int(self.n_features))
        n, cost = clock, CRITERIA[self.criterion](clock)
        k = np.array([len(stage.support) for stage in path])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = 2.0 * n * np.log(path.residual) + cost * k * n / (n - k - 1.0)
        # Neither criterion knows what to make of as many features as there are samples.
        value[k >= n - 1] = np.inf
        return path[int(np.argmin(value))]


@dataclass(eq=False, repr=False, kw_only=True)
class StagesRegressorCV(StagesBase):
    """`StagesRegressor` whose time cross-validation chooses.

    Parameters
    ----------
    depth, max_stages, fit_intercept, tol : as for StagesRegressor
    cv : number of folds (default 5), splitter, or list of splits
    rule : "min", the least mean squared error; "1se", the earliest time within its standard error
    n_jobs : folds at a time, as in joblib

    Chosen for each output: `tau_`. `taus_` are the times between which no path of a fold changes,
    `mse_path_` (n_taus, n_folds) the errors from each of them on; lists where y has several
    outputs.

    >>> X, y, _ = fb.datasets.sparse_regression(n=40, d=60, sparsity=3, noise_var=0.01, rng=0)
    >>> fitted = fb.estimators.StagesRegressorCV().fit(X, y)
    >>> len(fitted.taus_) == len(fitted.mse_path_)
    True
    """

    depth: float = 2
    max_stages: int | None = None
    fit_intercept: bool | str = True
    cv: Any = None
    rule: str = "min"
    n_jobs: int | None = None
    tol: float = 1e-8

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> StagesRegressorCV:
        """Choose the time, then stop the path of all data at it.

        sample_weight counts in the fits, in the errors within a fold and in their average.
        """
        read_tolerance("tol", self.tol)
        check_n_jobs(self.n_jobs)
        _check_choice("rule", self.rule, RULES)
        X, y, weight = self._read_data(X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        self._judge(samples, folds_of(self.cv, X, y, weight, groups))
        self._settle(samples)
        return self

    def _judge(
        self, samples: Samples, folds: list[Fold], levels: FloatArray | None = None
    ) -> float:
        """Choose the time of each output, and return the average error there, in units of y.

        With `levels` only among the stages at which the residual on all data passes them.
        """
        errors = side_by_side(self.n_jobs, map(delayed(self._errors), folds))
        shares = np.array([fold.share for fold in folds])
        taus: Sequence[FloatArray | None] = [None] * samples.y.shape[1]
        if levels is not None:
            frame = self._frame(samples)
            clock = frame.samples.total_weight
            taus = [clock * passing_times(path, levels) for path in self._followed(frame)]
        judged = [
            Judged.of(parts, shares, self.rule, at)
            for parts, at in zip(zip(*errors, strict=True), taus, strict=True)
        ]
        self.taus_ = samples.shaped([output.taus for output in judged])
        self.mse_path_ = samples.shaped([folds[0].in_plain_units(j.mse) for j in judged])
        self.tau_ = judged[0].tau if samples.single else np.array([j.tau for j in judged])
        return float(np.mean([output.error for output in judged]))

    def _settle(self, samples: Samples) -> None:
        """Stop the path of all data at the times chosen."""
        frame = self._frame(samples)
        paths, clock = self._paths(frame), frame.samples.total_weight
        chosen = [
            None if path is None else path.stopped(tau=tau / clock)
            for path, tau in zip(paths, np.atleast_1d(self.tau_), strict=True)
        ]
        self._stop(frame, paths, chosen)

    def _followed(self, frame: Frame) -> list[tuple[Stage, ...]]:
        """The stages of each output, not certified."""
        if not frame.moves:
            # X is zero.
            at_rest = Stage(0.0, (), np.zeros(0), np.zeros(0), ())
            return [(at_rest,)] * frame.y.shape[1]
        model, columns = network(self.depth), (np.ascontiguousarray(y) for y in frame.y.T)
        return [uncertified_stages(model, frame.X, y, self.max_stages) for y in columns]

    def _errors(self, fold: Fold) -> list[StepFunction]:
        """For each output: the times of the fold's stages, and errors on the rest in units of y."""
        frame = self._frame(fold.samples())
        clock = frame.samples.total_weight
        tests = fold.y[fold.test].reshape(len(fold.test), -1)
        out = []
        for k, followed in enumerate(self._followed(frame)):
            W = weights_of(followed, self.n_features_in_).tocsr()
            intercepts = frame.y_mean[k] - W @ frame.X_mean
            found = np.asarray((W @ fold.X[fold.test].T) + intercepts[:, None])
            misfit = (found - tests[:, k]) / fold.unit
            error = np.average(misfit**2, axis=1, weights=fold.test_weight)
            times = np.array([stage.time for stage in followed])
            out.append(StepFunction(clock * times, error))
        return out


def passing_times(path: Sequence[Stage], levels: FloatArray) -> FloatArray:
    """Times amid the stages at which the relative residual first passes each level, and the end."""
    left = np.array([length(stage.residual) for stage in path])
    passed = np.searchsorted(-left, -levels * left[0])
    kept = np.unique([0, *np.minimum(passed, len(path) - 1), len(path) - 1])
    times = np.append([stage.time for stage in path], np.inf)
    # In the middle, so that no rounding of a time decides which stage it is.
    return np.asarray(0.5 * (times[kept] + times[kept + 1]))


class StepFunction(NamedTuple):
    """A function of tau that is constant between `times`."""

    times: FloatArray
    values: FloatArray

    def at(self, tau: FloatArray) -> FloatArray:
        return np.asarray(self.values[np.searchsorted(self.times, tau, side="right") - 1])


class Judged(NamedTuple):
    """The errors of all folds on common times, and the time that a rule chooses."""

    taus: FloatArray
    mse: FloatArray
    tau: float
    error: float

    @classmethod
    def of(
        cls,
        folds: Sequence[StepFunction],
        shares: FloatArray,
        rule: str,
        at: FloatArray | None = None,
    ) -> Judged:
        """By default on the times at which some fold changes, and amid two of them."""
        taus = np.unique(np.concatenate([fold.times for fold in folds])) if at is None else at
        mse = np.stack([fold.at(taus) for fold in folds], axis=1)
        average = np.average(mse, axis=1, weights=shares)
        best = int(np.argmin(average))  # the first, so the sparsest, where several do equally well
        if rule == "1se" and len(folds) > 1:
            unit = mse[best].max() or 1.0  # whose square may leave the double range
            error = unit * np.sqrt(np.cov(mse[best] / unit, aweights=shares) / len(folds))
            best = int(np.flatnonzero(average <= average[best] + error)[0])
        tau = taus[best]
        if at is None:
            # In the middle, so that no rounding of a time decides which stage it is.
            tau = 0.5 * (tau + (taus[best + 1] if best + 1 < len(taus) else np.inf))
        return cls(taus, mse, float(tau), float(average[best]))


def _check_choice(name: str, value: Any, kinds: Collection[str]) -> None:
    if not isinstance(value, str) or value not in kinds:
        raise InputError(
            f"{name}: must be one of {', '.join(map(repr, kinds))}, got {shown(value)}. "
            f"Pass {name}={next(iter(kinds))!r}."
        )
