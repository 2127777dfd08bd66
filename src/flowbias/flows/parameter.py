"""The flow in parameter space, as it is written in the papers.

    d theta/dt = -c (dF/dtheta)^T X^T (X F(theta) - y)

For models without a potential, and to check the others: it shares nothing with the dual route but
the integrator. A model needs initial_parameters, predictor and parameter_gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import DOP853, OdeSolver

from flowbias.flows.coordinates import FlowCoordinates, stiff_solver
from flowbias.flows.fit import ReachableFit
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters

# Up to here implicit steps pay: their Jacobian, by differences, takes one evaluation per parameter.
_IMPLICIT_UP_TO = 400


class ParameterLayout:
    """Parameters as one vector and back; shape () becomes one value per feature."""

    def __init__(self, initial: Parameters, d: int) -> None:
        parts = [np.asarray(part, dtype=np.float64) for part in initial]
        parts = [np.broadcast_to(part, (d,)) if part.ndim == 0 else part for part in parts]
        self.shapes = [part.shape for part in parts]
        self.cuts = np.cumsum([part.size for part in parts])[:-1]
        # A NamedTuple stays one, so that a model can go on using its names.
        self.rebuild: Any = getattr(type(initial), "_make", tuple)
        self.start = self.flat(tuple(parts))

    def flat(self, parameters: Parameters) -> FloatArray:
        return np.concatenate([np.ravel(part) for part in parameters])

    def unflat(self, state: FloatArray) -> Parameters:
        parts = np.split(state, self.cuts)
        shaped = (part.reshape(s) for part, s in zip(parts, self.shapes, strict=True))
        parameters: Parameters = self.rebuild(shaped)
        return parameters


class ParameterCoordinates(FlowCoordinates):
    """All weights in one vector, on the time tau = c t."""

    name = "parameter"

    def __init__(self, model: Any, fit: ReachableFit, c: float) -> None:
        self.model, self.fit, self.time_rate = model, fit, c
        self.layout = ParameterLayout(model.initial_parameters(), fit.rows.shape[1])
        self.start = self.layout.start

    def predictor(self, states: FloatArray) -> FloatArray:
        if states.ndim == 1:
            return np.asarray(self.model.predictor(self.layout.unflat(states)))
        return np.stack([self.predictor(state) for state in states])

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        parameters = self.layout.unflat(state)
        # Trial points of a step that is too long may overflow; the step is then retried shorter.
        with np.errstate(over="ignore", invalid="ignore"):
            pull = self.fit.pull(np.asarray(self.model.predictor(parameters))) @ self.fit.rows
            return self.layout.flat(self.model.parameter_gradient(parameters, pull))

    def solver(
        self,
        time: float,
        state: FloatArray,
        end: float,
        first_step: float,
        rtol: float,
        atol: float,
    ) -> OdeSolver:
        if state.size <= _IMPLICIT_UP_TO:
            kind = stiff_solver(time)
            return kind(
                self.velocity, time, state, end, first_step=first_step, rtol=rtol, atol=atol
            )
        return DOP853(self.velocity, time, state, end, first_step=first_step, rtol=rtol, atol=atol)

    def natural_scales(self) -> tuple[float, float]:
        sizes = np.abs(self.start[self.start != 0.0])
        # Weights grow by factors from their start: the smallest one must be followed as well.
        return float(sizes.min()) if sizes.size else 1.0, self._natural_time()

    # What leaves the double range is refused at the end.
    @np.errstate(over="ignore", invalid="ignore")
    def _natural_time(self) -> float:
        """Time in which either the weights or their velocity change by about their own size."""
        speed = self.velocity(0.0, self.start)
        size, pace = extended.length(self.start), extended.length(speed)
        if size == 0.0 or pace == 0.0:
            return 1.0
        probe = 1e-6 * size / pace
        ahead = self.velocity(0.0, self.start + probe * speed)
        change = extended.length(ahead - speed) / probe if probe > 0.0 else np.inf
        natural = size / pace if change == 0.0 else min(size / pace, pace / change)
        if not 0.0 < natural < np.inf:
            raise InputError(
                "X, y: must leave the flow's speed and its change in the double range, got "
                f"{pace:.1e} and {change:.1e}. Rescale X, y and the start: it multiplies them by "
                "themselves and by each other."
            )
        return natural

    def feature_jacobian(self, state: FloatArray) -> FloatArray:
        """Derivative of A F(theta), one row per row of A."""
        parameters = self.layout.unflat(state)
        gradients = (self.model.parameter_gradient(parameters, row) for row in self.fit.rows)
        return np.stack([self.layout.flat(gradient) for gradient in gradients])

    def parameters(self, state: FloatArray) -> Parameters:
        return self.layout.unflat(state)
