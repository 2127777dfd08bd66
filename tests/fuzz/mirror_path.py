"""Newton on the dual in many digits, along the scale of the start.

    B w(nu) = b,    w = p - m of `branches`, at position u

Far up the path (u large) an unbiased network is nearly linear, and Newton's method arrives from
nu = 0. From there u goes to where it is wanted, each step predicted along the secant or the
tangent and corrected by damped Newton steps. As u falls, nu becomes linear in the abscissa that
the branches name, so steps grow without bound and u = -10^40 is a few dozen steps away.

Nothing here is proved, and nothing needs to be: `proof` judges where the path ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb, arb_mat, ctx

from tests.fuzz.branches import Branches, Number, Vector, largest

# Damped steps in which a corrector must get within CLOSE of the path, or the step was too long.
CORRECTOR_STEPS = 12
CLOSE = arb("1e-4")
# Newton steps of one path, and of its start: several times what hard problems took.
PATH_STEPS, START_STEPS = 10_000, 5000
# Steps of the path, in units of 1 + |u|, that get nowhere; positions where no kernel end is.
SHORTEST_STEP, HIGHEST = arb("1e-30"), arb("1e9")
# Digits kept between the smallest weight that counts in H and rounding.
GUARD_DIGITS = 60
# The change of w between two positions below which it has its rich limit, and the last Newton step
# there: the next would be its square.
SETTLED, POLISHED = arb("1e-45"), arb("1e-25")
# The smaller part of a coordinate in units of the largest, in the rich regime.
ONE_PART_LEFT = arb("1e-100")


class NotFoundError(ArithmeticError):
    """The path could not be followed, or its end not proved, in the digits at hand."""


@dataclass(frozen=True)
class Point:
    """What nu says at a position: z, the parts, w, dw/dz, and the same with a floor."""

    z: Vector
    plus: Vector
    minus: Vector
    w: Vector
    slopes: Vector
    weights: Vector


@dataclass
class Path:
    """B w = b with independent rows, and the branches of the network on the columns of B."""

    rows: arb_mat
    target: arb_mat
    branches: Branches
    newton_steps: int = 0

    def __post_init__(self) -> None:
        self.columns = self.rows.transpose()
        self.column_squares = [
            sum((entry * entry for entry in column), arb(0)).mid()
            for column in self.columns.tolist()
        ]

    # --- one Newton step -------------------------------------------------------------------------

    def coordinates(self, dual: arb_mat) -> Vector:
        return (self.columns * dual).mid().entries()

    def at(self, u: Number, dual: arb_mat) -> Point:
        z = self.coordinates(dual)
        plus, minus = (
            [None if part is None else part.mid() for part in side]
            for side in self.branches.parts(u, z)
        )
        w = [((p or 0) - (m or 0)).mid() for p, m in zip(plus, minus, strict=True)]
        slopes = [slope.mid() for slope in self.branches.slopes(z, plus, minus)]
        return Point(z, plus, minus, w, slopes, self.floored(slopes, GUARD_DIGITS))

    def floored(self, slopes: Vector, guard_digits: int) -> Vector:
        """Weights near rounding raised to where H stays invertible: they carry nothing of w."""
        shares = [(s * q).mid() for s, q in zip(slopes, self.column_squares, strict=True)]
        floor = max(shares) * arb(10) ** (guard_digits - ctx.dps)
        return [
            slope if share > floor else (floor / square).mid()
            for slope, share, square in zip(slopes, shares, self.column_squares, strict=True)
        ]

    def residual(self, w: Vector) -> arb_mat:
        return self.target - self.rows * arb_mat(len(w), 1, w)

    def hessian(self, weights: Vector) -> arb_mat:
        scaled = [
            entry * weight
            for row in self.rows.tolist()
            for entry, weight in zip(row, weights, strict=True)
        ]
        return arb_mat(self.rows.nrows(), self.rows.ncols(), scaled) * self.columns

    def direction(self, weights: Vector, right: arb_mat) -> arb_mat:
        hessian = self.hessian(weights).mid()
        solved = hessian.solve(right.mid(), algorithm="approx", nonstop=True).mid()
        if not all(value.is_finite() for value in solved.entries()):
            raise NotFoundError("H is singular in these digits")
        return solved

    def correct(self, u: Number, dual: arb_mat, goal: Number, most: int) -> tuple[arb_mat, int]:
        """Damped Newton at u until a step is as small as `goal`; beyond `most` steps it failed."""
        for taken in range(1, most + 1):
            self.newton_steps += 1
            if self.newton_steps > PATH_STEPS:
                raise NotFoundError("too many Newton steps")
            point = self.at(u, dual)
            move = self.direction(point.weights, self.residual(point.w))
            size, fraction = self.branches.reduction(point.z, self.coordinates(move))
            if not size.is_finite():
                raise NotFoundError("a step is not finite")
            dual = (dual + move * (arb(1) if size < CLOSE else fraction)).mid()
            if size <= goal:
                return dual, taken
        return dual, most + 1

    # --- the start -------------------------------------------------------------------------------

    def start(self, here: Number, unbiased: bool) -> tuple[Number, arb_mat]:
        """A position where Newton's method from nu = 0 arrives, and the dual there.

        Where the parts have the size that b asks for; an unbiased start may also be above.
        """
        none = arb_mat(self.rows.nrows(), 1)
        u, step = self._balanced_position(), arb(1)
        if unbiased and here > u:
            u = here
        while unbiased and self._first_step(u, none) > 1:
            u, step = u + step, 2 * step
            if step > HIGHEST:
                raise NotFoundError("no kernel end")
        dual, taken = self.correct(u, none, CLOSE, START_STEPS)
        if taken > START_STEPS:
            raise NotFoundError("no start")
        return u, dual

    def _first_step(self, u: Number, dual: arb_mat) -> Number:
        point = self.at(u, dual)
        move = self.direction(point.weights, self.residual(point.w))
        return self.branches.reduction(point.z, self.coordinates(move))[0]

    def _balanced_position(self) -> Number:
        """Where the largest part at nu = 0 is as large as b asks for."""
        point = self.at(arb(0), arb_mat(self.rows.nrows(), 1))
        there = largest([part for part in point.plus + point.minus if part is not None])
        asked = largest(self.target.entries()) / max(self.column_squares).sqrt()
        if not asked > 0:
            return arb(0)
        return ((asked / there).log() / self.branches.size_rate()).mid()

    # --- the path --------------------------------------------------------------------------------

    def follow(
        self, u: Number, dual: arb_mat, end: Number, *, settle: bool
    ) -> tuple[Number, arb_mat]:
        """From a point of the path to position `end`, or to where w has its rich limit."""
        sign = 1 if end > u else -1
        length, slope, w = arb(1), self._tangent(u, dual), self.at(u, dual).w
        while u != end:
            if settle:
                length = min(length, self.branches.longest_settling_step())
            far = (u + sign * length).mid()
            ahead = end if sign * (far - end) >= 0 else far
            run = (self.branches.abscissa(ahead) - self.branches.abscissa(u)).mid()
            found, taken = self._landed(ahead, (dual + slope * run).mid())
            if found is None:
                found, taken = self._landed(ahead, (dual + self._tangent(u, dual) * run).mid())
            if found is None:
                length = (length / 4).mid()
                if length < SHORTEST_STEP * (1 + abs(u)):
                    raise NotFoundError("the path does not move on")
                continue
            if settle:
                found, _ = self.correct(ahead, found, POLISHED, CORRECTOR_STEPS)
            slope = ((found - dual) / run).mid()
            before, u, dual, w = w, ahead, found, self.at(ahead, found).w
            moved = largest([a - b for a, b in zip(w, before, strict=True)])
            if settle and moved <= SETTLED * largest(w) and self._is_rich(u, dual, slope):
                return u, dual
            length = (length * (8 if taken <= 2 else 3 if taken <= 4 else 1)).mid()
        return u, dual

    def _tangent(self, u: Number, dual: arb_mat) -> arb_mat:
        """d nu / d abscissa: what keeps B w where it is while the start changes."""
        point = self.at(u, dual)
        fitted = self.rows * arb_mat(len(point.w), 1, point.w)
        return (self.direction(point.weights, fitted) * -self.branches.log_rate(u)).mid()

    def _landed(self, u: Number, guess: arb_mat) -> tuple[arb_mat | None, int]:
        if not self.branches.contains(self.coordinates(guess)):
            return None, 0
        dual, taken = self.correct(u, guess, CLOSE, CORRECTOR_STEPS)
        return (dual, taken) if taken <= CORRECTOR_STEPS else (None, taken)

    def _is_rich(self, u: Number, dual: arb_mat, slope: arb_mat) -> bool:
        """Whether of each coordinate one part at most is left, and no other part is on its way.

        In the kernel regime w rests too, and so it does before a part that started far below the
        others has grown.
        """
        point = self.at(u, dual)
        sizes = [square.sqrt() for square in self.column_squares]
        smaller = [
            0 if p is None or m is None else min(p, m)
            for p, m in zip(point.plus, point.minus, strict=True)
        ]
        left = largest([part * size for part, size in zip(smaller, sizes, strict=True)])
        felt = largest([value * size for value, size in zip(point.w, sizes, strict=True)])
        return bool(left <= ONE_PART_LEFT * felt) and self.branches.no_part_grows(
            self.coordinates(slope)
        )
