"""A network at one point of its parameters, as far as regimes are concerned.

Outputs, tangent kernel, derivatives at parameters that can be set, and inputs that it was not
trained on; a torch module and the models of the library offer the same. In double precision, as
gaps between functions are differences; only kernels and tangent features of a torch module, by far
the most of the work, are in its own.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.flows.coordinates import ParameterLayout
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import first_fitting
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import (
    ParameterMovement,
    as_array,
    kernel_matrix,
    parameter_movement,
)
from flowbias.kernels.feature_distance import GradDistance, grad_distance, map_distance
from flowbias.kernels.network import (
    Network,
    check_finite,
    copied,
    copied_in_double,
    first_call,
    gradients,
    share_statistics,
)
from flowbias.kernels.tangent import TangentMap, tangent_kernel
from flowbias.models._base import Model, Parameters
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixProblem
from flowbias.problems.regression import checked_array
from flowbias.regime.data import fresh_tensors
from flowbias.regime.leanest import Adjustable


class NetworkPoint(Adjustable):
    """What a diagnosis asks of a network with training inputs `x`, before it is adjusted."""

    #: what the functions of `kernels` take
    subject: Any
    x: Any
    #: inputs that tell functions apart which agree on x
    new: Any
    #: whether starts of vanishing scale are known to lead to the leanest network
    rich_is_lean: bool = True

    @abstractmethod
    def values(self, name: str) -> FloatArray:
        """f: (samples, outputs), on the inputs that errors call by this name, "x" or "x_new"."""

    def tangent_kernel(self, reduce: Any) -> Any:
        """K(x, x)."""
        return tangent_kernel(self.subject, self.x, reduce=reduce)

    @abstractmethod
    def push_forward_elsewhere(self, theta: FloatArray) -> FloatArray:
        """J theta on the inputs that tell functions apart."""

    def kernels(self) -> tuple[Any, FloatArray]:
        """Its trace over outputs, and with all pairs of outputs as the matrix J J^T."""
        return self.tangent_kernel("trace"), self.kernel()

    @property
    def weighted(self) -> bool:
        """Whether weights were drawn: a wide start may be known by its Gram matrix alone."""
        return bool(declared_by(self.subject) & {Provides.PARAMETERS, Provides.FACTORS})

    def moved(self, after: Any) -> tuple[GradDistance, ParameterMovement]:
        """Grad distance and movement of parameters, of a start and an end with weights."""
        subjects = self.subject, after.subject
        return grad_distance(*subjects, self.x), parameter_movement(*subjects)

    @abstractmethod
    def linear_change(self, after: Any, name: str) -> FloatArray:
        """J (theta_after - theta) on the inputs of this name: (samples, outputs)."""


class ModulePoint(NetworkPoint):
    """A copy of a torch module; x and new are tuples of tensors."""

    # Of linear layers it is; with ReLU many functions cost the same norm, and one of them is met.
    rich_is_lean = False

    def __init__(self, module: Any, x: Any, new: Any, max_memory: int | str) -> None:
        given = Network.read(module)
        # Parameters that the caller goes on training must not move ours.
        self.subject, self._dtype = copied_in_double(given.module), given.dtype
        self.network = Network.read(self.subject)
        self.x = self.network.cast_inputs("x", x)
        self._given = None if new is None else self.network.cast_inputs("x_new", new)
        self.max_memory = max_memory

    @cached_property
    def tangent(self) -> TangentMap:
        """J on x, proved once for all questions."""
        return TangentMap(self.subject, self.x, max_memory=self.max_memory)

    @cached_property
    def new(self) -> Any:
        return fresh_tensors(self.x) if self._given is None else self._given

    def values(self, name: str) -> FloatArray:
        with gradients(on=False):
            found = first_call(self.network, name, self.x if name == "x" else self.new)
        check_finite(found, name, 0)
        return np.asarray(as_array(found), dtype=np.float64)

    def tangent_kernel(self, reduce: Any) -> Any:
        return self.features.kernel(reduce=reduce)

    @property
    def weighted(self) -> bool:
        return True

    def on(self, rows: list[int]) -> ModulePoint:
        """The same module on some of its inputs."""
        some = copy.copy(self)
        for name in ("tangent", "features", "new", "_elsewhere"):
            vars(some).pop(name, None)
        some.x = tuple(part[rows] for part in self.x)
        return some

    def kernels(self) -> tuple[Any, FloatArray]:
        full = as_array(self.features.kernel())
        return full.trace(axis1=2, axis2=3), kernel_matrix(full)

    @cached_property
    def features(self) -> TangentMap:
        """J on x in the module's own precision, at where it was before it was adjusted."""
        if self._dtype == self.network.dtype:
            return self.tangent
        own = copied(self.subject).to(self._dtype)
        x = Network.read(own).cast_inputs("x", self.x)
        return TangentMap(own, x, max_memory=self.max_memory)

    @cached_property
    def _elsewhere(self) -> TangentMap:
        return TangentMap(self.subject, self.new, name="x_new", max_memory=self.max_memory)

    def moved(self, after: Any) -> tuple[GradDistance, ParameterMovement]:
        # First: it refuses two architectures.
        movement = parameter_movement(self.subject, after.subject)
        return map_distance(self.features, after.features), movement

    def linear_change(self, after: Any, name: str) -> FloatArray:
        tangent = self.tangent if name == "x" else self._elsewhere
        moved = self._by_name(after.parameters() - self.parameters())
        return as_array(tangent.jvp(moved)).reshape(tangent.samples, -1)

    def parameters(self) -> FloatArray:
        return _flat(self.network.parameters)

    def set_parameters(self, theta: FloatArray) -> None:
        with require_torch().no_grad():
            for name, part in self._by_name(theta).items():
                self.network.parameters[name].copy_(part)

    def _by_name(self, theta: FloatArray) -> dict[str, Any]:
        torch, parameters = require_torch(), self.network.parameters
        cuts = np.cumsum([part.numel() for part in parameters.values()])[:-1]
        return {
            name: torch.as_tensor(values).to(part).reshape(part.shape)
            for (name, part), values in zip(parameters.items(), np.split(theta, cuts), strict=True)
        }

    def outputs(self) -> FloatArray:
        return self._outputs(self.x)

    def outputs_elsewhere(self) -> FloatArray:
        return self._outputs(self.new)

    def _outputs(self, inputs: Any) -> FloatArray:
        with gradients(on=False):
            return np.asarray(as_array(self.network.outputs(inputs)), dtype=np.float64).reshape(-1)

    def push_forward(self, theta: FloatArray) -> FloatArray:
        return as_array(self.tangent.jvp(self._by_name(theta))).reshape(-1)

    def push_forward_elsewhere(self, theta: FloatArray) -> FloatArray:
        return as_array(self._elsewhere.jvp(self._by_name(theta))).reshape(-1)

    def pull_back(self, nu: FloatArray) -> FloatArray:
        vector = require_torch().as_tensor(nu).to(self.network.like.detach())
        return _flat(self.tangent.vjp(vector.reshape(self.tangent.samples, -1)))

    def kernel(self) -> FloatArray:
        return kernel_matrix(self.tangent.kernel())


