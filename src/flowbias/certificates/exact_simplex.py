"""The simplex method in rational numbers: a double is one, so nothing rounds and ties are ties.

    min sum of what the weights cost   s.t.  A w = b

where a side of a coordinate, its positive or its negative values, has a cost of its own. A side
that is closed costs more than any amount of the others: costs are pairs, compared in order. So
every choice of independent columns is a feasible basis, each column with the sign of its weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from flint import fmpq, fmpq_mat

from flowbias.ground.typing import FloatArray

#: what a unit of w costs per coordinate, None where that side is closed
Costs: TypeAlias = Sequence[fmpq | None]
#: of a side: how much of it no finite cost pays for, and the rest
Price: TypeAlias = tuple[fmpq, fmpq]

FREE: Price = (fmpq(0), fmpq(0))
CLOSED: Price = (fmpq(1), fmpq(0))


def rational(value: float) -> fmpq:
    """The double itself."""
    return fmpq(*float(value).as_integer_ratio())


def rational_matrix(values: FloatArray) -> fmpq_mat:
    """A matrix of doubles, exactly."""
    return fmpq_mat([[rational(value) for value in row] for row in values.tolist()])


def rational_column(values: Sequence[fmpq]) -> fmpq_mat:
    """These numbers as a matrix of one column."""
    return fmpq_mat(len(values), 1, list(values))


def columns_of(matrix: fmpq_mat, chosen: Sequence[int]) -> fmpq_mat:
    """These columns, in this order."""
    rows = matrix.nrows()
    return fmpq_mat(rows, len(chosen), [matrix[i, j] for i in range(rows) for j in chosen])


class Side(NamedTuple):
    """The positive (1) or negative (-1) values of a coordinate."""

    column: int
    sign: int


@dataclass(frozen=True)
class LinearProgram:
    """What each side costs; what dual and costs leave is nothing below `blur` of their terms."""

    positive: Costs
    negative: Costs
    blur: fmpq | int = 0

    def price(self, side: Side) -> Price:
        cost = (self.positive if side.sign > 0 else self.negative)[side.column]
        return CLOSED if cost is None else (fmpq(0), cost)

    def is_open(self, side: Side) -> bool:
        return self.price(side) is not CLOSED

    def blurred(self, blur: fmpq) -> LinearProgram:
        """With this blur at least."""
        return LinearProgram(self.positive, self.negative, max(self.blur, blur))

    def of(self, columns: Sequence[int]) -> LinearProgram:
        """On these columns alone."""
        positive, negative = ([side[j] for j in columns] for side in (self.positive, self.negative))
        return LinearProgram(positive, negative, self.blur)


class OutOfPivotsError(ArithmeticError):
    """More pivots than are worth their time."""


class Simplex:
    """A basis of the columns of A that pivots from one program's optimum to another's."""

    def __init__(self, rows: fmpq_mat, target: fmpq_mat, basis: Sequence[int], pivots: int) -> None:
        self.rows, self.target, self.pivots = rows, target, pivots
        self.basis = [Side(column, 1) for column in basis]
        self._factor()

    def _factor(self) -> None:
        self.matrix = columns_of(self.rows, [side.column for side in self.basis])
        self.weights = self.matrix.solve(self.target).entries()
        pairs = zip(self.basis, self.weights, strict=True)
        # A weight of zero has the sign that it had.
        self.basis = [
            Side(side.column, 1 if w > 0 else -1) if w != 0 else side for side, w in pairs
        ]

    def used(self, blur: fmpq | int = 0) -> dict[int, int]:
        """The columns that fit more of some row than `blur` of its terms, with their signs."""
        rows = [list(map(abs, row)) for row in self.matrix.tolist()]
        sizes = [abs(w) for w in self.weights]
        terms = [[a * w for a, w in zip(row, sizes, strict=True)] for row in rows]
        least = [blur * sum(row, fmpq(0)) for row in terms]
        return {
            side.column: side.sign
            for at, side in enumerate(self.basis)
            if any(row[at] > most for row, most in zip(terms, least, strict=True))
        }

    def spread(self) -> list[fmpq]:
        """|A_B^-1| |A_B| |w_B|: how far relative errors of A_B move w_B, per unit."""
        sizes = fmpq_mat([[abs(part) for part in row] for row in self.matrix.tolist()])
        inverse = fmpq_mat([[abs(part) for part in row] for row in self.matrix.inv().tolist()])
        return list((inverse * (sizes * rational_column(list(map(abs, self.weights))))).entries())

    def minimize(self, program: LinearProgram) -> None:
        """Pivot to an optimal basis."""
        self._open(program)
        moved = True
        while (side := self._entering(program, steepest=moved)) is not None:
            if self.pivots == 0:
                raise OutOfPivotsError
            self.pivots -= 1
            moved = self._pivot(side)
            self._open(program)

    def _open(self, program: LinearProgram) -> None:
        """A weight of zero is on either side: on one that is open, if any is."""
        for at, (side, w) in enumerate(zip(self.basis, self.weights, strict=True)):
            other = Side(side.column, -side.sign)
            if w == 0 and program.is_open(other) and not program.is_open(side):
                self.basis[at] = other

    def dual(self, program: LinearProgram) -> fmpq_mat:
        """nu with A_B^T nu = the prices of the basis, one column per part of a price."""
        prices = [[side.sign * part for part in program.price(side)] for side in self.basis]
        return self.matrix.transpose().solve(fmpq_mat(prices))

    def reduced(self, program: LinearProgram) -> Iterator[tuple[Side, Price]]:
        """The sides outside of the basis, with what they cost beyond what the dual pays."""
        dual, basic = self.dual(program), {side.column for side in self.basis}
        pulls = (self.rows.transpose() * dual).tolist()
        for column in set(range(len(pulls))) - basic:
            for side in (Side(column, 1), Side(column, -1)):
                more, cost = program.price(side)
                rest = cost - side.sign * pulls[column][1]
                if program.blur and 2 * abs(rest) < cost:  # what is off by more is no tie
                    blurred = program.blur * (cost + self._terms(column, dual))
                    rest = fmpq(0) if abs(rest) <= blurred else rest
                yield side, (more - side.sign * pulls[column][0], rest)

    def _terms(self, column: int, dual: fmpq_mat) -> fmpq:
        """|x|^T |nu|."""
        products = (self.rows[i, column] * dual[i, 1] for i in range(self.rows.nrows()))
        return sum(map(abs, products), fmpq(0))

    def _entering(self, program: LinearProgram, *, steepest: bool) -> Side | None:
        """The side that saves most; the first that saves where the last pivot moved nothing.

        By the first one (and the first to leave) simplex never cycles.
        """
        saving = [(price, side) for side, price in self.reduced(program) if price < FREE]
        if not saving:
            return None
        return min(saving)[1] if steepest else min(side for _, side in saving)

    def _pivot(self, entering: Side) -> bool:
        """Whether the weights moved."""
        pull = self.matrix.solve(columns_of(self.rows, [entering.column])).entries()
        ratios = []
        for at, (side, g, w) in enumerate(zip(self.basis, pull, self.weights, strict=True)):
            falls = entering.sign * side.sign * g
            if falls > 0:
                ratios.append((abs(w) / falls, side, at))
        length, _, leaving = min(ratios)
        self.basis[leaving] = entering
        self._factor()
        return bool(length != 0)
