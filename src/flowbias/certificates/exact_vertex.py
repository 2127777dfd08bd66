"""The l1 minimizer itself, and whether it is the only one, in rational numbers.

Doubles cannot tell a dual that touches its box from one that is a little outside, nor a tie from
columns that differ in their last digits. Here both are decided: simplex in rational numbers
(`exact_simplex.py`) goes from the basis that a point in doubles suggests to an optimal one. Every
minimizer lives on the sides that cost no more than its dual pays; which of them one can use is
another program on that face. It costs milliseconds where X is small, and is too slow where not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq, fmpq_mat

from flowbias.certificates.exact_problem import ExactPoint, not_driven
from flowbias.certificates.exact_simplex import (
    FREE,
    LinearProgram,
    OutOfPivotsError,
    Price,
    Side,
    Simplex,
    rational,
    rational_column,
    rational_matrix,
)
from flowbias.certificates.rows import (
    RANK_ENTRIES,
    cut_by_rounding,
    independent_rows,
    rounding_of_relations,
    rows_to_fit,
)
from flowbias.ground import extended
from flowbias.ground.balls import above, length, precision, to_doubles
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.potentials import L1

# Bits of a cost that is no rational number. Costs that agree to a third of them agree.
COST_BITS = 600


@dataclass(frozen=True)
class ExactVertex(ExactPoint):
    """A minimizer that is a vertex."""

    #: of the coordinates that some minimizer uses; 0 where all of them are zero
    signs: FloatArray
    #: how far the pull on the others stays below their cost, relative to it
    margin: float
    is_only: bool

    def agrees(self, X: FloatArray, w: FloatArray, nu: FloatArray, tol: float) -> bool:
        """Whether w is a minimizer and X^T nu its dual, to tol; that w fits y is not asked here."""
        if not self.has_dual(X, nu, tol).all():
            return False
        if self.is_only:
            return self.error_of(w) <= tol * extended.length(self.w)
        # What is off the face would be paid for; it may be next to nothing.
        off = extended.length(np.where(np.sign(w) == self.signs, 0.0, w))
        return off + self.radius <= tol * extended.length(w)

    def error_of(self, w: FloatArray) -> float:
        """An upper bound of the distance of w to the minimizer; inf where there are several."""
        return super().error_of(w) if self.is_only else np.inf


def exact_vertex(
    X: FloatArray,
    y: FloatArray,
    potential: L1,
    w: FloatArray,
    dual: FloatArray,
    most: float = 5e6,
) -> ExactVertex | None:
    """A minimizer on (X, y), from a point in doubles; None where that takes too long.

    All pivots together may take `most` products of 64-bit words per row of X: about a second.
    """
    n, d = X.shape
    if X.size > RANK_ENTRIES or 3.0 * min(n, d) ** 2 * d > most:  # not three pivots
        return None
    program, rounding = _program(potential, d), rational(potential.rounding)
    up, down = (np.array([program.is_open(Side(j, sign)) for j in range(d)]) for sign in (1, -1))
    able = np.flatnonzero(up | down).tolist()
    try:
        if not X[:, able].any():
            return _nothing(X, y)
        face = _Face(X, y, program, able, w, dual, most)
        if face.is_out_of_reach():
            left = not_driven(X[:, able], y, up[able], down[able], face.simplex.pivots)
            kept = [able[j] for j in left]
            if not X[:, kept].any():
                return _nothing(X, y)
            face = _Face(X, y, program, kept, w, dual, most)
        return None if face.is_out_of_reach() else face.vertex(rounding)
    except OutOfPivotsError:
        return None


def _nothing(X: FloatArray, y: FloatArray) -> ExactVertex:
    """Zero, where no column that can be used fits anything of y."""
    w, dual = np.zeros(X.shape[1]), np.zeros(len(y))
    return ExactVertex(w, dual, 0.0, float(y.any()), w, 1.0, is_only=True)


def _program(potential: L1, d: int) -> LinearProgram:
    with precision(COST_BITS):
        balls = potential.costs(d)
        positive, negative = (
            [None if cost is None else _middle(cost) for cost in side] for side in balls
        )
    # If all cost the same, it does not matter what.
    known = len({*positive, *negative} - {None}) == 1 or all(
        cost is None or cost.is_exact() for side in balls for cost in side
    )
    return LinearProgram(positive, negative, 0 if known else fmpq(1, 2 ** (COST_BITS // 3)))


def _middle(ball: arb) -> fmpq:
    mantissa, exponent = ball.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


class _Face:
    """The minimizers on the columns that can be used, and a vertex of theirs."""

    def __init__(
        self,
        X: FloatArray,
        y: FloatArray,
        program: LinearProgram,
        kept: list[int],
        w: FloatArray,
        dual: FloatArray,
        most: float,
    ) -> None:
        self.shape, self.kept = X.shape, kept
        columns = X[:, kept]
        self.program = program.of(kept)
        self.fitted_rows = rows_to_fit(columns)
        target, distance = _target(columns, y, self.fitted_rows)
        cut = cut_by_rounding(columns, len(self.fitted_rows))
        self.distance, self.is_cut = distance if distance > IN_RANGE else cut, cut > 0.0
        rows = columns[self.fitted_rows]
        basis = _suggested(rows, w[kept], columns.T @ dual)
        # A pivot is a product with X, and a solve for the target, however long its numbers are.
        words = max(part.height_bits() for part in target.entries()) / 64.0
        pivots = int(min(1000, most / (len(rows) ** 2 * (len(kept) + words))))
        self.simplex = Simplex(rational_matrix(rows), target, basis, pivots)
        self.simplex.minimize(self.program)

    def is_out_of_reach(self) -> bool:
        """Whether y takes sides that are closed."""
        used = self.simplex.used().items()
        return not all(self.program.is_open(Side(*side)) for side in used)

    def vertex(self, rounding: fmpq) -> ExactVertex | None:
        """The vertex, its dual, and what else there is on its face, up to rounding of the data."""
        simplex = self.simplex
        prices = self._prices(self.program)
        far = _far_enough(prices, self.program)
        dual = simplex.dual(self.program) * rational_column([far, fmpq(1)])
        weights = dict(zip((side.column for side in simplex.basis), simplex.weights, strict=True))
        support = simplex.used(rounding)
        blur = simplex.spread() if rounding > 0 or self.is_cut else []
        signs = self._used(_tight(self._prices(self.program.blurred(rounding))), rounding)
        slacks = (
            (far * more + rest) / self.program.price(side)[1]
            for side, (more, rest) in prices.items()
            if side.column not in signs
        )
        facts = blur, min(slacks, default=fmpq(1)), signs.keys() == support.keys()
        return self._in_doubles(weights, dual.entries(), signs, *facts)

    def _prices(self, program: LinearProgram) -> dict[Side, Price]:
        """Of all sides that are open."""
        prices = dict.fromkeys(self.simplex.basis, FREE) | dict(self.simplex.reduced(program))
        return {side: price for side, price in prices.items() if program.is_open(side)}

    def _used(self, face: dict[int, int], rounding: fmpq) -> dict[int, int]:
        """The columns of the face that some minimizer uses, and their signs.

        Those not seen yet are worth what they weigh: where that is nothing no minimizer has any.
        """
        seen = self.simplex.used(rounding)
        while new := {column: sign for column, sign in face.items() if column not in seen}:
            self.simplex.minimize(_reward(face, new, len(self.kept)))
            found = self.simplex.used(rounding)
            if not new.keys() & found.keys():
                break
            seen |= found
        return seen

    def _in_doubles(
        self,
        weights: dict[int, fmpq],
        dual: list[fmpq],
        signs: dict[int, int],
        blur: list[fmpq],
        margin: fmpq,
        is_only: bool,
    ) -> ExactVertex | None:
        w, nu, face = np.zeros(self.shape[1]), np.zeros(self.shape[0]), np.zeros(self.shape[1])
        with precision(COST_BITS):
            balls = [arb(weights.get(column, 0)) for column in range(len(self.kept))]
            nearest = to_doubles(balls)
            radius = length(at - arb(float(v)) for at, v in zip(balls, nearest, strict=True))
            # As far as it moves w that data, or rows left out, are known up to rounding.
            last_digits = max(self.shape) * float(np.finfo(float).eps)
            radius += arb(last_digits) * length(map(arb, blur))
            nu[self.fitted_rows] = to_doubles([arb(part) for part in dual])
            slack = to_doubles([arb(margin)])[0]
        w[self.kept] = nearest
        face[self.kept] = [signs.get(column, 0) for column in range(len(self.kept))]
        if not (np.isfinite(w).all() and np.isfinite(nu).all()):
            return None
        return ExactVertex(w, nu, above(radius), self.distance, face, float(slack), is_only)


def _far_enough(prices: dict[Side, Price], program: LinearProgram) -> fmpq:
    """How far along the part of the dual that closed sides cause.

    So far that the open sides that it holds back are no nearer than if nothing pulled them.
    """
    needed = (
        (program.price(side)[1] - rest) / more for side, (more, rest) in prices.items() if more > 0
    )
    return max(needed, default=fmpq(0))


def _tight(prices: dict[Side, Price]) -> dict[int, int]:
    """The sides that cost no more than the dual pays."""
    return dict(side for side, price in prices.items() if price == FREE)


def _reward(face: dict[int, int], wanted: dict[int, int], d: int) -> LinearProgram:
    """On the face, all that counts is to have much of what is wanted; nothing leaves the face."""
    costs: tuple[list[fmpq | None], list[fmpq | None]] = ([None] * d, [None] * d)
    for column, sign in face.items():
        costs[0 if sign > 0 else 1][column] = fmpq(-1 if column in wanted else 0)
    return LinearProgram(*costs)


def _suggested(rows: FloatArray, w: FloatArray, pull: FloatArray) -> list[int]:
    """Independent columns: those in use first, then those that are pulled most."""
    fitted = np.abs(rows).max(axis=0) * np.abs(w)
    # Columns of w are sorted by what they fit, from all of y down to its rounding.
    clear = np.where(fitted > np.finfo(float).eps * fitted.max(initial=0.0), fitted, 0.0)
    order = np.lexsort((-np.abs(pull), -clear))
    return [int(order[at]) for at in independent_rows(rows[:, order].T)]


def _target(columns: FloatArray, y: FloatArray, kept: list[int]) -> tuple[fmpq_mat, float]:
    """What the kept rows can fit of y, closest to y in all, and how far from y that is.

    All rows are combinations C of the kept ones, so that is (C^T C)^-1 C^T y.
    """
    outputs = rational_matrix(y[:, None])
    target = rational_matrix(y[kept, None])
    if len(kept) == len(y):
        return target, 0.0
    combined = _related(columns, kept)
    if combined * target == outputs:
        return target, 0.0
    turned = combined.transpose()
    target = (turned * combined).solve(turned * outputs)
    outside = (outputs - combined * target).entries()
    with precision(COST_BITS):
        apart = length(arb(part) for part in outside) / length(map(arb, outputs.entries()))
        return target, above(apart)


def _related(columns: FloatArray, kept: list[int]) -> fmpq_mat:
    """C with columns = C columns[kept], up to what rounding alone tells apart."""
    if cut_by_rounding(columns, len(kept)) == 0.0:
        return _combined(columns, kept)
    unit, below = rounding_of_relations(columns, kept)
    pairs = zip(_combined(columns * unit, kept).entries(), below.ravel().tolist(), strict=True)
    told = [part if abs(part) > rational(least) else fmpq(0) for part, least in pairs]
    return fmpq_mat(len(columns), len(kept), told)


def _combined(columns: FloatArray, kept: list[int]) -> fmpq_mat:
    """C with C columns[kept] closest to columns, row by row."""
    matrix, rows = rational_matrix(columns), rational_matrix(columns[kept])
    return (rows * rows.transpose()).solve(rows * matrix.transpose()).transpose()