def _flat(parts: dict[str, Any]) -> FloatArray:
    return np.concatenate([as_array(part).reshape(-1) for part in parts.values()])


class _SmallModel(NetworkPoint):
    """A model of the library, with a Jacobian small enough to be formed."""

    theta: FloatArray

    @abstractmethod
    def jacobian(self, name: str = "x") -> FloatArray:
        """(samples * outputs, parameters), on the inputs that errors call by this name."""

    def parameters(self) -> FloatArray:
        return self.theta

    def set_parameters(self, theta: FloatArray) -> None:
        self.theta = theta

    def push_forward(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.jacobian() @ theta)

    def push_forward_elsewhere(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.jacobian("x_new") @ theta)

    def pull_back(self, nu: FloatArray) -> FloatArray:
        return np.asarray(nu @ self.jacobian())

    def kernel(self) -> FloatArray:
        jacobian = self.jacobian()
        return np.asarray(jacobian @ jacobian.T)


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


class PredictorPoint(_SmallModel):
    """A model with a linear predictor, f(x) = <F(theta), x>; x is samples x features.

    New inputs are the units of w: distances between functions are those between predictors.
    """

    def __init__(self, model: Any, x: Any, new: Any = None) -> None:
        self.subject, self.x = model, np.asarray(x)
        self.new = np.eye(self.x.shape[1])
        if new is not None:
            self.new = checked_array("x_new", new, 2)
            if self.new.shape[1] != self.x.shape[1]:
                raise InputError(
                    f"x_new: must have as many features as x ({self.x.shape[1]}), got "
                    f"{self.new.shape[1]}. Pass inputs of the same model."
                )
        self.layout = ParameterLayout(model.initial_parameters(), self.x.shape[1])
        self.theta = self.layout.start

    def values(self, name: str) -> FloatArray:
        w = self.subject.predictor(self.subject.initial_parameters())
        return np.asarray((self.x if name == "x" else self.new) @ w)[:, None]

    def _predictor(self) -> FloatArray:
        return np.asarray(self.subject.predictor(self.layout.unflat(self.theta)))

    def outputs(self) -> FloatArray:
        return np.asarray(self.x @ self._predictor())

    def outputs_elsewhere(self) -> FloatArray:
        return np.asarray(self.new @ self._predictor())

    def jacobian(self, name: str = "x") -> FloatArray:
        point, x = self.layout.unflat(self.theta), self.x if name == "x" else self.new
        rows = (self.layout.flat(self.subject.parameter_gradient(point, row)) for row in x)
        return np.stack(list(rows))

    def linear_change(self, after: Any, name: str) -> FloatArray:
        moved = after.parameters() - self.parameters()
        return np.asarray(self.jacobian(name) @ moved)[:, None]


