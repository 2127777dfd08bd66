"""Sparse regression: which limit generalizes, and how small the start must be for it.

[woodworth2020, Figure 1]: y = <w_true, x> + noise with a sparse w_true, depth 2, uniform start.

(a) population error of the limit against the scale of the start
(b) how far its l1 and l2 norms exceed the least possible ones
(c) the largest scale with population error <= 0.025, against the sample size; the dashed line is
    where basis pursuit alone passes on half of many other data sets
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, more_than
from flowbias.experiments.curves import by_replicate, draw_curve, first
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.largest_scale import optimality
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.experiments.woodworth import sample_sizes as sizes
from flowbias.ground.drawing import BLUE, RED
from flowbias.ground.typing import Axes
from flowbias.limits import basis_pursuit, limit_path, min_norm
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression
from flowbias.theory import Reference

# Share of the way between the two extremes that counts as nothing.
LITTLE = 0.01


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One replicate is one data set: along all scales, or searched at growing sample sizes."""
    problem = picked(settings, "d", "sparsity", "noise_var", "depth")
    along = {"n": settings["path_n"], "per_decade": settings["per_decade"]}
    for replicate in range(int(settings["path_replicates"])):
        yield "path", {**problem, **along, "replicate": replicate}
    search = picked(settings, "sample_sizes", "threshold")
    for replicate in range(int(settings["replicates"])):
        yield "largest", {**problem, **search, "replicate": replicate}
    yield from sizes.l1_tasks(settings)


def compute(task: Task) -> Columns:
    """The limits along the scales, the largest scales that generalize, or many basis pursuits."""
    if task.part == "l1":
        return sizes.l1_columns(task)
    net = DiagonalNet(task.integer("depth"), 1.0)
    if task.part == "path":
        data = sizes.planted_data(task, task.integer("n"))
        return _along_scales(net, data, task.integer("per_decade"))
    found = sizes.largest_columns(task, (task.integer("depth"),))
    return {name: column for name, column in found.items() if name != "depth"}


