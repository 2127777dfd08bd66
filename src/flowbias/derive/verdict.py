"""From evidence to a verdict, by the implications that docs/derive.md proves.

With M = J J^T, H = M^{-1}, and g a positive function of theta:

    brackets vanish                              =>  mirror flow
    g H = Hess Q for some g and Q                =>  the warp's linear system is solvable,
                                                     and at fixed w only the size of M changes
    M a function of w and H a Hessian map        =>  mirror flow
    M a function of w, system solvable, no curl  =>  mirror flow after a time warp

Each implication used to deny rests on a number far above its tolerance, each used to affirm on one
below; in between nothing is concluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from flowbias.derive.commuting import Commuting
from flowbias.derive.hessian_map import HessianMap, metric_derivatives_along
from flowbias.derive.orbit import OrbitDimension
from flowbias.derive.parametrization import Parametrization, reachable_points
from flowbias.derive.time_warp import TimeWarp
from flowbias.derive.unit_time import CLEARLY


class Verdict(Enum):
    """What gradient flow of w = F(theta) is, as seen from the predictor."""

    MIRROR_FLOW = "mirror flow"
    WARPED = "mirror flow after a time warp"
    NONE = "no potential of the predictor alone"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Findings:
    """What the tests said; None for one that was not run."""

    commuting: Commuting
    orbit: OrbitDimension | None
    hessian_map: HessianMap | None
    time_warp: TimeWarp | None
    #: change of M at fixed w that no factor explains (relative), where it was needed
    shape_change: float | None = None


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    reason: str


def decide(found: Findings) -> Decision:
    """The verdict and its reason in one line."""
    if found.commuting.holds:
        return _commuting(found)
    if _near(found.commuting.defect, found.commuting.tolerance):
        return _undecided(
            "the brackets neither vanish nor clearly fail to", found.commuting.summary
        )
    warp, orbit = found.time_warp, found.orbit
    if warp is None:
        return _undecided("the time warp could not be tested", found.commuting.summary)
    if warp.residual > CLEARLY * warp.tolerance:
        return Decision(Verdict.NONE, _unrepairable(found, warp))
    if warp.residual > warp.tolerance:
        return _undecided("the warp's residual is too near its tolerance", warp.summary)
    if orbit is None or not orbit.decided:
        return _undecided(
            "the orbit's dimension is not decided", "not run" if orbit is None else orbit.summary
        )
    if not orbit.metric_from_predictor:
        return _metric_not_of_predictor(found, orbit)
    return _metric_of_predictor(found, orbit, warp)


def _commuting(found: Findings) -> Decision:
    hessian = found.hessian_map
    if hessian is not None and hessian.defect > CLEARLY * hessian.tolerance:
        return _undecided("brackets vanish but (J J^T)^-1 is no Hessian", hessian.summary)
    c = found.commuting
    return Decision(
        Verdict.MIRROR_FLOW,
        f"the gradient fields commute: largest bracket {c.defect:.1e} of its terms "
        f"(tolerance {c.tolerance:.0e})",
    )


def _unrepairable(found: Findings, warp: TimeWarp) -> str:
    """Why no g exists: the residual proves it; the orbit, where it can, says what is behind it."""
    residual = f"warp residual {warp.residual:.2g}, tolerance {warp.tolerance:.0e}"
    orbit = found.orbit
    if (
        orbit is not None
        and orbit.decided
        and orbit.metric_change > CLEARLY * orbit.metric_tolerance
    ):
        return (
            f"the orbit has dimension {orbit.dimension} > {orbit.predictors} and J J^T changes at "
            f"fixed w (by {orbit.metric_change:.2g}), beyond any change of time ({residual})"
        )
    return f"no g makes g (J J^T)^-1 a Hessian ({residual})"


def _metric_not_of_predictor(found: Findings, orbit: OrbitDimension) -> Decision:
    change = found.shape_change
    behind = f"orbit dimension {orbit.dimension} > {orbit.predictors}"
    if change is not None and change > CLEARLY * orbit.metric_tolerance:
        return Decision(
            Verdict.NONE,
            f"{behind}, and at fixed w J J^T changes in more than size (by {change:.2g}, "
            f"tolerance {orbit.metric_tolerance:.0e}): it is no function of the predictor",
        )
    return _undecided(
        "J J^T is no function of w, but what changes at fixed w looks like its size alone",
        orbit.summary,
    )


def _metric_of_predictor(found: Findings, orbit: OrbitDimension, warp: TimeWarp) -> Decision:
    hessian = found.hessian_map
    if hessian is None:
        return _undecided("the Hessian map could not be tested", orbit.summary)
    if hessian.holds:
        if orbit.dimension == orbit.predictors:
            # Then Hessian and commuting are the same thing: the two tests contradict each other.
            return _undecided("(J J^T)^-1 is a Hessian but brackets do not vanish", hessian.summary)
        return Decision(
            Verdict.MIRROR_FLOW,
            f"J J^T is a function of w (change at fixed w {orbit.metric_change:.1e}) and its "
            f"inverse a Hessian (defect {hessian.defect:.1e}), though the fields do not commute",
        )
    if warp.curl <= warp.tolerance:
        return Decision(
            Verdict.WARPED,
            f"(J J^T)^-1 is no Hessian (defect {hessian.defect:.2g}) until time is changed: "
            f"residual {warp.residual:.1e}, curl {warp.curl:.1e} (tolerance {warp.tolerance:.0e}), "
            f"orbit dimension {orbit.dimension}",
        )
    if warp.curl <= CLEARLY * warp.tolerance:
        return _undecided("the curl of phi is too near its tolerance", warp.summary)
    return Decision(
        Verdict.NONE,
        f"phi = grad log g exists at each point but has curl {warp.curl:.2g} "
        f"(tolerance {warp.tolerance:.0e}): it is the gradient of no log g",
    )


def _undecided(what: str, numbers: str) -> Decision:
    return Decision(Verdict.INCONCLUSIVE, f"{what} ({numbers})")


def _near(defect: float, tolerance: float) -> bool:
    return tolerance < defect <= CLEARLY * tolerance


def shape_change(model: Parametrization, rng: int = 0) -> float:
    """Largest relative change of M, size left out, along brackets that leave w at rest.

    In the frame where M is the identity its change along v is a symmetric matrix; what is left of
    it without its trace is a change of shape, which no factor g can undo.
    """
    worst = 0.0
    for theta in reachable_points(model, 3, np.random.default_rng(rng)):
        J = model.jacobian(theta)
        basis = np.linalg.svd(J, full_matrices=False)[2]
        brackets = model.brackets(theta)[np.triu_indices(model.d, 1)]
        at_rest = brackets - (brackets @ basis.T) @ basis
        lengths = np.linalg.norm(at_rest, axis=1)
        real = lengths > 1e-8 * (np.linalg.norm(brackets) or 1.0)
        if not real.any():
            continue
        directions = np.concatenate([at_rest[real] / lengths[real, None], basis])
        changes = metric_derivatives_along(model, theta, directions)
        traces = np.trace(changes, axis1=1, axis2=2) / model.d
        shapes = changes - traces[:, None, None] * np.eye(model.d)
        whole = float(np.linalg.norm(changes)) or 1.0
        worst = max(worst, float(np.linalg.norm(shapes[: int(real.sum())])) / whole)
    return worst
