"""The ways to a limit, and the table that matches them with what a model declares.

Every route first tries Newton's method on the dual from the tangent-kernel solution, which is all
there is to do near the kernel regime. What it does otherwise depends on the form of the dual map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import State
from flowbias.limits.joint_newton import JointNewton
from flowbias.limits.normal_equations import Effort
from flowbias.limits.only_predictor import dual_of, only_predictor
from flowbias.limits.refined_dual import asked_for, inside_domain
from flowbias.limits.rich_regime import (
    RichProblem,
    WarmStart,
    exponential_problem,
    power_problem,
)
from flowbias.limits.sensitivity import joint_sensitivity, sensitivity
from flowbias.models._base import HasPotential
from flowbias.models.reachable import Reachable, reachable, run_off
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression
from flowbias.results.solution import Sensitivity

# Residual at which iterations stop: two digits below the default certificate, above rounding.
RESIDUAL = 1e-13
MAX_EASY_STEPS = 12
MAX_GENERAL_STEPS = 200
# Residual above which rounding of the dual, as for large biased starts, is worth repairing in w.
ROUNDING = 1e-11
# Residual above which the interior point has not found the limit.
NOT_SOLVED = 1e-6


@dataclass(frozen=True)
class Point:
    """What a route arrives at: w, the dual of X's rows, and the state for warm starts."""

    w: FloatArray
    dual: FloatArray
    route: str
    reach: Reachable
    state: State | None = None


@dataclass(frozen=True)
class Route:
    """A way to the limit: what it needs of a model, the solver, and the limit's derivatives."""

    name: str
    needs: frozenset[Provides]
    solve: Callable[[HasPotential, Regression, Effort, WarmStart | None], Point]
    derivatives: Callable[[Reachable, Any, FloatArray], Sensitivity] = sensitivity
    #: what may still make a point pass that the certificate does not
    repair: Callable[[HasPotential, Regression, Effort, Point], Point] | None = None


def without_choice(model: HasPotential, problem: Regression) -> Point | None:
    """The one predictor that the data leave, where they leave no more."""
    constraint = only_predictor(problem)
    if constraint is None:
        return None
    w = constraint.target
    dual = dual_of(constraint, problem.X, model.potential.grad(w) - model.shift)
    reach = Reachable(constraint, None, constraint.distance)
    return Point(w, dual, "the only predictor", reach)


def _easily(model: HasPotential, reach: Reachable, effort: Effort) -> DualNewton | None:
    """Newton's method from the kernel solution, if the limit is that near."""
    newton = DualNewton(reach.constraint, model.potential, model.shift, effort)
    residual = newton.run(tol=RESIDUAL, max_steps=MAX_EASY_STEPS, only_if_easy=True)
    return newton if residual <= 1e3 * RESIDUAL else None