def _along_scales(net: DiagonalNet, data: SparseRegression, per_decade: int) -> Columns:
    problem = Regression(data.X, data.y)
    rich, kernel = basis_pursuit(problem), min_norm(problem)
    powers = np.linspace(1.0, -8.0, 9 * per_decade + 1)
    path = limit_path(net, problem, log_scales=powers * np.log(10.0))
    certificates = [solution.certificate for solution in (*path, rich, kernel)]
    return {
        "log10_scale": powers,
        "error": data.population_error(path.w),
        "excess_l1": np.abs(path.w).sum(axis=1) - np.abs(rich.w).sum(),
        "excess_l2": np.linalg.norm(path.w, axis=1) - np.linalg.norm(kernel.w),
        "l1_error": data.population_error(rich.w),
        "l2_error": data.population_error(kernel.w),
        "optimality": max(map(optimality, certificates)),
        "error_bound": max(certificate.error_bound for certificate in certificates),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    path = table.part("path")
    draw_curve(axes, path, "error", by="log10_scale", log10=True, color=BLUE)
    axes.set(xscale="log", yscale="log", ylim=(None, 1.6))
    reference_line(axes, y=float(np.median(path["l2_error"])), text="least l2 norm")
    # On the right, because on the left the curve runs into its limit.
    rich = float(np.median(path["l1_error"]))
    reference_line(axes, y=rich, text="least l1 norm", side="right")
    axes.set(xlabel="scale of the start α", ylabel="population error ‖β − β*‖²")


def draw_excess(axes: Axes, table: Table) -> None:
    path = table.part("path")
    axes.set(xscale="log", yscale="log", ylim=(1e-4, 20.0))
    for norm, colour, side in (("l1", BLUE, "right"), ("l2", RED, "above")):
        curve = path.summary(f"excess_{norm}", by="log10_scale")
        # Zero, where the extreme is reached, has no place on a logarithmic axis.
        curve = Summary(curve.x, *(np.maximum(values, 1e-9) for values in curve[1:]))
        draw_band(axes, 10.0**curve.x, curve, color=colour)
        # Where both are on the axes, at any depth.
        at = max(int(np.searchsorted(curve.x, -4.0)), int(np.argmax(curve.low >= 1e-3)))
        place = 10.0 ** (curve.x[at] + 0.3), curve.low[at]
        name_line(axes, f"{norm} norm", *place, side=side, colour=colour)
    axes.set(xlabel="scale of the start α", ylabel="norm of the limit − least norm")


def draw_largest_scale(axes: Axes, table: Table) -> None:
    rows = table.part("largest")
    sizes.draw_largest(axes, rows, "log10_scale", limits=(-10.0, 0.0), color=BLUE)
    sizes.draw_samples_needed(axes, table)
    axes.set_ylabel(f"largest α with error ≤ {rows['threshold'][0]:g}")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What the caption and section 4 say about the figure."""
    path = table.rows(table["part"] == "path")
    largest = table.rows(table["part"] == "largest")
    return [
        *_check_error(path),
        *_check_norms(path),
        *_check_tradeoff(sizes.samples_needed(table), largest),
        *sizes.check_sizes(sizes.samples_needed(table), largest),
        sizes.check_certified(table),
    ]


def _check_error(path: Table) -> Iterator[Check]:
    x, error, *_ = path.summary("error", by="log10_scale")
    for norm, end in (("l2", -1), ("l1", 0)):
        rows = path.rows(path["log10_scale"] == x[end])
        way = rows["l2_error"] - rows["l1_error"]
        apart = np.abs(rows["error"] - rows[f"{norm}_error"]) / way
        yield Check(
            f"error-meets-the-{norm}-level",
            f"at scale {10.0 ** x[end]:g} the limit is as good as the least-{norm} solution",
            f"their errors differ by at most {apart.max():.1e} of the way from l2 to l1",
            at_most(apart, LITTLE),
        )
    # Ripples near the rich end are real: the best scale of a data set may be positive.
    rise = float(np.max(error - np.minimum.accumulate(error[::-1])[::-1])) / float(np.median(way))
    yield Check(
        "error-falls-with-the-scale",
        "the population error falls as the scale falls",
        f"median from {error[-1]:.3g} to {error[0]:.3g}, largest rise {rise:.1e} of the way",
        at_most(rise, LITTLE),
    )


def _check_norms(path: Table) -> Iterator[Check]:
    # Norms of certified minimizers: the relative duality gap is below 1e-10.
    rounding = 1e-9
    l1, l2 = (by_replicate(path, f"excess_{norm}", "log10_scale") for norm in ("l1", "l2"))
    least = float(min(l1.min(), l2.min()))
    yield Check(
        "norms-exceed-the-least",
        "no limit has a smaller l1 or l2 norm than the least one",
        f"smallest excess {least:.2g}",
        at_least(least, -rounding),
    )
    step = float(np.diff(l1, axis=1).min())
    left = float(np.max(l1[:, 0] / l1[:, -1]))
    yield Check(
        "l1-excess-vanishes",
        "as the scale falls, the l1 norm of the limit falls to the least one",
        f"{left:.1e} of the excess is left, largest rise on the way {max(0.0, -step):.1e}",
        at_least(step, -rounding),
        at_most(left, LITTLE),
    )
    step = float(np.diff(l2, axis=1).max())
    left = float(np.max(l2[:, -1] / l2[:, 0]))
    yield Check(
        "l2-excess-vanishes",
        "as the scale grows, the l2 norm of the limit falls to the least one",
        f"{left:.1e} of the excess is left, largest rise on the way {max(0.0, step):.1e}",
        at_most(step, rounding),
        at_most(left, LITTLE),
    )
    yield _asymmetry(path)


def _asymmetry(path: Table) -> Check:
    """Theorem 2: the kernel regime is near, the rich limit exponentially far."""
    x, l1, *_ = path.summary("excess_l1", by="log10_scale")
    l2 = path.summary("excess_l2", by="log10_scale").median
    middle = first(x, l1 >= 0.5 * l1[-1])
    up = first(x, l2 <= LITTLE * l2[0]) - middle
    down = middle - first(x[::-1], l1[::-1] <= LITTLE * l1[-1])
    return Check(
        "rich-limit-is-farther",
        "l2 is approximated from a moderately large scale on, l1 only from a far smaller one",
        f"from the middle, the last {LITTLE:.0%} of excess l2 norm is {up:.2f} decades up, "
        f"that of l1 {down:.2f} decades down",
        at_least(down, 2.0 * up),
        more_than(up, 0.0),
        silence=_other_depth(path),
    )


def _other_depth(rows: Table) -> str:
    """From depth 3 on a power of the scale is as good as its logarithm at depth 2 [Theorem 3]."""
    depth = rows["depth"][0]
    return "" if depth == 2.0 else f"the paper says it of depth 2; this is depth {depth:g}"


def _check_tradeoff(line: sizes.SampleSizeLine, rows: Table) -> Iterator[Check]:
    # No scale at all counts as smaller than any: close to the line that is half of the data sets.
    n, median, *_ = rows.summary("log10_scale", by="n")
    here = line.first(n)
    beyond, following = first(n, n >= 1.5 * here), first(n, n > here)
    places = (here, following, beyond, n[-1])
    at_line, at_next, at_beyond, at_end = (sizes.value_at(n, median, size) for size in places)
    passing = rows["log10_scale"][rows["n"] == here] > -np.inf
    share = float(passing.mean()) if passing.size else np.nan
    yield Check(
        "tiny-at-the-line",
        "where the least-l1 solution just generalizes, the scale must be extremely small (medians)",
        f"{sizes.power(at_line)} at n = {here:.0f}, where {share:.0%} of the data sets allow any "
        f"scale; {sizes.power(at_next)} at n = {following:.0f} (counts as extreme: below 1e-4)",
        at_most(at_line, -4.0),
        silence=_other_depth(rows),
    )
    yield Check(
        "much-larger-slightly-beyond",
        "with half as many samples again a much larger scale suffices; later gains are smaller",
        f"{sizes.power(at_line)} at n = {here:.0f}, {sizes.power(at_beyond)} at n = {beyond:.0f}, "
        f"{sizes.power(at_end)} at n = {n[-1]:.0f}",
        at_least(at_beyond - at_line, max(1.5, at_end - at_beyond)),
        silence=_other_depth(rows),
    )


EXPERIMENT = Experiment(
    name="woodworth-fig1",
    title="The scale of the start decides what is learned",
    reference=Reference("woodworth2020", "Figure 1"),
    summary=(
        "Sparse regression with far fewer samples than features. Every predictor considered fits "
        "the data exactly; gradient flow on the depth-2 network w₊² − w₋² picks one by the scale "
        "of its start. The population error is that of a new sample less the noise, which is the "
        "squared distance to the planted predictor. Bands hold the middle half of the data sets."
    ),
    paper_says=(
        "As the scale falls, the limit moves from the least-l2 solution, which does not "
        "generalize, to the least-l1 solution, which does. The largest scale that still "
        "generalizes is extremely small where the samples just suffice for the least-l1 solution, "
        "and much larger with only a few samples more."
    ),
    settings={
        Preset.SMOKE: {
            "depth": 2,
            "sparsity": 5,
            "noise_var": 0.01,
            "threshold": 0.025,
            "d": 250,
            "path_n": 60,
            "per_decade": 4,
            "path_replicates": 3,
            "sample_sizes": "34 40 46 70 100",
            "replicates": 5,
            "l1_sizes": "32 38 44",
            "l1_batches": 2,
        },
        Preset.LAPTOP: {
            "d": 1000,
            "path_n": 100,
            "per_decade": 6,
            "path_replicates": 9,
            "sample_sizes": "40 44 48 52 56 60 66 72 80 100 120 150 200",
            "replicates": 15,
            "l1_sizes": sizes.L1_SIZES,
            "l1_batches": 12,
        },
        Preset.PAPER: {"path_replicates": 31, "replicates": 51, "l1_batches": 20},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts generalize", draw_error),
        Panel("b", "From least l2 to least l1 norm", draw_excess),
        Panel("c", "How small is small enough", draw_largest_scale),
    ),
    check=check,
)
