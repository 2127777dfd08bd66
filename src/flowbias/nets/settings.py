"""What the functions of this folder are asked for, read and checked once."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.torch import require_torch

Choice = TypeVar("Choice", bound=Enum)


def read_choice(name: str, value: Any, kinds: type[Choice]) -> Choice:
    """A member of `kinds`, given as itself or by its name as text."""
    try:
        return kinds(value)
    except ValueError:
        names = ", ".join(repr(kind.value) for kind in kinds)
        raise InputError(
            f"{name}: must be one of {names}, got {value!r}. "
            f"Pass one of these, or a member of {kinds.__name__}."
        ) from None


def read_fraction(name: str, value: Any, meaning: str, *, one: bool) -> float:
    """A number from 0 to 1; 1 itself only where `one`."""
    number = as_float(value)
    if number is None or not 0.0 <= number <= 1.0 or (number == 1.0 and not one):
        upper = "<= 1" if one else "< 1"
        raise InputError(f"{name}: must be >= 0 and {upper}, got {shown(value)}. {meaning}")
    return number


def read_flag(name: str, value: Any) -> bool:
    """True or False and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise InputError(f"{name}: must be True or False, got {value!r}. Pass one of the two.")
    return value


def read_dtype(dtype: Any) -> Any:
    """float32 or float64 of torch; None means float32."""
    torch = require_torch()
    chosen = torch.float32 if dtype is None else dtype
    if not any(chosen is kind for kind in (torch.float32, torch.float64)):
        raise InputError(
            f"dtype: must be torch.float32 or torch.float64, got {dtype!r}. "
            "Pass one of these, or leave it out for float32."
        )
    return chosen


def read_module(module: Any) -> Any:
    """A torch module with at least one parameter, all of them real, on one device."""
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"module: must be a torch.nn.Module, got {type(module).__name__}. "
            "Make one, for instance by flowbias.nets.mlp."
        )
    parameters = list(module.parameters())
    if not parameters:
        raise InputError(
            "module: must have a parameter, got a module with none. "
            "Register its weights as torch.nn.Parameter."
        )
    kinds = {(p.dtype, p.device) for p in parameters}
    if len(kinds) > 1 or next(iter(kinds))[0] not in (torch.float32, torch.float64):
        got = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise InputError(
            f"module: must have parameters of one dtype, float32 or float64, on one device, got "
            f"{got}. Convert it with module.to(...)."
        )
    return module
