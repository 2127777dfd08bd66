"""Stepping an integrator until a flow has converged, keeping every step for dense output.

The horizon of a flow is unknown: about log(1/scale) at depth 2, a negative power of the scale
beyond. So the integrator is stepped by hand and asked after each step. The loss never rises along
gradient flow: a step after which it has risen was not one of the flow, and is taken back. Where it
has risen by no more than the integrator's error, that has to become smaller.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.integrate import DOP853, LSODA, DenseOutput, OdeSolution, OdeSolver
from scipy.linalg import LinAlgWarning

from flowbias.flows.coordinates import FOREVER, FlowCoordinates
from flowbias.flows.fit import SETTLED, Quality
from flowbias.flows.request import TIGHTEST
from flowbias.flows.trajectory import FlowStatus
from flowbias.ground.typing import FloatArray

MAX_STEPS = 50_000
# Steps without a fall of a residual by FALL after which only the integrator's error moves.
PATIENCE, FALL = 500, 1e-3
# How often in a row a step may be taken back, each time with a first step this much shorter.
MAX_RETRIES, SHORTER = 8, 1e-2
# Rise of the misfit that counts as one; below it is what the integrator's tolerance allows.
RISE, NOISE = 1.1, 100.0
# Residual in units of rtol below which a flow that no longer falls may count as being at rest.
_REST = 1e3
# By how much rtol is lowered where it stands in the way.
TIGHTER = 1e-2
# Roundings of the state that may add up in the misfit, and the residual up to which a flow that
# they have stopped may still be called one that has ended.
_FEW, _STILL_A_FIT = 10.0, 1e-4


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


class Integration(Protocol):
    """What to integrate and when to stop."""

    rtol: float
    first_step: float

    def solver_at(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
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


def integrate(integration: Integration, start: FloatArray, max_steps: int = MAX_STEPS) -> Curve:
    """Step until the integration is done or settled, its integrator is at its end, or fails."""
    driver = _Driver(integration, start)
    if not driver.reached.is_over():
        driver.run(max_steps)
    driver.curve.settled = driver.is_at_rest()
    return driver.curve


class _Driver:
    """The loop of the driver and what it keeps from step to step."""

    def __init__(self, integration: Integration, start: FloatArray) -> None:
        self.integration = integration
        self.curve = Curve([np.array(start)])
        self.reached = integration.progress(start)
        self.noise = NOISE * integration.rtol * self.reached.misfit
        self.lowest, self.steps_since = self.reached.residuals, 0
        self.length, self.retries = integration.first_step, 0

    def is_at_rest(self) -> bool:
        if self.steps_since <= PATIENCE:
            return self.reached.is_settled
        return self.reached.is_within_error or self.integration.is_rounding(self.curve.states[-1])

    def _is_held_up(self) -> bool:
        return self.steps_since > PATIENCE and not self.reached.is_within_error

    def run(self, max_steps: int) -> None:
        curve, solver = self.curve, self._solver()
        while not self.reached.is_over() and solver.status != "finished":
            if self._is_held_up() and self.integration.tighten():
                # What keeps the residual up is the integrator's error, times a condition number.
                self.steps_since = 0
                solver = self._restart(solver, SHORTER)
            elif self.is_at_rest():
                break
            curve.failure = self._exhausted(max_steps)
            if curve.failure is not None:
                break
            reason = take_step(solver)
            # Of this step, or of the last that moved at all.
            self.length = float(solver.t) - curve.end or self.length
            ahead = self.integration.progress(np.asarray(solver.y))
            allowed = RISE * self.reached.misfit
            if reason is None and ahead.misfit <= allowed + self.noise:
                if ahead.misfit <= allowed or not self.integration.tighten():
                    self._accept(solver, ahead)
                else:
                    # An error as small as was asked of the integrator, but not next to the misfit.
                    solver = self._restart(solver, SHORTER)
                continue
            self.retries += 1
            if self.retries > MAX_RETRIES:
                curve.failure = reason or "the loss rises however short the step"
                self._count(solver)
                break
            solver = self._restart(solver, SHORTER)

    def _restart(self, solver: OdeSolver, shorter: float) -> OdeSolver:
        self._count(solver)
        self.length *= shorter
        return self._solver()

    def _solver(self) -> OdeSolver:
        curve = self.curve
        #: what the solvers before this one have cost
        self.before = curve.evaluations, curve.jacobians
        solver = self.integration.solver_at(curve.end, curve.states[-1], self.length)
        self._count(solver)
        return solver

    def _accept(self, solver: OdeSolver, ahead: FlowProgress) -> None:
        self.curve.states.append(np.array(solver.y))
        self.curve.times.append(float(solver.t))
        self.curve.pieces.append(solver.dense_output())
        self._count(solver)
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
        self.curve.evaluations = self.before[0] + int(solver.nfev)
        self.curve.jacobians = self.before[1] + int(solver.njev)


def take_step(solver: OdeSolver) -> str | None:
    """One step; why it failed, where it did."""
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # What went wrong comes back as a status; trial points are allowed to go wrong.
        warnings.filterwarnings("ignore", message="lsoda:")
        warnings.simplefilter("ignore", LinAlgWarning)
        before, message = solver.t, solver.step()
    if solver.status == "failed":
        # LSODA's own words are those of its return codes.
        words = "" if isinstance(solver, LSODA) else message
        return words or "the integrator finds no step that it can take from there"
    return "the step is below the spacing of numbers at that time" if solver.t == before else None


# --- to a residual, or to a time ----------------------------------------------------------------


class Judge(Protocol):
    """Says how well a predictor fits."""

    @property
    def size(self) -> float:
        """What the residual is relative to."""

    def quality(self, predictor: FloatArray, /) -> Quality:
        """Of all measurements in one, and of each by itself."""


class FlowIntegration:
    """The flow as the driver sees it: to a residual, or to the last of the times asked for."""

    def __init__(
        self,
        coordinates: FlowCoordinates,
        fit: Judge,
        rtol: float,
        atol: float | None,
        times: FloatArray | None,
        residual: float,
    ) -> None:
        self.coordinates, self.fit, self.rtol, self.asked_atol = coordinates, fit, rtol, atol
        size, duration = coordinates.natural_scales()
        self.size = size if atol is None else atol / rtol
        self.first_step = float(np.sqrt(rtol)) * duration
        self.residual = None if times is not None else residual
        with np.errstate(over="ignore"):  # beyond the end of all clocks
            last = np.inf if times is None else times[-1] * coordinates.time_rate
        self.end = float(min(last, FOREVER))

    @property
    def atol(self) -> float | FloatArray:
        """Absolute tolerances at the present rtol."""
        return self.rtol * self.size

    def solver_at(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
        step = min(first_step, self.end - time)
        options: Any = {"first_step": step, "rtol": self.rtol, "atol": self.atol}
        return self.coordinates.solver(time, state, self.end, **options)

    def tighten(self) -> bool:
        if self.rtol <= TIGHTEST:
            return False
        self.rtol = max(TIGHTER * self.rtol, TIGHTEST)
        return True

    def is_rounding(self, state: FloatArray) -> bool:
        quality = self.fit.quality(self.coordinates.predictor(state))
        undecided = _FEW * self.coordinates.rounding(state)
        return quality.within(_STILL_A_FIT) and bool(np.all(quality.left <= undecided))

    def progress(self, state: FloatArray) -> FlowProgress:
        quality = self.fit.quality(self.coordinates.predictor(state))
        if self.residual is None:
            asked, is_done = SETTLED, self.end == 0.0
            is_close = quality.within(_REST * self.rtol)
        else:
            asked, is_close = self.residual, False
            is_done = quality.residual <= asked and quality.within(asked)
        # Of what is as small as asked for, no rise is a fault and no fall a progress.
        misfit = max(quality.misfit, asked * self.fit.size)
        left, is_settled = np.append(quality.shares, quality.residual), quality.is_settled
        residuals = np.append(np.maximum(left, asked), self.coordinates.ahead(state))
        stage = self.coordinates.stage(state)
        return FlowProgress(misfit, residuals, is_done, is_settled, is_close, stage)

    def status(self, curve: Curve) -> FlowStatus:
        status = FlowStatus.STOPPED
        if self.residual is None:
            status = FlowStatus.STOPPED if curve.failure else FlowStatus.FOLLOWED
        elif self.progress(curve.states[-1]).is_done:
            status = FlowStatus.CONVERGED
        elif curve.settled:
            status = FlowStatus.AT_REST
        is_tied = status.ok and self.coordinates.undecided(curve.states)
        return FlowStatus.TIED if is_tied else status


def sampled(
    curve: Curve, coordinates: FlowCoordinates, times: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Times and states to return: all steps, or those asked for as far as they were reached."""
    if times is None:
        return coordinates.times(np.array(curve.times)), np.array(curve.states)
    if curve.failure is not None:
        end = float(coordinates.times(np.array([curve.end]))[0])
        times = np.append(times[times < end], end)
    return times, curve(coordinates.readings(times))


