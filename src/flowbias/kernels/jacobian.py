"""Per-sample Jacobians of the parameters that have no structure to use.

All samples at once by `torch.vmap` where the module allows it, one sample after the other where it
does not (data-dependent branches, operations without a batching rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.module_input import Inputs, Network, Tensor, call_at, flat_outputs


def batched_jacobian(
    network: Network, names: Sequence[str], inputs: Inputs, cotangents: Tensor
) -> Tensor:
    """(samples, rows of cotangents, parameters): d <cotangent, f(x)> / d parameters."""
    func = require_torch().func
    # Detached, all of them: no graph of the others is wanted.
    at = {name: parameter.detach() for name, parameter in network.parameters.items()}
    moving = {name: at.pop(name) for name in names}

    def one_sample(*sample: Tensor) -> Any:
        def outputs(parameters: dict[str, Tensor]) -> Tensor:
            alone = tuple(part[None] for part in sample)
            return flat_outputs(call_at(network.module, {**at, **parameters}, alone), 1)[0]

        _, pull_back = func.vjp(outputs, moving)
        return func.vmap(lambda cotangent: pull_back(cotangent)[0])(cotangents)

    found = func.vmap(one_sample)(*inputs)
    return _joined([found[name] for name in names])


def one_by_one_jacobian(
    network: Network, names: Sequence[str], inputs: Inputs, cotangents: Tensor
) -> Tensor:
    """The same, by plain differentiation of one sample after the other."""
    torch = require_torch()
    parameters = [network.parameters[name] for name in names]
    samples, outputs = len(inputs[0]), len(cotangents)
    size = sum(parameter.numel() for parameter in parameters)
    result = cotangents.new_zeros(samples, outputs, size)
    for sample in range(samples):
        f = network.outputs(tuple(part[sample : sample + 1] for part in inputs))
        for output, cotangent in enumerate(cotangents):
            found = torch.autograd.grad(
                f, parameters, cotangent[None], retain_graph=True, allow_unused=True
            )
            start = 0
            for parameter, gradient in zip(parameters, found, strict=True):
                end = start + parameter.numel()
                if gradient is not None:
                    result[sample, output, start:end] = gradient.to_dense().reshape(-1)
                start = end
    return result


def _joined(parts: Sequence[Tensor]) -> Tensor:
    torch = require_torch()
    return torch.cat([part.reshape(*part.shape[:2], -1) for part in parts], dim=2)
