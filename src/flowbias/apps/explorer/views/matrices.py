"""Matrix completion: width and scale of the start decide together, through alpha^2 k.

The flow on U V^T [woodworth2020, section 6, Figure 5] is followed in the Gram matrix of the rows:
width 10^6 costs what width 10 costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, labels, points
from flowbias.apps.explorer.view import Settings, Slider, View, chosen, scale_slider
from flowbias.apps.explorer.views.planted_data import SEED
from flowbias.datasets.planted import LowRankCompletion, low_rank_completion
from flowbias.experiments.woodworth.completion import RESIDUAL, Ending, ending, nuclear
from flowbias.ground.html import power_of_ten
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.spectral import nuclear_norm
from flowbias.models.factorization import MatrixFactorization
from flowbias.problems.matrix import MatrixCompletion

# Rows and columns, and columns between two matrices of the picture.
MATRIX_SIDE, GAP = 10, 2


def width_of(log_width: float) -> int:
    """The width k at a position of its slider."""
    return int(np.rint(10.0**log_width))


@dataclass(frozen=True)
class Seen:
    """Which data are drawn."""

    rank: int
    observed: int
    seed: int

    @cached_property
    def data(self) -> LowRankCompletion:
        return low_rank_completion((MATRIX_SIDE, MATRIX_SIDE), self.rank, self.observed, self.seed)

    @cached_property
    def problem(self) -> MatrixCompletion:
        data = self.data
        return MatrixCompletion(data.rows, data.cols, data.values, (MATRIX_SIDE, MATRIX_SIDE))

    @property
    def zero_filled(self) -> FloatArray:
        """Seen entries as they are, zero elsewhere: least Frobenius norm."""
        return np.where(self.problem.mask, self.data.truth, 0.0)


@dataclass(frozen=True)
class MatricesScene:
    """Truth, start and end of the flow."""

    seen: Seen
    scale: float
    width: int
    end: Ending
    # Least nuclear norm with its matrix, or why there is none.
    least_nuclear: FloatArray | None
    missing: str

    @property
    def level(self) -> float:
        """alpha^2 k, which decides the regime."""
        return self.scale**2 * self.width

    @property
    def truth(self) -> FloatArray:
        return self.seen.data.truth

    @property
    def mask(self) -> Mask:
        """True where an entry is seen."""
        return self.seen.problem.mask

    @property
    def moved(self) -> float:
        """How far unseen entries have moved, over their size in the truth."""
        return self._unseen(self.end.M - self.end.start)

    @property
    def off(self) -> float:
        """How far unseen entries are from the truth, over their size there."""
        return self._unseen(self.end.M - self.truth)

    @property
    def excess(self) -> float | None:
        """Nuclear norm from the least possible (0) to that of the least Frobenius norm (1)."""
        if self.least_nuclear is None:
            return None
        least, most = nuclear(self.least_nuclear), nuclear(self.seen.zero_filled)
        return (nuclear(self.end.M) - least) / (most - least)

    def _unseen(self, M: FloatArray) -> float:
        unseen = ~self.mask
        return float(np.linalg.norm(M[unseen]) / np.linalg.norm(self.truth[unseen]))


# One per data set.
@lru_cache(maxsize=64)
def _least_nuclear(seen: Seen) -> tuple[FloatArray | None, str]:
    """The rich extreme, certified; without its solver the reason, for the page to show."""
    try:
        return nuclear_norm(seen.problem).M, ""
    except ImportError as error:
        return None, str(error)


@cache
def load_solver() -> None:
    """Import what solves for least nuclear norms, and let it solve once."""
    _least_nuclear(Seen(1, 95, 0))


class MatricesView(View[MatricesScene]):
    """Which completion gradient flow on U V^T finds."""

    name = "matrices"
    title = "Width and matrices"
    question = (
        "Some entries of a matrix are seen. When does gradient flow on U Vᵀ find the rest: is it "
        "the scale α of the weights that decides, or the width k?"
    )
    controls = (
        scale_slider(
            *(-3.0, 0.5, 0.1, -2.0), name="log_alpha", label="Scale α of the weights", plays=True
        ),
        Slider("log_width", "Width k", 1.0, 6.0, 0.5, 3.0, lambda x: f"{width_of(x)}"),
        Slider("rank", "Rank of the planted matrix", 1, 3, 1, 1),
        Slider("observed", "Entries seen, of 100", 30, 95, 5, 60),
        SEED,
    )

    charts = (
        Chart(
            "The planted matrix, what is seen of it, and what the flow makes of that",
            "Three squares of 10 by 10 cells side by side, in one colour scale from negative "
            "(blue) over zero (pale) to positive (red). Entries that are not seen are crosses "
            "in the middle square.",
            *("", ""),
            (
                Mark(
                    *("cells", "rect"),
                    {"x": "x", "y": "y", "width": 1, "height": 1, "line_color": None},
                    columns=("x", "y", "value"),
                ),
                points("unseen", "x", Hue.FRAME, 7, line_width=1),
                labels("names", text_align="center"),
            ),
            wide=True,
            framed=False,
            colours="entry of the matrix",
            options={
                "x_range": (-0.7, 3 * MATRIX_SIDE + 2 * GAP - 0.3),
                "y_range": (-0.7, MATRIX_SIDE + 0.9),
            },
        ),
        Chart(
            "Singular values",
            "The ten singular values of the recovered matrix (filled circles), of the truth "
            "(open diamonds), of the least Frobenius norm (open squares) and of the least "
            "nuclear norm (open triangles).",
            "i (number of the singular value)",
            "σᵢ (singular value)",
            (
                points("truth", "diamond", Hue.TRUTH, 15, "truth"),
                points("zero", "square", Hue.KERNEL, 9, "least Frobenius norm"),
                points("nuclear", "triangle", Hue.RICH, 9, "least nuclear norm"),
                points("recovered", "circle", Hue.FLOW, 8, "recovered", 1.0),
            ),
        ),
    )

    def warm_up(self) -> None:
        load_solver()

    def scene(self, settings: Settings) -> MatricesScene:
        """The flow until the seen entries fit; FlowError where it cannot be followed so far."""
        scale, width = 10.0 ** settings["log_alpha"], width_of(settings["log_width"])
        seen = chosen(Seen, settings)
        start = MatrixFactorization.gaussian(
            (MATRIX_SIDE, MATRIX_SIDE), width=width, scale=scale, rng=seen.seed
        )
        with one_thread():
            end = ending(start, seen.problem, residual=RESIDUAL)
            least, missing = _least_nuclear(seen)
        return MatricesScene(seen, scale, width, end, least, missing)

    def data(self, scene: MatricesScene) -> Data:
        truth, end = scene.truth, scene.end.M
        everywhere = np.ones_like(scene.mask)
        panels = ((truth, everywhere), (truth, scene.mask), (end, everywhere))
        cells = [_cells(M, mask, panel) for panel, (M, mask) in enumerate(panels)]
        middle = np.arange(3) * (MATRIX_SIDE + GAP) + 0.5 * (MATRIX_SIDE - 1)
        return {
            # One colour scale for all three, which changes with the data alone.
            "colours": (float(np.abs(truth).max()),),
            "cells": tuple(map(np.concatenate, zip(*cells, strict=True))),
            "unseen": _cells(truth, ~scene.mask, 1)[:2],
            "names": (middle, np.full(3, MATRIX_SIDE - 0.2), ["truth", "observed", "recovered"]),
            "truth": _singular_values(truth),
            "zero": _singular_values(scene.seen.zero_filled),
            "nuclear": _singular_values(scene.least_nuclear),
            "recovered": _singular_values(end),
        }

    def text(self, scene: MatricesScene) -> str:
        return " ".join(
            [
                f"**α²k = {scene.level:.2g}** (α = {power_of_ten(np.log10(scene.scale))}, "
                f"k = {scene.width}).",
                f"Entries that are not seen end {scene.off:.0%} of their size away from the truth, "
                f"and moved by {scene.moved:.0%} of it.",
                f"{_regime(scene)}\n\nThe flow was followed until the seen entries fit to "
                f"{scene.end.residual:.0e}, with the imbalance kept to {scene.end.drift:.0e}: an "
                "integration, not a certificate.",
                scene.missing,
            ]
        )

    def code(self, settings: Settings) -> str:
        return self.script(CODE.format(width=width_of(settings["log_width"]), **settings))


def _cells(M: FloatArray, mask: Mask, panel: int) -> tuple[Any, ...]:
    """Places and values of some entries, the first row on top, as a matrix is written."""
    rows, cols = np.nonzero(mask)
    return cols + panel * (MATRIX_SIDE + GAP), MATRIX_SIDE - 1 - rows, M[mask]


def _singular_values(M: FloatArray | None) -> tuple[Any, ...]:
    values = np.zeros(0) if M is None else np.linalg.svd(M, compute_uv=False)
    return np.arange(1, len(values) + 1), values


def _regime(scene: MatricesScene, little: float = 0.05) -> str:
    # Share of the way between two extremes that counts as nothing, as in the reproduced figure.
    if scene.moved <= little:
        return "They hardly move: the **kernel** regime, in which nothing unseen is learned."
    recovered = "The truth is recovered." if scene.off <= little else ""
    if scene.excess is None:
        return f"{recovered} How rich the end is cannot be said without the least nuclear norm."
    place = (
        f"Its nuclear norm lies {max(scene.excess, 0.0):.0%} of the way from the least one (0%) to "
        "that of the least Frobenius norm (100%)"
    )
    if scene.excess > little:
        return f"{place}. {recovered or _between(scene)}"
    missed = recovered or "The least nuclear norm is not the truth here."
    return f"{place}: the **rich** regime. {missed}"


def _between(scene: MatricesScene) -> str:
    size = scene.scale**2 * np.sqrt(scene.width)
    # Beside entries of the truth, of size 1.
    if size > 0.1:
        return f"The product starts at entries of size α²√k = {size:.2g}: that is not small."
    if scene.excess is not None and scene.excess > 1.0:
        return "That is in neither regime, nor between them."
    return "That is between the regimes."


CODE = """\
data = fb.datasets.low_rank_completion((10, 10), rank={rank}, observed={observed}, rng={seed})
problem = fb.MatrixCompletion(data.rows, data.cols, data.values, (10, 10))
net = fb.MatrixFactorization.gaussian((10, 10), width={width}, scale=10**{log_alpha!r}, rng={seed})
trajectory = fb.flow(net, problem, residual=1e-6)
M = trajectory.M[-1]
seen = np.full((10, 10), np.nan)
seen[data.rows, data.cols] = data.values
print("unseen entries off by", np.linalg.norm((M - data.truth)[np.isnan(seen)]))

fig, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
reach = np.abs(data.truth).max()
for ax, matrix, name in zip(axes, (data.truth, seen, M), ("truth", "observed", "recovered")):
    image = ax.imshow(matrix, cmap="RdBu_r", vmin=-reach, vmax=reach)
    ax.set(title=name, xticks=[], yticks=[])
fig.colorbar(image, ax=axes[:3])
for matrix, mark in ((data.truth, "D"), (np.nan_to_num(seen), "s"), (M, "o")):
    axes[3].plot(np.arange(1, 11), np.linalg.svd(matrix, compute_uv=False), mark, mfc="none")
axes[3].legend(["truth", "least Frobenius norm", "recovered"])
axes[3].set(xlabel="singular value")
"""
