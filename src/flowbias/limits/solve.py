"""The front door: the limit of gradient flow, by the cheapest route that the model allows.

Every route first tries Newton's method on the dual from the tangent-kernel solution, which is all
there is to do near the kernel regime. What it does otherwise depends on what the model declares.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flowbias._typing import FloatArray
from flowbias.certificates import certify
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.interior_point import State
from flowbias.limits.normal_equations import Effort
from flowbias.limits.reachable import Reachable, reachable
from flowbias.limits.rich_regime import (
    RichProblem,
    WarmStart,
    exponential_problem,
    power_problem,
)
from flowbias.limits.sensitivity import sensitivity
from flowbias.potentials import Potential, Provides
from flowbias.problem import InputError, Regression
from flowbias.solution import Solution, Stats, Status

# Residual at which iterations stop: two digits below the default certificate, above rounding.
RESIDUAL = 1e-13
MAX_EASY_STEPS = 12
# How far along an escaping direction of the dual to go, and what may then be left there.
RUN_OFF = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
NOTHING_LEFT = 1e-13
MAX_GENERAL_STEPS = 500


class HasPotential(Protocol):
    """What `limit` needs of a model: a potential and the dual point of its start."""

    @property
    def provides(self) -> frozenset[Provides]: ...
    @property
    def potential(self) -> Potential: ...
    @property
    def shift(self) -> FloatArray | float: ...


@dataclass(frozen=True)
class Point:
    """What a route arrives at: w, the dual of X's rows, and the normalized state for warm starts."""

    w: FloatArray
    dual: FloatArray
    route: str
    reach: Reachable
    state: State | None = None


@dataclass(frozen=True)
class Route:
    """A way to the limit: what it needs of a model, and the solver."""

    name: str
    needs: frozenset[Provides]
    solve: Callable[[HasPotential, Regression, Effort, WarmStart | None], Point]


def limit(
    model: HasPotential, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True
) -> Solution:
    """The predictor that gradient flow from `model` converges to on (X, y), with its certificate.

    X may be a `Regression` instead, with y left out. A model is anything with `provides`,
    `potential` and `shift`; a potential is one too (started at its own zero). Where the result
    cannot be certified to `tol`, SolveError is raised, or with throw=False returned in the status.
    """
    solution, _ = limit_with_state(model, as_regression(X, y), tol=tol, warm=None)
    return solution.checked(throw)


def as_regression(X: Any, y: Any) -> Regression:
    """The problem given either as data or as a Regression."""
    if y is None:
        if not isinstance(X, Regression):
            raise InputError(
                f"y: must be given with X, got None and X of type {type(X).__name__}. "
                "Call limit(model, X, y) or limit(model, Regression(X, y))."
            )
        return X
    return Regression(X, y)


def limit_with_state(
    model: HasPotential, problem: Regression, *, tol: float, warm: WarmStart | None
) -> tuple[Solution, State | None]:
    """`limit`, and the state from which a nearby scale can start."""
    route = choose(model)
    _check_size(model, problem)
    started = time.perf_counter()
    effort = Effort(factorizations=problem.constraint.factorizations)
    # Trial points may overflow; every one of them is judged by its residual before it is kept.
    with np.errstate(all="ignore"):
        point = route.solve(model, problem, effort, warm)
    seconds = time.perf_counter() - started
    return _certified(model, problem, point, effort, seconds, tol), point.state


def choose(model: HasPotential) -> Route:
    """The first route of the table whose needs the model declares."""
    for route in ROUTES:
        if route.needs <= model.provides:
            return route
    missing = ", ".join(sorted(need.name for need in ROUTES[-1].needs - model.provides))
    raise InputError(
        f"model: must provide {missing}, got a {type(model).__name__} that does not. "
        "Declare it in `provides` together with `potential` and `shift`."
    )


def _check_size(model: HasPotential, problem: Regression) -> None:
    d = problem.X.shape[1]
    shape = np.broadcast_shapes(np.shape(model.potential.grad_dual(np.zeros(1))), np.shape(model.shift))
    if shape not in ((), (1,), (d,)):
        raise InputError(
            f"X: must have one column per coordinate of the model ({shape[-1]}), got {d}. "
            "Use a model of the right size, or a scalar scale that fits any."
        )


def _easily(
    model: HasPotential, reach: Reachable, effort: Effort
) -> DualNewton | None:
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
    return Point(newton.w, constraint.dual_of_data(newton.dual), "dual Newton", reach)


