"""Width turns random starts into imbalanced ones, and the bounds on the rate into good ones.

[min2021, Figure 2; section 5.1]: L = (1/2) ||Y - U V^T/sqrt(m h)||^2 with U (20 x h), V (m x h)
standard normal: X = I/sqrt(m h), so that all of D/(m h) enters the rates (Remark 13). Section 5.1
has m = 5 outputs; appendix A.1 (Figures 4 and 5) has m = 10 and says what Y and the step are.

(a) the spectrum of D/(m h)  (b) the loss with Theorem 3  (c) the rate with Proposition 1
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, more_than, true
from flowbias.experiments.curves import groups, stacked
from flowbias.experiments.drawing import name_line, plain_ticks, say
from flowbias.experiments.min.loss_and_bounds import (
    DescentProblem,
    check_bounds,
    check_descent,
    check_drift,
    measured_descent,
    measured_flow,
    runs,
)
from flowbias.experiments.table import Columns, Table
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, INK, RED
from flowbias.ground.typing import Axes
from flowbias.models import LinearNet
from flowbias.theory import Reference

WIDTHS = (30, 100, 300, 1000)
NARROW, *_, WIDE = WIDTHS
DESCENT_STEP = 0.05
# A bound is good where it accounts for half of what it bounds.
GOOD = 0.5
# Steps that are drawn.
SHOWN = 1000
_TIME = f"time t, in steps of {DESCENT_STEP:g}"
_COLOURS = {30: RED, 100: DEPTH_COLOURS[10], 300: DEPTH_COLOURS[5], 1000: BLUE}


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Each replicate is a start and a target."""
    rest = picked(settings, "n", "m", "points", "steps")
    for width in WIDTHS:
        for replicate in range(int(settings["replicates"])):
            yield "start", {**rest, "width": width, "replicate": replicate}


def compute(task: Task) -> Columns:
    """Of one start: eigenvalues of D/(m h), the loss and its bounds, gradient descent beside it."""
    n, m, width = (task.integer(name) for name in ("n", "m", "width"))
    rng = task.rng()
    net = LinearNet.gaussian(n, m, width=width, scale=1.0, rng=rng)
    Y = np.sqrt(0.1) * rng.standard_normal((n, m))
    data = DescentProblem(np.eye(n) / np.sqrt(m * width), Y, 1.0, DESCENT_STEP)
    times = np.concatenate(
        [[0.0], np.geomspace(DESCENT_STEP, 1e5 * DESCENT_STEP, task.integer("points"))]
    )
    measured = {
        "spectrum": _spectrum(net, 1.0 / (m * width)),
        "flow": measured_flow(net, data, times),
        "descent": measured_descent(net, data, task.integer("steps"), samples=40),
    }
    return stacked(measured, "of")


def _spectrum(net: LinearNet, factor: float) -> Columns:
    """All quantities scaled by 1/(m h)."""
    imbalance = net.imbalance()
    return {
        "index": np.arange(1, len(imbalance.eigenvalues) + 1),
        "eigenvalue": factor * imbalance.eigenvalues,
        "level": factor * imbalance.level,
        "spread_plus": factor * imbalance.spread_plus,
        "spread_minus": factor * imbalance.spread_minus,
        # Of the product U V^T/sqrt(m h): n in the mean, whatever the width.
        "start_size": factor * float(np.sum(net.product**2)),
    }


# --- panels ------------------------------------------------------------------------------------


def draw_spectrum(axes: Axes, table: Table) -> None:
    rows = table.where(of="spectrum", replicate=0)
    n, m = int(rows["n"][0]), int(rows["m"][0])
    for width, marker, x in ((NARROW, "o", n + m + 2.0), (WIDE, "s", n + m + 7.0)):
        shown, colour = rows.where(width=width), _COLOURS[width]
        values = shown["eigenvalue"]
        axes.plot(shown["index"], values, marker, color=colour, markersize=4.5)
        _draw_gaps(axes, x, (values[0], values[n - 1], values[-m], values[-1]), colour)
    top = float(np.max(rows["eigenvalue"]))
    for width, height in ((NARROW, 0.9), (WIDE, 0.8)):
        name_line(axes, f"h = {width}", 0.4 * n, height * top, colour=_COLOURS[width])
    axes.plot([0.0, n + m + 1.0], [0.0, 0.0], color=INK, linewidth=0.9, linestyle=":")
    axes.set_xlim(0.0, n + m + 12.0)
    axes.set(xlabel="eigenvalue, from the largest", ylabel="eigenvalues of D/(mh), D = UᵀU − VᵀV")


