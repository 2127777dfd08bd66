"""What is asked of a flow: where it ends, how closely it is followed, on which loss.

The loss is (c/2) ||X w - y||^2: its constant c only sets the clock, never the path or the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, as_float, real_array, shown
from flowbias.ground.typing import ArrayLike, FloatArray

# Local error per step for states asked for by time.
RTOL_AT_TIMES = 1e-11
# The least local error that the integrators accept.
TIGHTEST = 1e-13
# Products of four sizes must stay in the double range.
SMALLEST = 1e-70


#: c for n samples, by the name of the loss.
CONSTANTS: dict[str, Callable[[float], float]] = {
    "half": lambda n: 1.0,  # (1/2) sum of squares  [min2021]
    "sum": lambda n: 2.0,  # sum of squares  [woodworth2020]
    "half_mean": lambda n: 1.0 / n,  # (1/2) mean of squares  [azulay2021]
    "mean": lambda n: 2.0 / n,  # mean of squares
}


@dataclass(frozen=True)
class FlowRequest:
    """What was asked of `flow`, checked."""

    times: FloatArray | None
    loss: str | float
    residual: float
    rtol: float | None
    atol: float | None
    route: str | None

    @classmethod
    def of(
        cls,
        t: ArrayLike | None,
        loss: str | float,
        residual: float,
        rtol: float | None,
        atol: float | None,
        route: str | None,
    ) -> FlowRequest:
        times = None if t is None else checked_times(t)
        if not (route is None or isinstance(route, str)):
            raise InputError(
                f"route: must be the name of a route, got {shown(route)}. Leave it out to choose."
            )
        rtol, atol = (
            None if value is None else check_tolerance(name, value)
            for name, value in (("rtol", rtol), ("atol", atol))
        )
        least = 100.0 * float(np.finfo(np.float64).eps)
        if rtol is not None and rtol < least:
            raise InputError(
                f"rtol: must be at least {least:.2g}, a hundred roundings of a double, got "
                f"{rtol:g}. Raise it: no integrator follows a flow more closely in doubles."
            )
        return cls(times, loss, check_tolerance("residual", residual), rtol, atol, route)

    def local_error(self, share: float = 1e-3) -> float:
        """rtol as asked for; else that of times, or this share of the residual on the way to it.

        By default that of explicit steps, which keep the residual at about 100 rtol. Never looser
        than what makes a good picture, nor below what the integrators accept.
        """
        if self.rtol is not None:
            return self.rtol
        if self.times is not None:
            return RTOL_AT_TIMES
        return min(max(share * self.residual, TIGHTEST), 1e-8)


def checked_times(t: ArrayLike) -> FloatArray:
    """Times from 0 on, increasing."""
    try:
        times = np.atleast_1d(real_array("t", t, "")).astype(np.float64, copy=False)
    except InputError:
        raise InputError(
            f"t: must be a list of times, got {shown(t)}. Pass t=[0.1, 1.0]."
        ) from None
    if times.ndim != 1 or times.size == 0:
        raise InputError(f"t: must be a list of times, got shape {times.shape}. Pass t=[0.1, 1.0].")
    right = np.isfinite(times) & (times >= 0.0)
    right[1:] &= times[1:] > times[:-1]
    if not right.all():
        first = int(np.argmin(right))
        raise InputError(
            f"t: must be finite, non-negative and increasing, got {times[first]:g} at index "
            f"{first}. Sort the times with np.unique(t)."
        )
    return times


def check_tolerance(name: str, value: object) -> float:
    """A tolerance is a small positive number."""
    number = as_float(value)
    if number is None or not 0.0 < number < 1.0:
        raise InputError(f"{name}: must lie in (0, 1), got {shown(value)}. Pass 1e-8 for instance.")
    return number


def check_sizes(sizes: Mapping[str, float]) -> None:
    """Refuse a largest entry, by the name of its argument, that leaves the range; 0 is fine."""
    for name, size in sizes.items():
        if size != 0.0 and not SMALLEST <= size <= 1.0 / SMALLEST:
            raise InputError(
                f"{name}: must have a largest entry between {SMALLEST:g} and {1.0 / SMALLEST:g}, "
                f"got {size:.1e}. Rescale it: the flow multiplies it by itself and by the others."
            )


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
