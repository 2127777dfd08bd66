"""What the constructors of products U V^T are asked for, read and checked once."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from flowbias.problem import InputError

# Weights of more numbers than this (8 MB) are not drawn unless asked for: their Gram matrix is.
KEPT_WEIGHTS = 2**20


def read_width(width: Any, name: str = "width") -> int:
    """A positive whole number; 1e6 will do, 2.5 will not."""
    whole = isinstance(width, Integral) or (isinstance(width, Real) and float(width).is_integer())
    if isinstance(width, bool) or not whole or width < 1:
        raise InputError(
            f"{name}: must be an integer >= 1, got {width!r}. "
            "It counts the hidden units: columns of U and of V."
        )
    return int(width)


def read_size(name: str, size: Any, meaning: str) -> int:
    """A positive integer, such as the number of features."""
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise InputError(f"{name}: must be an integer >= 1, got {size!r}. Pass {meaning}.")
    return int(size)


def read_rng(rng: Any) -> np.random.Generator:
    """A generator, or the seed of one."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, Integral) or rng < 0:
        raise InputError(
            f"rng: must be an integer >= 0 or a numpy Generator, got {rng!r}. "
            "Pass a seed, or a generator from numpy.random.default_rng."
        )
    return np.random.default_rng(int(rng))


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
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0.0 <= float(value) < np.inf:
            raise InputError(
                f"{given}: must be a finite number >= 0, got {value!r}. "
                "Pass the standard deviation of the entries."
            )
        sizes.append(float(value))
    return sizes[0], sizes[1]


def keeps_weights(rows: int, width: int, asked: bool | None) -> bool:
    """As asked; otherwise where weights are few, or no more than their Gram matrix's entries."""
    if asked is not None:
        return asked
    return rows * width <= max(KEPT_WEIGHTS, rows * rows)
