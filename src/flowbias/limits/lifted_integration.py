"""Weights at the limit of a flow by integration, twice by one integrator and once by another.

The last part of the way is solved for (`limits/last_step.py`). A flow that cannot fit its data,
because the width or the start keep it from that, is followed to where it rests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias._threads import threads_for
from flowbias._typing import FloatArray
from flowbias.flows.journey import TIGHTEST
from flowbias.flows.lifted import Setting
from flowbias.flows.lifted_coordinates import LiftedCoordinates, LiftedJourney
from flowbias.flows.march import Curve, Progress, march
from flowbias.limits.last_step import LastStep, step_to_fit, step_to_rest
from flowbias.limits.second_integrator import by_another

# Length of the last step relative to the weights: its square is below the rounding of a product.
_LAST_STEP = 1e-7
# Residual, or speed relative to its terms, from which on the last step is tried, and how far it
# has to fall before it is tried again.
_TRIED_FROM, _AGAIN = 1e-3, 0.3
# Factor between the two tolerances.
_COARSER = 100.0


@dataclass(frozen=True, eq=False)
class IntegratedWeights:
    """Weights at the limit, those of the other runs, and the square of the last step.

    is_rest   whether they are at rest with an error left, at a local minimum of the loss
    failure   why there is no limit, where there is none; there are no other runs then
    """

    weights: FloatArray
    others: list[FloatArray]
    tail: float
    integrators: list[str]
    steps: int
    is_rest: bool
    failure: str | None


def integrated_weights(setting: Setting, tol: float) -> IntegratedWeights:
    """To the limit at two tolerances, and once more by another integrator to the same time."""
    fine = min(max(1e-2 * tol, TIGHTEST), 1e-8)
    with threads_for(setting.compression.weights), np.errstate(over="ignore", invalid="ignore"):
        run = _Run.of(setting, fine)
        last, coordinates = run.last, run.coordinates
        name = "DOP853 and LSODA" if coordinates.is_implicit else "DOP853"
        is_rest, tail = run.journey.is_rest, last.length * last.length
        if not np.isfinite(last.length):
            failure = run.curve.failure or "the flow could not be followed to its end"
            return IntegratedWeights(last.weights, [], np.inf, [name], run.steps, is_rest, failure)
        coarse = _Run.of(setting, min(_COARSER * fine, 1e-6))
        others, names = [coarse.last.weights], [name]
        second = by_another(coordinates, run.curve, fine)
        if second.state is not None:
            names.append(second.name)
            others.append(run.journey.last_step(second.state).weights)
    steps = run.steps + coarse.steps
    return IntegratedWeights(last.weights, others, tail, names, steps, is_rest, None)


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

    def progress(self, state: FloatArray) -> Progress:
        reached = super().progress(state)
        if reached.is_over():
            return reached
        left = self._share * reached.residual
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
        return reached._replace(residual=speed) if self.is_rest else reached

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
    def of(cls, setting: Setting, rtol: float) -> _Run:
        coordinates = LiftedCoordinates(setting.compression, setting.fit, 1.0, setting.stiffness)
        journey = _LimitJourney(setting, coordinates, rtol)
        curve = march(journey, coordinates.start)
        return cls(coordinates, journey, curve, journey.last_step(curve.states[-1]))

    @property
    def steps(self) -> int:
        return len(self.curve.pieces)


def is_narrow(setting: Setting) -> bool:
    """Whether the width keeps U V^T from fitting what the data would allow."""
    return setting.root is not None and setting.fit.reachable is not setting.fit.target
