"""Hypotheses of theorems, checked: a claim outside them would say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.models import DiagonalNet
from flowbias.problem import InputError

# What rounding makes of a threshold that is computed twice, from norms summed in another order, as
# the processor has it: a few last digits of the norm, which are as many of its logarithm.
_ROUNDING = 1e-14


def positive(name: str, value: float, fix: str) -> float:
    """The value as a float, if it is positive and finite."""
    if not 0.0 < value < np.inf:
        raise InputError(f"{name}: must be > 0 and finite, got {value!r}. {fix}")
    return float(value)


def same_size(name: str, size: int, expected: int, what: str) -> None:
    """`size` counts `what`, of which the other arguments have `expected`."""
    if size != expected:
        raise InputError(
            f"{name}: must have {expected} {what}, got {size}. Pass arguments of one size."
        )


def at_most(log_scale: float | None, largest: float) -> float:
    """The log-scale, by default the largest one that the hypothesis allows."""
    if log_scale is None or _is_same(log_scale, largest):
        return largest
    if not log_scale <= largest:
        raise InputError(
            f"log_scale: must be <= {largest:g}, got {log_scale!r}. The statement says nothing "
            "above that scale: lower it, or raise eps."
        )
    return float(log_scale)


def at_least(log_scale: float | None, smallest: float) -> float:
    """The log-scale, by default the smallest one that the hypothesis allows."""
    if log_scale is None or _is_same(log_scale, smallest):
        return smallest
    if not log_scale >= smallest:
        raise InputError(
            f"log_scale: must be >= {smallest:g}, got {log_scale!r}. The statement says nothing "
            "below that scale: raise it, or raise eps."
        )
    return float(log_scale)


def _is_same(log_scale: float, threshold: float) -> bool:
    return abs(log_scale - threshold) <= _ROUNDING * max(1.0, abs(threshold))


def unbiased_log_start(model: DiagonalNet, d: int) -> FloatArray:
    """log |w+(0)| = log |w-(0)| per coordinate, if the start is unbiased."""
    if model.is_biased:
        raise InputError(
            f"model: must start unbiased, |w+(0)| = |w-(0)|, got {model!r}. "
            "Use DiagonalNet(depth, scale, w0=w0)."
        )
    potential: Any = model.potential  # Hypentropy or DepthPotential: both know their log_scale
    return np.broadcast_to(np.asarray(potential.log_scale, dtype=np.float64), (d,))
