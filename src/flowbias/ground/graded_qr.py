"""Orthogonal factors of a matrix whose rows are of very different size.

Householder's method is accurate row by row where rows are sorted by size and columns pivoted, so
that the large rows do not hide what only the small ones tell [Powell and Reid 1969; Cox and Higham
1998].
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.ground.typing import FloatArray

Places: TypeAlias = NDArray[np.intp]


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
