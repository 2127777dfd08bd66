"""Columns that grow at rates far apart, orthogonalized without overflow.

    T(t) T(t)^T = diag(e^{f t}) z (I + z^T diag(g) z)^{-1} z^T diag(e^{f t}),
    g_i = (e^{2 f_i t} - 1)/(2 f_i)

With M = diag(w) [I; z], w = (1, sqrt(g)), the inverse is that of M^T M, and T follows from a basis
of the columns of M. The elimination that makes one commutes with the scaling of rows: it is done on
[I; z], with pivots chosen by log w, and of the weights only ratios are formed, which with such
pivots are at most about one.
Weights are kept as w = e^{a t + b}, a = max(f, 0): at t = 1e290, which stands for infinity, the sum
would keep nothing of b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.ground.typing import FloatArray

# Stands for t = infinity: rates that differ at all are then apart by more than any exponent.
FOREVER = 1e290
# Roundings of its terms below which a difference in the elimination is zero.
_NOISE = 32.0 * float(np.finfo(float).eps)
# Roundings of a term that may have gone into a product and into the matrices it is made of.
_ROUNDINGS = 16.0
# Pivots within this of the largest logarithm will do; among them the part without a t decides.
_AS_GOOD = 1.0


def log_integral(rates: FloatArray, t: float) -> FloatArray:
    """b with sqrt(g) = e^{max(f, 0) t + b}: log((1 - e^{-2 |f| t})/(2 |f|))/2, or log(t)/2."""
    speed = np.abs(rates)
    moving = speed > 0.0
    with np.errstate(over="ignore"):
        twice = np.where(moving, 2.0 * speed, 1.0)
        return np.where(moving, 0.5 * np.log(-np.expm1(-twice * t) / twice), 0.5 * np.log(t))


@dataclass(frozen=True, eq=False)
class GradedColumns:
    """Rates f (p,) and columns z (p, k)."""

    rates: FloatArray
    columns: FloatArray

    def at(self, t: float) -> FloatArray:
        """T(t), (p, k), up to a rotation of its columns; one column is exactly itself."""
        t = min(t, FOREVER)
        k = self.columns.shape[1]
        growth = np.concatenate([np.zeros(k), np.maximum(self.rates, 0.0)])
        constant = np.concatenate([np.zeros(k), log_integral(self.rates, t)])
        factors, pivots = _eliminate(np.vstack([np.eye(k), self.columns]), growth * t, constant)
        steps = (growth[:, None] - growth[pivots]) * t + (constant[:, None] - constant[pivots])
        triangle = scipy.linalg.qr(_times_exp(factors, steps), mode="r")[0][:k]
        # e^{f t} in place of the weight w = sqrt(g): their ratio times the same basis.
        steps = (self.rates[:, None] - growth[pivots]) * t - constant[pivots]
        grown = _times_exp(factors[k:], steps)
        rows = scipy.linalg.solve_triangular(triangle, grown.T, trans="T").T
        if k == 1:
            # Columns of an orthonormal basis have no sign of their own; these have the start's.
            return np.asarray(np.copysign(rows, self.columns))
        return np.asarray(rows)


def _times_exp(values: FloatArray, exponents: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.where(values == 0.0, 0.0, values * np.exp(exponents))


def _eliminate(
    matrix: FloatArray, growth: FloatArray, constant: FloatArray
) -> tuple[FloatArray, list[int]]:
    """Columns that span those of `matrix`, with 1 in the pivot row of each and 0 in earlier ones.

    Complete pivoting on e^{growth + constant} times the rows.
    """
    rest = matrix.copy()
    size, k = rest.shape
    factors = np.zeros((size, k))
    pivots: list[int] = []
    open_columns = list(range(k))
    for step in range(k):
        part = rest[:, open_columns]
        with np.errstate(divide="ignore"):
            fine = constant[:, None] + np.log(np.abs(part))
        total = growth[:, None] + fine
        total[pivots] = -np.inf
        good = total >= total.max() - _AS_GOOD
        row, column = np.unravel_index(np.argmax(np.where(good, fine, -np.inf)), part.shape)
        pivots.append(int(row))
        chosen = open_columns.pop(int(column))
        factors[:, step] = rest[:, chosen] / rest[row, chosen]
        factors[pivots[:-1], step] = 0.0
        for other in open_columns:
            change = factors[:, step] * rest[row, other]
            updated = rest[:, other] - change
            terms = np.abs(rest[:, other]) + np.abs(change)
            rest[:, other] = np.where(np.abs(updated) <= _NOISE * terms, 0.0, updated)
    return factors, pivots


def product_without_noise(*parts: FloatArray) -> FloatArray:
    """The product of matrices, zero where it is the rounding of its terms: it would grow.

    Of its own terms: next to a large column a small one is no rounding.
    """
    product, terms = parts[0], np.abs(parts[0])
    for part in parts[1:]:
        product, terms = product @ part, terms @ np.abs(part)
    noise = _ROUNDINGS * np.sqrt(len(parts[0])) * np.finfo(float).eps * terms
    return np.where(np.abs(product) <= noise, 0.0, product)
