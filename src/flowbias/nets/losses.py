"""What training lowers, and on what: losses, samples and targets, read and checked once.

Squared loss by the library's names, cross-entropy, or a function:

    "half" (1/2) sum r^2     "sum" sum r^2     "half_mean" (1/2n) sum r^2     "mean" (1/n) sum r^2
    "squared" is another name of "half";    "cross_entropy": mean of -log softmax(f)_label

n counts samples, and sums run over all outputs. On a batch, n is the size of the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.flows.request import CONSTANTS, loss_constant
from flowbias.ground.arguments import InputError, as_float, takes
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import Network

#: A function of (outputs, targets) that returns a scalar tensor.
OwnLoss = Callable[[Any, Any], Any]


class Loss(ABC):
    """A loss of outputs (samples, outputs) and targets."""

    #: how a checkpoint knows it again
    name: str
    #: whether targets are classes, so that there is an accuracy
    labels: bool

    @abstractmethod
    def read_targets(self, y: Any, outputs: Any) -> Any:
        """y as a tensor that fits the outputs of a few samples."""

    @abstractmethod
    def of(self, outputs: Any, targets: Any) -> Any:
        """The loss of a batch, a scalar that can be differentiated."""

    @abstractmethod
    def weight(self, batch: int, n: int) -> float:
        """What the loss of a batch counts in that of all n samples."""

    def of_zero(self, outputs: Any, targets: Any) -> float:
        """The loss of the zero predictor: a size to judge losses by. `outputs` are a few."""
        return float(self.of(outputs.new_zeros((len(targets), *outputs.shape[1:])), targets))


@dataclass(frozen=True)
class SquaredLoss(Loss):
    """(c/2) sum (f - y)^2, with the constant c of `flowbias.flows.request`."""

    kind: str | float = "half"
    labels = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"squared, {self.kind}"

    def read_targets(self, y: Any, outputs: Any) -> Any:
        targets = as_tensor("y", y, outputs)
        shape = (len(targets) if targets.ndim else len(outputs), *outputs.shape[1:])
        if targets.ndim == 1 and outputs.shape[1:] == (1,):
            targets = targets[:, None]
        if targets.shape != shape:
            raise InputError(
                f"y: must have one number per sample and output, of shape {tuple(shape)}, got "
                f"{tuple(targets.shape)}. Reshape it, or change the module's outputs."
            )
        return targets

    def constant(self, n: int) -> float:
        """c for n samples."""
        return loss_constant(self.kind, n)

    def of(self, outputs: Any, targets: Any) -> Any:
        return 0.5 * self.constant(len(targets)) * (outputs - targets).square().sum()

    def weight(self, batch: int, n: int) -> float:
        return self.constant(n) / self.constant(batch)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Mean over samples of -log softmax(f)_label."""

    name = "cross_entropy"
    labels = True

    def read_targets(self, y: Any, outputs: Any) -> Any:
        torch = require_torch()
        labels = _labels(y, outputs.device)
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise InputError(
                f"module: must return (samples, classes) with two classes or more for "
                f"cross-entropy, got {tuple(outputs.shape)}. Give the last layer one output per "
                "class."
            )
        if labels.ndim != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
            raise InputError(
                f"y: must be one integer label per sample for cross-entropy, got {labels.dtype} "
                f"of shape {tuple(labels.shape)}. Pass class numbers, for instance y.argmax(1)."
            )
        if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < outputs.shape[1]):
            raise InputError(
                f"y: must have labels from 0 to {outputs.shape[1] - 1}, got "
                f"{int(labels.min())} to {int(labels.max())}. Number the classes from 0, or give "
                "the module more outputs."
            )
        return labels.long()

    def of(self, outputs: Any, targets: Any) -> Any:
        return require_torch().nn.functional.cross_entropy(outputs, targets)

    def weight(self, batch: int, n: int) -> float:
        return batch / n


def _labels(y: Any, device: Any) -> Any:
    try:
        return require_torch().as_tensor(y, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"y: must be one integer label per sample for cross-entropy, got {type(y).__name__} "
            f"({error}). Number the classes from 0."
        ) from error


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """Anybody's function of (outputs, targets), taken as a mean over samples."""

    function: OwnLoss
    labels = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def read_targets(self, y: Any, outputs: Any) -> Any:
        return require_torch().as_tensor(y, device=outputs.device)

    def of(self, outputs: Any, targets: Any) -> Any:
        value = self.function(outputs, targets)
        torch = require_torch()
        if not isinstance(value, torch.Tensor) or value.ndim != 0:
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(
                f"loss: must return a scalar tensor, got {got}. Reduce it, for instance by .mean()."
            )
        return value

    def weight(self, batch: int, n: int) -> float:
        return batch / n

    def of_zero(self, outputs: Any, targets: Any) -> float:
        return 0.0  # it may be undefined there


_NAMED: dict[str, Loss] = {
    "squared": SquaredLoss("half"),
    "cross_entropy": CrossEntropy(),
    **{name: SquaredLoss(name) for name in CONSTANTS},
}


def read_loss(loss: Any) -> Loss:
    """A loss by its name, by the constant c of (c/2) sum r^2, or as a function."""
    if isinstance(loss, str) and loss in _NAMED:
        return _NAMED[loss]
    number = as_float(loss)
    if number is not None:
        loss_constant(number, 1)
        return SquaredLoss(number)
    if callable(loss) and takes(loss, 2):
        return FunctionLoss(loss)
    names = ", ".join(repr(name) for name in _NAMED)
    raise InputError(
        f"loss: must be one of {names}, a constant c > 0 for (c/2) sum r^2, or a function of "
        f"(outputs, targets), got {loss!r}. Pass one of these."
    )


def as_tensor(name: str, value: Any, like: Any) -> Any:
    """Real numbers as a finite tensor of the dtype and device of `like`."""
    torch = require_torch()
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(_plain(value))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: must be an array or tensor of numbers, got {type(value).__name__} "
            f"({error}). Convert it first, for instance by numpy.asarray({name}, float)."
        ) from error
    if tensor.is_complex():
        raise InputError(f"{name}: must be real, got {tensor.dtype}. Pass its real part.")
    tensor = tensor.detach().to(dtype=like.dtype, device=like.device)
    if not bool(torch.isfinite(tensor).all()):
        bad = (~torch.isfinite(tensor)).nonzero()[0].tolist()
        raise InputError(
            f"{name}: must be finite, got {float(tensor[tuple(bad)])} at index {tuple(bad)}. "
            "Drop or impute such entries."
        )
    return tensor


def _plain(value: Any) -> Any:
    # torch warns about arrays that cannot be written, which it would share.
    array = np.asarray(value)
    return array if array.flags.writeable else array.copy()


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


def in_parts(*tensors: Any, at_once: int = 512) -> Iterator[tuple[Any, ...]]:
    """So many samples of each at a time, which bounds the memory of convolutions."""
    return zip(*(tensor.split(at_once) for tensor in tensors), strict=True)


def evaluate(module: Any, data: TrainingData, loss: Loss) -> tuple[float, float]:
    """Loss of all samples, and the share of right labels (NaN where there are none)."""
    torch = require_torch()
    total, right = 0.0, 0
    with torch.no_grad():
        for x, y in in_parts(data.x, data.y):
            outputs = module(x)
            total += loss.weight(len(x), len(data)) * float(loss.of(outputs, y))
            right += right_labels(outputs, y) if loss.labels else 0
    return total, right / len(data) if loss.labels else float("nan")


def right_labels(outputs: Any, labels: Any) -> int:
    """How many samples have their largest output at their label."""
    return int((outputs.argmax(1) == labels).sum())
