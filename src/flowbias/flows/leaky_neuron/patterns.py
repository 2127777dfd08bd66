"""Stepping through the patterns of a leaky ReLU neuron, each of its switches located on the way.

Within a pattern the field is smooth and any integrator will do. After every step its interpolant is
searched for a margin that has become negative; the first root ends the step there, to rounding, and
the integrator sets out anew in the pattern that the flow goes on to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.integrate import DOP853, DenseOutput, OdeSolver

from flowbias.flows.coordinates import stiff_solver
from flowbias.flows.driver import Curve, take_step
from flowbias.flows.leaky_neuron.convergence import fits_from_start
from flowbias.flows.leaky_neuron.field import EPS, Indices, LeakyStart, PatternField, Sides
from flowbias.flows.leaky_neuron.switch import NotUniqueError, first_event, first_sides, sides_after
from flowbias.flows.request import TIGHTEST
from flowbias.ground.typing import FloatArray

MAX_STEPS = 50_000
# Switches without any progress in time after which the events contradict each other.
_STUCK = 30
# Ratio of the fastest to the slowest rate of the data above which implicit steps pay.
_STIFF = 200.0
# Margins, relative to ||w||, below which a side is rounding; and a sliding multiplier likewise.
_ROUNDING, _MULTIPLIER, _HOVER = 64.0 * EPS, 1e-12, 100.0
# Subgradient relative to its terms at which a flow with a loss left is at rest.
_REST = 1e-9
# Passing a saddle at relative speed s magnifies errors by 1/s^2: beyond this share of the weights,
# they may have decided where the flow went on to.
_DECIDED, _PASSED = 1e-2, 10.0
# Residual at which all that moves is rounding.
_SETTLED = 1e-14
# Steps without a fall of the loss by FALL after which nothing but error moves.
_PATIENCE, _FALL = 500, 1e-3
# Steps without one after which the integrator's error may be what keeps it up, and what rtol is
# then multiplied by, down to the least that the integrators accept.
_DOUBT, _TIGHTER = 100, 1e-2
# How often a step may be retried from a shorter one, and the rise of the misfit that calls for it.
_RETRIES, _SHORTER, _RISE = 8, 1e-2, 1.0 + 1e-6


class Segment(NamedTuple):
    """A pattern and the time from which on it holds."""

    start: float
    sides: Sides


@dataclass(eq=False)
class LeakyCurve(Curve):
    """States over tau: the integrator's interpolant on each step, cut where a switch ended it."""

    segments: list[Segment] = field(default_factory=list)

    def __call__(self, times: FloatArray) -> FloatArray:
        """States at the given tau, one per row; held constant beyond the end."""
        rows = np.empty((len(times), len(self.states[0])))
        node = np.searchsorted(self.times, times)
        for i, (k, time) in enumerate(zip(node, times, strict=True)):
            if k == len(self.times) or self.times[k] == time:
                rows[i] = self.states[min(k, len(self.times) - 1)]
            else:
                rows[i] = self.pieces[k - 1](time)
        return rows


@dataclass(frozen=True)
class Goal:
    """How far to follow a flow and how closely; `residual` None: to the last time."""

    residual: float | None
    last: float
    rtol: float
    atol: float
    max_steps: int = MAX_STEPS
    #: whether a state of the flow from a start says all that is asked for
    is_enough: Callable[[LeakyStart, FloatArray], bool] | None = None


def follow_patterns(start: LeakyStart, goal: Goal) -> LeakyCurve:
    """The flow to its goal, or as far as it can be followed; `failure` says why no further."""
    walk = _Walk(start, goal)
    try:
        walk.run()
    except NotUniqueError as error:
        walk.curve.failure = str(error)
    return walk.curve


