"""What the constructors of products U V^T are asked for, read and checked once."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from flowbias.problem import InputError

# Weights of more numbers than this (8 MB) are not drawn unless asked for: their Gram matrix is.
KEPT_WEIGHTS = 2**20
# Wider, and the degrees of freedom of the Gram matrix's law are no double any more.
WIDEST = 1e300
# Rows of an array: what an index can count.
LARGEST_SIZE = int(np.iinfo(np.intp).max)


def read_width(width: Any, name: str = "width") -> int:
    """A positive whole number; 1e6 will do, 2.5 will not."""
    number = as_float(width)
    if number is None or not 1.0 <= number <= WIDEST or width % 1 != 0:
        raise InputError(
            f"{name}: must be an integer from 1 to 1e300, got {shown(width)}. "
            "It counts the hidden units: columns of U and of V."
        )
    return int(width)


def read_size(name: str, size: Any, meaning: str) -> int:
    """A positive integer, such as the number of features."""
    whole = isinstance(size, Integral) and not isinstance(size, bool)
    if not whole or size < 1:
        raise InputError(f"{name}: must be an integer >= 1, got {size!r}. Pass {meaning}.")
    if size > LARGEST_SIZE:
        raise InputError(f"{name}: must be <= {LARGEST_SIZE}, got {shown(size)}. Pass {meaning}.")
    return int(size)


def as_float(value: Any) -> float | None:
    """A real number as a float; None for anything else, for bools and for what has no float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer or a fraction beyond the doubles
        return None


def shown(value: Any) -> str:
    """The value as an error message quotes it: integers of hundreds of digits by their length."""
    if isinstance(value, int) and abs(value) > WIDEST:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


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
