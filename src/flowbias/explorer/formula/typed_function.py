"""A formula as the function F(theta) that `derive` takes: which names, where, starting from what.

theta holds the vectors of the formula, d entries each, and then its scalars.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.formula.parser import SCALARS, VECTORS, parse
from flowbias.explorer.formula.tree import PYTHON, Node


@dataclass(frozen=True)
class TypedFunction:
    """w = F(theta) for d predictors."""

    tree: Node
    d: int

    @classmethod
    def of(cls, text: str, d: int) -> TypedFunction:
        """From what the reader typed; InputError where that is no formula."""
        return cls(parse(text), d)

    def __call__(self, theta: Any) -> Any:
        """The predictor at a tensor of parameters."""
        return self.tree.value({name: theta[place] for name, place in self.places()})

    @property
    def vectors(self) -> tuple[str, ...]:
        """The vectors in it, in the order of theta."""
        used = set(self.tree.names())
        return tuple(name for name in VECTORS if name in used)

    @property
    def scalars(self) -> tuple[str, ...]:
        """The scalars in it, in the order of theta."""
        used = set(self.tree.names())
        return tuple(name for name in SCALARS if name in used)

    @property
    def separates(self) -> bool:
        """Whether every coordinate has parameters of its own."""
        return not self.scalars

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """u1, u2, ..., a: one per entry of theta."""
        numbered = (f"{name}{i + 1}" for name in self.vectors for i in range(self.d))
        return (*numbered, *self.scalars)

    def start(self, scale: float, ratio: float) -> FloatArray:
        """The first vector at `scale`, all other parameters at `ratio` times that."""
        theta = np.full(len(self.parameter_names), scale * ratio)
        theta[: self.d] = scale
        return theta

    def source(self) -> str:
        """The same function as Python, for people to copy."""
        lines = ["def F(theta):"]
        for name, place in self.places():
            index = place if isinstance(place, int) else f"{place.start}:{place.stop}"
            lines.append(f"    {name} = theta[{index}]")
        return "\n".join([*lines, f"    return {self.tree.written(PYTHON)}"])

    def places(self) -> Iterator[tuple[str, int | slice]]:
        """Each name with its entries of theta."""
        place = 0
        for name in self.vectors:
            yield name, slice(place, place + self.d)
            place += self.d
        for name in self.scalars:
            yield name, place
            place += 1