def _by_branches(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None,
    sides: tuple[FloatArray, FloatArray], normalize: Callable[[Reachable], RichProblem],
) -> Point:
    """Newton near the kernel regime, interior point elsewhere; `sides` exist where finite."""
    reach = reachable(problem, np.isfinite(sides[0]), np.isfinite(sides[1]))
    constraint = reach.constraint
    if reach.kept is None and warm is None:
        newton = _easily(model, reach, effort)
        if newton is not None:
            return Point(newton.w, constraint.dual_of_data(newton.dual), "dual Newton", reach)
    rich = normalize(reach)
    state = rich.solve(effort, tol=RESIDUAL, warm=warm)
    dual = constraint.dual_of_data(rich.dual(state))
    w = reach.embed(rich.predictor(state))
    return Point(w, dual, "interior point and Newton", reach, state)


def _by_exponentials(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential
    d = problem.X.shape[1]
    rise = potential.rate * np.asarray(model.shift)
    plus = np.broadcast_to(potential.log_plus + rise, (d,))
    minus = np.broadcast_to(potential.log_minus - rise, (d,))
    return _by_branches(
        model, problem, effort, warm, (plus, minus),
        lambda reach: exponential_problem(
            reach.constraint, reach.restrict(plus), reach.restrict(minus), potential.rate
        ),
    )


def _by_powers(
    model: HasPotential, problem: Regression, effort: Effort, warm: WarmStart | None
) -> Point:
    potential: Any = model.potential
    d = problem.X.shape[1]
    order, unit = 2.0 - potential.depth, potential.log_unit
    plus = np.broadcast_to(order * potential.log_plus - unit, (d,))
    minus = np.broadcast_to(order * potential.log_minus - unit, (d,))
    point = _by_branches(
        model, problem, effort, warm, (plus, minus),
        lambda reach: power_problem(
            reach.constraint, reach.restrict(plus), reach.restrict(minus), potential.depth, unit
        ),
    )
    return _inside_domain(potential, problem, point)


def _inside_domain(potential: Potential, problem: Regression, point: Point) -> Point:
    """Shrink the dual by the few ulps that rounding may have put it outside its open domain."""
    dual = point.dual
    for ulps in (0.0, 4.0, 32.0, 256.0, 2048.0):
        shrunk = (1.0 - ulps * np.finfo(float).eps) * dual
        if np.isfinite(potential.conjugate(problem.X.T @ shrunk)):
            return Point(point.w, shrunk, point.route, point.reach, point.state)
    return point


#: Cheapest first: a route that knows the form of the dual map before the one that knows none.
ROUTES = (
    Route("exponential", frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), _by_exponentials),
    Route("power", frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}), _by_powers),
    Route("general", frozenset({Provides.POTENTIAL}), _by_dual_newton),
)


def _certified(
    model: HasPotential, problem: Regression, point: Point, effort: Effort, seconds: float,
    tol: float,
) -> Solution:
    """The solution with its certificate recomputed from the data."""
    potential, shift, reach = model.potential, model.shift, point.reach
    dual = _run_off(potential, shift, problem, point)
    certificate = certify(problem.X, problem.y, point.w, dual, potential, shift, tol=tol)
    status = Status.STALLED
    if certificate.ok:
        status = Status.PROJECTED if reach.distance > 0 else Status.CERTIFIED

    def derivatives() -> Any:
        z = np.asarray(shift + problem.X.T @ dual)
        curvature = potential.hess_dual(z)
        return sensitivity(problem.constraint, potential, z, curvature)

    return Solution(
        w=point.w, dual=dual, status=status, route=point.route, certificate=certificate,
        stats=Stats(effort.factorizations, effort.steps, seconds), potential=potential,
        shift=shift, distance=reach.distance, _sensitivity=derivatives,
    )


def _run_off(
    potential: Potential, shift: FloatArray | float, problem: Regression, point: Point
) -> FloatArray:
    """The dual, far enough along the direction in which some coordinates are driven to zero.

    Along the flow that part of the dual grows without end; a finite multiple at which those
    coordinates vanish in double precision certifies the limit.
    """
    outward, kept = point.reach.escape, point.reach.kept
    if outward is None or kept is None:
        return point.dual
    start = np.asarray(shift + problem.X.T @ point.dual)
    pull = problem.X.T @ outward
    driven = ~kept & (potential.hess_dual(start) > 0)
    smallest = float(np.abs(pull[driven]).min())
    for distance in RUN_OFF:
        step = distance * (1.0 + float(np.abs(start).max())) / smallest
        left = potential.conjugate_terms(start + step * np.where(driven, pull, 0.0))[driven]
        if float(left.sum()) <= NOTHING_LEFT * (1.0 + abs(potential.value(point.w))):
            break
    return np.asarray(point.dual + step * outward)
