"""The rows that are fitted, what an unpenalized intercept does to them, and what they cannot see.

Sample i enters as root_i (x_i, y_i), root_i the square root of its weight. An intercept is one more
column, e = root, that costs nothing: minimize Q(w) subject to X w + b e = y. Its dual condition is
<e, nu> = 0, and eliminating b projects e out of X and y, which is what centring does. The centre
moves when a sample is dropped; the condition <e, nu> = 0 does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.estimators.intercepts import FRAMES
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.intercepts.samples import Samples, without
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import row_lengths, row_units
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.routes import only_predictor
from flowbias.problems.regression import Constraint, Regression, as_regression, checked_array


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Weighted rows X and their targets y with the free column projected out.

    free             e, or None where no column is free
    x_mean, y_mean   (weighted) means of the columns of X and of y, 0 without a free column
    root             roots of the weights
    has_bias_column  whether the last column of X is that of a trained bias
    """

    X: FloatArray
    y: FloatArray
    free: FloatArray | None
    x_mean: FloatArray
    root: FloatArray
    has_bias_column: bool = False
    y_mean: float = 0.0

    @classmethod
    def of(cls, frame: Frame, X: FloatArray, output: int = 0) -> WeightedRows:
        """One output of a frame, whose rows X are."""
        e, root, mean = frame.free, frame.samples.root, float(frame.y_mean[output])
        return cls(X, frame.y[:, output], e, frame.X_mean, root, frame.has_bias, mean)

    @property
    def moves(self) -> bool:
        """Whether gradient flow leaves its start: centring may leave nothing of X."""
        return bool(self.X.any())

    @cached_property
    def problem(self) -> Regression:
        return Regression(self.X, self.y)

    @cached_property
    def constraint(self) -> Constraint:
        """`A w = b`; of no rows at all where X is zero."""
        if self.moves:
            return self.problem.constraint
        n, d = self.X.shape
        none = np.zeros(0)
        return Constraint(np.zeros((0, d)), row_scale=none, target=none, to_data=np.zeros((n, 0)))

    @property
    def rank(self) -> int:
        """Of X as limits take it: of rows of unit length, or of columns that leave no choice."""
        leaves_no_choice = self.moves and only_predictor(self.problem) is not None
        return self.X.shape[1] if leaves_no_choice else len(self.constraint.target)

    def projected(self, values: FloatArray) -> FloatArray:
        """`values` (n, ...) less what the free column can do."""
        return values if self.free is None else without(self.free, values)

    def coefficients_and_intercept(self, dw_dy: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Derivatives of the coefficients (d, n) and of the intercept (n)."""
        if self.has_bias_column:
            return dw_dy[:-1], dw_dy[-1]
        if self.free is None:
            return dw_dy, np.zeros_like(self.root)
        return dw_dy, self.free / float(self.free @ self.free) - self.x_mean @ dw_dy


def weighted_rows(X: Any, y: Any, fit_intercept: bool, sample_weight: Any = None) -> WeightedRows:
    """Data as they are fitted."""
    _check_is_flag(fit_intercept)
    given = as_regression(X, y)
    weight = _read_weight(sample_weight, len(given.y))
    frame = FRAMES[bool(fit_intercept)](Samples.of(given.X, given.y, weight))
    return WeightedRows.of(frame, frame.X)


def _check_is_flag(fit_intercept: Any) -> None:
    """Other values of the regressors' argument, such as "trained", would pass for True here."""
    if not isinstance(fit_intercept, bool | np.bool_):
        raise InputError(
            f"fit_intercept: must be True or False, got {fit_intercept!r}. A bias that is trained "
            "with the weights takes a regressor: ImplicitBiasRegressor(fit_intercept='trained')."
        )


def new_samples(X: Any, d: int) -> FloatArray:
    """X (m, d), of which a fit with d features is asked something."""
    rows = checked_array("X", X, 2)
    if rows.shape[1] != d:
        raise InputError(
            f"X: must have {d} columns, one per coefficient, got shape {rows.shape}. "
            "Pass samples with the features of the fit."
        )
    return rows


def _read_weight(sample_weight: Any, n: int) -> FloatArray | None:
    if sample_weight is None:
        return None
    weight = checked_array("sample_weight", sample_weight, 1)
    if len(weight) != n or not (weight > 0.0).all():
        raise InputError(
            f"sample_weight: must be {n} positive numbers, one per row of X, got shape "
            f"{weight.shape} with smallest entry {weight.min():g}. Leave out samples of weight 0."
        )
    return weight


# --- what the rows cannot see --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unseen(ABC):
    """The directions of y that neither X nor a free column can follow: what they say of a sample.

    With Q an orthonormal basis of them the hat matrix is I - Q Q^T. Near a leverage of 1 both
    y - fit and 1 - leverage are all cancellation; from Q they come without any:

        y - fit = Q Q^T y,     1 - leverage_i = ||Q_i||^2
        y_i - (prediction without i) = (y - fit)_i / (1 - leverage_i) = <Q_i, Q^T y> / ||Q_i||^2

    Where there are many more samples than features Q would be the larger part of an n x n matrix.
    There (unless rows differ too much in length) a basis of what X can follow takes its place, and
    the few samples of high leverage (leverages add up to the rank) are left out by the definition.

    dimension n - rank, and the samples that are interpolated: those that Q has no part of.
    """

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
    """Those of the rows, and their free column if there is one."""
    n, rank = len(rows.y), rows.rank
    columns, unit = rows.X, np.ones(n)
    if rows.moves:
        unit = row_units(row_lengths(rows.X))
        columns = rows.X / unit[:, None]
    if rows.free is not None:
        e = rows.free / unit
        columns, rank = np.column_stack([columns, e / extended.length(e)]), rank + 1
    if rank >= n:
        return _Complement(0, np.ones(n, dtype=bool), np.zeros((n, 0)))
    # What columns span does not depend on their units: tiny ones beside a bias are no rounding.
    columns = columns / row_units(row_lengths(columns.T))
    # A misfit loses the square of the ratio of lengths: up to this one it is good to 1e-8.
    even = unit.max() <= 1e4 * unit.min()
    if n > 2 * rank and even:
        return _by_range(columns, unit, rank)
    scaled = scipy.linalg.svd(columns)[0][:, rank:]
    # Rounding of an orthonormal basis per sample: shorter rows are no part of it.
    interpolated = row_lengths(scaled) <= 10.0 * np.finfo(np.float64).eps * n
    return _Complement(n - rank, interpolated, _orthonormal(scaled, unit.min() / unit))


def _by_range(columns: FloatArray, unit: FloatArray, rank: int) -> Unseen:
    left = scipy.linalg.svd(columns, full_matrices=False)[0][:, :rank]
    unit = unit / unit.max()
    basis = _orthonormal(left, unit)
    # Up to a half, 1 - leverage has all its digits.
    high = np.square(basis).sum(axis=1) > 0.5
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