def _draw_gaps(
    axes: Axes, x: float, values: tuple[float, float, float, float], colour: str
) -> None:
    """Bars from l_1 to l_n (spread), to the m-th from below (level), to the last (spread)."""
    for upper, lower, text, thick in zip(
        values[:-1], values[1:], ("Δ₊", "level", "Δ₋"), (1.2, 4.0, 1.2), strict=True
    ):
        axes.plot([x, x], [lower, upper], color=colour, linewidth=thick, marker="_")
        axes.annotate(
            text,
            (x, 0.5 * (lower + upper)),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=10,
        )


def _shown(table: Table) -> Iterator[tuple[int, Table]]:
    """The first start: one run per width, as in the paper."""
    rows = table.where(of="flow", replicate=0)
    return ((width, rows.where(width=width)) for width in WIDTHS)


def draw_loss(axes: Axes, table: Table) -> None:
    for width, rows in _shown(table):
        x, first = rows["t"] / DESCENT_STEP, rows["loss"][0]
        axes.plot(x, rows["loss"] / first, color=_COLOURS[width])
        bound = rows["loss_bound"] / first
        axes.plot(x, bound, color=_COLOURS[width], linewidth=1.2, linestyle="--")
    axes.set(yscale="log", xlim=(0.0, SHOWN), ylim=(1e-8, 30.0))
    say(axes, "dashed: Theorem 3", 0.98, 0.95, ha="right")
    _name_widths(axes, 0.04)
    axes.set(xlabel=_TIME, ylabel="loss L, relative to the first")


def draw_rate(axes: Axes, table: Table) -> None:
    for width, rows in _shown(table):
        rows = rows.rows(rows["t"] <= SHOWN * DESCENT_STEP)
        x, rate, colour = rows["t"] / DESCENT_STEP, rows["rate"], _COLOURS[width]
        axes.plot(x, rate, color=colour)
        axes.plot(x, rows["rate_bound"], color=colour, linewidth=1.2, linestyle="--")
    axes.set(yscale="log", xlim=(0.0, SHOWN), xlabel=_TIME, ylabel="rate −L′/L")
    # Room for a line of text below; the names stand between the narrowest rate and its bound.
    axes.set_ylim(bottom=0.6 * axes.get_ylim()[0])
    _name_widths(axes, 0.3)
    plain_ticks(axes.yaxis, 1, 2, 5)
    say(axes, "dashed: Proposition 1", 0.02, 0.03)


