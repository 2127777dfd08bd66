"""An experiment of your own: does more noise call for a larger scale of the start?

One file with five things: settings, tasks, a computation, a panel and a check. The runner adds the
cache, the processes (or the cluster), the resuming and the judging.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import flowbias as fb
from flowbias.experiments import Check, Experiment, Panel, Preset, run
from flowbias.experiments.check import more_than

NOISE = (0.0, 0.01, 0.1, 1.0)


def tasks(settings):
    for noise_var in NOISE:
        for replicate in range(settings["replicates"]):
            yield "path", {"noise_var": noise_var, "replicate": replicate}


def compute(task):
    """Pure: what comes out depends on the task alone, random numbers included."""
    noise_var = task.number("noise_var")
    data = fb.datasets.sparse_regression(n=60, d=300, noise_var=noise_var, rng=task.rng())
    log_scales = np.linspace(2.0, -12.0, 15)
    path = fb.limit_path(fb.DiagonalNet(depth=2, scale=1.0), data.X, data.y, log_scales=log_scales)
    return {"log_scale": log_scales, "error": np.sum((path.w - data.w_true) ** 2, axis=1)}


def draw(axes, table):
    """Draws what the table holds; nothing is computed here."""
    for noise_var in table.levels("noise_var"):
        summary = table.where(noise_var=noise_var).summary("error", by="log_scale")
        axes.plot(np.exp(summary.x), summary.median, label=f"noise variance {noise_var:g}")
    axes.set(xscale="log", yscale="log", xlabel="scale of the start", ylabel="population error")
    axes.legend(frameon=False)


def best_scale(table, noise_var):
    summary = table.where(noise_var=noise_var).summary("error", by="log_scale")
    return float(np.exp(summary.x[np.argmin(summary.median)]))


def check(table):
    quiet, loud = best_scale(table, NOISE[0]), best_scale(table, NOISE[-1])
    yield Check(
        name="noise-wants-larger-scales",
        claim="with much noise the best scale is larger than without noise",
        measured=f"best scale {loud:.2g} with noise variance {NOISE[-1]:g}, {quiet:.2g} without",
        holds=more_than(loud, quiet),
    )


EXPERIMENT = Experiment(
    name="noise-and-scale",
    title="Does more noise call for a larger scale?",
    reference=fb.theory.Reference("flowbias", "examples"),
    summary="Population error of the exact limit against the scale, for several noise variances.",
    paper_says="Nothing: this is an experiment of your own.",
    settings={
        Preset.SMOKE: {"replicates": 2},
        Preset.LAPTOP: {"replicates": 10},
        Preset.PAPER: {"replicates": 50},
    },
    tasks=tasks,
    compute=compute,
    panels=(Panel("a", "Error against scale", draw),),
    check=check,
)


if __name__ == "__main__":
    record = run(EXPERIMENT, preset="laptop")
    print(record)
    Path("out").mkdir(exist_ok=True)
    record.plot().savefig("out/noise-and-scale.png", dpi=100)
    print("picture: out/noise-and-scale.png")
