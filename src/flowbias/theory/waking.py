"""When features wake from a small start.  [docs/theory/stages.md, At a finite scale]

Where columns are orthogonal the coordinates of the flow know nothing of each other. What the times
of `StagePath.wake_times` leave out, that the pull falls while a feature wakes, is then bounded from
both sides at every scale and depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.integrate import flow
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits.inverse_scale_space import EPS
from flowbias.limits.stage_path import Change
from flowbias.limits.stages import stages
from flowbias.models import DiagonalNet
from flowbias.problems.regression import as_regression
from flowbias.theory.arguments import (
    OutsideHypothesis,
    checked,
    something_to_fit,
    unbiased_log_start,
    unresolved,
)
from flowbias.theory.claim import ONE_PRODUCT, Claim, Statement, Tolerance, beyond_the_papers

# Errors of z add up over the thousand steps to the last waking, and t is proportional to z.
CLOCK = Tolerance("times of a flow followed at rtol 1e-12: a hundred local errors", 1e-10)


@checked
def waking_times(model: DiagonalNet, X: Any, y: Any, share: float = 0.01) -> tuple[Claim, Claim]:
    """Orthogonal columns: feature j has `share` of its weight w_j at T_j (1 + e_j) or a bit later.

    T_j is the time that `StagePath.wake_times` predicts, Z = grad Q_j(share w_j) the dual there:

        e_j <= t_j / T_j - 1 <= e_j / (1 - share),        e_j = Q_j*(Z) / |w_j Z|

    At depth 2 and small scales e_j is share / log(1/scale^2), beyond it is a power of the scale.
    Where columns are not orthogonal this is measured, not proved (docs/theory/stages.md).

    >>> model = fb.DiagonalNet(depth=2, scale=1e-10)
    >>> [claim.holds for claim in fb.theory.waking_times(model, [[1.0, 0], [0, 2]], [3.0, 1])]
    [True, True]
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"share: must lie in (0, 1), got {share!r}. Pass share=0.01.")
    problem = as_regression(X, y)
    something_to_fit(problem.y)
    unbiased_log_start(model, problem.X.shape[1])
    if not model.log_scale < 0.0:
        raise OutsideHypothesis(
            f"model: must have a scale below 1, got {model!r}. Stages are those of small starts: "
            "pass DiagonalNet(depth, scale=1e-3)."
        )
    unit = problem.X / np.where(problem.X.any(axis=0), np.linalg.norm(problem.X, axis=0), 1.0)
    cosines = unit.T @ unit
    if np.abs(cosines - np.diag(np.diag(cosines))).max() > ONE_PRODUCT.size:
        raise OutsideHypothesis(
            "X: must have orthogonal columns, got some that are not. Others pull at a feature "
            "while it wakes, of which nothing is claimed."
        )
    path = stages(model, problem)
    awake = [event.feature for event in path.events if event.change is Change.WAKES]
    if not awake:
        raise OutsideHypothesis("y: must not be orthogonal to X, since nothing wakes. Pass others.")
    weights = np.zeros(problem.X.shape[1])
    weights[awake] = share * path.w[-1][awake]
    potential = model.potential
    # Q* / |w Z|, by Fenchel's equality: Z itself may be a double from where Q* is infinite.
    used = np.abs(weights * potential.grad(weights))[awake]
    expected = np.maximum(share * (1.0 - potential.value_terms(weights)[awake] / used), EPS)
    tolerance = CLOCK.size / float(expected.min())
    if too_short := unresolved(tolerance):
        raise OutsideHypothesis(f"model: wakes within a time that t has no digits for: {too_short}")
    found = first_times(flow(model, problem, rtol=1e-12), awake, weights[awake])
    late = (found / path.wake_times(float(model.log_scale), share=share) - 1.0) / expected
    stated = Statement(
        beyond_the_papers("At a finite scale", "stages"),
        "orthogonal columns: T (1 + e) <= the time at which a feature has a share of its weight "
        "<= T (1 + e / (1 - share)), e = Q*(Z) / |w Z|",
        *CLOCK,
    )
    latest = 1.0 / (1.0 - share)
    return (
        stated.at_least("waking, at the earliest", late.min(), 1.0, atol=tolerance),
        stated.at_most("waking, at the latest", late.max(), latest, atol=tolerance),
    )


def first_times(followed: Trajectory, features: Any, weights: FloatArray) -> FloatArray:
    """When each of these features first has this weight; nan where it never has."""
    found = np.full(len(features), np.nan)
    for k, (j, weight) in enumerate(zip(features, weights, strict=True)):
        there = followed.w[:, j] / weight >= 1.0
        after = int(there.argmax())
        if there.any() and after:
            found[k] = _crossing(followed, j, weight, *followed.t[after - 1 : after + 1])
    return found


def _crossing(followed: Trajectory, j: int, weight: float, before: float, after: float) -> float:
    """Bisection down to neighbouring times."""
    while before < (middle := 0.5 * (before + after)) < after:
        if followed.at(middle)[j] / weight >= 1.0:
            after = middle
        else:
            before = middle
    return after
