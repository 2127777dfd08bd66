"""Gradient flow of one leaky ReLU neuron, switch by switch.  [azulay2021, section 8, appendix G]

    f(x) = a sigma(<w, x>),   sigma(s) = s for s >= 0, slope s for s < 0,   slope > 0

on the loss (c/2) sum (f(x_n) - y_n)^2, as Clarke's differential inclusion. Section 8 of the paper
writes sigma = max(s, slope s), which is another function for slope > 1; its appendix G, which has
the proof, means this one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.coordinates import FOREVER
from flowbias.flows.driver import MAX_STEPS
from flowbias.flows.leaky_neuron.convergence import Ending, ending_at_once, ending_of
from flowbias.flows.leaky_neuron.field import (
    LeakyStart,
    PatternField,
    activation,
    merged_start,
)
from flowbias.flows.leaky_neuron.patterns import Goal, LeakyCurve, follow_patterns
from flowbias.flows.request import FlowRequest, check_sizes, loss_constant
from flowbias.flows.trajectory import BaseTrajectory, FlowStats, FlowStatus
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import GREY, Panel
from flowbias.ground.html import coefficients
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import Axes, FloatArray
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution


class Switch(NamedTuple):
    """Samples whose activation changes at time t; sides before and after, 0 for sliding."""

    t: float
    samples: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LeakyTrajectory(BaseTrajectory[Solution]):
    """Gradient flow of a sigma(<w, x>) at times t; w[i] is a times the inner weights at t[i]."""

    problem: Regression
    _states: FloatArray = field(repr=False)
    _start: LeakyStart = field(repr=False)
    _curve: LeakyCurve = field(repr=False)

    #: the unknowns (a, p) within one pattern of activations after the other
    route: ClassVar[str] = "patterns"
    stopped: ClassVar[str] = (
        "stopped at t = {t:.4g} with relative residual {residual:.1e}: {reason}. Pass times "
        "t=[...], change rtol, or start elsewhere"
    )

    @property
    def a(self) -> FloatArray:
        """Outer weights, (len(t),)."""
        return self._states[:, 0]

    @cached_property
    def inner(self) -> FloatArray:
        """Inner weights of the neuron, (len(t), d)."""
        return self._start.weights(self._states)

    @cached_property
    def w(self) -> FloatArray:
        """a times the inner weights, (len(t), d): what the limit is stated for."""
        return self.a[:, None] * self.inner

    @cached_property
    def residuals(self) -> FloatArray:
        """r_n = a sigma(<w, x_n>) - y_n at each t, (len(t), n)."""
        fitted = activation(self.inner @ self.problem.X.T, self._start.slope)
        return np.asarray(self.a[:, None] * fitted - self.problem.y)

    @property
    def _misfits(self) -> FloatArray:
        return self.residuals

    @cached_property
    def residual(self) -> FloatArray:
        """||r|| / ||y|| at each t; where y = 0 relative to the first one."""
        return np.asarray(np.linalg.norm(self.residuals, axis=1) / self._start.misfit_scale)

    @cached_property
    def segments(self) -> tuple[tuple[float, NDArray[np.int8]], ...]:
        """Time from which on, and sides of all samples: +1, -1, or 0 where it slides."""
        return tuple(
            (part.start / self.loss_constant, self._start.sides_of_data(part.sides))
            for part in self._curve.segments
        )

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Changes of the pattern, in order."""
        pairs = zip(self.segments[:-1], self.segments[1:], strict=True)
        return tuple(_switch(before, *after) for (_, before), after in pairs)

    @property
    def slides(self) -> bool:
        """Whether the flow was held at a kink for some of the time."""
        return any(bool((sides == 0).any()) for _, sides in self.segments)

    def pattern(self, t: float) -> NDArray[np.int8]:
        """Sides of all samples at one time, those after the switch at a time of one."""
        self._within(np.array([t]))
        starts = [start for start, _ in self.segments]
        return self.segments[max(int(np.searchsorted(starts, t, side="right")) - 1, 0)][1]

    @property
    def t_end(self) -> float:
        """How far the flow was followed; infinite where it has come to rest."""
        return np.inf if self._curve.settled else self._curve.end / self.loss_constant

    def _predictors(self, times: FloatArray) -> FloatArray:
        states = self._states_at(times)
        return np.asarray(states[:, :1] * self._start.weights(states))

    def parameters(self, t: float) -> tuple[float, FloatArray]:
        """(a, w): the outer and the inner weights at one time."""
        state = self._states_at(self._within(np.array([t], dtype=np.float64)))[0]
        return float(state[0]), self._start.weights(state)

    @cached_property
    def conserved_drift(self) -> float:
        """Largest change of a^2 - ||w||^2 over t, relative to the terms it is a difference of."""
        inner = np.sum(np.square(self.inner), axis=1)
        drift = np.abs(self.a**2 - inner - self._start.delta)
        return float(np.max(drift / np.maximum(self.a**2 + inner, abs(self._start.delta))))

    @cached_property
    def ending(self) -> Ending | None:
        """Where the flow through the last state ends, as far as that is proved."""
        if not self._curve.segments:
            return ending_at_once(self._start)
        pattern = PatternField(self._start, self._curve.segments[-1].sides)
        return ending_of(self._start, self._states[-1], pattern)

    @property
    def last_state(self) -> FloatArray:
        """(a, p) at the last time, w = w(0) + V p."""
        return np.asarray(self._states[-1])

    @property
    def failure(self) -> str | None:
        """Why the flow was not followed to its end."""
        return self._curve.failure

    @property
    def _numbers(self) -> Mapping[str, Any]:
        return {"residual": float(self.residual[-1])}

    def _states_at(self, times: FloatArray) -> FloatArray:
        return self._curve(times * self.loss_constant)

    def _panels(self) -> tuple[Panel, ...]:
        """Coefficients, with the switches as thin lines, and loss over time."""
        over_time, loss = self._over_time(self.w, label="coefficient  a w", symbol="w")

        def with_switches(axes: Axes) -> None:
            over_time(axes)
            for switch in self.switches:
                if switch.t > 0.0:
                    axes.axvline(switch.t, color=GREY, linewidth=0.9, linestyle=":")

        return with_switches, loss

    def _looks(self) -> Mapping[str, str | float]:
        switches: dict[str, str | float] = {
            "slope": self._start.slope,
            "switches": f"{len(self.switches)}{', held at a kink' if self.slides else ''}",
        }
        return {**switches, **coefficients(self.w[-1])}

    def _about(self) -> str:
        slid = ", slides" if self.slides else ""
        return (
            f"slope={self._start.slope:g}, unknowns={self._states.shape[1]}, "
            f"{len(self.switches)} switches{slid}, "
        )


