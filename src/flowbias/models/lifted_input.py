"""What the constructors of products U V^T are asked for, read and checked once."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import WIDEST, InputError, as_float, shown

# Weights of more numbers than this (8 MB) are not drawn unless asked for: their Gram matrix is.
KEPT_WEIGHTS = 2**20


def read_width(width: Any, name: str = "width") -> int:
    """A positive whole number; 1e6 will do, 2.5 will not."""
    number = as_float(width)
    if number is None or not 1.0 <= number <= WIDEST or width % 1 != 0:
        raise InputError(
            f"{name}: must be an integer from 1 to 1e300, got {shown(width)}. "
            "It counts the hidden units: columns of U and of V."
        )
    return int(width)


def read_layer_scales(scale: Any, scale_u: Any, scale_v: Any) -> tuple[float, float]:
    """Standard deviations of U and V: `scale` for both, unless a layer has its own."""
    sizes = []
    for name, own in (("scale_u", scale_u), ("scale_v", scale_v)):
        value = scale if own is None else own
        given = "scale" if own is None else name
        if value is None:
            raise InputError(
                f"scale: must be given unless scale_u and scale_v both are, got None for {name}. "
                "Pass the standard deviation of the entries, for instance scale=0.1."
            )
        number = as_float(value)
        if number is None or not 0.0 <= number < np.inf:
            raise InputError(
                f"{given}: must be a finite number >= 0, got {shown(value)}. "
                "Pass the standard deviation of the entries."
            )
        sizes.append(number)
    return sizes[0], sizes[1]


def keeps_weights(rows: int, width: int, asked: bool | None) -> bool:
    """As asked; otherwise where weights are few, or no more than their Gram matrix's entries."""
    if asked is not None:
        return asked
    return rows * width <= max(KEPT_WEIGHTS, rows * rows)
