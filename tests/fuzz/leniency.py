"""Milder verdicts, for what rounding decides before the library can.

A projected answer may take for dependent what is so up to 1e-12. Centred data carry the rounding of
their centring, so an answer may be as far from the limit as another rounding puts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flint import arb, fmpq_mat

from tests.fuzz.answers import Answer
from tests.fuzz.exact_data import rational_matrix
from tests.fuzz.minimizers import ONLY_ONE
from tests.fuzz.problems import Problem
from tests.fuzz.questions import Data, data_of, exact_answer
from tests.fuzz.reference import Reference
from tests.fuzz.rounded_rank import lower_ranks
from tests.fuzz.starts import logs_of
from tests.fuzz.verdict import FALSE, GOOD, REFUSED, Verdict

# Copies of centred data that were rounded otherwise, and how many times as far as these an answer
# may be from the limit.
ROUNDED_TWINS, ROUNDINGS = 2, 100.0
# Below this condition number the rounding of X is no excuse, and its exact ties stay what they are.
WELL_CONDITIONED = 1e5

VerdictOf = Callable[[Problem, Answer, Reference], Verdict]


def at_a_lower_rank(
    problem: Problem, answer: Answer, verdict: Verdict, verdict_of: VerdictOf
) -> Verdict:
    """The verdict at a rank that the answer may have meant, where it is right there.

    Only an answer that says that y was projected, if only by a rounding, may have meant one.
    """
    X = np.where(_can_move(problem), problem.X, 0.0)
    rank, hint = rational_matrix(X).rank(), ""
    says_so = answer.distance > 0.0 and answer.status != ONLY_ONE
    if _misses_a_row(problem, X, answer):
        return replace(verdict, reason=verdict.reason + ", and misses a row that can be fitted")
    for data in lower_ranks(X, problem.y, rank):
        other = verdict_of(problem, answer, exact_answer(problem, answer, data))
        lower = data[0].nrows()
        if other.kind in (GOOD, REFUSED) and says_so:
            return replace(other, reason=f"right at rank {lower}")
        if other.kind != FALSE:
            hint = f", but right at rank {lower}"
    return replace(verdict, reason=verdict.reason + hint)


def _misses_a_row(problem: Problem, X: np.ndarray, answer: Answer) -> bool:
    """Whether all rows, each in its own units, can be fitted to rounding, and are not.

    Another rank is no excuse for that: least squares of all rows would give up one in small units
    for the rounding of those in large ones. Of starts whose coordinates can have either sign.
    """
    sided = any(sign in (-1, 1) for sign in logs_of(problem.start, X.shape[1]).signs)
    lengths, w = np.linalg.norm(X, axis=1), np.asarray(answer.w)
    seen = lengths > 0
    if sided or not seen.any() or not np.isfinite(w).all():
        return False
    rows, y = X[seen] / lengths[seen, None], problem.y[seen] / lengths[seen]
    left, values, _ = np.linalg.svd(rows, full_matrices=False)
    left = left[:, values > 1e-9 * values[0]]
    cannot = np.abs(y - left @ (left.T @ y)).max()
    size = np.linalg.norm(w) + np.abs(y)
    return bool(cannot <= 1e-12 * np.abs(y).min() and (np.abs(rows @ w - y) > 1e-6 * size).any())


def _can_move(problem: Problem) -> np.ndarray:
    """The columns that the flow sees: what tells rows apart in a frozen one tells it nothing."""
    signs = logs_of(problem.start, problem.X.shape[1]).signs
    return np.array([sign != 0 for sign in signs])


def of_centred_data(
    problem: Problem, answer: Answer, verdict: Verdict, exact: Reference, data: Data
) -> Verdict:
    """GOOD where the rounding of X and y less their means moves the limit as far."""
    well_conditioned = _condition(data[0], exact.rank) < WELL_CONDITIONED
    rng = np.random.default_rng(problem.seed)
    moved, w = 0.0, [float(value) for value in exact.w]
    for _ in range(ROUNDED_TWINS):
        X = problem.X if well_conditioned else _rounded(rng, problem.X)
        twin = data_of(problem, X, _rounded(rng, problem.y))
        moved = max(moved, exact_answer(problem, answer, twin).distance(w))
    if verdict.error <= ROUNDINGS * moved:
        return replace(verdict, kind=GOOD, reason=f"rounding the data moves w by {moved:.1e}")
    return verdict


def _rounded(rng: np.random.Generator, data: np.ndarray) -> np.ndarray:
    """With the last digit of the largest entry of each column added or taken away."""
    last_digit = np.finfo(float).eps * np.abs(data).max(axis=0)
    return data + last_digit * rng.choice([-1.0, 1.0], data.shape)


def _condition(X: fmpq_mat, rank: int) -> float:
    """Of the rows scaled to length one, as far as doubles show it."""
    rows = np.array([float(arb(value)) for value in X.entries()]).reshape(X.nrows(), X.ncols())
    lengths = np.linalg.norm(rows, axis=1)
    values = np.linalg.svd(rows[lengths > 0] / lengths[lengths > 0, None], compute_uv=False)
    return float(values[0] / max(values[rank - 1], np.finfo(float).tiny))
