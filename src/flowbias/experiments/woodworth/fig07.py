"""Univariate ReLU networks: straight lines from small starts, smooth curves from large ones.

[woodworth2020, Figure 7; B.1]: two layers, width 10000, w(0) = alpha w_0.

(a) w_0 as usual  (b, c) the layers of w_0 rescaled against each other, its output unchanged

The paper does not list its points, its scales nor the factors between the layers. What those do
depends on the width: the tangent kernel is a sum of two, that of the second layer, smooth, of
relative size r^4 width / 2 for a first layer multiplied by r; and that of the first, with kinks.
The panels have fixed relative sizes, so that they show the same at every width.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, needs_torch
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.torch_task import torch_device
from flowbias.experiments.woodworth.relu_univariate import (
    POINTS,
    RANGE,
    VALUES,
    curve_columns,
    doubled,
    learn,
)
from flowbias.ground.look import BLUE, INK, RED
from flowbias.ground.typing import FloatArray
from flowbias.nets import wide_interpolant
from flowbias.nets.splines import Curve
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How much larger the second layer's share of the kernel is, by panel; as it comes in (a).
SHARES = {"a": None, "b": 10.0, "c": 0.1}
# Distances are the largest on the grid, in units of the range of the values.
NEAR, MEETS, APART = 0.05, 0.02, 0.04
FITTED = 0.01


def relative_scale(panel: str, width: int) -> float:
    """What the first layer is multiplied by, and the second divided."""
    share = SHARES[panel]
    return 1.0 if share is None else (2.0 * share / width) ** 0.25


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task is a panel: all its scales are trained in one batch."""
    for panel in SHARES:
        yield "curves", {**settings, "panel": panel}


def compute(task: Task) -> Columns:
    """The curves of one relative scale. The same w_0 underlies all panels."""
    scales = [float(scale) for scale in task.text("scales").split()]
    width = task.integer("width")
    relative = relative_scale(task.text("panel"), width)
    with torch_device() as device:
        starts = [
            doubled(width, scale, relative, np.random.default_rng(task.integer("seed")), device)
            for scale in scales
        ]
        learned = learn(starts, task.integer("descent_steps"))
        parts = [
            curve_columns(start, _wide(width, scale, relative), scale, learned, i)
            for i, (start, scale) in enumerate(zip(starts, scales, strict=True))
        ]
    return {**Table.stack(parts).columns, "relative": relative, "device": str(device)}


def _wide(width: int, scale: float, relative: float) -> Curve:
    return wide_interpolant(POINTS, VALUES, width=width, scale=scale, relative_scale=relative)


# --- panels ------------------------------------------------------------------------------------


def draw_curves(axes: Axes, table: Table, *, panel: str) -> None:
    rows = table.where(panel=panel)
    scales = rows.levels("scale")
    last = rows.where(scale=float(scales[-1]))
    x = last["x"]
    axes.plot(x, last["kernel"], color=INK, alpha=0.18, linewidth=7, label="its tangent kernel")
    axes.plot(x, last["wide"], color=INK, linewidth=1.6, label="infinitely wide")
    for place, (scale, colour) in enumerate(zip(scales, _colours(len(scales)), strict=True)):
        end = place in (0, len(scales) - 1)
        curve = rows.where(scale=float(scale))["learned"]
        axes.plot(x, curve, color=colour, linewidth=2.2 if end else 1.1, label=f"α = {scale:g}")
    thin: dict[str, Any] = {"color": INK, "linewidth": 1.0}
    axes.plot(x, last["linear"], **thin, linestyle=(0, (1, 2)), label="linear spline")
    axes.plot(x, last["cubic"], **thin, linestyle=(0, (6, 3)), label="cubic spline")
    axes.plot(POINTS, VALUES, "o", color=INK, markersize=6, zorder=5)
    axes.set(ylim=(-1.05, 0.72), xlabel="input x", ylabel="learned function f(x)")
    axes.annotate(
        f"width {rows['width'][0]:g} (paper: 10000), r = {rows['relative'][0]:.2g}",
        (0.02, 0.97),
        xycoords="axes fraction",
        va="top",
        fontsize=9,
    )
    axes.legend(ncols=3, fontsize=9, frameon=False, loc="lower center", handlelength=1.6)


