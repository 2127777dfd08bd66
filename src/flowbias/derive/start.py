"""Where a parametrization starts, as it was given: an array of any shape, and names for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray


def read_start(torch: Any, theta0: Any) -> tuple[FloatArray, tuple[int, ...]]:
    """theta0 as one float64 vector, and its shape."""
    # A tensor that wants gradients refuses to become an array; lists must not become float32.
    try:
        given = np.asarray(theta0.detach().cpu() if isinstance(theta0, torch.Tensor) else theta0)
    except ValueError as error:
        raise InputError(
            f"theta0: must be a regular array of numbers, got {error}. Pass one flat vector of all "
            "parameters and cut it up inside F."
        ) from error
    if given.dtype.kind not in "buif":
        raise InputError(
            f"theta0: must be an array of real numbers, got dtype {given.dtype}. Pass one flat "
            "vector of all parameters (complex ones as real and imaginary parts)."
        )
    start = np.array(given, dtype=np.float64)
    if start.size == 0:
        raise InputError("theta0: must not be empty, got no parameters. Pass where F starts.")
    if not np.isfinite(start).all():
        i = int(np.flatnonzero(~np.isfinite(start.ravel()))[0])
        raise InputError(
            f"theta0: must be finite, got {start.ravel()[i]} at position {i}. Start elsewhere."
        )
    return start.ravel(), tuple(given.shape)


def read_names(names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """One name per parameter, all different."""
    if names is None:
        return tuple(f"th{i + 1}" for i in range(p))
    given = tuple(map(str, names))
    if len(given) != p or len(set(given)) != p:
        raise InputError(
            f"names: must be {p} different names, one per entry of theta0, got {list(given)}. "
            "Leave it out for th1, th2, ..."
        )
    return given
