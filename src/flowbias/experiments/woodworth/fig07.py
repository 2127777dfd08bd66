"""Univariate ReLU networks: straight lines from small starts, smooth curves from large ones.

[woodworth2020, Figure 7; B.1]: two layers, width 10000, w(0) = alpha w_0.

(a) w_0 as usual  (b, c) the layers of w_0 rescaled against each other, its output unchanged

The paper does not list its points, its scales nor the factors between the layers. What those do
depends on the width: the tangent kernel is a sum of two, that of the second layer, smooth, of
relative size r^4 width / 2 for a first layer multiplied by r; and that of the first, with kinks.
The panels have fixed relative sizes, so that they show the same at every width.

The values go up and down in turn. Then the linear spline is the only interpolant of least total
change of slope, which is what the parameter norm costs [Savarese et al. 2019]: where two
neighbouring kinks bend the same way, curves that share the bend between them cost no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from flowbias.experiments._base import Experiment, Panel, Task, needs_torch, torch_device
from flowbias.experiments.check import Check, at_least, at_most, less_than
from flowbias.experiments.curves import listed
from flowbias.experiments.drawing import say
from flowbias.experiments.settings import Preset, Settings
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import BLUE, INK, RED
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, FloatArray
from flowbias.nets import (
    flow_copies,
    linear_spline,
    natural_cubic_spline,
    stable_step_size,
    tangent_kernel_interpolant,
    train_copies,
    unbiased,
    univariate,
    wide_interpolant,
)
from flowbias.nets.splines import Curve
from flowbias.theory import Reference

POINTS = np.array([-1.0, -0.6, -0.1, 0.35, 0.8])
VALUES = np.array([0.3, -0.4, 0.5, -0.2, 0.4])
RANGE = float(np.ptp(VALUES))
# Between the points: outside them the splines are a convention.
GRID = np.linspace(POINTS[0], POINTS[-1], 181)
#: How much larger the second layer's share of the kernel is, by panel; as it comes in (a).
SHARES = {"a": None, "b": 10.0, "c": 0.1}
# Distances are the largest on the grid, in units of the range of the values.
MEETS = 0.02


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
    scales = task.numbers("scales")
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


class Learned(NamedTuple):
    """Curves on GRID, one row per network, and half the sum of squares that is left."""

    curves: FloatArray
    losses: FloatArray
    steps: FloatArray


def doubled(
    width: int, scale: float, relative_scale: float, rng: np.random.Generator, device: Any
) -> Any:
    """A network that is zero at the start; for equal `rng` the same one at all scales."""
    double = require_torch().float64
    net = univariate(width, scale=scale, relative_scale=relative_scale, rng=rng, dtype=double)
    return unbiased(net.to(device))


def learn(starts: Sequence[Any], descent_steps: int) -> Learned:
    """Descent, then gradient flow for what is left.

    Descent copes with units that slide along the points, which small starts end with; the flow with
    the slow directions of large starts, whose steps must be short.
    """
    # Of half the sum of squares: residuals of a thousandth.
    target = 1e-6
    x = POINTS[:, None]
    # The largest is stable at the kernel of networks that have learned these points from small
    # starts; large starts take a quarter of what their own kernel allows.
    steps = [min(0.06, stable_step_size(net, x, fraction=0.25)) for net in starts]
    descended = train_copies(
        starts,
        x,
        VALUES,
        step_size=steps,
        stop_at_loss=target,
        max_epochs=descent_steps,
        progress=False,
    )
    done = flow_copies(
        descended.modules,
        x,
        VALUES,
        stop_at_loss=target,
        tol=0.1,
        max_steps=200,
        x_test=GRID[:, None],
        progress=False,
    )
    curves = np.asarray(done.predictions)[:, :, 0]
    return Learned(curves, done.losses, (descended.epochs + done.epochs).astype(float))


def curve_columns(start: Any, wide: Curve, scale: float, learned: Learned, place: int) -> Table:
    """One network's curve beside what it is compared with."""
    columns: Columns = {
        "scale": scale,
        "x": GRID,
        "learned": learned.curves[place],
        "linear": linear_spline(POINTS, VALUES)(GRID),
        "cubic": natural_cubic_spline(POINTS, VALUES)(GRID),
        "kernel": tangent_kernel_interpolant(start, POINTS, VALUES)(GRID),
        "wide": wide(GRID),
        "train_rmse": float(np.sqrt(2.0 * learned.losses[place] / len(POINTS))),
        "steps": learned.steps[place],
    }
    return Table.of(columns)


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
    trained = f"width {rows['width'][0]:g} (paper: 10000), r = {rows['relative'][0]:.2g}"
    say(axes, trained, 0.02, 0.97, va="top", fontsize=9)
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
    return [*_small_starts(table), *_large_starts(table), _transition(table)]


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


