"""What depth selects as the scale vanishes, and whether the shape of the start is forgotten.

    depth 2:     least sum |w|,             among its minimizers least sum |w| log(|w| / w0^2)
    depth D > 2: least sum w0^(2-D) |w|,    among its minimizers largest sum |w|^(2/D)

[docs/theory/overview.md, 7]

(a), (b) X = [[1,1,1],[0,1,2]], y = (1, 0.8) has the l1 minimizers (0.2 + t, 0.8 - 2t, t) with
0 <= t <= 0.4. As the scale vanishes depth D selects the largest sum w^(2/D), depth 2 the largest
entropy. (c) starts of random shape: `start_shape`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.optimize

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.beyond.start_shape import (
    CERTIFIED,
    check_shape,
    compute_shape,
    draw_shape,
)
from flowbias.experiments.check import at_most, more_than, true
from flowbias.experiments.curves import listed, never_above
from flowbias.experiments.drawing import name_line
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from flowbias.ground.typing import Axes
from flowbias.limits import basis_pursuit, limit_path, rich_limit
from flowbias.models import DiagonalNet
from flowbias.results.solution import Status
from flowbias.theory.claim import beyond_the_papers

DOTTED = (0, (1, 2))


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per depth on the segment, one for the curve over depths, one per random problem."""
    for depth in str(settings["depths"]).split():
        yield "segment", {"per_decade": settings["per_decade"], "depth": int(depth)}
    yield "curve", {}
    sizes = picked(settings, "n", "d", "sparsity", "noise_var", "per_factor_ten")
    for replicate in range(int(settings["replicates"])):
        yield "shape", {**sizes, "replicate": replicate}


def compute(task: Task) -> Columns:
    parts = {"segment": compute_segment, "curve": compute_curve, "shape": compute_shape}
    return parts[task.part](task)


def compute_segment(task: Task) -> Columns:
    """The limit's place t on the segment from alpha^D = 1 down to 1e-7."""
    depth = task.integer("depth")
    log10_start = np.linspace(0.0, -7.0, 7 * task.integer("per_decade") + 1)
    net = DiagonalNet(depth=depth, scale=1.0)
    X, y = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]), np.array([1.0, 0.8])
    path = limit_path(net, X, y, log_scales=np.log(10.0) * log10_start / depth)
    vertex = basis_pursuit(X, y)
    return {
        "log10_start": log10_start,
        "place": path.w[:, 2],
        "l1_norm": np.abs(path.w).sum(axis=1),
        "error_bound": [solution.certificate.error_bound for solution in path],
        "selected": rich_limit(net, X, y).w[2],
        "optimum": best_place(2.0 / depth),
        "is_unique": float(vertex.status is not Status.NOT_UNIQUE),
    }


def compute_curve(task: Task) -> Columns:
    """The optimum over all depths, integer or not, from 2 (exponent 1) to infinity (exponent 0)."""
    exponents = np.linspace(0.0, 1.0, 41)
    return {"exponent": exponents, "optimum": [best_place(float(p)) for p in exponents]}


def best_place(exponent: float) -> float:
    """t of the largest sum w^p on the segment, p = 2/D, found without any of the solvers.

    At p = 1 all points have the same sum; (sum w^p - sum w)/(p - 1) then leaves sum w log w, the
    negative entropy, to be minimized. At p = 0 (sum w^p - d)/p leaves sum log w: the analytic
    centre. The derivatives of all these along (1, -2, 1) are, up to factors, the one below.
    """

    def pull(t: float) -> float:
        w = np.array([0.2 + t, 0.8 - 2.0 * t, t])
        slopes = np.log(w) if exponent == 1.0 else w ** (exponent - 1.0)
        return float(slopes @ np.array([1.0, -2.0, 1.0]))

    edge = 1e-9
    return float(scipy.optimize.brentq(pull, edge, 0.4 - edge, xtol=1e-16, rtol=1e-15))


# --- panels ------------------------------------------------------------------------------------


def draw_segment(axes: Axes, table: Table) -> None:
    """Place on the segment against the size of the start, smaller starts to the right."""
    segment = table.part("segment")
    for depth in segment.levels("depth"):
        rows, colour = segment.where(depth=depth), DEPTH_COLOURS.get(int(depth), INK)
        start = 10.0 ** rows["log10_start"]
        axes.plot(start, rows["selected"], color=colour, linewidth=0.9, linestyle=DOTTED)
        axes.plot(start, rows["place"], color=colour)
        name_line(axes, f"D = {depth:g}", start[-1], rows["place"][-1], colour=colour)
    axes.set_xscale("log")
    # Room for the names beyond the last point.
    axes.set_xlim(1.0, 1e-9)
    axes.set_xticks([1.0, 1e-2, 1e-4, 1e-6])
    axes.set_xlabel("scale of the start α, as $α^D$")
    axes.set_ylabel("place t on the segment of l1 minimizers")


