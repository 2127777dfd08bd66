"""B w = b: what a network can fit of the data, exactly, as its path takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint import fmpq, fmpq_mat

from tests.fuzz import exact_data


@dataclass(frozen=True)
class Constraint:
    """B w = b on the columns that can move, rows independent and of ordinary size."""

    rows: fmpq_mat
    target: list[fmpq]
    columns: list[int]
    in_range: bool

    @property
    def rank(self) -> int:
        return self.rows.nrows()


def constraint_of(X: fmpq_mat, y: list[fmpq], signs: Sequence[int | None]) -> Constraint:
    n, d = X.nrows(), X.ncols()
    felt = [any(X[i, j] != 0 for i in range(n)) for j in range(d)]
    found = exact_data.reach(X, y, [s if seen else 0 for s, seen in zip(signs, felt, strict=True)])
    in_range = found.projected == list(y)
    if not found.movable:
        return Constraint(fmpq_mat(0, 0), [], [], in_range)
    part = exact_data.columns_of(X, found.movable)
    chosen = exact_data.independent_rows(part)
    rows = exact_data.rows_of(part, chosen)
    target = [found.projected[i] for i in chosen]
    scaled = []
    for i in range(rows.nrows()):
        # A power of two, so that nothing is added to the digits.
        largest = max(abs(rows[i, j]) for j in range(rows.ncols()))
        unit = fmpq(2) ** _binary_order(largest)
        scaled += [rows[i, j] / unit for j in range(rows.ncols())]
        target[i] /= unit
    return Constraint(fmpq_mat(rows.nrows(), rows.ncols(), scaled), target, found.movable, in_range)


def _binary_order(value: fmpq) -> int:
    return int(value.p).bit_length() - int(value.q).bit_length()
