"""What steps, batches, momentum, noise and decay make of a start: the main figures on descent.

[Even et al. 2023] test error against the step for all samples and for batches of one, and the gain
of each coordinate; [Pillaud-Vivien et al. 2022] sparse recovery by noise on the labels; [Papazov et
al. 2024] momentum as a longer step; and where weight decay ends. All from `gradient_descent`, with
the effective start of docs/theory/descent.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LassoLars

from flowbias.datasets import SparseRegression
from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task, picked
from flowbias.experiments.check import at_least, at_most, less_than, more_than
from flowbias.experiments.curves import DOTS, as_columns, draw_curve, sparse_data
from flowbias.experiments.drawing import name_line, reference_line
from flowbias.experiments.table import Columns, Summary, Table
from flowbias.flows import gradient_descent, stable_step
from flowbias.flows.descent import Descent
from flowbias.ground.drawing import BLUE, COLOURS, GREY, INK
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models import DiagonalNet
from flowbias.theory import Reference

MODEL = DiagonalNet(depth=2, scale=0.1)
#: Shares of the step that is stable at the limit.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
LABEL_NOISE = 0.3
ALL_SAMPLES, ONE_SAMPLE = 0, 1  # samples a step: all, or one
COLOUR = {ALL_SAMPLES: COLOURS[1], ONE_SAMPLE: BLUE}
NAME = {ALL_SAMPLES: "all samples", ONE_SAMPLE: "batches of 1"}


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Every problem for every panel; gains of one problem, coordinate by coordinate."""
    shared = picked(settings, "n", "d", "sparsity")
    for replicate in range(int(settings["replicates"])):
        task = {**shared, "replicate": replicate}
        yield "steps", task
        yield "noise", {**task, "epochs": settings["epochs"]}
        yield "momentum", task
        yield "decay", task
    yield "gain", {**shared, "replicate": 0}


def compute(task: Task) -> Columns:
    """One part of the figure."""
    # The same problem for all parts.
    seeds = [task.integer(name) for name in ("replicate", "n", "d", "sparsity")]
    data = sparse_data(task, np.random.default_rng(seeds))
    parts = {"steps": _steps, "gain": _gain, "momentum": _momentum, "decay": _decay}
    return _noise(task, data) if task.part == "noise" else parts[task.part](data)


def _error(w: FloatArray, data: SparseRegression) -> float:
    """Squared, relative to that of w = 0: what test samples of unit covariance would measure."""
    return float(np.sum((w - data.w_true) ** 2) / np.sum(data.w_true**2))


def _descent(
    data: SparseRegression, share: float, samples: int = ALL_SAMPLES, **how: Any
) -> Descent:
    """With a share of the stable step."""
    batch_size = samples or None
    step = share * stable_step(MODEL, data.X, data.y, batch_size=batch_size)
    how |= {"step_size": step, "batch_size": batch_size}
    run: Descent = gradient_descent(MODEL, data.X, data.y, **how)
    return run


def _steps(data: SparseRegression) -> Columns:
    rows = []
    for samples in (ALL_SAMPLES, ONE_SAMPLE):
        for share in SHARES:
            run = _descent(data, share, samples, rng=0, residual=1e-10, max_steps=10**6)
            distance, nominal, _ = run.explained
            row = {"samples": samples, "share": share, "error": _error(run.w, data)}
            row |= {"distance": distance, "nominal": nominal}
            rows.append(row | {"certified": float(run.effective_limit.certificate.ok)})
    return as_columns(rows)


def _gain(data: SparseRegression) -> Columns:
    """In the order of the largest gains of all samples."""
    gains = {
        samples: _descent(data, SHARES[-1], samples, rng=0, residual=1e-10).gain
        for samples in (ALL_SAMPLES, ONE_SAMPLE)
    }
    order = np.argsort(-gains[ALL_SAMPLES])
    return {
        "place": np.arange(1.0, len(order) + 1.0),
        "gain_all": gains[ALL_SAMPLES][order],
        "gain_one": gains[ONE_SAMPLE][order],
        "on_support": (data.w_true[order] != 0.0).astype(float),
    }


def _noise(task: Task, data: SparseRegression) -> Columns:
    """One run, looked at after more and more epochs."""
    n, last = len(data.y), task.integer("epochs")
    epochs = np.unique(np.geomspace(4.0, last, 8).astype(int))
    lengths = [int(k) * n for k in epochs]
    noisy = partial(_descent, data, 0.5, ONE_SAMPLE, label_noise=LABEL_NOISE, rng=0)
    runs = [noisy(max_steps=steps, record_every=steps) for steps in lengths]
    return {
        "epoch": epochs.astype(float),
        "error": np.array([_error(run.w, data) for run in runs]),
        "effective_error": np.array([_error(run.effective_limit.w, data) for run in runs]),
        "nominal_error": _error(runs[0].limit.w, data),
    }


