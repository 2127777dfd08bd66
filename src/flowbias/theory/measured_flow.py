"""Gradient flow as the theorems mean it: in parameter space, sharing nothing with the dual view.

The pull G = -c X^T (X w - y) is integrated beside the weights. Its integral over time is what
every closed form of the papers is written in, since X^T int r = -(1/c) int G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.flows import Trajectory, flow
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import MirrorModel, Model, Parameters
from flowbias.problems.regression import Regression

# Local error per step of the integrator, and the relative residual at which a flow counts as done.
RTOL = 1e-11
RESIDUAL = 1e-11
# Local errors of some hundred steps add up, since nothing pulls the weights back along a set of
# solutions; near the poles of depth D >= 3 the closed forms magnify them by up to 1e3 more.
FLOW_TOLERANCE = 1e-6
FLOW_ORIGIN = (
    "parameter-space flow at rtol 1e-11: some hundred local errors, magnified by up to 1e3"
)


class WithPull(Model):
    """A model that carries the integral of the pull as one more parameter, which nothing reads."""

    def __init__(self, model: Model, d: int) -> None:
        self.model, self.d = model, d

    def initial_parameters(self) -> Parameters:
        inner = self.model.initial_parameters()
        parts = [np.broadcast_to(np.asarray(part, dtype=np.float64), (self.d,)) for part in inner]
        return (*parts, np.zeros(self.d))

    def predictor(self, parameters: Parameters) -> FloatArray:
        return self.model.predictor(parameters[:-1])

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        # g is the pull itself, so that the last parameter integrates it.
        return (*self.model.parameter_gradient(parameters[:-1], g), g)


@dataclass(frozen=True)
class Snapshot:
    """Weights, predictor and integrated pull at one time of the flow."""

    t: float
    parameters: Parameters
    w: FloatArray
    pull: FloatArray  # int_0^t G


@dataclass(frozen=True)
class MeasuredFlow:
    """Snapshots at increasing times, and the constant c of the loss."""

    snapshots: tuple[Snapshot, ...]
    loss_constant: float

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]


def follow(
    model: MirrorModel,
    problem: Regression,
    t: ArrayLike | None = None,
    loss: str | float = "half",
) -> MeasuredFlow:
    """The flow at the times t, or at its end (relative residual 1e-11) where none are given."""
    carrier = WithPull(model, problem.X.shape[1])
    times = None if t is None else np.atleast_1d(np.asarray(t, dtype=np.float64))
    trajectory = flow(carrier, problem, t=times, loss=loss, rtol=RTOL, residual=RESIDUAL)
    wanted = [trajectory.t[-1]] if times is None else times
    snapshots = tuple(_snapshot(trajectory, model, float(time)) for time in wanted)
    return MeasuredFlow(snapshots, trajectory.loss_constant)


def _snapshot(trajectory: Trajectory, model: Any, t: float) -> Snapshot:
    parts = trajectory.parameters(t)
    weights = parts[:-1]
    return Snapshot(t, weights, model.predictor(weights), parts[-1])
