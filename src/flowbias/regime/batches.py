"""Inputs, labels and modules as people have them, made what the rest of this room takes.

    x   tensors, a dict of them that the module takes by name, or a DataLoader of batches of either
    y   labels, or those that come with the batches
    f   a module that returns a tensor, or an object or dict with `logits`, or a tuple of tensors

Half precision is computed in single, and said. Everything comes out as a module that is called with
a tuple of tensors and returns one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.kernels.network import copied, gradients, left_alone, refuse_mixing_layers, unwrapped

#: What batches call their labels.
LABELS = ("labels", "label", "targets", "target", "y")


def read_practice(modules: Sequence[Any], x: Any, y: Any) -> tuple[list[Any], Any, Any]:
    """Modules of one architecture with x and y, as tensors where they were something else."""
    torch = require_torch()
    plain = torch.Tensor | Mapping | list | tuple | np.ndarray | str
    if not isinstance(x, plain) and isinstance(x, Iterable):
        x, y = _joined(x, y)
    names: tuple[str, ...] | None = None
    if isinstance(x, Mapping):
        y = next((x[name] for name in LABELS if name in x), None) if y is None else y
        inputs = {name: part for name, part in x.items() if name not in LABELS}
        names, x = tuple(inputs), tuple(inputs.values())
    single = [_in_single(module) for module in modules]
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
            warnings.warn(f"x: the first {samples} samples of the batches are used", stacklevel=4)
            break
        kept.append(batch)
        first = next(iter(batch.values())) if isinstance(batch, Mapping) else batch
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


def _in_single(module: Any) -> Any:
    """A module of half precision copied to float32, aloud; any other as it is."""
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        return module  # refused by whoever asked, in the words of its argument
    module = unwrapped(module)
    half = {p.dtype for p in module.parameters()} & {torch.float16, torch.bfloat16}
    if not half:
        return module
    warnings.warn(f"a module in {half.pop()} is measured in float32", stacklevel=4)
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
