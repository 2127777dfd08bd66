"""Descent of the weights of any model, as `parameter_gradient` says."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from flowbias.flows.effective import EffectiveStart, taken_back
from flowbias.flows.parameter import ParameterLayout
from flowbias.flows.samples import SampleProcess
from flowbias.flows.steps import State
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.potentials import Provides


class Weights(SampleProcess):
    """What moves is all weights in one vector, (runs, weights).

    Runs are taken one after the other: only the model knows what its weights do.
    """

    @cached_property
    def _layout(self) -> ParameterLayout:
        return ParameterLayout(self.model.initial_parameters(), self.fit.rows.shape[1])

    def first(self, d: int) -> FloatArray:
        return self._layout.start

    def predictor(self, moving: FloatArray) -> FloatArray:
        if moving.ndim == 1:
            return np.asarray(self.model.predictor(self._layout.unflat(moving)))
        return np.stack([self.predictor(weights) for weights in moving])

    def advance(self, first: int, last: int) -> None:
        moving, spent = self.state[:2]
        w = self.predictors()
        gradients = self.samples.gradients(self.seeds, first, last, w, spent)
        for step, pulls in enumerate(gradients, start=first):
            for run, (weights, g) in enumerate(zip(moving, pulls, strict=True)):
                self._move(run, weights, g, step)
                w[run] = self.predictor(weights)

    def _move(self, run: int, weights: FloatArray, g: FloatArray, step: int) -> None:
        """One step of one run, in place; g comes multiplied by the step unless it is carried."""
        request = self.request
        share = request.size(step) / request.step_size
        change = self._layout.flat(self.model.parameter_gradient(self._layout.unflat(weights), g))
        decay = request.step_size * request.weight_decay * weights
        if request.momentum == 0.0:
            weights -= change + share * decay
            return
        velocity = self.state[2][run]
        velocity *= request.momentum
        velocity += change + decay
        weights -= share * velocity

    def parameters(self, state: State) -> Parameters:
        return self._layout.unflat(state[0])

    def effective(self, state: State) -> EffectiveStart | None:
        if Provides.RESTART not in self.model.provides:
            return None
        return taken_back(self.model, self.parameters(state), self.pull(state))
