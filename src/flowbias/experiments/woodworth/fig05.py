"""Matrix completion: width and scale of the start decide together, through α²k.

[woodworth2020, Figure 5]: M = U V^T, U and V of width k with N(0, α²) entries, 60 of the 100
entries of a matrix of rank one are seen.

(a) nuclear norm of the limit less that of the planted matrix, over k and α²k
(b) how far entries that are not seen have moved
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than
from flowbias.experiments.curves import crossing, edges, exponent
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.completion import (
    check_followed,
    endings,
    nuclear,
    planted,
)
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import MatrixFactorization
from flowbias.theory import Reference

# Share of the way between the two extremes that counts as nothing on a single data set of 100
# entries: there the planted matrix itself may miss the least nuclear norm by a few percent.
NEGLIGIBLE_SHARE = 0.05
# Around what is drawn on the maps, whose colours do not follow those of the page.
EDGE = "#10161d"


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One column of the maps: one data set, one width, all scales."""
    shared = picked(settings, "d", "observed", "levels")
    for replicate in range(int(settings["replicates"])):
        for width in str(settings["widths"]).split():
            yield "map", {**shared, "width": int(width), "replicate": replicate}


def compute(task: Task) -> Columns:
    """The limits of one start at all its scales."""
    problem, truth, _ = data = planted(task)
    size, width = task.integer("d"), task.integer("width")
    levels = np.linspace(-5.0, 3.0, task.integer("levels"))
    # The same draw at every scale, so that along a column only the scale changes.
    seed = int(task.rng().integers(2**32))
    alphas = [float(np.sqrt(10.0**level / width)) for level in levels]
    gaussian = partial(MatrixFactorization.gaussian, (size, size), width=width, rng=seed)
    ends = endings(
        (gaussian(scale=alpha) for alpha in alphas),
        problem,
        excess=lambda end: nuclear(end.M) - nuclear(truth),
        moved=lambda end: data.spread(end.M - end.start),
        distance=lambda end: data.spread(end.M - truth),
    )
    return {
        "log10_level": levels,
        "kernel_excess": nuclear(data.zero_filled) - nuclear(truth),
        "unseen_size": data.spread(truth),
        **ends,
    }


# --- panels ------------------------------------------------------------------------------------


def draw_excess(axes: Axes, table: Table) -> None:
    _draw_map(axes, table, "excess", (1e-2, 1e1), "excess nuclear norm ‖M‖∗ − ‖Y*‖∗")


def draw_moved(axes: Axes, table: Table) -> None:
    _draw_map(axes, table, "moved", (1e-3, 2e0), "movement of unseen entries (rms)")


def _draw_map(
    axes: Axes, table: Table, column: str, limits: tuple[float, float], text: str
) -> None:
    from matplotlib.colors import LogNorm

    widths, levels = table.levels("width"), table.levels("log10_level")
    # Zero and below have no logarithm: they take the colour of the smallest.
    values = np.maximum(_medians(table, table[column]), limits[0])
    borders = 10.0 ** edges(np.log10(widths)), 10.0 ** edges(levels)
    image = axes.pcolormesh(*borders, values.T, norm=LogNorm(*limits), cmap="cividis")
    axes.set(xscale="log", yscale="log", xlabel="width k", ylabel="scale of the lifted start α²k")
    _draw_mark(axes, widths, np.ones_like(widths), "α²k = 1")
    # Above it the start itself is not small.
    _draw_mark(axes, widths, np.sqrt(widths), "σ = α²√k = 1", linestyle=(0, (4, 3)))
    axes.figure.colorbar(image, ax=axes, label=text, extend="both")


def _draw_mark(axes: Axes, x: FloatArray, y: FloatArray, text: str, **style: Any) -> None:
    """A line with its name, white in a dark edge: it crosses the lightest and darkest colours."""
    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=3.0, foreground=EDGE)]
    axes.plot(x, y, color="white", linewidth=1.4, path_effects=edge, **style)
    middle = len(x) // 2
    axes.annotate(
        text,
        (x[middle], y[middle]),
        (5, -5),
        textcoords="offset points",
        va="top",
        fontsize=10,
        color="white",
        path_effects=edge,
    )


def _medians(table: Table, values: FloatArray) -> FloatArray:
    """Median over data sets of a column, (widths, levels)."""
    widths, levels = table.levels("width"), table.levels("log10_level")
    at = [
        [(table["width"] == width) & (table["log10_level"] == level) for level in levels]
        for width in widths
    ]
    return np.array([[np.median(values[cell]) for cell in row] for row in at])


# --- checks ------------------------------------------------------------------------------------


class Map(NamedTuple):
    """Medians over data sets, (widths, levels): excess and movement as shares of the extremes."""

    widths: FloatArray
    levels: FloatArray  # log10 α²k
    excess: FloatArray  # 0: planted matrix, 1: least Frobenius norm
    moved: FloatArray  # 0: as at the start, 1: as far as the planted entries are from zero
    distance: FloatArray  # from the planted entries, 1: as far as zero is


def check(table: Table) -> list[Check]:
    """What the caption and appendix A say about the figure."""
    size = table["unseen_size"]
    shares = Map(
        table.levels("width"),
        table.levels("log10_level"),
        _medians(table, table["excess"] / table["kernel_excess"]),
        _medians(table, table["moved"] / size),
        _medians(table, table["distance"] / size),
    )
    return [
        *_check_rich(shares),
        *_check_kernel(shares),
        *_check_transition(shares),
        check_followed(table),
    ]


