"""What every design must do, checked against the array that it stands for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

from flowbias.designs import Totals
from flowbias.designs.tasks import PlainRows, Uniform

# Sums over blocks in another order: a few roundings of the largest term.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Everything(Uniform):
    """One of each product that a block offers."""

    dual: Any
    duals: Any
    row_scale: Any
    has_entries: bool

    def __call__(self, block, w):
        z = block.adjoint(self.dual)
        several = block.adjoint(self.duals)
        sums = [
            block.apply(w),
            block.apply(np.column_stack([w, z])),
            block.gram(np.abs(w), self.row_scale),
            several.T @ np.abs(w),
            block.width,
        ]
        if self.has_entries:
            sums += [
                block.absolute_apply(w),
                np.sum(block.absolute_adjoint(self.dual) * w),
                np.asarray(block.extended_apply(w), float),
                np.asarray(block.extended_adjoint(self.dual) @ w, float),
                np.sum(block.quadratic(self.duals.T) * w),
            ]
        return Totals(tuple(sums), (np.abs(z).max(),))


@dataclass(frozen=True)
class Columns(Uniform):
    """Which columns a block says it has, and X^T dual there."""

    dual: Any

    def __call__(self, block, *parts):
        where = np.arange(block.columns.start, block.columns.stop)
        return where + block.adjoint(self.dual) + sum(parts)


def check_design(design, X):
    """Shapes, every product, sums over blocks and columns gathered in their order."""
    X = np.asarray(X, dtype=float)
    n, d = X.shape
    assert design.shape == (n, d)
    rng = np.random.default_rng(0)
    dual, w, duals = rng.standard_normal(n), rng.standard_normal(d), rng.standard_normal((n, 3))
    row_scale = rng.uniform(0.5, 2.0, n)
    found = design.reduce(Everything(dual, duals, row_scale, design.has_entries), w)
    scaled = row_scale[:, None] * X
    z = X.T @ dual
    wanted = [
        X @ w,
        X @ np.column_stack([w, z]),
        (scaled * np.abs(w)) @ scaled.T,
        (X.T @ duals).T @ np.abs(w),
        d,
    ]
    if design.has_entries:
        wanted += [
            np.abs(X) @ np.abs(w),
            (np.abs(X).T @ np.abs(dual)) @ w,
            X @ w,
            z @ w,
            np.square(duals.T @ X).sum(axis=0) @ w,
        ]
    size = float(np.abs(X).max()) * np.sqrt(n * d) + 1.0
    for got, want in zip(found.sums, wanted, strict=True):
        assert_allclose(np.asarray(got), want, rtol=ROUNDING, atol=ROUNDING * size**2 * 10)
    assert_allclose(found.largest[0], np.abs(z).max(), rtol=ROUNDING)
    gathered = np.asarray(design.gather(Columns(dual), w))
    assert_allclose(gathered, np.arange(d) + z + w, rtol=ROUNDING, atol=ROUNDING * size)
    if design.has_entries:
        sizes = design.reduce(PlainRows()).largest[0]
        assert_allclose(sizes, np.abs(X).max(axis=1), rtol=0)
