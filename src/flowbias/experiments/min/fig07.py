"""Wide networks end near the least norm fit: the distance falls like width^(-1/2).

[min2021, Figure 7; Theorem 12]: d = 500, n = 100, m = 1, weights N(0, 1/h) at width h.

    U V^T(inf) - Theta = P2 U2 V(inf)^T

U2 is independent of the weights that move, and V(inf) is a function of those. So, given them, the
squared distance is chi-squared with (d - r) degrees of freedom times V V^T(inf)/h, at any width h:
that the exponent is 1/2 and what the constant is follow from it (ours).

(a) the paper's figure: mean and standard deviation of five runs  (b) the distance at widths beyond,
and Theorem 12 where it speaks  (c) the same times sqrt(h), with the law above
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, true
from flowbias.experiments.curves import DOTS, draw_curve, exponent, never_above
from flowbias.experiments.drawing import name_line
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.flows import flow, gradient_descent
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import BLUE, INK, RED
from flowbias.ground.typing import Axes
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory import Reference, wide_limit_bound

# Probability with which the bound of Theorem 12 may fail.
DELTA = 0.01
# Relative residual at which V counts as V(inf): its error is of that order.
SETTLED_RESIDUAL = 1e-9
# Step of the paper's gradient descent, and the loss at which it stops.
PAPER_STEP, PAPER_LOSS = 5e-3, 1e-8
PAPER_WIDTHS = (500, 1000, 2000, 5000, 10_000)


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One data set and start per width and replicate."""
    sizes = picked(settings, "d", "n")
    for width in str(settings["widths"]).split():
        for replicate in range(int(settings["replicates"])):
            yield "distance", {**sizes, "width": int(width), "replicate": replicate}
    for width in str(settings["descents"]).split():
        yield "descent", {**sizes, "width": int(width)}


def compute(task: Task) -> Columns:
    """How far from the least norm fit the flow ends, and what theory says; or where descent is."""
    net, problem = _problem(task)
    if task.part == "descent":
        return _descent(net, problem)
    width, d = task.integer("width"), task.integer("d")
    trajectory = flow(net, problem, loss="mean", residual=SETTLED_RESIDUAL)
    theta, end = problem.min_norm, trajectory.M[-1]
    rank = problem.spectrum.rank
    stopped = int(np.argmax(trajectory.loss <= PAPER_LOSS))
    return {
        "distance": float(np.linalg.norm(problem.spectrum.off_range(end))),
        "stopped_distance": float(np.linalg.norm(trajectory.M[stopped] - theta)),
        "least_norm": float(np.linalg.norm(theta)),
        "expected": float(np.sqrt((d - rank) * trajectory.gram(-1)[d, d] / width)),
        "freedom": d - rank,
        "bound": _bound(problem, width),
        "residual": float(trajectory.residual[-1]),
    }


def _problem(task: Task) -> tuple[LinearNet, MatrixRegression]:
    """[min2021, appendix A.3]."""
    rng = task.rng()
    n, d, width = (task.integer(name) for name in ("n", "d", "width"))
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    Y = X @ rng.standard_normal((d, 1)) / np.sqrt(d) + 0.01 * rng.standard_normal((n, 1))
    net = LinearNet.gaussian(d, 1, width=width, scale=width**-0.5, rng=rng)
    return net, MatrixRegression(X, Y)


def _descent(net: LinearNet, problem: MatrixRegression) -> Columns:
    """The paper's gradient descent, as far as the paper takes it, and the flow at that time."""
    loss_at_1 = float(np.mean(problem.target**2))
    run = gradient_descent(
        net,
        problem,
        step_size=PAPER_STEP,
        # More than that loss takes.
        max_steps=10**6,
        loss="mean",
        residual=float(np.sqrt(PAPER_LOSS / loss_at_1)),
    )
    there = flow(net, problem, t=[run.time], loss="mean").M[-1]
    off = problem.spectrum.off_range
    return {
        "steps": run.steps,
        "last_loss": run.loss_at(run.steps),
        "descent_distance": float(np.linalg.norm(off(run.M))),
        "flow_distance": float(np.linalg.norm(off(there))),
        "share": PAPER_STEP / run.stable_step_size,
    }


