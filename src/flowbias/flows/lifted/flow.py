"""Flows of products U V^T: the routes, cheapest first, and what each of them needs.

A closed form in time where there is one, else the Gram matrix through a root, at a cost that does
not depend on the width; all weights, as the flow is written in the papers, only if asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.flows.driver import Curve, integrate, sampled
from flowbias.flows.lifted.closed_form import TimeForm, is_whitened, time_form
from flowbias.flows.lifted.compression import (
    ReducedProblem,
    lifted_fit,
    reduced_problem,
    uncompressed,
)
from flowbias.flows.lifted.coordinates import LiftedCoordinates, LiftedIntegration
from flowbias.flows.lifted.trajectory import LiftedTrajectory
from flowbias.flows.request import FlowRequest, loss_constant
from flowbias.flows.trajectory import FlowStats, FlowStatus
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import first_fitting
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixProblem, MatrixRegression, as_matrix_problem

# States that a closed form returns where no times were asked for, from the first thousandth of the
# time to the residual on.
_SAMPLES = 200
# Doublings of a time, from the fastest rate on, in search of a residual.
_MAX_DOUBLINGS = 200

# Speed relative to its terms below which a flow with an error left is at rest.
AT_REST = 1e-6


class LiftedStart:
    """A model on a problem; reduced to the rows that move once, for all routes that are tried."""

    def __init__(self, model: LiftedModel, problem: MatrixProblem) -> None:
        self.model, self.problem, self.clock = model, problem, time.perf_counter()

    @cached_property
    def reduced(self) -> ReducedProblem:
        return reduced_problem(self.model, self.problem)


@dataclass(frozen=True)
class LiftedRoute:
    """A way to follow the flow; it returns None where it does not apply."""

    name: str
    needs: frozenset[Provides]
    applies_to: str
    follow: Callable[[LiftedStart, float, FlowRequest], LiftedTrajectory | None]


def follow_lifted(model: Any, X: Any, y: Any, request: FlowRequest) -> LiftedTrajectory:
    """The flow of a product, by the first route that applies, or by the named one."""
    problem = as_matrix_problem(X, y)
    c = loss_constant(request.loss, samples(problem))
    routes = [route for route in ROUTES if request.route in (None, route.name)]
    if not routes:
        names = ", ".join(repr(route.name) for route in ROUTES)
        raise InputError(
            f"route: must be one of {names}, got {request.route!r}. Leave it out to choose."
        )
    start = LiftedStart(model, problem)
    while routes:
        route = first_fitting(model, routes)
        trajectory = route.follow(start, c, request)
        if trajectory is not None:
            return trajectory
        routes = routes[routes.index(route) + 1 :]
    raise InputError(
        f"route: must apply to the model and its data, got {request.route!r}, which needs "
        f"{route.applies_to}. Leave it out to choose."
    )


def samples(problem: MatrixProblem) -> int:
    """n of the means in "mean" and "half_mean": rows of X, or measurements."""
    return len(problem.X) if isinstance(problem, MatrixRegression) else len(problem.target)


# --- integration -------------------------------------------------------------------------------


def _by_gram(start: LiftedStart, c: float, request: FlowRequest) -> LiftedTrajectory:
    return _integrated(start.reduced, c, request, "gram", start.clock)


def _by_parameters(start: LiftedStart, c: float, request: FlowRequest) -> LiftedTrajectory:
    model, problem = start.model, start.problem
    lifted, fit = model.lifted_problem(problem), lifted_fit(model, problem)
    setting = ReducedProblem(model, lifted, uncompressed(model), fit, None)
    return _integrated(setting, c, request, "parameter", start.clock)


def _integrated(
    setting: ReducedProblem, c: float, request: FlowRequest, route: str, started: float
) -> LiftedTrajectory:
    compression, fit, times = setting.compression, setting.fit, request.times
    coordinates = LiftedCoordinates(setting, c * setting.model.rate)
    # A step that is too long may overflow; it is then retried shorter.
    with threads_for(compression.weights), np.errstate(over="ignore", invalid="ignore"):
        integration = LiftedIntegration(
            coordinates, fit, request.local_error(), request.atol, times, request.residual
        )
        curve = integrate(integration, coordinates.start)
        status, failure = integration.status(curve), curve.failure
        if status is FlowStatus.STOPPED:
            failure = _why(coordinates, curve)
        seconds = time.perf_counter() - started
        t, states = sampled(curve, coordinates, times)
    return LiftedTrajectory(
        t=t,
        status=status,
        stats=FlowStats(seconds, len(curve.pieces), curve.evaluations, curve.jacobians),
        model=setting.model,
        problem=setting.problem,
        loss_constant=c,
        route=route,
        t_end=np.inf if curve.settled else curve.end / coordinates.time_rate,
        failure=failure,
        has_weights=True,
        _states=coordinates.shaped(states),
        _compression=compression,
        _fit=fit,
        _states_at=lambda at: coordinates.shaped(curve(at * coordinates.time_rate)),
    )


def _why(coordinates: LiftedCoordinates, curve: Curve) -> str:
    """Why a flow did not come to its residual."""
    if coordinates.relative_speed(curve.states[-1]) <= AT_REST:
        return "the loss is stationary there, at a minimum of nonzero error or at a saddle"
    return curve.failure or "the integrator came to its end"


# --- closed form -------------------------------------------------------------------------------


def closed_form_of(setting: ReducedProblem) -> tuple[TimeForm, float] | None:
    """The closed form in time and its clock, where there is one for all that the product needs."""
    if setting.root is None or not is_whitened(setting.root):
        return None
    root = float(setting.root.mean())
    compression = setting.compression
    form = time_form(compression.weights, setting.fit.target / root)
    # The part of U that rests meets V itself, not only its Gram matrix.
    if form is None or not (form.has_weights or compression.rests_apart):
        return None
    return form, root * root


def _by_closed_form(start: LiftedStart, c: float, request: FlowRequest) -> LiftedTrajectory | None:
    model, setting = start.model, start.reduced
    found = closed_form_of(setting)
    if found is None:
        return None
    form, clock = found
    rate = clock * c * model.rate

    def states_at(times: FloatArray) -> FloatArray:
        return np.array([form.at(float(rate * t)) for t in times])

    fit, compression = setting.fit, setting.compression

    def residual(tau: float) -> float:
        return fit.residual(compression.moving_product(form.at(tau)))

    status, failure, times = FlowStatus.FOLLOWED, None, request.times
    if times is None:
        end = _time_to(residual, request.residual)
        status = FlowStatus.CONVERGED
        if end is None:
            end, status = 1.0, FlowStatus.STOPPED
            failure = "the flow ends at a saddle"
        times = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, _SAMPLES)]) * end / rate
    states = states_at(times)
    return LiftedTrajectory(
        t=times,
        status=status,
        stats=FlowStats(time.perf_counter() - start.clock, 0, 0, 0),
        model=model,
        problem=setting.problem,
        loss_constant=c,
        route="closed form",
        t_end=np.inf,
        failure=failure,
        has_weights=form.has_weights,
        _states=states,
        _compression=compression,
        _fit=fit,
        _states_at=states_at,
    )


def _time_to(residual: Callable[[float], float], goal: float) -> float | None:
    """The time at which the residual, which falls, has come to the goal, within a hundredth."""
    if not residual(np.inf) <= goal:
        return None
    high = 1.0
    for _ in range(_MAX_DOUBLINGS):
        if residual(high) <= goal:
            break
        high *= 2.0
    low = high
    for _ in range(_MAX_DOUBLINGS):
        low *= 0.5
        if residual(low) > goal:
            break
    while high > 1.01 * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if residual(middle) <= goal else (middle, high)
    return high


ROUTES = (
    LiftedRoute(
        "closed form",
        frozenset({Provides.GRAM}),
        "X with equal singular values and a lambda-balanced start, or X of rank one and one output",
        _by_closed_form,
    ),
    LiftedRoute("gram", frozenset({Provides.GRAM}), "nothing more", _by_gram),
    LiftedRoute("parameter", frozenset({Provides.FACTORS}), "weights", _by_parameters),
)
