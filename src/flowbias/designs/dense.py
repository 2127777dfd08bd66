"""An array in memory, of any real type: read in blocks, converted block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowbias.designs._base import Design, check_dtype, column_parts, refuse_masked
from flowbias.designs.entries import DenseBlock

# Columns of a block: about this many numbers, so that the vectors that go with them stay small.
BLOCK_NUMBERS = 2**22


class DenseDesign(Design):
    """X as a NumPy array."""

    kind = "dense"

    def __init__(self, X: Any) -> None:
        check_dtype(X.dtype)
        refuse_masked("X", X)
        self.values = X
        self.n, self.d = X.shape

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(self.values[:, part], part)
