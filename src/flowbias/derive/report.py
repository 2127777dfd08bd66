"""The implicit bias of a parametrization: verdict, evidence, and the potential where there is one.

report = implicit_bias(lambda th: th[:3] ** 2 - th[3:] ** 2, theta0)
report.verdict, report.reason, report.evidence
report.potential.grad_dual(z), report.limit(X, y), report.plot()

A picture of it shows the potential where there is one, otherwise why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from flowbias.derive.commuting import commuting, require_room
from flowbias.derive.conservation import ConservationLaws, conservation_laws
from flowbias.derive.derived_model import (
    DerivedModel,
    SeparableModel,
    UnderivedModel,
    WarpedModel,
    mirror_model,
)
from flowbias.derive.derived_potential import DerivedPotential
from flowbias.derive.hessian_map import hessian_map
from flowbias.derive.orbit import orbit_dimension
from flowbias.derive.parametrization import Parametrization, as_parametrization
from flowbias.derive.separable_potential import SeparablePotential
from flowbias.derive.time_warp import time_warp
from flowbias.derive.verdict import Decision, Findings, Verdict, decide, shape_change
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import COLOURS, picture
from flowbias.ground.html import table
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.results.solution import Solution

Result = TypeVar("Result")
Found: TypeAlias = SeparableModel | DerivedModel | WarpedModel | UnderivedModel

_MODELS: dict[Verdict, Callable[[Parametrization], Found]] = {
    Verdict.MIRROR_FLOW: mirror_model,
    Verdict.WARPED: WarpedModel,
    Verdict.NONE: UnderivedModel,
    Verdict.INCONCLUSIVE: UnderivedModel,
}


@dataclass(frozen=True)
class Evidence:
    """One test: what it measured, against which tolerance, and in words."""

    name: str
    #: None: not run
    holds: bool | None
    summary: str
    #: the test's own result, with all its numbers; None where it was not run
    result: Any = None

    def __str__(self) -> str:
        return f"{self.name:<18} {self.answer:<4} {self.summary}"

    @property
    def answer(self) -> str:
        """Whether it holds, in a word."""
        return {True: "yes", False: "no", None: "-"}[self.holds]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What `implicit_bias` found."""

    parametrization: Parametrization
    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...]
    findings: Findings
    laws: ConservationLaws | None

    @cached_property
    def model(self) -> Found:
        """The parametrization with its potential, for `fb.flow` and (if any) `fb.limit`."""
        return _MODELS[self.verdict](self.parametrization)

    @property
    def potential(self) -> SeparablePotential | DerivedPotential | None:
        """The numeric potential, grad Q(w(0)) = 0; None where there is none."""
        return self.model.potential

    def limit(self, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The flow's limit on (X, y) through the potential; refused where there is none."""
        return self.model.limit(X, y, tol=tol, throw=throw)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The potential along each axis, for two predictors its contours; else the brackets."""
        return picture(partial(draw_report, self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        F = self.parametrization
        laws = () if self.laws is None else self.laws.laws
        return table(
            f"{F.p} parameters, {F.d} predictor(s): {self.verdict.value}",
            [
                *((item.name, item.answer, item.summary) for item in self.evidence),
                *(("conserved", "", str(law)) for law in laws),
            ],
            head=("test", "holds", "what it found"),
            note=self.reason,
        )

    def __repr__(self) -> str:
        F = self.parametrization
        lines = [
            f"Report: {F.p} parameters -> {F.d} predictor(s)",
            f"  verdict  {self.verdict.value}",
            f"  because  {self.reason}",
            "  evidence",
            *(f"    {item}" for item in self.evidence),
        ]
        if self.laws is not None and self.laws.laws:
            lines += ["  conserved", *(f"    {law}" for law in self.laws.laws)]
        if self.potential is not None:
            lines.append(
                "  potential  report.potential: value, grad, grad_dual, hess_dual, conjugate "
                f"(relative accuracy about {self.potential.rounding:.0e}); report.limit(X, y)"
            )
        return "\n".join(lines)


def implicit_bias(
    F: Callable[[Any], Any] | Parametrization,
    theta0: Any = None,
    names: Sequence[str] | None = None,
    *,
    rng: int = 0,
) -> Report:
    """Which potential gradient flow of w = F(theta) from theta0 minimizes, if any, and why.

    Tests run in order, each at theta0 and at points along random flows: commuting gradient fields,
    dimension of the orbit, Hessian map, time warp, conserved polynomials. One that F makes
    impossible or too costly is reported as not run, with the reason.

    Parameters
    ----------
    F : the parametrization, a function of a torch vector, or a `Parametrization`
    theta0 : the start; left out for a `Parametrization`
    names : of the parameters, for printing
    rng : seed of the random flows

    Returns
    -------
    Report with verdict, evidence, and potential and model where there is one

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> report = fb.derive.implicit_bias(lambda th: th[:2] ** 2 - th[2:] ** 2, np.full(4, 0.5))
    >>> report.verdict.value, report.limit([[1.0, 2.0]], [1.0]).w.round(3)
    ('mirror flow', array([0.189, 0.405]))
    """
    model = as_parametrization(F, theta0, names, require_room)
    model.require_regular()
    bracket = commuting(model, rng=rng)
    evidence = [Evidence("commuting", bracket.holds, bracket.summary, bracket)]

    def run(name: str, test: Callable[[], Result]) -> Result | None:
        try:
            result: Any = test()
        except InputError as refusal:
            evidence.append(Evidence(name, None, f"not run: {refusal}"))
            return None
        evidence.append(Evidence(name, result.holds, result.summary, result))
        found: Result = result
        return found

    orbit = run("orbit dimension", lambda: orbit_dimension(model, rng=rng))
    hessian = run("Hessian map", lambda: hessian_map(model, rng=rng))
    warp = None
    if bracket.holds:
        evidence.append(Evidence("time warp", None, "not needed: the fields commute"))
    else:
        warp = run("time warp", lambda: time_warp(model, rng=rng))
    changed = None
    if warp is not None and orbit is not None and orbit.metric_change > orbit.metric_tolerance:
        changed = shape_change(model, rng)
    laws = run("conservation laws", lambda: conservation_laws(model, rng=rng))
    findings = Findings(bracket, orbit, hessian, warp, changed)
    decision: Decision = decide(findings)
    return Report(model, decision.verdict, decision.reason, tuple(evidence), findings, laws)


AnyDerived: TypeAlias = DerivedPotential | SeparablePotential


# Beyond this many axes a picture of lines says nothing.
_MOST_AXES = len(COLOURS)


def draw_report(report: Report, ax: Any) -> None:
    """The report on `ax`."""
    ax.set_title(report.verdict.value, loc="left")
    potential = report.potential
    if potential is None:
        _draw_brackets(report, ax)
    elif potential.dimension == 2:
        _draw_contours(potential, ax)
    else:
        _draw_axes(potential, ax)


def sections(
    potential: AnyDerived, reach: float | None = None, axes: Sequence[int] | None = None
) -> dict[int, FloatArray]:
    """For each axis i rows (offset, Q(w(0) + offset e_i)), NaN outside the domain."""
    model = potential.model
    far = _reach(potential) if reach is None else reach
    chosen = range(min(model.d, _MOST_AXES)) if axes is None else axes
    shares = _shares()
    found = {}
    for i in chosen:
        axis = far * np.eye(model.d)[i]
        below, above = (potential.along(sign * axis, shares) for sign in (-1.0, 1.0))
        offsets = far * np.concatenate([-shares[::-1], [0.0], shares])
        found[i] = np.stack([offsets, np.concatenate([below[::-1], [0.0], above])])
    return found


def _draw_axes(potential: AnyDerived, ax: Any) -> None:
    for (i, (offset, value)), colour in zip(sections(potential).items(), COLOURS, strict=False):
        ax.plot(offset, value, color=colour, label=f"w{i + 1}")
    ax.axvline(0.0, lw=0.8, color="grey", zorder=0)
    ax.set_xlabel("distance from w(0) along one axis")
    ax.set_ylabel("potential Q")
    ax.legend(frameon=False)


def _shares(points: int = 40) -> FloatArray:
    """Of the way along a ray."""
    return np.linspace(0.0, 1.0, points + 1)[1:]


def _draw_contours(potential: AnyDerived, ax: Any, rays: int = 24) -> None:
    model, far = potential.model, _reach(potential)
    shares = _shares()
    points, values = [model.initial[None, :]], [np.zeros(1)]
    for angle in np.linspace(0.0, 2.0 * np.pi, rays, endpoint=False):
        ray = far * np.array([np.cos(angle), np.sin(angle)])
        along = potential.along(ray, shares)
        inside = np.isfinite(along)
        points.append(model.initial + shares[inside, None] * ray)
        values.append(along[inside])
    at, height = np.concatenate(points), np.concatenate(values)
    # Levels at equal steps of the square root: a quadratic potential gives even rings.
    levels = height.max() * np.linspace(0.0, 1.0, 11)[1:] ** 2
    drawn = ax.tricontour(at[:, 0], at[:, 1], height, levels=levels)
    ax.figure.colorbar(drawn, ax=ax, label="potential Q")
    ax.plot(*model.initial, "k+", ms=9)
    ax.annotate("w(0)", model.initial, xytext=(5, 5), textcoords="offset points")
    ax.set_xlabel("w1")
    ax.set_ylabel("w2")
    ax.set_aspect("equal")


def _draw_brackets(report: Report, ax: Any) -> None:
    relative = report.findings.commuting.relative
    image = ax.imshow(relative, vmin=0.0, vmax=1.0, cmap="Greys")
    ax.figure.colorbar(image, ax=ax, label="size of [grad F_i, grad F_j] relative to its terms")
    ticks = np.arange(len(relative))
    ax.set_xticks(ticks, [str(i + 1) for i in ticks])
    ax.set_yticks(ticks, [str(i + 1) for i in ticks])
    ax.set_xlabel("i")
    ax.set_ylabel("j")


def _reach(potential: AnyDerived) -> float:
    """How far from w(0) to draw: the size of w(0), and of what one unit of theta moves."""
    model = potential.model
    moved = np.sqrt(np.trace(model.metric(model.start)) / model.d) * np.abs(model.start).max()
    return float(max(np.abs(model.initial).max(), moved)) or 1.0