def _switch(before: NDArray[np.int8], t: float, after: NDArray[np.int8]) -> Switch:
    changed = np.flatnonzero(before != after)
    sides = (tuple(int(side) for side in part[changed]) for part in (before, after))
    return Switch(t, tuple(int(n) for n in changed), *sides)


# --- following it --------------------------------------------------------------------------------


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
    *,
    until_proved: bool = False,
) -> LeakyTrajectory:
    """`follow_leaky` on checked data, in at most so many steps or until its end is proved."""
    begun = time.perf_counter()
    c = loss_constant(request.loss, len(problem.y))
    start = start_of(model, problem)
    times = request.times
    goal = replace(_goal(start, request, c, max_steps), until_proved=until_proved)
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
    times, rtol = request.times, request.local_error()
    # The weights grow by factors from their start, so that errors are relative to it.
    size = float(np.hypot(start.a, np.linalg.norm(start.w)))
    # From large starts a falls to where it balances the pull of the data.
    fit = float(np.linalg.norm(start.y)) / float(start.singular_values[0])
    sizes = np.full(len(start.state), size)
    sizes[0] = min(size, fit / size) or size
    atol = rtol * sizes if request.atol is None else np.full(len(sizes), request.atol)
    if times is None:
        return Goal(request.residual, FOREVER, rtol, atol, max_steps)
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
