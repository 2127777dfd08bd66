"""A parametrization that the reader types: what its gradient flow minimizes, if anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from threading import Lock
from typing import TypeVar

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, line, window
from flowbias.apps.explorer.formula import LONGEST, MOST, read_equations
from flowbias.apps.explorer.typed_parametrization import (
    TypedFunction,
    TypedParametrization,
    UnfinishedError,
    at_most,
    section_of,
)
from flowbias.apps.explorer.view import Choice, Settings, Slider, Text, View, chosen, scale_slider
from flowbias.apps.explorer.views.proof_words import Extremes
from flowbias.apps.explorer.views.space import PLANE, SQUARE, Sight, kernel_of, level_sets
from flowbias.derive.report import Report, implicit_bias
from flowbias.derive.verdict import Verdict
from flowbias.flows.integrate import flow
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Model
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

# Relative residual to which the flow is followed: no difference to the eye.
VISIBLE_RESIDUAL = 1e-6
# Parts of the formula that tests, flow, limit and level sets may each evaluate: twice what
# slow ones take (sqrt, log, degree 8), and no more than a few seconds.
MOST_NODES = 100_000
# The flow may take that many times as much: without it there is nothing to show.
_FLOW = 3

Result = TypeVar("Result")
# Forward derivatives of torch have one level in the whole process: threads would mix them up.
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class TypedStart:
    """Which parametrization, from where."""

    formula: str
    log_scale: float
    ratio: float

    def function(self, d: int) -> TypedFunction:
        return TypedFunction.of(self.formula, d)

    def theta(self, d: int) -> FloatArray:
        return self.function(d).start(10.0**self.log_scale, self.ratio)


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
    # Polylines (m, 2): the level of the limit itself, and others.
    own_levels: tuple[FloatArray, ...]
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
        along = kernel_of(self.problem.X)
        if along.shape != (1, 2):
            return np.zeros((0, 2))
        far = 2.0 * (self.window[1] - self.window[0]) * along
        return np.concatenate([self.extremes.kernel - far, self.extremes.kernel + far])


def own_formula_scene(start: TypedStart, equations: str, solve: bool) -> OwnFormulaScene:
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
        shown = _window(trajectory.w, end, extremes)
        levels = bounded(lambda: _levels(start, end, shown)) if d == 2 else ((), ())
        unfinished += ["the level sets"] if levels is None else []
        own, others = levels or ((), ())
    return OwnFormulaScene(
        function=start.function(d),
        problem=problem,
        report=report,
        trajectory=trajectory,
        solution=solution,
        extremes=extremes,
        window=shown,
        own_levels=own,
        levels=others,
        unfinished=tuple(unfinished),
    )


@cache
def load_torch() -> None:
    """Import torch and let it differentiate once, which both take seconds the first time."""
    with suppress(InputError):
        _derived(TypedStart("u", 0.0, 1.0), 2)


def bounded(work: Callable[[], Result], times: int = 1) -> Result | None:
    """The result, or None where it takes too long."""
    try:
        with at_most(times * MOST_NODES):
            return work()
    except UnfinishedError:
        return None


def _followed(model: Model, problem: Regression) -> Trajectory:
    return flow(model, problem, residual=VISIBLE_RESIDUAL, throw=False)


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


# Deriving takes most of the time, and the equations do not enter it.
@lru_cache(maxsize=8)
def _derived(start: TypedStart, d: int) -> tuple[TypedParametrization, Report | None]:
    try:
        model = TypedParametrization(start.function(d), start.theta(d))
    except ImportError as missing:
        raise InputError(f"formula: {missing}") from missing
    with _ONE_AT_A_TIME, one_thread():
        return model, bounded(lambda: implicit_bias(model))


def _window(path: FloatArray, end: FloatArray, extremes: Extremes) -> tuple[float, float]:
    """Both axes alike, so that a level set of equal coordinates looks like one."""
    shown = np.concatenate([path.ravel(), end, extremes.rich, extremes.kernel])
    low, high = float(shown.min()), float(shown.max())
    room = 0.25 * (high - low) or 1.0
    return low - room, high + room


def _levels(
    start: TypedStart, end: FloatArray, window: tuple[float, float], points: int = 121
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Level sets of Q(w) = q(w1) + q(w2); a wide page shows what lies beyond the window.

    None where coordinates share a parameter, or where q cannot be followed away from the start.
    """
    if not start.function(1).separates:
        return (), ()
    room = 0.5 * (window[1] - window[0])
    section = section_of(start.function(1), start.theta(1), (window[0] - room, window[1] + room))
    if section is None:
        return (), ()
    grid = np.linspace(section.x[0], section.x[-1], points)
    return level_sets(grid, section(np.stack([grid, grid], axis=1)), float(np.sum(section(end))))


