"""The flow of U V^T in closed form in time: whitened data, lambda-balanced start.

    Z' = F Z - Z Z^T Z / 2,     F = [[lam/2 I, Y], [Y^T, -lam/2 I]]
    G(t) = e^{Ft} Z0 N(t)^{-1} Z0^T e^{Ft},     N(t) = I + Z0^T F^{-1} (e^{2Ft} - I)/2 Z0

for the loss ||Y - U V^T||^2/2 and Z0^T J Z0 = lam I, J = diag(I, -I). Z0 may be any root of G(0),
so that only the rank of G(0) counts, not the width: every network of one hidden unit qualifies.
X with equal singular values `root` multiplies the clock by root^2 and divides Y by root.

Z(t) itself is e^{Ft} Z0 C(t) with C' = -N^{-1} N' C/2. Where all N(t) commute C = N^{-1/2}, and the
weights are in closed form, too; otherwise only C C^T = N^{-1} is, which is enough for the Gram
matrix of the moving rows.

The scalar network, X of rank one and one output, needs no balance [min2021, section 3.1]: the flow
is a hyperbolic rotation, (u + v) e^s and (u - v) e^{-s}, at any width. Its angle is that of the
network with one hidden unit, u = (|u + v| + |u - v|)/2 and v = (|u + v| - |u - v|)/2.

Columns that grow at rates far apart are orthogonalized without overflow:

    T(t) T(t)^T = diag(e^{f t}) z (I + z^T diag(g) z)^{-1} z^T diag(e^{f t}),
    g_i = (e^{2 f_i t} - 1)/(2 f_i)

With M = diag(w) [I; z], w = (1, sqrt(g)), the inverse is that of M^T M, and T follows from a basis
of the columns of M. The elimination that makes one commutes with the scaling of rows: it is done on
[I; z], with pivots chosen by log w, and of the weights only ratios are formed, which with such
pivots are at most about one. Weights are kept as w = e^{a t + b}, a = max(f, 0): at t = 1e290,
which stands for infinity, the sum would keep nothing of b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.flows.lifted.compression import product_without_noise
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray

# Roundings of its terms below which a difference in the elimination is zero.
_NOISE = 32.0 * EPS
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
        # For t = infinity: rates that differ at all are then apart by more than any exponent.
        t = min(t, 1e290)
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


# --- forms in time -------------------------------------------------------------------------------


# Relative departure from a hypothesis that is rounding: of equal singular values of X, of Z0^T J Z0
# from lam I, of matrices that commute.
WITHIN_ROUNDING = 1e-12
# Rates closer than this relative to the largest are one rate: eigenvalues are no more accurate.
_SAME_RATE = 1e-13


class TimeForm(ABC):
    """Weights of the moving rows, (p, k), at any time on the loss ||Y - U V^T||^2/2."""

    @property
    @abstractmethod
    def has_weights(self) -> bool:
        """Whether these are the weights, not only a root of their Gram matrix."""

    @abstractmethod
    def at(self, t: float) -> FloatArray:
        """At one time, which may be infinite."""


@dataclass(frozen=True, eq=False)
class BalancedForm(TimeForm):
    """From weights (p, k) with Z0^T J Z0 = lam I; rows of the target's rows first."""

    weights: FloatArray
    target: FloatArray

    @cached_property
    def imbalance(self) -> float:
        """lam."""
        difference = _imbalance(self.weights, len(self.target))
        return float(np.trace(difference)) / len(difference)

    @property
    def has_weights(self) -> bool:
        return self._common_basis is not None

    def at(self, t: float) -> FloatArray:
        if t == 0.0:
            return self.weights
        if self._common_basis is None:
            return np.asarray(self._vectors @ GradedColumns(self._rates, self._start).at(t))
        turned = product_without_noise(self._vectors.T, self.weights, self._common_basis)
        columns = [GradedColumns(self._rates, column[:, None]).at(t) for column in turned.T]
        return np.asarray(self._vectors @ np.hstack(columns) @ self._common_basis.T)

    @cached_property
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        rows, columns = self.target.shape
        half = np.full(rows + columns, 0.5 * self.imbalance)
        half[rows:] *= -1.0
        F = np.diag(half)
        F[:rows, rows:], F[rows:, :rows] = self.target, self.target.T
        rates, vectors = scipy.linalg.eigh(F)
        return _merged(rates), vectors

    @property
    def _rates(self) -> FloatArray:
        return self._eigen[0]

    @property
    def _vectors(self) -> FloatArray:
        return self._eigen[1]

    @cached_property
    def _start(self) -> FloatArray:
        """Z0 in eigenvectors of F."""
        return product_without_noise(self._vectors.T, self.weights)

    @cached_property
    def _common_basis(self) -> FloatArray | None:
        """Orthonormal columns that diagonalize N(t) at all times; None where there are none."""
        if self.weights.shape[1] == 1:
            return np.ones((1, 1))
        groups = np.split(self._start, np.flatnonzero(np.diff(self._rates)) + 1)
        parts = np.array([group.T @ group for group in groups])
        # A combination in general position tells apart whatever any of them does.
        mixed = np.tensordot(np.sqrt(np.arange(2.0, 2.0 + len(parts))), parts, axes=1)
        _, basis = scipy.linalg.eigh(mixed)
        turned = basis.T @ parts @ basis
        off = turned - np.einsum("gii->gi", turned)[:, :, None] * np.eye(len(basis))
        # Each pair against its own columns: next to a large one a small one always looks apart.
        lengths = np.sqrt(np.einsum("gii->i", np.abs(turned)))
        is_diagonal = (np.abs(off) <= WITHIN_ROUNDING * np.outer(lengths, lengths)).all()
        return np.asarray(basis) if is_diagonal else None


