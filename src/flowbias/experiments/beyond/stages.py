"""From saddle to saddle: the stages of a vanishing start, and flows from smaller and smaller ones.

[Pesme and Flammarion 2023; the four features of Zhao et al. 2026]: features 1, 3 and 4 wake, and 1
falls asleep again. On the slow clock tau the flow from a start of 1e-1000 is hardly to be told from
the stages, which are computed without any flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from flowbias.datasets import sparse_regression
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.check import less_than, true
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow
from flowbias.ground.drawing import COLOURS, INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.limits import StagePath, stages
from flowbias.models import DiagonalNet
from flowbias.results.solution import Status
from flowbias.theory import Reference

#: log10 of 1/scale, one panel each
DRAWN = (10, 100, 1000)
END = (0.0, 0.0, 10.0 / 7.0, -10.0 / 49.0)
NET = DiagonalNet(2, 1.0)


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The stages, a flow for each panel, and flows on random data for the distance."""
    yield "stages", {}
    for decades in DRAWN:
        yield "flow", {"decades": decades, "points": settings["points"]}
    for replicate in range(int(settings["replicates"])):
        yield "distance", {"replicate": replicate}


def compute(task: Task) -> Columns:
    """One part of the figure."""
    return {"stages": _stages, "flow": _flow, "distance": _distance}[task.part](task)


def _named(tau: FloatArray, w: FloatArray) -> Columns:
    return {"tau": tau, **{f"w{i + 1}": w[:, i] for i in range(w.shape[1])}}


def _path() -> StagePath:
    return stages(NET, [[1.0, 0.5, 0.7, 0.0], [0.5, 1.0, 0.1, 0.7]], [1.0, 0.0])


def _stages(task: Task) -> Columns:
    path = _path()
    certified = path.status is Status.CERTIFIED and path.limit.status is Status.CERTIFIED
    return {**_named(path.times, path.w), "certified": float(certified)}


def _flow(task: Task) -> Columns:
    path = _path()
    tau = np.linspace(0.0, 1.25 * path.times[-1], task.integer("points") + 1)[1:]
    return _named(tau, _followed(path, task.integer("decades"), tau))


def _followed(path: StagePath, decades: float, tau: FloatArray) -> FloatArray:
    log_scale = -decades * np.log(10.0)
    model = NET.at_log_scale(log_scale)
    times = path.time_at(log_scale, tau)
    return np.asarray(flow(model, path.data.X, path.data.y, t=times).w)


def _distance(task: Task) -> Columns:
    """The farthest that flow and stages are apart, a tenth of a stage or more from every jump."""
    data = sparse_regression(8, 16, sparsity=3, noise_var=0.1, rng=task.rng())
    path = stages(NET, data.X, data.y)
    decades = np.array([10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])
    inside = _inside(path.times)
    size = np.abs(path.w).max()
    apart = [np.abs(_followed(path, k, inside) - path.at(inside)).max() / size for k in decades]
    return {"decades_of_scale": decades, "apart": np.array(apart)}


def _inside(times: FloatArray) -> FloatArray:
    """Two times in each stage, a tenth of it from either end; the last stage has only one."""
    lengths = np.diff(times)
    both = np.stack([times[:-1] + 0.1 * lengths, times[:-1] + 0.9 * lengths], axis=1).ravel()
    return np.append(both[1:], 1.1 * times[-1])


def draw_flow(axes: Axes, table: Table, decades: int) -> None:
    """Steps in ink, the flow on top in colours, a name at the end of each."""
    steps, followed = table.part("stages"), table.part("flow")
    followed = followed.where(decades=decades)
    last = float(followed["tau"][-1])
    for i, colour in zip(range(1, 5), COLOURS, strict=False):
        tau, w = np.append(steps["tau"], last), steps[f"w{i}"]
        axes.step(tau, np.append(w, w[-1]), where="post", color=INK, linewidth=0.9)
        axes.plot(followed["tau"], followed[f"w{i}"], color=colour)
    for i, height in ((3, END[2]), (4, END[3])):
        axes.annotate(f"$w_{i}$", (last, height), (4, 0), textcoords="offset points", va="center")
    axes.annotate("$w_1$", (2.5, 0.8), (0, 6), textcoords="offset points", ha="center")
    axes.set(xlabel=r"slow time  $\tau = 4t / \log(1/\alpha^2)$", ylabel="coefficient  w")


