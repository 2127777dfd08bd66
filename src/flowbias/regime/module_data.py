"""Arrays as the tensors that a module takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.kernels.module_input import Network, flat_outputs, gradients
from flowbias.problem import InputError


def tensors_for(module: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """x and y on the module's device: x in its precision where real, y of its outputs' shape."""
    torch = require_torch()
    network = Network.read(module)
    for name, values in (("X", x), ("y", y)):
        kind = np.asarray(values).dtype
        if not (np.issubdtype(kind, np.floating) or np.issubdtype(kind, np.integer)):
            raise InputError(
                f"{name}: must be numbers, got {kind}. Encode classes and words as numbers."
            )
    inputs = torch.as_tensor(np.asarray(x))
    if inputs.is_floating_point():
        inputs = inputs.to(network.dtype)
    inputs = inputs.to(network.device)
    with gradients(on=False):
        shape = flat_outputs(module(inputs[:1]), 1).shape[1]
    labels = np.asarray(y, dtype=np.float64)
    if labels.size != len(inputs) * shape:
        raise InputError(
            f"y: must have one number per sample and output, {len(inputs)} x {shape}, got shape "
            f"{labels.shape}. Pass classes one-hot."
        )
    targets = torch.as_tensor(labels.reshape(len(inputs), shape))
    return inputs, targets.to(network.device, network.dtype)
