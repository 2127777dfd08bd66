"""The directions of y that neither X nor a free column can follow, and what they say of a sample.

With Q an orthonormal basis of them the hat matrix is I - Q Q^T. Near a leverage of 1 both y - fit
and 1 - leverage are all cancellation; from Q they come without any:

    y - fit = Q Q^T y,     1 - leverage_i = ||Q_i||^2
    y_i - (prediction without i) = (y - fit)_i / (1 - leverage_i) = <Q_i, Q^T y> / ||Q_i||^2

Where there are many more samples than features Q would be the larger part of an n x n matrix. There
(unless rows differ too much in length) a basis of what X can follow takes its place, and the few
samples of high leverage (leverages add up to the rank) are left out by the definition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.estimators.inference.weighted_rows import WeightedRows
from flowbias.ground import extended
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.typing import FloatArray, Mask

# Rounding of an orthonormal basis per sample: shorter rows are no part of it.
ROUNDING = 10.0 * np.finfo(np.float64).eps
# Lengths of rows up to whose ratio a misfit is good to 1e-8: it loses the square of it.
EVEN = 1e4
# Leverage up to which 1 - leverage has all its digits.
HIGH = 0.5


@dataclass(frozen=True, eq=False)
class Unseen(ABC):
    """dimension n - rank, and the samples that are interpolated: those that Q has no part of."""

    dimension: int
    interpolated: Mask

    @abstractmethod
    def misfit(self, values: FloatArray) -> FloatArray:
        """`values` (n, ...) less their least-squares fit."""

    @abstractmethod
    def left_out(self, y: FloatArray) -> FloatArray:
        """Leave-one-out residuals of samples that are not interpolated; 0 for the others."""


@dataclass(frozen=True, eq=False)
class _Complement(Unseen):
    """By Q itself."""

    basis: FloatArray

    def misfit(self, values: FloatArray) -> FloatArray:
        return np.asarray(self.basis @ (self.basis.T @ values))

    def left_out(self, y: FloatArray) -> FloatArray:
        length = row_lengths(self.basis) if self.dimension else np.zeros(len(y))
        length = np.where(self.interpolated, np.inf, length)
        direction = self.basis / length[:, None]
        return np.asarray(direction @ (self.basis.T @ y) / length)


@dataclass(frozen=True, eq=False)
class _Range(Unseen):
    """By an orthonormal basis of what X can follow.

    high, residual  samples of high leverage, and the rows that take y to their residuals
    """

    basis: FloatArray
    high: Mask
    residual: FloatArray

    def misfit(self, values: FloatArray) -> FloatArray:
        return np.asarray(values - self.basis @ (self.basis.T @ values))

    def left_out(self, y: FloatArray) -> FloatArray:
        spare = 1.0 - np.where(self.high, 0.0, np.square(self.basis).sum(axis=1))
        residuals = self.misfit(y) / spare
        residuals[self.high] = self.residual @ y
        return np.where(self.interpolated, 0.0, residuals)


def unseen_by(rows: WeightedRows) -> Unseen:
    """Those of the rows, and their free column if there is one.

    Ranks are judged on rows of unit length, as constraints do.
    """
    n, rank = len(rows.y), len(rows.constraint.target)
    columns, unit = rows.X, np.ones(n)
    if rows.moves:
        unit = row_units(row_lengths(rows.X))
        columns = rows.X / unit[:, None]
    if rows.free is not None:
        e = rows.free / unit
        columns, rank = np.column_stack([columns, e / extended.length(e)]), rank + 1
    if rank >= n:
        return _Complement(0, np.ones(n, dtype=bool), np.zeros((n, 0)))
    if n > 2 * rank and unit.max() <= EVEN * unit.min():
        return _by_range(columns, unit, rank)
    scaled = scipy.linalg.svd(columns)[0][:, rank:]
    interpolated = row_lengths(scaled) <= ROUNDING * n
    return _Complement(n - rank, interpolated, _orthonormal(scaled, unit.min() / unit))


def _by_range(columns: FloatArray, unit: FloatArray, rank: int) -> Unseen:
    left = scipy.linalg.svd(columns, full_matrices=False)[0][:, :rank]
    unit = unit / unit.max()
    basis = _orthonormal(left, unit)
    high = np.square(basis).sum(axis=1) > HIGH
    found = [_left_out_row(columns * unit[:, None], int(i)) for i in np.flatnonzero(high)]
    interpolated = np.zeros(len(unit), dtype=bool)
    interpolated[high] = [others < rank for _, others in found]
    residual = np.array([row for row, _ in found]).reshape(-1, len(unit))
    return _Range(len(unit) - rank, interpolated, basis, high, residual)


def _left_out_row(columns: FloatArray, i: int) -> tuple[FloatArray, int]:
    """The row that takes y to the residual of sample i when it is left out; the others' rank."""
    inverse, rank = scipy.linalg.pinv(np.delete(columns, i, axis=0), return_rank=True)
    return np.insert(-(columns[i] @ inverse), i, 1.0), int(rank)


def _orthonormal(span: FloatArray, scale: FloatArray) -> FloatArray:
    """A basis for what diag(scale) span spans, each row to its own relative accuracy."""
    scaled = span * scale[:, None]
    # The triangle comes from the longest rows; a row of Q that is made from it alone stays small.
    R, pivots = scipy.linalg.qr(scaled, mode="r", pivoting=True)
    R = R[: scaled.shape[1]]
    return np.asarray(scipy.linalg.solve_triangular(R, scaled[:, pivots].T, trans=1).T)
