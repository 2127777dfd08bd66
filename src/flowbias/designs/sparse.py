"""A scipy.sparse matrix of any format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scipy.sparse

from flowbias.designs._base import Design, check_dtype, column_parts
from flowbias.designs.entries import SparseBlock
from flowbias.ground.arguments import InputError

# Columns of a block: the vectors that go with them, a dozen at a time, stay within megabytes.
BLOCK_COLUMNS = 2**16


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
