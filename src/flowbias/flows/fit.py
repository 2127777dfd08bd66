"""The data as the flow sees it, in as few rows as possible, and how close a predictor fits.

    X^T (X w - y) = A^T (A w - b)

A = X and b = y where the rows of X are independent. Otherwise X = U A with orthonormal columns in
U (from the singular value decomposition) and b = U^T y: the same flow, in rank(X) unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from flowbias import _extended as extended
from flowbias._typing import FloatArray
from flowbias.limits.reachable import reachable
from flowbias.limits.routes import HasPotential
from flowbias.potentials import Provides
from flowbias.problem import Regression, row_lengths

# Residual, relative to the terms it is a difference of, below which the flow stands still: two
# digits above rounding.
SETTLED = 1e-13


class Quality(NamedTuple):
    """||A w - b||; the relative residual; whether what is left of it is rounding."""

    misfit: float
    residual: float
    is_settled: bool


@dataclass(frozen=True, eq=False)
class Fit:
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
        misfit = np.linalg.norm(w @ self.rows.T - self.reachable, axis=-1)
        return np.asarray(misfit / self.size)

    def quality(self, w: FloatArray) -> Quality:
        """All there is to know about one predictor, for the price of one product with A."""
        fitted = self.rows @ w
        misfit = extended.length(fitted - self.target)
        short = (
            misfit if self.reachable is self.target else extended.length(fitted - self.reachable)
        )
        terms = float(np.abs(w) @ self.column_lengths) + self.size
        return Quality(misfit, short / self.size, short <= SETTLED * terms)

    def dual_of_data(self, dual: FloatArray) -> FloatArray:
        """nu for X's own rows, X^T nu = A^T dual; works on rows of duals as well."""
        return dual if self.lift is None else np.asarray(dual @ self.lift.T)


def fit_of(problem: Regression, initial: FloatArray, reached: FloatArray | None) -> Fit:
    """The fit from a start w(0); `reached` is the limit of X w where not all of P y can be had."""
    rows, target, lift = _independent_rows(problem)
    best = target
    if reached is not None:
        best = reached if lift is None else lift.T @ reached
    # Where P y = 0 the start is what residuals are compared to; where both are, nothing moves.
    size = extended.length(best) or extended.length(rows @ initial - best) or 1.0
    return Fit(rows, target, best, lift, size, row_lengths(rows.T))


def _independent_rows(
    problem: Regression,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    X, y = problem.X, problem.y
    if problem.constraint.to_data is None:
        return X, y, None
    left, values, right = scipy.linalg.svd(X, full_matrices=False)
    rank = int((values > max(X.shape) * np.finfo(float).eps * values[0]).sum())
    left = left[:, :rank]
    return values[:rank, None] * right[:rank], left.T @ y, left


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