def _bound(problem: MatrixRegression, width: int) -> float:
    """Theorem 12 at a = 1/2; NaN at a width of which it says nothing."""
    try:
        return wide_limit_bound(problem, width, delta=DELTA)
    except InputError:
        return np.nan


# --- panels ------------------------------------------------------------------------------------

_DISTANCE = "distance to least norm ‖UVᵀ(∞) − Θ‖"


def draw_paper(axes: Axes, table: Table) -> None:
    rows = table.part("distance")
    rows = rows.rows(rows["replicate"] < 5)  # so many runs the paper has of each width
    runs = [rows["distance"][rows["width"] == width] for width in PAPER_WIDTHS]
    mean, deviation = [np.mean(run) for run in runs], [np.std(run, ddof=1) for run in runs]
    axes.errorbar(PAPER_WIDTHS, mean, deviation, color=BLUE, marker="o", markersize=4, capsize=3)
    axes.set(xlim=(0.0, None), ylim=(0.0, None), xlabel="width h", ylabel=_DISTANCE)


def draw_distance(axes: Axes, table: Table) -> None:
    rows = table.rows(table["part"] == "distance")
    curve = draw_curve(axes, rows, "distance", by="width", color=BLUE, **DOTS)
    middle = len(curve.x) // 2
    # Names stand above their lines, which fall.
    name_line(axes, "distance", curve.x[middle], 1.6 * curve.high[middle], colour=BLUE)
    if len(wide := _spoken_of(rows)):
        bound = wide.summary("bound", by="width")
        axes.plot(bound.x, bound.median, color=RED, marker="o", markersize=3, linestyle="--")
        name_line(axes, "Theorem 12", bound.x[0], bound.median[0], side="left", colour=RED)
    axes.set(xscale="log", yscale="log", xlabel="width h", ylabel=_DISTANCE)


