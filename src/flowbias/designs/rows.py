"""Tasks about the rows of X alone, without a potential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from flowbias._typing import FloatArray
from flowbias.designs._base import Totals


@dataclass(frozen=True)
class Uniform:
    """A task that knows nothing per coordinate."""

    def on(self, columns: slice) -> Self:
        return self


@dataclass(frozen=True)
class RowSizes(Uniform):
    """Largest entry of each row; finds those that are not finite."""

    def __call__(self, block: Any) -> Totals:
        return Totals(largest=(block.largest_entries(),))


@dataclass(frozen=True)
class RowGram(Uniform):
    """A A^T for the rescaled rows A."""

    row_scale: FloatArray

    def __call__(self, block: Any) -> Totals:
        return Totals((block.gram(np.ones(block.width), self.row_scale),))


@dataclass(frozen=True)
class RowProducts(Uniform):
    """Squared lengths of X^T u for each column u of `duals`."""

    duals: FloatArray

    def __call__(self, block: Any) -> Totals:
        return Totals((np.square(block.adjoint(self.duals)).sum(axis=0),))
