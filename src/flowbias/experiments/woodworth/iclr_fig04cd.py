"""Large steps leave the kernel regime from a start where small ones stay in it.

[woodworth2019, ICLR version, Figure 4 (c, d); section 7]: circle teacher, alpha fixed near the
transition, gradient descent at constant step sizes.

(c) test error  (d) how far tangent features have turned

Steps are counted in units of 2 / (c lambda_max), c/2 the factor before the sum of squares and
lambda_max the largest eigenvalue of the tangent kernel at the start: beyond 1 descent is unstable
in the kernel regime. It then grows until the kernel has shrunk enough for it to settle, which is
how it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Experiment, Panel, Task, needs_torch, torch_device
from flowbias.experiments.check import Check, at_least, at_most, true, within
from flowbias.experiments.drawing import draw_band, name_line, reference_line, say
from flowbias.experiments.settings import Preset, Settings, picked
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.circle_networks import (
    Circle,
    by_depth,
    by_descent,
    draw_circles,
    largest_stable_step,
    network,
)
from flowbias.ground.drawing import DEPTH_COLOURS
from flowbias.ground.typing import Axes, FloatArray, Mask
from flowbias.theory import Reference

#: log10 of alpha^D: where small steps turn features by about 0.02 [woodworth-fig6ab].
LEVELS = {2: -0.5, 3: 0.0, 5: 0.3}
#: Where a depth's name stands beside the end of its line: two of them meet.
SIDES = {2: "right", 3: "below", 5: "above"}
# Share of the data sets on which a step must work to be judged.
ENOUGH = 0.75


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task trains some data sets at all step sizes: one batch of networks a depth."""
    for group in range(int(settings["groups"])):
        kept = picked(settings, "fractions", "replicates", "steps")
        yield "sweep", {**kept, "group": group}


def compute(task: Task) -> Columns:
    """Every network of the task, trained, or not where the step is too large."""
    circles = draw_circles(task.rng(), task.integer("replicates"))
    with torch_device() as device:
        parts = [Table.of(_at_depth(task, depth, circles, device)) for depth in LEVELS]
    return Table.stack(parts).columns


