"""Tasks that visit blocks in the tests of the Dask design; picklable, for workers that import."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flowbias.designs import Totals


@dataclass(frozen=True)
class Sums:
    """X z, X diag(c) X^T and max |z| for z = c X^T dual, c one weight per column."""

    dual: np.ndarray
    weights: np.ndarray

    def on(self, columns):
        return replace(self, weights=self.weights[columns])

    def __call__(self, block, *parts):
        block.largest_entries()
        z = self.weights * block.adjoint(self.dual) + sum(parts)
        gram = block.gram(self.weights, np.ones(block.n))
        return Totals((block.apply(z), gram), (np.abs(z).max(),))

    def expected(self, X, *columns):
        z = self.weights * (X.T @ self.dual) + sum(columns)
        return X @ z, (X * self.weights) @ X.T, np.abs(z).max()


@dataclass(frozen=True)
class Numbers:
    """X^T dual plus the columns handed in: one number per column."""

    dual: np.ndarray

    def on(self, columns):
        return self

    def __call__(self, block, *parts):
        return block.adjoint(self.dual) + sum(parts)


@dataclass(frozen=True)
class SlowSums(Sums):
    """The same, slowly, telling a folder that it has begun."""

    folder: Path
    seconds: float = 0.1

    def __call__(self, block, *parts):
        (self.folder / f"{os.getpid()}-{block.columns.start}").touch()
        time.sleep(self.seconds)
        return super().__call__(block, *parts)
