"""A proved bound on the distance to the exact limit, not only a gap.

With z = shift + X^T nu, w^ = w(z), W = diag(w'(z)), H = X W X^T and the Newton step
s = X^T H^{-1} (y - X w^), the exact dual point is z + s* where s* is a fixed point of

    T(s*) = s - X^T H^{-1} X R(s*),      |R_i(s*)| <= W_i |s*_i| (growth_i(|s*_i|) - 1)

(`growth` is the potential's bound on how fast w' changes). X^T H^{-1} X W is a projection in the
norm of W, so coordinate i of the second term is at most K_i eta with K_i^2 = x_i^T H^{-1} x_i and
eta^2 = sum W s*^2 (growth - 1)^2. If theta >= eta on the box |s*_i| <= S_i = |s_i| + K_i theta,
T maps the box into itself, so by Brouwer's theorem it contains s*: the limit is unique. Hence

    ||w* - w|| <= ||w^ + W s - w|| + sqrt(max W) theta + ||W S (growth(S) - 1)||.

In extended precision where the platform has one, because at a good solution the rounding of the
residual is the whole error. X is seen in three passes over its columns, of which each finds its own
z and W again where keeping them would cost vectors of length d; an array keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import scipy.linalg

from flowbias.certificates.gap_bound import gap_bound
from flowbias.certificates.rows import numerical_rank
from flowbias.designs import Design, Totals
from flowbias.designs.dense import can_wait
from flowbias.designs.tasks import Coordinates, PerCoordinate, RowGram, RowProducts
from flowbias.ground import extended
from flowbias.ground.extended import column_parts, row_lengths, row_units
from flowbias.ground.typing import FloatArray, Indices
from flowbias.potentials import ConvexPotential, JointPotential, Potential, Provides

# Relative to w: what is certified is proved to so many digits at least.
PROVED = 1e-6
# Below this reciprocal condition number of the equilibrated H its own rounding is no longer small
# against its inverse, and nothing is proved.
SMALLEST_RCOND = 1e-12


def error_bound(
    design: Design,
    y: FloatArray,
    w: Any,
    nu: FloatArray,
    potential: ConvexPotential,
    shift: FloatArray | float,
    noise: float = 0.0,
) -> float:
    """Upper bound of ||w - w*||_2, or inf where no argument goes through.

    Where rows of X depend on others, what can be fitted of y is known up to `noise`. A norm, which
    has no dual map, and a potential that does not separate are bounded on an array only.
    """
    X = design.in_memory
    if X is not None and Provides.JOINT_POTENTIAL in potential.provides:
        return joint_bound(X, y, w, nu, cast(JointPotential, potential), shift)
    separable, bound = cast(Potential, potential), np.inf
    if Provides.POTENTIAL in potential.provides:
        bound = box_bound(design, y, w, nu, separable, shift, noise)
    if X is None or bound <= PROVED * extended.length(w):
        return bound
    return min(bound, gap_bound(X, y, w, nu, separable, shift, noise))


def box_bound(
    design: Design,
    y: FloatArray,
    w: Any,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    noise_of_fit: float = 0.0,
) -> float:
    """The bound of a separable potential."""
    kept = None if design.in_memory is None else _Kept()
    at = Coordinates(potential, shift, design.d), nu, kept
    found = design.reduce(_Residual(*at, np.ones(design.n)))
    # Rows of about unit size, so that no square of theirs leaves the double range.
    scale = 1.0 / row_units(found.largest[0])
    applied, spread, gram = found.sums
    if can_wait(scale):
        gram = gram * scale * scale[:, None]
    else:
        *_, gram = design.reduce(_Residual(*at, scale)).sums
    residual = y.astype(np.longdouble) - applied
    # Rounding of an extended sum: its length times the sizes of what is summed.
    rounding = (design.d + 2) * extended.EPS * (spread + np.abs(y))
    if not np.isfinite(residual).all():
        return np.inf
    factor = _Factor.of(gram, scale, slice(None))
    if factor is None:
        rows = _independent_rows(design, scale)
        factor = None if rows is None else _Factor.of(gram, scale, rows)
        rounding = rounding + noise_of_fit
    if factor is None:
        return np.inf
    # Doubles are enough from here on: the residual is all rounding, and only its first digits
    # matter.
    step = factor.solve(np.asarray(residual, dtype=np.float64))
    noises = design.reduce(_Noise(*at, step), w)
    image, (tilt, relative, centre, moved) = noises.sums[0], np.sqrt(noises.sums[1])
    # Errors of w^ coordinate by coordinate, in the norm where the projection leaves them alone.
    coordinate = float(tilt + relative)
    # Twice: the factor itself is that of H only up to rounding.
    leftover = 2.0 * factor.lifted(np.asarray(residual - image, dtype=np.float64))
    noise = coordinate + leftover + factor.bounded(rounding)
    # At multiples of the noise and the step to which it is added: below the first theta does not
    # show in the bound, above the last the bound would say little.
    thetas = (noise + float(moved)) * np.array([1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0])
    box = _Box(*at, step, factor.inverse_root, noise, thetas)
    eta, bend = map(np.sqrt, design.reduce(box).sums)
    # NaN and inf compare false.
    good = np.flatnonzero(eta <= thetas)
    if not len(good):
        return np.inf
    # s* - s is W-projected noise and bending, so sqrt(max W) takes its W-norm to the norm of w.
    away = noises.largest[0] * (noise + thetas[good[0]] + coordinate)
    return float(centre + away + bend[good[0]])


def _squares(v: Any) -> Any:
    """||v||^2 by rows, in extended precision where no square of a double overflows or vanishes."""
    v = v.astype(np.longdouble)
    v *= v
    return v.sum(axis=-1)


@dataclass
class _Kept:
    """What the passes over an array hand on: z, w^ and W in extended precision, and X^T step."""

    point: tuple[Any, Any, Any] | None = None
    rise: FloatArray | None = None


@dataclass(frozen=True)
class _AtDual(PerCoordinate):
    """A pass at the dual point, all of it recomputed from nu but for what is kept."""

    nu: FloatArray
    kept: _Kept | None = field(repr=False)

    def point(self, block: Any) -> tuple[Any, Any, Any]:
        """z, w^ and W; potentials keep extended precision where they are given it."""
        if self.kept is not None and self.kept.point is not None:
            return self.kept.point
        z = np.asarray(self.coordinates.shift, np.longdouble) + block.extended_adjoint(self.nu)
        potential = self.coordinates.potential
        w, slope = potential.grad_dual(z), potential.hess_dual(z)
        point = z, w.astype(np.longdouble), slope.astype(np.longdouble)
        if self.kept is not None:
            self.kept.point = point
        return point


@dataclass(frozen=True)
class _Residual(_AtDual):
    """X w^, |X| |w^| and H of the rescaled rows; the largest entries of X's own."""

    row_scale: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Any) -> Totals:
        _, w, slope = self.point(block)
        spread = block.absolute_apply(np.asarray(w, dtype=np.float64))
        gram = block.gram(np.asarray(slope, dtype=np.float64), self.row_scale)
        return Totals((block.extended_apply(w), spread, gram), (block.largest_entries(),))