def _momentum(data: SparseRegression) -> Columns:
    """One short step for all, so that the longest that momentum makes of it is short as well."""
    momenta = np.array([0.0, 0.3, 0.5, 0.7, 0.8])
    step = 0.1 * stable_step(MODEL, data.X, data.y) * (1.0 - momenta[-1]) ** 2
    gains = [
        gradient_descent(MODEL, data.X, data.y, step_size=step, momentum=m, residual=1e-6).gain
        for m in momenta.tolist()
    ]
    ratios = [float(gain.sum() / gains[0].sum()) for gain in gains]
    return {"momentum": momenta, "ratio": np.array(ratios)}


def _decay(data: SparseRegression) -> Columns:
    largest = float(np.abs(data.X.T @ data.y).max())
    rows = []
    # Shares of the least penalty at which the lasso is zero.
    for share in (0.1, 0.2, 0.4, 0.7, 0.95):
        penalty = MODEL.step_rate * share * largest
        run = _descent(data, 0.5, weight_decay=penalty, residual=1e-9)
        alpha = run.lasso.penalty / len(data.y)
        exact = LassoLars(alpha=alpha, fit_intercept=False).fit(data.X, data.y).coef_
        apart = float(np.linalg.norm(run.w - exact) / np.linalg.norm(exact))
        rows.append({"penalty": share, "apart": apart, "gap": run.lasso.gap})
    return as_columns(rows)


# --- panels ------------------------------------------------------------------------------------


def draw_steps(axes: Axes, table: Table) -> None:
    rows = table.part("steps")
    for samples in (ALL_SAMPLES, ONE_SAMPLE):
        part, colour = rows.where(samples=samples), COLOUR[samples]
        line = draw_curve(axes, part, "error", by="share", color=colour, **DOTS)
        side = "above" if samples == ALL_SAMPLES else "below"
        name_line(axes, NAME[samples], line.x[3], line.median[3], side=side, colour=colour)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("step size h, in units of the stable step")
    axes.set_ylabel("error of  w, squared and relative")


def draw_gain(axes: Axes, table: Table) -> None:
    rows = table.part("gain")
    for samples, column in ((ALL_SAMPLES, "gain_all"), (ONE_SAMPLE, "gain_one")):
        axes.plot(rows["place"], rows[column], ".", color=COLOUR[samples], markersize=6)
    true = rows.rows(rows["on_support"] == 1.0)
    for column in ("gain_all", "gain_one"):
        axes.plot(true["place"], true[column], "o", mfc="none", color=INK, markersize=10)
    place = 0.35 * len(rows)
    for samples, column in ((ALL_SAMPLES, "gain_all"), (ONE_SAMPLE, "gain_one")):
        height = float(np.interp(place, rows["place"], rows[column]))
        side = "below" if samples == ALL_SAMPLES else "above"
        name_line(axes, NAME[samples], place, height, side=side, colour=COLOUR[samples])
    axes.set(yscale="log")
    axes.set_xlabel("coordinate, by gain; rings: the support")
    axes.set_ylabel(r"gain  $2\,\log(\alpha/\alpha_\mathrm{eff})$")


def draw_noise(axes: Axes, table: Table) -> None:
    rows = table.part("noise")
    for column, name, colour in (
        ("error", "the run", GREY),
        ("effective_error", "its effective limit", BLUE),
    ):
        line = _draw_up_to(3.0, axes, rows, column, "epoch", colour)
        name_line(axes, name, line.x[-2], line.median[-2], side="left", colour=colour)
    reference_line(axes, y=float(np.median(rows["nominal_error"])), text="flow, without noise")
    axes.set_xscale("log")
    axes.set_xlabel(f"epochs of batches of 1, label noise {LABEL_NOISE}")
    axes.set_ylabel("error of  w, squared and relative")


def _draw_up_to(
    top: float, axes: Axes, rows: Table, column: str, by: str, colour: str, floor: float = 1e-12
) -> Summary:
    """From a floor on: zero has no place on a logarithmic axis."""
    clipped = rows.replaced(**{column: np.maximum(rows[column], floor)})
    axes.set(yscale="log", ylim=(0.3 * floor, top))
    return draw_curve(axes, clipped, column, by=by, color=colour, **DOTS)


def draw_momentum(axes: Axes, table: Table) -> None:
    beta = np.linspace(0.0, 0.85, 60)
    axes.plot(beta, (1.0 + beta) / (1.0 - beta) ** 2, color=INK, linewidth=0.9)
    rows = table.part("momentum")
    draw_curve(axes, rows, "ratio", by="momentum", color=BLUE, marker="o", linestyle="none")
    axes.set(yscale="log", xlabel=r"momentum  $\beta$", ylabel="gain, momentum 0 = 1")
    name_line(axes, r"$(1+\beta)/(1-\beta)^2$", 0.5, 6.0, side="right")


