"""Which l1 minimizer the limit selects where there are many.  [docs/theory/overview.md, 7]

X = [[1,1,1],[0,1,2]], y = (1, 0.8) has the l1 minimizers (0.2 + t, 0.8 - 2t, t), 0 <= t <= 0.4. As
the scale vanishes depth D selects the largest sum w^(2/D), depth 2 the largest entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.optimize

from flowbias.experiments._base import Check, Task
from flowbias.experiments.drawing import name_line
from flowbias.experiments.table import Columns, Table
from flowbias.ground.look import DEPTH_COLOURS, INK
from flowbias.limits import basis_pursuit, limit_path, rich_limit
from flowbias.models import DiagonalNet
from flowbias.results.solution import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEPTHS = (2, 3, 4, 6, 10)
X = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
Y = np.array([1.0, 0.8])
# The first row of X says that the weights sum to 1, and on the segment none is negative.
LEAST_NORM = 1.0
# Limits are certified to 1e-10; one digit is left for the conversion to a distance.
CERTIFIED = 1e-9
DOTTED = (0, (1, 2))


def compute_segment(task: Task) -> Columns:
    """The limit's place t on the segment from alpha^D = 1 down to 1e-7."""
    depth = task.integer("depth")
    log10_start = np.linspace(0.0, -7.0, 7 * task.integer("per_decade") + 1)
    net = DiagonalNet(depth=depth, scale=1.0)
    path = limit_path(net, X, Y, log_scales=np.log(10.0) * log10_start / depth)
    vertex = basis_pursuit(X, Y)
    return {
        "log10_start": log10_start,
        "place": path.w[:, 2],
        "l1_norm": np.abs(path.w).sum(axis=1),
        "error_bound": [solution.certificate.error_bound for solution in path],
        "selected": rich_limit(net, X, Y).w[2],
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


def draw_segment(axes: Axes, table: Table) -> None:
    """Place on the segment against the size of the start, smaller starts to the right."""
    segment = table.part("segment")
    for depth in segment.levels("depth"):
        rows, colour = segment.where(depth=depth), DEPTH_COLOURS[int(depth)]
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
        axes.plot(2.0 / depth, place, "o", color=DEPTH_COLOURS[int(depth)], markersize=9)
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
    axes.set_xlabel("depth D (spaced by 2/D)")
    axes.set_ylabel("selected place t")


def check_segment(segment: Table, curve: Table) -> list[Check]:
    """What the limits on the segment must show."""
    return [
        _not_unique(segment),
        _selected(segment),
        _independent(segment),
        _rates(segment),
        _deeper(segment, curve),
        _certified(segment),
    ]


def _smallest_start(segment: Table) -> Table:
    return segment.rows(segment["log10_start"] == segment["log10_start"].min())


def _not_unique(segment: Table) -> Check:
    last = _smallest_start(segment)
    excess = float(np.max(np.abs(last["l1_norm"] - LEAST_NORM)))
    others = bool(np.all(last["is_unique"] == 0.0))
    return Check(
        "many-minimizers",
        "all depths reach the least l1 norm, and its minimizer is not unique",
        f"norms of the limits differ from it by at most {excess:.1e}; unique: {not others}",
        excess <= CERTIFIED and others,
    )


def _selected(segment: Table) -> Check:
    last = _smallest_start(segment)
    distance = np.abs(last["place"] - last["selected"])
    # The distance is about 1.3 alpha^D at the deepest, and what the solvers leave.
    allowed = 2.0 * 10.0 ** last["log10_start"] + CERTIFIED
    return Check(
        "limit-is-selected",
        "as the scale vanishes the limit goes to the minimizer that rich_limit selects",
        f"largest distance at the smallest scale {np.max(distance):.1e}",
        bool(np.all(distance <= allowed)),
    )


def _independent(segment: Table) -> Check:
    worst = float(np.max(np.abs(segment["selected"] - segment["optimum"])))
    return Check(
        "selection-is-optimum",
        "rich_limit selects the largest Σ|w|^(2/D), at depth 2 the largest entropy, as found by "
        "bisection on the segment",
        f"largest distance {worst:.1e}",
        worst <= CERTIFIED,
    )


def _rates(segment: Table) -> Check:
    exponents = {depth: _exponent(segment.where(depth=depth)) for depth in segment.levels("depth")}
    deep = np.array([exponent for depth, exponent in exponents.items() if depth > 2.0])
    text = ", ".join(f"D = {depth:g}: {exponent:.3f}" for depth, exponent in exponents.items())
    # What is left of the next order at the distances looked at.
    allowed = 0.05
    return Check(
        "rate-on-segment",
        "on the segment the distance to the selected point falls like α^D from depth 3 on, and "
        "like (α^D)² at depth 2",
        f"exponent of α^D for {text}",
        bool(np.all(np.abs(deep - 1.0) <= allowed)) and abs(exponents[2.0] - 2.0) <= allowed,
    )


def _exponent(rows: Table) -> float:
    """Median exponent of the start, over distances that are small and above what solvers leave."""
    distance = np.abs(rows["place"] - rows["optimum"])
    if np.isnan(distance).any():
        return np.nan
    seen = (distance > 0.1 * CERTIFIED) & (distance < 1e-5)
    slopes = np.diff(np.log10(distance[seen])) / np.diff(rows["log10_start"][seen])
    return float(np.median(slopes)) if slopes.size else np.nan


def _deeper(segment: Table, curve: Table) -> Check:
    last = _smallest_start(segment)
    places = last["place"][np.argsort(last["depth"])]
    entropy, centre = curve["optimum"][-1], curve["optimum"][0]
    steps = np.diff([*places, centre])
    near = abs(places[0] - entropy)
    return Check(
        "depth-moves-selection",
        "the selected point moves with depth, from the largest entropy at depth 2 towards the "
        "analytic centre",
        f"{', '.join(f'{place:.5f}' for place in places)} and {centre:.5f} at infinite depth",
        bool(np.all(steps > 1e-4)) and bool(near <= 10.0 * CERTIFIED),
    )


def _certified(segment: Table) -> Check:
    worst = float(np.max(segment["error_bound"]))
    return Check(
        "certified",
        "every limit on the segment is proved to eight digits",
        f"largest error bound {worst:.1e}",
        worst <= 1e-8,
    )
