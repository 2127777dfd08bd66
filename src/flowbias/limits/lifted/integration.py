"""Weights at the limit of a flow by integration, twice by one integrator and once by another.

The last part of the way is solved for (`last_step.py`). A flow that cannot fit its data,
because the width or the start keep it from that, is followed to where it rests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.flows.journey import TIGHTEST
from flowbias.flows.lifted.coordinates import LiftedCoordinates, LiftedJourney
from flowbias.flows.lifted.flow import AT_REST, Setting
from flowbias.flows.march import Curve, FlowProgress, march
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.last_step import LastStep, step_to_fit, step_to_rest
from flowbias.limits.lifted.near_saddle import (
    LEFT_BY_ROUNDING,
    NUDGE,
    slowest_before,
    where_apart,
)
from flowbias.limits.lifted.second_integrator import by_another

# Length of the last step relative to the weights: its square is below the rounding of a product.
_LAST_STEP = 1e-7
# Residual, or speed relative to its terms, from which on the last step is tried, and how far it
# has to fall before it is tried again.
_TRIED_FROM, _AGAIN = 1e-3, 0.3
# Factor between the two tolerances.
_COARSER = 100.0
# Where the integrator gave up, a last step longer than this leads nowhere.
_LONGEST_LAST_STEP = 0.1


@dataclass(frozen=True, eq=False)
class IntegratedWeights:
    """Weights at the limit, those of the other runs, and the square of the last step.

    is_rest   whether they are at rest with an error left, at a local minimum of the loss
    integrators  their names; where there is only one, why
    failure   why there is no limit, where there is none; there are no other runs then
    """

    weights: FloatArray
    others: list[FloatArray]
    tail: float
    integrators: str
    steps: int
    is_rest: bool
    failure: str | None


def integrated_weights(setting: Setting, tol: float) -> IntegratedWeights:
    """To the limit at two tolerances, and once more by another integrator to the same time."""
    fine = min(max(1e-2 * tol, TIGHTEST), 1e-8)
    # Steps that are too long overflow, and kernels that see nothing divide by zero: both are seen.
    quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
    with threads_for(setting.compression.weights), quiet:
        run = _Run.of(setting, fine)
        last, coordinates, is_rest = run.last, run.coordinates, run.journey.is_rest
        names, tail = _integrators(coordinates), last.length * last.length
        coarse = _Run.of(setting, min(_COARSER * fine, 1e-6), NUDGE)
        steps = run.steps + coarse.steps
        saddle = _saddle_left_by_rounding(run, coarse)
        if saddle is not None:
            return IntegratedWeights(saddle, [], np.inf, names, steps, is_rest, LEFT_BY_ROUNDING)
        if run.is_lost:
            end = coordinates.shaped(run.curve.states[-1])
            return IntegratedWeights(end, [], np.inf, names, steps, is_rest, _why(run))
        others = [coarse.last.weights]
        second = by_another(setting, coordinates, run.curve, fine, is_rest)
        if second.state is None:
            names += f" alone ({second.name})"
        else:
            names += f" and {second.name}"
            others.append(run.journey.last_step(second.state).weights)
    return IntegratedWeights(last.weights, others, tail, names, steps, is_rest, None)


def _why(run: _Run) -> str:
    """Why a run has no end."""
    if run.coordinates.relative_speed(run.curve.states[-1]) <= AT_REST:
        return "it comes to rest at a saddle of the loss, in a set that the flow does not leave"
    return run.curve.failure or "the flow could not be followed to its end"


def _saddle_left_by_rounding(run: _Run, nudged: _Run) -> FloatArray | None:
    """The weights nearest to a saddle that only rounding makes the flow leave, if there is one."""
    node = where_apart(run.curve, nudged.curve, run.coordinates)
    return None if node is None else slowest_before(run.curve, run.coordinates, node)


def _integrators(coordinates: LiftedCoordinates) -> str:
    """Of the first run: explicit steps, implicit ones, or one after the other."""
    if coordinates.implicit_from is None:
        return "DOP853"
    return "LSODA" if coordinates.implicit_from == 0.0 else "DOP853, LSODA"


class _LimitJourney(LiftedJourney):
    """A flow that is over when what is left is one small step."""

    def __init__(self, setting: Setting, coordinates: LiftedCoordinates, rtol: float) -> None:
        super().__init__(coordinates, setting.fit, rtol, None, None, 1e-13)
        self._setting = setting
        self._tried_fit = self._tried_rest = _TRIED_FROM / _AGAIN
        # A target may be tiny next to the start: relative to it nothing but rounding may be left.
        start = setting.fit.quality(coordinates.predictor(coordinates.start)).misfit
        self._share = setting.fit.size / max(setting.fit.size, start)
        #: whether what is ahead is a state of rest with an error left, not a fit
        self.is_rest = is_narrow(setting)

    def progress(self, state: FloatArray) -> FlowProgress:
        reached = super().progress(state)
        if reached.is_over():
            return reached
        left = self._share * float(reached.residuals.max())
        if not self.is_rest and left <= _AGAIN * self._tried_fit:
            self._tried_fit = left
            return reached._replace(is_done=self.last_step(state).length <= _LAST_STEP)
        # With an error left the residual stays while the pulls on the weights come to cancel.
        speed = self.coordinates.relative_speed(state)
        if speed <= _AGAIN * self._tried_rest:
            self._tried_rest = speed
            length = step_to_rest(self.coordinates, self.coordinates.shaped(state)).length
            # Not so near a saddle, which the flow may take long to leave.
            self.is_rest = is_narrow(self._setting) or np.isfinite(length)
            reached = reached._replace(is_done=length <= _LAST_STEP)
        if not self.is_rest:
            return reached
        return reached._replace(residuals=np.full_like(reached.residuals, speed))

    def last_step(self, state: FloatArray) -> LastStep:
        weights = self.coordinates.shaped(state)
        if self.is_rest:
            return step_to_rest(self.coordinates, weights)
        return step_to_fit(self._setting, weights)


@dataclass(frozen=True, eq=False)
class _Run:
    """One integration to the limit, and its last step."""

    coordinates: LiftedCoordinates
    journey: _LimitJourney
    curve: Curve
    last: LastStep

    @classmethod
    def of(cls, setting: Setting, rtol: float, nudge: float = 0.0) -> _Run:
        """From the start, or from next to it: weights off by `nudge`, relative to each."""
        coordinates = LiftedCoordinates(setting.compression, setting.fit, 1.0, setting.stiffness)
        journey = _LimitJourney(setting, coordinates, rtol)
        start = coordinates.start
        start = start * (1.0 + nudge * np.cos(np.arange(start.size)))
        curve = march(journey, start)
        return cls(coordinates, journey, curve, journey.last_step(curve.states[-1]))

    @property
    def is_lost(self) -> bool:
        """Whether no end is known, or only one that is far from where the integrator gave up."""
        has_failed = self.curve.failure is not None
        return not self.last.length < (_LONGEST_LAST_STEP if has_failed else np.inf)

    @property
    def steps(self) -> int:
        return len(self.curve.pieces)


def is_narrow(setting: Setting) -> bool:
    """Whether the width keeps U V^T from fitting what the data would allow."""
    return setting.root is not None and setting.fit.reachable is not setting.fit.target
