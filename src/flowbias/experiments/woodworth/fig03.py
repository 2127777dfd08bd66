"""Deeper networks reach the rich limit sooner.  [woodworth2020, Figure 3]

Depth D from a uniform start of scale alpha minimizes Q(w) = sum alpha^2 q_D(w / alpha^D); the paper
writes alpha^D in front of the sum, which has the same minimizer.

(a) the potentials q_D per coordinate
(b) the cost of a sparse vector relative to a dense one of equal length, Q(e_1) / Q(1/sqrt d),
    against alpha: 1 where Q is like l2, 1/sqrt d where it is like l1
(c) the largest alpha^D (the scale of the predictor's branches at the start) with population error
    <= 0.025, against the sample size, as in Figure 1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, more_than, true
from flowbias.experiments.curves import groups, listed, stacked
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth import sample_sizes as sizes
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from flowbias.ground.typing import Axes
from flowbias.potentials import DepthPotential, Hypentropy, Potential
from flowbias.theory import Reference, l1_approach_log_scale, sparse_to_dense_cost

DASHES: Any = {2: "-", 3: (0, (5, 1.5)), 5: (0, (5, 1.5, 1, 1.5)), 10: (0, (1.2, 1.2))}


def potential_of(depth: int, log_scale: float) -> Potential:
    """The potential of a uniform start."""
    if depth == 2:
        return Hypentropy(log_scale=log_scale)
    return DepthPotential(depth, log_scale=log_scale)


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The functions, the ratio, the scales where it nears that of l1; one search per data set."""
    depths = {"depths": settings["depths"]}
    yield "potentials", {"points": settings["points"], **depths}
    yield "ratio", {"d": settings["d"], "points": settings["points"], **depths}
    yield "approach", {"d": settings["d"], **depths}
    keys = ("d", "sparsity", "noise_var", "sample_sizes", "threshold", "depths")
    for replicate in range(int(settings["replicates"])):
        yield "largest", {**picked(settings, *keys), "replicate": replicate}
    yield from sizes.l1_tasks(settings)


def compute(task: Task) -> Columns:
    """One part of the figure, all depths."""
    if task.part == "l1":
        return sizes.l1_columns(task)
    if task.part == "largest":
        return _largest(task)
    build = {"potentials": _potentials, "ratio": _ratio, "approach": _approach}[task.part]
    return stacked({depth: build(task, depth) for depth in _depths_of(task)}, "depth")


def _depths_of(task: Task) -> list[int]:
    return [int(depth) for depth in task.numbers("depths")]


def _potentials(task: Task, depth: int) -> Columns:
    z = np.linspace(-10.0, 10.0, task.integer("points"))
    return {"z": z, "q": potential_of(depth, 0.0).value_terms(z)}


def _ratio(task: Task, depth: int) -> Columns:
    powers = np.linspace(-10.0, 1.0, task.integer("points"))
    d = task.number("d")
    costs = [sparse_to_dense_cost(potential_of(depth, x * np.log(10.0)), d) for x in powers]
    # The cost is per unit of l1 norm, of which the dense vector has sqrt d.
    return {"log10_scale": powers, "ratio": np.array(costs) / np.sqrt(d)}


def _approach(task: Task, depth: int) -> Columns:
    """Where the ratio exceeds that of l1 by the factor 1 + eps."""
    # Polynomial scales are not far; depth 2 needs exponential ones.
    least = -1e5 if depth == 2 else -200.0
    # Accepted excess of the ratio over that of l1, for "how small must the scale be".
    accuracies = (0.1, 0.03, 0.01)
    scales = [
        l1_approach_log_scale(
            lambda log_scale: potential_of(depth, log_scale), eps, task.number("d"), least
        )
        for eps in accuracies
    ]
    return {"eps": accuracies, "log10_scale": np.array(scales) / np.log(10.0)}


def _largest(task: Task) -> Columns:
    found = Table.of(sizes.largest_columns(task, _depths_of(task)))
    return found.replaced(log10_start=found["depth"] * found["log10_scale"]).columns


