"""The proved bound on the distance to the exact limit, for a big X.

The argument is that of `error_bound.py`; here it is taken in passes over blocks of columns:

1. z, w^ and the residual in extended precision, and H;
2. the Newton step's image, and the rounding of each coordinate;
3. the leverages, and eta(theta) for a few theta at once: the smallest with eta(theta) <= theta.

Each pass finds its own z and w'(z) again, where keeping them would cost vectors of length d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.certificates.error_bound import CONDITION_SAFETY, SMALLEST_RCOND
from flowbias.designs import Design, Totals
from flowbias.designs.coordinates import Coordinates
from flowbias.designs.rows import RowGram, RowProducts, RowSizes
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.problems.range_fit import row_units

# theta is tried at these multiples of the noise and the step to which it is added: below the first
# it does not show in the bound, above the last the bound would say little.
THETAS = np.array([1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0])
# Sums of squares are taken: outside this range of |w| they might leave that of doubles.
ORDINARY = (1e-120, 1e120)


@dataclass(frozen=True)
class _AtDual:
    """A task at the dual point, all of it recomputed from nu."""

    coordinates: Coordinates
    nu: FloatArray

    def on(self, columns: slice) -> Self:
        return replace(self, coordinates=self.coordinates.on(columns))

    def point(self, block: Any) -> tuple[Any, Any, Any]:
        """z, w^ and w' in extended precision."""
        z = np.asarray(self.coordinates.shift, np.longdouble) + block.extended_adjoint(self.nu)
        potential = self.coordinates.potential
        return z, potential.grad_dual(z).astype(np.longdouble), potential.hess_dual(z)


@dataclass(frozen=True)
class _Point(_AtDual):
    row_scale: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Any) -> Totals:
        _, w, slope = self.point(block)
        double = np.asarray(w, dtype=np.float64)
        gram = block.gram(np.asarray(slope, dtype=np.float64), self.row_scale)
        sums = (block.extended_apply(w), block.absolute_apply(double), gram)
        return Totals(sums, (float(np.abs(double).max()),))


@dataclass(frozen=True)
class _Noise(_AtDual):
    """Sums for the size and rounding of the step, and the rounding of each coordinate."""

    step: FloatArray

    @np.errstate(all="ignore")
    def __call__(self, block: Any, w: FloatArray) -> Totals:
        z, exact, extended_slope = self.point(block)
        slope = np.asarray(extended_slope, dtype=np.float64)
        root = np.sqrt(slope)
        rise = block.adjoint(self.step)
        terms = block.absolute_adjoint(self.nu) + np.abs(self.coordinates.shift)
        tilt = (block.n + 2) * extended.EPS * terms
        potential = self.coordinates.potential
        tilt = tilt + potential.dual_rounding(np.asarray(z, dtype=np.float64))
        tilt = tilt + potential.shift_rounding(self.coordinates.shift)
        relative = self.coordinates.potential.evaluation_rounding * np.abs(
            np.asarray(exact, dtype=np.float64)
        )
        scaled = np.divide(relative, root, out=np.zeros_like(root), where=root > 0)
        centre = np.asarray(exact - w + extended_slope * rise, dtype=np.float64)
        return Totals(
            (
                block.apply(slope * rise),
                float(np.square(root * tilt).sum()),
                float(np.square(scaled).sum()),
                float(np.square(centre).sum()),
                float(np.square(root * rise).sum()),
            ),
            (float(root.max(initial=0.0)),),
        )


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
        z = np.asarray(self.coordinates.shift + block.adjoint(self.nu))
        slope = potential.hess_dual(z)
        leverage = np.sqrt(block.quadratic(self.inverse_root))
        first = np.abs(block.adjoint(self.step)) + leverage * self.noise
        eta, bend = np.zeros(len(self.thetas)), np.zeros(len(self.thetas))
        for k, theta in enumerate(self.thetas):
            box = first + leverage * theta
            excess = box * (potential.hess_growth(z, box) - 1.0)
            # A coordinate without slope cannot move, whatever the bound says about it.
            eta[k] = np.square(np.where(slope > 0, np.sqrt(slope) * excess, 0.0)).sum()
            bend[k] = np.square(np.where(slope > 0, slope * excess, 0.0)).sum()
        return Totals((eta, bend))


