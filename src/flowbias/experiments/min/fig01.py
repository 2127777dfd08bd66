"""Which starts are sure to converge: a map of imbalance and margin.

[min2021, Figure 1, after the scalar case of section 3.1]: L = (1/2) (y - u v)^2 with one weight per
layer. Earlier work covers balanced starts, u^2 = v^2; Theorem 3 covers a start with a level of
imbalance, |u^2 - v^2| > 0, or with a margin, |y| - |y - u v| > 0, at the rate

    c(0) = 2 sqrt((u^2 - v^2)^2 + 4 [|y| - |y - u v|]+^2)                                    (15)

(a) the map  (b) the slowest mean rate of the flow from each of its starts, against c(0)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.check import at_least, at_most, true
from flowbias.experiments.curves import as_columns
from flowbias.experiments.drawing import name_line, plain_ticks, say
from flowbias.experiments.min.loss_and_bounds import RESOLVED
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, INK, RED
from flowbias.ground.typing import Axes, FloatArray, Mask
from flowbias.models import LinearNet
from flowbias.theory import Reference
from flowbias.theory.reduced_net import reduced

TARGET = 1.0
REACH = 2.0  # of the map, in each weight
# Closed forms in double precision, and differences of logarithms of losses from 1e-12 on.
LOG_ROUNDING = 1e-6


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One row of the map each; an even number of them leaves out 0, which is a saddle."""
    points = int(settings["points"])
    for row in range(points // 2 * 2):
        yield "map", {"points": points, "row": row}


def compute(task: Task) -> Columns:
    """Level, margin, guaranteed rate and measured rate for one u and all v."""
    weights = _weights(task.integer("points"))
    u = float(weights[task.integer("row")])
    return {"u": u, "v": weights, **as_columns([_start(u, float(v)) for v in weights])}


def _weights(points: int) -> FloatArray:
    """Exactly symmetric, so that balanced starts are: with their negatives, not counted from -2."""
    positive = REACH * np.arange(1, points, 2) / (points - 1)
    return np.concatenate([-positive[::-1], positive])


def _start(u: float, v: float) -> dict[str, float]:
    X, Y = np.eye(1), np.array([[TARGET]])
    net = LinearNet(np.array([[u]]), np.array([[v]]))
    seen = reduced(net, X, Y)
    # By the last time a flow at rate 1 has a loss of 1e-9.
    times = np.concatenate([[0.0], np.geomspace(1e-3, 20.0, 40)])
    loss = flow(net, X, Y, t=times).loss
    return {
        "level": seen.imbalance.level,
        "margin": TARGET - float(np.linalg.norm(seen.error)),
        "guaranteed": seen.guaranteed_rate(),
        "slowest": _slowest(times, loss),
        "left": float(loss[-1]),
    }


def _slowest(t: FloatArray, loss: FloatArray) -> float:
    """Least of ln(L(0)/L(t))/t over the times at which the loss is resolved."""
    resolved = np.flatnonzero(loss >= RESOLVED * loss[0])[1:]
    return float(np.min(np.log(loss[0] / loss[resolved]) / t[resolved]))


# --- panels ------------------------------------------------------------------------------------


def draw_map(axes: Axes, table: Table) -> None:
    rows = table.part("map")
    weights = rows.levels("u")
    ordered = rows.rows(np.lexsort((rows["u"], rows["v"])))
    rate = ordered["guaranteed"].reshape(weights.size, weights.size)
    mesh = axes.pcolormesh(weights, weights, rate, cmap="Blues", shading="nearest", rasterized=True)
    bar = axes.figure.colorbar(mesh, ax=axes)
    bar.set_label("guaranteed rate c(0)")
    # u v = y, where the loss is 0, and u v = 2 y, where the margin ends.
    curve = np.linspace(TARGET / REACH, REACH, 100)
    beyond = np.linspace(2.0 * TARGET / REACH, REACH, 100)
    for sign in (1.0, -1.0):
        axes.plot(sign * curve, sign * TARGET / curve, color=DEPTH_COLOURS[4])
        axes.plot(
            sign * beyond, sign * 2.0 * TARGET / beyond, color=DEPTH_COLOURS[5], linestyle="--"
        )
    for straight in (axes.axhline, axes.axvline):
        straight(0.0, color=DEPTH_COLOURS[5], linestyle="--")
    edge = np.array([-REACH, REACH])
    axes.plot(edge, edge, color=RED, linewidth=1.2, linestyle=":")
    axes.plot(edge, -edge, color=RED, linewidth=1.2, linestyle=":")
    bare = rows.rows(_uncovered(rows))
    axes.plot(bare["u"], bare["v"], "o", color=RED, markersize=3.5)
    name_line(axes, "no rate", -0.95, 0.78, side="left", colour=RED)
    name_line(axes, "uv = y", 0.85, 1.2, side="left", colour=DEPTH_COLOURS[4])
    axes.set(aspect="equal", xlim=edge, ylim=edge)
    axes.set(xlabel="u at the start  (dashed: margin begins and ends)", ylabel="v at the start")


def draw_rates(axes: Axes, table: Table) -> None:
    rows = table.part("map")
    rows = rows.rows(~_uncovered(rows))
    for chosen, colour, text, height in (
        (rows["margin"] > 0.0, DEPTH_COLOURS[5], "margin", 0.13),
        (rows["margin"] <= 0.0, BLUE, "imbalance alone", 0.05),
    ):
        x, y = rows["guaranteed"][chosen], rows["slowest"][chosen]
        axes.plot(x, y, ".", color=colour, markersize=4)
        say(axes, text, 0.97, height, colour=colour, ha="right")
    edge = np.array([np.min(rows["guaranteed"]), np.max(rows["guaranteed"])])
    axes.plot(edge, edge, color=INK, linewidth=0.9, linestyle="--")
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, 1, 3)
    axes.set(xlabel="guaranteed rate c(0)", ylabel="slowest mean rate ln(L(0)/L(t))/t")


