"""Matrix completion from the identity: from the least nuclear norm to the least Frobenius norm.

[woodworth2019, Figure 5]: U = α [I, −I], V = α [I, I], so that U V^T = 0 at the start.

(a) nuclear norm of the limit against α, and the least possible one
(b) Frobenius norm, likewise
(c) distance of the limit from the two minimizers

With 60 of 100 entries the planted matrix, of rank one, often is not the one of least nuclear norm.
Vanishing starts then lead to the planted one all the same: what they prefer is low rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most
from flowbias.experiments.curves import draw_curve
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.completion import check_followed, endings, nuclear, planted
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, RED
from flowbias.ground.typing import Axes, FloatArray
from flowbias.limits.spectral import frobenius_norm, nuclear_norm
from flowbias.models import MatrixFactorization
from flowbias.theory import Reference

# Relative residual to which flows are followed.
ARRIVAL_RESIDUAL = 1e-7
# Distance, relative to that between the extremes, that counts as having arrived.
ARRIVED = 0.05


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One data set, all scales."""
    names = ("d", "observed", "lowest", "per_decade")
    shared = picked(settings, *names)
    for replicate in range(int(settings["replicates"])):
        yield "path", {**shared, "replicate": replicate}


def needs_cvxpy(task: Task) -> tuple[str, ...]:
    """The least nuclear norm is a semidefinite program."""
    return ("cvxpy",)


def compute(task: Task) -> Columns:
    """The limits from multiples of the identity, and the two minimizers."""
    data = planted(task)
    size, lowest = task.integer("d"), task.integer("lowest")
    rich, kernel = nuclear_norm(data.problem), frobenius_norm(data.problem)
    dual = float(np.linalg.norm(data.problem.adjoint(rich.dual), 2))
    powers = np.linspace(lowest, 1.0, (1 - lowest) * task.integer("per_decade") + 1)
    unbiased = partial(MatrixFactorization.unbiased, np.eye(size), np.eye(size))
    return {
        "log10_scale": powers,
        **endings(
            (unbiased(scale=float(alpha)) for alpha in 10.0**powers),
            data.problem,
            residual=ARRIVAL_RESIDUAL,
            nuclear=lambda end: nuclear(end.M),
            frobenius=lambda end: float(np.linalg.norm(end.M)),
            to_nuclear=lambda end: float(np.linalg.norm(end.M - rich.M)),
            to_frobenius=lambda end: float(np.linalg.norm(end.M - kernel.M)),
            to_planted=lambda end: float(np.linalg.norm(end.M - data.truth)),
        ),
        "least_nuclear": rich.details["nuclear_norm"],
        "nuclear_of_kernel": nuclear(kernel.M),
        "least_frobenius": float(np.linalg.norm(kernel.M)),
        "frobenius_of_rich": float(np.linalg.norm(rich.M)),
        "planted_excess": nuclear(data.truth) - rich.details["nuclear_norm"],
        "planted_to_nuclear": float(np.linalg.norm(data.truth - rich.M)),
        "between": float(np.linalg.norm(rich.M - kernel.M)),
        "dual_norm": dual,
        "gap": 1.0 - rich.details["lower_bound"] / rich.details["nuclear_norm"],
    }


# --- panels ------------------------------------------------------------------------------------


def draw_nuclear(axes: Axes, table: Table) -> None:
    _draw_norm(axes, table, table["nuclear"] / table["least_nuclear"], BLUE)
    axes.set_ylabel("nuclear norm of the limit / least one")


def draw_frobenius(axes: Axes, table: Table) -> None:
    _draw_norm(axes, table, table["frobenius"] / table["least_frobenius"], RED)
    axes.set_ylabel("Frobenius norm of the limit / least one")


def _draw_norm(axes: Axes, table: Table, values: object, colour: str) -> None:
    rows = table.replaced(value=np.asarray(values))
    draw_curve(axes, rows, "value", by="log10_scale", log10=True, color=colour)
    axes.set(xscale="log", xlabel="scale of the start α")
    reference_line(axes, y=1.0, text="")


def draw_distances(axes: Axes, table: Table) -> None:
    axes.set(xscale="log", yscale="log", ylim=(1e-4, 2.0))
    for rows, name, text, colour, side in (
        (_planted_is_least(table), "to_nuclear", "least nuclear,\nif planted", BLUE, "right"),
        (_planted_is_not(table), "to_nuclear", "least nuclear, if not", DEPTH_COLOURS[4], "below"),
        (table, "to_frobenius", "least Frobenius", RED, "left"),
    ):
        if not len(rows):
            continue
        share = rows.replaced(share=rows[name] / rows["between"])
        curve = draw_curve(axes, share, "share", by="log10_scale", log10=True, color=colour)
        # Below its band, or beside the line where it is steep.
        heights = {"right": 6e-3, "below": float(curve.low[0]), "left": 6e-4}
        beside = int(np.argmin(np.abs(np.log(curve.median / heights[side]))))
        place = len(curve.x) // 4 if side == "below" else beside
        name_line(axes, text, curve.x[place], heights[side], side=side, colour=colour)
    axes.set(xlabel="scale of the start α", ylabel="distance from it, relative to both apart")


def _planted_is_least(table: Table) -> Table:
    return table.rows(table["planted_to_nuclear"] <= 0.01 * table["between"])


