"""A proved bound on the distance to the exact limit, not only a gap.

With z = shift + X^T nu, w^ = w(z), W = diag(w'(z)), H = X W X^T and the Newton step
s = X^T H^{-1} (y - X w^), the exact dual point is z + s* where s* is a fixed point of

    T(s*) = s - X^T H^{-1} X R(s*),      |R_i(s*)| <= W_i |s*_i| (growth_i(|s*_i|) - 1)

(`growth` is the potential's bound on how fast w' changes). X^T H^{-1} X W is a projection in the
norm of W, so coordinate i of the second term is at most K_i eta with K_i^2 = x_i^T H^{-1} x_i and
eta^2 = sum W s*^2 (growth - 1)^2. If theta >= eta on the box |s*_i| <= S_i = |s_i| + K_i theta,
T maps the box into itself, so by Brouwer's theorem it contains s*: the limit is unique. Hence

    |w*_i - w_i| <= |w^_i + W_i s_i - w_i| + W_i (K_i theta + S_i (growth_i(S_i) - 1)).

All of it in extended precision where the platform has one, because at a good solution the rounding
of the residual is the whole error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from flowbias import _extended as extended
from flowbias._extended import Extended
from flowbias._typing import FloatArray
from flowbias.potentials import Potential, Provides

# Trials for theta before giving up: each at least doubles it.
MAX_TRIALS = 60
# Rounding of one evaluation of w(z) and w'(z) in the potential's own double constants.
EVALUATION = 4.0 * np.finfo(np.float64).eps
# Rounding of an extended dot product, with room for its length.
SUMMATION = 64.0 * extended.EPS


@dataclass(frozen=True)
class _DualPoint:
    z: Extended
    w: Extended
    slope: Extended
    residual: Extended
    size: float  # || |X| |w^| ||, for the rounding of the residual


def error_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
) -> float:
    """Upper bound of ||w - w*||_2, or inf where the argument does not go through."""
    if Provides.POTENTIAL not in potential.provides:
        return _support_bound(X, y, w)
    point = _dual_point(X, y, nu, potential, shift)
    slope = np.asarray(point.slope, dtype=np.float64)
    if not (np.isfinite(slope).all() and np.isfinite(np.asarray(point.residual, float)).all()):
        return np.inf
    factor = _Factor.of(X, slope)
    if factor is None:
        rows = _independent_rows(X)
        X, point = X[rows], replace(point, residual=point.residual[rows])
        factor = _Factor.of(X, slope)
    if factor is None:
        return np.inf
    step, leftover = factor.newton_step(point)
    rise = X.T @ step
    leverage = factor.leverage(X)
    # Errors of the residual itself: per-coordinate ones go through the projection unamplified.
    root = np.sqrt(slope)
    tilt = SUMMATION * np.asarray(np.abs(point.z), dtype=np.float64)
    tilt = tilt + potential.dual_rounding(tilt)
    relative = EVALUATION * np.abs(np.asarray(point.w, dtype=np.float64))
    coordinate = float(np.linalg.norm(root * tilt))
    coordinate += float(
        np.linalg.norm(np.divide(relative, root, out=np.zeros_like(root), where=root > 0))
    )
    noise = coordinate + leftover + factor.inverse_norm * SUMMATION * point.size
    first = np.abs(rise) + leverage * noise
    theta = _box(potential, np.asarray(point.z, float), slope, first, leverage)
    if theta is None:
        return np.inf
    box = first + leverage * theta
    growth = potential.hess_growth(np.asarray(point.z, float), box)
    bend = np.where(slope > 0, slope * box * (growth - 1.0), 0.0)
    centre = np.linalg.norm(np.asarray(point.w - w + point.slope * rise, dtype=np.float64))
    # s* - s is W-projected noise and bending, so sqrt(max W) takes its W-norm to the norm of w.
    spread = float(root.max(initial=0.0)) * (noise + theta + coordinate)
    return float(centre + spread + np.linalg.norm(bend))


def _support_bound(X: FloatArray, y: FloatArray, w: FloatArray) -> float:
    """For a vertex: the residual through the inverse of the columns in use."""
    columns = X[:, w != 0]
    if columns.shape[1] == 0:
        return 0.0
    smallest = float(scipy.linalg.svdvals(columns)[-1]) if columns.shape[1] <= len(X) else 0.0
    residual = y.astype(np.longdouble) - extended.apply(columns, w[w != 0].astype(np.longdouble))
    rounding = SUMMATION * float(np.linalg.norm(np.abs(columns) @ np.abs(w[w != 0]) + np.abs(y)))
    size = float(np.linalg.norm(np.asarray(residual, dtype=np.float64))) + rounding
    return size / smallest if smallest > 1e-14 * float(np.abs(columns).max()) else np.inf


def _box(
    potential: Potential, z: FloatArray, slope: FloatArray, first: FloatArray, leverage: FloatArray
) -> float | None:
    """theta with eta(|s| + K theta) <= theta, or None."""

    def eta(theta: float) -> float:
        box = first + leverage * theta
        excess = potential.hess_growth(z, box) - 1.0
        # A coordinate without slope cannot move, whatever the bound says about it.
        terms = np.where(slope > 0, np.sqrt(slope) * box * excess, 0.0)
        return float(np.linalg.norm(terms))

    theta = 0.0
    for _ in range(MAX_TRIALS):
        needed = eta(theta)
        if needed <= theta:
            return theta
        if not np.isfinite(needed):
            return None
        theta = 2.0 * needed
    return None


class _Factor:
    """Equilibrated Cholesky factor of H, with what the bound needs from it."""

    def __init__(
        self, X: FloatArray, slope: FloatArray, equilibrate: FloatArray, lower: FloatArray
    ):
        self.X, self.slope, self.equilibrate, self.lower = X, slope, equilibrate, lower
        rcond, _ = scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")
        # ||H^{-1/2}|| on equilibrated rows; n for the norm of the unit-diagonal matrix itself.
        smallest = max(float(rcond), 1e-300)
        self.inverse_norm = float(np.max(equilibrate)) / np.sqrt(smallest)

    @classmethod
    def of(cls, X: FloatArray, slope: FloatArray) -> _Factor | None:
        n, d = X.shape
        matrix = np.zeros((n, n))
        for part in extended.column_blocks(n, d):
            block = X[:, part] * np.sqrt(slope[part])
            matrix += block @ block.T
        diagonal = np.diagonal(matrix).copy()
        if not (diagonal > 0).all() or not np.isfinite(diagonal).all():
            return None
        equilibrate = 1.0 / np.sqrt(diagonal)
        matrix *= equilibrate
        matrix *= equilibrate[:, None]
        try:
            lower = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return None
        return cls(X, slope, equilibrate, lower)

    def _solve(self, b: FloatArray) -> FloatArray:
        x = scipy.linalg.cho_solve((self.lower, True), self.equilibrate * b, check_finite=False)
        return np.asarray(self.equilibrate * x)

    def newton_step(self, point: _DualPoint) -> tuple[FloatArray, float]:
        """H^{-1} residual, and a bound on what rounding has left of it."""
        # Doubles are enough from here on: the residual is all rounding, and only its first
        # digits matter.
        residual = np.asarray(point.residual, dtype=np.float64)
        x = self._solve(residual)
        left = residual - self.X @ (self.slope * (self.X.T @ x))
        lifted = scipy.linalg.solve_triangular(self.lower, self.equilibrate * left, lower=True)
        # Twice: the factor itself is that of H only up to rounding.
        return x, 2.0 * float(np.linalg.norm(lifted))

    def leverage(self, X: FloatArray) -> FloatArray:
        """K_i = sqrt(x_i^T H^{-1} x_i)."""
        n, d = X.shape
        out = np.empty(d)
        for part in extended.column_blocks(n, d):
            lifted = scipy.linalg.solve_triangular(
                self.lower,
                self.equilibrate[:, None] * X[:, part],
                lower=True,
                overwrite_b=True,
                check_finite=False,
            )
            out[part] = np.sqrt(np.einsum("ij,ij->j", lifted, lifted))
        return out


def _dual_point(
    X: FloatArray, y: FloatArray, nu: FloatArray, potential: Potential, shift: FloatArray | float
) -> _DualPoint:
    z: Any = np.asarray(shift, dtype=np.longdouble) + extended.adjoint(X, nu)
    # Potentials keep extended precision where they are given it.
    w = potential.grad_dual(z).astype(np.longdouble)
    slope = potential.hess_dual(z).astype(np.longdouble)
    residual = y.astype(np.longdouble) - extended.apply(X, w)
    size = extended.absolute_apply(X, np.asarray(w, dtype=np.float64)) + np.abs(y)
    return _DualPoint(z, w, slope, residual, extended.length(size))


def _independent_rows(X: FloatArray) -> FloatArray:
    """Indices of a largest set of independent rows: the others repeat what those say."""
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    _, triangle, order = scipy.linalg.qr(
        (X / np.where(lengths > 0, lengths, 1.0)[:, None]).T, mode="economic", pivoting=True
    )
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(X.shape) * np.finfo(float).eps * diagonal[0]).sum())
    return np.sort(order[:rank])