def draw_depths(axes: Axes, table: Table) -> None:
    """The selected place against depth: the optimum as a line, limits and rich_limit on it."""
    curve, segment = table.part("curve"), table.part("segment")
    axes.plot(curve["exponent"], curve["optimum"], color=INK, linewidth=1.2)
    last = _smallest_start(segment)
    for depth, place in zip(last["depth"], last["place"], strict=True):
        axes.plot(2.0 / depth, place, "o", color=DEPTH_COLOURS.get(int(depth), INK), markersize=9)
    depths = last["depth"]
    axes.set_xlim(1.05, -0.05)
    axes.set_xticks([*(2.0 / depths), 0.0], [*(f"{depth:g}" for depth in depths), "∞"])
    where = axes.get_yaxis_transform()
    for text, y, x, side in (
        ("largest entropy", curve["optimum"][-1], 0.98, "right"),
        ("analytic centre", curve["optimum"][0], 0.02, "left"),
    ):
        axes.axhline(y, color=INK, linewidth=0.9, linestyle=DOTTED)
        axes.text(x, y, text, transform=where, ha=side, va="bottom", fontsize=10)
    axes.set(xlabel="depth D (spaced by 2/D)", ylabel="selected place t")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    segment, curve, shape = (table.part(name) for name in ("segment", "curve", "shape"))
    return [*check_segment(segment, curve), *check_shape(shape)]


def check_segment(segment: Table, curve: Table) -> list[Check]:
    """What the limits on the segment must show."""
    return [*_selected(segment), *_by_depth(segment, curve)]


def _smallest_start(segment: Table) -> Table:
    return segment.rows(segment["log10_start"] == segment["log10_start"].min())


def _selected(segment: Table) -> Iterator[Check]:
    last = _smallest_start(segment)
    # The first row of X says that weights sum to 1, and on the segment none is negative.
    excess = float(np.max(np.abs(last["l1_norm"] - 1.0)))
    others = bool(np.all(last["is_unique"] == 0.0))
    yield Check(
        "many-minimizers",
        "all depths reach the least l1 norm, and its minimizer is not unique",
        f"norms of the limits differ from it by at most {excess:.1e}; unique: {not others}",
        at_most(excess, CERTIFIED),
        true(others),
    )
    distance = np.abs(last["place"] - last["selected"])
    # The distance is about 1.3 alpha^D at the deepest, and what the solvers leave.
    allowed = 2.0 * 10.0 ** last["log10_start"] + CERTIFIED
    yield Check(
        "limit-is-selected",
        "as the scale vanishes the limit goes to the minimizer that rich_limit selects",
        f"largest distance at the smallest scale {np.max(distance):.1e}",
        at_most(distance, allowed),
    )
    yield never_above(
        "selection-is-optimum",
        "rich_limit selects the largest Σ|w|^(2/D), at depth 2 the largest entropy, as found by "
        "bisection on the segment",
        "largest distance {:.1e}",
        np.abs(segment["selected"] - segment["optimum"]),
        CERTIFIED,
    )


def _by_depth(segment: Table, curve: Table) -> Iterator[Check]:
    exponents = {depth: _exponent(segment.where(depth=depth)) for depth in segment.levels("depth")}
    deep = np.array([exponent for depth, exponent in exponents.items() if depth > 2.0])
    text = ", ".join(f"D = {depth:g}: {exponent:.3f}" for depth, exponent in exponents.items())
    # What is left of the next order at the distances looked at.
    allowed = 0.05
    yield Check(
        "rate-on-segment",
        "on the segment the distance to the selected point falls like α^D from depth 3 on, and "
        "like (α^D)² at depth 2",
        f"exponent of α^D for {text}",
        at_most(np.abs(deep - 1.0), allowed),
        at_most(abs(exponents.get(2.0, np.nan) - 2.0), allowed),
    )
    last = _smallest_start(segment)
    places = last["place"][np.argsort(last["depth"])]
    entropy, centre = curve["optimum"][-1], curve["optimum"][0]
    steps = np.diff([*places, centre])
    near = np.abs(last["place"][last["depth"] == 2.0] - entropy)
    yield Check(
        "depth-moves-selection",
        "the selected point moves with depth, from the largest entropy at depth 2 towards the "
        "analytic centre",
        f"{listed(places, '.5f')} and {centre:.5f} at infinite depth",
        more_than(steps, 1e-4),
        at_most(near, 10.0 * CERTIFIED),
    )
    claim = "every limit on the segment is proved to eight digits"
    words = "largest error bound {:.1e}"
    yield never_above("certified", claim, words, segment["error_bound"], 1e-8)


def _exponent(rows: Table) -> float:
    """Median exponent of the start, over distances that are small and above what solvers leave."""
    distance = np.abs(rows["place"] - rows["optimum"])
    if np.isnan(distance).any():
        return np.nan
    seen = (distance > 0.1 * CERTIFIED) & (distance < 1e-5)
    slopes = np.diff(np.log10(distance[seen])) / np.diff(rows["log10_start"][seen])
    return float(np.median(slopes)) if slopes.size else np.nan


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
        Preset.SMOKE: {
            "depths": "2 3 4 6 10",
            "n": 20,
            "d": 60,
            "sparsity": 5,
            "noise_var": 0.01,
            "per_decade": 4,
            "per_factor_ten": 8,
            "replicates": 5,
        },
        Preset.LAPTOP: {"per_factor_ten": 16, "replicates": 41},
        Preset.PAPER: {"per_factor_ten": 24, "replicates": 201},
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
