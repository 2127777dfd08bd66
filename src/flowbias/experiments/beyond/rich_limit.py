"""What depth selects as the scale vanishes, and whether the shape of the start is forgotten.

    depth 2:     least sum |w|,             among its minimizers least sum |w| log(|w| / w0^2)
    depth D > 2: least sum w0^(2-D) |w|,    among its minimizers largest sum |w|^(2/D)

[docs/theory/overview.md, 7]
"""

from __future__ import annotations

from collections.abc import Iterator

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.beyond.segment import (
    DEPTHS,
    check_segment,
    compute_curve,
    compute_segment,
    draw_depths,
    draw_segment,
)
from flowbias.experiments.beyond.start_shape import check_shape, compute_shape, draw_shape
from flowbias.experiments.table import Columns, Table
from flowbias.theory.claim import beyond_the_papers


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per depth on the segment, one for the curve over depths, one per random problem."""
    for depth in DEPTHS:
        yield "segment", {"per_decade": settings["per_decade"], "depth": depth}
    yield "curve", {}
    sizes = {name: settings[name] for name in ("n", "d", "sparsity", "noise_var", "per_factor_ten")}
    for replicate in range(int(settings["replicates"])):
        yield "shape", {**sizes, "replicate": replicate}


def compute(task: Task) -> Columns:
    parts = {"segment": compute_segment, "curve": compute_curve, "shape": compute_shape}
    return parts[task.part](task)


def check(table: Table) -> list[Check]:
    segment, curve, shape = (table.part(name) for name in ("segment", "curve", "shape"))
    return [*check_segment(segment, curve), *check_shape(shape)]


_SIZES = {"n": 20, "d": 60, "sparsity": 5, "noise_var": 0.01}

EXPERIMENT = Experiment(
    name="rich-limit",
    title="What depth selects as the scale vanishes",
    reference=beyond_the_papers("7 The rich limit and its selection"),
    summary=(
        "As the scale of the start vanishes, the limit of gradient flow minimizes an l1 norm. (a) "
        "Where that norm has many minimizers, here a segment, the depth decides which one is "
        "selected; dotted lines are the selection that rich_limit computes at once. (b) It moves "
        "from the largest entropy at depth 2 to the analytic centre at infinite depth. (c) From a "
        "start of random shape w0, depth 2 goes to the least plain l1 norm and depth 3 to the "
        "least Σ|w|/w0; the start at depth 2 must be smaller by many orders of magnitude."
    ),
    paper_says=(
        "The papers take the minimizer to be unique and the start to be uniform where the scale "
        "vanishes. Our claim beyond them: depth 2 selects the largest entropy and forgets the "
        "shape of the start, depth D >= 3 selects the largest Σ|w|^(2/D) and keeps the shape as "
        "weights w0^(2−D)."
    ),
    settings={
        Preset.SMOKE: {**_SIZES, "per_decade": 4, "per_factor_ten": 8, "replicates": 5},
        Preset.LAPTOP: {**_SIZES, "per_decade": 4, "per_factor_ten": 16, "replicates": 41},
        Preset.PAPER: {**_SIZES, "per_decade": 4, "per_factor_ten": 24, "replicates": 201},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "The limit goes to a selected point", draw_segment),
        Panel("b", "Depth decides which", draw_depths),
        Panel("c", "From depth 3 on, the start is kept", draw_shape),
    ),
    check=check,
)
