"""Matrix completion: width and scale of the start decide together, through alpha^2 k."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.explorer.controls import Slider
from flowbias.explorer.drawing import FLOW, FRAME, KERNEL, RICH, TRUTH, legend_above, new_figure
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.matrices_scene import (
    SIDE,
    MatricesScene,
    Seen,
    load_solver,
    matrices_scene,
)
from flowbias.explorer.views.planted_data import SEED

# Share of the way between two extremes that counts as nothing, as in the reproduced figure.
LITTLE = 0.05
# Entries of the product at the start that are small beside those of the truth, of size 1.
SMALL_START = 0.1
# Columns between the panels of the picture.
_GAP = 2
_PANELS = ("truth", "observed", "recovered")
_VALUES = {
    "truth": ("diamond", TRUTH, 15, 0.0),
    "zero": ("square", KERNEL, 9, 0.0),
    "nuclear": ("triangle", RICH, 9, 0.0),
    "recovered": ("circle", FLOW, 8, 1.0),
}
_WORDS = {
    "truth": "truth",
    "zero": "least Frobenius norm",
    "nuclear": "least nuclear norm",
    "recovered": "recovered",
}


def width_of(log_width: float) -> int:
    """The width k at a position of its slider."""
    return int(np.rint(10.0**log_width))


class MatricesPictures(Pictures[MatricesScene]):
    """Three matrices in one colour scale, and their singular values."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._cells = ColumnDataSource({"x": [], "y": [], "value": []})
        self._unseen = ColumnDataSource({"x": [], "y": []})
        self._values = {name: ColumnDataSource({"x": [], "y": []}) for name in _VALUES}
        self.figures = (
            Drawn(
                "The planted matrix, what is seen of it, and what the flow makes of that",
                "Three squares of 10 by 10 cells side by side, in one colour scale from negative "
                "(blue) over zero (pale) to positive (red). Entries that are not seen are crosses "
                "in the middle square.",
                self._maps(),
            ),
            Drawn(
                "Singular values",
                "The ten singular values of the recovered matrix (filled circles), of the truth "
                "(open diamonds), of the least Frobenius norm (open squares) and of the least "
                "nuclear norm (open triangles).",
                self._spectra(),
            ),
        )

    def _maps(self) -> Any:
        from bokeh.models import ColorBar, LinearColorMapper
        from bokeh.palettes import RdBu11, interp_palette
        from bokeh.transform import transform

        width = len(_PANELS) * (SIDE + _GAP)
        made = new_figure(
            "",
            "",
            height=340,
            x_range=(-0.7, width - _GAP - 0.3),
            y_range=(-0.7, SIDE + 0.9),
        )
        self._mapper = LinearColorMapper(palette=interp_palette(RdBu11, 255), low=-1.0, high=1.0)
        made.rect(
            *("x", "y", 1, 1),
            source=self._cells,
            fill_color=transform("value", self._mapper),
            line_color=None,
        )
        made.scatter("x", "y", source=self._unseen, marker="x", size=7, color=FRAME)
        made.text(
            x=[k * (SIDE + _GAP) + 0.5 * (SIDE - 1) for k in range(len(_PANELS))],
            y=SIDE - 0.2,
            text=list(_PANELS),
            text_align="center",
            text_color=FRAME,
            text_font_size="14px",
        )
        made.axis.visible, made.grid.visible = False, False
        bar = ColorBar(
            color_mapper=self._mapper,
            height=12,
            width=220,
            background_fill_alpha=0.0,
            major_label_text_color=FRAME,
            title="entry of the matrix",
            title_text_color=FRAME,
        )
        made.add_layout(bar, "below")
        return made

    def _spectra(self) -> Any:
        made = new_figure("i (number of the singular value)", "σᵢ (singular value)", height=320)
        for name, (marker, colour, size, fill) in _VALUES.items():
            made.scatter(
                *("x", "y"),
                source=self._values[name],
                marker=marker,
                size=size,
                line_color=colour,
                line_width=2,
                fill_color=colour,
                fill_alpha=fill,
                legend_label=_WORDS[name],
            )
        legend_above(made)
        return made

    def show(self, scene: MatricesScene) -> None:
        # One colour scale for all three, which changes with the data alone.
        reach = float(np.abs(scene.truth).max())
        self._mapper.update(low=-reach, high=reach)
        rows, cols = np.divmod(np.arange(SIDE * SIDE), SIDE)
        shown = (scene.truth, scene.truth, scene.end.M)
        kept = (np.ones_like(scene.mask), scene.mask, np.ones_like(scene.mask))
        cells: dict[str, list[FloatArray]] = {"x": [], "y": [], "value": []}
        for panel, (M, mask) in enumerate(zip(shown, kept, strict=True)):
            place = mask.ravel()
            cells["x"].append(cols[place] + panel * (SIDE + _GAP))
            # The first row on top, as a matrix is written.
            cells["y"].append(SIDE - 1 - rows[place])
            cells["value"].append(M.ravel()[place])
        self._cells.data = {name: np.concatenate(parts) for name, parts in cells.items()}
        hidden = ~scene.mask.ravel()
        self._unseen.data = {"x": cols[hidden] + SIDE + _GAP, "y": SIDE - 1 - rows[hidden]}
        matrices = {
            "truth": scene.truth,
            "zero": scene.seen.zero_filled,
            "nuclear": scene.least_nuclear,
            "recovered": scene.end.M,
        }
        for name, matrix in matrices.items():
            values = np.zeros(0) if matrix is None else np.linalg.svd(matrix, compute_uv=False)
            self._values[name].data = {"x": np.arange(1, len(values) + 1), "y": values}