class ProductPoint(_SmallModel):
    """A product U V^T; x is samples x features, a stack of matrices, or a matrix problem.

    Adjusted by a root of its Gram matrix, as narrow as the product allows.
    """

    def __init__(self, model: Any, x: Any, new: Any = None) -> None:
        rows, columns = self.subject_shape = model.shape
        by_features = not isinstance(x, MatrixProblem) and np.ndim(x) == 2
        units = np.eye(rows) if by_features else np.eye(rows * columns).reshape(-1, rows, columns)
        self.subject, self.x, self.new = model, x, units if new is None else new
        self.width, self.theta = model.root.shape[1], np.array(model.root).reshape(-1)

    def values(self, name: str) -> FloatArray:
        return self._measure(self.x if name == "x" else self.new, self.subject.product)

    def linear_change(self, after: Any, name: str) -> FloatArray:
        (U, V), (U_after, V_after) = self.subject.factors, after.subject.factors
        x = self.x if name == "x" else self.new
        return self._measure(x, U @ (V_after - V).T + (U_after - U) @ V.T)

    def _measure(self, x: Any, product: FloatArray) -> FloatArray:
        """What inputs measure of a product: (samples, outputs)."""
        if isinstance(x, MatrixProblem):
            return np.asarray(x.measure(product)).reshape(-1, 1)
        given = np.asarray(x)
        if given.ndim == 3:
            return np.asarray(np.einsum("nij,ij->n", given, product))[:, None]
        return np.asarray(given @ product)

    @cached_property
    def _measured(self) -> FloatArray:
        return self._matrices(self.x)

    @cached_property
    def _measured_elsewhere(self) -> FloatArray:
        return self._matrices(self.new)

    def _matrices(self, x: Any) -> FloatArray:
        """What each output measures, (samples * outputs, rows * columns)."""
        rows, columns = self.subject_shape
        if isinstance(x, MatrixProblem):
            return np.asarray(x.matrices).reshape(-1, rows * columns)
        given = np.asarray(x, dtype=np.float64)
        if given.ndim == 2:
            return np.asarray(np.kron(given, np.eye(columns)), dtype=np.float64)
        return given.reshape(len(given), -1)

    def _factors(self) -> tuple[FloatArray, FloatArray]:
        root, rows = self.theta.reshape(-1, self.width), self.subject_shape[0]
        return root[:rows], root[rows:]

    def _product(self) -> FloatArray:
        U, V = self._factors()
        return np.asarray(U @ V.T, dtype=np.float64).reshape(-1)

    def outputs(self) -> FloatArray:
        return np.asarray(self._measured @ self._product())

    def outputs_elsewhere(self) -> FloatArray:
        return np.asarray(self._measured_elsewhere @ self._product())

    def jacobian(self, name: str = "x") -> FloatArray:
        U, V = self._factors()
        measured = self._measured if name == "x" else self._measured_elsewhere
        matrices = measured.reshape(-1, *self.subject_shape)
        parts = (matrices @ V, np.swapaxes(matrices, 1, 2) @ U)
        return np.hstack([part.reshape(len(matrices), -1) for part in parts])


