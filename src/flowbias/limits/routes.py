"""The ways to the minimizer of a potential.

Every way first tries Newton's method on the dual from the tangent-kernel solution, which is all
there is to do near the kernel regime. What it does otherwise depends on the form of the dual map.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.certificates.candidate import Factor
from flowbias.ground import extended
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.tolerances import DEFAULT, IN_RANGE, Tolerances
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton, DualPoint, JointNewton
from flowbias.limits.interior_point import State
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import (
    RichProblem,
    WarmStart,
    exponential_problem,
    power_problem,
)
from flowbias.models._base import HasPotential
from flowbias.models.reachable import Reachable, reachable, run_off
from flowbias.potentials import Potential
from flowbias.problems.regression import Constraint, Regression


@dataclass(frozen=True)
class Point:
    """What a route arrives at: w, the dual of X's rows, and the state for warm starts."""

    w: FloatArray
    dual: FloatArray
    route: str
    reach: Reachable
    state: State | None = None
    #: of X's rows, which a first look at the limit may go by; None where there is no such one
    factor: Factor | None = None


def without_choice(model: HasPotential, problem: Regression) -> Point | None:
    """The one predictor that the data leave, where they leave no more."""
    constraint = only_predictor(problem)
    if constraint is None:
        return None
    w = constraint.target
    dual = dual_of(constraint, problem.X, model.potential.grad(w) - model.shift)
    if not np.isfinite(dual).all():
        return None  # at the end of its range w has none: the flow takes forever, and its dual too
    reach = Reachable(constraint, None, constraint.distance)
    return Point(w, dual, "the only predictor", reach)


# The least share of a Newton step that is worth taking where an interior point may do instead.
NEAR = 2.0**-18


def _easily(
    model: HasPotential, reach: Reachable, effort: Effort, least_share: float
) -> DualPoint | None:
    """Newton's method from the kernel solution, if the limit is that near."""
    found = reach.constraint, model.potential, model.shift, effort
    newton = DualNewton(*found, least_share=least_share)
    end = newton.solve(max_steps=30)
    return end if end.residual <= DEFAULT.solved else None


def from_dual(
    model: HasPotential,
    problem: Regression,
    effort: Effort,
    warm: WarmStart | None,
    *,
    dual: FloatArray,
) -> Point:
    """Newton's method from a dual of X's rows, as far as it gets while that is near the limit."""
    constraint = problem.constraint
    near = constraint.dual_of_rows(problem.X, dual)
    newton = DualNewton(constraint, model.potential, model.shift, effort, least_share=NEAR)
    end = newton.solve(newton.at(near), max_steps=30)
    reach = Reachable(constraint, None, constraint.distance)
    dual = constraint.dual_of_data(end.dual)
    return Point(end.w, dual, "dual Newton", reach, factor=effort.factor)


