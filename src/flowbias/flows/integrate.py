"""The front door: the trajectory of gradient flow, in the fewest unknowns the model allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np

from flowbias.flows.coordinates import (
    DualCoordinates,
    FlowCoordinates,
    NeuronCoordinates,
    ParameterCoordinates,
    ParameterLayout,
)
from flowbias.flows.driver import FlowIntegration, integrate, sampled
from flowbias.flows.fit import ReachableFit, fit_of, reached_by
from flowbias.flows.leaky_neuron.follow import LeakyTrajectory, follow_leaky
from flowbias.flows.lifted.flow import follow_lifted
from flowbias.flows.lifted.trajectory import LiftedTrajectory
from flowbias.flows.request import FlowRequest, loss_constant
from flowbias.flows.slacks import SlackCoordinates, needs_slacks
from flowbias.flows.trajectory import FlowStats, Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import first_fitting
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression, as_regression

AnyTrajectory: TypeAlias = Trajectory | LiftedTrajectory | LeakyTrajectory


@dataclass(frozen=True)
class FlowRoute:
    """Coordinates in which a flow can be followed, and what they need of a model."""

    name: str
    needs: frozenset[Provides]
    coordinates: Callable[[Any, ReachableFit, float], FlowCoordinates]
    rtol_to_limit: float  # local error per step on the way to the limit, relative to `residual`


def dual_coordinates(model: Any, fit: ReachableFit, c: float) -> FlowCoordinates:
    """nu, or where its digits are too few for a deep network from a tiny start, slacks."""
    if Provides.POWER_DUAL in model.potential.provides and needs_slacks(model, fit):
        return SlackCoordinates(model, fit, c)
    return DualCoordinates(model, fit, c)


#: Fewest unknowns first. On the way to the limit errors die out in the dual, whose flow contracts
#: and whose steps are implicit: what one step adds only has to stay below the residual asked for.
#: Explicit steps keep the residual at about 100 rtol.
ROUTES = (
    FlowRoute(NeuronCoordinates.name, frozenset({Provides.NEURON}), NeuronCoordinates, 1e-3),
    FlowRoute(DualCoordinates.name, frozenset({Provides.POTENTIAL}), dual_coordinates, 0.1),
    FlowRoute(
        ParameterCoordinates.name, frozenset({Provides.PARAMETERS}), ParameterCoordinates, 1e-3
    ),
)


@overload
def flow(
    model: LiftedModel,
    X: Any,
    y: Any = None,
    *,
    t: ArrayLike | None = None,
    loss: str | float = "half",
    residual: float = 1e-8,
    rtol: float | None = None,
    atol: float | None = None,
    route: str | None = None,
    throw: bool = True,
) -> LiftedTrajectory: ...


@overload
def flow(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    t: ArrayLike | None = None,
    loss: str | float = "half",
    residual: float = 1e-8,
    rtol: float | None = None,
    atol: float | None = None,
    route: str | None = None,
    throw: bool = True,
) -> Trajectory: ...


def flow(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    t: ArrayLike | None = None,
    loss: str | float = "half",
    residual: float = 1e-8,
    rtol: float | None = None,
    atol: float | None = None,
    route: str | None = None,
    throw: bool = True,
) -> AnyTrajectory:
    """Gradient flow from `model` on the loss (c/2) ||X w - y||^2.

    Until the relative residual falls to `residual`, and that of each row to as much of its own size
    |y_i| + sum_j |x_ij w_j|; residuals below about 1e-13 are rounding, and the flow is then at
    rest.

    Parameters
    ----------
    model : the network at its start; products of two factors (`LinearNet`, `MatrixFactorization`)
        too
    X, y : the data, or a `Regression` in place of X; outputs Y (n, m) or a matrix problem for
        products
    t : the times wanted, increasing, from 0 on; beyond convergence is fine
    loss : the constant c: "half" (1), "sum" (2), "half_mean" (1/n), "mean" (2/n), or a number
    residual : where to stop
    rtol, atol : bounds of the local error of the integrator's state
    route : "dual" (models with a potential), "neuron" or "parameter", for products "closed form",
        "gram" or "parameter"; by default the first that the model allows
    throw : whether a flow that cannot be followed to its end raises; otherwise its status says so

    Returns
    -------
    Trajectory with t, w, loss, residual, at(t) and limit; a `LiftedTrajectory` for products

    Raises
    ------
    InputError for data or a model that cannot be used
    FlowError where the flow cannot be followed to its end

    >>> trajectory = fb.flow(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0], t=[0.1, 1.0])
    >>> trajectory.w.round(3)
    array([[0.008, 0.017],
           [0.066, 0.458]])
    """
    family = first_fitting(model, FAMILIES)
    request = FlowRequest.of(t, loss, residual, rtol, atol, route)
    return family.follow(model, X, y, request).checked(throw)


def _follow_predictor(model: Any, X: Any, y: Any, request: FlowRequest) -> Trajectory:
    problem = as_regression(X, y)
    c = loss_constant(request.loss, len(problem.y))
    chosen = choose(model, request.route)
    times, rtol = request.times, request.local_error(chosen.rtol_to_limit)
    started = time.perf_counter()
    fit = fit_model(model, problem)
    coordinates = chosen.coordinates(model, fit, c)
    with threads_for(fit.rows):
        integration = FlowIntegration(coordinates, fit, rtol, request.atol, times, request.residual)
        curve = integrate(integration, coordinates.start)
    seconds = time.perf_counter() - started
    times, states = sampled(curve, coordinates, times)
    return Trajectory(
        t=times,
        status=integration.status(curve),
        stats=FlowStats(seconds, len(curve.pieces), curve.evaluations, curve.jacobians),
        model=model,
        problem=problem,
        loss_constant=c,
        _states=states,
        _coordinates=coordinates,
        _fit=fit,
        _curve=curve,
    )


@dataclass(frozen=True)
class FlowFamily:
    """Models whose flows are followed in the same kind of unknowns."""

    needs: frozenset[Provides]
    follow: Callable[[Any, Any, Any, FlowRequest], AnyTrajectory]


FAMILIES = (
    FlowFamily(frozenset({Provides.GRAM}), follow_lifted),
    FlowFamily(frozenset({Provides.ACTIVATED_NEURON}), follow_leaky),
    FlowFamily(frozenset({Provides.POTENTIAL}), _follow_predictor),
    FlowFamily(frozenset({Provides.PARAMETERS}), _follow_predictor),
)


def choose(model: Any, name: str | None = None) -> FlowRoute:
    """The first route whose needs the model declares, or the named one."""
    routes = [route for route in ROUTES if name is None or route.name == name]
    if not routes:
        names = ", ".join(repr(route.name) for route in ROUTES)
        raise InputError(f"route: must be one of {names}, got {name!r}. Leave it out to choose.")
    return first_fitting(model, routes)


def fit_model(model: Any, problem: Regression) -> ReachableFit:
    """The data as the flow from this model sees it; checks that the two are of one size."""
    d = problem.X.shape[1]
    if Provides.POTENTIAL in model.provides:
        initial = _sized(d, lambda: model.potential.grad_dual(np.zeros(d) + model.shift))
        return fit_of(problem, initial, reached_by(model, problem))
    layout = ParameterLayout(model.initial_parameters(), d)
    initial = _sized(d, lambda: model.predictor(layout.unflat(layout.start)))
    return fit_of(problem, initial, None)


def _sized(d: int, predictor: Callable[[], FloatArray]) -> FloatArray:
    """The predictor at the start, if the model fits d features."""
    try:
        w = np.asarray(predictor())
    except ValueError as error:  # NumPy's, when shapes do not broadcast
        raise InputError(
            f"X: must have one column per coordinate of the model, got {d} columns ({error}). "
            "Use a model of the right size, or a scalar scale that fits any."
        ) from None
    if w.shape != (d,):
        raise InputError(
            f"X: must have one column per coordinate of the model {w.shape}, got {d}. "
            "Use a model of the right size, or a scalar scale that fits any."
        )
    return w
