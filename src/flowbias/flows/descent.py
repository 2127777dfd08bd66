"""Gradient descent: what flow is the small-step limit of.

    theta <- theta - step_size * c (dF/dtheta)^T X^T (X F(theta) - y)

Kept beside the flow to measure what finite steps change: `distance_to_limit` compares where the
descent ended with the limit of the flow. Products of two factors step in `lifted/descent.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from flowbias.flows.integrate import fit_model
from flowbias.flows.lifted.descent import LiftedDescent, descend_lifted
from flowbias.flows.loss import loss_constant
from flowbias.flows.parameter import ParameterCoordinates
from flowbias.flows.steps import BaseDescent, DescentRequest, DescentStatus, take_steps
from flowbias.ground.drawing import Panel, stems
from flowbias.ground.html import coefficients
from flowbias.ground.routing import first_fitting
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.regression import as_regression
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FAMILIES", "Descent", "DescentFamily", "DescentStatus", "gradient_descent"]


@dataclass(frozen=True, eq=False, repr=False)
class Descent(BaseDescent[Solution]):
    """Where gradient descent ended; residual[i] is the relative residual after i steps."""

    w: FloatArray
    parameters: Parameters
    _coordinates: ParameterCoordinates

    @property
    def _end(self) -> FloatArray:
        return self.w

    @cached_property
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        jacobian = self._coordinates.feature_jacobian(self._coordinates.start)
        return float(2.0 / (self._coordinates.time_rate * np.linalg.norm(jacobian, 2) ** 2))

    def _panels(self) -> tuple[Panel, ...]:
        """The residual over steps, and the coefficients at the end."""

        def ended(axes: Axes) -> None:
            stems(axes, self.w)

        return self._residuals, ended

    def _looks(self) -> Mapping[str, str | float]:
        return coefficients(self.w)


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

    Parameters
    ----------
    model : the network at its start; products of two factors (`LinearNet`, `MatrixFactorization`)
        too, at a cost that does not depend on the width
    X, y : the data, or a `Regression` in place of X; outputs Y (n, m) or a matrix problem for
        products
    step_size : h
    max_steps : when to give up
    loss, residual : as for `flow`

    Returns
    -------
    Descent; a `LiftedDescent` for products

    Raises
    ------
    InputError for data or a model that cannot be used

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
        taken = take_steps(coordinates.start, advance, residual, visit, request)
    return Descent(
        w=coordinates.predictor(last[0]),
        parameters=coordinates.parameters(last[0]),
        status=taken.status,
        steps=len(taken.residuals) - 1,
        seconds=time.perf_counter() - started,
        residual=np.array(taken.residuals),
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
