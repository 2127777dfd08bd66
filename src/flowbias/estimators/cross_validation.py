"""The scale, and the depth if asked, by cross-validation: one path of limits per fold."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.utils.parallel import delayed
from sklearn.utils.validation import check_is_fitted

from flowbias.estimators.inference.limit_inference import LimitInference
from flowbias.estimators.intercepts.frames import FRAMES, Frame
from flowbias.estimators.regressors import (
    ImplicitBiasRegressor,
    LinearInterpolator,
    fit_limit,
    warn_of,
)
from flowbias.estimators.samples import (
    Fold,
    Samples,
    Scorer,
    check_n_jobs,
    folds_of,
    read_data,
    side_by_side,
    together,
)
from flowbias.estimators.scale_walk import ScaleWalk, SharedRows, TrainingPart
from flowbias.estimators.start import log_scales_of, network
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import picture
from flowbias.ground.look import DEPTH_COLOURS, INK
from flowbias.ground.threads import threads_for
from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import check_tol
from flowbias.potentials.scale import read_real
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(eq=False, repr=False, kw_only=True)
class ImplicitBiasRegressorCV(LimitInference, LinearInterpolator):
    """`ImplicitBiasRegressor` whose scale, and depth if a list is given, cross-validation chooses.

    Parameters
    ----------
    scales, log_scales : what to try; by default n_scales of them, see `implicit_bias_path`
    n_scales, eps : number and range of the default scales, for each depth
    depth : one, or a list to choose from
    shape, fit_intercept, tol : as for ImplicitBiasRegressor
    cv : number of folds (default 5), splitter, or list of splits
    scoring : name or callable; default: negative mean squared error
    n_jobs : folds at a time, as in joblib

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fitted = fb.estimators.ImplicitBiasRegressorCV(n_scales=3, cv=2).fit(X, y)
    >>> fitted.mse_path_.shape
    (3, 2)
    """

    _intercepts = tuple(FRAMES)

    scales: Any = None
    log_scales: Any = None
    n_scales: int = 50
    eps: float = 1e-10
    depth: Any = 2
    shape: float = 0.0
    fit_intercept: bool | str = True
    cv: Any = None
    scoring: Any = None
    n_jobs: int | None = None
    tol: float = 1e-8

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> ImplicitBiasRegressorCV:
        """Choose the scale, then find the limit at it on all data.

        sample_weight counts in the fits, in the errors within a fold and in their average.
        groups goes to the splitter. A limit that is not certified is warned of and never chosen.
        """
        check_tol(self.tol)
        check_n_jobs(self.n_jobs)
        X, y, weight = read_data(self, X, y, sample_weight)
        samples = Samples.of(X, y, weight)
        frame = self._frame(samples)
        networks = [network(depth, shape=self.shape) for depth in self._depths()]
        grids = [self._log_scales(frame, net.depth) for net in networks]
        folds = folds_of(self.cv, X, y, weight, groups)
        paths = self._paths(frame, folds, networks, grids)
        chosen, at = self._judged(folds, grids, paths)
        self.depth_ = networks[chosen].depth
        self.log_scale_ = float(grids[chosen][at])
        with np.errstate(over="ignore"):  # infinite where only its logarithm is a double
            self.scale_ = float(np.exp(self.log_scale_))
        self._keep(fit_limit(frame, frame.model(self._network()), self.tol), samples)
        return self

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The error of the parts left out against the scale; a dot at what was chosen.

        Parameters
        ----------
        path : also write the picture to this file
        ax : draw on these axes

        Returns
        -------
        the figure: for each depth the mean over folds, with its standard error as a band
        """
        check_is_fitted(self, "log_scale_")
        depths = self._depths()
        grids, errors = np.atleast_2d(self.log_scales_), self.mse_path_
        errors = errors.reshape(len(depths), *errors.shape[-2:])

        def panel(axes: Axes) -> None:
            for depth, grid, mse in zip(depths, grids, errors, strict=True):
                x, mean = grid / np.log(10.0), mse.mean(axis=-1)
                spread = mse.std(axis=-1) / np.sqrt(max(mse.shape[-1] - 1, 1))
                colour = DEPTH_COLOURS.get(int(depth), INK)
                axes.plot(x, mean, color=colour, label=f"depth {depth:g}")
                axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
                if depth == self.depth_:
                    at = int(np.argmin(np.abs(grid - self.log_scale_)))
                    axes.plot(x[at], mean[at], "o", color=colour, markersize=9)
            axes.set_ylim(bottom=0.0)
            axes.set_xlabel(r"$\log_{10}$ of the scale of the start  $\alpha$")
            axes.set_ylabel("mean squared error of the parts left out")
            if len(depths) > 1:
                axes.legend(frameon=False)

        return picture(panel, path=path, ax=ax)

    def _network(self) -> Any:
        check_is_fitted(self, "log_scale_")
        return network(self.depth_, log_scale=self.log_scale_, shape=self.shape)

    def _depths(self) -> list[float]:
        depths = np.atleast_1d(read_real("depth", self.depth, "Pass one depth or a list."))
        if depths.ndim != 1 or depths.size == 0:
            raise InputError(
                f"depth: must be a number or a non-empty list of them, got {self.depth!r}. "
                "Pass depth=2 or depth=[2, 3]."
            )
        return [float(depth) for depth in depths]

    def _log_scales(self, frame: Frame, depth: float) -> FloatArray:
        given = self.scales, self.log_scales
        return log_scales_of(*given, frame, depth, self.shape, self.n_scales, self.eps)

    def _paths(
        self, frame: Frame, folds: list[Fold], networks: list[Any], grids: list[FloatArray]
    ) -> list[list[FoldPath]]:
        """For each depth, the path of each fold."""
        scorer = None if self.scoring is None else check_scoring(self, scoring=self.scoring)
        if scorer is not None and folds[0].weight is not None:
            check_takes_weights(scorer, self.scoring)
        groups = together(self.n_jobs, folds)
        jobs = (
            delayed(fold_paths)(group, frame, self._frame, net, grid, self.tol, scorer)
            for net, grid in zip(networks, grids, strict=True)
            for group in groups
        )
        done = [path for paths in side_by_side(self.n_jobs, jobs) for path in paths]
        return [done[start : start + len(folds)] for start in range(0, len(done), len(folds))]

    def _judged(
        self, folds: list[Fold], grids: list[FloatArray], paths: list[list[FoldPath]]
    ) -> tuple[int, int]:
        """Keep the errors, warn of what failed, and say which depth and scale did best."""
        outcomes = [
            (log_scale, failure)
            for grid, parts in zip(grids, paths, strict=True)
            for part in parts
            for log_scale, failure in zip(grid, part.failures, strict=True)
        ]
        warn_of(outcomes, f"{type(self).__name__} (never chosen where so)")
        # (depths, scales, folds)
        mse = np.stack([np.stack([part.mse for part in parts], axis=-1) for parts in paths])
        score = np.stack([np.stack([part.score for part in parts], axis=-1) for parts in paths])
        self.mse_path_ = _without_depth(folds[0].in_plain_units(mse))
        self.score_path_ = -self.mse_path_ if self.scoring is None else _without_depth(score)
        self.log_scales_ = _without_depth(np.stack(grids))
        average = np.average(score, axis=-1, weights=[fold.share for fold in folds])
        if np.isnan(average).all() and not np.isnan(mse).any():
            raise InputError(
                f"scoring: must be a number for every part left out, got NaN from {self.scoring!r} "
                "at every scale. A score such as r2 needs two samples in each part: pass fewer "
                "folds (cv), or another score."
            )
        if np.isnan(average).all():
            raise InputError(
                "log_scales: must include one whose limits are certified in every fold, got "
                f"{average.size} without. Take larger scales, or a larger tol ({self.tol:g})."
            )
        # The first, so the largest scale, where several do equally well.
        chosen, at = np.unravel_index(np.nanargmax(average), average.shape)
        return int(chosen), int(at)