def _check_rich(shares: Map) -> Iterator[Check]:
    rich = 1e-4  # far below the transition at 1
    left = float(np.max(np.abs(shares.excess[:, shares.levels <= np.log10(rich)])))
    yield Check(
        "rich-excess-vanishes",
        f"where α²k ≤ {rich:g}, the nuclear norm is nearly that of the planted matrix",
        f"excess at most {left:.2%} of that of the least Frobenius norm, at any width",
        at_most(left, NEGLIGIBLE_SHARE),
    )
    distance = float(np.max(shares.distance[:, 0]))
    yield Check(
        "rich-recovers",
        "the smallest start recovers the planted matrix",
        f"unseen entries off by at most {distance:.2%} of their size, at any width",
        at_most(distance, NEGLIGIBLE_SHARE),
    )


def _check_kernel(shares: Map) -> Iterator[Check]:
    level = 10.0**shares.levels
    # Above the transition, where the product of the start, σ = α² sqrt(k), is far below entries.
    kernel = (level >= 10.0) & (level <= 0.1 * np.sqrt(shares.widths[-1]))
    moved, excess = (values[-1, kernel] for values in (shares.moved, shares.excess))
    first, last = level[kernel][[0, -1]]
    at = f"width {shares.widths[-1]:g}, α²k from {first:.3g} to {last:.3g}"
    yield Check(
        "kernel-entries-stay",
        "where α²k ≫ 1 at a large width, unseen entries do not move",
        f"{at}: by at most {moved.max():.2%} of their size",
        at_most(moved, NEGLIGIBLE_SHARE),
    )
    apart = np.abs(excess - 1.0)
    yield Check(
        "kernel-is-frobenius",
        "there the limit is the least Frobenius norm, and does not recover the planted matrix",
        f"{at}: nuclear excess within {apart.max():.1%} of that of the zero-filled matrix, "
        f"unseen entries off by at least {shares.distance[-1, kernel].min():.0%}",
        at_most(apart, 0.2),
        at_least(shares.distance[-1, kernel], 0.9),
    )
    least = shares.moved.min(axis=1)
    steep = exponent(shares.widths, least)
    yield Check(
        "kernel-needs-width",
        "a narrow start has no kernel regime: at its best scale entries still move by 1/√k",
        f"least movement {least[0]:.2f} at width {shares.widths[0]:g}, {least[-1]:.1e} at "
        f"{shares.widths[-1]:g}: slope {steep:.2f}",
        at_least(least[0], 0.1),
        at_least(steep, -0.65),
        at_most(steep, -0.35),
    )


def _check_transition(shares: Map) -> Iterator[Check]:
    for what, name in ((shares.excess, "excess"), (shares.moved, "movement")):
        middles = np.array([crossing(shares.levels, row, 0.5) for row in what])
        yield Check(
            f"transition-of-{name}",
            f"half of the {name} is reached where α²k is about 1, at every width",
            f"at α²k from {10.0 ** middles.min():.2g} to {10.0 ** middles.max():.2g} over widths "
            f"{shares.widths[0]:g} to {shares.widths[-1]:g}",
            at_most(np.abs(middles), 1.0),
        )
    narrow, wide = (_decades(shares.levels, shares.moved[i]) for i in (0, -1))
    yield Check(
        "sharper-when-wide",
        "the transition is somewhat sharper at a large width",
        f"decades of α²k within which movement falls from 75% to 25%: {wide:.2f} at width "
        f"{shares.widths[-1]:g}, {narrow:.2f} (inf: never) at {shares.widths[0]:g}",
        less_than(wide, narrow),
    )


def _decades(levels: FloatArray, moved: FloatArray) -> float:
    """From three quarters of the movement to one; infinite where that little is not reached."""
    if moved.min() > 0.25:
        return np.inf
    return crossing(levels, moved, 0.25) - crossing(levels, moved, 0.75)


EXPERIMENT = Experiment(
    name="woodworth-fig5",
    title="Width and scale decide together in matrix completion",
    reference=Reference("woodworth2020", "Figure 5"),
    summary=(
        "60 of the 100 entries of a random matrix of rank one are seen; gradient flow on U Vᵀ "
        "fits them from a start of width k with N(0, α²) entries. Colours are medians over data "
        "sets of (a) the nuclear norm of the limit less that of the planted matrix and (b) the "
        "root mean square movement of the entries that are not seen. The flow is followed in the "
        "Gram matrix of the rows, so that width 10⁶ costs what width 20 costs."
    ),
    paper_says=(
        "Both maps have a transition where α²k = σ√k is about 1: below it the limit has nearly "
        "the least nuclear norm and recovers the planted matrix, above it unseen entries do not "
        "move. It sharpens somewhat with the width. We add that a narrow start has no kernel "
        "regime: at its best scale unseen entries still move in proportion to 1/√k."
    ),
    settings={
        Preset.SMOKE: {
            "d": 10,
            "observed": 60,
            "levels": 9,
            "widths": "20 1000 1000000",
            "replicates": 1,
        },
        Preset.LAPTOP: {
            "levels": 12,
            "widths": "20 53 143 382 1022 2736 7325 19600 52400 140000 375000 1000000",
            "replicates": 5,
        },
        Preset.PAPER: {"replicates": 11},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Nuclear norm: least where α²k ≪ 1", draw_excess),
        Panel("b", "Unseen entries: still where α²k ≫ 1", draw_moved),
    ),
    check=check,
)
