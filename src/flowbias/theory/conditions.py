"""Hypotheses of theorems, checked: a claim outside them says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models import DiagonalNet

# What rounding makes of a threshold that is computed twice, from norms summed in another order, as
# the processor has it: a few last digits of the norm, which are as many of its logarithm.
_ROUNDING = 1e-14
# A comparison of fewer digits than three is none.
_DIGITS = 1e-3


class OutsideHypothesis(InputError):  # noqa: N818  (named for what is the matter)
    """A hypothesis is not met: a claim is silent for this reason, a number cannot be given."""


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


def something_to_fit(y: FloatArray) -> None:
    """OutsideHypothesis where w = 0 fits: errors relative to a limit that is zero say nothing."""
    if not y.any():
        raise OutsideHypothesis("y: must not be all zeros, which w = 0 fits. Pass some outputs.")


def only_one_fit(X: FloatArray) -> str:
    """Why a claim about which fit is chosen says nothing where there is but one; else "".

    X has a row per measurement, a column per unknown.
    """
    alone = int(np.linalg.matrix_rank(X)) == X.shape[1]
    return "only one w fits the data, whatever the start" if alone else ""


def unresolved(tolerance: float) -> str:
    """Why a number of size 1 says nothing: its tolerance leaves it fewer than three digits."""
    if not tolerance > _DIGITS:
        return ""
    return f"what is compared is known to {tolerance:.1g} of its size only"


def at_most(log_scale: float | None, largest: float) -> float:
    """The log-scale, by default the largest one that the hypothesis allows."""
    if log_scale is None or _is_same(log_scale, largest):
        return largest
    if not log_scale <= largest:
        raise OutsideHypothesis(
            f"log_scale: must be <= {largest:g}, got {log_scale!r}. The statement says nothing "
            "above that scale: lower it, or raise eps."
        )
    return float(log_scale)


def at_least(log_scale: float | None, smallest: float) -> float:
    """The log-scale, by default the smallest one that the hypothesis allows."""
    if log_scale is None or _is_same(log_scale, smallest):
        return smallest
    if not log_scale >= smallest:
        raise OutsideHypothesis(
            f"log_scale: must be >= {smallest:g}, got {log_scale!r}. The statement says nothing "
            "below that scale: raise it, or raise eps."
        )
    return float(log_scale)


def _is_same(log_scale: float, threshold: float) -> bool:
    return abs(log_scale - threshold) <= _ROUNDING * max(1.0, abs(threshold))


def unbiased_log_start(model: DiagonalNet, d: int) -> FloatArray:
    """log |w+(0)| = log |w-(0)| per coordinate, if the start is unbiased."""
    if model.is_biased:
        raise OutsideHypothesis(
            f"model: must start unbiased, |w+(0)| = |w-(0)|, got {model!r}. "
            "Use DiagonalNet(depth, scale, w0=w0)."
        )
    potential: Any = model.potential  # Hypentropy or DepthPotential: both know their log_scale
    return np.broadcast_to(np.asarray(potential.log_scale, dtype=np.float64), (d,))
