"""Exact minimizers of the l2 and the l1 norm."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb, ctx, fmpq, fmpq_mat

from tests.fuzz import exact_data
from tests.fuzz.constraint import constraint_of
from tests.fuzz.problems import Start
from tests.fuzz.reference import DIGITS, ENOUGH, Reference, rich_limit


def min_norm(X: fmpq_mat, y: list[fmpq], weights: Sequence[float]) -> Reference:
    """argmin sum weights w^2  s.t.  X w = P y, in rational numbers."""
    d = X.ncols()
    constraint = constraint_of(X, y, [None] * d)
    soft = [1 / exact_data.rational(weights[i]) for i in constraint.columns]
    rows = constraint.rows
    scaled = fmpq_mat(
        rows.nrows(),
        rows.ncols(),
        [rows[i, j] * soft[j] for i in range(rows.nrows()) for j in range(rows.ncols())],
    )
    w = [arb(0)] * d
    with ctx.workdps(DIGITS):
        if constraint.columns:
            gram = scaled * rows.transpose()
            dual = gram.solve(exact_data.column(constraint.target))
            for i, value in zip(
                constraint.columns, (scaled.transpose() * dual).entries(), strict=True
            ):
                w[i] = arb(value).mid()
    return Reference(w, 0.0, constraint.in_range, constraint.rank)


def basis_pursuit(X: fmpq_mat, y: list[fmpq], weights: Sequence[float]) -> Reference:
    """An l1 minimizer, and whether it is the only one: its columns are then independent.

    Columns divided by their weights turn the weighted norm into the plain one; of all minimizers
    depth 2 selects one whose support contains every other's.
    """
    n, d = X.nrows(), X.ncols()
    costs = [exact_data.rational(value) for value in weights]
    plain = fmpq_mat(n, d, [X[i, j] / costs[j] for i in range(n) for j in range(d)])
    found = rich_limit(plain, y, Start("tied", 2.0, scale=1.0))
    largest = max((abs(v) for v in found.w), default=arb(0))
    support = [j for j, v in enumerate(found.w) if abs(v) > ENOUGH * largest]
    unique = not support or exact_data.columns_of(X, support).rank() == len(support)
    with ctx.workdps(DIGITS):
        w = [(value / arb(cost)).mid() for value, cost in zip(found.w, costs, strict=True)]
    return Reference(w, found.error, found.in_range, found.rank, unique)