class Dop853Replayed(DOP853):
    """DOP853 that keeps no polynomials: a state between two steps is a shorter step from the first.

    The interpolant of the method holds eight states per step and costs three evaluations more,
    for each of many steps of which few are ever looked into; and it is of lower order.
    """

    def _dense_output_impl(self) -> DenseOutput:
        return _Replay(self)


class _Replay(DenseOutput):
    def __init__(self, solver: Any) -> None:
        super().__init__(solver.t_old, solver.t)
        self._velocity, self._from = solver.fun, np.asarray(solver.y_old)
        self._rtol, self._atol = solver.rtol, solver.atol

    def _call_impl(self, t: FloatArray) -> FloatArray:
        if t.ndim == 0:
            return self._at(float(t))
        return np.stack([self._at(float(time)) for time in t], axis=1)

    def _at(self, time: float) -> FloatArray:
        if time <= self.t_old:
            return self._from
        solver = DOP853(
            self._velocity,
            self.t_old,
            self._from,
            time,
            rtol=self._rtol,
            atol=self._atol,
            first_step=time - self.t_old,
        )
        while solver.status == "running":
            solver.step()
        return np.asarray(solver.y)


class StiffAware:
    """Explicit steps until they are held back by stability alone, implicit ones from there on.

    A flow from a small start grows some directions to size one and leaves others at the size of the
    start, so that its rates lie as far apart as the two. Where that is known only on the way.
    """

    def __init__(
        self,
        explicit: OdeSolver,
        implicit: Callable[[float, FloatArray, float], OdeSolver],
        is_held_back: Callable[[FloatArray, float], bool],
    ) -> None:
        self._solver, self._implicit, self._is_held_back = explicit, implicit, is_held_back
        self._steps, self._evaluations = 0, 0
        self._has_switched = self._is_due = False

    def step(self) -> str | None:
        if self._is_due:
            # Only now: until here the last step could be asked for its interpolant.
            before, self._is_due, self._has_switched = self._solver, False, True
            self._evaluations = int(before.nfev)
            self._solver = self._implicit(self.t, self.y, float(before.step_size or 0.0))
        message = self._solver.step()
        self._steps += 1
        # Explicit steps are looked at every so often: fewer are soon done.
        is_time = self._steps % 300 == 0
        if is_time and not self._has_switched and self.status == "running":
            self._is_due = self._is_held_back(self.y, float(self._solver.step_size or 0.0))
        return message

    def dense_output(self) -> DenseOutput:
        return self._solver.dense_output()

    @property
    def t(self) -> float:
        return float(self._solver.t)

    @property
    def y(self) -> FloatArray:
        return np.asarray(self._solver.y)

    @property
    def status(self) -> str:
        return str(self._solver.status)

    @property
    def nfev(self) -> int:
        return self._evaluations + int(self._solver.nfev)

    @property
    def njev(self) -> int:
        return int(self._solver.njev)