# --- panels ------------------------------------------------------------------------------------


def draw_potentials(axes: Axes, table: Table) -> None:
    for depth, rows in _by_depth(table.part("potentials")):
        colour = DEPTH_COLOURS.get(depth, INK)
        axes.plot(rows["z"], rows["q"], color=colour)
        name_line(axes, f"D = {depth}", rows["z"][-1], rows["q"][-1], colour=colour)
    axes.set_xticks([-10, -5, 0, 5, 10])
    axes.set(xlabel="z = β / $α^D$", ylabel="cost of one coordinate $q_D(z)$")


def draw_ratio(axes: Axes, table: Table) -> None:
    ratio = table.part("ratio")
    for depth, rows in _by_depth(ratio):
        scale = 10.0 ** rows["log10_scale"]
        axes.plot(scale, rows["ratio"], **_style(depth))
    axes.set(xscale="log", yscale="log")
    reference_line(axes, y=1.0, text="l2: 1")
    l1 = float(ratio["d"][0]) ** -0.5
    # Below the line, because above it depth 2 comes down.
    reference_line(axes, y=l1, text="l1: 1/√d", below=True)
    axes.set_ylim(0.6 * l1, 1.6)
    # A legend, because from depth 3 on the lines are too close for names.
    axes.legend(frameon=False, loc="center left")
    axes.set(xlabel="scale of the start α", ylabel="Q(e₁) / Q(1/√d), sparse to dense")


def draw_largest_start(axes: Axes, table: Table) -> None:
    largest = table.part("largest")
    for depth, rows in _by_depth(largest):
        limits = (-12.0, -1.0)
        sizes.draw_largest(
            axes, rows, "log10_start", limits=limits, open_band=False, **_style(depth)
        )
    sizes.draw_samples_needed(axes, table)
    # In the order of the lines, the deepest on top.
    axes.legend(frameon=False, loc="lower right", reverse=True)
    axes.set_ylabel(f"largest $α^D$ with error ≤ {largest['threshold'][0]:g}")


def _style(depth: int) -> dict[str, Any]:
    """Lines with a legend differ in their dashes as well, for print in grey."""
    colour, dashes = DEPTH_COLOURS.get(depth, INK), DASHES.get(depth, "-")
    return {"color": colour, "linestyle": dashes, "label": f"D = {depth}"}