def _without_depth(values: FloatArray) -> FloatArray:
    """The first axis dropped where there is one depth only."""
    return values[0] if len(values) == 1 else values


def check_takes_weights(scorer: Scorer, scoring: Any) -> None:
    """A scorer that ignores the weights would choose by another error than was asked for."""
    # Scorers of scikit-learn take any keyword and pass it on to the metric they were made of.
    metric = getattr(scorer, "_score_func", scorer)
    parameters = inspect.signature(metric).parameters.values()
    if not any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise InputError(
            f"scoring: must take sample_weight where fit is given weights, got {scoring!r}. Add "
            "the argument, or take one that has it, such as 'neg_mean_absolute_error'."
        )


class FoldPath:
    """What the limits at many scales are worth on one fold; NaN where one is not certified."""

    def __init__(self, fold: Fold, frame_for: Callable[[Samples], Frame], count: int) -> None:
        self.fold, self.frame_for, self.count = fold, frame_for, count
        self.outputs = fold.y.reshape(len(fold.y), -1).shape[1]
        self.solvers: dict[int, Callable[[float], Solution]] = {}
        #: in the units of the fold, as `score` where no other was asked for
        self.mse = np.full(count, np.nan)
        self.score = np.full(count, np.nan)
        self.failures: list[str | None] = [None] * count
        #: limits in the frame by scale and output, where more is asked than what they leave of y
        self.limits: dict[int, dict[int, FloatArray]] = {at: {} for at in range(count)}

    @cached_property
    def frame(self) -> Frame:
        """The training part, for what cannot be had from rows shared with the other folds."""
        return self.frame_for(self.fold.samples())

    def is_open(self, at: int, output: int) -> bool:
        """Whether nothing is known yet of a limit."""
        known = self.failures[at] is not None or not np.isnan(self.mse[at])
        return not known and output not in self.limits[at]

    def keep(self, at: int, output: int, solution: Solution) -> None:
        if solution.status.ok:
            self.limits[at][output] = solution.w
        else:
            self.failures[at] = self.failures[at] or solution.message

    def alone(self, output: int, net: Any, tol: float) -> Callable[[float], Solution]:
        """The limit on one output at any log-scale, without the other folds."""
        if output not in self.solvers:
            self.solvers[output] = self.frame.alone(net, self.frame.y[:, output], tol)
        return self.solvers[output]

    def solve_alone(self, net: Any, log_scales: FloatArray, tol: float) -> None:
        """Whatever is open, without the other folds."""
        for output in range(self.outputs):
            scales = [at for at in range(self.count) if self.is_open(at, output)]
            if not scales:
                continue
            if not self.frame.moves:
                still = np.zeros(self.frame.X.shape[1])
                self.limits = {at: {**self.limits[at], output: still} for at in self.limits}
            elif self.frame.shared_rows is None:
                y = self.frame.y[:, output]
                for at, solution in enumerate(self.frame.along(net, log_scales, y, tol)):
                    self.keep(at, output, solution)
            else:
                self._walk(output, net, log_scales, tol, scales)
                for at in filter(lambda at: self.is_open(at, output), scales):
                    self.keep(at, output, self.alone(output, net, tol)(float(log_scales[at])))

    def _walk(
        self, output: int, net: Any, log_scales: FloatArray, tol: float, scales: list[int]
    ) -> None:
        """What rows that depend on each other leave of themselves can be walked as well."""
        frame = self.frame
        constraint = frame.problem(frame.y[:, output]).constraint
        rank, d = constraint.rows.shape
        if constraint.distance > 0.0 or rank >= d or tol < DEFAULT.residual:
            return

        def keep(of: int, at: int, w: FloatArray, left: FloatArray) -> None:
            self.limits[scales[at]][output] = w

        def alone(of: int, at: int) -> FloatArray | None:
            solution = self.alone(output, net, tol)(float(log_scales[scales[at]]))
            self.keep(scales[at], output, solution)
            seen = constraint.apply(frame.X.T @ solution.dual)
            return constraint.inverse_gram(seen) if solution.status.ok else None

        independent = constraint.row_scale[:, None] * constraint.rows
        rows = SharedRows(independent, None, [TrainingPart(np.arange(rank), constraint.target)])
        with threads_for(independent), np.errstate(all="ignore"):
            ScaleWalk(rows, net, log_scales[scales], tol, keep, alone).run()

    def judge(self, scorer: Scorer | None) -> None:
        """Errors and scores of the limits kept."""
        for at, limits in self.limits.items():
            if self.failures[at] is None and limits:
                w = np.stack([limits[output] for output in sorted(limits)])
                coef, intercept = self.frame.coefficients(w)
                self.mse[at] = self.fold.errors([(coef, intercept)])[0]
                if scorer is not None:
                    fitted = _fitted(*map(self.frame.samples.shaped, (coef, intercept)))
                    self.score[at] = self.fold.score(scorer, fitted)
        if scorer is None:
            self.score = -self.mse


