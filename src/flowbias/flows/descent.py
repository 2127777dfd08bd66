"""Gradient descent in parameter space: what flow is the small-step limit of.

    theta <- theta - step_size * c (dF/dtheta)^T X^T (X F(theta) - y)

Kept beside the flow to measure what finite steps change: `distance_to_limit` compares where the
descent ended with the limit of the flow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from flowbias._threads import threads_for
from flowbias._typing import FloatArray
from flowbias.flows.fit import Fit
from flowbias.flows.integrate import choose, fit_model
from flowbias.flows.journey import check_tolerance
from flowbias.flows.loss import loss_constant
from flowbias.flows.parameter import ParameterCoordinates
from flowbias.limits import limit
from flowbias.models._base import Parameters
from flowbias.problem import InputError, Regression, as_regression
from flowbias.solution import Solution

# Growth of the residual from which gradient descent does not come back.
_HOPELESS = 1e6


class DescentStatus(Enum):
    """How a descent ended."""

    CONVERGED = "converged: relative residual {residual:.1e} after {steps} steps"
    STOPPED = (
        "relative residual {residual:.1e} after {steps} steps: raise max_steps or step_size, or "
        "take limit(model, X, y), which does not iterate"
    )
    DIVERGED = (
        "diverged after {steps} steps: lower step_size = {step_size:g}; at the start it is stable "
        "below {stable:.2g}, and less where the weights grow"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Descent:
    """Where gradient descent ended; residual[i] is the relative residual after i steps."""

    w: FloatArray
    parameters: Parameters
    status: DescentStatus
    steps: int
    seconds: float
    residual: FloatArray
    step_size: float
    model: Any
    problem: Regression
    _coordinates: ParameterCoordinates

    @cached_property
    def limit(self) -> Solution:
        """The limit of gradient flow from the same start."""
        solution: Solution = limit(self.model, self.problem)
        return solution

    @property
    def distance_to_limit(self) -> float:
        """||w - limit|| / ||limit||: what finite steps and an early stop cost."""
        size = float(np.linalg.norm(self.limit.w)) or 1.0
        return float(np.linalg.norm(self.w - self.limit.w)) / size

    @cached_property
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        jacobian = self._coordinates.feature_jacobian(self._coordinates.start)
        return float(2.0 / (self._coordinates.time_rate * np.linalg.norm(jacobian, 2) ** 2))

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        return self.status.value.format(
            residual=self.residual[-1],
            steps=self.steps,
            step_size=self.step_size,
            stable=self.stable_step_size,
        )

    def __repr__(self) -> str:
        return f"Descent({self.message}; seconds={self.seconds:.3g})"


def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
) -> Descent:
    """Gradient descent from `model` with a constant step, until the relative residual is small.

    One step of size h follows the flow for a time h; its result keeps an error of order h, which
    `distance_to_limit` measures.
    """
    problem = as_regression(X, y)
    c = loss_constant(loss, len(problem.y))
    _check_steps(step_size, max_steps)
    check_tolerance("residual", residual)
    choose(model, ParameterCoordinates.name)
    started = time.perf_counter()
    fit = fit_model(model, problem)
    coordinates = ParameterCoordinates(model, fit, c)
    with threads_for(fit.rows):
        state, history, status = _descend(coordinates, fit, step_size * c, max_steps, residual)
    return Descent(
        w=coordinates.predictor(state),
        parameters=coordinates.parameters(state),
        status=status,
        steps=len(history) - 1,
        seconds=time.perf_counter() - started,
        residual=np.array(history),
        step_size=step_size,
        model=model,
        problem=problem,
        _coordinates=coordinates,
    )


def _check_steps(step_size: object, max_steps: object) -> None:
    if not isinstance(step_size, Real) or not 0.0 < float(step_size) < np.inf:
        raise InputError(f"step_size: must be > 0 and finite, got {step_size!r}. Try 1e-3.")
    if not isinstance(max_steps, Integral) or int(max_steps) < 1:
        raise InputError(
            f"max_steps: must be an integer >= 1, got {max_steps!r}. Try max_steps=100_000."
        )


def _descend(
    coordinates: ParameterCoordinates, fit: Fit, step: float, max_steps: int, residual: float
) -> tuple[FloatArray, list[float], DescentStatus]:
    state, history = coordinates.start, [_residual(coordinates, fit, coordinates.start)]
    for _ in range(max_steps):
        if history[-1] <= residual:
            return state, history, DescentStatus.CONVERGED
        moved = state + step * coordinates.velocity(0.0, state)
        now = _residual(coordinates, fit, moved)
        if not now < _HOPELESS * max(history[0], 1.0):
            return state, history, DescentStatus.DIVERGED
        state = moved
        history.append(now)
    converged = history[-1] <= residual
    return state, history, DescentStatus.CONVERGED if converged else DescentStatus.STOPPED


def _residual(coordinates: ParameterCoordinates, fit: Fit, state: FloatArray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(fit.residual(coordinates.predictor(state)))
