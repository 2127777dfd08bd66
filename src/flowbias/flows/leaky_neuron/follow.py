"""Gradient flow of one leaky ReLU neuron, switch by switch.  [azulay2021, section 8, appendix G]

    f(x) = a sigma(<w, x>),   sigma(s) = s for s >= 0, slope s for s < 0,   slope > 0

on the loss (c/2) sum (f(x_n) - y_n)^2, as Clarke's differential inclusion. Section 8 of the paper
writes sigma = max(s, slope s), which is another function for slope > 1; its appendix G, which has
the proof, means this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from flowbias.flows.double_range import check_sizes
from flowbias.flows.journey import RTOL_AT_TIMES, TIGHTEST, FlowRequest
from flowbias.flows.leaky_neuron.field import LeakyStart
from flowbias.flows.leaky_neuron.march import MAX_STEPS, Goal, LeakyCurve, follow_patterns
from flowbias.flows.leaky_neuron.merge import merged_start
from flowbias.flows.leaky_neuron.trajectory import LeakyTrajectory
from flowbias.flows.loss import loss_constant
from flowbias.flows.trajectory import FlowStats, FlowStatus
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import Regression, as_regression

# Explicit steps keep the residual at about 100 rtol.
_RTOL_TO_RESIDUAL = 1e-3
# Internal times end here, far beyond rest and before overflow.
_FOREVER = 1e300


class ActivatedNeuron(Protocol):
    """A neuron at its start, as far as its flow is concerned."""

    @property
    def a(self) -> float: ...

    @property
    def w(self) -> FloatArray: ...

    @property
    def slope(self) -> float: ...


def follow_leaky(model: ActivatedNeuron, X: Any, y: Any, request: FlowRequest) -> LeakyTrajectory:
    """The flow from a neuron, to a residual or to the last of the times asked for."""
    problem = as_regression(X, y)
    if request.route not in (None, LeakyTrajectory.route):
        raise InputError(
            f"route: must be {LeakyTrajectory.route!r} for a leaky ReLU neuron, got "
            f"{request.route!r}. Leave it out to choose."
        )
    return followed(model, problem, request, MAX_STEPS)


def followed(
    model: ActivatedNeuron,
    problem: Regression,
    request: FlowRequest,
    max_steps: int,
    is_enough: Callable[[LeakyStart, FloatArray], bool] | None = None,
) -> LeakyTrajectory:
    """`follow_leaky` on checked data, in at most so many steps or to a state that is enough."""
    begun = time.perf_counter()
    c = loss_constant(request.loss, len(problem.y))
    start = start_of(model, problem)
    times = request.times
    goal = replace(_goal(start, request, c, max_steps), is_enough=is_enough)
    with threads_for(problem.X):
        # A step that is too long may overflow; it is then retried shorter.
        with np.errstate(over="ignore", invalid="ignore"):
            curve = follow_patterns(start, goal)
        seconds = time.perf_counter() - begun
    at, states = _sampled(curve, times, c)
    return LeakyTrajectory(
        t=at,
        status=_status(start, curve, request),
        stats=FlowStats(seconds, len(curve.pieces), curve.evaluations, curve.jacobians),
        model=model,
        problem=problem,
        loss_constant=c,
        _states=states,
        _start=start,
        _curve=curve,
    )


def start_of(model: ActivatedNeuron, problem: Regression) -> LeakyStart:
    """The neuron on its data, if the two are of one size and can move."""
    a, w, slope = float(model.a), np.asarray(model.w, dtype=np.float64), float(model.slope)
    d = problem.X.shape[1]
    if w.shape != (d,):
        raise InputError(
            f"X: must have one column per inner weight of the neuron {w.shape}, got {d}. "
            "Use a neuron of the right size."
        )
    if not 0.0 < slope < np.inf:
        raise InputError(
            f"slope: must be > 0 and finite, got {slope!r}. With slope 0 (ReLU) a sample that is "
            "switched off has no gradient, and the theorem does not hold."
        )
    if a == 0.0 and not w.any():
        raise InputError(
            "a, w: must not both be zero, got the saddle that no flow leaves. Pass a small start."
        )
    sizes = {
        "X": float(np.abs(problem.X).max()),
        "y": float(np.abs(problem.y).max()),
        "a, w": max(abs(a), float(np.abs(w).max())),
    }
    check_sizes(sizes)
    return merged_start(a, w, slope, problem.X, problem.y)


def _goal(start: LeakyStart, request: FlowRequest, c: float, max_steps: int) -> Goal:
    times, rtol = request.times, request.rtol
    if rtol is None:
        to_residual = min(max(_RTOL_TO_RESIDUAL * request.residual, TIGHTEST), 1e-8)
        rtol = to_residual if times is None else RTOL_AT_TIMES
    # The weights grow by factors from their start, so that errors are relative to it.
    size = float(np.hypot(start.a, np.linalg.norm(start.w)))
    atol = rtol * size if request.atol is None else request.atol
    if times is None:
        return Goal(request.residual, _FOREVER, rtol, atol, max_steps)
    return Goal(None, float(times[-1]) * c, rtol, atol, max_steps)


def _status(start: LeakyStart, curve: LeakyCurve, request: FlowRequest) -> FlowStatus:
    if curve.failure is not None:
        return FlowStatus.STOPPED
    return FlowStatus.FOLLOWED if request.times is not None else FlowStatus.CONVERGED


def _sampled(
    curve: LeakyCurve, times: FloatArray | None, c: float
) -> tuple[FloatArray, FloatArray]:
    """Times and states to return: all steps, or those asked for as far as they were reached."""
    if times is None:
        return np.array(curve.times) / c, np.array(curve.states)
    if curve.failure is not None:
        end = curve.end / c
        times = np.append(times[times < end], end)
    return times, curve(times * c)
