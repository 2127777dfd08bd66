"""A scipy LinearOperator: X known only by what it does to vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.designs._base import Block, Design, check_dtype, column_parts
from flowbias.problem import InputError

# Numbers of the rows that are held at once where X diag(c) X^T is formed.
SLAB_NUMBERS = 2**22
# Two products of the same numbers agree to this where one operator is the other's adjoint: well
# above rounding in single precision, well below any wrong sign, scale or conjugate.
ADJOINT_MISMATCH = 1e-4


class OperatorBlock(Block):
    """All columns at once."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.n, d = operator.shape
        self.columns = slice(0, d)

    def apply(self, w: FloatArray) -> FloatArray:
        return np.asarray(self.operator @ w, dtype=np.float64)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return np.asarray(self.operator.T @ dual, dtype=np.float64)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        out = np.empty((self.n, self.n))
        for rows in column_parts(self.n, max(1, SLAB_NUMBERS // self.width)):
            some = np.eye(self.n, rows.stop - rows.start, -rows.start) * row_scale[:, None]
            out[:, rows] = row_scale[:, None] * self.apply(weights[:, None] * self.adjoint(some))
        # Symmetric but for rounding; Cholesky's method sees one triangle only.
        return np.asarray(0.5 * (out + out.T))

    def largest_entries(self) -> FloatArray:
        """1: unknown without n products, which the Gram matrix has to spend anyway."""
        return np.ones(self.n)


class OperatorDesign(Design):
    """X as a LinearOperator with an adjoint."""

    kind = "linear operator"
    has_entries = False

    def __init__(self, X: Any) -> None:
        check_dtype(np.dtype(X.dtype))
        self.operator = X
        self.n, self.d = X.shape
        if 0 in X.shape:
            raise InputError(f"X: must not be empty, got shape {X.shape}. Pass some data.")
        self._check_adjoint()

    def blocks(self) -> Iterator[OperatorBlock]:
        yield OperatorBlock(self.operator)

    def _check_adjoint(self) -> None:
        rng = np.random.default_rng(0)
        dual, w = rng.standard_normal(self.n), rng.standard_normal(self.d)
        try:
            back = np.asarray(self.operator.rmatvec(dual), dtype=np.float64)
        except NotImplementedError:
            raise InputError(
                f"X: must have an adjoint, got a {type(self.operator).__name__} without rmatvec. "
                "Pass LinearOperator(shape, matvec=..., rmatvec=...): rmatvec(u) is X.T @ u."
            ) from None
        forth = np.asarray(self.operator.matvec(w), dtype=np.float64)
        length = np.linalg.norm
        unit = length(dual) * length(forth) + length(back) * length(w)
        mismatch = abs(float(dual @ forth - back @ w))
        # NaN compares false: it is found, and named, when the rows are measured.
        if mismatch > ADJOINT_MISMATCH * unit:
            raise InputError(
                "X: rmatvec must be the adjoint of matvec, got <u, X v> - <X.T u, v> = "
                f"{mismatch:.1e} for random u and v. Check rmatvec: it is X.T @ u."
            )
