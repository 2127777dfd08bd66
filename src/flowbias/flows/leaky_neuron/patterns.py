"""Stepping through the patterns of a leaky ReLU neuron, each of its switches located on the way.

Within a pattern the field is smooth and any integrator will do. After every step its interpolant is
searched for a margin that has become negative; the first root ends the step there, to rounding, and
the integrator sets out anew in the pattern that the flow goes on to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import DOP853, DenseOutput, OdeSolver
from scipy.optimize import brentq

from flowbias.flows.coordinates import STIFF, stiff_solver
from flowbias.flows.driver import (
    FALL,
    MAX_RETRIES,
    MAX_STEPS,
    PATIENCE,
    SHORTER,
    TIGHTER,
    Curve,
    take_step,
)
from flowbias.flows.leaky_neuron.convergence import ending_of, fits_from_start, settled_sign
from flowbias.flows.leaky_neuron.field import Indices, LeakyStart, PatternField, Sides
from flowbias.flows.leaky_neuron.sides import NotUniqueError, first_sides, sides_after
from flowbias.flows.request import TIGHTEST
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray

# Points of a step at which its margins are looked at: a dip between them that no point sees is one
# that the step's own error could have made.
_LOOKS = np.linspace(0.0, 1.0, 9)[1:]
# Points at which a margin that is zero at its begin is looked for.
_HALVES = 0.5 ** np.arange(1, 21)
# Share of the step within which switches count as one.
_TOGETHER = 1e-12


# --- the first switch within a step: the earliest root of a margin on the step's interpolant -----


class KinkCrossing(NamedTuple):
    """When margins vanish, the state there, and which they are."""

    time: float
    state: FloatArray
    margins: Indices


def first_event(
    pattern: PatternField,
    piece: DenseOutput,
    begin: tuple[float, FloatArray],
    end: float,
    allowed: FloatArray,
) -> KinkCrossing | None:
    """The first margin below -allowed on the step from `begin` (time and state) to `end`."""
    looks = begin[0] + _LOOKS * (end - begin[0])
    states = piece(looks).T
    broken = pattern.margins(states) < -allowed
    turned = np.sign(states[:, 0]) * np.sign(begin[1][0]) < 0.0
    seen = np.asarray(broken.any(axis=1))
    if len(pattern.held) and turned.any() and not seen[: int(np.argmax(turned)) + 1].any():
        raise NotUniqueError(
            "the outer weight changes its sign while the flow slides along a kink, which from then "
            "on repels it to both sides"
        )
    if not seen.any():
        return None
    look = int(np.argmax(seen))
    bracket = (begin[0] if look == 0 else float(looks[look - 1])), float(looks[look])
    indices = np.flatnonzero(broken[look])
    times = np.array([_root(pattern, piece, bracket, int(index)) for index in indices])
    time = float(times.min())
    state = begin[1] if time <= begin[0] else np.asarray(piece(time))
    return KinkCrossing(time, state, indices[times <= time + _TOGETHER * (end - begin[0])])


def _root(
    pattern: PatternField, piece: DenseOutput, bracket: tuple[float, float], index: int
) -> float:
    """When a margin vanishes; where it has been zero from the bracket's begin on, that begin.

    Where the velocity does not jump, the end: one switch is enough for a margin that hovers at 0.
    """

    def margin(time: float) -> float:
        return float(pattern.margins(np.asarray(piece(time))[None, :])[0, index])

    begin, end = bracket
    if margin(begin) <= 0.0:
        # A margin that starts from a kink may have risen before it fell.
        risen = next((at for at in begin + _HALVES * (end - begin) if margin(at) > 0.0), None)
        if risen is None:
            jumps = index >= len(pattern.sides) or bool(pattern.start.bends[index])
            return begin if jumps else end
        begin = float(risen)
    if margin(end) >= 0.0:
        # Below zero when all looks were evaluated at once: it is zero to rounding.
        return end
    return float(brentq(margin, begin, end, xtol=4.0 * EPS * end, rtol=4.0 * EPS))


# --- stepping through them -----------------------------------------------------------------------


# Switches without any progress in time after which the events contradict each other.
_STUCK = 30
# Margins, relative to ||w||, below which a side is rounding; and a sliding multiplier likewise.
_ROUNDING, _MULTIPLIER, _HOVER = 64.0 * EPS, 1e-12, 100.0
# Passing a saddle at relative speed s magnifies errors by 1/s^2: beyond this share of the weights,
# they may have decided where the flow went on to.
_DECIDED, _PASSED = 1e-2, 10.0
# Residual at which all that moves is rounding.
_SETTLED = 1e-14
# Steps without a fall of the loss after which the integrator's error may be what keeps it up.
_DOUBT = 100
# Rise of the misfit for which a step is taken again, shorter.
_RISE = 1.0 + 1e-6


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
    #: of a and of each unknown of w
    atol: FloatArray
    max_steps: int = MAX_STEPS
    #: whether a state that proves where the flow ends is all that is asked for
    until_proved: bool = False


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
                self.length *= SHORTER
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
                self.rtol, self.since = max(TIGHTER * self.rtol, TIGHTEST), 0
                self._count(solver)
                solver = self._depart(pattern)
            reason = take_step(solver)
            time, state = float(solver.t), np.array(solver.y)
            misfit = float(np.linalg.norm(pattern.residuals(state)))
            floor = _SETTLED * self.start.misfit_scale + 10.0 * self.rtol * self._terms(pattern)
            if reason is not None or not misfit <= _RISE * self.misfit + floor:
                retries += 1
                if retries > MAX_RETRIES:
                    self.curve.failure = reason or "the loss rises however short the step"
                    break
                self._count(solver)
                self.length = max(SHORTER * (time - self.curve.end), 4.0 * EPS * time)
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
        atol = self.goal.atol * self.rtol / self.goal.rtol
        last = self.goal.last
        options: dict[str, Any] = {"first_step": step, "rtol": self.rtol, "atol": atol}
        if self._is_stiff(pattern):
            options["jac"] = pattern.jacobian
            return stiff_solver(time)(pattern.velocity, time, state, last, **options)
        return DOP853(pattern.velocity, time, state, last, **options)

    def _is_stiff(self, pattern: PatternField) -> bool:
        """Whether a, at rate ||sigma(X w)||^2, and w, at rates (a c sigma)^2, are far apart."""
        start, state = self.start, self.curve.states[-1]
        values, outer = start.singular_values, abs(float(state[0]))
        fast = max(1.0, start.slope) * values[0] * outer
        slow = min(1.0, start.slope) * values[-1] * outer
        outputs = float(np.linalg.norm(pattern.outputs(state)))
        return slow > 0.0 and bool((max(fast, outputs) / slow) ** 2 > STIFF)

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
        if self.misfit < (1.0 - FALL) * self.lowest:
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
        if goal.until_proved and ending_of(self.start, curve.states[-1], pattern) is not None:
            return True
        speed = np.inf if self.guaranteed else self._relative_speed(pattern)
        self.slowest = min(self.slowest, speed)
        # Relative to its terms the subgradient of a flow at rest with a loss left is rounding.
        if speed <= 1e-9 * self._pace():
            curve.settled = True
            if goal.residual is not None:
                curve.failure = (
                    f"the flow rests at a stationary point of nonzero loss, relative speed "
                    f"{speed:.1e}, outer weight {curve.states[-1][0]:.1e}"
                )
        elif self.slowest**2 * _DECIDED < self.rtol and speed > _PASSED * self.slowest:
            curve.failure = (
                f"the flow passed a saddle at relative speed {self.slowest:.1e}, so closely that "
                "the integrator's error decides where it goes on to"
            )
        elif self.since > PATIENCE:
            curve.failure = f"no fall of the loss for {self.since} steps"
        elif len(curve.pieces) >= goal.max_steps:
            curve.failure = f"{goal.max_steps} steps were not enough"
        return curve.settled or curve.failure is not None

    def _pace(self) -> float:
        """How much slower than a, once it is settled, w may be at most for a proof of its end."""
        state, least = self.curve.states[-1], 1e-6
        if not self.goal.until_proved or settled_sign(self.start, state) is None:
            return 1.0
        weights = float(np.linalg.norm(self.start.weights(state)))
        return max(min(abs(float(state[0])) / weights, 1.0), least) if weights > 0.0 else 1.0

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
        # Kinks that are met to rounding are met together, as those of opposite samples are.
        state = self.curve.states[-1]
        met = np.abs(pattern.distances(state)[0]) <= self._allowed(pattern, state)[:n]
        kinks = np.union1d(np.flatnonzero((met | ~pattern.free) & self.start.bends), bent)
        return sides_after(self.start, state, sides, kinks)

    def _count(self, solver: OdeSolver) -> None:
        self.curve.evaluations += int(solver.nfev)
        self.curve.jacobians += int(solver.njev)