def _name_widths(axes: Axes, bottom: float) -> None:
    for k, width in enumerate(WIDTHS):
        say(axes, f"h = {width}", 0.04, bottom + 0.08 * k, colour=_COLOURS[width])


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the captions, section 5.1 and appendix A.1 say."""
    spectra, flows = table.where(of="spectrum"), table.where(of="flow")
    yield from _starts(spectra)
    yield from _imbalance(spectra)
    yield from check_bounds(flows)
    rows = flows
    margin = float(np.max(rows["margin"]))
    yield Check(
        "no-margin",
        "a random start has no margin: Theorem 3 rests on the imbalance alone",
        f"largest margin {margin:.2g}",
        less_than(margin, 0.0),
    )
    yield _one_network(spectra, flows)
    yield from _global_bound(flows)
    yield from _rates(flows)
    yield check_drift(flows)
    yield check_descent(table.where(of="descent"), DESCENT_STEP * float(np.max(flows["rate"])))


def _starts(rows: Table) -> Iterator[Check]:
    # Zero is rounding of the largest.
    n, m = rows["n"][0], rows["m"][0]
    counts = []
    for values in (start["eigenvalue"] for start in groups(rows, "width", "replicate")):
        zero = 1e-12 * np.max(np.abs(values))
        counts.append((np.sum(values > zero), np.sum(values < -zero)))
    right = sum(pair == (n, m) for pair in counts)
    yield Check(
        "signs-of-the-spectrum",
        "from h = n + m on, the imbalance has n positive eigenvalues and m negative ones",
        f"{right} of {len(counts)} starts have {n:.0f} and {m:.0f}",
        at_least(right, len(counts)),
    )
    # Mean n, variance 2n (1 + (m + 1)/h)/m + 2n^2/(mh): five deviations of the mean allowed.
    n, m = float(rows["n"][0]), float(rows["m"][0])
    first, off = rows.rows(rows["index"] == 1.0), []
    for width in WIDTHS:
        sizes = first["start_size"][first["width"] == width]
        variance = 2.0 * n * (1.0 + (m + 1.0) / width) / m + 2.0 * n * n / (m * width)
        off.append(abs(np.mean(sizes) - n) / np.sqrt(variance / max(len(sizes), 1)))
    yield Check(
        "product-keeps-its-scale",
        "the factor 1/√(mh) keeps the product as large at every width: squared norm n in the mean",
        f"means over the starts are within {np.max(off):.1f} standard deviations of that",
        at_most(np.max(off), 5.0),
    )


def _imbalance(rows: Table) -> Iterator[Check]:
    narrow, wide = (rows.rows(rows["width"] == width) for width in (NARROW, WIDE))
    spreads = ("spread_plus", "spread_minus")
    ratios = [float(np.median(wide[name]) / np.median(narrow[name])) for name in spreads]
    grows = float(np.median(wide["level"]) / np.median(narrow["level"]))
    yield Check(
        "width-brings-imbalance",
        f"width {WIDE} has a higher level and smaller spreads than width {NARROW}",
        f"in the median, the level is {grows:.2g} times as high, the spreads {ratios[0]:.2g} and "
        f"{ratios[1]:.2g} times as wide",
        more_than(grows, 1.0),
        less_than(max(ratios), 1.0),
        true(np.isfinite(ratios)),
    )
    for width, part, name in ((NARROW, narrow, "narrow"), (WIDE, wide, "wide")):
        shares = np.array([np.median(part["level"] / part[spread]) for spread in spreads])
        below = width == NARROW
        yield Check(
            f"{name}-start",
            f"at width {width} the level is {'below' if below else 'above'} both spreads",
            f"in the median {shares[0]:.2g} times Δ₊ and {shares[1]:.2g} times Δ₋",
            less_than(shares, 1.0) if below else more_than(shares, 1.0),
        )


def _one_network(spectra: Table, flows: Table) -> Check:
    """Without a margin Theorem 3 is exp(-2 level t): eigenvalues of (a) against slopes of (b)."""
    n, m = int(spectra["n"][0]), int(spectra["m"][0])
    off = []
    starts = (groups(rows, "width", "replicate") for rows in (spectra, flows))
    for spectrum, run in zip(*starts, strict=True):
        values, bound = spectrum["eigenvalue"], run["loss_bound"]
        slope = np.log(bound[0] / bound[-1]) / run["t"][-1]
        off.append(abs(slope / (2.0 * (values[n - 1] - values[-m])) - 1.0))
    return Check(
        "slope-is-twice-the-level",
        "the bound of Theorem 3 falls at twice the level that the spectrum shows, start by start",
        f"relative difference at most {np.max(off):.1e} over {len(off)} starts",
        # Eigenvalues carry 1e-15 of the largest, of which the least level is about a hundredth.
        at_most(np.max(off), 1e-10),
    )


def _global_bound(rows: Table) -> Iterator[Check]:
    """Falls of ln L until L is a thousandth, and those of its bound by the same time."""
    for width, name in ((WIDE, "wide"), (NARROW, "narrow")):
        part = rows.rows(rows["width"] == width)
        shares = np.array([_fall_share(run) for run in runs(part)])
        good = width == WIDE
        yield Check(
            f"theorem-3-{'is-good' if good else 'misses-most'}-when-{name}",
            f"at width {width} twice the level is {'a' if good else 'not a'} good bound on the "
            "rate of the whole flow",
            f"{np.min(shares):.1%} to {np.max(shares):.1%} of the fall to L(0)/1000",
            at_least(shares, GOOD) if good else less_than(shares, GOOD),
        )


def _fall_share(run: Table) -> float:
    fallen = np.log(run["loss"][0] / run["loss"])
    reached = fallen >= np.log(1e3)
    k = int(np.argmax(reached)) if reached.any() else len(run) - 1
    return float(np.log(run["loss_bound"][0] / run["loss_bound"][k]) / fallen[k])


def _rates(rows: Table) -> Iterator[Check]:
    wide = list(runs(rows.rows(rows["width"] == WIDE)))
    varies = float(np.max([np.max(run["rate"]) / np.min(run["rate"]) for run in wide]))
    least = float(np.min([np.min(run["rate_bound"] / run["rate"]) for run in wide]))
    yield Check(
        "wide-rate-is-constant",
        f"at width {WIDE} the rate hardly varies: by less than a factor of {1.0 / GOOD:g}",
        f"largest over smallest at most {varies:.2f}",
        at_most(varies, 1.0 / GOOD),
    )
    yield Check(
        "proposition-1-is-good-when-wide",
        f"at width {WIDE} Proposition 1 is reasonably good at all times",
        f"at least {least:.0%} of the rate",
        at_least(least, GOOD),
    )
    narrow = list(runs(rows.rows(rows["width"] == NARROW)))
    falls = np.array([run["rate"][0] / run["rate"][-1] for run in narrow])
    highest = max(float(np.max(run["rate"])) / float(run["rate"][0]) for run in narrow)
    yield Check(
        "narrow-rate-falls",
        f"at width {NARROW} the rate starts high and falls, by more than {1.0 / GOOD:g} times",
        f"to 1/{np.min(falls):.3g} or less of the first, and is never above {highest:.4f} times it",
        # Not at every step: one start in ten rises again on the way, though not to the first.
        more_than(falls, 1.0 / GOOD),
        at_most(highest, 1.0),
    )
    yield _late_bound(narrow)


def _late_bound(narrow: list[Table]) -> Check:
    """Better, not good: the share in the end is what the start makes of it, well below 1."""
    ends = [0, -1]
    shares = np.array([(run["rate_bound"] / run["rate"])[ends] for run in narrow])
    gaps = np.array([(run["rate"] - run["rate_bound"])[ends] for run in narrow])
    better = float(np.min(shares[:, 1] / shares[:, 0]))
    closer = float(np.max(gaps[:, 1] / gaps[:, 0]))
    late = shares[:, 1]
    return Check(
        "proposition-1-improves-when-narrow",
        f"at width {NARROW} Proposition 1 gets better with time: a share of the rate that doubles, "
        "and half the gap",
        f"from {np.median(shares[:, 0]):.0%} of the rate to {np.median(late):.0%} in the median "
        f"({np.min(late):.0%} to {np.max(late):.0%}); share at least {better:.1f} times as large, "
        f"gap at most {closer:.2f} times",
        at_least(better, 2.0),
        at_most(closer, 0.5),
    )


SUMMARY = (
    "Matrix factorization Y ~ UVᵀ/√(mh) with 20 × {m} targets from standard normal weights of "
    "width h. The imbalance D = UᵀU − VᵀV is conserved; its spectrum (a) gives the level and the "
    "spreads Δ₊, Δ₋ that bound how fast the loss falls (b, c). One run per width is drawn. "
    "The late bound of the narrow network is much better than the early one, as the paper says, "
    "yet we would not call it good: how much of the rate it accounts for depends on the start, and "
    "is less with ten outputs than with five."
)
PAPER_SAYS = (
    "A narrow network starts with spreads above the level of imbalance: its rate starts high and "
    "falls, and the bound on it, poor at first, is reasonably good late. A wide one has a level "
    "above the spreads: its rate hardly varies, and both bounds are good."
)
PANELS = (
    Panel("a", "Width lifts the level of imbalance", draw_spectrum),
    Panel("b", "The loss and its guarantee", draw_loss),
    Panel("c", "The rate and its lower bound", draw_rate),
)


def presets(m: int) -> dict[Preset, Settings]:
    """The sizes of the paper throughout; more starts and times where there is more time."""
    return {
        Preset.SMOKE: {"n": 20, "m": m, "replicates": 2, "points": 60, "steps": 1000},
        Preset.LAPTOP: {"replicates": 15, "points": 200, "steps": 5000},
        Preset.PAPER: {"replicates": 51, "points": 300, "steps": 20_000},
    }


def figure(name: str, title: str, place: str, m: int) -> Experiment:
    """The figure with m outputs."""
    return Experiment(
        name=name,
        title=title,
        reference=Reference("min2021", place),
        summary=SUMMARY.format(m=m),
        paper_says=PAPER_SAYS,
        settings=presets(m),
        tasks=tasks,
        compute=compute,
        panels=PANELS,
        check=check,
    )


EXPERIMENT = figure("min-fig2", "Wide starts are imbalanced", "Figure 2", 5)
#: Appendix A.1.
WITH_TEN_OUTPUTS = figure(
    "min-fig5", "Wide starts are imbalanced, with ten outputs", "Figures 4 and 5", 10
)