def _colours(count: int) -> list[tuple[float, float, float]]:
    """From red, for the smallest scale, to blue."""
    from matplotlib.colors import to_rgb

    first, last = np.array(to_rgb(RED)), np.array(to_rgb(BLUE))
    mixed = [first + (last - first) * part for part in np.linspace(0.0, 1.0, count)]
    return [(float(r), float(g), float(b)) for r, g, b in mixed]


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What B.1 says about the three panels."""
    return [
        _fitted(table),
        _rich_is_linear(table),
        _rich_ignores_layers(table),
        _kernel_is_exact(table),
        _wide_enough(table),
        _kernel_sees_layers(table),
        _which_splines(table),
        _transition(table),
    ]


def _at_end(table: Table, panel: str, end: int, column: str) -> FloatArray:
    rows = table.where(panel=panel)
    return np.asarray(rows.where(scale=float(rows.levels("scale")[end]))[column])


def _apart(first: FloatArray, second: FloatArray) -> float:
    return float(np.max(np.abs(first - second))) / RANGE


def _away(table: Table, end: int, column: str, of: str = "learned") -> dict[str, float]:
    """How far curves of the smallest (0) or largest scale (-1) are from another column."""
    return {
        panel: _apart(_at_end(table, panel, end, of), _at_end(table, panel, end, column))
        for panel in SHARES
    }


def _pairs(table: Table, end: int, column: str) -> list[float]:
    curves = [_at_end(table, panel, end, column) for panel in SHARES]
    return [_apart(first, second) for first, second in combinations(curves, 2)]


def _percent(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.1%}" for value in values.values())


def _fitted(table: Table) -> Check:
    worst = float(np.max(table["train_rmse"])) / RANGE
    return Check(
        "trained-to-zero",
        "all networks fit the points",
        f"training RMSE at most {worst:.1e} of the range",
        worst <= FITTED,
    )


def _rich_is_linear(table: Table) -> Check:
    away = _away(table, 0, "linear")
    return Check(
        "small-start-is-the-linear-spline",
        "small starts give the linear spline",
        f"largest distance {_percent(away)} of the range (allowed: {NEAR:.0%})",
        all(value <= NEAR for value in away.values()),
    )


def _rich_ignores_layers(table: Table) -> Check:
    apart = max(_pairs(table, 0, "learned"))
    return Check(
        "small-starts-agree",
        "the rich limit does not depend on how the scale is shared between the layers",
        f"curves of the smallest scale differ by at most {apart:.1%} of the range",
        apart <= NEAR,
    )


def _kernel_is_exact(table: Table) -> Check:
    away = _away(table, -1, "kernel")
    return Check(
        "large-start-is-the-kernel-interpolant",
        "large starts give the interpolant of the tangent kernel at the start, computed exactly",
        f"largest distance {_percent(away)} of the range (allowed: {MEETS:.0%})",
        all(value <= MEETS for value in away.values()),
    )


def _wide_enough(table: Table) -> Check:
    # Networks of k units differ from infinitely wide ones by at most about this over sqrt(k): four
    # draws of each width and share did by 1.1 to 5.4.
    luck = 6.0
    away, allowed = _away(table, -1, "wide"), luck / float(np.sqrt(table["width"][0]))
    return Check(
        "large-start-is-near-the-infinitely-wide-one",
        "large starts give the interpolant of infinite width, in closed form, up to the luck of "
        "their draw",
        f"largest distance {_percent(away)} of the range (allowed: {allowed:.1%})",
        all(value <= allowed for value in away.values()),
    )


def _kernel_sees_layers(table: Table) -> Check:
    apart = _pairs(table, -1, "wide")
    return Check(
        "large-starts-differ",
        "the kernel limit changes with the relative scale of the layers, whatever the draw",
        "curves of infinite width and the largest scale (ab, ac, bc) differ by "
        + ", ".join(f"{value:.1%}" for value in apart),
        apart[0] >= APART and apart[1] >= APART,
    )


def _which_splines(table: Table) -> Check:
    """B.1 speaks of different cubic splines; that is so where the second layer has its share."""
    cubic, linear = (_away(table, -1, column, "wide") for column in ("cubic", "linear"))
    return Check(
        "which-splines-they-resemble",
        "large starts with layers as usual resemble the natural cubic spline more than the linear "
        "one; the smaller the first layer the less, down to the linear one (not a cubic one)",
        f"of infinite width, from the natural cubic spline {_percent(cubic)}, from the linear one "
        f"{_percent(linear)}",
        cubic["a"] < linear["a"]
        and linear["a"] > linear["b"] > linear["c"]
        and linear["c"] <= MEETS < APART <= cubic["c"],
    )


def _transition(table: Table) -> Check:
    falls, ends = [], []
    for panel in SHARES:
        rows = table.where(panel=panel)
        curves = [rows.where(scale=float(scale)) for scale in rows.levels("scale")]
        away = np.array([_apart(curve["learned"], curve["linear"]) for curve in curves])
        falls.append(float(np.max(-np.diff(away))))
        ends.append(f"{away[0]:.1%} to {away[-1]:.1%}")
    return Check(
        "straight-lines-bend-with-the-scale",
        "as the scale grows, curves leave the linear spline",
        f"distance from {', '.join(ends)}; largest fall on the way {max(0.0, *falls):.1%}",
        all(fall <= MEETS for fall in falls),
    )


_TITLES = {"a": "Both layers as usual", "b": "Smaller first layer", "c": "Tiny first layer"}
_COMMON: Settings = {"seed": 0, "scales": "0.01 0.1 0.3 1 3 30"}

EXPERIMENT = Experiment(
    name="woodworth-fig7",
    title="Linear splines from small starts, smooth curves from large",
    reference=Reference("woodworth2020", "Figure 7"),
    summary=(
        "Two-layer ReLU networks of one variable, doubled so that they start at zero, learn five "
        "points from scales α between small (red) and large (blue). Small starts draw straight "
        "lines between the points; large ones the interpolant of the tangent kernel at the start, "
        "computed exactly (broad grey line), which in wide networks is that of infinite width, in "
        "closed form (black). The second layer's share of that kernel, r⁴ width / 2 for a first "
        "layer multiplied by r, is half of the width in (a), 10 in (b) and 0.1 in (c): from a "
        "cubic spline to the linear one. The paper's width is 10000; the width computed is "
        "written in each panel (smoke 150, laptop 4000)."
    ),
    paper_says=(
        "The rich limit is the linear spline however the layers are scaled against each other. The "
        "kernel limit changes with that scaling and resembles different cubic splines."
    ),
    settings={
        Preset.SMOKE: {**_COMMON, "scales": "0.03 3 30", "width": 150, "descent_steps": 2800},
        Preset.LAPTOP: {**_COMMON, "width": 4000, "descent_steps": 12_000},
        Preset.PAPER: {"width": 10_000, "descent_steps": 30_000},
    },
    tasks=tasks,
    compute=compute,
    panels=tuple(
        Panel(panel, title, partial(draw_curves, panel=panel)) for panel, title in _TITLES.items()
    ),
    check=check,
    needs=needs_torch,
)
