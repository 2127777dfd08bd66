"""Splits that are judged side by side, and the limits at many scales on each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from flowbias.designs import design_of
from flowbias.estimators.intercepts.frames import Frame, warn_of
from flowbias.estimators.intercepts.samples import Samples, as_array
from flowbias.estimators.regressors import ImplicitBiasRegressor
from flowbias.estimators.scale_walk import TrainingPart, walked
from flowbias.estimators.start import Grid
from flowbias.ground.arguments import LARGEST_SIZE, InputError, shown
from flowbias.ground.threads import one_thread, threads_for
from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray
from flowbias.results.solution import Solution

Scorer = Callable[..., float]


@dataclass(frozen=True)
class Fold:
    """Data and one split of them."""

    X: Any
    y: FloatArray
    weight: FloatArray | None
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    def __post_init__(self) -> None:
        if not (len(self.train) and len(self.test)):
            raise InputError(
                "cv: must leave samples in both parts of every split, got "
                f"{len(self.train)} to train on and {len(self.test)} to test on. Pass cv=5."
            )
        if not self.share > 0.0:
            raise InputError(
                "sample_weight: must be positive for some sample of every part left out, got "
                f"{len(self.test)} zeros in one. Drop samples of weight 0 first, or shuffle them."
            )

    @cached_property
    def unit(self) -> float:
        """The power of two next to the largest output, whose square may leave the double range."""
        return float(np.exp2(np.frexp(np.abs(self.y).max())[1]))

    def samples(self) -> Samples:
        """The training part."""
        weight = None if self.weight is None else self.weight[self.train]
        return Samples.of(self.X[self.train], self.y[self.train], weight)

    @property
    def test_weight(self) -> FloatArray | None:
        return None if self.weight is None else self.weight[self.test]

    @property
    def share(self) -> float:
        """Of the fold in an average: folds count alike unless samples have weights."""
        return 1.0 if self.weight is None else float(self.weight[self.test].sum())

    def errors(self, fits: Iterable[tuple[FloatArray, FloatArray]]) -> FloatArray:
        """Of each coef (k, d), intercept (k,): mean squared error of the test part and outputs.

        In units: errors are compared in them, and `in_plain_units` says what they are.
        """
        X, y = self.X[self.test], self.y[self.test].reshape(len(self.test), -1)
        misfits = ((X @ coef.T + intercept - y) / self.unit for coef, intercept in fits)
        squares = (np.square(misfit).mean(axis=1) for misfit in misfits)
        return np.array([np.average(square, weights=self.test_weight) for square in squares])

    def error(self, left: FloatArray) -> float:
        """The same, of what is left of one output in the test part, times roots of weights."""
        total = float(len(self.test)) if self.weight is None else self.share
        return float(np.square(left / self.unit).sum()) / total

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def in_plain_units(self, errors: Any) -> FloatArray:
        """Mean squared errors; 0 or infinite beyond the doubles."""
        return np.where(np.equal(errors, 0.0), 0.0, np.square(self.unit) * errors)

    def score(self, scorer: Scorer, predictor: Any) -> float:
        given = {} if self.weight is None else {"sample_weight": self.test_weight}
        return float(scorer(predictor, self.X[self.test], self.y[self.test], **given))


def folds_of(cv: Any, X: Any, y: FloatArray, weight: FloatArray | None, groups: Any) -> list[Fold]:
    """The splits that `cv` asks for, by scikit-learn's rules."""
    try:
        splits = list(check_cv(cv).split(X, y, groups))
    except (ValueError, TypeError) as error:  # scikit-learn's, which names no argument of ours
        what = "the default, 5 folds" if cv is None else shown(cv)
        raise InputError(
            f"cv: must be able to split {X.shape[0]} samples, got {what}, of which scikit-learn "
            f"says: {str(error).rstrip('.')}. Pass fewer folds, such as cv=2, another splitter, "
            "or the groups that it asks for: fit(X, y, groups=groups)."
        ) from None
    if not splits:
        raise InputError(f"cv: must have at least one split, got {cv!r}. Pass cv=5.")
    return [Fold(X, y, weight, train, test) for train, test in splits]


def check_n_jobs(n_jobs: Any) -> None:
    """Before the folds are split: joblib would read a string, and refuse 0, in its own words."""
    counts = isinstance(n_jobs, Integral) and 0 < abs(int(n_jobs)) <= LARGEST_SIZE
    if n_jobs is not None and not counts:
        raise InputError(
            f"n_jobs: must be None or a nonzero integer, got {shown(n_jobs)}. "
            "Pass 1 for one fold at a time, -1 for as many as there are processors."
        )