@dataclass(frozen=True, eq=False)
class ScalarForm(TimeForm):
    """One moving row u, one output v, any number k of hidden units: weights (2, k)."""

    weights: FloatArray
    target: float

    @property
    def has_weights(self) -> bool:
        return True

    def at(self, t: float) -> FloatArray:
        u, v = self.weights
        plus, minus = u + v, u - v
        p, q = float(np.linalg.norm(plus)), float(np.linalg.norm(minus))
        unit = BalancedForm(np.array([[p + q], [p - q]]) / 2.0, np.array([[self.target]]))
        (now_u,), (now_v,) = unit.at(t)
        # e^s by whichever of the two grew: the other is what is left of a difference.
        if q == 0.0 or (p > 0.0 and abs(now_u + now_v) * q >= abs(now_u - now_v) * p):
            growth = (now_u + now_v) / p
            plus, minus = plus * growth, minus / growth if q > 0.0 else minus
        else:
            growth = (now_u - now_v) / q
            plus, minus = plus / growth if p > 0.0 else plus, minus * growth
        return np.array([plus + minus, plus - minus]) / 2.0


def scalar_product(target: float, product: float, imbalance: float, t: float) -> float:
    """p(t) of p' = (y - p) sqrt(d^2 + 4 p^2): the product of a scalar network.  [min2021, (14)]

    With u v = p(0) and d = u^2 - v^2 for one hidden unit, at any width
    d^2 = (|u|^2 + |v|^2)^2 - 4 p(0)^2. t may be infinite.
    """
    # |u + v| |u - v| = |d| and |u + v|^2 - |u - v|^2 = 4 p; the larger one without a difference.
    total = float(np.hypot(imbalance, 2.0 * product))
    larger = np.sqrt(total + 2.0 * abs(product))
    smaller = abs(imbalance) / larger if larger > 0.0 else 0.0
    plus, minus = (larger, smaller) if product >= 0.0 else (smaller, larger)
    start = np.array([[plus + minus], [plus - minus]]) / 2.0
    u, v = BalancedForm(start, np.array([[float(target)]])).at(t)
    return float(u[0] * v[0])


# Share below which a difference of layers has lost more digits than the closed form may.
_CLEAR = 1e-4


def time_form(weights: FloatArray, target: FloatArray) -> TimeForm | None:
    """The closed form that fits a start on the loss ||Y - U V^T||^2/2, if one does."""
    if target.shape == (1, 1):
        # Between nearly opposite or nearly equal layers u + v or u - v is what rounding left.
        u, v = weights
        sides = np.linalg.norm(u + v), np.linalg.norm(u - v)
        is_clear = all(side == 0.0 or side >= _CLEAR * max(sides) for side in sides)
        return ScalarForm(weights, float(target[0, 0])) if is_clear else None
    difference = _imbalance(weights, len(target))
    level = np.trace(difference) / len(difference)
    off = np.abs(difference - level * np.eye(len(difference))).max()
    if off > WITHIN_ROUNDING * np.sum(np.square(weights)):
        return None
    return BalancedForm(weights, target)


def is_whitened(root: FloatArray) -> bool:
    """Whether all singular values of X are equal, up to rounding."""
    return bool(np.ptp(root) <= WITHIN_ROUNDING * root.max())


def _imbalance(weights: FloatArray, rows: int) -> FloatArray:
    upper, lower = weights[:rows], weights[rows:]
    return np.asarray(upper.T @ upper - lower.T @ lower)


def _merged(rates: FloatArray) -> FloatArray:
    """Increasing rates, equal where they differ by rounding: at t = 1e6 and beyond that counts."""
    same = _SAME_RATE * max(float(np.abs(rates).max()), np.finfo(float).tiny)
    merged = rates.copy()
    groups = np.split(np.arange(len(rates)), np.flatnonzero(np.diff(rates) > same) + 1)
    for group in groups:
        mean = float(rates[group].mean())
        merged[group] = 0.0 if abs(mean) <= same else mean
    return merged
