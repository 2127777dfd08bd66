"""An array on disk, mapped into memory: read in column blocks, never held whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flowbias.designs._base import Design, check_dtype, column_parts
from flowbias.designs.dense import BLOCK_NUMBERS
from flowbias.designs.entries import DenseBlock
from flowbias.designs.mapped_file import MappedFile


class MemoryMappedDesign(Design):
    """X as np.memmap; read from its file where the map says which part of it X is."""

    kind = "memory-mapped"

    def __init__(self, X: np.memmap) -> None:
        check_dtype(X.dtype)
        self.values: Any = MappedFile.of(X) or X
        self.n, self.d = X.shape

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(np.array(self.values[:, part]), part)
