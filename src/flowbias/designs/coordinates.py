"""A potential and a start, cut down to some of their coordinates."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
