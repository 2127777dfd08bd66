"""Stepping an integrator until a flow has converged, keeping every step for dense output.

The horizon of a flow is unknown: about log(1/scale) at depth 2, a negative power of the scale
beyond. So the integrator is stepped by hand and asked after each step. The loss never rises along
gradient flow: a step after which it has risen was not one of the flow, and is taken back.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from scipy.integrate import DenseOutput, OdeSolution, OdeSolver

from flowbias._typing import FloatArray

MAX_STEPS = 50_000
# Steps without a fall of the misfit by FALL after which the integrator's own error is all there is.
PATIENCE, FALL = 1000, 1e-3
# How often in a row a step may be taken back, each time with a first step this much shorter.
MAX_RETRIES, SHORTER = 8, 1e-2
# Rise of the misfit that counts as one; below it is what the integrator's tolerance allows.
RISE, NOISE = 1.1, 100.0


class Progress(NamedTuple):
    """How far a state is."""

    misfit: float  # root of the loss, up to a factor
    is_done: bool
    is_settled: bool  # all that moves is rounding
    is_within_error: bool  # all that moves may be the integrator's error

    def is_over(self) -> bool:
        return self.is_done or self.is_settled


class Journey(Protocol):
    """What to integrate and when to stop."""

    rtol: float
    first_step: float

    def depart(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
        """An integrator that sets out from a state."""

    def progress(self, state: FloatArray) -> Progress:
        """How far a state is."""


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
        if not self.pieces:
            return np.tile(self.states[0], (len(inside), 1))
        rows = np.asarray(OdeSolution(self.times, self.pieces)(inside).T)
        # At a node the state itself: deep networks from small scales need its last digits.
        node = np.searchsorted(self.times, inside)
        for i in np.flatnonzero(np.take(self.times, node) == inside):
            rows[i] = self.states[node[i]]
        return rows


def march(journey: Journey, start: FloatArray, max_steps: int = MAX_STEPS) -> Curve:
    """Step until the journey is done or settled, its integrator is at its end, or fails."""
    curve = Curve([np.array(start)])
    reached = journey.progress(start)
    curve.settled = reached.is_settled
    if reached.is_over():
        return curve
    length = journey.first_step
    solver = journey.depart(0.0, start, length)
    noise = NOISE * journey.rtol * reached.misfit
    lowest, steps_since, retries = reached.misfit, 0, 0
    while not reached.is_over() and solver.status != "finished":
        if steps_since > PATIENCE and reached.is_within_error:
            break
        if steps_since > PATIENCE or len(curve.pieces) >= max_steps:
            curve.failure = _why_stopped(steps_since, max_steps)
            break
        reason = _step(solver)
        length = float(solver.t) - curve.end or length  # of this step, or of the last that moved
        ahead = journey.progress(np.asarray(solver.y))
        if reason is None and ahead.misfit <= RISE * reached.misfit + noise:
            reached, retries = ahead, 0
            curve.states.append(np.array(solver.y))
            curve.times.append(float(solver.t))
            curve.pieces.append(solver.dense_output())
            fell = ahead.misfit < (1.0 - FALL) * lowest
            lowest, steps_since = (ahead.misfit, 0) if fell else (lowest, steps_since + 1)
            continue
        retries += 1
        if retries > MAX_RETRIES:
            curve.failure = reason or "the loss rises however short the step"
            break
        _count(curve, solver)
        length *= SHORTER
        solver = journey.depart(curve.end, curve.states[-1], length)
    _count(curve, solver)
    curve.settled = reached.is_settled or (steps_since > PATIENCE and reached.is_within_error)
    return curve


def _why_stopped(steps_since: int, max_steps: int) -> str:
    if steps_since > PATIENCE:
        return f"the loss has not fallen for {steps_since} steps, which a lower rtol may cure"
    return f"{max_steps} steps were not enough"


def _count(curve: Curve, solver: OdeSolver) -> None:
    curve.evaluations += int(solver.nfev)
    curve.jacobians += int(solver.njev)


def _step(solver: OdeSolver) -> str | None:
    """One step; why it failed, where it did."""
    with warnings.catch_warnings():
        # What went wrong comes back as a status; trial points are allowed to go wrong.
        warnings.filterwarnings("ignore", message="lsoda:")
        message = solver.step()
    return (message or "the integrator failed") if solver.status == "failed" else None