class MatricesView(View[MatricesScene]):
    """Which completion gradient flow on U V^T finds."""

    name = "matrices"
    title = "Width and matrices"
    question = (
        "Some entries of a matrix are seen. When does gradient flow on U Vᵀ find the rest: is it "
        "the scale α of the weights that decides, or the width k?"
    )
    controls = (
        Slider("log_alpha", "Scale α of the weights (log10)", -3.0, 0.5, 0.1, -2.0, plays=True),
        Slider("log_width", "Width k", 1.0, 6.0, 0.5, 3.0, lambda x: f"{width_of(x)}"),
        Slider("rank", "Rank of the planted matrix", 1, 3, 1, 1),
        Slider("observed", "Entries seen, of 100", 30, 95, 5, 60),
        SEED,
    )

    def warm_up(self) -> None:
        load_solver()

    def scene(self, settings: Settings) -> MatricesScene:
        return matrices_scene(
            seen_of(settings), 10.0 ** settings["log_alpha"], width_of(settings["log_width"])
        )

    def pictures(self) -> MatricesPictures:
        return MatricesPictures()

    def text(self, scene: MatricesScene) -> str:
        return " ".join(
            [
                f"**α²k = {scene.level:.2g}** (α = {scene.scale:.2g}, k = {scene.width}).",
                f"Entries that are not seen end {scene.off:.0%} of their size away from the truth, "
                f"and moved by {scene.moved:.0%} of it.",
                _regime(scene),
                f"The flow was followed until the seen entries fit to {scene.end.residual:.0e}, "
                f"with the imbalance kept to {scene.end.drift:.0e}: an integration, not a "
                "certificate.",
                scene.missing,
            ]
        )

    def code(self, settings: Settings) -> str:
        seen = seen_of(settings)
        return CODE.format(
            rank=seen.rank,
            observed=seen.observed,
            seed=seen.seed,
            log_alpha=settings["log_alpha"],
            width=width_of(settings["log_width"]),
        )


def seen_of(settings: Settings) -> Seen:
    """The data that the sliders describe."""
    return Seen(int(settings["rank"]), int(settings["observed"]), int(settings["seed"]))


def _regime(scene: MatricesScene) -> str:
    if scene.moved <= LITTLE:
        return "They hardly move: the **kernel** regime, in which nothing unseen is learned."
    recovered = "The truth is recovered." if scene.off <= LITTLE else ""
    if scene.excess is None:
        return f"{recovered} How rich the end is cannot be said without the least nuclear norm."
    place = (
        f"Its nuclear norm lies {max(scene.excess, 0.0):.0%} of the way from the least one (0%) to "
        "that of the least Frobenius norm (100%)"
    )
    if scene.excess > LITTLE:
        return f"{place}. {recovered or _between(scene)}"
    missed = recovered or "The least nuclear norm is not the truth here."
    return f"{place}: the **rich** regime. {missed}"


def _between(scene: MatricesScene) -> str:
    size = scene.scale**2 * np.sqrt(scene.width)
    if size > SMALL_START:
        return f"The product starts at entries of size α²√k = {size:.2g}: that is not small."
    return "That is between the regimes."


CODE = """\
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

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
plt.show()
"""
