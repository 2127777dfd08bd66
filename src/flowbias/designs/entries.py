"""Blocks whose entries can be looked at: dense arrays of any real type, and sparse matrices.

Products are taken piece by piece, each piece converted to double precision: float32 entries are
exact doubles, so X in float32 is solved as the X in float64 that it equals, and no converted copy
of a whole block exists.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from flowbias.designs._base import Block, column_parts
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

# Numbers converted at a time: small enough for a processor's cache of the second or third level.
PIECE_NUMBERS = 2**18
# Numbers of a dense image of sparse columns.
LIFTED_NUMBERS = 2**20
# Share of nonzero entries above which a piece is multiplied as a dense one: a multiplication in a
# dense product takes a hundredth of the time of one in a sparse product, and n^2 of them are done
# where the sparse one does (n density)^2.
DENSE_ENOUGH = 0.1


class EntriesBlock(Block):
    """Products from pieces: (part of this block's columns, their entries as a double matrix)."""

    @abstractmethod
    def pieces(self) -> Iterator[tuple[slice, Any]]:
        """The block as double matrices of a bounded size, NumPy arrays or sparse ones."""

    def apply(self, w: FloatArray) -> FloatArray:
        return np.asarray(self._summed(w, lambda piece: piece))

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return np.asarray(self._across(dual, lambda piece: piece))

    def absolute_apply(self, w: FloatArray) -> FloatArray:
        """|X| |w|."""
        return np.asarray(self._summed(np.abs(w), abs))

    def absolute_adjoint(self, dual: FloatArray) -> FloatArray:
        """|X|^T |dual|."""
        return np.asarray(self._across(np.abs(dual), abs))

    def extended_apply(self, w: Any) -> Any:
        """X w in extended precision."""
        return self._summed(w.astype(np.longdouble), _extended)

    def extended_adjoint(self, dual: Any) -> Any:
        """X^T dual in extended precision."""
        return self._across(dual.astype(np.longdouble), _extended)

    def _summed(self, w: Any, seen: Callable[[Any], Any]) -> Any:
        total = np.zeros((self.n, *w.shape[1:]), dtype=w.dtype)
        for part, piece in self.pieces():
            total += seen(piece) @ w[part]
        return total

    def _across(self, dual: Any, seen: Callable[[Any], Any]) -> Any:
        out = np.empty((self.width, *dual.shape[1:]), dtype=dual.dtype)
        for part, piece in self.pieces():
            out[part] = seen(piece).T @ dual
        return out

    def quadratic(self, factor: FloatArray) -> FloatArray:
        """||factor x_j||^2 for each column x_j."""
        out = np.empty(self.width)
        for part, piece in self.pieces():
            lifted = factor @ piece
            out[part] = np.einsum("ij,ij->j", lifted, lifted)
        return out


def _extended(piece: Any) -> Any:
    return piece.astype(np.longdouble)


class DenseBlock(EntriesBlock):
    """Columns of an array of any real type."""

    def __init__(self, values: Any, columns: slice) -> None:
        self.values, self.columns, self.n = values, columns, len(values)

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // self.n)):
            yield part, np.asarray(self.values[:, part], dtype=np.float64)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        root = np.sqrt(weights)
        total: FloatArray = np.zeros((self.n, self.n), order="F")
        for part, piece in self.pieces():
            scaled = np.multiply(piece, root[part], order="C")
            scaled *= row_scale[:, None]
            total = _added_square(total, scaled)
        return _both_triangles(total)

    def largest_entries(self) -> FloatArray:
        largest = np.zeros(self.n)
        for part, piece in self.pieces():
            sizes = np.abs(piece).max(axis=1)
            if not np.isfinite(sizes).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(piece))[0])
                place = (row, column + part.start + self.columns.start)
                raise not_finite(piece[row, column], place)
            np.maximum(largest, sizes, out=largest)
        return largest


class SparseBlock(EntriesBlock):
    """Columns of a sparse matrix in compressed-column form."""

    def __init__(self, values: Any, columns: slice) -> None:
        self.values = scipy.sparse.csc_array(values, dtype=np.float64)
        self.columns, self.n = columns, self.values.shape[0]

    def pieces(self) -> Iterator[tuple[slice, Any]]:
        yield slice(0, self.width), self.values

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        scaled = self.values.copy()
        scaled.data *= row_scale[scaled.indices]
        scaled.data *= np.repeat(np.sqrt(weights), np.diff(scaled.indptr))
        if scaled.nnz <= DENSE_ENOUGH * self.n * self.width:
            return np.asarray((scaled @ scaled.T).toarray())
        total: FloatArray = np.zeros((self.n, self.n), order="F")
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // self.n)):
            total = _added_square(total, scaled[:, part].toarray(order="C"))
        return _both_triangles(total)

    def quadratic(self, factor: FloatArray) -> FloatArray:
        # Column by column of X, so that only nonzero entries are multiplied.
        lift = np.ascontiguousarray(factor.T)
        rows = self.values.T
        out = np.empty(self.width)
        for part in column_parts(self.width, max(1, LIFTED_NUMBERS // len(factor))):
            lifted = np.asarray(rows[part] @ lift)
            out[part] = np.einsum("ji,ji->j", lifted, lifted)
        return out

    def largest_entries(self) -> FloatArray:
        bad = np.flatnonzero(~np.isfinite(self.values.data))
        if len(bad):
            column = int(np.searchsorted(self.values.indptr, bad[0], side="right")) - 1
            place = (int(self.values.indices[bad[0]]), column + self.columns.start)
            raise not_finite(self.values.data[bad[0]], place)
        largest = np.zeros(self.n)
        np.maximum.at(largest, self.values.indices, np.abs(self.values.data))
        return largest


def not_finite(value: float, place: tuple[int, int]) -> InputError:
    """The error for an entry that is no number."""
    return InputError(
        f"X: must be finite, got {value} at index {place}. Drop or impute such entries."
    )


def _added_square(total: FloatArray, rows: FloatArray) -> FloatArray:
    """total + rows rows^T, lower triangle: half the work of a general product."""
    return np.asarray(
        scipy.linalg.blas.dsyrk(1.0, rows.T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1)
    )


def _both_triangles(lower: FloatArray) -> FloatArray:
    above = np.triu_indices(len(lower), 1)
    lower[above] = lower.T[above]
    return lower
