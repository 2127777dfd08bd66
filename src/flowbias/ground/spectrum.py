"""The directions of data: singular values of X that count, and the space that it does not see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.ground.typing import FloatArray

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
