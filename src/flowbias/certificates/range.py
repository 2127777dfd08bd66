"""What the columns of X can fit of y, whatever the sizes of its rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.designs import Design
from flowbias.designs.tasks import RowGram, RowSizes, dependence, noise_of_rows
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.graded_qr import graded_qr
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
    def _sizes(self) -> FloatArray:
        """The largest entry of each row."""
        return np.asarray(self.design.reduce(RowSizes()).largest[0])

    @cached_property
    def _projection(self) -> RangeProjection | None:
        """None where the rows are independent, so that all can be fitted."""
        unit = row_units(self._sizes)
        gram = self.design.reduce(RowGram(1.0 / unit)).sums[0]
        lengths = row_units(np.sqrt(np.diagonal(gram)))
        values, vectors = scipy.linalg.eigh(gram / lengths / lengths[:, None])
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

    def fitted(self, y: FloatArray) -> tuple[FloatArray, float]:
        """P y, and its rounding relative to y."""
        if not self._sizes.any():
            return np.zeros_like(y), 0.0  # X is zero, and fits nothing
        if self._projection is None:
            return y, EPS
        return self._projection.projected(y)