def block_error_bound(
    design: Design, y: FloatArray, w: Any, nu: FloatArray, coordinates: Coordinates
) -> float:
    """Upper bound of ||w - w*||_2, or inf where no argument goes through."""
    sizes = design.reduce(RowSizes()).largest[0]
    scale = 1.0 / row_units(sizes)
    found = design.reduce(_Point(coordinates, nu, scale))
    applied, spread, gram = found.sums
    residual = y.astype(np.longdouble) - applied
    if not (ORDINARY[0] < found.largest[0] < ORDINARY[1] and np.isfinite(residual).all()):
        return np.inf
    factor = _Factor.of(gram, scale, np.arange(design.n))
    if factor is None:
        rows = _independent_rows(design, scale)
        factor = None if rows is None else _Factor.of(gram, scale, rows)
    if factor is None:
        return np.inf
    step = factor.solve(np.asarray(residual, dtype=np.float64))
    noises = design.reduce(_Noise(coordinates, nu, step), w)
    image, tilt, relative, centre, moved = noises.sums
    root = noises.largest[0]
    coordinate = float(np.sqrt(tilt) + np.sqrt(relative))
    # Twice: the factor itself is that of H only up to rounding.
    leftover = 2.0 * factor.lifted(np.asarray(residual - image, dtype=np.float64))
    rounding = (design.d + 2) * extended.EPS * (spread + np.abs(y))
    noise = coordinate + leftover + factor.bounded(rounding)
    thetas = np.asarray((noise + float(np.sqrt(moved))) * THETAS)
    box = _Box(coordinates, nu, step, factor.inverse_root, noise, thetas)
    eta, bend = (np.sqrt(total) for total in design.reduce(box).sums)
    # NaN and inf compare false.
    good = np.flatnonzero(eta <= thetas)
    if not len(good):
        return np.inf
    spread_w = root * (noise + thetas[good[0]] + coordinate)
    return float(np.sqrt(centre) + spread_w + bend[good[0]])


def _independent_rows(design: Design, scale: FloatArray) -> NDArray[np.intp] | None:
    """A largest set of independent rows, where the others repeat to rounding what those say."""
    gram = design.reduce(RowGram(scale)).sums[0]
    unit = 1.0 / row_units(np.sqrt(np.diagonal(gram)))
    gram = gram * unit * unit[:, None]
    _, order, rank, _ = scipy.linalg.lapack.dpstrf(gram, lower=1, tol=SMALLEST_RCOND)
    rows, others = np.sort(order[:rank] - 1), np.sort(order[rank:] - 1)
    share = scipy.linalg.solve(gram[np.ix_(rows, rows)], gram[np.ix_(rows, others)], assume_a="pos")
    rest = np.zeros((len(gram), len(others)))
    rest[rows], rest[others] = -share, np.eye(len(others))
    left = np.sqrt(design.reduce(RowProducts((unit * scale)[:, None] * rest)).sums[0])
    # A Gram matrix does not tell rows apart that differ by the root of its rounding: X does.
    is_exact = left.max(initial=0.0) <= max(design.shape) * np.finfo(float).eps
    return rows if is_exact else None


@dataclass(frozen=True)
class _Factor:
    """Cholesky factor of H on independent rows: inverse_root^T inverse_root = H^-1 there."""

    rows: NDArray[np.intp]
    equilibrate: FloatArray
    lower: FloatArray
    rcond: float
    n: int

    @classmethod
    def of(cls, gram: FloatArray, scale: FloatArray, rows: NDArray[np.intp]) -> _Factor | None:
        """H is diag(1/scale) gram diag(1/scale); None where its inverse means nothing."""
        part = gram[np.ix_(rows, rows)]
        diagonal = np.diagonal(part)
        if not ((diagonal > 0).all() and np.isfinite(part).all()):
            return None
        unit = 1.0 / np.sqrt(diagonal)
        try:
            lower = scipy.linalg.cholesky(part * unit * unit[:, None], lower=True)
        except scipy.linalg.LinAlgError:
            return None
        # Of the inverse alone: 1 / ||H^{-1}||_1 of the equilibrated H.
        rcond, _ = scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")
        if rcond < SMALLEST_RCOND:
            return None
        return cls(rows, unit * scale[rows], lower, float(rcond), len(gram))

    @property
    def inverse_root(self) -> FloatArray:
        """L^-1 with zero columns for the rows left out, so that it applies to whole columns."""
        out = np.zeros((len(self.rows), self.n))
        identity = np.diag(self.equilibrate)
        out[:, self.rows] = scipy.linalg.solve_triangular(self.lower, identity, lower=True)
        return out

    def solve(self, b: FloatArray) -> FloatArray:
        out = np.zeros(self.n)
        scaled = self.equilibrate * b[self.rows]
        out[self.rows] = self.equilibrate * scipy.linalg.cho_solve((self.lower, True), scaled)
        return out

    def lifted(self, v: FloatArray) -> float:
        """||H^{-1/2} v||."""
        scaled = self.equilibrate * v[self.rows]
        return float(np.linalg.norm(scipy.linalg.solve_triangular(self.lower, scaled, lower=True)))

    def bounded(self, bound: FloatArray) -> float:
        """Bound of ||H^{-1/2} v|| over all |v| <= bound."""
        inverse = float(np.sqrt(CONDITION_SAFETY / self.rcond))
        return inverse * extended.length(self.equilibrate * bound[self.rows])
