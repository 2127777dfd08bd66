"""The same data at a lower rank, where rounding alone decides which rank they have.

X may be of full rank as the rational matrix that it is, and of a lower one to the digits of a
double. A least-squares limit at the lower rank is then as right an answer, provided its status says
that it is one. Two ways to lower the rank, neither of which changes a row of X by more than about
1e-12 of its length: to cut the smallest singular values of the rows scaled to length one, and to
write all rows as combinations of some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np
import scipy.linalg
from flint import arb, fmpq, fmpq_mat
from mpmath import mp

from tests.fuzz.exact_data import column, rational_matrix, rational_vector, rows_of

Data = tuple[fmpq_mat, list[fmpq]]

# Singular values, relative to the largest, that a solver in doubles may take for zero.
DECIDED_BY_ROUNDING = 1e-12
DIGITS = 60
# Entries beyond which a decomposition in many digits is not worth its time.
LARGE = 400
# Rows beyond which their choices are too many.
MANY_ROWS = 9


def lower_ranks(X: np.ndarray, y: np.ndarray, exact_rank: int) -> Iterator[Data]:
    """Data that may have been meant in place of (X, y), with independent rows."""
    return chain(cut_values(X, y, exact_rank), chosen_rows(X, y, exact_rank))


def chosen_rows(X: np.ndarray, y: np.ndarray, exact_rank: int) -> Iterator[Data]:
    """(S, b): some rows S of X, and the least-squares fit of y by C b, where X is nearly C S."""
    exact, outputs = rational_matrix(X), column(rational_vector(y))
    seen = [i for i in range(len(X)) if X[i].any()]
    unit = X[seen] / np.linalg.norm(X[seen], axis=1, keepdims=True)
    *_, order = scipy.linalg.qr(unit.T, mode="r", pivoting=True)
    for rank in range(exact_rank - 1, 0, -1):
        # Of many rows those that a factorization picks.
        picked = tuple(sorted(seen[i] for i in order[:rank]))
        few = len(seen) <= MANY_ROWS
        for choice in combinations(seen, rank) if few else (picked,):
            rows = rows_of(exact, choice)
            if rows.rank() < rank:
                continue
            square = (rows * rows.transpose()).inv()
            combined = exact * rows.transpose() * square
            levels = (len(X) * float(np.finfo(float).eps), DECIDED_BY_ROUNDING)
            tried = [without_rounding(combined, X, choice, level) for level in levels]
            for told in tried[:1] if tried[0] == tried[1] else tried:
                if _is_rounding(exact - told * rows, X):
                    fitted = (told.transpose() * told).solve(told.transpose() * outputs)
                    yield rows, fitted.entries()


def without_rounding(
    combined: fmpq_mat, X: np.ndarray, choice: tuple[int, ...], level: float
) -> fmpq_mat:
    """Relations without parts that are below this share of their row.

    They would ask a row in far smaller units to fit what rounding has made of the others.
    """
    lengths = [fmpq(*float(size).as_integer_ratio()) for size in np.linalg.norm(X, axis=1)]
    share = fmpq(*level.as_integer_ratio())
    table = [
        [
            at if abs(at) * lengths[j] > share * lengths[i] else fmpq(0)
            for at, j in zip(row, choice, strict=True)
        ]
        for i, row in enumerate(combined.tolist())
    ]
    return fmpq_mat(table)


def _is_rounding(difference: fmpq_mat, X: np.ndarray) -> bool:
    parts = np.array([float(arb(value)) for value in difference.entries()]).reshape(X.shape)
    lengths = np.linalg.norm(X, axis=1)
    return bool((np.linalg.norm(parts, axis=1) <= DECIDED_BY_ROUNDING * lengths).all())


def cut_values(X: np.ndarray, y: np.ndarray, exact_rank: int) -> Iterator[Data]:
    """(R V^T, Q^T y) in place of (X, y), at each rank that rounding may decide on.

    D^-1 X = U S V^T cut after k singular values, and D U S = Q R: what is left of X is Q R V^T, and
    to fit Q^T y by R V^T is to fit y by that, within any cone.
    """
    if X.size > LARGE:
        return
    with mp.workdps(DIGITS):
        rows = [[mp.mpf(value) for value in row] for row in X.tolist() if any(row)]
        outputs = [mp.mpf(value) for row, value in zip(X, y.tolist(), strict=True) if row.any()]
        lengths = [mp.sqrt(sum(value**2 for value in row)) for row in rows]
        unit = mp.matrix([[v / size for v in row] for row, size in zip(rows, lengths, strict=True)])
        left, values, basis = mp.svd_r(unit)
        for rank in range(1, exact_rank):
            if values[rank] <= DECIDED_BY_ROUNDING * values[0]:
                fitted = mp.matrix(len(rows), rank)
                for i in range(len(rows)):
                    for j in range(rank):
                        fitted[i, j] = lengths[i] * left[i, j] * values[j]
                across, along = mp.qr(fitted, mode="skinny")
                target = across.T * mp.matrix(outputs)
                yield _rational(along * basis[:rank, :]), [_exactly(value) for value in target]


def _rational(matrix: mp.matrix) -> fmpq_mat:
    return fmpq_mat(matrix.rows, matrix.cols, [_exactly(value) for value in matrix])


def _exactly(value: mp.mpf) -> fmpq:
    sign, mantissa, exponent, _ = value._mpf_
    whole = -int(mantissa) if sign else int(mantissa)
    return fmpq(whole) * fmpq(2) ** int(exponent)
