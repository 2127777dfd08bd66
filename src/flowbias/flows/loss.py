"""The loss (c/2) ||X w - y||^2: its constant c only sets the clock, never the path or the limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flowbias.ground.arguments import InputError, as_float, shown

#: c for n samples, by the name of the loss.
CONSTANTS: dict[str, Callable[[float], float]] = {
    "half": lambda n: 1.0,  # (1/2) sum of squares  [min2021]
    "sum": lambda n: 2.0,  # sum of squares  [woodworth2020]
    "half_mean": lambda n: 1.0 / n,  # (1/2) mean of squares  [azulay2021]
    "mean": lambda n: 2.0 / n,  # mean of squares
}


def loss_constant(loss: Any, n: float) -> float:
    """c of the named loss on n samples, or the number itself."""
    if isinstance(loss, str) and loss in CONSTANTS:
        return CONSTANTS[loss](n)
    number = as_float(loss)
    if number is not None and 0.0 < number < math.inf:
        return number
    names = ", ".join(repr(name) for name in CONSTANTS)
    raise InputError(
        f"loss: must be one of {names} or a finite number c > 0, got {shown(loss)}. "
        "A number c means (c/2) ||X w - y||^2."
    )
