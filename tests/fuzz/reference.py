"""The exact limit of the doubles given, in many digits, with a proved bound of its own error.

Exact: which rows are independent, what can be fitted of y, which coordinates cannot move (rational
numbers, `constraint`). Many digits: the limit itself (`mirror_path`). `UnjudgedError` where
neither the path nor its proof succeeds in the digits that are worth their time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from tests.fuzz.branches import Branches, Exponentials, Powers
from tests.fuzz.constraint import Constraint, constraint_of
from tests.fuzz.mirror_path import SETTLED, NotFoundError, Path
from tests.fuzz.problems import Start
from tests.fuzz.proof import Proved, proved
from tests.fuzz.starts import Logs, initial_predictor, logs_of

# Relative error of a reference in the l2 norm: far below any bound that doubles can prove.
ENOUGH = 1e-20
# Digits at first, and how often they are raised.
DIGITS, RAISES, FACTOR = 150, 3, 2.5
# Beyond these the rich limit itself is computed, and the kernel limit in its place.
MOST_DIGITS = 1200
# Where rich limits would end if they never settled, as the logarithm of a part.
RICHEST = arb(10) ** 41
# w / a^D below which the kernel limit is taken, and the condition number of the projection that
# may magnify its square.
NEARLY_LINEAR, WORST_CONDITION = arb("1e-40"), arb("1e40")
LOG_10 = math.log(10.0)


class UnjudgedError(ArithmeticError):
    """No reference could be proved."""


@dataclass(frozen=True)
class Reference:
    """w to `error` (l2); whether y is in reach, and the exact rank and rows."""

    w: list[Any]
    error: float
    in_range: bool
    rank: int
    #: of an l1 minimizer: whether it is the only one
    unique: bool = True

    @property
    def norm(self) -> float:
        return norm(self.w)

    def distance(self, w: Sequence[float] | np.ndarray) -> float:
        """||w - exact||_2, in many digits until it is rounded; inf where w is not finite."""
        if not np.isfinite(np.asarray(w, dtype=float)).all():
            return math.inf
        with ctx.workdps(DIGITS):
            return norm([arb(float(a)) - b for a, b in zip(w, self.w, strict=True)])


def norm(values: Sequence[Any]) -> float:
    return float(sum((value * value for value in values), arb(0)).sqrt().mid())


def initial_norm(start: Start, d: int) -> float:
    """||w(0)||."""
    with ctx.workdps(DIGITS):
        return norm(initial_predictor(logs_of(start, d)))


def limit(X: fmpq_mat, y: list[fmpq], start: Start) -> Reference:
    """What gradient flow from `start` converges to on (X, y)."""
    return _solved(X, y, start, rich=False)


def rich_limit(X: fmpq_mat, y: list[fmpq], start: Start) -> Reference:
    """The limit of these limits as all weights of the start go to zero together."""
    return _solved(X, y, start, rich=True)


def _solved(X: fmpq_mat, y: list[fmpq], start: Start, rich: bool) -> Reference:
    d = X.ncols()
    with ctx.workdps(DIGITS):
        constraint = constraint_of(X, y, logs_of(start, d).signs)
    felt = [any(X[row, i] != 0 for row in range(X.nrows())) for i in range(d)]
    failure: ArithmeticError | None = None
    for digits in _ladder(start, d, rich):
        with ctx.workdps(digits):
            logs = logs_of(start, d)
            try:
                found = _end_of_path(constraint, logs.only(constraint.columns), rich)
            except NotFoundError as reason:
                failure = reason
                continue
            initial = [arb(0)] * d if rich else initial_predictor(logs)
            # What X sees but cannot move is at zero, on its boundary; what it does not see stays.
            w = [arb(0) if seen else value for seen, value in zip(felt, initial, strict=True)]
            for i, value in zip(constraint.columns, found.w, strict=True):
                w[i] = value
            travelled = arb(norm(w)) + ENOUGH * norm(initial)
            if found.error <= ENOUGH * travelled:
                return Reference(w, float(found.error), constraint.in_range, constraint.rank)
            failure = NotFoundError(f"proved to {float(found.error):.0e} of {norm(w):.0e} only")
    raise UnjudgedError(str(failure))


def _ladder(start: Start, d: int, rich: bool) -> Iterator[int]:
    """Digits: what cancels in p - m at large starts, in c - z at small ones, and rounding."""
    logs = logs_of(start, d)
    sizes = [float(v) for side in (logs.plus, logs.minus) for v in side if v is not None] or [0.0]
    depth = start.depth
    high = max(0.0, depth * max(sizes)) / LOG_10
    low = 0.0 if rich else max(0.0, (depth - 2.0) * -min(sizes)) / LOG_10
    spread = depth * (max(sizes) - min(sizes)) / LOG_10
    digits = DIGITS + min(MOST_DIGITS, high + 2 * low + spread) + (2 * DIGITS if rich else 0)
    for _ in range(RAISES):
        yield int(digits)
        digits *= FACTOR


def _end_of_path(constraint: Constraint, logs: Logs, rich: bool) -> Proved:
    if not constraint.columns:
        return Proved([], arb(0))
    rows = arb_mat(constraint.rows)
    target = arb_mat(constraint.rank, 1, [arb(value) for value in constraint.target])
    if all(value == 0 for value in constraint.target) and (rich or logs.is_unbiased):
        return Proved([arb(0)] * rows.ncols(), arb(0))
    if not rich:
        kernel = _kernel_limit(rows, target, logs)
        if kernel is not None:
            return kernel
    return _followed(rows, target, logs, rich)


def _followed(rows: arb_mat, target: arb_mat, logs: Logs, rich: bool) -> Proved:
    """The end of the path; where it settles on the way there, what it settles at."""
    branches, here = _branches(logs)
    path = Path(rows, target, branches)
    # Slacks are of the size mu: where that is beyond the digits at hand, w has settled before.
    slack_digits = float((2 - logs.depth) * here) / LOG_10
    settle = rich or slack_digits > MOST_DIGITS / 2
    end = -RICHEST / branches.size_rate() if rich else here
    u, dual = path.follow(*path.start(end, logs.is_unbiased), end, settle=settle)
    found = proved(path, u, dual)
    if u == end:
        return found
    # What it still moves is less than it moved last, which was SETTLED at most.
    return Proved(found.w, (found.error + SETTLED * norm(found.w)).upper())


def _branches(logs: Logs) -> tuple[Branches, Any]:
    """The branches, and the position at which they are the network's own."""
    depth, sides = logs.depth, (logs.plus, logs.minus)
    if depth == 2:
        doubled = ([None if v is None else 2 * v for v in side] for side in sides)
        return Exponentials(*doubled), arb(0)
    present = [v for side in sides for v in side if v is not None]
    here = (sum(present, arb(0)) / len(present)).mid()
    reaches = (
        [None if v is None else ((2 - depth) * (v - here)).exp() for v in side] for side in sides
    )
    return Powers(*reaches, depth), here