def _planted_is_not(table: Table) -> Table:
    return table.rows(table["planted_to_nuclear"] >= 0.05 * table["between"])


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """What the caption and appendix D say about the figure."""
    yield from _check_ends(table)
    # Norms of a matrix that misses the seen entries by the residual may be below the least one.
    rounding = 10.0 * ARRIVAL_RESIDUAL
    below = [
        float(np.min(table[norm] / table[f"least_{norm}"])) - 1.0
        for norm in ("nuclear", "frobenius")
    ]
    yield Check(
        "no-norm-below-the-least",
        "no limit has a smaller nuclear or Frobenius norm than the least one",
        f"smallest relative excess {below[0]:.1e} and {below[1]:.1e}",
        at_least(below[0], -rounding),
        at_least(below[1], -rounding),
    )
    rows = _planted_is_least(table)
    steps = []
    for norm in ("nuclear", "frobenius"):
        relative = rows.replaced(relative=rows[norm] / rows[f"least_{norm}"])
        medians = [
            _median(relative["relative"][rows["log10_scale"] == scale])
            for scale in table.levels("log10_scale")
        ]
        steps.append(np.diff(medians))
    up, down = float(steps[0].min()), float(steps[1].max())
    yield Check(
        "one-norm-for-the-other",
        "as the scale grows, the nuclear norm grows and the Frobenius norm falls, where the "
        "planted matrix has the least nuclear norm",
        f"smallest step up {up:.1e}, smallest step down {-down:.1e}",
        at_least(up, -rounding),
        at_most(down, rounding),
    )
    dual, gap = float(np.max(table["dual_norm"])), float(np.max(table["gap"]))
    yield Check(
        "least-nuclear-norm-certified",
        "the least nuclear norm has a dual that shows it",
        f"operator norm of the dual 1 {dual - 1.0:+.1e}, relative gap at most {gap:.1e}",
        # The accuracy that the dual is asked for.
        at_most(dual, 1.0 + 1e-7),
        at_most(gap, 1e-6),
    )
    yield check_followed(table, to=ARRIVAL_RESIDUAL)


def _check_ends(table: Table) -> Iterator[Check]:
    scales = table.levels("log10_scale")
    smallest = table.rows(table["log10_scale"] == scales[0])
    largest = table.rows(table["log10_scale"] == scales[-1])
    yield _check_end("nuclear", "nuclear_of_kernel", _planted_is_least(smallest), scales[0])
    yield _check_end("frobenius", "frobenius_of_rich", largest, scales[-1])
    near = smallest["to_planted"] / smallest["between"]
    within = float(np.mean(near <= ARRIVED))
    yield Check(
        "rich-end-recovers-the-planted",
        f"at scale {10.0 ** scales[0]:.2g} the limit is the planted matrix of rank one",
        f"within {ARRIVED:.0%} on {within:.0%} of the data sets, farthest {near.max():.1e}",
        at_least(within, 0.8),
    )
    other = _planted_is_not(smallest)
    away = _median(other["to_nuclear"] / other["planted_to_nuclear"])
    excess = _median((other["nuclear"] - other["least_nuclear"]) / other["planted_excess"])
    yield Check(
        "low-rank-before-least-nuclear",
        "also where another matrix that fits has a smaller nuclear norm, which it does not go to",
        f"{len(other)} of {len(smallest)} data sets: median excess {excess:.2f} of that of the "
        f"planted one, distance {away:.2f} of its distance",
        at_most(abs(away - 1.0), 0.2),
        at_most(abs(excess - 1.0), 0.2),
    )


def _check_end(norm: str, other: str, rows: Table, scale: float) -> Check:
    least = rows[f"least_{norm}"]
    left = _median((rows[norm] - least) / (rows[other] - least))
    away = _median(rows[f"to_{norm}"] / rows["between"])
    among = " where that is planted" if norm == "nuclear" else ""
    return Check(
        f"end-of-least-{norm}-norm",
        f"at scale {10.0**scale:.2g} the limit is the one of least {norm} norm{among}",
        f"{len(rows)} data sets: median excess {left:.1e} of that of the other extreme, "
        f"distance {away:.1e}",
        at_most(left, 0.01),
        at_most(away, ARRIVED),
    )


def _median(values: FloatArray) -> float:
    """NaN, which fails every comparison, where there is nothing."""
    return float(np.median(values)) if values.size else np.nan


EXPERIMENT = Experiment(
    name="woodworth-iclr-fig5",
    title="From the least nuclear norm to the least Frobenius norm",
    reference=Reference("woodworth2019", "Figure 5"),
    summary=(
        "60 of the 100 entries of a random matrix of rank one are fitted by U Vᵀ from "
        "U = α[I, −I], V = α[I, I]. (a), (b) Norms of the limit relative to the least among all "
        "matrices that fit: the nuclear one from a semidefinite program with a dual certificate, "
        "the Frobenius one from unseen entries at zero. (c) Distances from both minimizers, "
        "where that of least nuclear norm is the planted matrix and where it is not. Bands "
        "hold the middle half of the data sets. (Needs the extra sdp.)"
    ),
    paper_says=(
        "Small starts lead to the solution of least nuclear norm, large ones to that of least "
        "Frobenius norm. We find the first only where the planted matrix has the least nuclear "
        "norm: where it does not, vanishing starts lead to the planted one, of rank one, still."
    ),
    settings={
        Preset.SMOKE: {
            "d": 10,
            "observed": 60,
            "lowest": -3,
            "per_decade": 1,
            "replicates": 3,
        },
        Preset.LAPTOP: {"lowest": -4, "per_decade": 4, "replicates": 15},
        Preset.PAPER: {"replicates": 41},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts: least nuclear norm", draw_nuclear),
        Panel("b", "Large starts: least Frobenius norm", draw_frobenius),
        Panel("c", "The limit goes from one to the other", draw_distances),
    ),
    check=check,
    needs=needs_cvxpy,
)
