"""A network at one point of its parameters, as far as regimes are concerned.

Outputs, tangent kernel, derivatives at parameters that can be set, and inputs that it was not
trained on; a torch module and the models of the library offer the same. In double precision, as
gaps between functions are differences; only kernels and tangent features of a torch module, by far
the most of the work, are in its own.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.flows.coordinates import ParameterLayout
from flowbias.ground.arguments import InputError, as_array, depth_inside
from flowbias.ground.routing import first_fitting
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import kernel_matrix
from flowbias.kernels.movement import (
    GradDistance,
    ParameterMovement,
    grad_distance,
    map_distance,
    parameter_movement,
)
from flowbias.kernels.network import (
    Inputs,
    Network,
    copied,
    copied_in_double,
    first_call,
    gradients,
    outputs_of_each,
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
    """What a diagnosis asks of a network at a point, before it is adjusted."""

    #: what the functions of `kernels` take
    subject: Any
    #: by what errors call them: "x", those of training, and "x_new", on which functions differ that
    #: agree there
    inputs: dict[str, Any]
    #: f on each of them: (samples, outputs)
    values: dict[str, FloatArray]
    #: whether starts of vanishing scale are known to lead to the leanest network
    rich_is_lean: bool = True
    #: whether weights were drawn: a wide start may be known by its Gram matrix alone
    weighted: bool = True
    #: whether running statistics were others at the two points, and made the same
    settled: bool = False

    @abstractmethod
    def kernels(self, full: bool) -> tuple[Any, FloatArray | None]:
        """Its trace over outputs, and if asked for J J^T with all pairs of outputs."""

    def moved(self, after: Any) -> tuple[GradDistance, ParameterMovement]:
        """Grad distance and movement of parameters, of a start and an end with weights."""
        subjects = self.subject, after.subject
        return grad_distance(*subjects, self.inputs["x"]), parameter_movement(*subjects)

    @abstractmethod
    def linear_change(self, after: Any) -> dict[str, FloatArray]:
        """J (theta_after - theta) on all inputs, as `values`."""

    @abstractmethod
    def twin_change(self, nu: FloatArray) -> FloatArray:
        """J J(X)^T nu on the new inputs: how far a dual takes the linearized twin there."""


class ModulePoint(NetworkPoint):
    """A copy of a torch module, given in another dtype; inputs are tuples of tensors."""

    # Of linear layers it is; with ReLU many functions cost the same norm, and one of them is met.
    rich_is_lean = False

    def __init__(
        self, network: Network, dtype: Any, inputs: dict[str, Inputs], max_memory: int | str
    ) -> None:
        self.network, self.subject, self.inputs = network, network.module, inputs
        self.values = {}
        #: J on each of the inputs, proved once for all questions
        self.tangents: dict[str, TangentMap] = {}
        for name, part in self.inputs.items():
            with gradients(on=False):
                found = first_call(network, name, part)
            self.values[name] = np.asarray(as_array(found), dtype=np.float64)
            self.tangents[name] = TangentMap(self.subject, part, name=name, max_memory=max_memory)
        #: J on x in the dtype that was given, at where it was before it was adjusted
        self.features = self.tangents["x"]
        if dtype != network.dtype:
            own = Network.read(copied(self.subject).to(dtype))
            given = own.cast_inputs("x", inputs["x"])
            self.features = TangentMap(own.module, given, max_memory=max_memory)

    def kernels(self, full: bool) -> tuple[Any, FloatArray | None]:
        if not full:
            return self.features.kernel(reduce="trace"), None
        kernel = as_array(self.features.kernel())
        return kernel.trace(axis1=2, axis2=3), kernel_matrix(kernel)

    def moved(self, after: Any) -> tuple[GradDistance, ParameterMovement]:
        # First: it refuses two architectures.
        movement = parameter_movement(self.subject, after.subject)
        return map_distance(self.features, after.features), movement

    def linear_change(self, after: Any) -> dict[str, FloatArray]:
        moved = self._by_name(after.parameters() - self.parameters())
        return {
            name: as_array(tangent.jvp(moved)).reshape(tangent.samples, -1)
            for name, tangent in self.tangents.items()
        }

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

    def outputs(self, name: str = "x") -> FloatArray:
        with gradients(on=False):
            found = self.network.outputs(self.inputs[name])
        return np.asarray(as_array(found), dtype=np.float64).reshape(-1)

    def push_forward(self, theta: FloatArray) -> FloatArray:
        return as_array(self.tangents["x"].jvp(self._by_name(theta))).reshape(-1)

    def _pulled(self, nu: FloatArray) -> dict[str, Any]:
        vector = require_torch().as_tensor(nu).to(self.network.like.detach())
        return self.tangents["x"].vjp(vector.reshape(len(self.values["x"]), -1))

    def pull_back(self, nu: FloatArray) -> FloatArray:
        return _flat(self._pulled(nu))

    def twin_change(self, nu: FloatArray) -> FloatArray:
        return as_array(self.tangents["x_new"].jvp(self._pulled(nu))).reshape(-1)

    def kernel(self) -> FloatArray:
        return kernel_matrix(self.tangents["x"].kernel())


def _flat(parts: dict[str, Any]) -> FloatArray:
    return np.concatenate([as_array(part).reshape(-1) for part in parts.values()])


class _SmallModel(NetworkPoint):
    """A model of the library, with a Jacobian small enough to be formed."""

    theta: FloatArray

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        self.subject, self.inputs = model, inputs
        self.weighted = bool(declared_by(model) & {Provides.PARAMETERS, Provides.FACTORS})

    @abstractmethod
    def jacobian(self, name: str = "x") -> FloatArray:
        """(samples * outputs, parameters), on the inputs of this name."""

    def parameters(self) -> FloatArray:
        return self.theta

    def set_parameters(self, theta: FloatArray) -> None:
        self.theta = theta

    def push_forward(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.jacobian() @ theta)

    def pull_back(self, nu: FloatArray) -> FloatArray:
        return np.asarray(nu @ self.jacobian())

    def twin_change(self, nu: FloatArray) -> FloatArray:
        return np.asarray(self.jacobian("x_new") @ self.pull_back(nu))

    def kernel(self) -> FloatArray:
        jacobian = self.jacobian()
        return np.asarray(jacobian @ jacobian.T)

    def kernels(self, full: bool) -> tuple[Any, FloatArray | None]:
        trace = tangent_kernel(self.subject, self.inputs["x"], reduce="trace")
        return trace, self.kernel() if full else None


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
        rows, units = np.asarray(x), np.eye(np.shape(x)[1])
        if new is not None:
            units = checked_array("x_new", new, 2)
            if units.shape[1] != rows.shape[1]:
                raise InputError(
                    f"x_new: must have as many features as x ({rows.shape[1]}), got "
                    f"{units.shape[1]}. Pass inputs of the same model."
                )
        super().__init__(model, {"x": rows, "x_new": units})
        self.layout = ParameterLayout(model.initial_parameters(), rows.shape[1])
        self.theta = self.layout.start
        w = model.predictor(model.initial_parameters())
        self.values = {name: np.asarray(part @ w)[:, None] for name, part in self.inputs.items()}

    def outputs(self, name: str = "x") -> FloatArray:
        return np.asarray(
            self.inputs[name] @ self.subject.predictor(self.layout.unflat(self.theta))
        )

    def jacobian(self, name: str = "x") -> FloatArray:
        point = self.layout.unflat(self.theta)
        gradients = (self.subject.parameter_gradient(point, row) for row in self.inputs[name])
        return np.stack([self.layout.flat(gradient) for gradient in gradients])

    def linear_change(self, after: Any) -> dict[str, FloatArray]:
        moved = after.parameters() - self.parameters()
        return {name: np.asarray(self.jacobian(name) @ moved)[:, None] for name in self.inputs}


class ProductPoint(_SmallModel):
    """A product U V^T; x is samples x features, a stack of matrices, or a matrix problem.

    Adjusted by a root of its Gram matrix, as narrow as the product allows.
    """

    def __init__(self, model: Any, x: Any, new: Any = None) -> None:
        rows, columns = self.subject_shape = model.shape
        by_features = not isinstance(x, MatrixProblem) and np.ndim(x) == 2
        units = np.eye(rows) if by_features else np.eye(rows * columns).reshape(-1, rows, columns)
        super().__init__(model, {"x": x, "x_new": units if new is None else new})
        self.width, self.theta = model.root.shape[1], np.array(model.root).reshape(-1)
        self.values = {name: self._measure(name, model.product) for name in self.inputs}

    def linear_change(self, after: Any) -> dict[str, FloatArray]:
        (U, V), (U_after, V_after) = self.subject.factors, after.subject.factors
        change = U @ (V_after - V).T + (U_after - U) @ V.T
        return {name: self._measure(name, change) for name in self.inputs}

    def _measure(self, name: str, product: FloatArray) -> FloatArray:
        """What inputs measure of a product: (samples, outputs)."""
        x = self.inputs[name]
        if isinstance(x, MatrixProblem):
            return np.asarray(x.measure(product)).reshape(-1, 1)
        given = np.asarray(x)
        if given.ndim == 3:
            return np.asarray(np.einsum("nij,ij->n", given, product))[:, None]
        return np.asarray(given @ product)

    @cached_property
    def _measured(self) -> dict[str, FloatArray]:
        """What each output measures, (samples * outputs, rows * columns), by name of the inputs."""
        return {name: self._matrices(x) for name, x in self.inputs.items()}

    def _matrices(self, x: Any) -> FloatArray:
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

    def outputs(self, name: str = "x") -> FloatArray:
        U, V = self._factors()
        return np.asarray(self._measured[name] @ (U @ V.T).reshape(-1), dtype=np.float64)

    def jacobian(self, name: str = "x") -> FloatArray:
        U, V = self._factors()
        matrices = self._measured[name].reshape(-1, *self.subject_shape)
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


@dataclass(frozen=True)
class ModulePair:
    """Copies of a torch module before and after, each with the dtype that it was given in."""

    networks: tuple[tuple[Network, Any], tuple[Network, Any]]
    #: by what errors call them, as those of a point
    inputs: dict[str, Inputs]
    #: samples and outputs on x
    shape: tuple[int, int]
    max_memory: int | str
    #: as that of a point
    settled: bool

    @property
    def counts(self) -> dict[str, int]:
        """How many inputs there are of each name."""
        return {name: len(parts[0]) for name, parts in self.inputs.items()}

    def points(self, rows: Mapping[str, Sequence[int]] | None = None) -> Points:
        """The two points, on all inputs or on these rows of them."""
        some = self.inputs
        if rows is not None:
            some = {n: tuple(part[rows[n]] for part in parts) for n, parts in some.items()}
        first, second = (
            ModulePoint(network, dtype, some, self.max_memory) for network, dtype in self.networks
        )
        first.settled = self.settled
        return first, second


def module_pair(before: Any, after: Any, x: Any, new: Any, max_memory: int | str) -> ModulePair:
    """What two points of a torch module are made of; new inputs are drawn where none are given."""
    given = Network.read(before), Network.read(after)
    devices = given[0].device, given[1].device
    if devices[0] != devices[1]:
        raise InputError(
            f"after: must be on the device of before, {devices[0]}, got {devices[1]}. "
            f"Pass after.to({str(devices[0])!r})."
        )
    # Parameters that the caller goes on training must not move ours.
    first = Network.read(copied_in_double(given[0].module))
    second = Network.read(copied_in_double(given[1].module))
    settled = share_statistics(first.module, second.module)
    if settled:
        warnings.warn(
            "running statistics (BatchNorm) differ between before and after: those of after are "
            "used for both, so that only parameters count as learned",
            stacklevel=depth_inside(),
        )
    networks = (first, given[0].dtype), (second, given[1].dtype)
    x = first.cast_inputs("x", x)
    shape = len(x[0]), outputs_of_each(first, "x", x)
    new = fresh_tensors(x) if new is None else first.cast_inputs("x_new", new)
    return ModulePair(networks, {"x": x, "x_new": new}, shape, max_memory, settled)
