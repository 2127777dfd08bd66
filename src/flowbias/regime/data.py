"""Inputs, labels and modules as people have them, made what the rest of this room takes.

    x   tensors, a dict of them that the module takes by name, or a DataLoader of batches of either
    y   labels, or those that come with the batches
    f   a module that returns a tensor, or an object or dict with `logits`, or a tuple of tensors

Half precision is computed in single, and said. Everything comes out as a module that is called with
a tuple of tensors and returns one.

Networks that fit the same data agree there; what training made of them shows elsewhere. New inputs
resemble the given ones: each feature is drawn on its own from the values that it takes, between
them by linear interpolation of its quantiles where it is a real number, one of them where it is an
integer (a class, a word).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError, as_array, as_reals, depth_inside, shown, takes
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels.network import (
    Inputs,
    Network,
    Tensor,
    copied,
    gradients,
    left_alone,
    outputs_of_each,
    refuse_mixing_layers,
    unwrapped,
)

#: What batches call their labels.
LABELS = ("labels", "label", "targets", "target", "y")


def read_practice(modules: Sequence[Any], x: Any, y: Any) -> tuple[list[Any], Any, Any]:
    """Modules of one architecture with x and y, as tensors where they were something else."""
    torch = require_torch()
    plain = torch.Tensor | Mapping | list | tuple | np.ndarray | str
    single = [_in_single(module) for module in modules]
    if not isinstance(x, plain) and isinstance(x, Iterable):
        batches, given = x, y
        x, y = _joined(x, y)
        if given is not None:
            _require_labels_beside(batches, x, single[0])
    names: tuple[str, ...] | None = None
    if isinstance(x, Mapping):
        y = next((x[name] for name in LABELS if name in x), None) if y is None else y
        inputs = {name: part for name, part in x.items() if name not in LABELS}
        names, x = tuple(inputs), tuple(inputs.values())
    if names is not None or _returns_more(single[0], x):
        single = [_adapted()(module, names) for module in single]
    return single, x, y


def _joined(batches: Any, y: Any, most: int = 256) -> tuple[Any, Any]:
    """Inputs and labels of the first batches, up to so many samples.

    A batch is a dict, a tensor, or inputs followed by labels.
    """
    torch, kept, samples = require_torch(), [], 0
    for batch in batches:
        if samples >= most:
            warnings.warn(
                f"x: the first {samples} samples of the batches are used", stacklevel=depth_inside()
            )
            break
        kept.append(batch)
        first = next(iter(batch.values())) if isinstance(batch, Mapping) else batch
        if not isinstance(first, torch.Tensor | Sequence) or not len(first):
            raise InputError(
                f"x: must be a tensor, tensors, or batches of them, got {shown(first)} in a "
                f"{type(batches).__name__}. Pass a DataLoader with samples."
            )
        samples += len(first if isinstance(first, torch.Tensor) else first[0])
    if not kept:
        raise InputError("x: must have a batch or more, got none. Pass a DataLoader with samples.")
    if isinstance(kept[0], Mapping):
        return {name: torch.cat([batch[name] for batch in kept]) for name in kept[0]}, y
    if isinstance(kept[0], torch.Tensor):
        return torch.cat(kept), y
    parts = [torch.cat(list(part)) for part in zip(*kept, strict=True)]
    if y is not None or len(parts) == 1:
        return tuple(parts), y
    return (parts[0] if len(parts) == 2 else tuple(parts[:-1])), parts[-1]


def _require_labels_beside(batches: Any, x: Any, module: Any) -> None:
    """Refuse labels beside batches that bring theirs, or come in an order of their own."""
    if not _in_order(batches):
        raise InputError(
            "y: must come with the batches of a DataLoader that is not in the order of its dataset "
            "(shuffle=True, or a sampler), got labels beside it. Put them into the dataset, or "
            "pass shuffle=False."
        )
    if isinstance(x, Mapping):
        more = [name for name in LABELS if name in x]
    else:
        parts = x if isinstance(x, tuple) else (x,)
        fits = not isinstance(module, require_torch().nn.Module)  # refused later, by its name
        more = [] if fits or takes(module.forward, len(parts)) else ["the last of their parts"]
    if more:
        raise InputError(
            f"y: must not be passed beside batches that bring labels, got both ({more[0]} and y). "
            "Leave y out, or pass a DataLoader of the inputs alone."
        )


def _in_order(batches: Any) -> bool:
    """Whether a loader goes through its dataset from first to last, as far as it says."""
    data = require_torch().utils.data
    if not isinstance(batches, data.DataLoader) or isinstance(
        batches.dataset, data.IterableDataset
    ):
        return True
    own = batches.batch_sampler
    drawn = own.sampler if type(own) is data.BatchSampler else own or batches.sampler
    return isinstance(drawn, data.SequentialSampler)


def _in_single(module: Any) -> Any:
    """A module of half precision copied to float32, aloud; any other as it is."""
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        return module  # refused by whoever asked, in the words of its argument
    module = unwrapped(module)
    half = {p.dtype for p in module.parameters()} & {torch.float16, torch.bfloat16}
    if not half:
        return module
    warnings.warn(f"a module in {half.pop()} is measured in float32", stacklevel=depth_inside())
    return copied(module).float()


def _returns_more(module: Any, x: Any) -> bool:
    """Whether the module returns anything but a tensor, by a call on one sample."""
    torch = require_torch()
    parts = tuple(x) if isinstance(x, tuple | list) else (x,)
    if not isinstance(module, torch.nn.Module) or not all(
        isinstance(part, torch.Tensor) and part.ndim and len(part) for part in parts
    ):
        return False
    refuse_mixing_layers(module)
    kinds = {p.dtype for p in module.parameters()}
    like = kinds.pop() if len(kinds) == 1 else None
    try:
        with left_alone(module), gradients(on=False):
            found = module(
                *(p[:1].to(like) if like and p.is_floating_point() else p[:1] for p in parts)
            )
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False  # refused with its reason where it is called in earnest
    return not isinstance(found, torch.Tensor) and _picked(found) is not None


def _picked(found: Any) -> Any:
    """The tensor of what a module returned: its logits, or the first one."""
    torch = require_torch()
    if isinstance(found, torch.Tensor):
        return found
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    parts = list(found.values()) if isinstance(found, Mapping) else found
    many = parts if isinstance(parts, tuple | list) else ()
    return next((part for part in many if isinstance(part, torch.Tensor)), None)


@cache
def _adapted() -> Any:
    torch = require_torch()

    class Adapted(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        """A module called by names, of whose return one tensor is taken."""

        def __init__(self, module: Any, names: tuple[str, ...] | None) -> None:
            super().__init__()
            self.module, self.names = module, names
            self.training = module.training

        def forward(self, *inputs: Any) -> Any:
            if self.names is None:
                return _picked(self.module(*inputs))
            return _picked(self.module(**dict(zip(self.names, inputs, strict=True))))

    return Adapted


def layers_of(network: Network) -> dict[str, list[str]]:
    """Names of parameters by the part that holds them, which is called as its owner knows it."""
    return network.layers_within("module." if isinstance(network.module, _adapted()) else "")


def fresh_tensors(inputs: Inputs, samples: int = 200) -> Inputs:
    """Inputs that resemble the given ones but were not trained on, the same ones at each call.

    200: the error of a norm over inputs falls as 1/sqrt(2 samples), to a few percent.
    """
    rng, torch = np.random.default_rng(0), require_torch()
    return tuple(torch.as_tensor(_drawn(part, samples, rng)).to(part) for part in inputs)


def _drawn(given: Tensor, samples: int, rng: np.random.Generator) -> NDArray[Any]:
    part = as_array(given)
    count = len(part)
    columns = np.sort(part.reshape(count, -1), axis=0)
    place = rng.uniform(0.0, count - 1.0, size=(samples, columns.shape[1]))
    if not np.issubdtype(part.dtype, np.floating):
        place = np.round(place)
    below = np.minimum(place.astype(np.int64), max(count - 2, 0))
    above = np.minimum(below + 1, count - 1)
    share = place - below
    low = np.take_along_axis(columns, below, axis=0)
    high = np.take_along_axis(columns, above, axis=0)
    values = low + share * (high - low)
    return np.asarray(values.astype(part.dtype).reshape(samples, *part.shape[1:]))


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
    shape = len(inputs), outputs_of_each(network, "X", (inputs,))
    targets = torch.as_tensor(read_targets(y, shape).numbers)
    return inputs, targets.to(network.device, network.dtype)


@dataclass(frozen=True)
class Labels:
    """What a network was trained on: numbers, or classes."""

    #: (samples, outputs); classes one-hot
    numbers: FloatArray
    #: of classes: the rows that softmax is taken of, (samples * positions, classes)
    one_hot: FloatArray | None = None

    def of(self, rows: Sequence[int]) -> Labels:
        """Those of some samples."""
        numbers = self.numbers[rows]
        classes = None if self.one_hot is None else self.one_hot.shape[1]
        return Labels(numbers, None if classes is None else numbers.reshape(-1, classes))


def read_targets(y: Any, shape: tuple[int, int]) -> Labels:
    """Numbers of the outputs' shape, or integer classes: one per sample, or per position of it.

    Outputs of several positions have the classes of each beside one another, as a language model's
    logits (samples, positions, classes) have once flattened. Negative classes (-100) do not count.
    """
    given, (samples, outputs) = read_numbers(y), shape
    positions = given.size // samples if samples else 0
    classes = (
        np.issubdtype(given.dtype, np.integer)
        and given.ndim > 0
        and len(given) == samples
        and 0 < positions < outputs
        and outputs % positions == 0
    )
    if classes:
        return _one_hot(given.reshape(-1), outputs // positions, shape)
    numbers = given.astype(np.float64, copy=False)
    if numbers.size != np.prod(shape) or not np.isfinite(numbers).all():
        what = f"shape {numbers.shape}" if numbers.size != np.prod(shape) else "NaN or infinity"
        raise InputError(
            f"y: must have one finite number per sample and output, shape {shape}, got {what}. "
            "Pass classes as integers, one per sample, or one-hot."
        )
    return Labels(numbers.reshape(shape))


def _one_hot(classes: NDArray[Any], many: int, shape: tuple[int, int]) -> Labels:
    if classes.max() >= many:
        raise InputError(
            f"y: must be classes below the {many} that the outputs have, got {classes.max()}. "
            "Number them from 0, or pass one number per sample and output."
        )
    one_hot = np.zeros((len(classes), many))
    counted = np.flatnonzero(classes >= 0)
    one_hot[counted, classes[counted]] = 1.0
    return Labels(one_hot.reshape(shape), one_hot)


def evenly_spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, its ends among them.

    >>> evenly_spread(10, 4)
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)).tolist()  # type: ignore[no-any-return]


def read_label_rows(y: Any, samples: int) -> FloatArray:
    """One row of finite numbers per sample."""
    labels = read_numbers(y).astype(np.float64, copy=False)
    short = labels.ndim == 0 or len(labels) != samples
    if short or not np.isfinite(labels).all():
        what = f"shape {labels.shape}" if short else "NaN or infinity"
        raise InputError(
            f"y: must have one row of finite numbers per input ({samples}), got {what}. "
            "Pass classes one-hot."
        )
    return labels.reshape(samples, -1)


def read_numbers(y: Any) -> NDArray[Any]:
    """Labels as an array, integers as such."""
    try:
        return as_reals("y", y, "")
    except InputError:
        raise InputError(
            f"y: must be numbers, got {type(y).__name__}: {shown(y)}. Encode classes one-hot."
        ) from None


def loaded(before: Any, after: Any) -> Any:
    """The module after training, which may be given as a state dict of it."""
    torch = require_torch()
    for name, given, kinds, words in (
        ("before", before, torch.nn.Module, "a torch.nn.Module or a model of this library"),
        ("after", after, torch.nn.Module | dict, "the module after training, or its state dict"),
    ):
        if not isinstance(given, kinds):
            raise InputError(
                f"{name}: must be {words}, got {type(given).__name__}. "
                "Copy the module ahead of training (copy.deepcopy)."
            )
    return _loaded(copied(before), after) if isinstance(after, dict) else after


def _loaded(module: Any, state: Any) -> Any:
    with gradients(on=False):
        try:
            module.load_state_dict(_without_wrappers(state, module.state_dict().keys()))
        except RuntimeError as error:
            raise InputError(
                f"after: must be a state dict of before, got another: "
                f"{' '.join(str(error).split())} Pass module.state_dict() after training."
            ) from error
    return module


def _without_wrappers(state: Any, own: Collection[str]) -> Any:
    """By the module's own names, of a state dict of what compiles it or spreads it over devices."""
    for _ in range(2):  # each may hold the other
        for wrapper in ("_orig_mod.", "module."):
            if not any(name in own for name in state) and all(
                str(name).startswith(wrapper) for name in state
            ):
                state = {name.removeprefix(wrapper): value for name, value in state.items()}
    return state
