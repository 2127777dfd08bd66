"""What may be asked of blocks: what a task knows per coordinate, and tasks about the rows of X."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from flowbias.designs._base import Design, Totals
from flowbias.designs.dense import can_wait
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import column_parts, row_units
from flowbias.ground.typing import FloatArray, Indices, Mask
from flowbias.potentials import Potential, Provides


@dataclass(frozen=True)
class Coordinates:
    """What is known per coordinate: the potential, and the dual point of the start."""

    potential: Potential
    shift: FloatArray | float
    d: int

    @property
    def provides(self) -> frozenset[Provides]:
        """A potential and a start are all that a limit needs of a model."""
        return self.potential.provides

    def on(self, columns: slice | Mask | Indices) -> Coordinates:
        """The same for these coordinates alone; itself where all coordinates are alike."""
        potential = _cut(self.potential, columns, self.d)
        shift = _cut(self.shift, columns, self.d)
        if potential is self.potential and shift is self.shift:
            return self
        count = len(np.arange(self.d)[columns])
        return replace(self, potential=potential, shift=shift, d=count)


def _cut(value: Any, columns: slice | Mask | Indices, d: int) -> Any:
    """`value` with every array of length d that it holds cut down; itself where it holds none."""
    if isinstance(value, np.ndarray):
        return value[columns] if value.shape == (d,) and d > 1 else value
    if isinstance(value, tuple):
        parts = [_cut(part, columns, d) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        # Named tuples are made from a list by a method of their own.
        return getattr(type(value), "_make", tuple)(parts)
    held = getattr(value, "__dict__", {})
    cut = {name: _cut(part, columns, d) for name, part in held.items()}
    if all(cut[name] is part for name, part in held.items()):
        return value
    out = copy.copy(value)
    out.__dict__.update(cut)
    return out


@dataclass(frozen=True)
class Uniform:
    """A task that knows nothing per coordinate."""

    def on(self, columns: slice) -> Self:
        return self


@dataclass(frozen=True)
class PerCoordinate:
    """A task that knows the potential of its coordinates."""

    coordinates: Coordinates

    def on(self, columns: slice) -> Self:
        cut = self.coordinates.on(columns)
        return self if cut is self.coordinates else replace(self, coordinates=cut)


@dataclass(frozen=True)
class RowGram(Uniform):
    """A A^T for the rescaled rows A."""

    row_scale: FloatArray

    def __call__(self, block: Any) -> Totals:
        return Totals((block.gram(np.ones(block.width), self.row_scale),))


@dataclass(frozen=True)
class PlainRows(Uniform):
    """Largest entry of each row, which finds those that are not finite, and X X^T."""

    @np.errstate(all="ignore")
    def __call__(self, block: Any) -> Totals:
        largest = block.largest_entries()
        return Totals((block.gram(np.ones(block.width), np.ones(block.n)),), (largest,))


@dataclass(frozen=True)
class RowProducts(Uniform):
    """Squared lengths of X^T u for each column u of `duals`."""

    duals: FloatArray

    def __call__(self, block: Any) -> Totals:
        squares = [np.square(some).sum(axis=0) for some in _combined(block, self.duals)]
        return Totals((np.concatenate([np.zeros(0), *squares]),))


@dataclass(frozen=True)
class RowImages(Uniform):
    """X X^T u for each column u of `duals`."""

    duals: FloatArray

    def __call__(self, block: Any) -> Totals:
        images = [block.apply(some) for some in _combined(block, self.duals)]
        return Totals((np.column_stack(images),))


def _combined(block: Any, duals: FloatArray) -> Iterator[FloatArray]:
    """X^T u for a few columns u at a time, a million numbers."""
    for some in column_parts(duals.shape[1], max(1, 2**20 // block.width)):
        yield block.adjoint(duals[:, some])


def sizes_and_products(design: Design) -> tuple[FloatArray, FloatArray]:
    """The largest entry of each row, and A A^T for the rows A in units of these.

    In one pass over X, where no square of an entry is far from one; else in two.
    """
    plain = design.reduce(PlainRows())
    sizes = np.asarray(plain.largest[0])
    scale = 1.0 / row_units(sizes)
    if can_wait(scale):
        return sizes, _finite(plain.sums[0] * scale * scale[:, None])
    return sizes, _finite(np.asarray(design.reduce(RowGram(scale)).sums[0]))


def _finite(products: FloatArray) -> FloatArray:
    if not np.isfinite(products).all():
        row = int(np.flatnonzero(~np.isfinite(products).all(axis=1))[0])
        raise InputError(
            f"X: must be finite, got products with row {row} that are not. "
            "Check what the operator returns, and the size of its entries."
        )
    return products


def dependence(
    design: Design, scale: FloatArray, kept: FloatArray, values: FloatArray, dropped: FloatArray
) -> tuple[FloatArray, float]:
    """Combinations u of the rows diag(scale) X, orthonormal, that vanish; and how far they do not.

    `kept` (with eigenvalues `values`) and `dropped` are eigenvectors of the Gram matrix of those
    rows. Its rounding turns `dropped` towards `kept`, by the squared condition number of the rows:
    enough to spoil a projection. Products with X see by how much, and undo it. The distance is that
    from zero, relative to the longest combination.
    """
    last = np.inf
    # Each takes off a factor of the relative gap between kept and dropped eigenvalues, 10 or more:
    # so many from any start to the last digits.
    for _ in range(16):
        images = design.reduce(RowImages(scale[:, None] * dropped)).sums[0]
        turned = kept.T @ (scale[:, None] * images) / values[:, None]
        dropped, _ = np.linalg.qr(dropped - kept @ turned)
        largest = float(np.abs(turned).max(initial=0.0))
        # A turn of this size is rounding: one more would not take anything off.
        if largest <= 1e-14 or largest > last / 2.0:
            break
        last = largest
    squares = design.reduce(RowProducts(scale[:, None] * dropped)).sums[0]
    return dropped, float(np.sqrt(squares.max() / values.max()))


def noise_of_rows(shape: tuple[int, int]) -> float:
    """Rows count as dependent up to this distance: that of rounding, the same as for a dense X.

    A wider one would leave rows that are dependent here and not there, with another limit each.
    """
    return max(shape) * float(np.finfo(float).eps)