def by_dual_newton(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    constraint = problem.constraint
    newton = DualNewton(constraint, model.potential, model.shift, effort)
    end = newton.solve(max_steps=200)
    reach = Reachable(constraint, None, constraint.distance)
    dual, route = constraint.dual_of_data(end.dual), f"dual Newton{end.shortfall}"
    return Point(end.w, dual, route, reach, factor=effort.factor)


def _by_branches(
    model: HasPotential,
    problem: Regression,
    effort: Effort,
    warm: WarmStart | None,
    normalize: Callable[[Reachable, Effort], RichProblem],
) -> Point:
    """Newton near the kernel regime, interior point elsewhere."""
    potential: Any = model.potential
    # Sides exist where the logarithm of their start is finite.
    both = potential.log_plus + potential.log_minus
    is_open = math.isfinite(both) if both.ndim == 0 else bool(np.isfinite(both).all())
    if is_open:
        reach = Reachable(problem.constraint, None, problem.constraint.distance)
    else:
        d = problem.X.shape[1:]
        sides = potential.log_plus, potential.log_minus
        reach = reachable(problem, *(np.broadcast_to(np.isfinite(side), d) for side in sides))
    constraint = reach.constraint
    if not len(constraint.target):
        # No column that can move is seen by the data: all stays where it starts.
        w = model.potential.grad_dual(np.broadcast_to(model.shift, problem.X.shape[1:]))
        return Point(w, np.zeros_like(problem.y), "nothing moves", reach)
    if reach.kept is not None and not reach.kept.any():
        w = np.zeros(len(reach.kept))
        dual = run_off(reach, problem, model.potential, model.shift, w, np.zeros_like(problem.y))
        return Point(w, dual, "all coordinates driven to zero", reach)
    if reach.kept is None and warm is None:
        # Where a side is closed w may have to vanish at the end of a dual that runs off.
        near = _easily(model, reach, effort, NEAR if is_open else 1.0)
        if near is not None:
            factor, dual = effort.factor, constraint.dual_of_data(near.dual)
            return Point(near.w, dual, "dual Newton", reach, factor=factor)
    if not constraint.target.any() and reach.kept is None:
        # Without a target there is no size of w to normalize by; the start's own scale decides.
        return by_dual_newton(model, problem, effort, warm)
    rich = normalize(reach, effort)
    state, moving = rich.solve(effort, tol=DEFAULT.residual, warm=warm)
    misfit = extended.length(constraint.apply(moving) - constraint.target)
    if reach.kept is None and not misfit <= DEFAULT.not_solved * extended.length(constraint.target):
        # Neither near the kernel nor near the rich regime, as for large one-sided starts: Newton's
        # method with a line search converges from anywhere, if not quickly.
        searched = by_dual_newton(model, problem, effort, warm)
        if extended.length(constraint.apply(searched.w) - constraint.target) < misfit:
            return searched
    dual = rich.dual(state)
    if reach.kept is None and misfit > DEFAULT.repair * extended.length(constraint.target):
        newton = DualNewton(constraint, model.potential, model.shift, effort)
        refined = newton.refined(newton.at(dual), moving)
        moving, dual = refined.w, refined.dual
    w = reach.embed(moving)
    dual = constraint.dual_of_data(dual)
    dual = run_off(reach, problem, model.potential, model.shift, w, dual)
    factor = effort.factor if reach.kept is None else None
    return Point(w, dual, "interior point and Newton", reach, state, factor)


def by_joint_newton(
    model: Any, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    constraint = problem.constraint
    # To the last digit of the potential, where that is known to no more.
    tolerances = Tolerances(max(DEFAULT.residual, 0.1 * model.potential.rounding))
    newton = JointNewton(constraint, model.potential, model.shift, effort, tolerances)
    end = newton.solve(max_steps=200)
    reach = Reachable(constraint, None, constraint.distance)
    route = f"joint dual Newton{end.shortfall}"
    return Point(end.w, constraint.dual_of_data(end.dual), route, reach)


def exponential_sides(model: HasPotential, d: int) -> tuple[FloatArray, FloatArray]:
    """log P+ and log P- of each coordinate at the start; -inf where a side is absent."""
    potential: Any = model.potential
    rise = potential.rate * np.asarray(model.shift)
    plus, minus = potential.log_plus + rise, potential.log_minus - rise
    return np.broadcast_to(plus, (d,)), np.broadcast_to(minus, (d,))


def power_sides(model: HasPotential, d: int) -> tuple[FloatArray, FloatArray]:
    """log c+ and log c- of each coordinate, in the potential's units; inf where absent."""
    potential: Any = model.potential
    order, unit = 2.0 - potential.depth, potential.log_unit
    plus, minus = (order * log - unit for log in (potential.log_plus, potential.log_minus))
    return np.broadcast_to(plus, (d,)), np.broadcast_to(minus, (d,))


def by_exponentials(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential

    def normalized(reach: Reachable, effort: Effort) -> RichProblem:
        plus, minus = map(reach.restrict, exponential_sides(model, problem.X.shape[1]))
        return exponential_problem(reach.constraint, plus, minus, potential.rate)

    return _by_branches(model, problem, effort, warm, normalized)


def by_powers(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential

    def normalized(reach: Reachable, effort: Effort) -> RichProblem:
        plus, minus = map(reach.restrict, power_sides(model, problem.X.shape[1]))
        law = potential.depth, potential.log_unit
        return power_problem(reach.constraint, plus, minus, *law, effort)

    point = _by_branches(model, problem, effort, warm, normalized)
    return replace(point, dual=inside_domain(potential, problem.X, point.w, point.dual))


def carried_by_weights(
    model: HasPotential, problem: Regression, effort: Effort, point: Point
) -> Point:
    effort.factorizations += 1
    dual = asked_for(model.potential, problem.X, point.w, point.dual)
    return replace(point, dual=dual, route=f"{point.route}, dual from the weights in use")


def inside_domain(
    potential: Potential, X: FloatArray, w: FloatArray, dual: FloatArray
) -> FloatArray:
    """The dual, shrunk by what rounding may have put it outside its open domain, or too close.

    Duals of the power law are counted from the start, so that there is no shift. Near its end the
    conjugate has a pole, and one ulp of the dual can be more than the slack there.
    """
    value = potential.value_terms(w)

    def gap(shrink: float) -> float:
        # As the certificate will evaluate it: the product of a shrunk dual rounds differently.
        z = X.T @ ((1.0 - shrink) * dual)
        terms = value + potential.conjugate_terms(z) - z * w
        return float(np.abs(np.sum(terms)))

    best, best_gap = 0.0, gap(0.0)
    # A dual with this gap is not touched any more.
    if best_gap > 1e-12 * (1.0 + abs(float(value.sum()))):
        for shrink in np.geomspace(1e-15, 1e-6, 19):
            if (candidate := gap(float(shrink))) < best_gap:
                best, best_gap = float(shrink), candidate
    return (1.0 - best) * dual


def asked_for(potential: Potential, X: FloatArray, w: FloatArray, dual: FloatArray) -> FloatArray:
    """The dual, moved by least squares to X^T nu = grad Q(w) where w is in use.

    Below a certain scale the law P = (mu / slack)^k is solved at a larger mu, whose slacks are
    above the rounding of their cost (`rich_regime`). The weights do not depend on that, but the
    slack of a light one does: mu P^(-1/k) may exceed the tolerance, the true one being far below.
    """
    in_use = potential.determined(w)
    off = (potential.grad(w) - X.T @ dual)[in_use]
    if not np.isfinite(off).all():
        return dual
    change = np.asarray(scipy.linalg.lstsq(X[:, in_use].T, off)[0])
    return inside_domain(potential, X, w, dual + change)


@np.errstate(all="ignore")
def only_predictor(problem: Regression) -> Constraint | None:
    """The constraint w = X^+ y; None where the rank of X is not d, or not clearly.

    Where X has rank d there is one w with X w = P y, for every model: a constraint whose rows are
    the unit vectors. What is left of a limit is its dual, X^T nu = grad Q(w) - shift: no iteration.
    Columns are brought to unit length first, so that neither the rank nor w depends on the units of
    the features. Not clearly also where the rounding of X w would look like a part of y that no w
    fits.
    """
    X, y = problem.X, problem.y
    n, d = X.shape
    if n < d:
        return None
    lengths = row_lengths(X.T)
    if not lengths.all():
        return None
    columns = X / lengths
    left, upper = scipy.linalg.qr(columns, mode="economic")
    values = scipy.linalg.svdvals(upper)
    rounding = n * float(np.finfo(float).eps)
    if not values[-1] > rounding * values[0]:
        return None
    inverse = scipy.linalg.solve_triangular(upper, left.T)
    # What is asked of rows that are zero cannot be fitted, however large it is.
    asked, y = y, np.where(problem.lengths > 0.0, y, 0.0)
    lost, total = extended.length(asked - y), extended.length(asked) or 1.0
    size = float(np.abs(y).max()) or 1.0
    w = _least_squares(columns, inverse, y / size, rounding * values[0] / values[-1])
    unit = row_units(problem.lengths)
    terms = np.abs(columns) @ np.abs(w)
    # Not a comparison the other way round: what overflows is not clear either.
    if not rounding * np.linalg.norm(terms / unit) <= IN_RANGE * np.linalg.norm(y / size / unit):
        return None
    seen = _distance(y / size - columns @ w, y / size, unit) * (extended.length(y) / total)
    distance = float(np.hypot(seen, lost / total))
    w *= size / lengths
    inverse /= lengths[:, None]
    return Constraint(
        rows=np.eye(d),
        row_scale=np.ones(d),
        target=w,
        to_data=inverse.T,
        from_data=inverse,
        distance=distance,
        projected=X @ w if distance > 0.0 else None,
    )


def _least_squares(
    columns: FloatArray, inverse: FloatArray, y: FloatArray, rounding: float
) -> FloatArray:
    w = np.zeros(columns.shape[1])
    for _ in range(3):  # the last two by what the first has left
        w += inverse @ (y - columns @ w)
    # Nothing but rounding is left of a y that is orthogonal to the range of X.
    fits = np.linalg.norm(columns @ w) > rounding * np.linalg.norm(y)
    return w if fits else np.zeros_like(w)


def _distance(misfit: FloatArray, y: FloatArray, unit: FloatArray) -> float:
    """Of y from the range of X, relative to y; whether it is 0 is seen in rows of unit length."""
    if not np.linalg.norm(misfit / unit) > IN_RANGE * np.linalg.norm(y / unit):
        return 0.0
    return float(np.linalg.norm(misfit) / np.linalg.norm(y))


def dual_of(constraint: Constraint, X: FloatArray, pull: FloatArray) -> FloatArray:
    """A short nu with X^T nu = pull."""
    nu = constraint.dual_of_data(pull)
    for _ in range(2):
        nu = nu + constraint.dual_of_data(pull - X.T @ nu)
    return nu
