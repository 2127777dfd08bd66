"""CIFAR-10: a deep convolutional network generalizes better from a small start than a large one.

[woodworth2020, Figure 6(d)]: VGG11-like, no biases, cross-entropy, SGD, no augmentation.

(a) test error against the scale of the start, with the last layer trained alone
(b) how far the weights moved, relative to their size at the start
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.check import at_least, at_most, more_than
from flowbias.experiments.drawing import draw_band, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.image_training import (
    CHOICES,
    as_percent,
    draw_movement,
    last_layer_columns,
    needs,
    numbers,
    picked,
    say_scaling,
    stand_in,
    vgg_curve,
)
from flowbias.ground.look import BLUE
from flowbias.ground.typing import FloatArray
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The least rise of the error that counts as a transition: several times the noise of a test set
# of 2000 images at such errors, sqrt(0.25 / 2000) = 0.011.
RISE = 0.05


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One training is one task."""
    common = picked(settings, "data", "images", "choosing_images", "test_images", "width")
    run = picked(settings, "batch_size", "epochs", "loss_target", "evaluate_every")
    for replicate in range(int(settings["replicates"])):
        drawn = {**common, **run, "replicate": replicate}
        for scale in numbers(settings, "scales"):
            steps = picked(settings, "step_size", "step_power")
            yield "network", {**drawn, **steps, "scale": scale}
        yield "last-layer", {**drawn, "step_size": settings["last_step_size"]}


def compute(task: Task) -> Columns:
    """The end of a training."""
    return _PARTS[task.part](task)


def _end_of_curve(task: Task) -> Columns:
    curve = Table.of(vgg_curve(task))
    return {name: column[-1:] for name, column in curve.columns.items()}


_PARTS = {"network": _end_of_curve, "last-layer": last_layer_columns}


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    rows = table.part("network")
    curve = rows.summary("error", by="scale")
    axes.set(xscale="log", xlabel="scale of the start α", ylabel="test error")
    draw_band(axes, curve.x, curve, color=BLUE, marker="o", markersize=5)
    last = float(np.median(table.part("last-layer")["error"]))
    reference_line(axes, y=last, text="last layer alone")
    name_scales(axes, curve.x)
    as_percent(axes)
    axes.margins(y=0.18)
    say_scaling(axes, rows, f"{rows['width'][0]:.0f} channels first", PAPER_SIZE)


def draw_moved(axes: Axes, table: Table) -> None:
    rows = table.part("network")
    power = rows["step_power"][0]
    fall = f" min(1, 1/α^{power:g})" if power else ""
    draw_movement(
        axes, rows, f"step {rows['step_size'][0]:g}{fall}", "50000 images, step 1e-4 at every α"
    )
    name_scales(axes, rows.levels("scale"))