class _Walk:
    """The loop and what it keeps from step to step."""

    def __init__(self, start: LeakyStart, goal: Goal) -> None:
        self.start, self.goal, self.rtol = start, goal, goal.rtol
        self.curve = LeakyCurve([start.state])
        self.guaranteed = fits_from_start(start)
        values = start.singular_values
        spread = max(1.0, start.slope) / min(1.0, start.slope)
        self.is_stiff = (spread * values[0] / values[-1]) ** 2 > _STIFF
        # Where nothing jumps at the kink, explicit steps hover about it by some 100 rtol.
        self.noise = np.where(start.bends, _ROUNDING, max(_HOVER * goal.rtol, _ROUNDING))
        self.misfit, self.lowest, self.since = np.inf, np.inf, 0
        self.slowest = np.inf
        self.length = 0.0

    def run(self) -> None:
        sides, stuck = first_sides(self.start), 0
        while self._is_under_way():
            before = self.curve.end
            field_ = PatternField(self.start, sides)
            self.curve.segments.append(Segment(before, sides))
            hits = self._follow(field_)
            if hits is None:
                return
            stuck = stuck + 1 if self.curve.end == before else 0
            if stuck:
                # A step too long for its interpolant to leave the kink the way that the flow does.
                self.length *= _SHORTER
            if stuck > _STUCK:
                raise NotUniqueError(f"{stuck} switches of the activation at one time")
            sides = self._switch(field_, hits)

    def _is_under_way(self) -> bool:
        return self.curve.end < self.goal.last and self.curve.failure is None

    # --- one pattern ---------------------------------------------------------------------------

    def _follow(self, pattern: PatternField) -> Indices | None:
        """Steps until the pattern ends, with what ended it; None where the flow is over."""
        retries = 0
        self._judge(pattern)
        solver = self._depart(pattern)
        while not self._is_over(pattern) and solver.status == "running":
            if self.since > _DOUBT and self.rtol > TIGHTEST:
                self.rtol, self.since = max(_TIGHTER * self.rtol, TIGHTEST), 0
                self._count(solver)
                solver = self._depart(pattern)
            reason = take_step(solver)
            time, state = float(solver.t), np.array(solver.y)
            misfit = float(np.linalg.norm(pattern.residuals(state)))
            floor = _SETTLED * self.start.misfit_scale + 10.0 * self.rtol * self._terms(pattern)
            if reason is not None or not misfit <= _RISE * self.misfit + floor:
                retries += 1
                if retries > _RETRIES:
                    self.curve.failure = reason or "the loss rises however short the step"
                    break
                self._count(solver)
                self.length = max(_SHORTER * (time - self.curve.end), 4.0 * EPS * time)
                solver = self._depart(pattern)
                continue
            retries, self.length = 0, time - self.curve.end
            piece = solver.dense_output()
            begin = self.curve.end, self.curve.states[-1]
            event = first_event(pattern, piece, begin, time, self._allowed(pattern, state))
            if event is not None:
                self._accept(pattern, event.time, event.state, piece)
                self._count(solver)
                return None if self._is_over(pattern) else event.margins
            self._accept(pattern, time, state, piece)
        self._count(solver)
        return None

    def _depart(self, pattern: PatternField) -> OdeSolver:
        time, state = self.curve.end, self.curve.states[-1]
        speed = float(np.linalg.norm(pattern.velocity(0.0, state)))
        size = float(np.linalg.norm(state)) + float(np.linalg.norm(self.start.w))
        natural = np.sqrt(self.rtol) * size / speed if speed > 0.0 else 1.0
        step = min(self.length or natural, natural, self.goal.last - time)
        last, rtol = self.goal.last, self.rtol
        atol = self.goal.atol * rtol / self.goal.rtol
        if self.is_stiff:
            return stiff_solver(time)(
                pattern.velocity,
                time,
                state,
                last,
                first_step=step,
                rtol=rtol,
                atol=atol,
                jac=pattern.jacobian,
            )
        return DOP853(pattern.velocity, time, state, last, first_step=step, rtol=rtol, atol=atol)

    def _accept(
        self, pattern: PatternField, time: float, state: FloatArray, piece: DenseOutput
    ) -> None:
        if time > self.curve.end:
            self.curve.times.append(time)
            self.curve.states.append(state)
            self.curve.pieces.append(piece)
        else:
            self.curve.states[-1] = state
        self._judge(pattern)
        self.since += 1
        if self.misfit < (1.0 - _FALL) * self.lowest:
            self.lowest, self.since = self.misfit, 0

    def _judge(self, pattern: PatternField) -> None:
        self.misfit = float(np.linalg.norm(pattern.residuals(self.curve.states[-1])))

    def _terms(self, pattern: PatternField) -> float:
        """Size of what a residual is a difference of."""
        state = self.curve.states[-1]
        outputs = float(np.linalg.norm(pattern.outputs(state)))
        return self.start.misfit_scale + abs(float(state[0])) * outputs

    def _is_over(self, pattern: PatternField) -> bool:
        curve, goal = self.curve, self.goal
        residual = float(np.hypot(self.misfit, self.start.lost)) / self.start.misfit_scale
        curve.settled = residual <= _SETTLED
        if curve.settled or (goal.residual is not None and residual <= goal.residual):
            return True
        if goal.is_enough is not None and goal.is_enough(self.start, curve.states[-1]):
            return True
        speed = np.inf if self.guaranteed else self._relative_speed(pattern)
        self.slowest = min(self.slowest, speed)
        if speed <= _REST:
            curve.settled = True
            if goal.residual is not None:
                curve.failure = (
                    f"the flow rests at a stationary point of nonzero loss, relative speed "
                    f"{speed:.1e}, outer weight {curve.states[-1][0]:.1e}"
                )
        elif self.slowest**2 * _DECIDED < self.rtol and speed > _PASSED * self.slowest:
            curve.failure = (
                f"the flow passed a saddle at relative speed {self.slowest:.1e}, so closely that "
                "the integrator's error decides where it goes on to. Lower rtol"
            )
        elif self.since > _PATIENCE:
            curve.failure = f"no fall of the loss for {self.since} steps"
        elif len(curve.pieces) >= goal.max_steps:
            curve.failure = f"{goal.max_steps} steps were not enough"
        return curve.settled or curve.failure is not None

    def _relative_speed(self, pattern: PatternField) -> float:
        """The subgradient's length relative to its terms: 0 at stationary points of any loss."""
        state = self.curve.states[-1]
        pull = np.abs(pattern.residuals(state)) @ self.start.lengths
        pull += self.start.lost * float(self.start.lengths.max())
        first = np.hypot(self.start.a, np.linalg.norm(self.start.w))
        weights = max(first, abs(state[0]), float(np.linalg.norm(self.start.weights(state))))
        subgradient = float(np.linalg.norm(pattern.velocity(0.0, state)))
        return subgradient / float(pull * weights * min(1.0, self.start.slope))

    # --- switches ------------------------------------------------------------------------------

    def _allowed(self, pattern: PatternField, state: FloatArray) -> FloatArray:
        size = float(np.linalg.norm(self.start.weights(state)))
        return np.concatenate([self.noise * size, np.full(2 * len(pattern.held), _MULTIPLIER)])

    def _switch(self, pattern: PatternField, hits: Indices) -> Sides:
        """The pattern after margins have become zero."""
        n, held = len(self.start.y), len(pattern.held)
        sides = pattern.sides.copy()
        released = hits[hits >= n] - n
        if len(released):
            # One at a time, at the end of its interval: the others' multipliers stay what they are.
            position = int(released[0] % held)
            at_low = released[0] < held
            is_plus = at_low == (self.start.slope > 1.0)
            sides[pattern.held[position]] = 1 if is_plus else -1
            return sides
        sides[hits] = -sides[hits]
        bent = hits[self.start.bends[hits]]
        if not len(bent):
            return sides
        return sides_after(self.start, self.curve.states[-1], sides, np.union1d(pattern.held, bent))

    def _count(self, solver: OdeSolver) -> None:
        self.curve.evaluations += int(solver.nfev)
        self.curve.jacobians += int(solver.njev)