def _by_dual_newton(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    constraint = problem.constraint
    newton = DualNewton(constraint, model.potential, model.shift, effort)
    newton.run(tol=RESIDUAL, max_steps=MAX_GENERAL_STEPS, only_if_easy=False)
    reach = Reachable(constraint, None, constraint.distance)
    route = "dual Newton" + _how_far(newton, newton.ahead(model.potential.hess_dual(newton.z)))
    return Point(newton.w, constraint.dual_of_data(newton.dual), route, reach)


def _how_far(newton: DualNewton | JointNewton, ahead: float) -> str:
    """Nothing where y is fitted; else how far it came, and whether more of the dual would help."""
    if newton.residual <= NOT_SOLVED:
        return ""
    came = (
        f": gave up with X w {newton.residual:.1e} of y away from it, at a dual point of size "
        f"{float(np.abs(newton.z).max()):.1e}; twice that would move X w by {ahead:.1e} of y"
    )
    return f"{came}, so that y seems out of reach" if newton.ran_off else came


def _by_branches(
    model: HasPotential,
    problem: Regression,
    effort: Effort,
    warm: WarmStart | None,
    sides: tuple[FloatArray, FloatArray],
    normalize: Callable[[Reachable, Effort], RichProblem],
) -> Point:
    """Newton near the kernel regime, interior point elsewhere; `sides` exist where finite."""
    reach = reachable(problem, np.isfinite(sides[0]), np.isfinite(sides[1]))
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
        newton = _easily(model, reach, effort)
        if newton is not None:
            return Point(newton.w, constraint.dual_of_data(newton.dual), "dual Newton", reach)
    if not constraint.target.any() and reach.kept is None:
        # Without a target there is no size of w to normalize by; the start's own scale decides.
        return _by_dual_newton(model, problem, effort, warm)
    rich = normalize(reach, effort)
    state, moving = rich.solve(effort, tol=RESIDUAL, warm=warm)
    misfit = extended.length(constraint.apply(moving) - constraint.target)
    if reach.kept is None and not misfit <= NOT_SOLVED * extended.length(constraint.target):
        # Neither near the kernel nor near the rich regime, as for large one-sided starts: Newton's
        # method with a line search converges from anywhere, if not quickly.
        searched = _by_dual_newton(model, problem, effort, warm)
        if extended.length(constraint.apply(searched.w) - constraint.target) < misfit:
            return searched
    dual = rich.dual(state)
    if reach.kept is None and misfit > ROUNDING * extended.length(constraint.target):
        newton = DualNewton(constraint, model.potential, model.shift, effort)
        newton.move_to(dual)
        newton.refine_predictor(RESIDUAL, moving)
        moving, dual = newton.w, newton.dual
    w = reach.embed(moving)
    dual = constraint.dual_of_data(dual)
    dual = run_off(reach, problem, model.potential, model.shift, w, dual)
    return Point(w, dual, "interior point and Newton", reach, state)


def _by_joint_newton(
    model: Any, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    constraint = problem.constraint
    newton = JointNewton(constraint, model.potential, model.shift, effort)
    newton.run()
    reach = Reachable(constraint, None, constraint.distance)
    route = "joint dual Newton" + _how_far(newton, newton.ahead())
    return Point(newton.w, constraint.dual_of_data(newton.dual), route, reach)


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
    plus, minus = order * potential.log_plus - unit, order * potential.log_minus - unit
    return np.broadcast_to(plus, (d,)), np.broadcast_to(minus, (d,))


def _by_exponentials(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential
    plus, minus = exponential_sides(model, problem.X.shape[1])
    return _by_branches(
        model,
        problem,
        effort,
        warm,
        (plus, minus),
        lambda reach, _: exponential_problem(
            reach.constraint, reach.restrict(plus), reach.restrict(minus), potential.rate
        ),
    )


def _by_powers(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential
    unit = potential.log_unit
    plus, minus = power_sides(model, problem.X.shape[1])
    point = _by_branches(
        model,
        problem,
        effort,
        warm,
        (plus, minus),
        lambda reach, effort: power_problem(
            reach.constraint,
            reach.restrict(plus),
            reach.restrict(minus),
            potential.depth,
            unit,
            effort,
        ),
    )
    return replace(point, dual=inside_domain(potential, problem.X, point.w, point.dual))


def _carried_by_weights(
    model: HasPotential, problem: Regression, effort: Effort, point: Point
) -> Point:
    effort.factorizations += 1
    dual = asked_for(model.potential, problem.X, point.w, point.dual)
    return replace(point, dual=dual, route=f"{point.route}, dual from the weights in use")


#: Cheapest first: a route that knows the form of the dual map before the one that knows none.
ROUTES = (
    Route(
        "exponential", frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), _by_exponentials
    ),
    Route("joint", frozenset({Provides.JOINT_POTENTIAL}), _by_joint_newton, joint_sensitivity),
    Route(
        "power",
        frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}),
        _by_powers,
        repair=_carried_by_weights,
    ),
    Route("general", frozenset({Provides.POTENTIAL}), _by_dual_newton),
)
