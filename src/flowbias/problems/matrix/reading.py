"""Arrays, shapes and indices that a user gives, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import checked_array


def checked_tensor(name: str, value: Any, axes: tuple[str, ...]) -> FloatArray:
    """A finite read-only float64 array with one dimension per name in `axes`, never empty."""
    shape = shape_of(value)
    if shape is not None and len(shape) != len(axes):
        raise InputError(
            f"{name}: must have {len(axes)} dimension(s), got shape {shape}. "
            f"Pass an array of shape ({', '.join(axes)}{',' if len(axes) == 1 else ''})."
        )
    array = checked_array(name, value, len(axes))
    view = array.view()
    view.setflags(write=False)
    return view


def shape_of(value: Any) -> tuple[int, ...] | None:
    """None for rows of different lengths, which have none, and for a `shape` of another meaning."""
    try:
        return tuple(np.shape(value))
    except (TypeError, ValueError):
        return None


def read_shape(name: str, shape: Any) -> tuple[int, int]:
    """Two positive integers, or an error that names the argument."""
    sizes = np.asarray(shape if shape_of(shape) == (2,) else 0)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise InputError(
            f"{name}: must be two integers >= 1, got {shape!r}. Pass (rows, columns) of the matrix."
        )
    return int(sizes[0]), int(sizes[1])


def no_measurement(name: str, got: str) -> InputError:
    """The error for data without a single measurement."""
    return InputError(
        f"{name}: must hold at least one measurement, got {got}. "
        "Without measurements nothing moves: the start is its own limit."
    )