# --- checks ------------------------------------------------------------------------------------


def _uncovered(rows: Table) -> Mask:
    """No guaranteed rate: zero, up to the rounding of squares of weights."""
    return np.asarray(rows["guaranteed"] <= 1e-12)


def check(table: Table) -> list[Check]:
    """What section 3.1 and Figure 1 say of the scalar case."""
    rows = table.part("map")
    return [*_guarantee(rows), *_balanced(rows)]


def _guarantee(rows: Table) -> Iterator[Check]:
    u, v = rows["u"], rows["v"]
    margin = np.maximum(TARGET - np.abs(TARGET - u * v), 0.0)
    predicted = 2.0 * np.hypot(u**2 - v**2, 2.0 * margin)
    apart = float(np.max(np.abs(rows["guaranteed"] - predicted)))
    yield Check(
        "theorem-3-is-the-scalar-bound",
        "with one weight per layer Theorem 3 is the bound (15) of the scalar case",
        f"they differ by at most {apart:.1e}",
        at_most(apart, 1e-10),
    )
    product = rows["u"] * rows["v"]
    inside = (product > 0.0) & (product < 2.0 * TARGET)
    wrong = int(np.sum((rows["margin"] > 0.0) != inside) + np.sum(np.isnan(rows["margin"])))
    yield Check(
        "margin-is-a-band",
        "there is a margin between u v = 0 and u v = 2 y, around the solutions, and nowhere else",
        f"{np.mean(inside):.0%} of the map; {wrong} starts on the wrong side",
        at_most(wrong, 0),
        true(inside.any()),
        true(not inside.all()),
    )
    # Balance is decided by the weights, not by the level that the guarantee was made of.
    balanced = np.abs(rows["u"]) == np.abs(rows["v"])
    level_there = float(np.max(np.abs(rows["level"] - np.abs(rows["u"] ** 2 - rows["v"] ** 2))))
    bare = _uncovered(rows)
    expected = balanced & ~(rows["margin"] > 0.0)
    wrong = int(np.sum(bare != expected))
    yield Check(
        "imbalance-or-margin-covers",
        "every start has a guaranteed rate but the balanced ones without a margin",
        f"{np.sum(bare)} of {len(rows)} have none; {wrong} are not as expected",
        at_most(wrong, 0),
        true(bare.any()),
        at_most(level_there, 1e-10),
    )
    # Relative where there is a bound; without one no rate is promised.
    covered = rows.rows(~_uncovered(rows))
    least = float(np.min(covered["slowest"] / covered["guaranteed"])) if len(covered) else np.nan
    yield Check(
        "theorem-3-never-crossed",
        "from every start the loss falls at least at the guaranteed rate, at all times",
        f"slowest mean rate at least {least:.4f} times the guaranteed one",
        at_least(least, 1.0 - LOG_ROUNDING),
    )


def _balanced(rows: Table) -> Iterator[Check]:
    """Without imbalance and margin both ends are possible; the map of c(0) cannot tell them."""
    opposite = rows["left"][rows["u"] == -rows["v"]]
    worst = float(np.max(np.abs(opposite / (0.5 * TARGET**2) - 1.0)))
    yield Check(
        "a-condition-is-needed",
        "balanced starts of the wrong sign never converge: they end at the saddle u = v = 0",
        f"the loss there is that of u v = 0 up to {worst:.1e}",
        at_most(worst, LOG_ROUNDING),
    )
    far = (rows["u"] == rows["v"]) & (rows["u"] * rows["v"] > 2.0 * TARGET)
    left = float(np.max(rows["left"][far])) if far.any() else np.nan
    yield Check(
        "the-condition-is-not-necessary",
        "balanced starts beyond the margin converge all the same",
        f"from {np.sum(far)} starts with u = v, u v > 2 y a loss of {left:.1e} is left",
        at_most(left, RESOLVED),
    )


EXPERIMENT = Experiment(
    name="min-fig1",
    title="Imbalance or margin: which starts are sure to converge",
    reference=Reference("min2021", "Figure 1 and section 3.1"),
    summary=(
        "The smallest linear network, y ~ uv with y = 1 and one weight per layer, from every start "
        "(u, v). Purple: the solutions uv = y. Dotted red: balanced starts, which earlier work is "
        "about; red points: those to which Theorem 3 promises nothing. Between the dashed lines "
        "there is a margin. Everywhere else it is the imbalance |u² − v²| that guarantees a rate. "
        "With one weight per layer every imbalance is homogeneous, so this case is not set apart."
    ),
    paper_says=(
        "Earlier analyses ask for balanced, nearly balanced or homogeneously imbalanced weights, "
        "which are special places in the space of weights. A level of imbalance or a margin "
        "suffices, which covers almost all of it."
    ),
    settings={
        Preset.SMOKE: {"points": 10},
        Preset.LAPTOP: {"points": 50},
        Preset.PAPER: {"points": 100},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Almost every start is covered", draw_map),
        Panel("b", "The guarantee and the flow", draw_rates),
    ),
    check=check,
)
