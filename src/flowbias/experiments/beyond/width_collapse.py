"""What width does: at fixed α²k nothing, from a moderate width on; at fixed σ everything.

The Gram matrix of the rows of [U; V] with N(0, α²) entries is α²k (I + O(1/sqrt(k))), and it is
all that the flow of U V^T knows of its start. Along α²k the limits for all widths therefore
collapse onto that of U = α sqrt(k) [I, 0], V = α sqrt(k) [0, I], which is infinite width, at a
distance of the order of 1/sqrt(k). Along the size of the product, σ = α² sqrt(k), they do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, more_than
from flowbias.experiments.curves import DOTS, draw_curve, exponent, listed
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.completion import (
    check_followed,
    ending,
    endings,
    name_of,
    planted,
)
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import MatrixFactorization
from flowbias.theory.claim import beyond_the_papers

# Relative residual: a hundredth of the distance from infinite width at the largest width, 1e9.
FOLLOWED_TO = 1e-8
# log10 of α²k at which the approach to infinite width is drawn and judged.
APPROACH = (-2.0, -1.0, 0.0)
# log10 σ at which widths are compared: there they reach from one regime to the other.
FIXED_SIGMA = -2.5


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per data set and scale: all widths, and the infinite one for comparison."""
    shared = picked(settings, "d", "observed", "widths")
    lowest, per_decade = int(settings["lowest"]), int(settings["per_decade"])
    levels = np.linspace(lowest, 2.0, (2 - lowest) * per_decade + 1)
    for replicate in range(int(settings["replicates"])):
        for level in levels:
            yield "level", {**shared, "log10_level": float(level), "replicate": replicate}


def compute(task: Task) -> Columns:
    """The limits from starts of all widths with the same α²k."""
    problem, truth, _ = data = planted(task)
    size, level = task.integer("d"), 10.0 ** task.number("log10_level")
    widths = np.array(task.numbers("widths"))
    infinite = ending(_infinitely_wide(size, level), problem, residual=FOLLOWED_TO)
    starts = (_start(size, level, int(width), task.integer("replicate")) for width in widths)
    ends = endings(
        starts,
        problem,
        residual=FOLLOWED_TO,
        distance=lambda end: data.spread(end.M - truth) / data.spread(truth),
        infinite_distance=lambda _: data.spread(infinite.M - truth) / data.spread(truth),
        to_infinite=lambda end: float(
            np.linalg.norm(end.M - infinite.M) / np.linalg.norm(infinite.M)
        ),
    )
    followed = {"residual": infinite.residual, "drift": infinite.drift}
    worst = {name: np.maximum(ends[name], value) for name, value in followed.items()}
    return {"width": widths, **ends, **worst}


def _start(size: int, level: float, width: int, replicate: int) -> MatrixFactorization:
    """The same draw at every scale, so that along a curve only the scale changes."""
    rng = np.random.default_rng([replicate, width])
    scale = float(np.sqrt(level / width))
    return MatrixFactorization.gaussian((size, size), width=width, scale=scale, rng=rng)


def _infinitely_wide(size: int, level: float) -> MatrixFactorization:
    """The start whose Gram matrix is α²k I: what the law of large numbers leaves."""
    unit = np.sqrt(level) * np.eye(2 * size)
    return MatrixFactorization(unit[:size], unit[size:])


# --- panels ------------------------------------------------------------------------------------

_COLOURS = tuple(DEPTH_COLOURS.values())


def draw_along_sigma(axes: Axes, table: Table) -> None:
    widths = table.levels("width")
    for colour, width in zip(_COLOURS, widths, strict=False):
        x, curve = _curve(axes, table, width, colour, shift=-0.5 * np.log10(width))
        # Where the curves stand side by side.
        at = int(np.argmin(np.abs(curve - 0.3)))
        side = "right" if width == widths[0] else "left"
        name_line(axes, name_of(width, widths), x[at], curve[at], side=side, colour=colour)
    axes.set(xscale="log", ylim=(0.0, 1.15))
    reference_line(axes, x=10.0**FIXED_SIGMA, text="")
    axes.set_xlabel("size of the product at the start σ = α²√k")
    axes.set_ylabel("error on unseen entries, relative")


def draw_along_level(axes: Axes, table: Table) -> None:
    for colour, width in zip(_COLOURS, table.levels("width"), strict=False):
        _curve(axes, table, width, colour, shift=0.0)
    limit = table.summary("infinite_distance", by="log10_level")
    axes.plot(10.0**limit.x, limit.median, color=INK, linewidth=1.6, linestyle=(0, (1, 1.5)))
    at = 2 * len(limit.x) // 3
    name_line(axes, "k = ∞", 10.0 ** limit.x[at], limit.median[at] - 0.05, side="right")
    narrow = table.levels("width")[0]
    x, curve = _points(table, narrow)
    name_line(axes, f"k = {narrow:g}", 10.0 ** x[-2], curve[-2], colour=_COLOURS[0])
    axes.set(xscale="log", ylim=(0.0, 1.15))
    axes.set(xlabel="scale of the lifted start α²k", ylabel="error on unseen entries, relative")