class OwnFormulaView(View[OwnFormulaScene]):
    """The implicit bias of a formula."""

    name = "your-formula"
    title = "Your formula"
    question = (
        "Write the predictor w as a formula of its parameters. Does gradient flow on them minimize "
        "a potential of w, and where does it go on your equations?"
    )
    controls = (
        Text(
            "formula",
            "w = ... with vectors u, v, p, q, scalars a, b, c, + - * / ^ ( ), exp log sqrt tanh "
            "sigmoid sin cos",
            "u^2 - v^2",
            LONGEST,
        ),
        Text("equations", "Equations, e.g. 1, 2 = 1; 0, 1 = 0.5", "1, 2 = 1", LONGEST),
        scale_slider(-1.0, 0.5, 0.1, -0.5),
        Slider("ratio", "Other parameters over the first vector", 0.1, 2.0, 0.1, 1.0),
        Choice(
            "solve",
            "Limit",
            (("certify", "solve and certify"), ("follow", "follow the flow only (faster)")),
            "certify",
        ),
    )

    charts = (
        Chart(
            "The way of the flow, seen in its first two coefficients",
            "A line with a cross at the start of the flow and a filled circle at its end. "
            "A dashed line holds all w that fit, where that is a line in this plane. A "
            "diamond marks least l1 norm, a square least l2 norm. Thin curves are level "
            "sets of the potential; the thick one is the limit's own and touches the line.",
            "w₁ (first coefficient)",
            "w₂ (second coefficient)",
            PLANE,
            **SQUARE,
        ),
        Chart(
            "Coefficients over time",
            "Each coefficient of w as a curve over logarithmic time, told apart by its dashes.",
            "t (time)",
            "wᵢ (coefficient)",
            (
                line("w1", Hue.KERNEL, "w₁", 3),
                line("w2", Hue.FLOW, "w₂", 3, "dashed"),
                line("w3", Hue.TRUTH, "w₃", 3, "dotted"),
            ),
            options={"x_axis_type": "log"},
        ),
    )

    def warm_up(self) -> None:
        load_torch()

    def scene(self, settings: Settings) -> OwnFormulaScene:
        certify = settings["solve"] == "certify"
        return own_formula_scene(chosen(TypedStart, settings), settings["equations"], certify)

    def data(self, scene: OwnFormulaScene) -> Data:
        w, extremes = scene.trajectory.w, scene.extremes
        # Of three coefficients the first two are seen.
        sight = Sight(scene.window[1], np.eye(w.shape[1], 2))
        # Time 0 has no place on a logarithmic axis.
        later = scene.trajectory.t > 0.0
        t = scene.trajectory.t[later]
        columns = [(t, column) for column in w[later].T]
        missing = [((), ())] * (MOST - len(columns))
        return {
            "window": window(*scene.window),
            "own": sight.polylines(scene.own_levels),
            "levels": sight.polylines(scene.levels),
            "fits": (scene.line[:, 0], scene.line[:, 1]),
            "path": sight.flat(w),
            "start": sight.flat(w[0]),
            "limit": sight.flat(scene.end),
            "l1": sight.flat(extremes.rich),
            "l2": sight.flat(extremes.kernel),
            **{f"w{i + 1}": columns for i, columns in enumerate([*columns, *missing])},
        }

    def text(self, scene: OwnFormulaScene) -> str:
        paragraphs = [
            f"w = `{scene.function.formula.text}`: {_verdict(scene)}",
            f"{_limit(scene)} {_picture(scene)}",
        ]
        if scene.unfinished:
            paragraphs.append(
                f"Not finished within {MOST_NODES} evaluations of parts of the formula: "
                f"{', '.join(scene.unfinished)}."
            )
        if scene.report is not None:
            tests = (f"* {one.name}: {one.answer}; {one.summary}" for one in scene.report.evidence)
            paragraphs += [
                "Tests made at the start and at random points that the flow can reach:",
                "\n".join(tests),
            ]
        return "\n\n".join(paragraphs)

    def code(self, settings: Settings) -> str:
        problem = read_equations(settings["equations"])
        start = chosen(TypedStart, settings)
        function = start.function(problem.X.shape[1]).source()
        solved = settings["solve"] == "certify"
        body = CODE.format(
            function=function,
            residual=VISIBLE_RESIDUAL,
            X=problem.X.tolist(),
            y=problem.y.tolist(),
            theta=start.theta(problem.X.shape[1]).tolist(),
            solve=SOLVED if solved else "",
        )
        return self.script(body, *(["import torch"] if "torch." in function else []))


