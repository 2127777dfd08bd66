"""How many rows of X are independent: beyond rounding whatever their units, and exactly.

Exactly by arithmetic modulo a prime, where rows that are independent stay so unless the prime
divides a determinant, and rows that depend on others always do.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from flint import nmod_mat

from flowbias.ground.typing import FloatArray

# Any prime will do: that it divides a determinant by chance has odds of one in 10^18.
PRIME = 2**61 - 1
# Noise has singular values of about one size: this far apart they are two.
SPREAD = 100.0
# Beyond this share of the largest a singular value is no rounding, however small the others are.
DEPENDENT = 1e-12
# Entries up to which the exact rank is worth its time.
SMALL = 100_000
# Rows and columns are divided by the roots of their largest entries in turn: two or three times
# bring all of them to the same size, however far apart they were.
SWEEPS = 6


@np.errstate(all="ignore")
def equilibrated(X: FloatArray) -> FloatArray:
    """X with rows and columns multiplied by powers of two such that their largest entries agree."""
    scaled = X.copy()
    for _ in range(SWEEPS):
        for axis in (1, 0):
            largest = np.abs(scaled).max(axis=axis, keepdims=True)
            unit = np.where(largest > 0.0, np.sqrt(largest), 1.0)
            scaled = scaled / np.exp2(np.round(np.log2(unit)))
    return scaled


def numerical_rank(X: FloatArray) -> int:
    """Singular values of the equilibrated X above the rounding of its entries.

    Values that rounding has spread are left out together: were some of them kept, w would fit what
    rounding has made of the rows, and be another one for other digits of X.
    """
    values = scipy.linalg.svdvals(equilibrated(X), check_finite=False)
    rank = int((values > max(X.shape) * np.finfo(float).eps * values[0]).sum())
    spread = SPREAD * values
    while 1 < rank < len(values) and values[rank - 1] < min(spread[rank], DEPENDENT * values[0]):
        rank -= 1
    return rank


def rows_to_fit(X: FloatArray) -> list[int]:
    """Rows that are independent, exactly and beyond rounding: the others repeat what those say.

    Rows that rounding alone tells apart have a limit that fits the rounding, which nobody wants.
    """
    exactly = independent_rows(X)
    beyond_rounding = numerical_rank(X)
    if beyond_rounding >= len(exactly):
        return exactly
    *_, order = scipy.linalg.qr(equilibrated(X).T, mode="r", pivoting=True)
    return sorted(order[:beyond_rounding].tolist())


def cut_by_rounding(X: FloatArray, rank: int) -> float:
    """A distance of rounding where X has a higher rank than this, of which rounding hides the rest.

    Where rows count as dependent that rounding alone tells apart, what is fitted is y up to that,
    as it is where y is outside the range.
    """
    is_cut = rank < min(X.shape) and X.size <= SMALL and rank < len(independent_rows(X))
    return float(np.finfo(float).eps) if is_cut else 0.0


def independent_rows(X: FloatArray) -> list[int]:
    """The first rows that do not depend on those before them."""
    residues = [_modulo_prime(entry) for entry in X.T.ravel().tolist()]
    reduced, rank = nmod_mat(X.shape[1], X.shape[0], residues, PRIME).rref()
    pivots, at = [], 0
    for row in range(rank):
        while int(reduced[row, at]) == 0:
            at += 1
        pivots.append(at)
    return pivots


def _modulo_prime(number: float) -> int:
    """A double is an integer times a power of two, and two has an inverse."""
    numerator, denominator = number.as_integer_ratio()
    return numerator % PRIME * pow(denominator, -1, PRIME) % PRIME