def draw_approach(axes: Axes, table: Table) -> None:
    widths = table.levels("width")
    # Room for the names at the end of the lines.
    axes.set(xscale="log", yscale="log", xlim=(widths[0] / 2.0, widths[-1] * 10.0**2.8))
    for colour, level in zip(_COLOURS, APPROACH, strict=False):
        rows = table.where(log10_level=level)
        curve = draw_curve(axes, rows, "to_infinite", by="width", color=colour, **DOTS)
        name_line(axes, f"α²k = {10.0**level:g}", curve.x[-1], curve.median[-1], colour=colour)
    guide = 4.0 * widths**-0.5
    axes.plot(widths, guide, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
    middle = len(widths) // 2
    name_line(axes, "∝ 1/√k", widths[middle], 1.7 * guide[middle])
    axes.set(xlabel="width k", ylabel="distance from infinite width, relative")


def _points(table: Table, width: float) -> tuple[FloatArray, FloatArray]:
    """log10 of α²k and median error, where the start is small enough to be drawn."""
    curve = table.where(width=width).summary("distance", by="log10_level")
    # Up to log10 σ = -0.5.
    drawn = curve.x - 0.5 * np.log10(width) <= -0.5
    return curve.x[drawn], curve.median[drawn]


def _curve(
    axes: Axes, table: Table, width: float, colour: str, *, shift: float
) -> tuple[FloatArray, FloatArray]:
    x, curve = _points(table, width)
    x = 10.0 ** (x + shift)
    axes.plot(x, curve, color=colour)
    return x, curve


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    infinite = table.summary("infinite_distance", by="log10_level").median
    steps = np.diff(infinite)
    yield Check(
        "both-regimes-at-infinite-width",
        "at infinite width, too, the limit goes from recovery to unseen entries at zero",
        f"error from {infinite[0]:.2f} to {infinite[-1]:.3f}, smallest step {steps.min():.2g}",
        at_most(infinite[0], 0.25),
        at_least(infinite[-1], 0.98),
        more_than(steps, 0.0),
    )
    # Width from which on 1/sqrt(k) is small.
    wide = 1000.0
    sigma = 10.0 ** table["log10_level"] / np.sqrt(table["width"])
    # Of a start that is not small beside entries of size 1 the noise stays in the limit.
    rows = table.rows((table["width"] >= wide) & (sigma <= 0.1))
    apart = np.abs(rows["distance"] - rows["infinite_distance"])
    yield Check(
        "collapse-along-level",
        f"from width {wide:g} on the error is a function of α²k alone, while σ is small",
        f"at most {apart.max():.3f} from that of infinite width, on any data set",
        at_most(apart, 0.1),
    )
    # The medians at one σ, linear between scales.
    widths = table.levels("width")
    error = []
    for width in widths:
        curve = table.rows(table["width"] == width).summary("distance", by="log10_level")
        # Beyond the scales that were computed the curve is at its end, or all but.
        error.append(np.interp(FIXED_SIGMA + 0.5 * np.log10(width), curve.x, curve.median))
    yield Check(
        "width-decides-at-fixed-sigma",
        f"at the same σ = {10.0**FIXED_SIGMA:.2g}, a narrow start is rich and a wide one kernel",
        f"error {listed(error, '.2f')} at widths {listed(widths, 'g')}",
        at_most(error[0], 0.5),
        at_least(error[-1], 0.95),
        more_than(np.diff(error), 0.0),
    )
    slopes = []
    for level in APPROACH:
        rows = table.rows(table["log10_level"] == level)
        curve = rows.summary("to_infinite", by="width")
        slopes.append(exponent(curve.x, curve.median))
    worst = max(abs(value + 0.5) for value in slopes) if np.isfinite(slopes).all() else np.nan
    yield Check(
        "approach-as-root-of-width",
        "the distance from infinite width falls as 1/√k",
        f"slopes {listed(slopes, '.3f')} at α²k = {listed((10.0**x for x in APPROACH), 'g')}",
        # One draw per width scatters by a factor of about 2 over several decades of width.
        at_most(worst, 0.06),
    )
    yield check_followed(table, to=FOLLOWED_TO)


EXPERIMENT = Experiment(
    name="width-collapse",
    title="Width acts through α²k alone",
    reference=beyond_the_papers("4 Infinite width", "matrix_factorization"),
    summary=(
        "Completion of a matrix of rank one by U Vᵀ from N(0, α²) entries at widths 20 to 10⁹. (a) "
        "Against the size σ of the product at the start the curves are apart: widening at the "
        "same σ leads from the rich to the kernel regime. (b) Against α²k they lie on each other, "
        "and on the curve of infinite width (dotted), where the start has Gram matrix α²k I. (c) "
        "The limits approach that of infinite width as 1/√k. Lines are medians over data sets, "
        "drawn where σ ≤ 0.3."
    ),
    paper_says=(
        "[woodworth2020, Section 6] names α²k = σ√k as what decides the regime where measurements "
        "commute, and sees it for completion in an experiment. Our claim beyond it: for "
        "completion, too, the limit at the same α²k converges with the width, at rate 1/√k, to "
        "that of a start with Gram matrix α²k I."
    ),
    settings={
        Preset.SMOKE: {
            "d": 10,
            "observed": 60,
            "lowest": -3,
            "per_decade": 1,
            "widths": "20 1000 1000000 1000000000",
            "replicates": 1,
        },
        Preset.LAPTOP: {
            "lowest": -4,
            "per_decade": 2,
            "widths": "20 1000 100000 10000000 1000000000",
            "replicates": 5,
        },
        Preset.PAPER: {"lowest": -5, "replicates": 11},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "At the same σ, width decides", draw_along_sigma),
        Panel("b", "At the same α²k, it does not", draw_along_level),
        Panel("c", "Infinite width is near", draw_approach),
    ),
    check=check,
)
