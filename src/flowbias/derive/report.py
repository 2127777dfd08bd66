"""The implicit bias of a parametrization: verdict, evidence, and the potential where there is one.

report = implicit_bias(lambda th: th[:3] ** 2 - th[3:] ** 2, theta0)
report.verdict, report.reason, report.evidence
report.potential.grad_dual(z), report.limit(X, y), report.plot()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.reachable import as_parametrization
from flowbias.derive.separable_potential import SeparablePotential
from flowbias.derive.time_warp import time_warp
from flowbias.derive.verdict import Decision, Findings, Verdict, decide, shape_change
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import picture
from flowbias.ground.html import table
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        from flowbias.derive.report_plot import draw_report

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