Points = tuple[NetworkPoint, NetworkPoint]


@dataclass(frozen=True)
class PointsRoute:
    """How two models of the library, or a model and parameters, become two points."""

    needs: frozenset[Provides]
    points: Callable[[Any, Any, Any, Any], Points]


def _predictor_points(before: Any, after: Any, x: Any, new: Any) -> Points:
    features = checked_array("x", x, 2).shape[1]
    first = at_parameters(before, before.initial_parameters(), features)
    trained = after.initial_parameters() if declared_by(after) else after
    second = at_parameters(before, trained, features)
    return PredictorPoint(first, x, new), PredictorPoint(second, x, new)


def at_parameters(model: Any, parameters: Any, features: int) -> AtParameters:
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


def _product_points(before: Any, after: Any, x: Any, new: Any) -> Points:
    try:
        second = after if declared_by(after) else type(before)(*after)
    except TypeError as error:
        raise _not_a_point(before, after) from error
    if second.shape != before.shape:
        raise InputError(
            f"after: must have the shape of before, {before.shape}, got {second.shape}. "
            "Pass one product at two points."
        )
    return ProductPoint(before, x, new), ProductPoint(second, x, new)


READINGS = (
    PointsRoute(frozenset({Provides.PARAMETERS}), _predictor_points),
    PointsRoute(frozenset({Provides.GRAM}), _product_points),
)


def model_points(before: Any, after: Any, x: Any, new: Any) -> Points:
    """The two points of a model of the library."""
    return first_fitting(before, READINGS).points(before, after, x, new)


def module_points(before: Any, after: Any, x: Any, new: Any, max_memory: int | str) -> Points:
    """The two points of a torch module."""
    first = ModulePoint(before, x, new, max_memory)
    devices = first.network.device, Network.read(after).device
    if devices[0] != devices[1]:
        raise InputError(
            f"after: must be on the device of before, {devices[0]}, got {devices[1]}. "
            f"Pass after.to({str(devices[0])!r})."
        )
    second = ModulePoint(after, first.x, first._given, max_memory)
    if share_statistics(first.subject, second.subject):
        warnings.warn(
            "running statistics (BatchNorm) differ between before and after: those of after are "
            "used for both, so that only parameters count as learned",
            stacklevel=3,
        )
    return first, second


def loaded(before: Any, after: Any) -> Any:
    """The module after training, which may be given as a state dict of it."""
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
    return _loaded(copied(before), after) if isinstance(after, dict) else after


def _loaded(module: Any, state: Any) -> Any:
    with gradients(on=False):
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(
                f"after: must be a state dict of before, got another: "
                f"{' '.join(str(error).split())} Pass module.state_dict() after training."
            ) from error
    return module
