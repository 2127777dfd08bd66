"""Coefficients with their names, the largest first: to read, and to make a data frame of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.ground.drawing import COLOURS, INK, picture, shortened
from flowbias.ground.html import table
from flowbias.ground.typing import Axes, Figure, FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientTable:
    """One row per feature, the largest coefficients first, and the intercept last.

    names  of the features in that order, with "(intercept)"
    values  (d + 1, k) for k outputs
    """

    names: tuple[str, ...]
    values: FloatArray

    @classmethod
    def of(cls, coef: FloatArray, intercept: Any, names: Sequence[str] | None) -> CoefficientTable:
        """From what a linear model has; features without names are w[0], w[1], ..."""
        w = np.atleast_2d(coef).T
        order = np.argsort(-np.abs(w).max(axis=1), kind="stable")
        named = [f"w[{i}]" if names is None else str(names[i]) for i in order]
        return cls((*named, "(intercept)"), np.vstack([w[order], np.atleast_1d(intercept)]))

    @property
    def rows(self) -> list[tuple[str | float, ...]]:
        """Name and values of each row, such as a data frame is made of."""
        pairs = zip(self.names, self.values.tolist(), strict=True)
        return [(name, *values) for name, values in pairs]

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The largest coefficients by name; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes, most: int = 20) -> None:
            values = self.values[:-1][:most]
            places = np.arange(len(values))
            for of_output, colour in zip(values.T, COLOURS * values.shape[1], strict=False):
                axes.plot(of_output, places, "o", color=colour)
            axes.axvline(0.0, color=INK, linewidth=0.9)
            names = [shortened(name) for name in self.names[: len(values)]]
            axes.set_yticks(places, names, parse_math=False)
            axes.invert_yaxis()
            axes.set_xlabel("coefficient  w")
            axes.set_ylabel("feature")

        return picture(panel, path=path, ax=ax)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]).rstrip()
            for name, *numbers in cells
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        return table("Coefficients, the largest first", rows, head=head)

    def _cells(self, most: int = 20) -> list[list[str]]:
        """What a screen has room for: the largest, how many are left out, and the intercept."""
        outputs = self.values.shape[1]
        several = [f"of output {k}" for k in range(outputs)]
        head = ["feature", *(["coefficient"] if outputs == 1 else several)]
        cells = [
            [name, *(f"{value: .6g}" for value in values)]
            for name, values in zip(self.names, self.values, strict=True)
        ]
        left = len(cells) - 1 - most
        if left > 1:
            cells = [*cells[:most], [f"... {left} more", *[""] * outputs], cells[-1]]
        return [head, *cells]