def fold_paths(
    folds: list[Fold],
    frame: Frame,
    frame_for: Callable[[Samples], Frame],
    net: Any,
    log_scales: FloatArray,
    tol: float,
    scorer: Scorer | None,
) -> list[FoldPath]:
    """The errors and scores of every scale on the parts left out of all data, which `frame` has."""
    paths = [FoldPath(fold, frame_for, len(log_scales)) for fold in folds]
    # What no solve in doubles gets to is left to certificates.
    if tol >= DEFAULT.residual:
        _walk_together(paths, frame, net, log_scales, tol, scorer)
    for path in paths:
        path.solve_alone(net, log_scales, tol)
        path.judge(scorer)
    return paths


def _walk_together(
    paths: list[FoldPath],
    frame: Frame,
    net: Any,
    log_scales: FloatArray,
    tol: float,
    scorer: Scorer | None,
) -> None:
    """What can be had from rows of all data."""
    if frame.shared_rows is None:
        return
    X, e = frame.shared_rows
    rows_of, outputs = frame.samples.rows_of, frame.y.shape[1]
    train = [rows_of(path.fold.train) for path in paths]
    test = [rows_of(path.fold.test) for path in paths]
    parts = [TrainingPart(rows, np.ascontiguousarray(y)) for rows in train for y in frame.y.T]

    def keep(of: int, at: int, w: FloatArray, left: FloatArray) -> None:
        path, output = paths[of // outputs], of % outputs
        if scorer is None and outputs == 1:
            path.mse[at] = path.fold.error(left[test[of]])
        else:
            path.limits[at][output] = w

    def alone(of: int, at: int) -> FloatArray | None:
        path, output = paths[of // outputs], of % outputs
        solution = path.alone(output, net, tol)(float(log_scales[at]))
        path.keep(at, output, solution)
        return solution.dual if solution.status.ok else None

    with threads_for(X), np.errstate(all="ignore"):
        ScaleWalk(SharedRows(X, e, parts), net, log_scales, tol, keep, alone).run()


def _fitted(coef: FloatArray, intercept: FloatArray) -> ImplicitBiasRegressor:
    """An estimator with these coefficients, for scorers."""
    estimator = ImplicitBiasRegressor()
    estimator.n_features_in_ = coef.shape[-1]
    estimator.coef_, estimator.intercept_ = coef, intercept
    return estimator
