"""Measures against what they may be at most: how certificates show and draw themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flowbias.ground.drawing import COLOURS, INK, RED, picture
from flowbias.ground.html import table
from flowbias.ground.typing import Axes, Figure


class Measure(NamedTuple):
    """A number that proves something by being small; `allowed` is None where nothing is judged."""

    name: str
    value: float
    allowed: float | None = None

    @property
    def ok(self) -> bool:
        # NaN compares false: what could not be measured proves nothing.
        return self.allowed is None or bool(self.value <= self.allowed)


class Measured(ABC):
    """A certificate: `ok` where every measure that is judged is as small as it must be."""

    @property
    @abstractmethod
    def measures(self) -> tuple[Measure, ...]:
        """What is judged against what it may be at most; then what is only known."""

    @property
    def ok(self) -> bool:
        return all(measure.ok for measure in self.measures)

    @property
    def failing(self) -> str:
        """The measures that are too large, with what they may be at most."""
        failed = (m for m in self.measures if not m.ok)
        return ", ".join(f"{m.name} {m.value:.1e} where {m.allowed:.0e} is allowed" for m in failed)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Each measure beside what it may be; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            axes.set_title(self._verdict)
            draw_measures(axes, self.measures)

        return picture(panel, path=path, ax=ax)

    @property
    def _verdict(self) -> str:
        return f"{type(self).__name__}: {'ok' if self.ok else 'NOT ok'}"

    def _repr_html_(self) -> str:
        return _measures_table(self._verdict, self.measures)


def _measures_table(caption: str, measures: Sequence[Measure]) -> str:
    """Name, value, what it may be, and whether it is."""
    return table(
        caption,
        [
            (
                measure.name,
                f"{measure.value:.1e}",
                "" if measure.allowed is None else f"{measure.allowed:.1e}",
                "" if measure.allowed is None else "yes" if measure.ok else "NO",
            )
            for measure in measures
        ],
        head=("measure", "value", "at most", "holds"),
    )


def draw_measures(axes: Axes, measures: Sequence[Measure]) -> None:
    """One row per measure on a logarithmic axis: a dot for the value, a bar for what it may be.

    A value of zero is written at the left end, one that is no number too: neither has a logarithm.
    """
    from matplotlib.ticker import LogLocator

    drawn = [
        number
        for measure in measures
        for number in (measure.value, measure.allowed)
        if number is not None and 0.0 < number < np.inf
    ]
    low = min(drawn, default=1e-16) / 100.0
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(numticks=6))  # as many as stand apart on one panel
    axes.set_xlim(low, 100.0 * max(drawn, default=1.0))
    for row, measure in enumerate(measures):
        colour = COLOURS[0] if measure.ok else RED
        if 0.0 < measure.value < np.inf:
            axes.hlines(row, low, measure.value, color=colour, linewidth=1.2)
            axes.plot([measure.value], [row], "o" if measure.ok else "X", color=colour, ms=9)
        else:
            axes.annotate(f"{measure.value:g}", (low, row), (4, 4), textcoords="offset points")
        if measure.allowed is not None:
            axes.plot([measure.allowed], [row], "|", color=INK, ms=22, mew=1.6)
    axes.set_yticks(range(len(measures)), [measure.name for measure in measures])
    axes.set_ylim(len(measures) - 0.5, -0.5)
    axes.set_xlabel("measured (dot), at most (bar)")
