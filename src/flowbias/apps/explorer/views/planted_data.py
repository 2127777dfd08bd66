"""Sparse regression with a planted predictor: what its views share.  [woodworth2020, Section 4]

    x ~ N(0, I_d),   y = <w_true, x> + noise,   w_true has `sparsity` entries, all alike

The population error, that of a new sample less the noise, is ||w - w_true||^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, line, points, stems
from flowbias.apps.explorer.view import Slider
from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.ground.typing import FloatArray

SPARSITY = Slider("sparsity", "Non-zero entries r of the truth", 1, 20, 1, 5)
NOISE = Slider("noise", "Noise (standard deviation)", 0.0, 0.5, 0.05, 0.1)
SEED = Slider("seed", "Seed of the data", 0, 50, 1, 0)


@dataclass(frozen=True)
class PlantedData:
    """Which data are drawn; equal ones are the same data."""

    n: int
    d: int
    sparsity: int
    noise: float
    seed: int

    def draw(self) -> SparseRegression:
        return sparse_regression(self.n, self.d, self.sparsity, self.noise**2, self.seed)

    def code(self) -> str:
        """The lines that draw the same data."""
        return (
            "X, y, w_true = fb.datasets.sparse_regression(\n"
            f"    n={self.n}, d={self.d}, sparsity={self.sparsity}, "
            f"noise_var={self.noise!r} ** 2, rng={self.seed}\n)"
        )


#: Small enough to be solved while a slider moves; shown where nothing else was asked for.
EXAMPLE = PlantedData(n=20, d=40, sparsity=3, noise=0.1, seed=0)


def population_error(w: FloatArray, w_true: FloatArray) -> FloatArray:
    """||w - w_true||^2 of each row of w."""
    return np.asarray(np.square(w - w_true).sum(axis=-1))


CURVES = (
    Mark("others", "line", {"x": "x", "y": "y", "color": Hue.FRAME, "alpha": 0.6}, "others"),
    line("support", Hue.TRUTH, "in the truth", 3),
)
AGAINST_TRUTH = Chart(
    "The predictor at the cursor",
    "One stem per coordinate with the coefficient at the cursor; "
    "hollow squares mark the non-zero coefficients of the truth.",
    "coordinate i",
    "coefficient wᵢ",
    (
        stems("w"),
        points("w", "circle", Hue.FLOW, 5, "w, the flow", 1.0, line_width=1),
        points("truth", "square", Hue.TRUTH, 11, "w*, the truth"),
    ),
)


def curves(x: FloatArray, w: FloatArray, w_true: FloatArray) -> Data:
    """All coefficients against x, those of the truth apart; w has one row per x."""
    on_support = w_true != 0.0
    return {"support": bundled(x, w[:, on_support]), "others": bundled(x, w[:, ~on_support])}


def bundled(x: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Curves over x, one per column of w, as one with gaps: far quicker to draw than many."""
    gaps = np.full((1, w.shape[1]), np.nan)
    return np.tile(np.append(x, np.nan), w.shape[1]), np.vstack([w, gaps]).T.ravel()


def against_truth(w: FloatArray, w_true: FloatArray) -> Data:
    """The entries of w, and those of the truth that are not zero."""
    support = np.flatnonzero(w_true)
    return {"w": (np.arange(1, len(w) + 1), w), "truth": (support + 1, w_true[support])}
