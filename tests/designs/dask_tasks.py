"""What the tests of the Dask design share: tasks that workers can import, and data for them."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flowbias.designs import Totals

N, D = 6, 40


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


def data(d=D, dtype=np.float64, seed=0):
    """Some X, and a task on it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)).astype(dtype)
    return X, Sums(rng.normal(size=N), rng.uniform(size=d))


def assert_same_sums(totals, expected):
    product, gram, largest = expected
    # Sums of at most a few hundred products, in another order: some roundings of the largest.
    for total, whole in zip(totals.sums, (product, gram), strict=True):
        np.testing.assert_allclose(total, whole, rtol=0, atol=1e-14 * (1 + np.abs(whole).max()))
    np.testing.assert_allclose(totals.largest[0], largest, rtol=1e-13)