def name_scales(axes: Axes, scales: FloatArray) -> None:
    """The scales themselves under a logarithmic axis of less than two decades."""
    axes.set_xticks(scales, [f"{scale:g}" for scale in scales])
    axes.set_xticks([], minor=True)


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What appendix B says about the figure."""
    rows = table.rows(table["part"] == "network")
    last = table.rows(table["part"] == "last-layer")
    scale, error, *_ = rows.summary("error", by="scale")
    best, largest = float(error.min()), float(error[-1])
    way = (error - best) / (largest - best)
    return [
        _fitted(rows, last),
        _transition(scale, way, best, largest),
        _standard(scale, way),
        _like_last_layer(error, float(np.median(last["error"]))),
        _movement(rows),
    ]


def _fitted(rows: Table, last: Table) -> Check:
    worst, alone = float(rows["train_error"].max()), float(last["train_error"].min())
    return Check(
        "all-fit",
        "all networks reach 100% train accuracy; the last layer alone does not",
        f"least train accuracy {1 - worst:.4f}, with the last layer alone {1 - alone:.4f}",
        at_most(worst, 0.0),
        more_than(alone, 0.0),
    )


def _transition(scale: FloatArray, way: FloatArray, best: float, largest: float) -> Check:
    above = np.flatnonzero(way >= 0.5)
    tail = above.size > 0 and bool(np.all(np.diff(above) == 1)) and above[0] > 0
    at = float(scale[above[0]]) if tail else np.nan
    return Check(
        "transition",
        "the error rises from one level to another as the start grows",
        f"from {best:.1%} to {largest:.1%}, half of the way first passed at α = {at:g}",
        at_least(largest - best, RISE),
        more_than(at, 1.0),
    )


def _standard(scale: FloatArray, way: FloatArray) -> Check:
    at_one = way[scale == 1.0]
    share = float(at_one[0]) if at_one.size else np.nan
    return Check(
        "standard-start-is-outside",
        "He's own start, α = 1, generalizes about as well as any",
        f"{share:.0%} of the way from the least error to that of the largest start",
        at_most(share, 1 / 3),
    )


def _like_last_layer(error: FloatArray, last: float) -> Check:
    return Check(
        "last-layer-is-worse",
        "features that are learned beat random ones: the last layer alone errs more than the best",
        f"{last:.1%} against {error.min():.1%}",
        at_least(last, error.min() + RISE),
    )


def _movement(rows: Table) -> Check:
    scale, moved, *_ = rows.summary("movement", by="scale")
    rise = float(np.max(np.diff(moved) / moved[:-1]))
    return Check(
        "large-starts-hardly-move",
        "the larger the start, the less the weights move relative to their size",
        f"from {moved[0]:.3g} at α = {scale[0]:g} to {moved[-1]:.3g} at α = {scale[-1]:g}, "
        f"largest rise {rise:.0%}",
        # Once the output of the start outweighs the labels, only its shape counts and not its
        # scale: there the movement is the same up to the luck of SGD.
        at_most(rise, 0.1),
        at_most(moved[-1], 0.5 * moved[0]),
    )


#: What the paper trained, as the panels say it.
PAPER_SIZE = "50000 images, 64 channels first"
#: What the presets scale down, for this figure and Figure 8.
SCALING = (
    "Preset laptop is scaled down: 2000 images instead of 50000, an eighth of the channels, a "
    "step size of 0.02 min(1, 1/α⁶) instead of 1e-4, which a few thousand steps could not show, "
    "and an end at 100% train accuracy with loss below 0.02, at most 300 epochs instead of 2000. "
    "Preset paper has 10000 images, a quarter of the channels and three seeds; preset full is the "
    "paper's own, about 18 CPU days a training, meant for a GPU. "
    "Preset smoke uses made-up pictures, not CIFAR-10, and shows only that the program runs."
)
SMOKE: Settings = {
    "data": "made-up objects",
    "images": 160,
    "choosing_images": 0,
    "test_images": 200,
    "width": 3,
    "scales": "0.8 1 2",
    "curve_scales": "0.8 1 2",
    "step_size": 0.02,
    "step_power": 6.0,
    "last_step_size": 0.01,
    "batch_size": 16,
    "loss_target": 0.1,
    "epochs": 40,
    "evaluate_every": 2,
    "replicates": 1,
}
LAPTOP: Settings = {
    "data": "CIFAR-10",
    "images": 2000,
    "test_images": 2000,
    "width": 8,
    "scales": "0.8 0.9 1 1.2 1.5 2 3",
    "curve_scales": "0.6 0.7 1 1.5 2",
    "batch_size": 32,
    "loss_target": 0.02,
    "epochs": 300,
    "evaluate_every": 4,
}
PAPER: Settings = {
    "images": 10000,
    "test_images": 10000,
    "width": 16,
    "evaluate_every": 5,
    "replicates": 3,
}
FULL: Settings = {
    "images": 50000,
    "width": 64,
    "scales": "0.5 0.7 1 1.5 2 3 4 6 8",
    "curve_scales": "0.5 0.7 1 2 4 8",
    "step_size": 1e-4,
    "step_power": 0.0,
    "last_step_size": 1e-3,
    "batch_size": 128,
    # Below every loss: trained for all of the epochs.
    "loss_target": 1e-300,
    "epochs": 2000,
    "evaluate_every": 10,
    "replicates": 1,
}
PRESETS = {
    Preset.SMOKE: SMOKE,
    Preset.LAPTOP: LAPTOP,
    Preset.PAPER: PAPER,
    Preset.FULL: FULL,
}

EXPERIMENT = Experiment(
    name="woodworth-fig6d",
    title="CIFAR-10: large starts lose what depth and convolutions give",
    reference=Reference("woodworth2020", "Figure 6(d)"),
    summary=(
        "A VGG11-like network without biases (64-M-128-M-256-256-M-512-512-M-512-M-FC) learns "
        "CIFAR-10 by SGD on cross-entropy from α times He's uniform start, without augmentation. "
        "The output at the start grows as α⁸. Beside it: the last layer trained alone over the "
        f"random layers below. {SCALING}"
    ),
    paper_says=(
        "As on MNIST, the error rises with the start although all networks reach 100% train "
        "accuracy; trained alone, the last layer reaches 50.38% train accuracy. α = 1 is good and "
        "lies just outside the kernel regime."
    ),
    settings=PRESETS,
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts generalize", draw_error),
        Panel("b", "Large starts hardly move", draw_moved),
    ),
    check=check,
    stand_in=stand_in,
    needs=needs,
    choices=CHOICES,
)
