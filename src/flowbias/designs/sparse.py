"""A scipy.sparse matrix of any format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from flowbias.designs._base import Design, EntriesBlock, check_dtype, not_finite
from flowbias.designs.dense import both_triangles, summed_squares
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import column_parts
from flowbias.ground.typing import FloatArray

# Columns of a block: the vectors that go with them, a dozen at a time, stay within megabytes.
BLOCK_COLUMNS = 2**16
# Numbers of a dense image of sparse columns.
LIFTED_NUMBERS = 2**20


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
        # A multiplication in a dense product takes a hundredth of the time of one in a sparse
        # product, and n^2 of them are done where the sparse one does (n density)^2.
        if scaled.nnz <= 0.1 * self.n * self.width:
            return np.asarray((scaled @ scaled.T).toarray())
        return both_triangles(
            summed_squares(scaled.shape, lambda part, out: scaled[:, part].toarray(out=out))
        )

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


class SparseDesign(Design):
    """X in compressed-column form: the one copy that other formats cost."""

    kind = "sparse"

    def __init__(self, X: Any) -> None:
        check_dtype(X.dtype)
        self.values = scipy.sparse.csc_array(sound(X))
        # The products do not mind entries given in parts, but the largest entry would. A copy,
        # because the numbers may still be the user's.
        if not self.values.has_canonical_format:
            self.values = self.values.copy()
            self.values.sum_duplicates()
        self.n, self.d = X.shape

    @property
    def entries(self) -> int:
        return int(self.values.nnz)

    @property
    def dense_shape(self) -> tuple[int, int]:
        # Sparse products take one thread, and those of n x n matrices are soon done.
        return self.n, 0

    def blocks(self) -> Iterator[SparseBlock]:
        for part in column_parts(self.d, BLOCK_COLUMNS):
            yield SparseBlock(self.values[:, part], part)


def sound(X: Any) -> Any:
    """X; InputError where its indices point outside of it, which products would not notice."""
    if X.format in ("csc", "csr", "bsr"):
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise InputError(
                f"X: must be a sound sparse matrix, got indices that are not: {error}. "
                "Make it anew from its entries: scipy.sparse.coo_array((values, (rows, columns)))."
            ) from error
    return X


def as_dense(matrix: Any) -> Any:
    """A sparse matrix as an array; anything else as it is."""
    return sound(matrix).toarray() if scipy.sparse.issparse(matrix) else matrix
