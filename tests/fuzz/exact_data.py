"""Doubles as the rational numbers they are: independent rows, projections, and cones, exactly.

Ranks, ties and the question whether y is in reach have no answer in rounded arithmetic; here they
are decided in rational numbers, so that what the judge compares with has no tolerance of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat

Vector = list[fmpq]


def rational(value: float) -> fmpq:
    """The double itself, not its decimal digits."""
    return fmpq(*float(value).as_integer_ratio())


def rational_matrix(X: np.ndarray) -> fmpq_mat:
    n, d = X.shape
    return fmpq_mat(n, d, [rational(value) for value in X.ravel()])


def rational_vector(y: np.ndarray) -> Vector:
    return [rational(value) for value in y]


def column(values: Sequence[fmpq]) -> fmpq_mat:
    return fmpq_mat(len(values), 1, list(values))


def rows_of(X: fmpq_mat, rows: Sequence[int]) -> fmpq_mat:
    return fmpq_mat(len(rows), X.ncols(), [X[i, j] for i in rows for j in range(X.ncols())])


def columns_of(X: fmpq_mat, columns: Sequence[int]) -> fmpq_mat:
    return fmpq_mat(X.nrows(), len(columns), [X[i, j] for i in range(X.nrows()) for j in columns])


def pivots(X: fmpq_mat) -> list[int]:
    """The first columns that generate all of them, from the reduced echelon form."""
    reduced, rank = X.rref()
    found: list[int] = []
    for row in range(rank):
        start = found[-1] + 1 if found else 0
        found.append(next(j for j in range(start, X.ncols()) if reduced[row, j] != 0))
    return found


def independent_rows(X: fmpq_mat) -> list[int]:
    return pivots(X.transpose())


def least_squares(X: fmpq_mat, y: fmpq_mat) -> Vector:
    """Coefficients of a least-squares fit: zero outside of the pivot columns."""
    chosen = pivots(X)
    fitted = [fmpq(0)] * X.ncols()
    if chosen:
        basis = columns_of(X, chosen)
        gram = basis.transpose() * basis
        for j, value in zip(chosen, gram.solve(basis.transpose() * y).entries(), strict=True):
            fitted[j] = value
    return fitted


@dataclass(frozen=True)
class Reach:
    """What a network can fit of y: P y, and the coordinates that can differ from zero there."""

    projected: Vector
    movable: list[int]


def reach(X: fmpq_mat, y: Vector, signs: Sequence[int | None]) -> Reach:
    """The projection of y on {X w}, w_i >= 0 where signs[i] = 1, <= 0 where -1, 0 where 0.

    None is a free coordinate. `movable` leaves out the coordinates that vanish in every w with
    X w = P y: there the limit is on the boundary of its domain, and exactly zero.
    """
    kept = [i for i, sign in enumerate(signs) if sign != 0]
    if not kept:
        return Reach([fmpq(0)] * len(y), [])
    if all(signs[i] is None for i in kept):
        if X.rank() == len(y) and len(kept) == X.ncols():
            return Reach(list(y), kept)
        part = columns_of(X, kept)
        return Reach((part * column(least_squares(part, column(y)))).entries(), kept)
    return _cone_reach(X, y, signs, kept)


def _cone_reach(X: fmpq_mat, y: Vector, signs: Sequence[Any], kept: list[int]) -> Reach:
    free = [i for i in kept if signs[i] is None]
    sided = [i for i in kept if signs[i] is not None]
    towards = {i: [signs[i] * X[row, i] for row in range(X.nrows())] for i in sided}
    both = [[X[row, i] for row in range(X.nrows())] for i in free]
    fit = nonnegative_fit(both, [towards[i] for i in sided], y)
    positive = {i for i, value in zip(sided, fit.coefficients, strict=True) if value > 0}
    # i can be positive where the others can undo what it adds: those that are positive may shrink.
    for i in sided:
        if i not in positive:
            generators = [towards[j] for j in sided if j != i]
            generators += [[-value for value in towards[j]] for j in sided if j in positive]
            undone = nonnegative_fit(both, generators, [-value for value in towards[i]])
            if all(value == 0 for value in undone.residual):
                positive.add(i)
    return Reach([a - b for a, b in zip(y, fit.residual, strict=True)], sorted({*free, *positive}))


@dataclass(frozen=True)
class ConeFit:
    coefficients: Vector
    residual: Vector


def nonnegative_fit(free: list[Vector], sided: list[Vector], y: Vector) -> ConeFit:
    """Least squares with free columns and columns of coefficients >= 0 (Lawson and Hanson)."""
    coefficients, passive = [fmpq(0)] * len(sided), []
    while True:
        fitted = _fit(free + [sided[i] for i in passive], y)
        trial = fitted[len(free) :]
        if all(value > 0 for value in trial):
            coefficients = [fmpq(0)] * len(sided)
            for i, value in zip(passive, trial, strict=True):
                coefficients[i] = value
            used = free + [sided[i] for i in passive]
            residual = _residual(used, fitted, y)
            rising = _steepest(sided, residual, passive)
            if rising is None:
                return ConeFit(coefficients, residual)
            passive.append(rising)
        else:
            passive = _step_back(coefficients, passive, trial)


def _fit(columns: list[Vector], y: Vector) -> Vector:
    if not columns:
        return []
    matrix = fmpq_mat(len(columns), len(y), [v for part in columns for v in part]).transpose()
    return least_squares(matrix, column(y))


def _residual(columns: list[Vector], fitted: Vector, y: Vector) -> Vector:
    residual = list(y)
    for part, value in zip(columns, fitted, strict=True):
        residual = [r - value * entry for r, entry in zip(residual, part, strict=True)]
    return residual


def _steepest(sided: list[Vector], residual: Vector, passive: list[int]) -> int | None:
    """The column along which the fit improves most, None where none does."""
    slopes = {
        i: sum((a * b for a, b in zip(part, residual, strict=True)), fmpq(0))
        for i, part in enumerate(sided)
        if i not in passive
    }
    rising = [i for i, slope in slopes.items() if slope > 0]
    return max(rising, key=lambda i: slopes[i]) if rising else None


def _step_back(coefficients: Vector, passive: list[int], trial: Vector) -> list[int]:
    """Move from `coefficients` towards `trial` until one is zero; who is left, in place."""
    blocked = [(i, new) for i, new in zip(passive, trial, strict=True) if new <= 0]
    share = min(coefficients[i] / (coefficients[i] - new) for i, new in blocked)
    for i, new in zip(passive, trial, strict=True):
        coefficients[i] += share * (new - coefficients[i])
    left = [i for i in passive if coefficients[i] > 0]
    for i in passive:
        if i not in left:
            coefficients[i] = fmpq(0)
    return left
