"""Factors of matrices: Cholesky's, and orthogonal ones, graded and of data.

Householder's method is accurate row by row where rows are sorted by size and columns pivoted, so
that the large rows do not hide what only the small ones tell [Powell and Reid 1969; Cox and Higham
1998]. A `Spectrum` has the singular values of X that count, and the space that X does not see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.ground.typing import FloatArray

Places: TypeAlias = NDArray[np.intp]


def cholesky_if_conditioned(matrix: FloatArray, least: float) -> FloatArray | None:
    """Lower factor; None where there is none, or the reciprocal condition number is not above."""
    factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1)
    if failed:
        return None
    # All eigenvalues but the least have a product of at most the power of their mean. Of a few rows
    # that mostly says enough, and asking LAPACK takes longer than the factor.
    n, trace = len(factor), float(np.vdot(factor.T, factor.T))
    eigenvalue = math.prod(factor.diagonal().tolist()) ** 2 * ((n - 1) / trace) ** (n - 1)
    # The 1-norms of a matrix and its inverse are at most the root of n times those of its largest
    # eigenvalues.
    is_clear = eigenvalue > least * n * trace
    return factor if is_clear or reciprocal_condition(factor, matrix) > least else None


def reciprocal_condition(lower: FloatArray, matrix: FloatArray) -> float:
    """Of a matrix with this Cholesky factor, in the 1-norm."""
    lapack: Any = scipy.linalg.lapack
    rcond, _ = lapack.dpocon(lower, lapack.dlange("1", matrix), uplo="L")
    return float(rcond)


def cholesky_with_ridge(matrix: FloatArray) -> FloatArray:
    """Lower factor of a unit-diagonal matrix, with the smallest ridge that lets it succeed.

    The diagonal is written over.
    """
    ridge = 1e-15  # what Cholesky's own rounding costs
    while True:
        matrix.flat[:: len(matrix) + 1] = 1.0 + ridge
        factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1)
        if not failed:
            return np.asarray(factor)
        # Rounding made the matrix indefinite: it is singular to working precision, and a larger
        # ridge leaves the lost directions where they are instead of sending them far away.
        ridge *= 10.0


def graded_qr(matrix: FloatArray) -> tuple[FloatArray, FloatArray, Places]:
    """Q, R and pivots with Q R = matrix[:, pivots]; Q has the rows of the matrix as they stand."""
    order = _largest_first(matrix)
    factors: Any = scipy.linalg.qr(
        matrix[order], mode="economic", pivoting=True, overwrite_a=True, check_finite=False
    )
    sorted_Q, R, pivots = factors
    Q = np.empty_like(sorted_Q)
    Q[order] = sorted_Q
    return Q, R, pivots


def graded_triangle(matrix: FloatArray) -> tuple[FloatArray, Places]:
    """R and the pivots alone."""
    factors: Any = scipy.linalg.qr(
        matrix[_largest_first(matrix)],
        mode="r",
        pivoting=True,
        overwrite_a=True,
        check_finite=False,
    )
    upper, pivots = factors
    return upper[: matrix.shape[1]], pivots


def _largest_first(matrix: FloatArray) -> Places:
    return np.argsort(-np.abs(matrix).max(axis=1), kind="stable")


EPS = float(np.finfo(float).eps)


def numerical_rank(values: FloatArray, shape: tuple[int, ...]) -> int:
    """How many singular values are above max(shape) eps times the largest: not rounding."""
    return int((values > max(shape) * EPS * values[0]).sum())


@dataclass(frozen=True, eq=False)
class Spectrum:
    """X = W diag(root) P1^T, thin: what the data moves (P1) and what it cannot (P2).  [min2021]

    root holds the singular values of X (S^(1/2) in the paper), decreasing. Those below
    max(n, d) eps times the largest are rounding and do not count towards the rank.
    """

    W: FloatArray
    root: FloatArray
    P1: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> Spectrum:
        """From one thin singular value decomposition."""
        left, values, right = scipy.linalg.svd(X, full_matrices=False)
        rank = numerical_rank(values, X.shape)
        P1 = np.ascontiguousarray(right[:rank].T)
        return cls(np.ascontiguousarray(left[:, :rank]), values[:rank], P1)

    @property
    def rank(self) -> int:
        """r."""
        return len(self.root)

    @cached_property
    def P2(self) -> FloatArray:  # noqa: N802  (the paper's name, beside P1)
        """Orthonormal basis of the null space of X, (d, d - r): made when first asked for."""
        q, _ = scipy.linalg.qr(self.P1, mode="full")
        return np.ascontiguousarray(q[:, self.rank :])

    def off_range(self, M: FloatArray) -> FloatArray:
        """P2 P2^T M without P2: the part of each column that the data does not see."""
        return M - self.P1 @ (self.P1.T @ M)