def draw_decay(axes: Axes, table: Table) -> None:
    rows = table.part("decay")
    for column, name, colour in (("apart", "distance of w", BLUE), ("gap", "duality gap", GREY)):
        line = _draw_up_to(1e-3, axes, rows, column, "penalty", colour)
        name_line(axes, name, line.x[2], line.median[2], side="above", colour=colour)
    axes.set_xlabel("penalty, in units of the least that leaves nothing")
    axes.set_ylabel("from the lasso, relative")


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> Iterator[Check]:
    """The theorem, the two papers' figures, momentum and decay."""
    steps = table.part("steps")
    worst, least = float(np.max(steps["distance"])), float(np.min(steps["nominal"]))
    yield Check(
        "explained",
        "every descent ends at the limit of the flow from its effective start, certified",
        f"at most {worst:.1e} away, and {least:.1e} or more from that of the nominal one",
        at_most(worst, 1e-7),
        at_least(float(np.min(steps["certified"])), 1.0),
        more_than(least, 1e-5),
    )
    for samples, name, claim in (
        (ALL_SAMPLES, "full-batches-hinder", "longer steps on all samples recover less"),
        (ONE_SAMPLE, "small-batches-help", "longer steps on single samples recover more"),
    ):
        rows = steps.where(samples=samples)
        ends = [rows.where(share=share)["error"] for share in (SHARES[0], SHARES[-1])]
        short, long = (float(np.median(errors)) for errors in ends)
        decisive = (
            more_than(long, 1.1 * short) if samples == ALL_SAMPLES else less_than(long, 0.9 * short)
        )
        words = f"median error {short:.3f} with the shortest, {long:.3f} with the longest"
        yield Check(name, claim, words, decisive)
    gain = table.part("gain")
    true = gain["on_support"] == 1.0
    ratios = [
        float(np.mean(gain[column][true]) / np.mean(gain[column][~true]))
        for column in ("gain_all", "gain_one")
    ]
    yield Check(
        "gain-on-support",
        "all samples shrink the support, single ones all coordinates",
        f"gain on the support {ratios[0]:.1f} and {ratios[1]:.1f} times that off it",
        more_than(ratios[0], 3.0 * ratios[1]),
    )
    noise = table.part("noise")
    last = noise.where(epoch=float(np.nanmax(noise["epoch"])))
    share = float(np.median(last["effective_error"] / last["nominal_error"]))
    yield Check(
        "noise-drifts",
        "noise on the labels drifts to the sparse fit, which the effective limit shows",
        f"median error at the end {share:.1e} of that of the flow without noise",
        at_most(share, 0.05),
    )
    rows = table.part("momentum")
    beta = rows["momentum"]
    off = float(np.max(np.abs(rows["ratio"] * (1.0 - beta) ** 2 / (1.0 + beta) - 1.0)))
    yield Check(
        "momentum-lengthens",
        "momentum multiplies the gain by (1+β)/(1-β)², to first order",
        f"at most {100.0 * off:.1f} percent off",
        at_most(off, 0.1),
    )
    rows = table.part("decay")
    apart, gap = float(np.max(rows["apart"])), float(np.max(rows["gap"]))
    yield Check(
        "decay-is-lasso",
        "weight decay ends at the lasso of its penalty",
        f"at most {apart:.1e} away, duality gap {gap:.1e}",
        at_most(apart, 1e-6),
        at_most(gap, 1e-6),
    )


EXPERIMENT = Experiment(
    name="descent-steps",
    title="Steps, batches, noise, momentum and decay",
    reference=Reference("flowbias", "docs/theory/descent.md"),
    summary=(
        "Sparse regression (n = 40, d = 100) from a start of 0.1. (a) Error against the step, on "
        "all samples and on one at a time. (b) By how much each coordinate's start has shrunk. (c) "
        "Label noise: the run trembles, the limit of its effective start goes to the truth. (d) "
        "Momentum acts as a longer step. (e) Weight decay ends at a lasso."
    ),
    paper_says=(
        "Beyond the papers of this library: Even et al. (2023) show (a) and (b), Pillaud-Vivien et "
        "al. (2022) sparse recovery by label noise, Papazov et al. (2024) momentum as a longer "
        "step. The effective start explains every run exactly."
    ),
    settings={
        Preset.SMOKE: {"n": 40, "d": 100, "sparsity": 3, "epochs": 200, "replicates": 2},
        Preset.LAPTOP: {"epochs": 400, "replicates": 15},
        Preset.PAPER: {"replicates": 51},
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Error against the step", draw_steps),
        Panel("b", "Gain per coordinate", draw_gain),
        Panel("c", "Label noise", draw_noise),
        Panel("d", "Momentum", draw_momentum),
        Panel("e", "Weight decay", draw_decay),
    ),
    check=check,
)
