"""A scipy LinearOperator: X known only by what it does to vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flowbias.designs._base import Block, Design, check_dtype
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import column_parts
from flowbias.ground.typing import FloatArray

# Numbers of the rows that are held at once where X diag(c) X^T is formed.
SLAB_NUMBERS = 2**22


class OperatorBlock(Block):
    """All columns at once; `size` is that of the entries, roughly."""

    def __init__(self, operator: Any, size: float = 1.0) -> None:
        self.operator, self.size = operator, size
        self.n, d = operator.shape
        self.columns = slice(0, d)

    def apply(self, w: FloatArray) -> FloatArray:
        return _asked("matvec", lambda: self.operator @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return _asked("rmatvec", lambda: self.operator.T @ dual)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        out = np.empty((self.n, self.n))
        for rows in column_parts(self.n, max(1, SLAB_NUMBERS // self.width)):
            some = np.eye(self.n, rows.stop - rows.start, -rows.start) * row_scale[:, None]
            out[:, rows] = row_scale[:, None] * self.apply(weights[:, None] * self.adjoint(some))
        # Symmetric but for rounding; Cholesky's method sees one triangle only.
        return np.asarray(0.5 * (out + out.T))

    def largest_entries(self) -> FloatArray:
        """One size for all: more takes n products, which the Gram matrix has to spend anyway."""
        return np.full(self.n, self.size)


def _asked(name: str, product: Callable[[], Any]) -> FloatArray:
    """What the operator's own code returns; InputError where that is no vector of real numbers."""
    try:
        found = np.asarray(product())
    except Exception as error:
        raise InputError(
            f"X: {name} must return a vector of the operator's shape, got "
            f"{type(error).__name__}: {error}. Call it on a random vector to see more."
        ) from error
    if found.dtype.kind not in "buif":
        raise InputError(
            f"X: {name} must return real numbers, got dtype {found.dtype}. "
            "Return the real part, or stack real and imaginary parts as rows of their own."
        )
    return found.astype(np.float64, copy=False)


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
        self.size = self._checked_size()

    def blocks(self) -> Iterator[OperatorBlock]:
        yield OperatorBlock(self.operator, self.size)

    def _checked_size(self) -> float:
        """The largest entry of a random combination of rows, if the products are those of one X."""
        rng = np.random.default_rng(0)
        duals, ws = rng.standard_normal((self.n, 2)), rng.standard_normal((self.d, 2))
        dual, w = duals[:, 0], ws[:, 0]
        try:
            back = _asked("rmatvec", lambda: self.operator.rmatvec(dual)).copy()
        except InputError as refusal:
            if not isinstance(refusal.__cause__, NotImplementedError):
                raise
            raise InputError(
                f"X: must have an adjoint, got a {type(self.operator).__name__} without rmatvec. "
                "Pass LinearOperator(shape, matvec=..., rmatvec=...): rmatvec(u) is X.T @ u."
            ) from None
        forth = _asked("matvec", lambda: self.operator.matvec(w)).copy()
        length, tolerance = extended.length, _half_of_the_digits(self.operator.dtype)
        unit = length(dual) * length(forth) + length(back) * length(w)
        # NaN compares false: it is found, and named, when the rows are measured.
        with np.errstate(all="ignore"):
            mismatch = abs(float(dual @ forth - back @ w))
        if mismatch > tolerance * unit:
            raise InputError(
                "X: rmatvec must be the adjoint of matvec, got <u, X v> - <X.T u, v> = "
                f"{mismatch:.1e} for random u and v, where their sizes are {unit:.1e}. Check "
                "rmatvec: it is X.T @ u. If X works in single precision give it dtype=np.float32."
            )
        block = OperatorBlock(self.operator)
        _require_same("matvec", forth, block.apply(ws)[:, 0], tolerance)
        _require_same("rmatvec", back, block.adjoint(duals)[:, 0], tolerance)
        size = float(np.abs(back).max())
        # In the Gram matrix, safely inside the double range.
        squares_exist = not 0.0 < size < np.inf or 1e-120 < size < 1e120
        return 1.0 if squares_exist else size


def _require_same(name: str, alone: FloatArray, among: FloatArray, tolerance: float) -> None:
    """One product, asked for alone and as the first of several."""
    away = extended.length(among - alone)
    if away > tolerance * extended.length(alone):
        raise InputError(
            f"X: {name} of several vectors must be that of each of them, got a difference of "
            f"{away:.1e} where its size is {extended.length(alone):.1e}. Let {name} return a new "
            "array each time, not one that is written to again; or mend matmat and rmatmat."
        )


def _half_of_the_digits(dtype: Any) -> float:
    """To which two products agree: far above rounding, far below any wrong sign or scale."""
    precision = dtype if np.dtype(dtype).kind == "f" else np.float64
    return float(np.sqrt(np.finfo(precision).eps))
