"""The linearized twin of a module, as a module that can be trained, and its training solved.

    f_lin(x; theta) = f(x; theta_0) + J(x; theta_0) (theta - theta_0)

By forward mode: one call costs about three of the module's own, and no Jacobian is formed.

Gradient flow on (c/2) ||f_lin(X) - y||^2 from the module's own parameters is linear:

    f_lin(x, t) = f_0(x) + K(x, X) K^+ (I - exp(-c K t)) (y - f_0(X)),    K = K(X, X)

by the eigenvectors of K. Directions whose eigenvalue is zero up to rounding cannot be learned and
stay at their start; they are never divided by. As K(x, X) = J(x) J(X)^T, new inputs only take one
product with each of the two maps, and the parameters are theta_0 + J(X)^T K^+ (...).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import InputError, as_array, as_float
from flowbias.ground.drawing import course, picture, spectrum, time_axis
from flowbias.ground.html import facts
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.compare import as_doubles, kernel_matrix
from flowbias.kernels.jacobian import (
    not_linearizable,
    require_linearizable,
    takes_substitutes,
    value_and_change,
)
from flowbias.kernels.network import (
    Network,
    as_written,
    copied,
    copied_in_double,
    gradients,
    left_alone,
)
from flowbias.kernels.tangent import TangentMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def linearize(module: Any) -> Any:
    """A trainable torch module that is `module` linearized at its present parameters.

    Its parameters start at the module's and have their names with dots as "__" (a dot cannot be in
    the name of a parameter); `named_point()` gives them by the original names. Frozen parameters
    stay frozen.

    Parameters
    ----------
    module : any torch.nn.Module in eval mode; it is copied and stays as it is

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    InputError for what is no module, or cannot be differentiated

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    >>> twin, x = linearize(net), torch.ones(3, 2)
    >>> bool(torch.equal(twin(x), net(x)))
    True
    """
    return _twin_class()(Network.read(module))


@cache
def _twin_class() -> Any:
    torch = require_torch()

    class LinearizedModule(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """f(x; theta_0) + J(x; theta_0) (theta - theta_0), theta the parameters of this module."""

        def __init__(self, network: Network) -> None:
            super().__init__()
            self.base = copied(network.module).requires_grad_(False)
            self.names = tuple(network.parameters)
            self.tried = False
            for name, parameter in network.parameters.items():
                start = torch.nn.Parameter(parameter.detach().clone())
                self.register_parameter(name.replace(".", "__"), start)

        def named_point(self) -> dict[str, Any]:
            """The parameters by the names that the module has for them."""
            return {name: getattr(self, name.replace(".", "__")) for name in self.names}

        def train(self, mode: bool = True) -> Any:
            """The base keeps its mode: its outputs must stay those at the start."""
            self.training = mode
            return self

        def forward(self, *inputs: Any) -> Any:
            own = dict(self.base.named_parameters())
            at = {name: own[name] for name in self.names}
            if not self.tried:
                self._try(at, inputs)
            direction = {name: now - at[name] for name, now in self.named_point().items()}
            with left_alone(self.base), as_written():
                start, change = value_and_change(self.base, at, direction, inputs)
            return start + change

        def _try(self, at: dict[str, Any], inputs: tuple[Any, ...]) -> None:
            """Refuse, at the first call, a module whose derivatives here would be others."""
            with gradients(), left_alone(self.base):
                try:
                    for parameter in at.values():
                        parameter.requires_grad_(True)
                    network = Network(self.base, at)
                    if not takes_substitutes(network, inputs):
                        raise not_linearizable("a backward pass that calls it again.")
                    require_linearizable(network, inputs)
                    self.tried = True
                finally:
                    for parameter in at.values():
                        parameter.requires_grad_(False)

    LinearizedModule.__qualname__ = "LinearizedModule"
    return LinearizedModule


def __getattr__(name: str) -> Any:
    """Lets pickle, and with it torch.save, find the class that only exists where torch does."""
    if name == "LinearizedModule":
        return _twin_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def linearized_flow(
    module: Any,
    x: Any,
    y: Any,
    *,
    loss: str | float = "half",
    double: bool = True,
    max_memory: int | str = "1GiB",
) -> LinearizedFlow:
    """Gradient flow of the linearized module on (c/2) ||f_lin(x) - y||^2, at all times at once.

    The n c x n c kernel is formed and diagonalized.

    Parameters
    ----------
    module : any torch.nn.Module in eval mode
    x : inputs
    y : one entry per sample and output
    loss : as for `flow`: "half" (c = 1), "sum" (2), "half_mean" (1/n), "mean" (2/n), or c
    double : whether a copy of the module in double precision is taken
    max_memory : bytes, "1GiB" or "500MB", of what is held beyond the module and the result

    Returns
    -------
    LinearizedFlow

    Raises
    ------
    InputError for a module or data that cannot be used

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0], [2.0]])
    >>> flow = linearized_flow(net, x, y)
    >>> bool(np.allclose(flow.predict(x), y))  # t = infinity: interpolates
    True
    """
    network = Network.read(copied_in_double(module) if double else module)
    inputs = network.cast_inputs("x", x) if double else x
    tangent = TangentMap(network.module, inputs, max_memory=max_memory).ready()
    constant = loss_constant(loss, tangent.samples)
    start = as_array(tangent.values()).astype(np.float64)
    target = _read_targets(y, start.shape)
    kernel = kernel_matrix(tangent.kernel())
    precision = float(np.finfo(kernel.dtype).eps)
    values, vectors = np.linalg.eigh(kernel.astype(np.float64))
    return LinearizedFlow(
        tangent=tangent,
        start=start,
        target=target,
        constant=constant,
        eigenvalues=values,
        eigenvectors=vectors,
        # Rounding of K moves eigenvalues by up to its norm times the precision of its entries.
        learnable=values > len(values) * precision * max(float(values[-1]), 0.0),
    )


@dataclass(frozen=True)
class LinearizedFlow:
    """Training of the linearized twin, solved: `predict(x, t)` at any time, infinity included."""

    tangent: TangentMap
    start: FloatArray
    target: FloatArray
    constant: float
    eigenvalues: FloatArray
    eigenvectors: FloatArray
    #: directions that the kernel can learn at all
    learnable: Any

    def outputs(self, t: float = np.inf) -> FloatArray:
        """f_lin on the training inputs at time t: (n, c)."""
        return self.start + self._along(self._fitted(t))

    def loss(self, t: float = np.inf) -> float:
        """(c/2) ||f_lin - y||^2 at time t; what is left at infinity cannot be learned."""
        return 0.5 * self.constant * float(np.sum((self.outputs(t) - self.target) ** 2))

    def predict(self, x: Any, t: float = np.inf) -> FloatArray:
        """f_lin(x, t) on any inputs: (samples, c)."""
        new = self._on(self.tangent.network, x)
        change = new.jvp(self._movement(t))
        return as_array(new.values() + change).astype(np.float64)

    def _on(self, network: Network, x: Any) -> TangentMap:
        """The map of a network, ours or another, on inputs in its precision."""
        inputs = network.cast_inputs("x", x)
        return TangentMap(network.module, inputs, max_memory=self.tangent.budget).ready()

    def parameters(self, t: float = np.inf) -> dict[str, Any]:
        """theta(t) by name."""
        at = self.tangent.network.parameters
        return {name: at[name].detach() + move for name, move in self._movement(t).items()}

    def module(self, t: float = np.inf) -> Any:
        """The linearized module (`linearize`) at its parameters at time t."""
        torch = require_torch()
        twin = linearize(self.tangent.network.module)
        with torch.no_grad():
            for name, value in self.parameters(t).items():
                twin.named_point()[name].copy_(value)
        return twin

    def lazy_gap(self, trained: Any, x: Any = None, t: float = np.inf) -> float:
        """||f - f_lin|| / ||f_lin - f_0|| on x (default: training inputs), f the trained module.

        0 where training was as lazy as its twin; about 1 and more where features were learned.
        """
        network = Network.read(copied_in_double(trained))
        after = self._on(network, self.tangent.inputs if x is None else x)
        before = self._on(self.tangent.network, after.inputs)
        return lazy_gap(after.values(), self.predict(after.inputs, t), before.values())

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Loss over time and spectrum of the kernel; as `Trajectory.plot` with `path` and `ax`."""

        def losses(axes: Axes) -> None:
            times = self._telling_times
            course(axes, times, np.array([self.loss(t) for t in times]), label="loss")
            time_axis(axes, times)
            axes.set_title("the linearized twin")

        def kernel(axes: Axes) -> None:
            learned = np.where(self.learnable, self.eigenvalues, 0.0)[::-1]
            spectrum(axes, learned, label="eigenvalue of the kernel")

        return picture(losses, kernel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        samples, outputs = self.start.shape
        return facts(
            "LinearizedFlow",
            {
                "samples": f"{samples}",
                "outputs": f"{outputs}",
                "directions that are learned": f"{np.count_nonzero(self.learnable)}",
                "loss at the start": self.loss(0.0),
                "loss at the end": self.loss(),
                "fastest rate": float(self._speeds[-1]),
                "slowest rate": float(self._speeds[0]),
            },
        )

    @property
    def _speeds(self) -> FloatArray:
        """Rates at which directions are learned, rising; NaN where the kernel learns nothing."""
        rates = self.constant * self.eigenvalues[self.learnable]
        return rates if rates.size else np.full(1, np.nan)

    @property
    def _telling_times(self) -> FloatArray:
        """From 1/100 of the fastest direction's own to 100 of the slowest's, by their logarithm."""
        rates = np.nan_to_num(self._speeds, nan=1.0)
        return np.geomspace(0.01 / rates[-1], 100.0 / rates[0], 200)

    @property
    def _rates(self) -> FloatArray:
        """Eigenvalues; 1 where they are zero, as 0 times an infinite time is nothing."""
        return np.where(self.learnable, self.eigenvalues, 1.0)

    def _fitted(self, t: float) -> FloatArray:
        """1 - exp(-c eigenvalue t): which part of each direction is learned by time t."""
        learned = -np.expm1(-self.constant * self._rates * _read_time(t))
        return np.where(self.learnable, learned, 0.0)

    def _along(self, weights: FloatArray) -> FloatArray:
        """U diag(weights) U^T (y - f_0)."""
        residual = (self.target - self.start).reshape(-1)
        moved = self.eigenvectors @ (weights * (self.eigenvectors.T @ residual))
        return moved.reshape(self.start.shape)

    def _movement(self, t: float) -> dict[str, Any]:
        torch = require_torch()
        dual = torch.as_tensor(self._along(self._fitted(t) / self._rates))
        return self.tangent.vjp(dual.to(self.tangent.network.device, self.tangent.network.dtype))


def lazy_gap(network: Any, twin: Any, start: Any) -> float:
    """||f - f_lin||_F / ||f_lin - f_0||_F from outputs on the same inputs.

    The distance in function space between a trained network and its linearized twin, measured by
    how far the twin went.

    Parameters
    ----------
    network, twin, start : outputs f, f_lin and f_0, of one shape

    Returns
    -------
    float

    Raises
    ------
    InputError for outputs of different shapes

    >>> lazy_gap([[1.0]], [[2.0]], [[0.0]])
    0.5
    """
    f, f_lin, f_0 = (
        as_doubles(name, part, "Pass outputs on the same inputs.")
        for name, part in (("network", network), ("twin", twin), ("start", start))
    )
    if not f.shape == f_lin.shape == f_0.shape:
        raise InputError(
            f"network, twin, start: must be outputs of one shape, got {f.shape}, {f_lin.shape} and "
            f"{f_0.shape}. Compute all on the same inputs."
        )
    moved = float(np.linalg.norm(f_lin - f_0))
    if moved == 0.0:
        raise InputError(
            "twin: must have moved from the start, got equal outputs. There is nothing to measure "
            "the gap by: train on labels that differ from the outputs at the start."
        )
    return float(np.linalg.norm(f - f_lin)) / moved


def _read_time(t: Any) -> float:
    time = as_float(t)
    if time is None or not time >= 0.0:
        raise InputError(f"t: must be a time >= 0, got {t!r}. math.inf is the end of training.")
    return time


def _read_targets(y: Any, shape: tuple[int, ...]) -> FloatArray:
    target = as_doubles("y", y, "Pass classes one-hot.")
    if target.size != np.prod(shape) or not target.ndim or len(target) != shape[0]:
        raise InputError(
            f"y: must have one entry per sample and output, shape {shape}, got {target.shape}. "
            "Pass classes one-hot."
        )
    if not np.isfinite(target).all():
        raise InputError("y: must be finite, got NaN or infinity. Drop or impute such entries.")
    return target.reshape(shape)
