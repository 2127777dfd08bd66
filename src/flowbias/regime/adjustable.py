"""Networks with parameters that can be set: torch modules, and models of the library."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias._typing import FloatArray
from flowbias.flows.parameter import ParameterLayout
from flowbias.kernels.compare import as_array, kernel_matrix
from flowbias.kernels.network import Network, copied_in_double, gradients
from flowbias.kernels.tangent import TangentMap, tangent_kernel
from flowbias.matrix_problems._base import MatrixProblem
from flowbias.regime.leanest import Adjustable


class AdjustableModule(Adjustable):
    """A copy of a torch module, on training inputs x and on inputs `new`."""

    def __init__(self, module: Any, x: Any, new: Any, max_memory: int | str) -> None:
        self.network = Network.read(copied_in_double(module))
        self.x, self.new, self.max_memory = x, new, max_memory
        self.map = TangentMap(self.network.module, x, max_memory=max_memory)

    def parameters(self) -> FloatArray:
        parts = self.network.parameters.values()
        return np.concatenate([as_array(part).reshape(-1) for part in parts]).astype(np.float64)

    def set_parameters(self, theta: FloatArray) -> None:
        torch = require_torch()
        with torch.no_grad():
            for name, part in self._by_name(theta).items():
                self.network.parameters[name].copy_(part)

    def _by_name(self, theta: FloatArray) -> dict[str, Any]:
        torch = require_torch()
        parameters = self.network.parameters
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
        return as_array(self.map.jvp(self._by_name(theta))).reshape(-1)

    def pull_back(self, nu: FloatArray) -> FloatArray:
        torch = require_torch()
        vector = torch.as_tensor(nu).to(self.network.device, self.network.dtype)
        found = self.map.vjp(vector.reshape(self.map.samples, -1))
        return np.concatenate([as_array(part).reshape(-1) for part in found.values()])

    def kernel(self) -> FloatArray:
        found = tangent_kernel(self.network.module, self.x, max_memory=self.max_memory)
        return kernel_matrix(found)


class _SmallModel(Adjustable):
    """A model whose Jacobian is small enough to be formed."""

    def jacobian(self) -> FloatArray:
        """(samples * outputs, parameters)."""
        raise NotImplementedError

    def push_forward(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.jacobian() @ theta)

    def pull_back(self, nu: FloatArray) -> FloatArray:
        return np.asarray(nu @ self.jacobian())

    def kernel(self) -> FloatArray:
        jacobian = self.jacobian()
        return np.asarray(jacobian @ jacobian.T)


class AdjustablePredictor(_SmallModel):
    """A model with a linear predictor, f(x) = <F(theta), x>."""

    def __init__(self, model: Any, x: Any, new: Any) -> None:
        self.model, self.x, self.new = model, np.asarray(x), np.asarray(new)
        self.layout = ParameterLayout(model.initial_parameters(), self.x.shape[1])
        self.theta = self.layout.start

    def parameters(self) -> FloatArray:
        return self.theta

    def set_parameters(self, theta: FloatArray) -> None:
        self.theta = theta

    def _predictor(self) -> FloatArray:
        return np.asarray(self.model.predictor(self.layout.unflat(self.theta)))

    def outputs(self) -> FloatArray:
        return np.asarray(self.x @ self._predictor())

    def outputs_elsewhere(self) -> FloatArray:
        return np.asarray(self.new @ self._predictor())

    def jacobian(self) -> FloatArray:
        point = self.layout.unflat(self.theta)
        rows = (self.layout.flat(self.model.parameter_gradient(point, row)) for row in self.x)
        return np.stack(list(rows))


class AdjustableProduct(_SmallModel):
    """A product U V^T, by a root of its Gram matrix: as narrow as the product allows."""

    def __init__(self, model: Any, x: Any, new: Any) -> None:
        self.rows, self.columns = model.shape
        self.width = model.root.shape[1]
        self.x, self.new = self._matrices(x), self._matrices(new)
        self.theta = np.array(model.root).reshape(-1)

    def _matrices(self, x: Any) -> FloatArray:
        """What each output measures, (samples * outputs, rows * columns)."""
        if isinstance(x, MatrixProblem):
            return np.asarray(x.matrices).reshape(-1, self.rows * self.columns)
        given = np.asarray(x, dtype=np.float64)
        if given.ndim == 2:
            return np.asarray(np.kron(given, np.eye(self.columns)), dtype=np.float64)
        return given.reshape(len(given), -1)

    def parameters(self) -> FloatArray:
        return self.theta

    def set_parameters(self, theta: FloatArray) -> None:
        self.theta = theta

    def _factors(self) -> tuple[FloatArray, FloatArray]:
        root = self.theta.reshape(-1, self.width)
        return root[: self.rows], root[self.rows :]

    def _product(self) -> FloatArray:
        U, V = self._factors()
        return np.asarray(U @ V.T, dtype=np.float64).reshape(-1)

    def outputs(self) -> FloatArray:
        return np.asarray(self.x @ self._product())

    def outputs_elsewhere(self) -> FloatArray:
        return np.asarray(self.new @ self._product())

    def jacobian(self) -> FloatArray:
        U, V = self._factors()
        matrices = self.x.reshape(-1, self.rows, self.columns)
        parts = (matrices @ V, np.swapaxes(matrices, 1, 2) @ U)
        return np.hstack([part.reshape(len(matrices), -1) for part in parts])
