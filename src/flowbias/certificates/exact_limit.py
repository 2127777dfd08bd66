"""The limit itself, in as many digits as it takes, with a proof in balls.

Newton's method on  X w(shift + X^T nu) = y  with the dual map by its definition (`dual_map.py`)
converges from anywhere inside the domain if its steps are damped, and soon if a line search makes
the most of each. Where it ends, the argument of `gap_bound.py` is carried out in ball arithmetic:
nothing rounds unnoticed, and no formula is shared with the solvers. It costs milliseconds where X
is small, and is too slow where X is not.

Rows of X that depend on others are left out (`rows.py`). Where y is not in the range of X, its
projection is taken in balls too; where coordinates keep one sign, in rational numbers, as is the
question which of them vanish (`exact_problem.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from flint import arb, arb_mat

from flowbias.certificates.exact_problem import ExactPoint, ExactProblem
from flowbias.certificates.rows import cut_by_rounding, rounding_of_relations
from flowbias.ground import extended
from flowbias.ground.balls import (
    above,
    as_balls,
    column,
    largest,
    length,
    midpoints,
    precision,
    to_doubles,
)
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential
from flowbias.potentials.dual_map import Balls, DualMap

# Products of 64-bit words that all steps together may take: of the order of a second.
LARGEST_WORK = 3e8
# Doublings of the distance at which a tangent touches.
MAX_TRIALS = 60
# Tangents touch no further away than this share of the dual's units.
TANGENT_REACH = 2.0**-20


@dataclass(frozen=True)
class ExactLimit(ExactPoint):
    """The limit, as far as it is found in balls."""

    #: how many rows of X were taken to be independent
    rank: int
    #: what is fitted of y
    fit: FloatArray
    #: coordinates that are zero whatever the dual says: it may run off there
    still: Mask

    def agrees(self, X: FloatArray, w: FloatArray, nu: FloatArray, tol: float) -> bool:
        """Whether w and X^T nu are those of the limit, to tol."""
        within = self.has_dual(X, nu, tol) | self.still
        return bool(within.all()) and self.error_of(w) <= tol * extended.length(self.w)


def exact_limit(
    X: FloatArray,
    y: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    dual: FloatArray,
    size: FloatArray,
    given: tuple[FloatArray, FloatArray] | None = None,
) -> ExactLimit | None:
    """The limit on (X, y), from a dual that may be near it; None where it is not found or proved.

    `size` holds roughly the weights to be expected: from them follows how many digits it takes.
    Where they do not even fit half of y, those of least norm do. Where X and y are what rounding
    has left of data less their means, these are `given`: a tie that rounding breaks is none here.
    """
    d = X.shape[1]
    dual, size = (np.where(np.isfinite(guess), guess, 0.0) for guess in (dual, size))
    if extended.length(X @ size - y) > extended.length(y) / 2:
        size = scipy.linalg.lstsq(X, y)[0]
    with precision(64):
        dual_map = potential.dual_map(d)
        if dual_map is None:
            return None
        extra = dual_map.bits_lost(as_balls(size, d))
    if not np.isfinite(extra):
        return None
    problem = ExactProblem.of(X, y, potential, shift, given)
    if problem is None:
        return None
    if not problem.rows:
        return _at_rest(problem)
    work = LARGEST_WORK
    for attempt in range(4):  # each further one has twice as many bits
        # Beyond those that the distance to the end of a domain takes more than twice a double's.
        bits = int((160.0 + 2.0 * extra) * 2**attempt)
        steps = int(work / (problem.products * (bits / 64.0) ** 2))
        if steps < 10:  # which lead nowhere
            return None
        with precision(bits):
            try:
                newton = _Newton(problem, bits, steps)
            except ZeroDivisionError:  # X X^T is singular to this many bits
                continue
            found = newton.limit(dual)
        if found is not None or (attempt > 0 and not newton.has_converged):
            # More bits make a proof of what was found, and seldom find what was not.
            return found
        work *= 1.0 - newton.steps / steps
    return None


def _at_rest(problem: ExactProblem) -> ExactLimit:
    """Nothing that the data see can move, or all of that vanishes: the rest stays."""
    potential, shift, used = problem.potential, problem.shift, problem.used
    w = np.where(used, potential.grad_dual(shift), 0.0)
    tilt = potential.shift_rounding(shift) + potential.law_rounding(shift)
    moved = potential.hess_dual(shift) * tilt
    blur = np.where(used, potential.evaluation_rounding * np.abs(w) + moved, 0.0)
    distance, nothing = 1.0 if problem.y.any() else 0.0, np.zeros(len(problem.y))
    return ExactLimit(w, nothing, extended.length(blur), distance, 0, nothing, ~used)


class _Newton:
    """Newton's method in balls of one precision."""

    def __init__(self, problem: ExactProblem, bits: int, max_steps: int) -> None:
        d = problem.X.shape[1]
        dual_map = problem.potential.dual_map(d)
        if dual_map is None:
            raise TypeError(f"potential: must have a dual map in balls, got {problem.potential!r}")
        self.problem, self.bits = problem, bits
        self.steps, self.max_steps, self.has_converged = 0, max_steps, False
        self.moving = np.flatnonzero(problem.used).tolist()
        self.map: DualMap = dual_map.restricted(self.moving)
        # Duals are counted in plain units here.
        self.unit = arb(problem.potential.log_unit).exp()
        start = as_balls(problem.shift, d)
        self.start = [self.unit * start[i] for i in self.moving]
        self.least_size = TANGENT_REACH**3 * largest(
            abs(at) for at in self.map.predictor(self.start)[0]
        )
        self.kept = problem.rows
        whole, outputs = problem.data()
        entries = whole.tolist()
        self.rows = arb_mat([entries[row] for row in self.kept])
        self.columns = self.rows.transpose()
        self.gram = self.rows * self.columns
        self.relations, self.neglected = self._related(whole)
        wanted = outputs if problem.fit is None else column(arb(part) for part in problem.fit)
        self.target, self.distance = wanted, 0.0
        if len(self.kept) < len(entries) or problem.fit is not None:
            self.target = _fitted(self.relations, wanted)
            outside = length((outputs - self.relations * self.target).entries())
            self.distance = above(outside / length(outputs.entries())) if problem.y.any() else 0.0
        if not self.distance > IN_RANGE:
            # Rows less their means depend on each other, whatever rounding has made of them.
            X, is_meant = problem.X[:, problem.used], problem.given is None
            self.distance = cut_by_rounding(X, len(self.kept)) if is_meant else 0.0

    def _related(self, whole: arb_mat) -> tuple[arb_mat, arb]:
        """C with whole = C rows, and what rounding tells apart of that, relative to the rows."""
        X = self.problem.X[:, self.problem.used]
        if cut_by_rounding(X, len(self.kept)) == 0.0:
            return self.gram.solve(self.rows * whole.transpose()).transpose(), arb(0)
        unit, below = rounding_of_relations(X, self.kept)
        scaled = [[arb(u) * at for u, at in zip(unit, row, strict=True)] for row in whole.tolist()]
        rows = arb_mat([scaled[row] for row in self.kept])
        turned = (rows * rows.transpose()).solve(rows * arb_mat(scaled).transpose())
        relations = [
            [arb(0) if abs(part) <= arb(least) else part for part, least in zip(*pair, strict=True)]
            for pair in zip(turned.transpose().tolist(), below.tolist(), strict=True)
        ]
        rest = (whole - arb_mat(relations) * self.rows).tolist()
        pairs = [
            (length(part), length(row)) for part, row in zip(rest, whole.tolist(), strict=True)
        ]
        apart = largest(part / row for part, row in pairs if row > 0)
        # Where rows stand for others, what is asked of them is known to its rounding only. (Rows
        # less their means depend on each other in balls, in which nothing rounds.)
        known_to = float(np.finfo(float).eps) if self.problem.given is None else 0.0
        return arb_mat(relations), max(len(X) * apart, arb(known_to))

    def limit(self, dual: FloatArray) -> ExactLimit | None:
        """From near this dual; if that leads nowhere, from 0, which is always inside."""
        for start, most in ((self._near(dual), 60), (self._zero(), 300)):
            try:
                nu = self._converged(start, most)
                if nu is not None:
                    self.has_converged = True
                    # Where that proves nothing, no other start does: it takes more bits.
                    return self._proved(nu)
            except ZeroDivisionError:  # H is singular to this many bits
                continue
        return None

    def _size(self, w: Balls) -> arb:
        """The unit of w: where it is next to nothing it is known beside the start, not itself."""
        return max(self.least_size, largest(abs(at) for at in w))

    def _zero(self) -> arb_mat:
        return arb_mat(len(self.kept), 1)

    def _near(self, dual: FloatArray) -> arb_mat:
        """The dual of the independent rows with the same X^T nu, shrunk into the domain."""
        plain = column(self.unit * at for at in as_balls(dual, len(dual)))
        return self._inside((self.relations.transpose() * plain).mid())

    def _inside(self, nu: arb_mat) -> arb_mat:
        """Shrunk into the domain; 0 if that takes much."""
        for power in range(-52, 0, 4):
            if self.map.contains(self._dual_point(nu)):
                return nu
            nu = nu * (1 - arb(2) ** power)
        return self._zero()

    def _in_doubles(self, nu: arb_mat) -> FloatArray:
        """The dual of all rows, of which rounding must not leave the domain."""
        dual = np.zeros(len(self.problem.y))
        for _ in range(2):
            dual[self.kept] = to_doubles([at / self.unit for at in nu.entries()])
            nu = self._inside(column(self.unit * arb(float(dual[row])) for row in self.kept))
        return dual

    def _dual_point(self, nu: arb_mat) -> list[arb]:
        rise = self.columns * nu
        return [start + rise[i, 0] for i, start in enumerate(self.start)]

    def _weighted(self, slope: Balls) -> arb_mat:
        """W X^T."""
        pairs = zip(slope, self.columns.tolist(), strict=True)
        return arb_mat([[s * entry for entry in row] for s, row in pairs])

    def _hessian(self, slope: Balls) -> arb_mat:
        return self.rows * self._weighted(slope)

    def _converged(self, nu: arb_mat, most: int) -> arb_mat | None:
        """Midpoints only: what they are worth is proved afterwards."""
        goal = arb(2) ** (-self.bits // 3)
        for _ in range(min(most, self.max_steps - self.steps)):
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
            # A step of which nearly all is safe is about the last, and needs no line search.
            if fraction < 0.99:
                fraction = self._stretched(z, rise, step, fraction)
            nu = (nu + fraction * step).mid()
            moved = largest(abs(s * r) for s, r in zip(slope, rise, strict=True))
            if moved <= goal * self._size(w):
                return nu
        return None

    def _stretched(self, z: Balls, rise: Balls, step: arb_mat, fraction: arb) -> arb:
        """Line search: the fraction doubled as long as the dual function still rises there."""
        for _ in range(min(MAX_TRIALS, self.max_steps - self.steps)):
            self.steps += 1
            ahead = midpoints(at + 2 * fraction * r for at, r in zip(z, rise, strict=True))
            if not self.map.contains(ahead):
                break
            residual = self.target - self.rows * column(self.map.predictor(ahead)[0])
            if not (step.transpose() * residual)[0, 0] > 0:
                break
            fraction = 2 * fraction
        return fraction

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
        # Found is a limit that is known, in units of its largest entry, to all digits of a double.
        if not length(radii) <= 2.0**-50 * self._size(w):
            return None
        radius = above(length(radii) + rounded + self._moved(nu, z, w, slope))
        dual, full = self._in_doubles(nu), np.zeros(self.problem.X.shape[1])
        full[self.moving] = nearest
        if not (np.isfinite(radius) and np.isfinite(dual).all() and np.isfinite(full).all()):
            return None
        fit = to_doubles((self.relations * self.target).entries())
        still, rank = ~self.problem.used, len(self.kept)
        return ExactLimit(full, dual, radius, self.distance, rank, fit, still)

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
        deltas = [min(unit * TANGENT_REACH, (gap / s).sqrt()).lower() for unit, s in sizes]
        ends = self._ends(z, deltas)
        if ends is None or gap.is_zero():
            return [arb(0) if gap.is_zero() else arb.pos_inf() for _ in w]
        return [
            max((high - at).abs_upper(), (at - low).abs_upper()) + gap / delta
            for high, low, at, delta in zip(*ends, w, deltas, strict=True)
        ]

    def _moved(self, nu: arb_mat, z: Balls, w: Balls, slope: Balls) -> arb:
        """How far w may be off because the numbers given are not exactly those that are meant.

        A change of z by `tilt` moves it by W - W X^T H^-1 X W, for X w stays; a change of what is
        to be fitted by W X^T H^-1.
        """
        tilt, misfit = self._tilt(z), [arb(0)] * len(self.kept)
        if self.neglected > 0:
            rise, spread = _sizes(self.columns, nu), _sizes(self.rows, column(w))
            tilt = [t + self.neglected * r for t, r in zip(tilt, rise, strict=True)]
            sizes = zip(spread, self.target.entries(), strict=True)
            misfit = [self.neglected * (s + abs(b)) for s, b in sizes]
        elif not any(tilt):
            return arb(0)
        weighted = self._weighted(slope)
        inverse = self._hessian(slope).mid().inv(nonstop=True).mid()
        response = weighted * inverse
        held = (response * weighted.transpose()).tolist()
        matrix = [[-part for part in row] for row in held]
        for i, row in enumerate(matrix):
            row[i] += slope[i]
        by_tilt = _sizes(arb_mat(matrix), column(tilt))
        by_misfit = _sizes(response, column(misfit))
        return length(a + b for a, b in zip(by_tilt, by_misfit, strict=True))

    def _tilt(self, z: Balls) -> list[arb]:
        """How far the dual may be off because the start is not exactly what was given."""
        potential, shift = self.problem.potential, self.problem.shift
        near = np.zeros(len(shift))
        near[self.moving] = to_doubles([at / self.unit for at in z])
        tilt = potential.law_rounding(near) + potential.shift_rounding(shift)
        return [self.unit * arb(float(tilt[i])) for i in self.moving]


def _sizes(matrix: arb_mat, vector: arb_mat) -> list[arb]:
    """|A| |v|."""
    entries = vector.entries()
    rows = (zip(row, entries, strict=True) for row in matrix.tolist())
    return [sum((abs(a) * abs(v) for a, v in row), arb(0)) for row in rows]


def _fitted(relations: arb_mat, outputs: arb_mat) -> arb_mat:
    """What X w can be on the kept rows, closest to y in all: (C^T C)^-1 C^T y."""
    turned = relations.transpose()
    return (turned * relations).solve(turned * outputs)
