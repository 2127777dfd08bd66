"""What gradient flow of a typed parametrization minimizes, and where it goes on a few equations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from threading import Lock
from typing import TypeVar

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from flowbias._threads import one_thread
from flowbias._typing import FloatArray
from flowbias.derive.parametrization import TooLongError
from flowbias.derive.report import Report, implicit_bias
from flowbias.derive.unit_time_flow import NoWarp, along_dual, start_of
from flowbias.explorer.formula import read_equations
from flowbias.explorer.typed_parametrization import (
    TypedFunction,
    TypedParametrization,
    UnfinishedError,
    at_most,
)
from flowbias.explorer.views.geometry import SHARES_OF_LEVEL
from flowbias.explorer.views.regime_words import Extremes
from flowbias.flows.integrate import flow
from flowbias.flows.trajectory import Trajectory
from flowbias.models._base import Model
from flowbias.problem import InputError, Regression
from flowbias.solution import Solution

# Reports kept: deriving takes most of the time, and the equations do not enter it.
_KEPT = 8
# Relative residual to which the flow is followed: no difference to the eye.
RESIDUAL = 1e-6
# Parts of the formula that tests, flow, limit and level sets may each evaluate: twice what
# slow ones take (sqrt, log, degree 8), and no more than a few seconds.
MOST_NODES = 100_000
# The flow may take that many times as much: without it there is nothing to show.
_FLOW = 3
# Points of the potential of one coordinate, to each side of its start, and of the grid of levels.
_POINTS, _GRID = 8, 81
# A step that moves w by less than this share of what was meant has come to the end of the domain.
_STUCK = 0.05

Result = TypeVar("Result")
# Forward derivatives of torch have one level in the whole process: threads would mix them up.
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class Start:
    """Which parametrization, from where."""

    text: str
    log10_scale: float
    ratio: float

    def function(self, d: int) -> TypedFunction:
        return TypedFunction.of(self.text, d)

    def theta(self, d: int) -> FloatArray:
        return self.function(d).start(10.0**self.log10_scale, self.ratio)


@dataclass(frozen=True)
class Section:
    """The potential q of one coordinate at increasing w, with its slopes z = q'(w)."""

    w: FloatArray
    q: FloatArray
    z: FloatArray

    def at(self, w: FloatArray) -> FloatArray:
        """q(w); NaN beyond the points."""
        return np.asarray(CubicHermiteSpline(self.w, self.q, self.z, extrapolate=False)(w))


@dataclass(frozen=True)
class OwnFormulaScene:
    """Verdict, flow, limit and what can be drawn of the potential."""

    function: TypedFunction
    problem: Regression
    # None where the tests were given up.
    report: Report | None
    trajectory: Trajectory
    # None where it was not asked for, the flow fits nothing, there is no potential, or it was given
    # up.
    solution: Solution | None
    extremes: Extremes
    # What is shown of either axis.
    window: tuple[float, float]
    # (2, m) polylines, the one of the limit's own level first.
    levels: tuple[FloatArray, ...]
    # What was given up, in words.
    unfinished: tuple[str, ...]

    @property
    def end(self) -> FloatArray:
        """The limit, or the end of the flow where none was certified."""
        return _end(self.trajectory, self.solution)

    @property
    def fits(self) -> bool:
        """Whether the end solves the equations, as nearly as any w."""
        return self.trajectory.status.ok

    @property
    def line(self) -> FloatArray:
        """Two points of the line of solutions beyond the window, one per row; none if no line."""
        X = self.problem.X
        if X.shape[1] != 2 or np.linalg.matrix_rank(X) != 1:
            return np.zeros((0, 2))
        _, _, right = np.linalg.svd(X)
        far = 2.0 * (self.window[1] - self.window[0]) * right[1]
        return np.array([self.extremes.kernel.w - far, self.extremes.kernel.w + far])


