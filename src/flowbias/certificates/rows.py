"""What the rows of X tell: what its columns can fit of y, and how many rows are independent.

Beyond rounding, whatever the sizes of the rows; and exactly, by arithmetic modulo a prime, where
rows that are independent stay so unless the prime divides a determinant, and rows that depend on
others always do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from flint import fmpq_mat, nmod_mat

from flowbias.designs import Design
from flowbias.designs.dense import gram
from flowbias.designs.tasks import dependence, noise_of_rows, sizes_and_products
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.linear_algebra import graded_qr
from flowbias.ground.typing import FloatArray

EPS = float(np.finfo(float).eps)


class RangeProjection:
    """The range as that of diag(unit) basis, the basis orthonormal.

    Rows of very different size: P y is small where the unit is, however large y is there, and comes
    as a product with the unit.
    """

    def __init__(self, unit: FloatArray, basis: FloatArray, condition: float) -> None:
        self.rows = (unit / unit.max())[:, None] * basis
        self.Q, R, self.pivots = graded_qr(self.rows)
        # Units too far below the largest for doubles leave no direction of their own.
        self.rank = int(np.count_nonzero(np.diagonal(R)))
        self.R = R[: self.rank, : self.rank]
        condition *= float(np.linalg.cond(self.R))
        # A few units in the last place, per row and unit of the condition.
        self.rounding = 8.0 * len(unit) * EPS * condition

    def projected(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        size = float(np.abs(y).max()) or 1.0
        target = self.Q[:, : self.rank].T @ (y / size)
        coefficients = np.zeros(len(self.pivots))
        coefficients[self.pivots[: self.rank]] = scipy.linalg.solve_triangular(
            self.R, target, check_finite=False
        )
        return size * (self.rows @ coefficients), self.rounding


def within_range(columns: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
    """P y on the range of these columns, and its rounding relative to y."""
    fitted, rounding = np.zeros_like(y), EPS
    if not columns.any():
        return fitted, rounding
    lengths = row_lengths(columns)
    seen = lengths > 0.0
    unit = lengths[seen]
    rows: Any = columns[seen] / unit[:, None]
    if rows.shape[1] > len(rows):
        # The same left factors, without right ones that are as long as X.
        rows = scipy.linalg.qr(rows.T, mode="r", overwrite_a=True)[0][: len(rows)].T
    left, values, _ = scipy.linalg.svd(rows, full_matrices=False)
    # Singular values below this share of the largest are rounding: rows repeat each other.
    kept = values > noise_of_rows(columns.shape) * values[0]
    fitted[seen] = y[seen]
    if kept.sum() < len(unit):
        condition = float(values[0] / values[kept][-1])
        projection = RangeProjection(unit, left[:, kept], condition)
        fitted[seen], rounding = projection.projected(y[seen])
    return fitted, rounding


class RowRange:
    """The range of a big X, from its Gram matrix and products with its blocks, when asked for."""

    def __init__(self, design: Design) -> None:
        self.design = design

    @cached_property
    def _rows(self) -> tuple[FloatArray, FloatArray]:
        """The largest entry of each, and their products in units of these."""
        return sizes_and_products(self.design)

    @cached_property
    def _projection(self) -> RangeProjection | None:
        """None where the rows are independent, so that all can be fitted."""
        products: Any
        sizes, products = self._rows
        unit = row_units(sizes)
        lengths = row_units(np.sqrt(np.diagonal(products)))
        values, vectors = scipy.linalg.eigh(products / lengths / lengths[:, None])
        # Below ten roundings of the Gram matrix an eigenvalue belongs to dependent rows.
        kept = values > 10.0 * len(unit) * EPS * values[-1]
        if kept.all():
            return None
        unit = unit * lengths
        parts = vectors[:, kept], values[kept], vectors[:, ~kept]
        vanishing, apart = dependence(self.design, 1.0 / unit, *parts)
        if apart > noise_of_rows(self.design.shape):
            # The Gram matrix took for dependent what is not.
            return None
        basis, _ = scipy.linalg.qr(
            vectors[:, kept] - vanishing @ (vanishing.T @ vectors[:, kept]), mode="economic"
        )
        return RangeProjection(unit, basis, float(values[-1] / values[kept][0]))

    def hidden(self) -> float:
        """What rounding hides of the rows, where X is small enough to be looked at as a whole.

        Not in the units of its columns, as of an array: a Gram matrix has none.
        """
        n, d = self.design.shape
        if n * d > RANK_ENTRIES or not self._rows[0].any() or self._projection is None:
            return 0.0
        X = np.empty((n, d))
        for block in self.design.blocks():
            X[:, block.columns] = block.apply(np.eye(block.width))
        return cut_by_rounding(X, self._projection.rank)

    def fitted(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        if not all(part.any() for part in self._rows):
            return np.zeros_like(y), 0.0  # X is zero, and fits nothing
        if self._projection is None:
            return y, EPS
        return self._projection.projected(y)


# Any prime will do: that it divides a determinant by chance has odds of one in 10^18.
PRIME = 2**61 - 1
# Beyond this share of the largest a singular value is no rounding, however small the others are.
DEPENDENT = 1e-12
# Entries up to which the exact rank is worth its time.
RANK_ENTRIES = 100_000


@np.errstate(all="ignore")
def equilibrated(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """X with rows and columns multiplied by powers of two such that their largest entries agree.

    Beside it what the columns were multiplied by.
    """
    scaled, columns = X.copy(), np.ones((1, X.shape[1]))
    # Rows and columns are divided by the roots of their largest entries in turn: two or three
    # times bring all of them to the same size, however far apart they were.
    for _ in range(6):
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
    if X.size == 0:  # of a network whose weights are all frozen at zero
        return 0
    values = scipy.linalg.svdvals(equilibrated(X)[0], check_finite=False)
    rank = int((values > max(X.shape) * np.finfo(float).eps * values[0]).sum())
    # Noise has singular values of about one size: a hundred times apart they are two.
    spread = 100.0 * values
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
    is_cut = rank < min(X.shape) and X.size <= RANK_ENTRIES and rank < len(independent_rows(X))
    return float(np.finfo(float).eps) if is_cut else 0.0


def hidden_by_rounding(X: FloatArray) -> float:
    """The same of X as it stands: whether rounding alone tells some of its rows apart."""
    if not (0 < X.size <= RANK_ENTRIES and np.isfinite(X).all()):
        return 0.0
    lengths = row_lengths(X)
    if len(X) <= X.shape[1] and (lengths > 0.0).all():
        lower, failed = scipy.linalg.lapack.dpotrf(gram(X, None, 1.0 / lengths), lower=1)
        # Above this reciprocal condition number of their products no rounding hides a row.
        clearly = 1e-10
        if not failed and scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")[0] > clearly:
            return 0.0
    return cut_by_rounding(X, numerical_rank(X))


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
