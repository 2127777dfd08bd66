"""What an intercept can do, taken out of data to the last digit of what remains.

The share of values along e is known to the rounding of the values. Where their mean exceeds their
spread, what one projection leaves along e is then more than rounding of the rest: centred rows that
should depend on each other do not, and a limit would fit their difference as if it were data. A
second projection, of the rest, leaves nothing (twice is enough).
"""

from __future__ import annotations

import numpy as np

from flowbias._typing import FloatArray

# A row or column is rounding where centring leaves no more than this of the size of its entries.
CANCELLED = 16.0 * np.finfo(np.float64).eps
# A mean of centred values below this share of their size is their own rounding.
CENTRED = np.finfo(np.float64).eps


def centred(values: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """`values` (n, k) less the (weighted) means of their columns, and the means.

    Samples at the mean and constant columns come out as zeros, not as constraints made of rounding.
    Only whole rows and columns: a small entry set to zero would put the others off their mean.
    """
    mean = np.average(values, axis=0, weights=weight)
    rest = values - mean
    cancelled = np.abs(rest) <= CANCELLED * np.abs(values).max(axis=0)
    rest[:, cancelled.all(axis=0)] = 0.0
    away = ~cancelled.all(axis=1)
    rest[~away] = 0.0
    if away.any():
        again = np.average(rest[away], axis=0, weights=None if weight is None else weight[away])
        off = np.abs(again) > CENTRED * np.abs(rest).max(axis=0)
        rest[away] -= np.where(off, again, 0.0)
    return rest, np.asarray(mean)


def without(e: FloatArray, values: FloatArray) -> FloatArray:
    """The part of `values` (n, ...) orthogonal to e."""
    for _ in range(2):
        values = values - np.multiply.outer(e, e @ values / float(e @ e))
    return np.asarray(values)