def draw_distance(axes: Axes, table: Table) -> None:
    """One thin line a data set."""
    rows = table.part("distance")
    for replicate in np.unique(rows["replicate"]):
        one = rows.where(replicate=replicate)
        axes.plot(one["decades_of_scale"], one["apart"], color=COLOURS[0], alpha=0.5, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel=r"$\log_{10}(1/\alpha)$", ylabel="farthest of flow and stages, / largest w")


def check(table: Table) -> Iterator[Check]:
    """The end, the order of events, and the flow where the stages are."""
    steps = table.part("stages")
    off = max(abs(float(steps[f"w{i + 1}"][-1]) - END[i]) for i in range(4))
    certified = bool(np.all(steps["certified"] == 1.0))
    yield Check(
        "end",
        "the last stage is (0, 0, 10/7, -10/49), the certified rich limit",
        f"{off:.1e} away, {'certified' if certified else 'not certified'}",
        less_than(off, 1e-12),
        true(certified),
    )
    # In the middle of each stage, at the points of the flow that are nearest to it.
    steps = table.part("stages")
    tau, w = steps["tau"], np.stack([steps[f"w{i}"] for i in range(1, 5)], axis=1)
    middle = np.append(0.5 * (tau[:-1] + tau[1:]), 1.1 * tau[-1])
    off = float(np.abs(_at(table, DRAWN[-1], middle) - w).max())
    yield Check(
        "flow-rests",
        "in the middle of each stage the flow from 1e-1000 is where the stages are",
        f"at most {off:.1e} away",
        less_than(off, 1e-6),
    )
    tau = table.part("stages")["tau"]
    middle = np.append(0.5 * (tau[:-1] + tau[1:]), 1.1 * tau[-1])
    w = _at(table, DRAWN[-1], middle)
    seen = [tuple((np.flatnonzero(np.abs(row) > 1e-3) + 1).tolist()) for row in w]
    yield Check(
        "order",
        "in the flow features 1, 3 and 4 wake in turn, and 1 falls asleep when 3 wakes",
        " -> ".join(str(features) for features in seen),
        true(seen == [(), (1,), (3,), (3, 4)]),
    )
    rows = table.part("distance")
    by_scale = [
        float(np.median(rows["apart"][rows["decades_of_scale"] == k]))
        for k in np.unique(rows["decades_of_scale"])
    ]
    yield Check(
        "approach",
        "the smaller the start, the nearer the flow is to the stages between jumps",
        f"median from {by_scale[0]:.1e} at 1e-10 to {by_scale[-1]:.1e} at 1e-3000",
        less_than(np.diff(by_scale), 0.0),
    )


def _at(table: Table, decades: int, tau: FloatArray) -> FloatArray:
    rows = table.part("flow").where(decades=decades)
    nearest = np.abs(rows["tau"][:, None] - tau).argmin(axis=0)
    return np.stack([rows[f"w{i}"][nearest] for i in range(1, 5)], axis=1)


EXPERIMENT = Experiment(
    name="stages",
    title="From saddle to saddle",
    reference=Reference("woodworth2020", "Theorem 2"),
    summary=(
        "Four coefficients along gradient flow from starts of 1e-10, 1e-100 and 1e-1000 (colours) "
        "on a clock that slows with the start, over the stages of a vanishing one (thin steps): "
        "the flow rests, a feature wakes, the flow jumps. Last: how far flow and stages are apart."
    ),
    paper_says=(
        "Small starts end at the fit of least l1 norm; the path there is not in the paper. Pesme "
        "and Flammarion (2023) and Zhao et al. (2026) describe it."
    ),
    settings={
        Preset.SMOKE: {"points": 240, "replicates": 2},
        Preset.LAPTOP: {"points": 600, "replicates": 12},
        Preset.PAPER: {"points": 1200, "replicates": 20},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        *(
            Panel(name, rf"$\alpha = 10^{{-{decades}}}$", partial(draw_flow, decades=decades))
            for name, decades in zip("abc", DRAWN, strict=True)
        ),
        Panel("d", "Between jumps", draw_distance),
    ),
    check=check,
)