def own_formula_scene(start: Start, equations: str, solve: bool) -> OwnFormulaScene:
    """Derive, follow and (if asked) solve; InputError says what is wrong with what was typed."""
    problem = read_equations(equations)
    d = problem.X.shape[1]
    model, report = _derived(start, d)
    unfinished = ["the tests of the formula"] if report is None else []
    with _ONE_AT_A_TIME, one_thread():
        trajectory = bounded(lambda: _followed(report.model if report else model, problem), _FLOW)
        if trajectory is None:
            raise _never_ends(report)
        solution = None
        # Equations that the flow does not come to fit have no limit to certify.
        solve = solve and trajectory.status.ok
        if solve and report is not None and report.potential is not None:
            solution = bounded(partial(report.limit, problem, throw=False))
            unfinished += ["the certified limit"] if solution is None else []
        extremes = Extremes.of(problem)
        end = _end(trajectory, solution)
        window = _window(trajectory.w, end, extremes)
        levels = bounded(lambda: _levels(start, end, window)) if d == 2 else ()
        unfinished += ["the level sets"] if levels is None else []
    return OwnFormulaScene(
        function=start.function(d),
        problem=problem,
        report=report,
        trajectory=trajectory,
        solution=solution,
        extremes=extremes,
        window=window,
        levels=levels or (),
        unfinished=tuple(unfinished),
    )


@cache
def load_torch() -> None:
    """Import torch and let it differentiate once, which both take seconds the first time."""
    with suppress(InputError):
        _derived(Start("u", 0.0, 1.0), 2)


def bounded(work: Callable[[], Result], times: int = 1) -> Result | None:
    """The result, or None where it takes too long."""
    try:
        with at_most(times * MOST_NODES):
            return work()
    except (UnfinishedError, TooLongError):
        return None


def _followed(model: Model, problem: Regression) -> Trajectory:
    return flow(model, problem, residual=RESIDUAL, throw=False)


def _never_ends(report: Report | None) -> InputError:
    verdict = "not reached either" if report is None else report.verdict.value
    most = _FLOW * MOST_NODES
    return InputError(
        f"formula: must have a flow that can be followed within {most} evaluations of its parts, "
        f"got one that takes more (its verdict: {verdict}). Simplify it, or start elsewhere."
    )


def _end(trajectory: Trajectory, solution: Solution | None) -> FloatArray:
    if solution is None or not solution.status.ok:
        return np.asarray(trajectory.w[-1])
    return solution.w


@lru_cache(maxsize=_KEPT)
def _derived(start: Start, d: int) -> tuple[TypedParametrization, Report | None]:
    try:
        model = TypedParametrization(start.function(d), start.theta(d))
    except ImportError as missing:
        raise InputError(f"formula: {missing}") from missing
    with _ONE_AT_A_TIME, one_thread():
        return model, bounded(lambda: implicit_bias(model))


def _window(path: FloatArray, end: FloatArray, extremes: Extremes) -> tuple[float, float]:
    """Both axes alike, so that a level set of equal coordinates looks like one."""
    shown = np.concatenate([path.ravel(), end, extremes.rich.w, extremes.kernel.w])
    low, high = float(shown.min()), float(shown.max())
    room = 0.25 * (high - low) or 1.0
    return low - room, high + room


def _levels(start: Start, end: FloatArray, window: tuple[float, float]) -> tuple[FloatArray, ...]:
    """Level sets of Q(w) = q(w1) + q(w2).

    None where coordinates share a parameter, or where q cannot be followed away from the start.
    """
    from contourpy import contour_generator

    if not start.function(1).separates:
        return ()
    section = section_of(start, window)
    if section.w.size < 2:
        return ()
    grid = np.linspace(section.w[0], section.w[-1], _GRID)
    one = section.at(grid)
    lines = contour_generator(grid, grid, np.add.outer(one, one))
    height = float(np.sum(section.at(end)))
    shares = sorted(SHARES_OF_LEVEL, key=lambda share: abs(share - 1.0))
    return tuple(np.asarray(c).T for share in shares for c in lines.lines(share * height))


def section_of(start: Start, window: tuple[float, float]) -> Section:
    """The potential of one coordinate from its start towards both ends of the window.

    One coordinate's gradient field commutes with itself, so that q is reached along the dual:
    steps of dz = (wanted step in w)/M, since dw/dz = M.
    """
    model = TypedParametrization(start.function(1), start.theta(1))
    first = start_of(model)
    middle = float(model.initial[0])
    points = [(middle, 0.0, 0.0)]
    for edge in window:
        state, w, step = first, middle, (edge - middle) / (_POINTS - 1)
        for _ in range(_POINTS):
            if not step:
                break
            slope = model.pulled_back(state.theta, np.ones(1))
            dz = np.array([step / float(slope @ slope)])
            state = along_dual(model, NoWarp(), state, dz)
            reached = float(model.predictor_at(state.theta)[0]) if state.inside else w
            if not abs(reached - w) > _STUCK * abs(step):
                break
            w = reached
            points.append((w, state.potential, float(state.z[0])))
    w, q, z = np.array(sorted(points)).T
    return Section(w, q, z)
