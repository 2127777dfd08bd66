"""The limit itself, in as many digits as it takes, with a proof in balls.

Newton's method on  X w(shift + X^T nu) = y  with the dual map by its definition (`dual_map.py`)
converges from anywhere inside the domain if its steps are damped. Where it ends, the argument of
`gap_bound.py` is carried out in ball arithmetic: nothing rounds unnoticed, and no formula is
shared with the solvers. It costs milliseconds where X is small, and is too slow where X is not.

Rows of X that depend on others are left out (`rank.py`). Where y is not in the range of X, its
projection is taken in balls too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat

from flowbias import _extended as extended
from flowbias._balls import (
    above,
    as_balls,
    as_matrix,
    column,
    largest,
    length,
    midpoints,
    precision,
    to_doubles,
)
from flowbias._typing import FloatArray, Mask
from flowbias.certificates.rank import rows_to_fit
from flowbias.potentials import Potential
from flowbias.potentials.dual_map import Balls, DualMap

# Bits beyond those that the distance to the end of a domain takes: more than twice a double's.
GUARD_BITS = 160
# Each further attempt has twice as many bits.
ATTEMPTS = 4
MAX_STEPS, FEWEST_STEPS = 300, 5
# Of a continuation, at each start on the way down: a limit there is no more than a hint.
STEPS_ON_THE_WAY = 60
# Products of 64-bit words that all steps together may take: of the order of a second.
LARGEST_WORK = 3e8
# Of the logarithm of the start, on the way down to it.
SHARES = tuple(2.0**power for power in range(-9, 0))
# Doublings of the distance at which a tangent touches.
MAX_TRIALS = 60
# Tangents touch no further away than this share of the dual's units.
NEAR = 2.0**-20
# A limit is found where it is known to this, in units of its largest entry: all digits of a double.
FOUND = 2.0**-50


@dataclass(frozen=True)
class ExactLimit:
    """The doubles nearest to the limit, which is within `radius` of them, and their dual."""

    w: FloatArray
    dual: FloatArray
    radius: float
    #: how far y is from the range of X, relative to y
    distance: float
    #: how many rows of X were taken to be independent
    rank: int

    def agrees(self, X: FloatArray, w: FloatArray, nu: FloatArray, tol: float) -> bool:
        """Whether w and X^T nu are those of the limit, to tol."""
        apart = extended.adjoint(X, nu - self.dual)
        within = np.abs(apart) <= tol * extended.absolute_adjoint(X, self.dual)
        return bool(within.all()) and self.error_of(w) <= tol * extended.length(self.w)

    def error_of(self, w: FloatArray) -> float:
        """An upper bound of the distance of w to the limit."""
        rounding = (len(w) + 4) * float(np.finfo(float).eps)
        return (1.0 + rounding) * extended.length(w - self.w) + self.radius


def exact_limit(
    X: FloatArray,
    y: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    dual: FloatArray,
    size: FloatArray,
) -> ExactLimit | None:
    """The limit on (X, y), from a dual that may be near it; None where it is not found or proved.

    `size` holds roughly the weights to be expected: from them follows how many digits it takes.
    """
    n, d = X.shape
    upward, downward = potential.open_sides(d, 1.0)
    moving = upward | downward
    if not np.isfinite(np.concatenate([y, dual, size])).all() or not moving.any():
        return None
    with precision(64):
        dual_map = potential.dual_map(d)
        if dual_map is None:
            return None
        extra = dual_map.bits_lost(as_balls(size, d))
    work = LARGEST_WORK
    for attempt in range(ATTEMPTS):
        bits = int((GUARD_BITS + 2.0 * extra) * 2**attempt)
        # A step is one product X W X^T and its factor. Two starts share them, a few at least each.
        steps = int(work / (n * n * d * (bits / 64.0) ** 2))
        if steps < 2 * FEWEST_STEPS:
            return None
        with precision(bits):
            try:
                newton = _Newton(X, y, potential, shift, moving, bits, min(steps // 2, MAX_STEPS))
            except ZeroDivisionError:  # X X^T is singular to this many bits
                continue
            found = newton.limit(dual)
        if found is not None or (attempt > 0 and not newton.has_converged):
            # More bits make a proof of what was found, and seldom find what was not.
            return found
        work *= 1.0 - newton.steps / steps
    return None


class _Newton:
    """Newton's method in balls of one precision."""

    def __init__(
        self,
        X: FloatArray,
        y: FloatArray,
        potential: Potential,
        shift: FloatArray | float,
        moving: Mask,
        bits: int,
        max_steps: int,
    ) -> None:
        dual_map = potential.dual_map(X.shape[1])
        if dual_map is None:
            raise TypeError(f"potential: must have a dual map in balls, got {potential!r}.")
        self.bits, self.shape = bits, X.shape
        self.steps, self.max_steps, self.has_converged = 0, max_steps, False
        self.moving = np.flatnonzero(moving).tolist()
        self.map: DualMap = dual_map.restricted(self.moving)
        # Duals are counted in plain units here.
        self.unit = arb(potential.log_unit).exp()
        start = as_balls(shift, X.shape[1])
        self.start = [self.unit * start[i] for i in self.moving]
        self.potential, self.shift = potential, np.broadcast_to(shift, X.shape[1:])
        X = X[:, self.moving]
        self.kept = rows_to_fit(X)
        self.rows = as_matrix(X[self.kept])
        self.columns = self.rows.transpose()
        self.gram = self.rows * self.columns
        relations = self.gram.solve(self.rows * as_matrix(X).transpose()).transpose()
        outputs = column(as_balls(y, len(y)))
        self.target, self.distance = outputs, 0.0
        if len(self.kept) < len(y):
            self.target = _fitted(relations, outputs)
            outside = length((outputs - relations * self.target).entries())
            self.distance = above(outside / length(outputs.entries())) if y.any() else 0.0
        self.weights_of_rows = relations.transpose()

    def limit(self, dual: FloatArray) -> ExactLimit | None:
        """From near this dual; if that leads nowhere, from 0, which is always inside.

        Last by continuation: down from starts whose logarithm is a small share of the one given.
        """

        def near() -> arb_mat:
            return self._inside(self._shortened(dual))

        for start in (near, self._zero, self._from_larger_scales):
            try:
                nu = self._converged(start())
                if nu is not None:
                    self.has_converged = True
                    # Where that proves nothing, no other start does: it takes more bits.
                    return self._proved(nu)
            except ZeroDivisionError:  # H is singular to this many bits
                continue
        return None

    def _zero(self) -> arb_mat:
        return arb_mat(len(self.kept), 1)

    def _from_larger_scales(self) -> arb_mat:
        """What the limits at start^share say of the one at the start itself; 0 if nothing."""
        given, shift = self.map, self.start
        nu, before = self._zero(), SHARES[0]
        try:
            for share in SHARES:
                self.map = given.at_share(share)
                self.start = [share * at for at in shift]
                start = self._inside(nu * given.dual_growth(before, share))
                found = self._converged(start, STEPS_ON_THE_WAY)
                nu, before = self._zero() if found is None else found, share
        finally:
            self.map, self.start = given, shift
        return self._inside(nu * given.dual_growth(before, 1.0))

    def _inside(self, nu: arb_mat) -> arb_mat:
        """The dual of independent rows, shrunk into the domain; 0 if that takes much."""
        for power in range(-52, 0, 4):
            if self.map.contains(self._dual_point(nu)):
                return nu
            nu = nu * (1 - arb(2) ** power)
        return self._zero()

    def _shortened(self, dual: FloatArray) -> arb_mat:
        """The dual of the independent rows with the same X^T nu, in plain units."""
        return self.weights_of_rows * column(self.unit * at for at in as_balls(dual, len(dual)))

    def _dual_point(self, nu: arb_mat) -> list[arb]:
        rise = self.columns * nu
        return [start + rise[i, 0] for i, start in enumerate(self.start)]

    def _hessian(self, slope: Balls) -> arb_mat:
        weighted = arb_mat(
            [
                [s * entry for entry in row]
                for s, row in zip(slope, self.columns.tolist(), strict=True)
            ]
        )
        return self.rows * weighted

    def _converged(self, nu: arb_mat, most: int | None = None) -> arb_mat | None:
        """Midpoints only: what they are worth is proved afterwards."""
        goal = arb(2) ** (-self.bits // 3)
        for _ in range(self.max_steps if most is None else min(most, self.max_steps)):
            self.steps += 1
            z = midpoints(self._dual_point(nu))
            if not self.map.contains(z):
                return None
            w, slope = (midpoints(part) for part in self.map.predictor(z))
            residual = (self.target - self.rows * column(w)).mid()
            step = self._hessian(slope).mid().solve(residual, algorithm="approx").mid()
            rise = midpoints((self.columns * step).entries())
            fraction = self.map.damping(z, rise).mid()
            if not fraction.is_finite():
                return None
            nu = (nu + fraction * step).mid()
            moved = largest(abs(s * r) for s, r in zip(slope, rise, strict=True))
            if moved <= goal * largest(abs(at) for at in w):
                return nu
        return None

    def _proved(self, nu: arb_mat) -> ExactLimit | None:
        """How far the limit may be from w(z): the argument of `gap_bound.py`, in balls.

        F vanishes at w(z). A repair r with X r = y - X w(z) raises F_i by at most |r_i| delta_i if
        w(z_i +- delta_i) is further away than r_i, for its slope there is delta_i. So G is their
        sum, and tangents at w(z_i +- delta) bound the limit by those points and G / delta.
        """
        z = self._dual_point(nu)
        w, slope = self.map.predictor(z)
        repair = self._repair(w, slope)
        gap = self._gap(z, w, slope, repair)
        if gap is None:
            return None
        radii = self._radii(z, w, slope, gap)
        nearest = to_doubles(w)
        rounded = length(at - arb(float(v)) for at, v in zip(w, nearest, strict=True))
        noise = length(s.sqrt() * t for s, t in zip(slope, self._tilt(z), strict=True))
        # A limit that is next to nothing is known beside the start, if not beside itself.
        begin = NEAR**3 * largest(abs(at) for at in self.map.predictor(self.start)[0])
        if not length(radii) <= FOUND * max(begin, largest(abs(at) for at in w)):
            return None
        radius = above(length(radii) + rounded + largest(slope).sqrt() * noise)
        dual = np.zeros(self.shape[0])
        dual[self.kept] = to_doubles([at / self.unit for at in nu.entries()])
        full = np.zeros(self.shape[1])
        full[self.moving] = nearest
        if not (np.isfinite(radius) and np.isfinite(dual).all() and np.isfinite(full).all()):
            return None
        return ExactLimit(full, dual, radius, self.distance, len(self.kept))

    def _repair(self, w: Balls, slope: Balls) -> list[arb]:
        """r with X r = y - X w: where w is free to move, and the rest of it by the least norm."""
        residual = self.target - self.rows * column(w)
        step = self._hessian(slope).mid().solve(residual.mid(), algorithm="approx").mid()
        free = [
            s.mid() * r
            for s, r in zip(slope, midpoints((self.columns * step).entries()), strict=True)
        ]
        rest = residual - self.rows * column(free)
        short = (self.columns * self.gram.solve(rest)).entries()
        return [a + b for a, b in zip(free, short, strict=True)]

    def _gap(self, z: Balls, w: Balls, slope: Balls, repair: Balls) -> arb | None:
        """Upper bound of F at the repaired fit; None where that may be outside the domain."""
        sides = zip(*(self._slopes(z, w, slope, repair, sign) for sign in (1, -1)), strict=True)
        total = arb(0)
        for r, slopes in zip(repair, sides, strict=True):
            # Where its sign is not sure, a repair may go either way.
            total += abs(r) * max(s for s, way in zip(slopes, (r, -r), strict=True) if not way < 0)
        return total.upper() if total.is_finite() else None

    def _slopes(self, z: Balls, w: Balls, slope: Balls, repair: Balls, sign: int) -> list[arb]:
        """delta with |w(z +- delta) - w(z)| >= |r|; the end of the domain bounds it, if any."""
        sizes = [abs(r).upper() for r in repair]
        units, ends = self.map.units(z), self.map.ends(z, sign)
        starts = zip(sizes, slope, units, strict=True)
        deltas = [min(2 * r / s, unit / 4).upper() for r, s, unit in starts]
        for _ in range(MAX_TRIALS):
            inside = [d < end / 2 for d, end in zip(deltas, ends, strict=True)]
            moved = [
                at + sign * d if ok else at for at, d, ok in zip(z, deltas, inside, strict=True)
            ]
            there = self.map.predictor(moved)[0]
            arrived = zip(there, w, sizes, strict=True)
            reached = [r.is_zero() or abs(a - b) >= r for a, b, r in arrived]
            if all(far or not ok for far, ok in zip(reached, inside, strict=True)):
                break
            deltas = [
                d if far or not ok else 2 * d
                for d, far, ok in zip(deltas, reached, inside, strict=True)
            ]
        done = zip(deltas, ends, reached, inside, strict=True)
        return [end if not ok else d if far else arb.pos_inf() for d, end, far, ok in done]

    def _ends(self, z: Balls, deltas: Balls) -> tuple[list[arb], list[arb]] | None:
        """w(z + delta) and w(z - delta); None where either is outside the domain."""
        up, down = ([at + sign * d for at, d in zip(z, deltas, strict=True)] for sign in (1, -1))
        if not (self.map.contains(up) and self.map.contains(down)):
            return None
        return self.map.predictor(up)[0], self.map.predictor(down)[0]

    def _radii(self, z: Balls, w: Balls, slope: Balls, gap: arb) -> list[arb]:
        """A pair of tangents for each coordinate, where w' delta and G / delta balance."""
        sizes = zip(self.map.units(z), slope, strict=True)
        deltas = [min(unit * NEAR, (gap / s).sqrt()).lower() for unit, s in sizes]
        ends = self._ends(z, deltas)
        if ends is None or gap.is_zero():
            return [arb(0) if gap.is_zero() else arb.pos_inf() for _ in w]
        return [
            max((high - at).abs_upper(), (at - low).abs_upper()) + gap / delta
            for high, low, at, delta in zip(*ends, w, deltas, strict=True)
        ]

    def _tilt(self, z: Balls) -> list[arb]:
        """How far the dual may be off because the start is not exactly what was given."""
        near = np.zeros(self.shape[1])
        near[self.moving] = to_doubles([at / self.unit for at in z])
        tilt = self.potential.law_rounding(near)
        tilt = tilt + self.potential.shift_rounding(self.shift)
        return [self.unit * arb(float(tilt[i])) for i in self.moving]


def _fitted(relations: arb_mat, outputs: arb_mat) -> arb_mat:
    """What X w can be on the kept rows, closest to y in all: (C^T C)^-1 C^T y."""
    turned = relations.transpose()
    return (turned * relations).solve(turned * outputs)
