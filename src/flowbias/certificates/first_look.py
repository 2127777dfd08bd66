"""Whether a limit is proved at first sight: in doubles, by a few products with X and one factor.

The argument is that of `error_bound`, with cruder constants. With z = shift + X^T nu, W = w'(z),
H = X diag(W) X^T and e >= ||H^-1/2 (y - X w(z))||, rounding included, let S_i = 2 e K_i, where
K_i^2 = x_i^T H^-1 x_i is at most 1 / W_i, and at most |u x_i|^2 / least eigenvalue of
diag(u) H diag(u). If w' changes by no more than a factor 1 + g within S, g <= 1/2, then

    ||w(z*) - w(z)|| <= 3 sqrt(max W) e.

The eigenvalue comes from a factor of diag(u) X diag(c) X^T diag(u) for any c near a multiple of W,
whoever has computed it: that it is one is checked on a vector that nobody knows before
[Freivalds 1977]. What is not proved here is not refused: `measured` looks closer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from flowbias.certificates.error_bound import PROVED
from flowbias.ground.typing import FloatArray
from flowbias.potentials import Potential

EPS = float(np.finfo(float).eps)
# Growth of w' within which nothing bends: far below the factor that the argument allows, so that
# what is proved here is proved by `error_bound` too, whose box has room for as much.
CLOSE = 1.001
_RANDOM = np.random.default_rng()


class Factor(NamedTuple):
    """Lower L with L L^T = diag(unit) X diag(weights) X^T diag(unit), of unit diagonal."""

    lower: FloatArray
    unit: FloatArray
    weights: FloatArray

    def is_one_of(self, X: FloatArray) -> bool:
        """Whether it agrees with X on a random vector, to rounding."""
        n, d = X.shape
        v = _RANDOM.standard_normal(n)
        # dpotrf leaves what was above the diagonal where it was.
        product = scipy.linalg.blas.dtrmv(self.lower, v, lower=1, trans=1)
        product = scipy.linalg.blas.dtrmv(self.lower, product, lower=1)
        wanted = self.unit * (X @ (self.weights * (X.T @ (self.unit * v))))
        return bool(np.linalg.norm(product - wanted) <= 8.0 * (n + d) * EPS * np.linalg.norm(v))

    def least_eigenvalue(self, weights: FloatArray, largest: float) -> float:
        """Lower bound of that of diag(unit) X diag(weights) X^T diag(unit), entries up to largest.

        Weights that count for nothing here may be anything: what they lack is taken off.
        """
        counted = self.weights > 1e-12 * self.weights.max()
        ratio = float((weights[counted] / self.weights[counted]).min())
        lacking = float(np.maximum(self.weights - weights / ratio, 0.0)[~counted].sum())
        rcond, _ = scipy.linalg.lapack.dpocon(self.lower, 1.0, uplo="L")
        # As in `error_bound`: the condition number is estimated from below.
        squares = np.square(largest * self.unit).sum()
        return ratio * (0.1 * float(rcond) - lacking * float(squares))


@np.errstate(all="ignore")
def is_proved(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    factor: Factor,
    *,
    tol: float,
) -> bool:
    """Whether w and nu are the limit to tol, and to PROVED of w; comparisons with NaN are false."""
    n, d = X.shape
    rise, misfit = X.T @ nu, X @ w - y
    z = shift + rise
    near, slope = potential.grad_dual(z), potential.hess_dual(z)
    largest = max(float(X.max()), -float(X.min()))
    # What underflows moves no w, and H is no larger for it.
    root = np.sqrt(np.maximum(slope, np.finfo(float).tiny))
    # How far w is from w(z), as a change of z: twice that of a constant w', if that is about so.
    away = np.abs(w - near)
    moved = 2.0 * away / (root * root)
    # |X| |w| is at most this, in rows of the factor's units [Cauchy-Schwarz].
    used = np.flatnonzero(w)
    sums = _length(w[used] / np.sqrt(factor.weights[used]))
    blur = (d + 2) * EPS * sums / factor.unit
    gap = float(moved @ away) + float(np.abs(nu) @ (np.abs(misfit) + blur))
    is_optimal = (
        _length(np.abs(misfit) + blur) <= 0.5 * tol * _length(y)
        and moved.max() <= 0.5 * tol * max(np.abs(rise).max(), np.abs(z).max())
        and gap <= 0.5 * tol * float(np.abs(z) @ np.abs(w))
    )
    eigenvalue = factor.least_eigenvalue(slope, largest) if is_optimal else 0.0
    if not (eigenvalue > 0.0 and factor.is_one_of(X)):
        return False
    tilt = (n + 4) * EPS * largest * np.abs(nu).sum() + 4.0 * EPS * (np.abs(z) + np.abs(shift))
    tilt = tilt + potential.dual_rounding(z) + potential.law_rounding(z)
    tilt = tilt + potential.shift_rounding(shift)
    relative = (potential.evaluation_rounding + 8.0 * EPS) * np.abs(near)
    distance = _length(factor.unit * (np.abs(misfit) + blur)) / np.sqrt(eigenvalue)
    distance += _length((away + relative) / root) + _length(root * tilt)
    reach = np.minimum(1.0 / root, largest * _length(factor.unit) / np.sqrt(eigenvalue))
    growth = potential.hess_growth(z, 2.0 * distance * reach + tilt + moved).max()
    error = _length(away) + 3.0 * float(root.max()) * distance
    return bool(growth <= CLOSE and error <= 0.1 * PROVED * _length(w))


def _length(v: FloatArray) -> float:
    return float(np.sqrt(v @ v))
