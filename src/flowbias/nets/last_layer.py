"""Training of the last layer alone: a linear model over the features of the others.

What the papers take for the kernel regime of the image experiments.  [woodworth2020, B.2]
"""

from __future__ import annotations

from typing import Any

from flowbias._torch import require_torch
from flowbias.nets.losses import OwnLoss, read_loss
from flowbias.nets.train import train
from flowbias.nets.training import Training
from flowbias.nets.training_data import read_data
from flowbias.problem import InputError

# Samples whose features are computed at once: bounds the memory of convolutions.
_AT_ONCE = 512


def train_last_layer(
    module: Any,
    x: Any,
    y: Any,
    *,
    step_size: float,
    loss: str | float | OwnLoss = "squared",
    **options: Any,
) -> Training:
    """Train the last Linear layer of `module` in place, the rest fixed; options as in `train`.

    The features below it are computed once, so that a step costs no more than that layer. The
    module's output must be that of its last Linear layer itself.

    >>> from flowbias.nets import mlp
    >>> net = mlp((1, 20, 1), rng=0)
    >>> fixed = net[0].weight.detach().clone()
    >>> train_last_layer(net, [[1.0], [-1.0]], [1.0, 2.0], step_size=0.02).loss < 1e-3
    True
    >>> bool((net[0].weight == fixed).all())
    True
    """
    data = read_data(module, x, y, read_loss(loss))
    layer = _last_linear(module)
    features = _features(module, layer, data.x)
    return train(layer, features, data.y, step_size=step_size, loss=loss, **options)


def _last_linear(module: Any) -> Any:
    nn = require_torch().nn
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise InputError(
            f"module: must have a Linear layer, got {type(module).__name__} without one. "
            "Freeze the other parameters by requires_grad_(False) and call train."
        )
    return layers[-1]


def _features(module: Any, layer: Any, x: Any) -> Any:
    """What the layer is given, for all samples; refused where its output is not the module's."""
    torch = require_torch()
    seen: list[Any] = []
    made: list[Any] = []

    def note(_: Any, inputs: tuple[Any, ...], outputs: Any) -> None:
        seen.append(inputs[0])
        made.append(outputs)

    hook = layer.register_forward_hook(note)
    kept = []
    try:
        with torch.no_grad():
            for part in x.split(_AT_ONCE):
                outputs = module(part)
                if len(made) != 1 or not torch.equal(made[0], outputs):
                    raise InputError(
                        "module: must end with its last Linear layer, used once, got one whose "
                        "output is something else. Freeze the other parameters by "
                        "requires_grad_(False) and call train."
                    )
                kept.append(seen[0])
                seen.clear()
                made.clear()
    finally:
        hook.remove()
    return torch.cat(kept)