def draw_scaled(axes: Axes, table: Table) -> None:
    rows = table.part("distance")
    root = np.sqrt(rows["width"])
    scaled = rows.replaced(distance=root * rows["distance"], expected=root * rows["expected"])
    curve = draw_curve(axes, scaled, "distance", by="width", color=BLUE, **DOTS)
    expected: Summary = scaled.summary("expected", by="width")
    axes.plot(expected.x, expected.median, color=INK, linewidth=1.2, linestyle="--")
    axes.set(xscale="log", ylim=(0.0, 1.3 * float(np.max(curve.high))))
    # Below the band, which is nearly level.
    axes.annotate(
        "dashed: √((d − r) VVᵀ(∞))",
        (0.97, 0.75 * float(np.min(curve.low))),
        xycoords=axes.get_yaxis_transform(),
        ha="right",
        va="top",
    )
    axes.set(xlabel="width h", ylabel="√h ‖UVᵀ(∞) − Θ‖")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the caption and appendix A.3 say about the figure, and the law behind it."""
    rows = table.rows(table["part"] == "distance")
    yield from _power(rows)
    # Never crossed: a failure of probability delta is not to be seen, the bound is so wide.
    wide = _spoken_of(rows)
    share = float(np.max(wide["distance"] / wide["bound"])) if len(wide) else np.nan
    yield Check(
        "theorem-12-never-crossed",
        f"where Theorem 12 speaks (delta = {DELTA:g}) the distance is below its bound",
        f"at most {share:.2%} of the bound in {len(wide)} runs; it says nothing, or not of every "
        f"run, at the {rows.levels('width').size - wide.levels('width').size} smallest widths",
        at_most(share, 1.0),
    )
    # The paper stops at a loss of 1e-8; a tenth is not seen over two decades.
    apart = float(np.max(np.abs(rows["stopped_distance"] / rows["distance"] - 1.0)))
    yield Check(
        "early-stop-does-not-matter",
        f"where the paper stops, at a loss of {PAPER_LOSS:g}, the distance is that of the limit",
        f"differs by at most {apart:.1e} of it",
        at_most(apart, 0.1),
    )
    yield never_above(
        "fits-the-data",
        "every flow was followed to zero error",
        "relative residual at most {:.1e}",
        rows["residual"],
        1.01 * SETTLED_RESIDUAL,
    )
    rows = table.part("descent")
    # Errors of descent are of the order of its step in units of the stable one.
    apart = np.abs(rows["descent_distance"] / rows["flow_distance"] - 1.0)
    there = (rows["last_loss"] <= 1.001 * PAPER_LOSS) & (apart <= rows["share"])
    yield Check(
        "descent-goes-there-too",
        f"the paper's gradient descent, with steps of {PAPER_STEP:g}, is as far away as the flow",
        f"distances differ by at most {np.max(apart):.1e} after {np.max(rows['steps']):.0f} steps "
        f"of at most {np.max(rows['share']):.1e} stable ones",
        true(there),
    )


def _power(rows: Table) -> Iterator[Check]:
    # Of the mean, as in the paper, from the first width to its last and on to ours.
    width = rows.levels("width")
    mean = [float(np.mean(rows["distance"][rows["width"] == w])) for w in width]
    step = float(np.max(np.diff(mean) / mean[:-1]))
    yield Check(
        "falls-with-the-width",
        "the wider the network, the nearer it ends to the least norm fit",
        f"mean distance {mean[0]:.2g} at width {width[0]:.0f}, {mean[-1]:.2g} at {width[-1]:.0f}; "
        f"it falls by at least {-step:.0%} from width to width",
        less_than(step, 0.0),
    )
    slope = exponent(rows["width"], rows["distance"])
    yield Check(
        "slope-is-one-half",
        "the distance falls like h^(−1/2)",
        f"fitted exponent {slope:.3f} over widths {width[0]:.0f} to {width[-1]:.0f}",
        at_most(abs(slope + 0.5), 0.05),
        at_least(width[-1], 1e3 * width[0]),
    )
    # Five standard deviations of a mean of chi-squared variables over their freedom.
    ratio = (rows["distance"] / rows["expected"]) ** 2
    off = float((np.mean(ratio) - 1.0) / np.sqrt(np.mean(2.0 / rows["freedom"]) / len(rows)))
    yield Check(
        "constant-is-known",
        "given the weights that move, the squared distance has mean (d − r) VVᵀ(∞)/h (ours)",
        f"mean of the ratio {np.mean(ratio):.4f}, {abs(off):.1f} standard deviations from 1",
        at_most(abs(off), 5.0),
    )


def _spoken_of(rows: Table) -> Table:
    """The runs at widths from which on Theorem 12 bounds every one."""
    silent = rows["width"][np.isnan(rows["bound"])]
    return rows.rows(rows["width"] > (float(np.max(silent)) if silent.size else 0.0))


_PAPER = " ".join(map(str, PAPER_WIDTHS))

EXPERIMENT = Experiment(
    name="min-fig7",
    title="Wide networks end near the least norm fit",
    reference=Reference("min2021", "Figure 7"),
    summary=(
        "Linear regression by a two-layer linear network Y ~ XUVᵀ of width h from random weights "
        "of variance 1/h: how far from the least norm fit Θ does gradient flow end? Panel (a) is "
        "the paper's: widths 500 to 10000, mean and standard deviation of five runs. The cost of a "
        "flow here does not depend on the width, so (b) goes on to ten millions, which is also "
        "where Theorem 12 begins to say something. Bands hold the middle half of the runs."
    ),
    paper_says=(
        "The distance to the least norm fit decreases with the width, like its inverse square "
        "root, as Theorem 12 bounds it."
    ),
    settings={
        Preset.SMOKE: {
            "d": 100,
            "n": 20,
            "widths": f"{_PAPER} 100000 1000000",
            "replicates": 5,
            "descents": "1000",
        },
        Preset.LAPTOP: {
            "d": 500,
            "n": 100,
            "widths": f"{_PAPER} 100000 1000000 10000000",
            "replicates": 25,
            "descents": "500 10000",
        },
        Preset.PAPER: {
            "widths": f"{_PAPER} 30000 100000 300000 1000000 3000000 10000000",
            "replicates": 101,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Wider is nearer: mean of five runs", draw_paper),
        Panel("b", "Beyond, and what Theorem 12 says", draw_distance),
        Panel("c", "The exponent is 1/2, the constant known", draw_scaled),
    ),
    check=check,
)
