"""Matrix completion from starts whose product is zero: recovery or standstill, by the scale.

[woodworth2019, Figure 3]: U = α [U0, −U0], V = α [V0, V0], so that U V^T = 0 at the start.

(a) U0 = V0 = I: error and movement of the entries that are not seen, against α
(b), (c) Gaussian U0, V0 at several widths: error, and movement
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than
from flowbias.experiments.curves import crossing, draw_curve, exponent, groups, listed
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.experiments.woodworth.completion import (
    check_followed,
    endings,
    name_of,
    planted,
)
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, RED
from flowbias.ground.typing import Axes
from flowbias.models import MatrixFactorization
from flowbias.theory import Reference

# Share of the mean square of the unseen entries that counts as nothing.
STANDSTILL_SHARE = 0.01


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One curve on one data set: the identity, or Gaussian factors of one width."""
    shared = picked(settings, "d", "observed", "levels")
    for replicate in range(int(settings["replicates"])):
        yield "identity", {**shared, "replicate": replicate}
        for width in str(settings["widths"]).split():
            yield "gaussian", {**shared, "width": int(width), "replicate": replicate}


def compute(task: Task) -> Columns:
    """The limits of one start at all its scales."""
    problem, truth, _ = data = planted(task)
    size = task.integer("d")
    # Diagonal of the Gram matrix of the start: from far below the transition at 1 to far above.
    levels = np.linspace(-5.0, 3.0, task.integer("levels"))
    # Entries on the diagonal of the Gram matrix at α = 1; the mean of them where they are random.
    width = task.integer("width") if task.part == "gaussian" else 2
    alphas = np.sqrt(10.0**levels / width)
    # The same draw at every scale, so that along a curve only the scale changes.
    seed = int(task.rng().integers(2**32))
    ends = endings(
        (_start(task, size, float(alpha), seed) for alpha in alphas),
        problem,
        error=lambda end: data.spread(end.M - truth) ** 2,
        moved=lambda end: data.spread(end.M - end.start) ** 2,
        start=lambda end: float(np.abs(end.start).max()),
    )
    return {
        "log10_level": levels,
        "alpha": alphas,
        "unseen": data.spread(truth) ** 2,
        **ends,
    }


def _start(task: Task, size: int, alpha: float, seed: int) -> MatrixFactorization:
    if task.part == "identity":
        return MatrixFactorization.unbiased(np.eye(size), np.eye(size), scale=alpha)
    return MatrixFactorization.unbiased_gaussian(
        (size, size), width=task.integer("width"), scale=alpha, rng=seed
    )


# --- panels ------------------------------------------------------------------------------------

_COLOURS = tuple(DEPTH_COLOURS.values())


def draw_identity(axes: Axes, table: Table) -> None:
    rows = _relative(table.part("identity"))
    for column, text, colour, side, at in (
        ("error", "error", BLUE, "right", 0.7),
        ("moved", "movement", RED, "left", 0.3),
    ):
        curve = draw_curve(axes, rows, column, by="alpha", color=colour)
        place = int(np.argmin(np.abs(curve.median - at)))
        name_line(axes, text, curve.x[place], curve.median[place], side=side, colour=colour)
    axes.set(xscale="log", ylim=(-0.03, 1.12))
    reference_line(axes, y=1.0, text="unseen entries at zero")
    axes.set(xlabel="scale of the start α", ylabel="mean square over unseen entries, relative")


