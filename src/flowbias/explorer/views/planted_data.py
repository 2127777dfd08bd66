"""Sparse regression with a planted predictor: what its views share.  [woodworth2020, Section 4]

    x ~ N(0, I_d),   y = <w_true, x> + noise,   w_true has `sparsity` entries, all alike

The population error, that of a new sample less the noise, is ||w - w_true||^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowbias._typing import FloatArray
from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.explorer.controls import Slider
from flowbias.explorer.drawing import FLOW, FRAME, TRUTH, legend_above, new_figure
from flowbias.explorer.view import Drawn, Settings
from flowbias.explorer.views.proof_words import distance_words
from flowbias.solution import Solution

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure

SPARSITY = Slider("sparsity", "Non-zero entries r of the truth", 1, 20, 1, 5)
NOISE = Slider("noise", "Noise (standard deviation)", 0.0, 0.5, 0.05, 0.1)
SEED = Slider("seed", "Seed of the data", 0, 50, 1, 0)


@dataclass(frozen=True)
class Planted:
    """Which data are drawn; equal ones are the same data."""

    n: int
    d: int
    sparsity: int
    noise: float
    seed: int

    @classmethod
    def of(cls, settings: Settings) -> Planted:
        return cls(
            n=int(settings["n"]),
            d=int(settings["d"]),
            sparsity=int(settings["sparsity"]),
            noise=float(settings["noise"]),
            seed=int(settings["seed"]),
        )

    def draw(self) -> SparseRegression:
        return sparse_regression(self.n, self.d, self.sparsity, self.noise**2, self.seed)

    def code(self) -> str:
        """The lines that draw the same data."""
        return (
            "X, y, w_true = fb.datasets.sparse_regression(\n"
            f"    n={self.n}, d={self.d}, sparsity={self.sparsity}, "
            f"noise_var={self.noise!r} ** 2, rng={self.seed}\n)"
        )


def population_error(w: FloatArray, w_true: FloatArray) -> FloatArray:
    """||w - w_true||^2 of each row of w."""
    return np.asarray(np.square(w - w_true).sum(axis=-1))


def proof_of(solution: Solution) -> str:
    """How the solve ended, and what is proved of its result."""
    return f"{solution.message}; {distance_words(solution)}"


def empty_source(*columns: str) -> ColumnDataSource:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({column: [] for column in columns})


class Coefficients:
    """All coefficients against something, those of the truth thick."""

    def __init__(self, plot: figure) -> None:
        self._support, self._rest = empty_source("x", "w"), empty_source("x", "w")
        self.lines = (
            plot.line("x", "w", source=self._rest, color=FRAME, alpha=0.6, legend_label="others"),
            plot.line(
                "x",
                "w",
                source=self._support,
                color=TRUTH,
                line_width=3,
                legend_label="in the truth",
            ),
        )

    def show(self, x: FloatArray, w: FloatArray, w_true: FloatArray) -> None:
        """w has one row per x."""
        on_support = w_true != 0.0
        for source, chosen in ((self._support, on_support), (self._rest, ~on_support)):
            curves = w[:, chosen].T
            source.data = {"x": _joined(np.tile(x, (len(curves), 1))), "w": _joined(curves)}


def _joined(curves: FloatArray) -> FloatArray:
    """Curves, one per row, as one sequence with gaps: far quicker to draw than many lines."""
    gaps = np.full((len(curves), 1), np.nan)
    return np.hstack([curves, gaps]).ravel()


class AgainstTruth:
    """The entries of w as stems, with those of the truth."""

    def __init__(self, heading: str) -> None:
        self._stems, self._truth = empty_source("i", "w"), empty_source("i", "w")
        plot = new_figure("coordinate i", "coefficient wᵢ", height=300)
        plot.segment("i", 0, "i", "w", source=self._stems, color=FLOW, line_width=1.5)
        plot.scatter("i", "w", source=self._stems, color=FLOW, size=5, legend_label="w, the flow")
        plot.scatter(
            "i",
            "w",
            source=self._truth,
            marker="square",
            size=11,
            line_width=2,
            line_color=TRUTH,
            fill_color=None,
            legend_label="w*, the truth",
        )
        legend_above(plot)
        self.drawn = Drawn(
            heading,
            "One stem per coordinate with the coefficient at the cursor; "
            "hollow squares mark the non-zero coefficients of the truth.",
            plot,
        )

    def show(self, w: FloatArray, w_true: FloatArray) -> None:
        support = np.flatnonzero(w_true)
        self._stems.data = {"i": np.arange(1, len(w) + 1), "w": w}
        self._truth.data = {"i": support + 1, "w": w_true[support]}
