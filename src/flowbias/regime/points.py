"""A network at one point of its parameters, as far as regimes are concerned.

Outputs, tangent kernel and inputs that it was not trained on; a torch module and a model of the
library offer the same three. All in double precision: gaps between functions are differences.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias._typing import FloatArray
from flowbias.flows.parameter import ParameterLayout
from flowbias.kernels.layout import as_array, kernel_matrix
from flowbias.kernels.module_input import Network, check_finite, gradients
from flowbias.kernels.tangent import declared_by, tangent_kernel
from flowbias.matrix_problem import MatrixProblem
from flowbias.models._base import Model, Parameters
from flowbias.potentials import Provides
from flowbias.problem import InputError, checked_array
from flowbias.regime.adjustable import AdjustableModule, AdjustablePredictor, AdjustableProduct
from flowbias.regime.fresh_inputs import fresh_inputs
from flowbias.regime.leanest import Adjustable
from flowbias.routing import first_fitting


class Point(ABC):
    """What a diagnosis asks of a network with fixed parameters."""

    #: what the functions of `kernels` take
    subject: Any

    @abstractmethod
    def outputs(self, x: Any) -> FloatArray:
        """f(x): (samples, outputs)."""

    @abstractmethod
    def inputs_elsewhere(self, x: Any) -> Any:
        """Inputs that tell functions apart which agree on x."""

    @abstractmethod
    def count(self, x: Any) -> int:
        """Samples of x."""

    @abstractmethod
    def adjustable(self, x: Any, new: Any, max_memory: int | str) -> Adjustable:
        """A copy whose parameters can be set."""

    def kernel(self, x1: Any, x2: Any, max_memory: int | str) -> FloatArray:
        """K(x1, x2) as a matrix, (n1 outputs, n2 outputs)."""
        found = tangent_kernel(self.subject, x1, x2, max_memory=max_memory)
        return kernel_matrix(found).astype(np.float64)


@dataclass(frozen=True)
class ModulePoint(Point):
    """A torch module; x is a tensor, or a tuple of them."""

    subject: Any

    @classmethod
    def of(cls, module: Any) -> ModulePoint:
        network = Network.read(module)
        torch = require_torch()
        # Parameters that the caller goes on training must not move ours.
        return cls(copy.deepcopy(network.module).to(torch.float64))

    @property
    def network(self) -> Network:
        return Network.read(self.subject)

    def read(self, name: str, x: Any) -> Any:
        """x on our device and in our precision."""
        network = self.network
        parts = network.read_inputs(name, x)
        return tuple(part.to(network.dtype) if part.is_floating_point() else part for part in parts)

    def outputs(self, x: Any) -> FloatArray:
        with gradients(on=False):
            found = self.network.outputs(x)
        check_finite(found, "x", 0)
        return np.asarray(as_array(found), dtype=np.float64)

    def inputs_elsewhere(self, x: Any) -> Any:
        torch = require_torch()
        drawn = fresh_inputs([as_array(part) for part in x])
        return tuple(
            torch.as_tensor(values).to(part) for values, part in zip(drawn, x, strict=True)
        )

    def count(self, x: Any) -> int:
        return len(x[0])

    def adjustable(self, x: Any, new: Any, max_memory: int | str) -> Adjustable:
        return AdjustableModule(self.subject, x, new, max_memory)


class AtParameters(Model):
    """A model of the library with its parameters replaced: where training took it."""

    def __init__(self, model: Any, parameters: Parameters) -> None:
        self.model, self._at = model, parameters

    def initial_parameters(self) -> Parameters:
        return self._at

    def predictor(self, parameters: Parameters) -> FloatArray:
        return np.asarray(self.model.predictor(parameters))

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        found: Parameters = self.model.parameter_gradient(parameters, g)
        return found


@dataclass(frozen=True)
class PredictorPoint(Point):
    """A model with a linear predictor, f(x) = <w, x>; x is samples x features."""

    subject: Any

    def outputs(self, x: Any) -> FloatArray:
        w = self.subject.predictor(self.subject.initial_parameters())
        return np.asarray(np.asarray(x) @ w)[:, None]

    def inputs_elsewhere(self, x: Any) -> Any:
        # The units of w: distances between functions are those between predictors.
        return np.eye(np.shape(x)[1])

    def count(self, x: Any) -> int:
        return len(x)

    def adjustable(self, x: Any, new: Any, max_memory: int | str) -> Adjustable:
        return AdjustablePredictor(self.subject, x, new)


@dataclass(frozen=True)
class ProductPoint(Point):
    """A product U V^T; x is samples x features, a stack of matrices, or a matrix problem."""

    subject: Any

    def outputs(self, x: Any) -> FloatArray:
        product = self.subject.product
        if isinstance(x, MatrixProblem):
            return np.asarray(x.measure(product)).reshape(-1, 1)
        given = np.asarray(x)
        if given.ndim == 3:
            return np.asarray(np.einsum("nij,ij->n", given, product))[:, None]
        return np.asarray(given @ product)

    def inputs_elsewhere(self, x: Any) -> Any:
        rows, columns = self.subject.shape
        if not isinstance(x, MatrixProblem) and np.ndim(x) == 2:
            return np.eye(rows)
        return np.eye(rows * columns).reshape(-1, rows, columns)

    def count(self, x: Any) -> int:
        return len(self.outputs(x))

    def adjustable(self, x: Any, new: Any, max_memory: int | str) -> Adjustable:
        return AdjustableProduct(self.subject, x, new)


@dataclass(frozen=True)
class Reading:
    """How two models of the library, or a model and parameters, become two points."""

    needs: frozenset[Provides]
    points: Callable[[Any, Any, Any], tuple[Point, Point]]


def _predictor_points(before: Any, after: Any, x: Any) -> tuple[Point, Point]:
    features = checked_array("x", x, 2).shape[1]
    first = _at_parameters(before, before.initial_parameters(), features)
    trained = after.initial_parameters() if declared_by(after) else after
    second = _at_parameters(before, trained, features)
    return PredictorPoint(first), PredictorPoint(second)


def _at_parameters(model: Any, parameters: Any, features: int) -> AtParameters:
    """With a shared value written out for each feature, so that each can move on its own."""
    layout = ParameterLayout(parameters, features)
    own = ParameterLayout(model.initial_parameters(), features)
    if layout.shapes != own.shapes:
        raise InputError(
            f"after: must have the parameters of before, of shapes {own.shapes}, got "
            f"{layout.shapes}. Pass what a flow from `before` ends at."
        )
    return AtParameters(model, layout.unflat(layout.start))


def _product_points(before: Any, after: Any, x: Any) -> tuple[Point, Point]:
    del x  # factors say all about their sizes
    second = after if declared_by(after) else type(before)(*after)
    if second.shape != before.shape:
        raise InputError(
            f"after: must have the shape of before, {before.shape}, got {second.shape}. "
            "Pass one product at two points."
        )
    return ProductPoint(before), ProductPoint(second)


READINGS = (
    Reading(frozenset({Provides.PARAMETERS}), _predictor_points),
    Reading(frozenset({Provides.GRAM}), _product_points),
)


def model_points(before: Any, after: Any, x: Any) -> tuple[Point, Point]:
    """The two points of a model of the library."""
    return first_fitting(before, READINGS).points(before, after, x)


def module_points(before: Any, after: Any) -> tuple[ModulePoint, ModulePoint]:
    """The two points of a torch module; `after` may be a state dict of it."""
    first = ModulePoint.of(before)
    if not isinstance(after, dict):
        return first, ModulePoint.of(after)
    torch = require_torch()
    trained = copy.deepcopy(first.subject)
    with torch.inference_mode(False):
        try:
            trained.load_state_dict(after)
        except RuntimeError as error:
            raise InputError(
                f"after: must be a state dict of before, got another: "
                f"{' '.join(str(error).split())} Pass module.state_dict() after training."
            ) from error
    return first, ModulePoint(trained)