def jobs_at_a_time(n_jobs: int | None) -> int:
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def side_by_side(n_jobs: int | None, calls: Iterable[Any]) -> list[Any]:
    """What joblib's delayed `calls` return, with one BLAS thread each where there are several.

    One thread also for products that are worth more alone.
    """
    alone = jobs_at_a_time(n_jobs) == 1
    threads: AbstractContextManager[Any] = nullcontext() if alone else one_thread()
    with threads:
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(calls))


# --- limits at many scales ------------------------------------------------------------------------


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

    def __init__(
        self, fold: Fold, frame_for: Callable[[Samples], Frame], grid: Grid, tol: float
    ) -> None:
        self.fold, self.frame_for, self.tol = fold, frame_for, tol
        self.network, self.log_scales = grid
        count = len(self.log_scales)
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

    def alone(self, at: int, output: int) -> Solution:
        """The limit without the other folds, kept; its dual is that of the frame's `problem`."""
        if output not in self.solvers:
            problem = self.frame.problem(self.frame.y[:, output])
            self.solvers[output] = self.frame.alone(self.network, problem, self.tol)
        solution = self.solvers[output](float(self.log_scales[at]))
        self.keep(at, output, solution)
        return solution

    def solve_alone(self) -> None:
        """Whatever is open, without the other folds."""
        for output in range(self.outputs):
            scales = [at for at in self.limits if self.is_open(at, output)]
            if not scales:
                continue
            if not self.frame.moves:
                still = np.zeros(self.frame.X.shape[1])
                self.limits = {at: {**self.limits[at], output: still} for at in self.limits}
            elif _shared_rows(self.frame) is None:
                y = self.frame.y[:, output]
                along = self.frame.along(self.network, self.log_scales, y, self.tol)
                for at, solution in enumerate(along):
                    self.keep(at, output, solution)
            else:
                self._walk(output, scales)
                for at in filter(lambda at: self.is_open(at, output), scales):
                    self.alone(at, output)

    def _walk(self, output: int, scales: list[int]) -> None:
        """What rows that depend on each other leave of themselves can be walked as well."""
        problem = self.frame.problem(self.frame.y[:, output])
        constraint = problem.constraint
        rank, d = constraint.rows.shape
        if constraint.distance > 0.0 or rank >= d or self.tol < DEFAULT.residual:
            return

        def alone(of: int, at: int) -> FloatArray | None:
            solution = self.alone(scales[at], output)
            ok = solution.status.ok
            return constraint.dual_of_rows(problem.X, solution.dual) if ok else None

        independent = constraint.row_scale[:, None] * constraint.rows
        part = TrainingPart(np.arange(rank), constraint.target)
        grid = Grid(self.network, self.log_scales[scales])
        with threads_for(independent):
            walk, _ = walked(independent, None, [part], grid, self.tol, alone)
        for (at, _), w in walk.w.items():
            self.limits[scales[at]][output] = w

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


class ScaleErrors(NamedTuple):
    """What the limits at many scales are worth: (grids, scales, folds)."""

    mse: FloatArray
    #: the larger the better; in units where it is the error
    score: FloatArray
    #: log-scales, and why a limit there is not certified in some fold
    failures: list[tuple[float, str | None]]
    #: for each grid the mean (scales, outputs, n) of the duals of all folds; NaN where not known
    duals: list[FloatArray]
    #: (grids, scales), largest first
    log_scales: FloatArray
    #: of the folds
    shares: list[float]

    def best(self, who: str, scoring: Any, tol: float) -> tuple[int, int]:
        """Which grid and which of its scales does best; what failed is warned of, as of `who`."""
        average = np.average(self.score, axis=-1, weights=self.shares)
        warn_of(self.failures, f"{who} (never chosen where so)")
        if np.isnan(average).all() and not np.isnan(self.mse).any():
            raise InputError(
                f"scoring: must be a number for every part left out, got NaN from {scoring!r} "
                "at every scale. A score such as r2 needs two samples in each part: pass fewer "
                "folds (cv), or another score."
            )
        if np.isnan(average).all():
            raise InputError(
                "log_scales: must include one whose limits are certified in every fold, got "
                f"{average.size} without. Take larger scales, or a larger tol ({tol:g})."
            )
        # The first, so the largest scale, where several do equally well.
        chosen, at = np.unravel_index(np.nanargmax(average), average.shape)
        return int(chosen), int(at)


