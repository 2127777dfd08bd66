"""The front door: the trajectory of gradient flow, in the fewest unknowns the model allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.integrate import OdeSolver

from flowbias._threads import threads_for
from flowbias._typing import ArrayLike, FloatArray
from flowbias.flows.coordinates import Coordinates
from flowbias.flows.dual import DualCoordinates
from flowbias.flows.fit import Fit, fit_of, reached_by
from flowbias.flows.loss import loss_constant
from flowbias.flows.march import Curve, Progress, march
from flowbias.flows.parameter import ParameterCoordinates, ParameterLayout
from flowbias.flows.trajectory import FlowStats, FlowStatus, Trajectory
from flowbias.potentials import Provides
from flowbias.problem import InputError, Regression, as_regression
from flowbias.routing import first_fitting

# Local error per step for states asked for by time.
RTOL_AT_TIMES = 1e-11
# Residual in units of rtol below which a flow that no longer falls may count as being at rest.
_REST = 1e3
# By how much rtol is lowered where it stands in the way, and the least the integrators accept.
_TIGHTER, _TIGHTEST = 1e-2, 1e-13
# Roundings of the state that may add up in the misfit, and the residual up to which a flow that
# they have stopped may still be called one that has ended.
_FEW, _STILL_A_FIT = 10.0, 1e-4
# Internal times end here, far beyond rest and before overflow.
_FOREVER = 1e300


@dataclass(frozen=True)
class Route:
    """Coordinates in which a flow can be followed, and what they need of a model."""

    name: str
    needs: frozenset[Provides]
    coordinates: Callable[[Any, Fit, float], Coordinates]
    rtol_to_limit: float  # local error per step on the way to the limit, relative to `residual`


#: Fewest unknowns first. On the way to the limit errors die out in the dual, whose flow contracts
#: and whose steps are implicit; explicit steps keep the residual at about 100 rtol.
ROUTES = (
    Route(DualCoordinates.name, frozenset({Provides.POTENTIAL}), DualCoordinates, 1.0),
    Route(ParameterCoordinates.name, frozenset({Provides.PARAMETERS}), ParameterCoordinates, 1e-3),
)


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
) -> Trajectory:
    """Gradient flow from `model` on the loss (c/2) ||X w - y||^2.

    Until the relative residual falls to `residual`, or to the times `t` where given (increasing,
    from 0 on; beyond convergence is fine). X may be a `Regression`, with y left out. `loss` names
    the constant c: "half" (1), "sum" (2), "half_mean" (1/n), "mean" (2/n), or is a number.
    Residuals below about 1e-13 are rounding, and the flow is then at rest.
    `rtol` and `atol` bound the local error of the integrator's state; `route` is "dual"
    (models with a potential) or "parameter", by default the first that the model allows.
    Where the flow cannot be followed to its end FlowError is raised, or with throw=False the
    status says so.
    """
    problem = as_regression(X, y)
    c = loss_constant(loss, len(problem.y))
    times = None if t is None else _checked_times(t)
    chosen = choose(model, route)
    check_tolerance("residual", residual)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None:
            check_tolerance(name, value)
    if rtol is None:
        rtol = RTOL_AT_TIMES if times is not None else _rtol_to_limit(chosen, residual)
    started = time.perf_counter()
    fit = fit_model(model, problem)
    coordinates = chosen.coordinates(model, fit, c)
    with threads_for(fit.rows):
        journey = FlowJourney(coordinates, fit, rtol, atol, times, residual)
        curve = march(journey, coordinates.start)
    seconds = time.perf_counter() - started
    if times is None:
        times, states = np.array(curve.times) / coordinates.time_rate, np.array(curve.states)
    else:
        if curve.failure is not None:
            # Only what was reached, and where that ended.
            end = curve.end / coordinates.time_rate
            times = np.append(times[times < end], end)
        states = curve(times * coordinates.time_rate)
    trajectory = Trajectory(
        t=times,
        status=journey.status(curve),
        stats=FlowStats(seconds, len(curve.pieces), curve.evaluations, curve.jacobians),
        model=model,
        problem=problem,
        loss_constant=c,
        _states=states,
        _coordinates=coordinates,
        _fit=fit,
        _curve=curve,
    )
    return trajectory.checked(throw)


def _rtol_to_limit(route: Route, residual: float) -> float:
    # Never looser than what makes a good picture, nor below what the integrators accept.
    return min(max(route.rtol_to_limit * residual, _TIGHTEST), 1e-8)


class FlowJourney:
    """The flow as `march` sees it: to a residual, or to the last of the times asked for."""

    def __init__(
        self,
        coordinates: Coordinates,
        fit: Fit,
        rtol: float,
        atol: float | None,
        times: FloatArray | None,
        residual: float,
    ) -> None:
        self.coordinates, self.fit, self.rtol = coordinates, fit, rtol
        size, duration = coordinates.natural_scales()
        self.size = size if atol is None else atol / rtol
        self.first_step = float(np.sqrt(rtol)) * duration
        self.residual = None if times is not None else residual
        last = np.inf if times is None else times[-1] * coordinates.time_rate
        self.end = float(min(last, _FOREVER))

    def depart(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
        step = min(first_step, self.end - time)
        atol = self.rtol * self.size
        return self.coordinates.solver(time, state, self.end, step, self.rtol, atol)

    def tighten(self) -> bool:
        if self.rtol <= _TIGHTEST:
            return False
        self.rtol = max(_TIGHTER * self.rtol, _TIGHTEST)
        return True

    def is_rounding(self, state: FloatArray) -> bool:
        misfit, residual, _ = self.fit.quality(self.coordinates.predictor(state))
        return residual < _STILL_A_FIT and misfit <= _FEW * self.coordinates.rounding(state)

    def progress(self, state: FloatArray) -> Progress:
        misfit, residual, is_settled = self.fit.quality(self.coordinates.predictor(state))
        if self.residual is None:
            is_done, is_close = self.end == 0.0, residual <= _REST * self.rtol
        else:
            is_done, is_close = residual <= self.residual, False
        return Progress(misfit, residual, is_done, is_settled, is_close)

    def status(self, curve: Curve) -> FlowStatus:
        if self.residual is None:
            return FlowStatus.STOPPED if curve.failure else FlowStatus.FOLLOWED
        if self.progress(curve.states[-1]).is_done:
            return FlowStatus.CONVERGED
        return FlowStatus.AT_REST if curve.settled else FlowStatus.STOPPED


def choose(model: Any, name: str | None = None) -> Route:
    """The first route whose needs the model declares, or the named one."""
    routes = [route for route in ROUTES if name is None or route.name == name]
    if not routes:
        names = ", ".join(repr(route.name) for route in ROUTES)
        raise InputError(f"route: must be one of {names}, got {name!r}. Leave it out to choose.")
    return first_fitting(model, routes)


def fit_model(model: Any, problem: Regression) -> Fit:
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


def _checked_times(t: ArrayLike) -> FloatArray:
    try:
        times = np.atleast_1d(np.asarray(t, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"t: must be a list of times, got {t!r}. Pass t=[0.1, 1.0].") from None
    if times.ndim != 1 or times.size == 0:
        raise InputError(f"t: must be a list of times, got shape {times.shape}. Pass t=[0.1, 1.0].")
    right = np.isfinite(times) & (np.diff(times, prepend=-np.inf) > 0.0) & (times >= 0.0)
    if not right.all():
        first = int(np.argmin(right))
        raise InputError(
            f"t: must be finite, non-negative and increasing, got {times[first]:g} at index "
            f"{first}. Sort the times with np.unique(t)."
        )
    return times


def check_tolerance(name: str, value: object) -> None:
    """A tolerance is a small positive number."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise InputError(f"{name}: must lie in (0, 1), got {value!r}. Pass 1e-8 for instance.")