def draw_error(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", ylim=(-0.03, 1.3))
    widths = table.part("gaussian").levels("width")
    for width, curve, colour in _draw_widths(axes, table, "error"):
        # Where the curves stand side by side.
        k = int(np.argmin(np.abs(curve.median - 0.5)))
        side = "right" if width == widths[0] else "left"
        name_line(
            axes, name_of(width, widths), curve.x[k], curve.median[k], side=side, colour=colour
        )
    axes.set(xlabel="scale of the start α", ylabel="error on unseen entries, relative")


def draw_moved(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", yscale="log")
    widths = table.part("gaussian").levels("width")
    for width, curve, colour in _draw_widths(axes, table, "moved"):
        name_line(axes, name_of(width, widths), curve.x[-1], curve.median[-1], colour=colour)
    axes.set_xlim(right=10.0 * axes.get_xlim()[1])  # room for the names
    axes.set(xlabel="scale of the start α", ylabel="movement of unseen entries, relative")


def _draw_widths(axes: Axes, table: Table, column: str) -> list[tuple[float, Summary, str]]:
    """A band per width; the widths with their curves and colours."""
    drawn = []
    rows = _relative(table.part("gaussian"))
    for colour, width in zip(_COLOURS, rows.levels("width"), strict=False):
        curve = draw_curve(axes, rows.where(width=width), column, by="alpha", color=colour)
        drawn.append((float(width), curve, colour))
    return drawn


def _relative(rows: Table) -> Table:
    """Error and movement as shares of the mean square of the planted unseen entries."""
    return rows.replaced(error=rows["error"] / rows["unseen"], moved=rows["moved"] / rows["unseen"])


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the caption and section 6 say about the figure."""
    rows = _relative(table)
    identity = rows.rows(rows["part"] == "identity")
    gaussian = rows.rows(rows["part"] == "gaussian")
    largest = float(np.max(table["start"] / 10.0 ** table["log10_level"]))
    yield Check(
        "start-is-zero",
        "the doubled start has product zero at every scale",
        f"largest entry {largest:.1g}, relative to the Gram matrix",
        # Of sums of up to 1e5 products, or from a root of the Gram matrix.
        at_most(largest, 1e-13),
    )
    yield from _check_identity(identity)
    yield from _check_gaussian(gaussian)
    yield check_followed(table)


def _check_identity(rows: Table) -> Iterator[Check]:
    x, error, *_ = rows.summary("error", by="log10_level")
    moved = rows.summary("moved", by="log10_level").median
    yield Check(
        "identity-recovers",
        "from a small multiple of the identity the planted matrix is recovered",
        f"error {error[0]:.1e} of the mean square of unseen entries",
        at_most(error[0], STANDSTILL_SHARE),
    )
    yield Check(
        "identity-stands-still",
        "from a large multiple unseen entries are not updated, and stay at zero",
        f"movement {moved[-1]:.1e}, error {error[-1]:.4f}",
        at_most(moved[-1], 1e-4),
        at_most(abs(error[-1] - 1.0), STANDSTILL_SHARE),
    )
    fall = float(np.diff(moved).max())
    yield Check(
        "identity-moves-less-with-scale",
        "the larger the scale, the less unseen entries move",
        f"from {moved[0]:.3f}, largest change per step {fall:.1e}",
        less_than(fall, 0.0),
    )
    middle = crossing(x, error, 0.5)
    yield Check(
        "identity-transition",
        "the regimes meet where the Gram matrix of the start, 2α² I, is of the order of 1",
        f"half of the error is reached at 2α² = {10.0**middle:.2g}",
        at_most(abs(middle), 1.0),
    )


def _check_gaussian(rows: Table) -> Iterator[Check]:
    widths = rows.levels("width")
    by_width = list(groups(rows, "width"))
    left = np.array([r.summary("error", by="log10_level").median[0] for r in by_width])
    yield Check(
        "gaussian-recovers",
        "small Gaussian starts recover the planted matrix at every width",
        f"error at most {left.max():.1e} at widths {listed(widths, 'g')}",
        at_most(left, STANDSTILL_SHARE),
    )
    moved = np.array([r.summary("moved", by="log10_level").median[-1] for r in by_width])
    yield Check(
        "gaussian-stands-still-when-wide",
        "large wide starts do not update unseen entries",
        f"movement {moved[-1]:.1e} at width {widths[-1]:g}",
        at_most(moved[-1], 1e-3),
    )
    steep = exponent(widths, moved)
    yield Check(
        "gaussian-kernel-becomes-delta",
        "with the width the tangent kernel becomes a delta: movement of large starts falls as 1/k",
        f"mean square from {moved[0]:.2g} to {moved[-1]:.1e}, slope {steep:.2f} in the width",
        at_least(steep, -1.2),
        at_most(steep, -0.8),
    )


EXPERIMENT = Experiment(
    name="woodworth-iclr-fig3",
    title="Recovery or standstill in matrix completion",
    reference=Reference("woodworth2019", "Figure 3"),
    summary=(
        "60 of the 100 entries of a random matrix of rank one are fitted by U Vᵀ from starts "
        "U = α[U0, −U0], V = α[V0, V0], whose product is zero. Error and movement are mean squares "
        "over the entries that are not seen, relative to those of the planted matrix. (a) "
        "U0 = V0 = I. (b), (c) Gaussian U0 and V0; numbers at the lines are widths, both halves "
        "counted."
    ),
    paper_says=(
        "Small starts recover the planted matrix; from large ones unseen entries are not updated. "
        "That needs a tangent kernel that is a delta: exactly so for the identity, and in the "
        "limit of large width for Gaussian starts."
    ),
    settings={
        Preset.SMOKE: {
            "d": 10,
            "observed": 60,
            "levels": 7,
            "widths": "20 1000 100000",
            "replicates": 1,
        },
        Preset.LAPTOP: {"levels": 17, "widths": "20 100 1000 100000", "replicates": 5},
        Preset.PAPER: {"replicates": 21},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Identity", draw_identity),
        Panel("b", "Gaussian: error", draw_error),
        Panel("c", "Gaussian: movement", draw_moved),
    ),
    check=check,
)
