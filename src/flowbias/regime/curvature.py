"""First and second derivatives of a module by its parameters, on given inputs, as norms.

    ||Df||         largest singular value of J, by power iteration on J^T J
    ||D^2 f||      sup of ||D^2 f[u, u]|| over unit u, by power iteration
    ||D^2 f[d]||   Frobenius norm of the change of J along d, by random combinations of outputs

Second derivatives come as gradients of the gradient along a direction; nothing of the size of a
Hessian is formed. Where a ReLU switches there is none: the activations are taken as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.jacobian import plain_attention
from flowbias.kernels.network import Inputs, Network, Tensor, gradients, normals


@dataclass(frozen=True)
class ModuleDerivatives:
    """A module on inputs, whose derivatives are asked for along directions in parameter space."""

    network: Network
    inputs: Inputs

    @property
    def parameters(self) -> list[Any]:
        return list(self.network.parameters.values())

    def values(self) -> Tensor:
        """f: (samples, outputs)."""
        with gradients(on=False):
            return self.network.outputs(self.inputs)

    def random_direction(self, seed: int) -> list[Tensor]:
        """A random unit vector of parameters, the same on every device."""
        draw = normals(seed)
        parts = [draw(p.shape, p) for p in self.parameters]
        return _scaled(parts, 1.0 / _norm(parts))

    def pull_back(self, vector: Tensor) -> list[Tensor]:
        """J^T vector."""
        with gradients():
            return self._gradient(self.network.outputs(self.inputs), vector)

    def push_forward(self, direction: list[Tensor]) -> Tensor:
        """J direction."""
        with gradients(), plain_attention():
            return self._along(direction).detach()

    def _bent(self, along: Tensor, direction: list[Tensor]) -> Tensor:
        """D^2 f[direction, direction] from J direction: (samples, outputs)."""
        torch = require_torch()
        if not along.requires_grad:  # linear in all parameters
            return torch.zeros_like(along)
        # Linear in w again, as in _along: the derivative by w is what is wanted.
        w = torch.zeros_like(along, requires_grad=True)
        found = self._gradient(along, w, graph=True)
        (bent,) = torch.autograd.grad(
            _product(found, direction), w, allow_unused=True, materialize_grads=True
        )
        return bent

    def _along(self, direction: list[Tensor]) -> Tensor:
        """J direction, differentiable: d/dw <J^T w, direction>."""
        torch = require_torch()
        outputs = self.network.outputs(self.inputs)
        w = torch.zeros_like(outputs, requires_grad=True)
        pulled = self._gradient(outputs, w, graph=True)
        (along,) = torch.autograd.grad(
            _product(pulled, direction), w, create_graph=True, materialize_grads=True
        )
        return along

    def _gradient(
        self, outputs: Tensor, vector: Tensor, *, graph: bool = False, keep: bool = False
    ) -> list[Tensor]:
        torch = require_torch()
        if not outputs.requires_grad:  # linear in all parameters: no second derivative
            return [torch.zeros_like(p) for p in self.parameters]
        return list(
            torch.autograd.grad(
                outputs,
                self.parameters,
                vector,
                create_graph=graph,
                retain_graph=graph or keep,
                allow_unused=True,
                materialize_grads=True,
            )
        )

    def first_norm(self) -> float:
        """||Df||, the largest singular value of J."""

        def step(u: list[Tensor]) -> tuple[float, list[Tensor]]:
            image = self.push_forward(u)
            return float(image.norm()), self.pull_back(image)

        return _iterated(step, self.random_direction(0))

    def second_norm(self) -> float:
        """||D^2 f|| = max ||D^2 f[u, u]|| over unit u, from a few random starts: a lower bound."""

        def step(u: list[Tensor]) -> tuple[float, list[Tensor]]:
            with gradients(), plain_attention():
                along = self._along(u)
                bent = self._bent(along, u)
                # Ascent of ||D^2 f[u, u]||; shifted, as the plain iteration may alternate in sign.
                ahead = self._gradient(along, bent)
            size = float(bent.norm())
            shift = 0.5 * size**2
            return size, [a + shift * b for a, b in zip(ahead, u, strict=True)]

        # Two starts: the iteration may rest at a smaller critical value.
        return max(_iterated(step, self.random_direction(1 + i)) for i in range(2))

    def size(self) -> float:
        """||J||_F."""
        with gradients():
            return self._frobenius(self.network.outputs(self.inputs))

    def change_along(self, direction: list[Tensor]) -> float:
        """||D^2 f[direction]||_F, by the same random combinations of outputs as `size`."""
        with gradients(), plain_attention():
            return self._frobenius(self._along(direction))

    def _frobenius(self, outputs: Tensor, draws: int = 16) -> float:
        """||A||_F, A the derivative of outputs: E ||A^T z||^2 over normal z is its square."""
        draw, total = normals(0), 0.0
        for _ in range(draws):
            z = draw(outputs.shape, outputs)
            total += _norm(self._gradient(outputs, z, keep=True)) ** 2
        return math.sqrt(total / draws)


def _iterated(
    step: Callable[[list[Tensor]], tuple[float, list[Tensor]]],
    start: list[Tensor],
    settled: float = 1e-4,
    most: int = 100,
) -> float:
    """The value that a power iteration settles at; 0 where its vector vanishes.

    Norms enter through their logarithm: a percent is plenty.
    """
    value, direction = 0.0, start
    for _ in range(most):
        last = value
        value, ahead = step(direction)
        size = _norm(ahead)
        if not (math.isfinite(value) and math.isfinite(size)):
            raise InputError(
                "module: must have finite derivatives, got NaN or infinity. Look for overflow, or "
                "a square root or logarithm at zero."
            )
        if size == 0.0 or abs(value - last) <= settled * value:
            break
        direction = _scaled(ahead, 1.0 / size)
    return value


def _norm(parts: list[Tensor]) -> float:
    return float(np.linalg.norm([float(part.norm()) for part in parts]))


def _scaled(parts: list[Tensor], factor: float) -> list[Tensor]:
    return [factor * part for part in parts]


def _product(first: list[Tensor], second: list[Tensor]) -> Tensor:
    return sum((a * b).sum() for a, b in zip(first, second, strict=True))  # type: ignore[return-value, unused-ignore]