def _at_depth(task: Task, depth: int, circles: list[Circle], device: object) -> Columns:
    fractions = task.numbers("fractions")
    starts = [network(depth, LEVELS[depth], circle.seed, device) for circle in circles]
    limits = [largest_stable_step(net, circle) for net, circle in zip(starts, circles, strict=True)]
    pairs = [(i, part) for i in range(len(circles)) for part in fractions]
    sizes = [limits[i] * part for i, part in pairs]
    trained = by_descent(
        [starts[i] for i, _ in pairs], [circles[i] for i, _ in pairs], sizes, task.integer("steps")
    )
    first = task.integer("group") * len(circles)
    results = trained._asdict()
    # The setting of this name is how many there may be.
    results["steps_taken"] = results.pop("steps")
    return {
        "depth": depth,
        "replicate": [first + i for i, _ in pairs],
        "fraction": [part for _, part in pairs],
        "step_size": sizes,
        **results,
        "device": str(device),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    axes.set(yscale="log", ylabel="test RMSE")
    _draw_depths(axes, table, "rmse")
    sets, steps = table.levels("replicate").size, table["steps_taken"].max()
    trained = f"{sets} data sets, doubled networks, at most {steps:.0f} steps"
    say(axes, trained, 0.98, 0.02, ha="right", fontsize=9)


def draw_grad_distance(axes: Axes, table: Table) -> None:
    axes.set(ylim=(-0.02, 1.05), ylabel="grad distance of tangent features")
    _draw_depths(axes, table, "grad_distance")


def _draw_depths(axes: Axes, table: Table, column: str) -> None:
    for depth in LEVELS:
        rows, colour = table.where(depth=depth), DEPTH_COLOURS[depth]
        kept = rows.rows(_trained(rows) & np.isin(rows["fraction"], _workable(rows)))
        if not len(kept):
            continue
        curve = kept.summary(column, by="fraction")
        draw_band(axes, curve.x, curve, color=colour, marker="o", markersize=4)
        last = curve.x[-1], curve.median[-1]
        name_line(axes, f"D = {depth}", *last, side=SIDES[depth], colour=colour)
    axes.margins(x=0.12)
    reference_line(axes, x=1.0, text="stable below")
    axes.set_xlabel("step size η / largest stable one at the start")


def _trained(rows: Table) -> Mask:
    """Up to this training RMSE, of labels of size 1."""
    return np.asarray(rows["train_rmse"] <= 0.03)


def _workable(rows: Table) -> FloatArray:
    """The fractions at which enough networks train."""
    good = _trained(rows)
    levels = rows.levels("fraction")
    shares = [float(np.mean(good[rows["fraction"] == level])) for level in levels]
    return levels[np.array(shares) >= ENOUGH]


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What section 7 says about the step size."""
    return [*_check_turning(table), *_errors(table)]


def _paired(rows: Table, column: str, fraction: float) -> FloatArray:
    """One value per data set at a step size, NaN where it did not train."""
    chosen = rows.rows(rows["fraction"] == fraction)
    values = np.where(_trained(chosen), chosen[column], np.nan)
    return np.asarray(values[np.argsort(chosen["replicate"])])


def _median(rows: Table, column: str, fraction: float) -> float:
    """Over the networks that trained; NaN where there are too few."""
    values = _paired(rows, column, fraction)
    left = values[np.isfinite(values)]
    return float(np.median(left)) if left.size >= ENOUGH * values.size else np.nan


def _check_turning(table: Table) -> Iterator[Check]:
    # A cosine distance up to which features count as hardly turned.
    hardly = 0.1
    small, below, large, at = {}, {}, {}, {}
    for depth in LEVELS:
        rows = table.where(depth=depth)
        levels, works = rows.levels("fraction"), _workable(rows)
        inside = levels[levels <= 0.5]
        small[depth] = _median(rows, "grad_distance", float(inside[0]))
        below[depth] = max((_median(rows, "grad_distance", f) for f in inside), key=_nan_first)
        at[depth] = float(works[-1]) if works.size else np.nan
        large[depth] = _median(rows, "grad_distance", at[depth])
    yield Check(
        "small-steps-stay",
        "small steps remain in the kernel regime",
        f"grad distance up to half of the stable step at most {by_depth(below, '.3f')}",
        at_most(list(below.values()), hardly),
    )
    yield Check(
        "large-steps-leave",
        "from the same start larger steps leave the kernel regime",
        f"grad distance {by_depth(large, '.2f')} at {by_depth(at, '.1f')} times the stable step, "
        f"against {by_depth(small, '.3f')}",
        at_least(list(large.values()), np.maximum(hardly, 4.0 * np.array(list(small.values())))),
    )
    yield _edge(table)


def _nan_first(value: float) -> float:
    return np.inf if np.isnan(value) else value


def _edge(table: Table) -> Check:
    """Ours: the way out is instability."""
    found = {}
    for depth in LEVELS:
        rows = table.where(depth=depth)
        works = _workable(rows)
        turned = np.array([_median(rows, "grad_distance", float(f)) for f in works])
        left = turned > 2.0 * turned[:1]
        found[depth] = float(works[np.argmax(left)]) if left.any() else np.nan
    return Check(
        "the-edge-is-stability",
        "features turn twice as far from about the largest stable step on (ours)",
        f"first at {by_depth(found, '.1f')} times it",
        *within(list(found.values()), 0.8, 1.6),
    )


def _errors(table: Table) -> Iterator[Check]:
    inside, beyond, end = {}, {}, {}
    for depth in LEVELS:
        rows = table.where(depth=depth)
        works = _workable(rows)
        start = _paired(rows, "rmse", float(rows.levels("fraction")[0]))
        moved = {float(f): _typical(_paired(rows, "rmse", float(f)) / start) for f in works}
        inside[depth] = max(
            (v for f, v in moved.items() if f <= 0.5), key=_nan_first, default=np.nan
        )
        beyond[depth] = max((v for f, v in moved.items() if f > 1.0), default=np.nan)
        last = (
            _paired(rows, "rmse", float(works[-1])) if works.size else np.full_like(start, np.nan)
        )
        left = (last / start)[np.isfinite(last / start)]
        end[depth] = float(np.median(left)) if left.size else np.nan
    yield Check(
        "step-size-matters",
        "the step size has a significant effect on the test error, once it is large",
        f"median change, up or down: {by_depth(inside, '.0%')} up to half of the stable step, "
        f"up to {by_depth(beyond, '.0%')} beyond it; the largest step that works multiplies the "
        f"error by {by_depth(end, '.2f')}",
        at_least(list(beyond.values()), np.maximum(0.1, 2.0 * np.array(list(inside.values())))),
    )
    largest = table["fraction"] == table.levels("fraction")[-1]
    share = float(np.mean(_trained(table)[largest]))
    known = bool(np.isfinite(table["fraction"]).all() and not np.isnan(table["steps_taken"]).any())
    yield Check(
        "too-large-diverges",
        "beyond a few times the stable step descent no longer trains (ours)",
        f"{share:.0%} train at {table.levels('fraction')[-1]:g} times it",
        at_most(share, 0.5),
        true(known),
    )


def _typical(ratios: FloatArray) -> float:
    """The median change; NaN where too few networks trained."""
    left = ratios[np.isfinite(ratios)]
    return float(np.median(np.abs(left - 1.0))) if left.size >= 0.5 * ratios.size else np.nan


EXPERIMENT = Experiment(
    name="woodworth-iclr-fig4cd",
    title="Large steps leave the kernel regime too",
    reference=Reference("woodworth2019", "Figure 4 (c, d)"),
    summary=(
        "The networks of woodworth-fig6ab, started where gradient flow just stays in the kernel "
        "regime (α^D = 0.32, 1 and 2 at depths 2, 3 and 5) and trained by gradient descent at one "
        "constant step size each. Sizes are given in units of the largest stable one for the "
        "tangent kernel at the start. Gradient flow finishes what descent has left. Medians and "
        "the middle half of the data sets on which that reached a training RMSE of 0.03, where "
        "those are three quarters of all. Here leaving the kernel regime by large steps does not "
        "lower the test error, as leaving it by a small start does."
    ),
    paper_says=(
        "The step size has a significant effect too: larger ones leave the kernel regime from a "
        "scale at which smaller ones remain trapped in it."
    ),
    settings={
        Preset.SMOKE: {
            "fractions": "0.3 0.5 1.5 2 10",
            "groups": 1,
            "replicates": 4,
            "steps": 1000,
        },
        Preset.LAPTOP: {
            "fractions": "0.2 0.35 0.5 0.7 0.9 1.1 1.2 1.35 1.5 1.75 2 2.5 3 4 10",
            "groups": 5,
            "replicates": 4,
            "steps": 3000,
        },
        Preset.PAPER: {
            "fractions": "0.1 0.2 0.35 0.5 0.7 0.9 1 1.1 1.2 1.35 1.5 1.75 2 2.25 2.5 3 4 10",
            "groups": 20,
            "steps": 20_000,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("c", "Test error against the step size", draw_error),
        Panel("d", "Unstable steps turn the features", draw_grad_distance),
    ),
    check=check,
    needs=needs_torch,
)
