"""Samples, targets and the module that they are for, read and checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowbias._torch import require_torch
from flowbias.kernels.network import Network
from flowbias.nets.losses import Loss, as_tensor
from flowbias.problem import InputError

# Samples whose outputs are evaluated at once: bounds the memory of convolutions.
_AT_ONCE = 512


@dataclass(frozen=True)
class TrainingData:
    """x and y on the module's device, in its dtype."""

    x: Any
    y: Any
    #: loss of the zero predictor, 0 where it is not known
    zero_level: float

    def __len__(self) -> int:
        return len(self.x)


def read_data(module: Any, x: Any, y: Any, loss: Loss) -> TrainingData:
    """Check the module and its data; NumPy arrays and lists become tensors of its dtype."""
    torch = require_torch()
    # A module whose f(x) is random, or depends on the other samples, is refused here.
    network = Network.read(module)
    first = next(iter(network.parameters.values()))
    samples = read_samples("x", x, first)
    with torch.no_grad():
        outputs = first_outputs(module, samples)
    targets = loss.read_targets(y, outputs)
    if len(targets) != len(samples):
        raise InputError(
            f"y: must have one entry per sample of x ({len(samples)}), got {len(targets)}. "
            "Check that x and y are of the same samples."
        )
    with torch.no_grad():
        return TrainingData(samples, targets, loss.of_zero(outputs, targets))


def read_samples(name: str, x: Any, first: Any) -> Any:
    """x as a tensor; integer tensors stay so, for embeddings, all else becomes real numbers."""
    torch = require_torch()
    if isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex():
        samples = x.detach().to(first.device)
    else:
        samples = as_tensor(name, x, first)
    if samples.ndim == 0 or len(samples) == 0:
        raise InputError(
            f"{name}: must have one sample or more along the first dimension, got shape "
            f"{tuple(samples.shape)}. For a single sample pass {name}[None]."
        )
    return samples


def first_outputs(module: Any, samples: Any) -> Any:
    """Outputs of at most two samples, with torch's complaints about x in our words."""
    torch = require_torch()
    few = samples[:2]
    try:
        outputs = module(few)
    except (RuntimeError, TypeError, IndexError) as error:
        raise InputError(
            f"x: must be what the module takes, got shape {tuple(samples.shape)} and "
            f"{samples.dtype}: {str(error).splitlines()[0]}. Reshape or convert x: floats for "
            "dense and convolutional layers, integers for embeddings."
        ) from error
    if not isinstance(outputs, torch.Tensor) or outputs.ndim == 0 or len(outputs) != len(few):
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InputError(
            f"module: must return one tensor with one row per sample, got {got} for {len(few)} "
            "samples. Wrap it in a module whose forward picks that tensor."
        )
    return outputs


def evaluate(module: Any, data: TrainingData, loss: Loss) -> tuple[float, float]:
    """Loss of all samples, and the share of right labels (NaN where there are none)."""
    torch = require_torch()
    total, right = 0.0, 0
    with torch.no_grad():
        for x, y in zip(data.x.split(_AT_ONCE), data.y.split(_AT_ONCE), strict=True):
            outputs = module(x)
            total += loss.weight(len(x), len(data)) * float(loss.of(outputs, y))
            right += right_labels(outputs, y) if loss.labels else 0
    return total, right / len(data) if loss.labels else float("nan")


def right_labels(outputs: Any, labels: Any) -> int:
    """How many samples have their largest output at their label."""
    return int((outputs.argmax(1) == labels).sum())
