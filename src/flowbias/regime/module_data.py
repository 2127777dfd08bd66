"""Arrays as tensors for the modules that regimes are told of."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.kernels.compare import as_array
from flowbias.kernels.network import Inputs, Network, first_call, gradients
from flowbias.problem import InputError
from flowbias.regime.fresh_inputs import fresh_inputs
from flowbias.regime.labels import read_labels


def fresh_tensors(inputs: Inputs) -> Inputs:
    """Inputs that resemble the given ones but were not trained on."""
    torch = require_torch()
    drawn = fresh_inputs([as_array(part) for part in inputs])
    return tuple(torch.as_tensor(new).to(part) for new, part in zip(drawn, inputs, strict=True))


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
    (inputs,) = network.read_inputs("X", inputs.to(network.device))
    with gradients(on=False):
        shape = first_call(network, "X", (inputs[:1],)).shape[1]
    targets = torch.as_tensor(read_labels(y, (len(inputs), shape)))
    return inputs, targets.to(network.device, network.dtype)