def judged_on(
    folds: list[Fold],
    frame: Frame,
    frame_for: Callable[[Samples], Frame],
    grids: list[Grid],
    tol: float,
    scorer: Scorer | None,
    n_jobs: int | None,
) -> ScaleErrors:
    """The paths of each grid on each fold; `frame` has all data."""
    # As many groups of folds as there are to be judged at a time.
    size = -(-len(folds) // jobs_at_a_time(n_jobs))
    groups = [folds[start : start + size] for start in range(0, len(folds), size)]
    calls = (
        delayed(_paths)([FoldPath(fold, frame_for, grid, tol) for fold in group], frame, scorer)
        for grid in grids
        for group in groups
    )
    done = side_by_side(n_jobs, calls)
    of_grids = [done[start : start + len(groups)] for start in range(0, len(done), len(groups))]
    paths = [[path for group, _ in of_grid for path in group] for of_grid in of_grids]
    mse = np.stack([np.stack([path.mse for path in row], axis=-1) for row in paths])
    score = np.stack([np.stack([path.score for path in row], axis=-1) for row in paths])
    failures = [
        outcome
        for row in paths
        for path in row
        for outcome in zip(path.log_scales.tolist(), path.failures, strict=True)
    ]
    duals = [sum(dual for _, dual in of_grid) / len(folds) for of_grid in of_grids]
    log_scales = np.stack([grid.log_scales for grid in grids])
    shares = [fold.share for fold in folds]
    return ScaleErrors(folds[0].in_plain_units(mse), score, failures, duals, log_scales, shares)


def _paths(
    paths: list[FoldPath], frame: Frame, scorer: Scorer | None
) -> tuple[list[FoldPath], FloatArray]:
    """The paths of one grid and some folds, judged, and the sum of their duals."""
    duals = _walk_together(paths, frame, is_scored=scorer is not None)
    for path in paths:
        path.solve_alone()
        path.judge(scorer)
    return paths, duals


def _shared_rows(frame: Frame) -> tuple[FloatArray, FloatArray | None] | None:
    """X of which a fold takes rows, with the e that centres it; None where it has its own."""
    if frame.has_bias or design_of(frame.X) is not None:
        return None
    return as_array(frame.X), frame.free


def _walk_together(paths: list[FoldPath], frame: Frame, is_scored: bool) -> FloatArray:
    """What can be had from rows of all data; and the sum of the duals, NaN where not known."""
    shared, outputs, tol = _shared_rows(frame), frame.y.shape[1], paths[0].tol
    grid = Grid(paths[0].network, paths[0].log_scales)
    # What no solve in doubles gets to is left to certificates.
    if shared is None or tol < DEFAULT.residual:
        return np.full((len(grid.log_scales), outputs, len(frame.y)), np.nan)
    kept = frame.samples.kept

    def rows_of(given: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of samples as they were given, less those of weight 0."""
        return given if kept is None else np.searchsorted(kept, given[np.isin(given, kept)])

    train = [rows_of(path.fold.train) for path in paths]
    test = [rows_of(path.fold.test) for path in paths]
    parts = [TrainingPart(rows, np.ascontiguousarray(y)) for rows in train for y in frame.y.T]

    def alone(of: int, at: int) -> FloatArray | None:
        path = paths[of // outputs]
        solution = path.alone(at, of % outputs)
        return path.frame.restored(solution).dual if solution.status.ok else None

    by_left = outputs == 1 and not is_scored
    with threads_for(shared[0]):
        walk, duals = walked(*shared, parts, grid, tol, alone, keeps_w=not by_left)
    for (at, of), w in walk.w.items():
        paths[of // outputs].limits[at][of % outputs] = w
    if by_left:
        for at, of in np.argwhere(~np.isnan(walk.left).any(axis=-1)).tolist():
            paths[of].mse[at] = paths[of].fold.error(walk.left[at, of, test[of]])
    return np.asarray(duals.reshape(len(duals), len(paths), outputs, -1).sum(axis=1))


def _fitted(coef: FloatArray, intercept: FloatArray) -> ImplicitBiasRegressor:
    """An estimator with these coefficients, for scorers."""
    estimator = ImplicitBiasRegressor()
    estimator.n_features_in_ = coef.shape[-1]
    estimator.coef_, estimator.intercept_ = coef, intercept
    return estimator
