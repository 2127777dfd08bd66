"""Gradient descent: what flow is the small-step limit of.

    theta <- theta - step_size * c (dF/dtheta)^T X^T (X F(theta) - y)

Kept beside the flow to measure what finite steps change: `distance_to_limit` compares where the
descent ended with the limit of the flow. Products of two factors step in `lifted/descent.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from flowbias.flows._shown import descent_panel, descent_table
from flowbias.flows.destination import destination
from flowbias.flows.integrate import fit_model
from flowbias.flows.lifted.descent import LiftedDescent, descend_lifted
from flowbias.flows.loss import loss_constant
from flowbias.flows.parameter import ParameterCoordinates
from flowbias.flows.steps import DescentRequest, DescentStatus, take_steps
from flowbias.ground.drawing import picture, stems
from flowbias.ground.html import coefficients
from flowbias.ground.routing import first_fitting
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FAMILIES", "Descent", "DescentFamily", "DescentStatus", "gradient_descent"]


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
        solution: Solution = destination(self.model, self.problem)
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

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The residual over steps, and the coefficients at the end."""

        def ended(axes: Axes) -> None:
            stems(axes, self.w)

        return picture(descent_panel(self), ended, path=path, ax=ax)

    def _repr_html_(self) -> str:
        return descent_table(self, coefficients(self.w))

    def __repr__(self) -> str:
        return f"Descent({self.message}; seconds={self.seconds:.3g})"


@overload
def gradient_descent(
    model: LiftedModel,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
) -> LiftedDescent: ...


@overload
def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
) -> Descent: ...


def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
) -> Descent | LiftedDescent:
    """Gradient descent from `model` with a constant step, until the relative residual is small.

    One step of size h follows the flow for a time h; its result keeps an error of order h, which
    `distance_to_limit` measures.

    Products of two factors (`LinearNet`, `MatrixFactorization`) take outputs Y (n, m) or a matrix
    problem in place of X, and return a `LiftedDescent`, at a cost that does not depend on the
    width.

    >>> model = fb.DiagonalNet(depth=2, scale=0.1)
    >>> fb.gradient_descent(model, [[1.0, 2.0]], [1.0], step_size=0.01).w.round(3)
    array([0.068, 0.466])
    """
    family = first_fitting(model, FAMILIES)
    return family.descend(model, X, y, DescentRequest(step_size, max_steps, loss, residual))


def _descend_parameters(model: Any, X: Any, y: Any, request: DescentRequest) -> Descent:
    problem = as_regression(X, y)
    c = loss_constant(request.loss, len(problem.y))
    started = time.perf_counter()
    fit = fit_model(model, problem)
    coordinates = ParameterCoordinates(model, fit, c)
    step, last = request.step_size * c, [coordinates.start]

    def advance(state: FloatArray) -> FloatArray:
        return np.asarray(state + step * coordinates.velocity(0.0, state))

    def residual(state: FloatArray) -> float:
        return float(fit.residual(coordinates.predictor(state)))

    def visit(state: FloatArray) -> None:
        last[0] = state

    with threads_for(fit.rows):
        way = take_steps(coordinates.start, advance, residual, visit, request)
    return Descent(
        w=coordinates.predictor(last[0]),
        parameters=coordinates.parameters(last[0]),
        status=way.status,
        steps=len(way.residuals) - 1,
        seconds=time.perf_counter() - started,
        residual=np.array(way.residuals),
        step_size=request.step_size,
        model=model,
        problem=problem,
        _coordinates=coordinates,
    )


@dataclass(frozen=True)
class DescentFamily:
    """Models that descend in the same kind of unknowns."""

    needs: frozenset[Provides]
    descend: Callable[[Any, Any, Any, DescentRequest], Descent | LiftedDescent]


FAMILIES = (
    DescentFamily(frozenset({Provides.GRAM}), descend_lifted),
    DescentFamily(frozenset({Provides.PARAMETERS}), _descend_parameters),
)