def _kernel_limit(rows: arb_mat, target: arb_mat, logs: Logs) -> Proved | None:
    """The weighted l2 minimizer, where w / a^D is so small that the network is linear.

    w(z) is linear up to a factor of 1 + O((w / a^D)^2), which is a change of the weights.
    """
    if not logs.is_unbiased:
        return None
    stiffness = [((2 * logs.depth - 2) * v).exp() for v in logs.plus]
    try:
        w = _least_weighted_norm(rows, target, stiffness)
    except NotFoundError:
        return None
    curved = max(
        (abs(value) * (-logs.depth * v).exp()).upper()
        for value, v in zip(w, logs.plus, strict=True)
    )
    if not curved < NEARLY_LINEAR:
        return None
    error = curved**2 * WORST_CONDITION * norm(w)
    spread = sum((value.rad() for value in w), arb(0))
    return Proved([v.mid() for v in w], (error + spread).upper())


def _least_weighted_norm(rows: arb_mat, target: arb_mat, stiffness: Sequence[Any]) -> list[Any]:
    """argmin sum w^2 / stiffness  s.t.  rows w = target."""
    r, d = rows.nrows(), rows.ncols()
    scaled = arb_mat(r, d, [rows[i, j] * stiffness[j] for i in range(r) for j in range(d)])
    try:
        dual = (scaled * rows.transpose()).solve(target)
    except ZeroDivisionError as singular:
        raise NotFoundError("H is singular in these digits") from singular
    return (scaled.transpose() * dual).entries()
