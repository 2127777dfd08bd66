"""The limit as the scale goes to zero, and where it becomes visible.

It minimizes a weighted l1 norm: weights 1 at depth 2, |w0|^(2 - D) at depth D >= 3, where the shape
of the start survives. Where that minimizer is not unique, gradient flow still picks one: at depth 2
the one with least sum |w| log(|w| / w0^2), at depth D the one with largest sum |w|^(2/D).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from flowbias.certificates.certificate import certify, certify_beside
from flowbias.certificates.exact_limit import exact_limit
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.basis_pursuit import Sides, face_in_doubles, pursue
from flowbias.limits.neurons.vanishing import VISIBLE, neuron_rich_limit
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import RichProblem, exponential_problem, power_problem
from flowbias.limits.routes import exponential_sides, power_sides
from flowbias.limits.solve import check_model
from flowbias.models._base import HasPotential
from flowbias.models.reachable import Reachable, reachable
from flowbias.potentials import (
    L1,
    BiasedDepthPotential,
    HyperbolicPotential,
    Potential,
    Provides,
)
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, Stats, Status

# log(1/scale^2) at which the selection is computed at depth 2. On the face of minimizers it does
# not depend on the scale, and off it weights are below exp(-1e6 * margin).
FAR_DOWN = 1e6
# Of several minimizers, where the law that selects one is not known or rounding is in its way.
OPEN_CHOICE = (
    "which of them gradient flow selects is open; take fb.limit of starts of smaller and smaller "
    "scale"
)
MADE_CHOICE = "this one gradient flow selects, as far as rounding tells"


@dataclass(frozen=True)
class _Extreme:
    """What a family of models becomes as its scale goes to zero."""

    potential: L1
    #: log of the scale below which a dual margin makes the rich limit visible at l1 norm `size`
    visible_below: Callable[[float, float], float]
    #: how to choose among several minimizers, where the law that does is known
    selection: _Selection | None


@dataclass(frozen=True)
class _Selection:
    """The law by which gradient flow chooses among minimizers."""

    selecting: Callable[[Reachable, Effort], RichProblem]
    #: the potential of these positive and negative sides alone, from a start of the size of w
    paying: Callable[[Mask, Mask, FloatArray], Potential]


#: of a model on d features, of data known up to a rounding
_Builder: TypeAlias = Callable[[HasPotential, int, float], _Extreme]

#: Models whose limit from a vanishing start is the shortest fit.
VANISHING = frozenset({Provides.NEURON, Provides.NEURON_SUM})


def rich_limit(
    model: Any, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True
) -> Solution:
    """The limit of the limits as the scale of `model`'s start goes to zero, its shape kept.

    Parameters
    ----------
    model : the network, or a neuron; only the shape of its start matters
    X, y : the data, or a `Regression` in place of X
    tol, throw : as for `limit`

    Returns
    -------
    Solution with `details["dual_margin"]` and `details["visible_log_scale"]`: below that log-scale
    the inactive coordinates hold less than 1e-3 of the l1 norm. For linear neurons it is the fit of
    least l2 norm, with `details["visible_log_factor"]`; STALLED where their flow may never leave a
    saddle

    Raises
    ------
    SolveError where it cannot be certified

    >>> fb.rich_limit(fb.DiagonalNet(depth=2, scale=1.0), [[1.0, 2.0]], [1.0]).w
    array([0. , 0.5])
    """
    if provided_by(model) & VANISHING:
        a, W = model.initial_parameters()
        return neuron_rich_limit(a, W, X, y, tol=tol).checked(throw)
    return rich_limit_of_rounded(model, X, y, 0.0, tol=tol).checked(throw)


def rich_limit_of_rounded(model: Any, X: Any, y: Any, rounding: float, *, tol: float) -> Solution:
    """`rich_limit` on data of which the last digits say nothing: ties up to rounding are ties.

    NOT_UNIQUE where there are any: what is returned is selected as if they were.
    """
    build = _extreme_of(model)  # before the data, which may be of the model's own kind
    problem = as_regression(X, y)
    check_model(model, problem, tol)
    extreme = build(model, problem.X.shape[1], rounding)
    solution = replace(pursue(problem, extreme.potential, tol=tol), choice=OPEN_CHOICE)
    if solution.status is Status.NOT_UNIQUE and extreme.selection is not None:
        solution = _selected(problem, extreme.potential, extreme.selection, solution, tol)
    margin = solution.details["dual_margin"]
    size = float(np.abs(solution.w).sum())
    details = dict(solution.details)
    decided = margin > 0 and size > 0
    details["visible_log_scale"] = extreme.visible_below(margin, size) if decided else -np.inf
    return replace(solution, details=details)


def _selected(
    problem: Regression, norm: L1, selection: _Selection, solution: Solution, tol: float
) -> Solution:
    """Among the minimizers that share the vertex's dual, the one that gradient flow selects.

    On their face the cost is the same for all, and so the choice does not depend on the scale: it
    is the limit of the sides that pay, from a start of ordinary size, which balls prove.
    """
    started = time.perf_counter()
    sides = Sides.of(norm, problem.X.shape[1])
    reach = reachable(problem, np.isfinite(sides.positive), np.isfinite(sides.negative))
    effort = Effort(factorizations=reach.constraint.factorizations)
    vertex = solution.certificate.vertex
    if vertex is None:
        signs, margin = face_in_doubles(problem, sides, solution)
    else:
        signs, margin = vertex.signs, vertex.margin
    paying = selection.paying(signs > 0.0, signs < 0.0, solution.w)
    nowhere = np.zeros_like(problem.y), np.zeros_like(solution.w)
    exact = exact_limit(problem.X, problem.y, paying, 0.0, *nowhere)
    if exact is None:
        _, moving = selection.selecting(reach, effort).solve(effort, tol=DEFAULT.residual)
        selected, how = reach.embed(moving), "interior point and Newton"
    else:
        selected, how = exact.w, "Newton in balls"
    w = np.where(signs != 0.0, selected, 0.0)
    found = problem.X, problem.y, w, solution.dual, solution.potential
    if vertex is None:
        certificate = certify(*found, tol=tol)
    else:
        certificate = certify_beside(*found, vertex, tol=tol)
    least, selected_norm = map(norm.value, (solution.w, w))
    if vertex is not None and not (certificate.ok and selected_norm <= (1.0 + tol) * least):
        # Ties up to the rounding of the data that are none; or no point of the face was found.
        return solution
    status = Status.NOT_UNIQUE if certificate.ok else Status.STALLED
    is_sure = vertex is not None and norm.rounding == 0.0
    if certificate.ok and exact is not None and is_sure:
        # A tie up to rounding may be none: then that there is a choice is all one can say.
        status = Status.PROJECTED if solution.distance > 0 else Status.CERTIFIED
    return replace(
        solution,
        w=w,
        status=status,
        certificate=certificate,
        route=f"selected among the minimizers: {how}",
        stats=Stats(effort.factorizations, effort.steps, time.perf_counter() - started),
        details={"dual_margin": margin},
        choice=MADE_CHOICE,
    )


def _extreme_of(model: HasPotential) -> _Builder:
    declared = provided_by(model)
    for needed, build in _EXTREMES.items():
        if needed in declared:
            return build
    known = [*_EXTREMES, *sorted(VANISHING, key=lambda need: need.name)]
    raise unfitting(
        model,
        f"provide {' or '.join(need.name for need in known)} to have a known rich limit",
        "A derived model has RICH_COSTS where its F separates and is homogeneous of degree 2 or "
        "more. Take fb.limit of starts of smaller and smaller scale; for matrices the rich extreme "
        "to compare with is fb.nuclear_norm(problem).",
    )


def _typical(costs: FloatArray) -> float:
    """The median of those that can be paid; 0 where nothing can move."""
    finite = costs[np.isfinite(costs)]
    return float(np.median(finite)) if finite.size else 0.0


def _exponential_extreme(model: HasPotential, d: int, rounding: float) -> _Extreme:
    potential: Any = model.potential
    plus, minus = exponential_sides(model, d)
    typical = _typical(np.concatenate([plus, minus]))
    down = typical + FAR_DOWN

    def paying(up: Mask, down: Mask, w: FloatArray) -> Potential:
        ordinary = typical - float(np.log(np.abs(w).max()))
        upward, downward = (
            np.where(up, plus - ordinary, -np.inf),
            np.where(down, minus - ordinary, -np.inf),
        )
        return HyperbolicPotential(upward, downward, rate=potential.rate)

    return _Extreme(
        L1(
            np.where(np.isfinite(plus), 1.0, np.inf),
            np.where(np.isfinite(minus), 1.0, np.inf),
            rounding=rounding,
        ),
        partial(_exponential_scale, d),
        _Selection(
            lambda reach, _: exponential_problem(
                reach.constraint,
                reach.restrict(plus - down),
                reach.restrict(minus - down),
                potential.rate,
            ),
            paying,
        ),
    )


def _power_extreme(model: HasPotential, d: int, rounding: float) -> _Extreme:
    potential: Any = model.potential
    plus, minus = power_sides(model, d)
    costs = np.minimum(plus, minus)
    typical = _typical(costs)

    def paying(up: Mask, down: Mask, w: FloatArray) -> Potential:
        # log c = (2 - D) log of the start.
        ordinary = float(np.log(np.abs(w).max())) / potential.depth
        logs = (
            np.where(sides, (log - typical) / (2.0 - potential.depth) + ordinary, -np.inf)
            for log, sides in ((plus, up), (minus, down))
        )
        return BiasedDepthPotential(potential.depth, *logs)

    return _Extreme(
        L1(
            np.exp(plus - typical),
            np.exp(minus - typical),
            source=potential,
            rounding=rounding,
        ),
        partial(_power_scale, d, potential.depth),
        _Selection(
            lambda reach, effort: power_problem(
                reach.constraint,
                reach.restrict(plus - typical),
                reach.restrict(minus - typical),
                potential.depth,
                FAR_DOWN,
                effort,
            ),
            paying,
        ),
    )


def _measured_extreme(model: Any, d: int, rounding: float) -> _Extreme:
    """From costs that were read off the flow: which of several minimizers it selects is open."""
    positive, negative, degree = model.rich_costs()
    visible = partial(_exponential_scale, d)
    if degree > 2.0:
        visible = partial(_power_scale, d, degree)
    return _Extreme(L1(positive, negative, rounding=rounding), visible, None)


def _exponential_scale(d: int, margin: float, size: float) -> float:
    """An inactive weight is about scale^2 (size / scale^2)^(1 - margin)."""
    return 0.5 * float(np.log(size) + np.log(VISIBLE / d) / margin)


def _power_scale(d: int, depth: float, margin: float, size: float) -> float:
    """An inactive weight is about scale^D / margin^k, k = D / (D-2)."""
    k = depth / (depth - 2.0)
    return float((np.log(VISIBLE * size / d) + k * np.log(margin)) / depth)


_EXTREMES: dict[Provides, _Builder] = {
    Provides.EXPONENTIAL_DUAL: _exponential_extreme,
    Provides.POWER_DUAL: _power_extreme,
    Provides.RICH_COSTS: _measured_extreme,
}
