"""Stepping an integrator until a flow has converged, keeping every step for dense output.

The horizon of a flow is unknown: about log(1/scale) at depth 2, a negative power of the scale
beyond. So the integrator is stepped by hand and asked after each step. The loss never rises along
gradient flow: a step after which it has risen was not one of the flow, and is taken back. Where it
has risen by no more than the integrator's error, that has to become smaller.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from scipy.integrate import LSODA, DenseOutput, OdeSolution, OdeSolver

from flowbias.ground.typing import FloatArray

MAX_STEPS = 50_000
# Steps without a fall of a residual by FALL after which only the integrator's error moves.
PATIENCE, FALL = 500, 1e-3
# How often in a row a step may be taken back, each time with a first step this much shorter.
MAX_RETRIES, SHORTER = 8, 1e-2
# Rise of the misfit that counts as one; below it is what the integrator's tolerance allows.
RISE, NOISE = 1.1, 100.0


class FlowProgress(NamedTuple):
    """How far a state is."""

    misfit: float  # root of the loss, up to a factor and to what is asked for
    residuals: FloatArray  # distances from what can be reached, none below what is asked for
    is_done: bool
    is_settled: bool  # all that moves is rounding
    is_within_error: bool  # all that moves may be the integrator's error
    stage: bytes = b""  # within one the residuals fall; at the begin of another they may be higher

    def is_over(self) -> bool:
        return self.is_done or self.is_settled


class Journey(Protocol):
    """What to integrate and when to stop."""

    rtol: float
    first_step: float

    def depart(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
        """An integrator that sets out from a state."""

    def progress(self, state: FloatArray) -> FlowProgress:
        """How far a state is."""

    def tighten(self) -> bool:
        """Lower rtol for the integrators to come; False where it cannot be lower."""

    def is_rounding(self, state: FloatArray) -> bool:
        """Whether the misfit is what the digits of the state leave undecided."""


@dataclass(eq=False)
class Curve:
    """States over internal time: the integrator's own interpolant on each step."""

    states: list[FloatArray]
    times: list[float] = field(default_factory=lambda: [0.0])
    pieces: list[DenseOutput] = field(default_factory=list)
    #: whether the last state is at rest, so that the curve goes on for ever
    settled: bool = False
    failure: str | None = None
    evaluations: int = 0
    jacobians: int = 0

    @property
    def end(self) -> float:
        return self.times[-1]

    def __call__(self, times: FloatArray) -> FloatArray:
        """States at the given internal times, one per row; held constant beyond the end."""
        inside = np.minimum(times, self.end)
        if not self.pieces or not len(inside):
            return np.tile(self.states[0], (len(inside), 1))
        rows = np.asarray(OdeSolution(self.times, self.pieces)(inside).T)
        # At a node the state itself: deep networks from small scales need its last digits.
        node = np.searchsorted(self.times, inside)
        for i in np.flatnonzero(np.take(self.times, node) == inside):
            rows[i] = self.states[node[i]]
        return rows


def march(journey: Journey, start: FloatArray, max_steps: int = MAX_STEPS) -> Curve:
    """Step until the journey is done or settled, its integrator is at its end, or fails."""
    marcher = _Marcher(journey, start)
    if not marcher.reached.is_over():
        marcher.run(max_steps)
    marcher.curve.settled = marcher.is_at_rest()
    return marcher.curve


class _Marcher:
    """The loop of `march` and what it keeps from step to step."""

    def __init__(self, journey: Journey, start: FloatArray) -> None:
        self.journey = journey
        self.curve = Curve([np.array(start)])
        self.reached = journey.progress(start)
        self.noise = NOISE * journey.rtol * self.reached.misfit
        self.lowest, self.steps_since = self.reached.residuals, 0
        self.length, self.retries = journey.first_step, 0

    def is_at_rest(self) -> bool:
        if self.steps_since <= PATIENCE:
            return self.reached.is_settled
        return self.reached.is_within_error or self.journey.is_rounding(self.curve.states[-1])

    def _is_held_up(self) -> bool:
        return self.steps_since > PATIENCE and not self.reached.is_within_error

    def run(self, max_steps: int) -> None:
        curve, solver = self.curve, self._depart()
        while not self.reached.is_over() and solver.status != "finished":
            if self._is_held_up() and self.journey.tighten():
                # What keeps the residual up is the integrator's error, times a condition number.
                self.steps_since = 0
                solver = self._depart_again(solver, SHORTER)
            elif self.is_at_rest():
                break
            curve.failure = self._exhausted(max_steps)
            if curve.failure is not None:
                break
            reason = take_step(solver)
            # Of this step, or of the last that moved at all.
            self.length = float(solver.t) - curve.end or self.length
            ahead = self.journey.progress(np.asarray(solver.y))
            allowed = RISE * self.reached.misfit
            if reason is None and ahead.misfit <= allowed + self.noise:
                if ahead.misfit <= allowed or not self.journey.tighten():
                    self._accept(solver, ahead)
                else:
                    # An error as small as was asked of the integrator, but not next to the misfit.
                    solver = self._depart_again(solver, SHORTER)
                continue
            self.retries += 1
            if self.retries > MAX_RETRIES:
                curve.failure = reason or "the loss rises however short the step"
                break
            solver = self._depart_again(solver, SHORTER)
        self._count(solver)

    def _depart_again(self, solver: OdeSolver, shorter: float) -> OdeSolver:
        self._count(solver)
        self.length *= shorter
        return self._depart()

    def _depart(self) -> OdeSolver:
        return self.journey.depart(self.curve.end, self.curve.states[-1], self.length)

    def _accept(self, solver: OdeSolver, ahead: FlowProgress) -> None:
        self.curve.states.append(np.array(solver.y))
        self.curve.times.append(float(solver.t))
        self.curve.pieces.append(solver.dense_output())
        if ahead.stage != self.reached.stage:
            self.lowest, self.steps_since = ahead.residuals, 0
        self.reached, self.retries = ahead, 0
        # Any of them counts: rows in small units begin to fall when the others have fallen.
        fallen = ahead.residuals < (1.0 - FALL) * self.lowest
        self.lowest = np.where(fallen, ahead.residuals, self.lowest)
        self.steps_since = 0 if fallen.any() else self.steps_since + 1

    def _exhausted(self, max_steps: int) -> str | None:
        if self.steps_since > PATIENCE:
            steps = self.steps_since
            return f"the loss has not fallen for {steps} steps of the tightest tolerance"
        if len(self.curve.pieces) >= max_steps:
            return f"{max_steps} steps were not enough"
        return None

    def _count(self, solver: OdeSolver) -> None:
        self.curve.evaluations += int(solver.nfev)
        self.curve.jacobians += int(solver.njev)


def take_step(solver: OdeSolver) -> str | None:
    """One step; why it failed, where it did."""
    with warnings.catch_warnings():
        # What went wrong comes back as a status; trial points are allowed to go wrong.
        warnings.filterwarnings("ignore", message="lsoda:")
        before, message = solver.t, solver.step()
    if solver.status == "failed":
        # LSODA's own words are those of its return codes.
        words = "" if isinstance(solver, LSODA) else message
        return words or "the integrator finds no step that it can take from there"
    return "the step is below the spacing of numbers at that time" if solver.t == before else None