def _by_depth(rows: Table) -> Iterator[tuple[int, Table]]:
    return ((int(part["depth"][0]), part) for part in groups(rows, "depth"))


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What the caption and section 5 say about the figure."""
    parts = ("potentials", "ratio", "approach", "largest")
    potentials, ratio, approach, largest = (table.rows(table["part"] == part) for part in parts)
    return [
        *_check_potentials(potentials),
        *_check_ratio(ratio),
        *_check_approach(approach),
        *_check_largest(sizes.samples_needed(table), largest),
        sizes.check_certified(table.rows(np.isin(table["part"], ("largest", "l1")))),
    ]


def _check_potentials(rows: Table) -> Iterator[Check]:
    depths = rows.levels("depth")
    coefficients, slopes = np.array([_ends(curve) for curve in groups(rows, "depth")]).T
    step = float(np.min(rows["z"][rows["z"] > 0.0]))
    expected = np.where(depths == 2.0, 0.25, (depths - 2.0) / (4.0 * depths))
    yield Check(
        "quadratic-near-zero",
        "every q_D is like l2 near zero: z^2/4 at depth 2, (D-2)/(4D) z^2 beyond",
        f"q_D/z^2 at z = {step:.2g}: {listed(coefficients)}",
        # The next term of the series is below z^2/8 of the first.
        at_most(np.abs(coefficients / expected - 1.0), step**2 / 8.0),
    )
    yield Check(
        "slope-bounded-from-depth-3",
        "far from zero q_D has slope at most 1, like l1, from depth 3 on; q grows like z ln z",
        f"slopes at the largest z: {listed(slopes)}",
        more_than(slopes[depths == 2.0], 1.0),
        more_than(slopes[depths > 2.0], 0.0),
        less_than(slopes[depths > 2.0], 1.0),
    )


def _ends(curve: Table) -> tuple[float, float]:
    """q/z^2 at the smallest z > 0, and the slope of q at the largest z."""
    z, q = curve["z"], curve["q"]
    first = int(np.argmin(np.where(z > 0.0, z, np.inf)))
    return float(q[first] / z[first] ** 2), float((q[-1] - q[-2]) / (z[-1] - z[-2]))


def _check_ratio(rows: Table) -> Iterator[Check]:
    # Potentials carry 15 digits, and a ratio of sums of two of them nearly as many.
    rounding = 1e-13
    curves = list(groups(rows, "depth"))
    l1 = float(rows["d"][0]) ** -0.5
    step = min(float(np.diff(curve["ratio"]).min()) for curve in curves)
    low, high = (np.array([curve["ratio"][end] for curve in curves]) for end in (0, -1))
    yield Check(
        "ratio-falls-from-1-to-the-l1-value",
        "as the scale falls, the ratio falls from 1 (l2) towards 1/sqrt d (l1)",
        f"from {listed(high)} to {listed(low)}, 1/sqrt d = {l1:.4g}",
        at_least(step, -rounding),
        at_least(low, l1 - rounding),
        at_most(high, 1.0 + rounding),
        at_least(high, 0.99),
    )
    left, depths = low / l1 - 1.0, rows.levels("depth")
    yield Check(
        "l1-value-reached-from-depth-3",
        "at scale 1e-10 depths 3 and more are like l1, depth 2 not yet",
        f"relative excess over 1/sqrt d: {listed(left)}",
        at_least(left[depths == 2.0], 0.05),
        at_most(left[depths > 2.0], 0.01),
    )
    widths = [_width(curve, l1) for curve in curves]
    yield Check(
        "deeper-is-sharper",
        "increasing the depth hastens the transition",
        f"decades of scale from 90% to 10% of the way: {listed(widths)}",
        less_than(np.diff(widths), 0.0),
        more_than(widths, 0.0),
    )


def _width(curve: Table, l1: float) -> float:
    """Decades of the scale between 10% and 90% of the way from 1/sqrt d to 1."""
    levels = l1 + np.array([0.1, 0.9]) * (1.0 - l1)
    low, high = np.interp(levels, curve["ratio"], curve["log10_scale"])
    return float(high - low)


def _check_approach(rows: Table) -> Iterator[Check]:
    d = float(rows["d"][0])
    depths, eps = rows.levels("depth"), next(iter(groups(rows, "depth")))["eps"]
    curves = np.array([curve["log10_scale"] for curve in groups(rows, "depth")])
    shallow, deep = curves[depths == 2.0], curves[depths > 2.0]
    # ln(1/alpha^2) = (1 + 1/eps) ln(d)/2 + 1, up to alpha^2: see
    # theory.hypentropy_needs_exponential_scale.
    predicted = 0.25 * np.log(d) * (1.0 + 1.0 / eps) + 0.5
    yield Check(
        "exponential-at-depth-2",
        "at depth 2 the ratio is within a factor 1 + eps of l1 only for exponentially small scale: "
        "ln(1/alpha) = (1 + 1/eps) ln(d)/4 + 1/2",
        f"alpha = {sizes.powers(shallow.ravel())} for eps = {listed(eps)}",
        at_most(np.abs(-shallow * np.log(10.0) / predicted - 1.0), 1e-6),
    )
    orders = (deep[:, -2] - deep[:, -1]) / np.log10(eps[-2] / eps[-1])
    scaled = orders * (depths[depths > 2.0] - 2.0)
    yield Check(
        "polynomial-from-depth-3",
        "from depth 3 on a power of eps is small enough: alpha is about eps^(1/(D-2))",
        f"measured power times D - 2: {listed(scaled)}",
        at_most(np.abs(scaled - 1.0), 0.1),
    )
    first = curves[:, 0]
    starts = depths * first
    yield Check(
        "deeper-needs-less-small-scales",
        f"the scale that brings the ratio within {eps[0]:.0%} of l1 grows with depth, and so does "
        "the scale alpha^D of the predictor at the start",
        f"alpha = {sizes.powers(first)}; alpha^D = {sizes.powers(starts)}",
        more_than(np.diff(first), 0.0),
        more_than(np.diff(starts), 0.0),
    )


def _check_largest(line: sizes.SampleSizeLine, rows: Table) -> Iterator[Check]:
    found = [sizes.median_where_l1_works(curve, "log10_start") for curve in groups(rows, "depth")]
    n, medians = found[0][0], np.array([median for _, median in found])
    here, beyond = line.first(n), n >= line.n
    curves = medians[:, beyond]
    gaps = np.diff(curves, axis=0)
    yield Check(
        "deeper-allows-larger-starts",
        "from the dashed line on, the largest alpha^D that generalizes grows with depth",
        f"medians at n = {rows['n'].max():.0f}: {sizes.powers(curves[:, -1:].ravel())}",
        more_than(gaps, 0.0),
    )
    at_line = np.array([sizes.value_at(n, median, here) for median in medians])
    depths = rows.levels("depth")
    scales = at_line / depths
    deep = scales[depths > 2.0]
    yield Check(
        "reasonable-scales-from-depth-3",
        "where the samples just suffice for the least-l1 solution, scales of at least 0.001 are "
        "small enough from depth 3 on; depth 2 needs a far smaller one (by a factor 30 or more)",
        f"median alpha at n = {here:.0f}: {sizes.powers(scales)}",
        at_least(deep, -3.0),
        at_most(scales[depths == 2.0], np.min(deep, initial=np.inf) - 1.5),
    )
    works = rows["log10_start"] > -np.inf
    agree = float(np.mean(works == (rows["l1_error"] <= rows["threshold"])))
    yield Check(
        "rich-limit-is-the-same",
        "the rich limit does not depend on depth: where the least-l1 solution generalizes, so does "
        "every depth at some scale, and rarely elsewhere",
        f"agreement on {agree:.1%} of data sets, sizes and depths",
        at_least(agree, 0.9),
        true(np.isfinite(rows["l1_error"])),
    )
    yield from sizes.check_sizes(line, rows)


EXPERIMENT = Experiment(
    name="woodworth-fig3",
    title="Depth hastens the transition to the rich limit",
    reference=Reference("woodworth2020", "Figure 3"),
    summary=(
        "The networks w+^D - w-^D of depth D all run from the least-l2 to the least-l1 solution as "
        "the scale of their start falls, but not equally fast. Panel (b) asks the potential itself "
        "how it weighs a sparse vector against a dense one, panel (c) repeats the sparse "
        "regression of Figure 1, on the same data for all depths. Bands hold the middle half of "
        "the data sets, where three quarters of them allow any scale; the error is the squared "
        "distance to the planted predictor."
    ),
    paper_says=(
        "Both extremes are the same at every depth, the transition is not: from depth 3 on the "
        "scale needed to be close to l1 is polynomial instead of exponential, so that reasonable "
        "scales suffice for sparse regression, and increasing the depth hastens it further."
    ),
    settings={
        Preset.SMOKE: {
            "depths": "2 3 5 10",
            "sparsity": 5,
            "noise_var": 0.01,
            "threshold": 0.025,
            "d": 200,
            "points": 161,
            "sample_sizes": "32 42 72",
            "replicates": 5,
            "l1_sizes": "30 36 42",
            "l1_batches": 2,
        },
        Preset.LAPTOP: {
            "d": 1000,
            "points": 321,
            "sample_sizes": "40 44 48 52 58 64 72 84 110 150",
            "replicates": 15,
            "l1_sizes": sizes.L1_SIZES,
            "l1_batches": 12,
        },
        Preset.PAPER: {"points": 641, "replicates": 41, "l1_batches": 20},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Potentials of several depths", draw_potentials),
        Panel("b", "From l2 to l1", draw_ratio),
        Panel("c", "How small is small enough", draw_largest_start),
    ),
    check=check,
)
