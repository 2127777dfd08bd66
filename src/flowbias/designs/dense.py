"""An array of any real type, in memory or mapped from a file: as a whole, or in column blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.designs._base import (
    Design,
    EntriesBlock,
    Task,
    Totals,
    check_dtype,
    not_finite,
)
from flowbias.designs.mapped_file import MappedFile
from flowbias.ground import extended
from flowbias.ground.arguments import refuse_masked
from flowbias.ground.extended import column_parts
from flowbias.ground.typing import FloatArray

# Columns of a block: about this many numbers, so that the vectors that go with them stay small.
BLOCK_NUMBERS = 2**22
# Numbers of a piece, the most that is copied at a time: a few megabytes, so that it stays in the
# caches of a processor.
PIECE_NUMBERS = 2**19
# Lengths of rows whose squares are safely inside the double range, weights included.
ORDINARY_SCALE = 1e50


class DenseBlock(EntriesBlock):
    """Columns of an array of any real type, converted piece by piece."""

    def __init__(self, values: Any, columns: slice) -> None:
        self.values, self.columns, self.n = values, columns, len(values)

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // self.n)):
            yield part, np.asarray(self.values[:, part], dtype=np.float64)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        return both_triangles(gram(self.values, weights, row_scale))

    def largest_entries(self) -> FloatArray:
        largest = np.zeros(self.n)
        for part, piece in self.pieces():
            sizes = np.maximum(piece.max(axis=1), -piece.min(axis=1))
            if not np.isfinite(sizes).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(piece))[0])
                place = (row, column + part.start + self.columns.start)
                raise not_finite(piece[row, column], place)
            np.maximum(largest, sizes, out=largest)
        return largest


class ArrayBlock(DenseBlock):
    """An array of doubles: nothing is converted, and products skip what w does not use."""

    def largest_entries(self) -> FloatArray:
        # What is not finite was refused where the array was read, or is for a certificate to fail.
        return np.asarray(np.maximum(self.values.max(axis=1), -self.values.min(axis=1)))

    def apply(self, w: FloatArray) -> FloatArray:
        return np.asarray(self.values @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return np.asarray(self.values.T @ dual)

    def absolute_apply(self, w: FloatArray) -> FloatArray:
        return extended.absolute_apply(self.values, w)

    def absolute_adjoint(self, dual: FloatArray) -> FloatArray:
        return extended.absolute_adjoint(self.values, dual)

    def quadratic(self, factor: FloatArray) -> FloatArray:
        if self.values.size > PIECE_NUMBERS:
            return super().quadratic(factor)
        lifted = factor @ self.values
        return np.asarray(np.einsum("ij,ij->j", lifted, lifted))

    def extended_apply(self, w: Any) -> Any:
        return extended.apply(self.values, w)

    def extended_adjoint(self, dual: Any) -> Any:
        return extended.adjoint(self.values, dual)


class DenseDesign(Design):
    """X as a NumPy array of any real type, block by block."""

    kind = "dense"

    def __init__(self, X: Any) -> None:
        check_dtype(X.dtype)
        refuse_masked("X", X)
        self.values = X
        self.n, self.d = X.shape

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(self.values[:, part], part)


class ArrayDesign(Design):
    """X as an array of doubles in memory: one block."""

    kind = "array"
    in_memory: FloatArray

    def __init__(self, X: FloatArray) -> None:
        self.in_memory = X
        self.n, self.d = X.shape
        self.block = ArrayBlock(X, slice(0, self.d))
        self._copy: ArrayDesign | None = None

    def as_it_is(self) -> ArrayDesign:
        """A copy that stays as X is now: the last one, where X has not changed since."""
        if self._copy is None or not np.array_equal(self._copy.in_memory, self.in_memory):
            self._copy = ArrayDesign(self.in_memory.copy())
        return self._copy

    def blocks(self) -> Iterator[ArrayBlock]:
        yield self.block

    def reduce(self, task: Task, *columns: Any) -> Totals:
        totals: Totals = task(self.block, *columns)
        return totals

    def gather(self, task: Task, *columns: Any) -> FloatArray:
        return np.asarray(task(self.block, *columns))


class MemoryMappedDesign(DenseDesign):
    """X as np.memmap; read from its file where the map says which part of it X is."""

    kind = "memory-mapped"

    def __init__(self, X: np.memmap) -> None:
        super().__init__(X)
        self.values = MappedFile.of(X) or X

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(np.array(self.values[:, part]), part)


def gram(rows: Any, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
    """Lower triangle of diag(r) rows diag(weights) rows^T diag(r), in column blocks."""
    root = np.sqrt(weights)
    # Rows of ordinary size are scaled at the end, on n^2 entries instead of n d.
    late = bool(row_scale.max() < ORDINARY_SCALE and row_scale.min() > 1.0 / ORDINARY_SCALE)

    def scaled(part: slice) -> FloatArray:
        piece: FloatArray = np.multiply(rows[:, part], root[part], order="C", dtype=np.float64)
        if not late:
            piece *= row_scale[:, None]
        return piece

    total = summed_squares(rows.shape, scaled)
    if late:
        total *= row_scale
        total *= row_scale[:, None]
    return total


def summed_squares(shape: tuple[int, int], piece: Callable[[slice], FloatArray]) -> FloatArray:
    """Lower triangle of the sum of P P^T over pieces P of some columns.

    One symmetric rank-k update per piece: half the work of a general product, and memory beyond
    the result is one piece, never a second X.
    """
    n, d = shape
    total: FloatArray = np.zeros((n, n), order="F")
    for part in column_parts(d, max(1, min(d, PIECE_NUMBERS // n + 1))):
        total = scipy.linalg.blas.dsyrk(
            1.0, piece(part).T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1
        )
    return total


def both_triangles(lower: FloatArray) -> FloatArray:
    """A symmetric matrix from its lower triangle, where the upper one is zero."""
    whole = lower + lower.T
    whole.flat[:: len(lower) + 1] *= 0.5
    return whole
