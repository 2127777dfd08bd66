"""The error bound where the potential does not separate but is strongly convex near the limit.

Let v = w + X^+ (y - X w), which fits the data, and let mu bound the Hessian of Q from below within
r of v. On the affine set of interpolators Q - <shift, .> is then mu-strongly convex in that ball,
and its minimizer w* lies within

    ||w* - v|| <= ||P_null (grad Q(v) - shift)|| / mu <= ||grad Q(v) - shift - X^T nu|| / mu

whenever the right hand side is below r; and ||v - w|| <= ||y - X w|| / sigma_min(X).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray
from flowbias.potentials import JointPotential

# Below this ratio of singular values of X its null space is not known.
SMALLEST_RATIO = 1e-12
# Least singular value of rows of length 1 down to which their Gram matrix may be factored: its
# square is well above the rounding of the products.
SAFE_SINGULAR_VALUE = 1e-5
# Rounding of one evaluation of grad, in units of the potential's own accuracy.
EVALUATION = 8.0
# Radii tried, each ten times the last, before giving up.
TRIALS = 20


def joint_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: JointPotential,
    shift: FloatArray | float,
) -> float:
    """Upper bound of ||w - w*||_2, or inf where the argument does not go through."""
    if not (np.isfinite(w).all() and potential.strong_convexity(w, 0.0) > 0.0):
        return np.inf
    lengths = row_lengths(X)
    lengths[lengths == 0.0] = 1.0
    residual = (y - extended.apply(X, w)) / lengths
    sums = (extended.absolute_apply(X, w) + np.abs(y)) / lengths
    step, smallest = _shortest_fit(X / lengths[:, None], np.asarray(residual, dtype=np.float64))
    repaired = w + step
    rounding = (len(w) + 2) * extended.EPS * extended.length(sums) / smallest
    moved = extended.length(step) + rounding
    away = _off_stationary(X, nu, potential, shift, repaired)
    curvature = potential.strong_convexity(repaired, 0.0)
    if not curvature > 0.0:
        # w is off a kink by its rounding alone, and the repair has ended on it.
        return np.inf
    radius = 2.0 * away / curvature + rounding
    for _ in range(TRIALS):
        # At a kink the curvature is 0, and no radius will do.
        least = potential.strong_convexity(repaired, radius + rounding)
        if away <= radius * least:
            return moved + away / least
        radius *= 10.0
    return np.inf


def _shortest_fit(A: FloatArray, residual: FloatArray) -> tuple[FloatArray, float]:
    """A^+ residual for rows of length 1, and a lower bound of A's least singular value.

    By a Cholesky factor where the rows are independent enough: a singular value decomposition of
    A costs as much as a hundred products A A^T.
    """
    factor, info = scipy.linalg.lapack.dpotrf(A @ A.T, lower=1, clean=1)
    if info == 0:
        inverse, info = scipy.linalg.lapack.dtrtri(factor, lower=1)
        smallest = 1.0 / float(np.linalg.norm(inverse))
        if info == 0 and smallest > SAFE_SINGULAR_VALUE:
            return A.T @ (inverse.T @ (inverse @ residual)), smallest
    left, values, right = scipy.linalg.svd(A, full_matrices=False)
    rank = int((values > SMALLEST_RATIO * values[0]).sum())
    missing = (left[:, :rank].T @ residual) / values[:rank]
    return right[:rank].T @ missing, float(values[rank - 1])


def _off_stationary(
    X: FloatArray,
    nu: FloatArray,
    potential: JointPotential,
    shift: FloatArray | float,
    w: FloatArray,
) -> float:
    """||grad Q(w) - shift - X^T nu||, with the rounding of its terms."""
    gradient, rise = potential.grad(w), extended.adjoint(X, nu)
    away = extended.length(gradient - shift - rise)
    sizes = extended.length(extended.absolute_adjoint(X, nu)) * (len(nu) + 2) * extended.EPS
    return away + EVALUATION * potential.rounding * extended.length(gradient) + sizes
