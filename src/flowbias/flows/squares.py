"""Descent of depth-2 diagonal networks, tied or not: steps multiply, whatever they see.

    w = p^2 - m^2,    p <- p (1 - x_k),    m <- m (1 + x_k),    x_k = rate * step * gradient in w

rate 2 for tied weights, p = w+ and m = w-; 1 for untied ones, where p^2 and m^2 are sums of squares
of u+ + v+, u- - v- and of u+ - v+, u- + v-, each of which every step multiplies by the same factor.
Flow would multiply by exp(-x_k) and exp(x_k). So the end of a descent is where the flow from

    p_eff = p exp(sum x_k),    m_eff = m exp(-sum x_k)

passes after the same sum of gradients; and as that lies in the span of the samples, a descent that
fits ends exactly at the limit of that flow (docs/theory/descent.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.effective import EffectiveStart
from flowbias.flows.samples import SampleProcess
from flowbias.flows.steps import State
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters

# Sizes whose squares and ratios are doubles.
_SMALLEST, _LARGEST = 1e-150, 1e150


class Squares(SampleProcess):
    """What moves is p and m, (runs, 2, d)."""

    @property
    def rate(self) -> float:
        return float(self.model.step_rate)

    def first(self, d: int) -> FloatArray:
        return _start(self.model, d)

    def predictor(self, moving: FloatArray) -> FloatArray:
        return np.asarray(np.square(moving[..., 0, :]) - np.square(moving[..., 1, :]))

    def advance(self, first: int, last: int) -> None:
        Z, spent = self.state[:2]
        p, m = Z[:, 0], Z[:, 1]
        w, work = self.predictors(), np.empty_like(Z)
        up, down = work[:, 0], work[:, 1]
        gradients = self.samples.gradients(self.seeds, first, last, w, spent)
        for step, x in enumerate(gradients, start=first):
            np.multiply(Z, x[:, None], work)
            if self.request.is_plain:
                np.subtract(p, up, p)
                np.add(m, down, m)
            else:
                self._carry(Z, work, step)
            np.multiply(Z, Z, work)
            np.subtract(up, down, w)

    def _carry(self, Z: FloatArray, work: FloatArray, step: int) -> None:
        """The same step with weight decay and momentum; `work` is |gradient| times step_size."""
        request, size = self.request, self.request.size(step)
        work[:, 1] *= -1.0
        if request.momentum == 0.0:
            Z *= 1.0 - size * request.weight_decay
            Z -= work
            return
        velocity = self.state[2]
        velocity *= request.momentum
        velocity += work
        if request.weight_decay:
            velocity += request.step_size * request.weight_decay * Z
        Z -= (size / request.step_size) * velocity

    def parameters(self, state: State) -> Parameters:
        weights: Parameters = self.model.with_squares(*state[0]).initial_parameters()
        return weights

    def effective(self, state: State) -> EffectiveStart:
        pull = self.pull(state)
        p, m = state[0] * np.exp([-pull, pull])
        if not np.isfinite([p, m]).all():
            raise InputError(
                "step_size: must let gradients add up to less than 700 for the effective start to "
                f"be a double, got {np.abs(pull).max():.1e} with steps of "
                f"{self.request.step_size:g}. Lower it where the descent diverges; weight decay "
                "balances gradients that never vanish, and ends at run.lasso instead."
            )
        absent = self.start == 0.0
        ratios = np.divide(self.start, state[0], out=np.ones_like(self.start), where=~absent)
        gain = np.sum(np.log(np.abs(ratios)), axis=0)
        return EffectiveStart(self.model.with_squares(p, m), gain, True)


def _start(model: Any, d: int) -> FloatArray:
    """p and m as doubles, (2, d)."""
    sides = model.squares
    start = np.stack([np.broadcast_to(side.value, (d,)) for side in sides])
    sizes = np.abs(start[np.stack([np.broadcast_to(side.sign, (d,)) for side in sides]) != 0.0])
    bad = ~((sizes > _SMALLEST) & (sizes < _LARGEST))
    if bad.any():
        raise InputError(
            f"model: must start at weights between {_SMALLEST:g} and {_LARGEST:g} in size to be "
            f"stepped, got {sizes[bad][0]:.1e}. fb.limit, fb.flow and fb.stages take any scale."
        )
    return start
