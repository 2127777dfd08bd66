"""What a predictor is like, in a few numbers."""

from __future__ import annotations

import numpy as np

from flowbias import _extended as extended
from flowbias._typing import FloatArray

# Entries below this share of the largest count as zero, as in the repr of a solution.
NEGLIGIBLE = 1e-6


def norms(w: FloatArray) -> tuple[float, float]:
    """l1 and l2; the second without overflow of squares."""
    return float(np.abs(w).sum()), float(extended.length(w))


def count_above_negligible(w: FloatArray) -> int:
    """How many entries matter: those above 1e-6 of the largest."""
    size = np.abs(w)
    return int(np.count_nonzero(size > NEGLIGIBLE * size.max(initial=0.0)))


def largest(w: FloatArray, count: int) -> list[int]:
    """Indices of the largest entries that matter, largest first; the first of equal ones first."""
    order = np.argsort(-np.abs(w), kind="stable")[:count]
    size = np.abs(w[order])
    return [int(i) for i in order[size > NEGLIGIBLE * size.max(initial=0.0)]]
