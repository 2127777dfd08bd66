"""How many rows of X are independent: beyond rounding whatever their units, and exactly.

Exactly by arithmetic modulo a prime, where rows that are independent stay so unless the prime
divides a determinant, and rows that depend on others always do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.linalg
from flint import fmpq_mat, nmod_mat

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
def equilibrated(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """X with rows and columns multiplied by powers of two such that their largest entries agree.

    Beside it what the columns were multiplied by.
    """
    scaled, columns = X.copy(), np.ones((1, X.shape[1]))
    for _ in range(SWEEPS):
        for axis in (1, 0):
            largest = np.abs(scaled).max(axis=axis, keepdims=True)
            unit = np.exp2(np.round(np.log2(np.where(largest > 0.0, np.sqrt(largest), 1.0))))
            scaled = scaled / unit
            columns = columns / (unit if axis == 0 else 1.0)
    return scaled, columns[0]


def numerical_rank(X: FloatArray) -> int:
    """Singular values of the equilibrated X above the rounding of its entries.

    Values that rounding has spread are left out together: were some of them kept, w would fit what
    rounding has made of the rows, and be another one for other digits of X.
    """
    values = scipy.linalg.svdvals(equilibrated(X)[0], check_finite=False)
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
    *_, order = scipy.linalg.qr(equilibrated(X)[0].T, mode="r", pivoting=True)
    return sorted(order[:beyond_rounding].tolist())


def rounding_of_relations(X: FloatArray, kept: list[int]) -> tuple[FloatArray, FloatArray]:
    """Units of columns, and what of the kept rows is below the rounding of each row.

    Rows that rounding alone tells apart are related in these units, in which they were found to be
    dependent, without such parts: else a row in units far below the others would be asked to fit
    what rounding has made of those.
    """
    scaled, unit = equilibrated(X)
    values = scipy.linalg.svdvals(scaled, check_finite=False)
    # Of rows that are nearly dependent themselves it takes more to make up what rounding has made.
    rounding = max(X.shape) * float(np.finfo(float).eps) * values[0] / values[len(kept) - 1]
    # In these units, or as the entries stand: a column that hardly any row has is not theirs.
    sizes = [np.abs(rows).max(axis=1) for rows in (X * unit, X)]
    ratio = np.maximum(*(size[:, None] / size[kept] for size in sizes))
    return unit, min(rounding, DEPENDENT) * ratio


def cut_by_rounding(X: FloatArray, rank: int) -> float:
    """A distance of rounding where X has a higher rank than this, of which rounding hides the rest.

    Where rows count as dependent that rounding alone tells apart, what is fitted is y up to that,
    as it is where y is outside the range.
    """
    is_cut = rank < min(X.shape) and X.size <= SMALL and rank < len(independent_rows(X))
    return float(np.finfo(float).eps) if is_cut else 0.0


def independent_rows(X: FloatArray) -> list[int]:
    """The first rows that do not depend on those before them."""
    return _pivots(X.shape[::-1], map(float.as_integer_ratio, X.T.ravel().tolist()))


def independent_columns(X: fmpq_mat) -> list[int]:
    """The first columns that do not depend on those before them."""
    ratios = ((int(entry.p), int(entry.q)) for entry in X.entries())
    return _pivots((X.nrows(), X.ncols()), ratios)


def _pivots(shape: tuple[int, int], entries: Iterable[tuple[int, int]]) -> list[int]:
    """The pivot columns of a matrix of fractions, whose denominators have inverses."""
    residues = [top % PRIME * pow(bottom, -1, PRIME) % PRIME for top, bottom in entries]
    reduced, rank = nmod_mat(*shape, residues, PRIME).rref()
    pivots, at = [], 0
    for row in range(rank):
        while int(reduced[row, at]) == 0:
            at += 1
        pivots.append(at)
    return pivots