def _small_starts(table: Table, near: float = 0.05) -> Iterator[Check]:
    worst = float(np.max(table["train_rmse"])) / RANGE
    yield Check(
        "trained-to-zero",
        "all networks fit the points",
        f"training RMSE at most {worst:.1e} of the range",
        at_most(worst, 0.01),
    )
    away = _away(table, 0, "linear")
    yield Check(
        "small-start-is-the-linear-spline",
        "small starts give the linear spline",
        f"largest distance {listed(away.values(), '.1%')} of the range (allowed: {near:.0%})",
        at_most(list(away.values()), near),
    )
    apart = max(_pairs(table, 0, "learned"))
    yield Check(
        "small-starts-agree",
        "the rich limit does not depend on how the scale is shared between the layers",
        f"curves of the smallest scale differ by at most {apart:.1%} of the range",
        at_most(apart, near),
    )


def _large_starts(table: Table, far: float = 0.04) -> Iterator[Check]:
    away = _away(table, -1, "kernel")
    yield Check(
        "large-start-is-the-kernel-interpolant",
        "large starts give the interpolant of the tangent kernel at the start, computed exactly",
        f"largest distance {listed(away.values(), '.1%')} of the range (allowed: {MEETS:.0%})",
        at_most(list(away.values()), MEETS),
    )
    # Networks of k units differ from infinitely wide ones by at most about this over sqrt(k): four
    # draws of each width and share did by 1.1 to 5.4.
    luck = 6.0
    away, allowed = _away(table, -1, "wide"), luck / float(np.sqrt(table["width"][0]))
    yield Check(
        "large-start-is-near-the-infinitely-wide-one",
        "large starts give the interpolant of infinite width, in closed form, up to the luck of "
        "their draw",
        f"largest distance {listed(away.values(), '.1%')} of the range (allowed: {allowed:.1%})",
        at_most(list(away.values()), allowed),
    )
    apart = _pairs(table, -1, "wide")
    yield Check(
        "large-starts-differ",
        "the kernel limit changes with the relative scale of the layers, whatever the draw",
        "curves of infinite width and the largest scale (ab, ac, bc) differ by "
        + listed(apart, ".1%"),
        at_least(apart[:2], far),
    )
    # B.1 speaks of different cubic splines; that is so where the second layer has its share.
    cubic, linear = (_away(table, -1, column, "wide") for column in ("cubic", "linear"))
    yield Check(
        "which-splines-they-resemble",
        "large starts with layers as usual resemble the natural cubic spline more than the linear "
        "one; the smaller the first layer the less, down to the linear one (not a cubic one)",
        f"of infinite width, from the natural cubic spline {listed(cubic.values(), '.1%')}, from "
        f"the linear one {listed(linear.values(), '.1%')}",
        less_than(cubic["a"], linear["a"]),
        less_than(np.diff(list(linear.values())), 0.0),
        at_most(linear["c"], MEETS),
        at_least(cubic["c"], far),
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
        at_most(falls, MEETS),
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
