"""Gradients at parameters nearby, where no sample sits on a kink.

Trained ReLU networks have units whose kink lies on a sample. Rounding picks one of two derivatives
there, and not the same for a sample alone as among others. Code that is right agrees nearby.
"""

from __future__ import annotations

from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.module_input import Inputs, Network, Tensor, call_at, flat_outputs

# How far, relatively, parameters are moved: far above rounding, and to no other sign.
MOVED = 1e-2


def moved(network: Network) -> Network:
    """The same module at parameters nearby; to be called by `gradient_at` only."""
    torch = require_torch()
    generator = torch.Generator().manual_seed(0)
    parameters = {}
    for name, parameter in network.parameters.items():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        value = parameter.detach() * (1.0 + MOVED * noise).to(parameter)
        parameters[name] = value.requires_grad_(True)
    return Network(network.module, parameters)


def gradient_at(network: Network, inputs: Inputs, cotangent: Tensor) -> dict[str, Tensor]:
    """d <cotangent, f(inputs)> / d parameters, at the network's parameters, not its module's."""
    found = call_at(network.module, network.parameters, inputs)
    return derivatives(flat_outputs(found, len(inputs[0])), network.parameters, cotangent)


def derivatives(
    outputs: Tensor, parameters: dict[str, Any], cotangent: Tensor
) -> dict[str, Tensor]:
    """d <cotangent, outputs> / d parameters, by name; the graph is kept."""
    found = require_torch().autograd.grad(
        outputs,
        list(parameters.values()),
        cotangent,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    dense = (gradient.to_dense() for gradient in found)
    return dict(zip(parameters, dense, strict=True))


def agree(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> bool:
    """Whether gradients are equal, up to that share of the largest entry of all parameters.

    Of all: that of a shift before a softmax, say, is zero but for rounding.
    """
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return all(
        float((found[name] - expected[name]).abs().max()) <= tolerance * largest for name in found
    )
