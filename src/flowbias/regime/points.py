"""A network at one point of its parameters, as far as regimes are concerned.

Outputs, tangent kernel and inputs that it was not trained on; a torch module and a model of the
library offer the same three. All in double precision: gaps between functions are differences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias._typing import FloatArray
from flowbias.flows.parameter import ParameterLayout
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import as_array, kernel_matrix
from flowbias.kernels.network import (
    Network,
    check_finite,
    copied_in_double,
    first_call,
    gradients,
)
from flowbias.kernels.tangent import tangent_kernel
from flowbias.matrix_problems._base import MatrixProblem
from flowbias.models._base import Model, Parameters
from flowbias.potentials import Provides
from flowbias.problem import InputError, checked_array
from flowbias.regime.adjustable import AdjustableModule, AdjustablePredictor, AdjustableProduct
from flowbias.regime.leanest import Adjustable
from flowbias.regime.module_data import fresh_tensors
from flowbias.routing import first_fitting


class Point(ABC):
    """What a diagnosis asks of a network with fixed parameters."""

    #: what the functions of `kernels` take
    subject: Any

    #: whether starts of vanishing scale are known to lead to the leanest network
    rich_is_lean: bool = True

    @abstractmethod
    def outputs(self, x: Any, name: str = "x") -> FloatArray:
        """f(x): (samples, outputs); `name` is what errors call x."""

    @abstractmethod
    def inputs_elsewhere(self, x: Any) -> Any:
        """Inputs that tell functions apart which agree on x."""

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
    # Of linear layers it is; with ReLU many functions cost the same norm, and one of them is met.
    rich_is_lean = False

    @classmethod
    def of(cls, module: Any) -> ModulePoint:
        # Parameters that the caller goes on training must not move ours.
        return cls(copied_in_double(Network.read(module).module))

    @property
    def network(self) -> Network:
        return Network.read(self.subject)

    def read(self, name: str, x: Any) -> Any:
        """x on our device and in our precision."""
        network = self.network
        parts = network.read_inputs(name, x)
        return tuple(part.to(network.dtype) if part.is_floating_point() else part for part in parts)

    def outputs(self, x: Any, name: str = "x") -> FloatArray:
        with gradients(on=False):
            found = first_call(self.network, name, x)
        check_finite(found, name, 0)
        return np.asarray(as_array(found), dtype=np.float64)

    def inputs_elsewhere(self, x: Any) -> Any:
        return fresh_tensors(x)

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

    def outputs(self, x: Any, name: str = "x") -> FloatArray:
        w = self.subject.predictor(self.subject.initial_parameters())
        return np.asarray(np.asarray(x) @ w)[:, None]

    def inputs_elsewhere(self, x: Any) -> Any:
        # The units of w: distances between functions are those between predictors.
        return np.eye(np.shape(x)[1])

    def adjustable(self, x: Any, new: Any, max_memory: int | str) -> Adjustable:
        return AdjustablePredictor(self.subject, x, new)


@dataclass(frozen=True)
class ProductPoint(Point):
    """A product U V^T; x is samples x features, a stack of matrices, or a matrix problem."""

    subject: Any

    def outputs(self, x: Any, name: str = "x") -> FloatArray:
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
    try:
        layout = ParameterLayout(parameters, features)
    except (TypeError, ValueError) as error:
        raise _not_a_point(model, parameters) from error
    own = ParameterLayout(model.initial_parameters(), features)
    if layout.shapes != own.shapes:
        raise InputError(
            f"after: must have the parameters of before, of shapes {own.shapes}, got "
            f"{layout.shapes}. Pass what a flow from `before` ends at."
        )
    return AtParameters(model, layout.unflat(layout.start))


def _not_a_point(before: Any, after: Any) -> InputError:
    name = type(before).__name__
    return InputError(
        f"after: must be another {name}, or the parameters where its flow ended, got "
        f"{type(after).__name__}. Pass what a flow from `before` ends at."
    )


def _product_points(before: Any, after: Any, x: Any) -> tuple[Point, Point]:
    del x  # factors say all about their sizes
    try:
        second = after if declared_by(after) else type(before)(*after)
    except TypeError as error:
        raise _not_a_point(before, after) from error
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
    torch = require_torch()
    for name, given, kinds, words in (
        ("before", before, torch.nn.Module, "a torch.nn.Module or a model of this library"),
        ("after", after, torch.nn.Module | dict, "the module after training, or its state dict"),
    ):
        if not isinstance(given, kinds):
            raise InputError(
                f"{name}: must be {words}, got {type(given).__name__}. "
                "Copy the module ahead of training (copy.deepcopy)."
            )
    first = ModulePoint.of(before)
    second = _loaded(first, after) if isinstance(after, dict) else ModulePoint.of(after)
    devices = first.network.device, second.network.device
    if devices[0] != devices[1]:
        raise InputError(
            f"after: must be on the device of before, {devices[0]}, got {devices[1]}. "
            f"Pass after.to({str(devices[0])!r})."
        )
    return first, second


def _loaded(first: ModulePoint, state: Any) -> ModulePoint:
    trained = copied_in_double(first.subject)
    with gradients(on=False):
        try:
            trained.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(
                f"after: must be a state dict of before, got another: "
                f"{' '.join(str(error).split())} Pass module.state_dict() after training."
            ) from error
    return ModulePoint(trained)
