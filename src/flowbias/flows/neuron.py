"""The flow of one linear neuron in rank(X) + 1 unknowns, however many features there are.

    w = w(0) + A^T nu,    a' = c <A w, b - a A w>,    nu' = c a (b - a A w)

A w = A w(0) + A A^T nu costs n^2: no product with all features is needed on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import OdeSolver

from flowbias.flows.coordinates import FlowCoordinates, stiff_solver
from flowbias.flows.fit import ReachableFit
from flowbias.flows.request import check_sizes
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.models.neuron import Neuron, NeuronWeights


class NeuronCoordinates(FlowCoordinates):
    """(a, nu) on the time tau = c t."""

    name = "neuron"

    def __init__(self, model: Neuron, fit: ReachableFit, c: float) -> None:
        check_sizes(
            {
                "X": float(np.abs(fit.rows).max()),
                "y": float(np.abs(fit.target).max()),
                "a, w": max(abs(model.a), float(np.abs(model.w).max())),
            }
        )
        self.model, self.fit, self.time_rate = model, fit, c
        self.start = np.concatenate([[model.a], np.zeros(len(fit.rows))])
        self._first = fit.rows @ model.w
        self._gram = fit.rows @ fit.rows.T

    def predictor(self, states: FloatArray) -> FloatArray:
        inner = self.model.w + states[..., 1:] @ self.fit.rows
        return np.asarray(states[..., :1] * inner)

    # Trial points of a step that is too long may overflow; the step is then retried shorter.
    @np.errstate(over="ignore", invalid="ignore")
    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        inputs = self._first + self._gram @ state[1:]
        pull = self.fit.target - state[0] * inputs
        return np.concatenate([[inputs @ pull], state[0] * pull])

    @np.errstate(over="ignore", invalid="ignore")
    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        a, inputs = state[0], self._first + self._gram @ state[1:]
        matrix = np.empty((state.size, state.size))
        slack = self.fit.target - 2.0 * a * inputs
        matrix[0, 0] = -float(inputs @ inputs)
        matrix[0, 1:] = self._gram @ slack
        matrix[1:, 0] = slack
        matrix[1:, 1:] = -(a**2) * self._gram
        return matrix

    def solver(
        self,
        time: float,
        state: FloatArray,
        end: float,
        first_step: float,
        rtol: float,
        atol: float,
    ) -> OdeSolver:
        # nu has units of its own: it moves w by as much as a moves.
        sizes = np.full(state.size, atol)
        sizes[1:] /= float(np.sqrt(self._gram.diagonal().max()))
        return stiff_solver(time)(
            self.velocity,
            time,
            state,
            end,
            first_step=first_step,
            rtol=rtol,
            atol=sizes,
            jac=self.jacobian,
        )

    def natural_scales(self) -> tuple[float, float]:
        size = max(abs(self.model.a), extended.length(self.model.w))
        speed = self.velocity(0.0, self.start)
        speed[1:] *= float(np.sqrt(self._gram.diagonal().max()))
        pace = float(np.linalg.norm(speed))
        change = float(np.abs(self._gram).sum(axis=1).max()) * size**2
        duration = size / pace if pace > 0.0 else np.inf
        return size, min(duration, 1.0 / change if change > 0.0 else np.inf, 1e300)

    def dual(self, states: FloatArray) -> FloatArray | None:
        """3/2 sign(a) nu, in units of X's rows; NaN once a has left the sign of its start."""
        kept = states[..., :1] * self.model.a > 0.0
        nu = 1.5 * float(np.sign(self.model.a)) * states[..., 1:]
        return self.fit.dual_of_data(np.where(kept, nu, np.nan))

    def rounding(self, state: FloatArray) -> FloatArray:
        # nu's slow directions may be large where its stiff ones would need more digits.
        moved = np.abs(self._gram) @ np.abs(state[1:]) + np.abs(self._first)
        return np.asarray(np.finfo(float).eps * abs(state[0]) * moved)

    def parameters(self, state: FloatArray) -> Parameters:
        w: Any = self.model.w + state[1:] @ self.fit.rows
        return NeuronWeights(state[:1], w)