@dataclass(frozen=True)
class _Noise(_AtDual):
    """Sums for the size and rounding of the step, and the rounding of each coordinate."""

    step: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Any, w: FloatArray) -> Totals:
        potential, shift = self.coordinates.potential, self.coordinates.shift
        extended_z, exact, extended_slope = self.point(block)
        z, slope = (np.asarray(v, dtype=np.float64) for v in (extended_z, extended_slope))
        root, rise = np.sqrt(slope), block.adjoint(self.step)
        if self.kept is not None:
            self.kept.rise = rise
        tilt = block.absolute_adjoint(self.nu) + np.abs(shift)
        tilt = (block.n + 2) * extended.EPS * tilt + potential.dual_rounding(z)
        tilt = tilt + potential.shift_rounding(shift)
        relative = potential.evaluation_rounding * np.abs(np.asarray(exact, dtype=np.float64))
        # Of the tilt, the rounding of each coordinate, the centre and the move, one at a time.
        squares = np.array(
            [
                _squares(root * tilt),
                _squares(np.divide(relative, root, out=np.zeros_like(root), where=root > 0)),
                _squares(exact - w + extended_slope * rise),
                _squares(root * rise),
            ]
        )
        return Totals((block.apply(slope * rise), squares), (float(root.max(initial=0.0)),))


