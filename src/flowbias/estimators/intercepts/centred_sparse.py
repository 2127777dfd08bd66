"""A large sparse X less the means of its columns, without being filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.designs import Design
from flowbias.designs.dense import PIECE_NUMBERS, DenseBlock
from flowbias.designs.sparse import SparseBlock, SparseDesign
from flowbias.estimators.intercepts.samples import CANCELLED
from flowbias.ground.extended import column_parts
from flowbias.ground.typing import FloatArray


class CentredBlock(DenseBlock):
    """Some columns of X - e m^T."""

    def __init__(self, block: SparseBlock, e: FloatArray, m: FloatArray) -> None:
        self.values, self.columns, self.n = block.values, block.columns, block.n
        self.block, self.e, self.m = block, e, m

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // self.n)):
            yield part, self.values[:, part].toarray() - np.outer(self.e, self.m[part])

    def apply(self, w: FloatArray) -> FloatArray:
        return self.block.apply(w) - np.multiply.outer(self.e, self.m @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return self.block.adjoint(dual) - np.multiply.outer(self.m, self.e @ dual)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        # Means in units of the largest: their squares may leave the double range.
        size = float(np.abs(self.m).max()) or 1.0
        m, e = self.m / size, row_scale * (size * self.e)
        across = np.outer(row_scale * self.block.apply(weights * m), e)
        total = self.block.gram(weights, row_scale) - across - across.T
        return total + float(weights @ m**2) * np.outer(e, e)


class CentredSparseDesign(Design):
    """X less the means m of its columns, which would fill it: X - e m^T, as that.

    Products and X diag(c) X^T, which the solver takes at every step, are those of X and a
    correction of rank one. The few that a certificate takes besides go through dense pieces.
    """

    kind = "centred sparse"

    def __init__(self, X: Any, e: FloatArray, m: FloatArray) -> None:
        self.sparse, self.e, self.m = SparseDesign(X), e, m
        self.n, self.d = self.sparse.shape

    @property
    def dense_shape(self) -> tuple[int, int]:
        return self.sparse.dense_shape

    def blocks(self) -> Iterator[CentredBlock]:
        for block in self.sparse.blocks():
            yield CentredBlock(block, self.e, self.m[block.columns])


def varying(X: Any) -> NDArray[np.bool_]:
    """Which columns of a sparse X differ between samples by more than rounding."""
    highest, lowest = (extreme.toarray().ravel() for extreme in (X.max(axis=0), X.min(axis=0)))
    size = np.maximum(np.abs(highest), np.abs(lowest))
    return np.asarray(highest - lowest > CANCELLED * size)
