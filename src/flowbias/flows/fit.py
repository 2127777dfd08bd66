"""The data as the flow sees it, in as few rows as possible, and how close a predictor fits.

    X^T (X w - y) = A^T (A w - b)

A = X and b = y where the rows of X are independent. Otherwise X = U A with orthonormal columns in
U (from a QR decomposition that keeps rows in small units) and b = U^T y: the same flow, in rank(X)
unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.extended import row_lengths
from flowbias.ground.linear_algebra import graded_qr
from flowbias.ground.typing import FloatArray, Indices
from flowbias.models._base import HasPotential
from flowbias.models.reachable import reachable
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression

# Residual, relative to the terms it is a difference of, below which the flow stands still: two
# digits above rounding.
SETTLED = 1e-13


class Quality(NamedTuple):
    """How well a predictor fits: all rows in one, and each by itself.

    A row in small units is a constraint like any other, and it is the last that the flow fits: the
    norm of all rows is down to 1e-8 before the flow has seen one that is 1e-9 of the largest.
    """

    misfit: float  # ||A w - b||
    residual: float  # ||A w - P b|| / ||P b||
    left: FloatArray  # |A w - P b|, row by row
    sizes: FloatArray  # of the terms each of those is a difference of

    def within(self, tolerance: float) -> bool:
        """Whether what is left of each row is no more than this share of its own size."""
        return bool(np.all(self.left <= tolerance * self.sizes))

    @property
    def shares(self) -> FloatArray:
        """What is left of each row, relative to its own size."""
        return np.divide(self.left, self.sizes, out=np.zeros_like(self.left), where=self.left > 0.0)

    @property
    def is_settled(self) -> bool:
        """Whether what is left is rounding."""
        return self.within(SETTLED)


@dataclass(frozen=True, eq=False)
class ReachableFit:
    """Rows A, their target b, and the part of b that the model can reach."""

    rows: FloatArray
    target: FloatArray
    reachable: FloatArray
    lift: FloatArray | None  # U, or None for the identity
    size: float  # residuals are relative to it
    column_lengths: FloatArray

    def pull(self, w: FloatArray) -> FloatArray:
        """b - A w."""
        return self.target - self.rows @ w

    def residual(self, w: FloatArray) -> FloatArray:
        """||X w - P y|| / ||P y|| of one predictor, or of each row."""
        misfit = w @ self.rows.T - self.reachable
        lengths = extended.row_lengths(np.atleast_2d(misfit))
        return np.reshape(lengths / self.size, misfit.shape[:-1])

    def quality(self, w: FloatArray) -> Quality:
        """All there is to know about one predictor, for the price of two products with A."""
        fitted = self.rows @ w
        left = np.abs(fitted - self.reachable)
        short = extended.length(left)
        misfit = short if self.reachable is self.target else extended.length(fitted - self.target)
        sizes = np.abs(self.reachable) + np.abs(self.rows) @ np.abs(w)
        if self._idle is not None:
            sizes = np.maximum(sizes, self._idle * float(np.mean(np.abs(w) * self.column_lengths)))
        return Quality(misfit, short / self.size, left, sizes)

    @cached_property
    def _idle(self) -> FloatArray | None:
        """Of rows that have nothing to fit: what they would add up to if all columns counted alike.

        Their own size vanishes with what is left of them, so that no share of it is ever small.
        """
        lengths = np.where(self.column_lengths > 0.0, self.column_lengths, 1.0)
        alike = np.abs(self.rows / lengths).sum(axis=1)
        # Rows that were combined have the rounding of that in place of nothing.
        rounding = 0.0 if self.lift is None else len(self.lift) * np.finfo(float).eps * self.size
        is_idle = np.abs(self.reachable) <= rounding * alike
        return np.where(is_idle, alike, 0.0) if is_idle.any() else None

    def dual_of_data(self, dual: FloatArray) -> FloatArray:
        """nu for X's own rows, X^T nu = A^T dual; works on rows of duals as well."""
        return dual if self.lift is None else np.asarray(dual @ self.lift.T)


def fit_of(problem: Regression, initial: FloatArray, reached: FloatArray | None) -> ReachableFit:
    """The fit from a start w(0); `reached` is the limit of X w where not all of P y can be had."""
    rows, target, lift = _independent_rows(problem)
    best = target
    if reached is not None:
        best = reached if lift is None else lift.T @ reached
    # Where P y = 0 the start is what residuals are compared to; where both are, nothing moves.
    size = extended.length(best) or extended.length(rows @ initial - best) or 1.0
    return ReachableFit(rows, target, best, lift, size, row_lengths(rows.T))


def _independent_rows(
    problem: Regression,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    X, y = problem.X, problem.y
    if problem.constraint.to_data is None:
        return X, y, None
    constraint = problem.constraint
    rank = len(constraint.rows)
    left, upper, pivots = graded_qr(X)
    rows = np.empty((rank, X.shape[1]))
    rows[:, pivots] = upper[:rank]
    # Equal columns stay equal to the last bit: flows of tiny starts keep them so.
    first, copies, signs = equal_columns(X)
    rows = signs * rows[:, first][:, copies]
    # U^T y = A w for every fit w: so each entry has the digits of its own row, not of the largest.
    fitted = constraint.rows.T @ constraint.target
    return rows, rows @ fitted, left[:, :rank]


def equal_columns(
    rows: FloatArray, swapped: FloatArray | None = None
) -> tuple[Indices, Indices, FloatArray]:
    """The first of columns that are equal up to sign; for each column which it is, and the sign.

    `swapped` are two more rows that trade places, not signs, in an opposite column.
    """
    signs = np.sign(rows[(rows != 0.0).argmax(axis=0), np.arange(rows.shape[1])])
    signs[signs == 0.0] = 1.0
    more = np.zeros((2, len(signs))) if swapped is None else swapped
    keys = np.vstack([signs * rows, np.where(signs > 0.0, more, more[::-1])])
    _, first, copies = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    copies = np.ravel(copies)
    return first, copies, signs * signs[first][copies]


def reached_by(model: HasPotential, problem: Regression) -> FloatArray | None:
    """What X w converges to where some coordinates are frozen or keep one sign; else None."""
    if not model.provides & {Provides.EXPONENTIAL_DUAL, Provides.POWER_DUAL}:
        return None
    potential: Any = model.potential
    shape = problem.X.shape[1:]
    plus = np.broadcast_to(np.isfinite(potential.log_plus), shape)
    minus = np.broadcast_to(np.isfinite(potential.log_minus), shape)
    if not (plus | minus).any():
        return np.zeros(problem.X.shape[0])
    reach = reachable(problem, plus, minus)
    if reach.kept is None:
        return None
    if not reach.kept.any():
        return np.zeros(problem.X.shape[0])
    constraint = reach.constraint
    w = scipy.linalg.lstsq(constraint.rows, constraint.target / constraint.row_scale)[0]
    return np.asarray(problem.X[:, reach.kept] @ w)