@dataclass(frozen=True)
class _Box(_AtDual):
    """eta^2 and the squared bend for each theta."""

    step: FloatArray
    inverse_root: FloatArray
    noise: float
    thetas: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Any) -> Totals:
        potential = self.coordinates.potential
        if self.kept is not None and self.kept.point is not None and self.kept.rise is not None:
            z, rise = np.asarray(self.kept.point[0], dtype=np.float64), self.kept.rise
            slope = np.asarray(self.kept.point[2], dtype=np.float64)
        else:
            z = np.asarray(self.coordinates.shift + block.adjoint(self.nu))
            rise, slope = block.adjoint(self.step), potential.hess_dual(z)
        leverage = np.sqrt(block.quadratic(self.inverse_root))
        first = np.abs(rise) + leverage * self.noise
        eta, bend = [], []
        # All at once where they are few numbers; else what goes with them might be as large as X.
        for some in column_parts(len(self.thetas), max(1, 2**15 // block.width)):
            box = first + leverage * self.thetas[some, None]
            # A coordinate without slope cannot move, whatever the bound says about it.
            excess = np.where(slope > 0, box * (potential.hess_growth(z, box) - 1.0), 0.0)
            eta.append(_squares(np.sqrt(slope) * excess))
            bend.append(_squares(slope * excess))
        return Totals((np.concatenate(eta), np.concatenate(bend)))


def _independent_rows(design: Design, scale: FloatArray) -> Indices | None:
    """A largest set of independent rows, where the others repeat to rounding what those say."""
    gram = design.reduce(RowGram(scale)).sums[0]
    unit = 1.0 / row_units(np.sqrt(np.diagonal(gram)))
    gram = gram * unit * unit[:, None]
    _, order, rank, _ = scipy.linalg.lapack.dpstrf(gram, lower=1, tol=SMALLEST_RCOND)
    rows, others = np.sort(order[:rank] - 1), np.sort(order[rank:] - 1)
    if not len(others):
        return None
    share = scipy.linalg.solve(gram[np.ix_(rows, rows)], gram[np.ix_(rows, others)], assume_a="pos")
    rest = np.zeros((len(gram), len(others)))
    rest[rows], rest[others] = -share, np.eye(len(others))
    left = np.sqrt(design.reduce(RowProducts((unit * scale)[:, None] * rest)).sums[0])
    # A Gram matrix does not tell rows apart that differ by the root of its rounding: X does.
    if left.max(initial=0.0) > max(design.shape) * np.finfo(float).eps:
        return None
    if design.in_memory is not None and len(rows) != numerical_rank(design.in_memory):
        # Which rows depend on others is a matter of the columns' units here.
        return None
    return np.asarray(rows)


@dataclass(frozen=True)
class _Factor:
    """Cholesky factor of H on independent rows: inverse_root^T inverse_root = H^-1 there."""

    rows: Indices | slice
    equilibrate: FloatArray
    lower: FloatArray
    #: L^-1 with zero columns for the rows left out, so that it applies to whole columns
    inverse_root: FloatArray
    rcond: float

    @classmethod
    def of(cls, gram: FloatArray, scale: FloatArray, rows: Indices | slice) -> _Factor | None:
        """H is diag(1/scale) gram diag(1/scale); None where its inverse means nothing."""
        part = gram[rows][:, rows]
        diagonal = np.diagonal(part)
        if not ((diagonal > 0).all() and np.isfinite(part).all()):
            return None
        unit = 1.0 / np.sqrt(diagonal)
        lower, failed = scipy.linalg.lapack.dpotrf(part * unit * unit[:, None], lower=1)
        if failed:
            return None
        # Of the inverse alone: 1 / ||H^{-1}||_1 of the equilibrated H.
        rcond, _ = scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")
        if rcond < SMALLEST_RCOND:
            return None
        equilibrate = unit * scale[rows]
        inverse_root = np.zeros((len(lower), len(gram)))
        inverse_root[:, rows] = scipy.linalg.lapack.dtrtri(lower, lower=1)[0] * equilibrate
        return cls(rows, equilibrate, lower, inverse_root, float(rcond))

    def solve(self, b: FloatArray) -> FloatArray:
        out = np.zeros(len(b))
        scaled = self.equilibrate * b[self.rows]
        out[self.rows] = (
            self.equilibrate * scipy.linalg.lapack.dpotrs(self.lower, scaled, lower=1)[0]
        )
        return out

    def lifted(self, v: FloatArray) -> float:
        """||H^{-1/2} v||."""
        return extended.length(self.inverse_root @ v)

    def bounded(self, bound: FloatArray) -> float:
        """Bound of ||H^{-1/2} v|| over all |v| <= bound."""
        # The condition number is estimated from below, and was never seen off by more than three.
        inverse = float(np.sqrt(10.0 / self.rcond))
        return inverse * extended.length(self.equilibrate * bound[self.rows])


def joint_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: JointPotential,
    shift: FloatArray | float,
) -> float:
    """Upper bound of ||w - w*||_2 where the potential does not separate, or inf.

    Let v = w + X^+ (y - X w), which fits the data, and let mu bound the Hessian of Q from below
    within r of v. On the affine set of interpolators Q - <shift, .> is then mu-strongly convex in
    that ball, and its minimizer w* lies within

        ||w* - v|| <= ||P_null (grad Q(v) - shift)|| / mu <= ||grad Q(v) - shift - X^T nu|| / mu

    whenever the right hand side is below r; and ||v - w|| <= ||y - X w|| / sigma_min(X).
    """
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
    for _ in range(20):
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
        # Its square is then well above the rounding of the products.
        if info == 0 and smallest > 1e-5:
            return A.T @ (inverse.T @ (inverse @ residual)), smallest
    left, values, right = scipy.linalg.svd(A, full_matrices=False)
    # Below this ratio of singular values the null space of X is not known.
    rank = int((values > 1e-12 * values[0]).sum())
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
    # A few units of the potential's own accuracy for one evaluation of grad.
    return away + 8.0 * potential.rounding * extended.length(gradient) + sizes
