"""A proved bound on the distance to the exact limit, not only a gap.

With z = shift + X^T nu, w^ = w(z), W = diag(w'(z)), H = X W X^T and the Newton step
s = X^T H^{-1} (y - X w^), the exact dual point is z + s* where s* is a fixed point of

    T(s*) = s - X^T H^{-1} X R(s*),      |R_i(s*)| <= W_i |s*_i| (growth_i(|s*_i|) - 1)

(`growth` is the potential's bound on how fast w' changes). X^T H^{-1} X W is a projection in the
norm of W, so coordinate i of the second term is at most K_i eta with K_i^2 = x_i^T H^{-1} x_i and
eta^2 = sum W s*^2 (growth - 1)^2. If theta >= eta on the box |s*_i| <= S_i = |s_i| + K_i theta,
T maps the box into itself, so by Brouwer's theorem it contains s*: the limit is unique. Hence

    ||w* - w|| <= ||w^ + W s - w|| + sqrt(max W) theta + ||W S (growth(S) - 1)||.

All of it in extended precision where the platform has one, because at a good solution the rounding
of the residual is the whole error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.linalg

from flowbias.certificates.gap_bound import gap_bound
from flowbias.certificates.joint_bound import joint_bound
from flowbias.certificates.rank import numerical_rank
from flowbias.ground import extended
from flowbias.ground.extended import Extended
from flowbias.ground.typing import FloatArray
from flowbias.potentials import ConvexPotential, JointPotential, Potential, Provides

# Relative to w: what is certified is proved to so many digits at least.
PROVED = 1e-6
# Trials for theta before giving up: each at least doubles it.
MAX_TRIALS = 60
# Below this reciprocal condition number of the equilibrated H its own rounding is no longer small
# against its inverse, and nothing is proved.
SMALLEST_RCOND = 1e-12
# The condition number is an estimate from below; it has never been seen off by more than three.
CONDITION_SAFETY = 10.0


@dataclass(frozen=True)
class _DualPoint:
    z: Extended
    w: Extended
    slope: Extended
    residual: Extended
    z_rounding: FloatArray
    residual_rounding: FloatArray


def error_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: ConvexPotential,
    shift: FloatArray | float,
    noise: float = 0.0,
) -> float:
    """Upper bound of ||w - w*||_2, or inf where no argument goes through.

    Where rows of X depend on others, what can be fitted of y is known up to `noise`.
    """
    if Provides.JOINT_POTENTIAL in potential.provides:
        return joint_bound(X, y, w, nu, cast(JointPotential, potential), shift)
    separable = cast(Potential, potential)
    # A norm has no dual map.
    smooth = Provides.POTENTIAL in potential.provides
    bound = box_bound(X, y, w, nu, separable, shift, noise) if smooth else np.inf
    if bound <= PROVED * extended.length(w):
        return bound
    return min(bound, gap_bound(X, y, w, nu, separable, shift, noise))


def box_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    noise_of_fit: float = 0.0,
) -> float:
    """The bound of a separable potential."""
    point = _dual_point(X, y, nu, potential, shift)
    factored = _factored(X, point, noise_of_fit)
    if factored is None:
        return np.inf
    factor, point = factored
    z, slope, root = np.asarray(point.z, float), factor.slope, np.sqrt(factor.slope)
    step, leftover = factor.newton_step(point)
    rise = factor.X.T @ step
    leverage = factor.leverage()
    coordinate = _coordinate_noise(potential, point, root, shift)
    noise = coordinate + leftover + factor.lifted(point.residual_rounding)
    first = np.abs(rise) + leverage * noise
    theta = _box(potential, z, slope, first, leverage)
    if theta is None:
        return np.inf
    box = first + leverage * theta
    bend = np.where(slope > 0, slope * box * (potential.hess_growth(z, box) - 1.0), 0.0)
    centre = extended.length(point.w - w + point.slope * rise)
    # s* - s is W-projected noise and bending, so sqrt(max W) takes its W-norm to the norm of w.
    spread = float(root.max(initial=0.0)) * (noise + theta + coordinate)
    return centre + spread + extended.length(bend)


def _factored(
    X: FloatArray, point: _DualPoint, noise_of_fit: float
) -> tuple[_Factor, _DualPoint] | None:
    """H factored, on independent rows if not all of them are; None where that is hopeless."""
    slope = np.asarray(point.slope, dtype=np.float64)
    if not (np.isfinite(slope).all() and np.isfinite(np.asarray(point.residual, float)).all()):
        return None
    factor = _Factor.of(X, slope)
    if factor is not None:
        return factor, point
    rows = _independent_rows(X)
    if not len(rows) or len(rows) != numerical_rank(X):
        # Which rows depend on others is a matter of the columns' units here.
        return None
    factor = _Factor.of(X[rows], slope)
    if factor is None:
        return None
    residual, rounding = point.residual[rows], point.residual_rounding[rows] + noise_of_fit
    return factor, replace(point, residual=residual, residual_rounding=rounding)


def _coordinate_noise(
    potential: Potential, point: _DualPoint, root: FloatArray, shift: FloatArray | float
) -> float:
    """Errors of w^ coordinate by coordinate, in the norm where the projection leaves them alone."""
    tilt = point.z_rounding + potential.dual_rounding(np.asarray(point.z, dtype=np.float64))
    tilt = tilt + potential.shift_rounding(shift)
    relative = potential.evaluation_rounding * np.abs(np.asarray(point.w, dtype=np.float64))
    scaled = np.divide(relative, root, out=np.zeros_like(root), where=root > 0)
    return extended.length(root * tilt) + extended.length(scaled)


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
        self,
        X: FloatArray,
        slope: FloatArray,
        equilibrate: FloatArray,
        lower: FloatArray,
        rcond: float,
    ) -> None:
        self.X, self.slope, self.equilibrate, self.lower = X, slope, equilibrate, lower
        self.rcond = rcond

    def lifted(self, bound: FloatArray) -> float:
        """Bound of ||H^{-1/2} v|| over all |v| <= bound."""
        inverse = float(np.sqrt(CONDITION_SAFETY / self.rcond))
        return inverse * extended.length(self.equilibrate * bound)

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
        # Of the inverse alone: 1 / ||H^{-1}||_1 of the equilibrated H.
        rcond, _ = scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")
        if rcond < SMALLEST_RCOND:
            return None
        return cls(X, slope, equilibrate, lower, float(rcond))

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
        lifted = scipy.linalg.solve_triangular(
            self.lower, self.equilibrate * left, lower=True, check_finite=False
        )
        # Twice: the factor itself is that of H only up to rounding.
        return x, 2.0 * float(np.linalg.norm(lifted))

    def leverage(self) -> FloatArray:
        """K_i = sqrt(x_i^T H^{-1} x_i)."""
        n, d = self.X.shape
        out = np.empty(d)
        for part in extended.column_blocks(n, d):
            lifted = scipy.linalg.solve_triangular(
                self.lower,
                self.equilibrate[:, None] * self.X[:, part],
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
    # Rounding of an extended sum: its length times the sizes of what is summed.
    n, d = X.shape
    terms = extended.absolute_adjoint(X, nu) + np.abs(shift)
    sums = extended.absolute_apply(X, np.asarray(w, dtype=np.float64)) + np.abs(y)
    rounding = ((n + 2) * extended.EPS * terms, (d + 2) * extended.EPS * sums)
    return _DualPoint(z, w, slope, residual, *rounding)


def _independent_rows(X: FloatArray) -> FloatArray:
    """Indices of a largest set of independent rows: the others repeat what those say."""
    largest = np.maximum(X.max(axis=1), -X.min(axis=1))
    scaled = X / np.where(largest > 0, largest, 1.0)[:, None]
    _, triangle, order = scipy.linalg.qr(scaled.T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(X.shape) * np.finfo(float).eps * diagonal[0]).sum())
    return np.sort(order[:rank])