_MEANS = {
    Verdict.MIRROR_FLOW: "Gradient flow minimizes a potential of w alone.",
    Verdict.WARPED: "Gradient flow minimizes a potential of w alone, at a changing speed.",
    Verdict.NONE: "No potential of w alone explains where it goes; the flow can only be followed.",
    Verdict.INCONCLUSIVE: "The tests do not decide whether there is a potential.",
}


def _verdict(scene: OwnFormulaScene) -> str:
    report = scene.report
    if report is None:
        return "**no verdict**, its tests took too long. The flow is followed all the same."
    return f"**{report.verdict.value}**. {_MEANS[report.verdict]} The reason: {report.reason}."


def _limit(scene: OwnFormulaScene) -> str:
    place = ", ".join(f"{value:.4g}" for value in scene.end)
    where = scene.extremes.words(scene.end)
    if scene.solution is not None and scene.solution.status.ok:
        certificate = scene.solution.certificate
        return (
            f"The limit is ({place}), {scene.solution.status.name}: feasibility "
            f"{certificate.feasibility:.0e}, gap {certificate.gap:.0e}. {where}"
        )
    residual, last = float(scene.trajectory.residual[-1]), float(scene.trajectory.t[-1])
    if not scene.fits:
        return (
            f"The flow does **not** come to fit these equations: it could be followed to time "
            f"{last:.3g}, where it is at ({place}) with a relative residual of {residual:.1e}."
        )
    followed = (
        f"The flow, followed to a residual of {residual:.0e}, ends at ({place}): an integration, "
        "not a certificate."
    )
    if scene.solution is not None:
        followed += f" A certified limit was not found: {scene.solution.message}."
    return f"{followed} {where}"


def _picture(scene: OwnFormulaScene) -> str:
    if scene.own_levels:
        return ""
    if scene.problem.X.shape[1] > 2:
        return "With three coefficients no level sets are drawn."
    if not scene.function.separates:
        return "Coordinates share a parameter: level sets would take too long and are not drawn."
    return "The potential could not be followed far enough for level sets."


SOLVED = """\
if report.potential is not None:
    sol = report.limit(X, y, throw=False)
    print(sol)
"""
CODE = """\

{function}


X, y = np.array({X}), np.array({y})
theta0 = np.array({theta})
report = fb.derive.implicit_bias(F, theta0)
print(report)
trajectory = fb.flow(report.model, X, y, residual={residual!r}, throw=False)
{solve}
fig, (plane, times) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plane.plot(trajectory.w[:, 0], trajectory.w[:, 1], label="flow")
plane.plot(*trajectory.w[-1][:2], "o", label="end")
plane.set(xlabel="$w_1$", ylabel="$w_2$")
plane.legend()
times.semilogx(trajectory.t[1:], trajectory.w[1:])
times.set(xlabel="time", ylabel="coefficients")
"""
