"""CIFAR-10: the course of training from starts of several scales.

[woodworth2020, Figure 8]: the networks of Figure 6(d), epoch by epoch.

(a) train error
(b) test error
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset, Settings
from flowbias.experiments.check import at_least, at_most
from flowbias.experiments.table import Table
from flowbias.experiments.woodworth.fig06d import (
    PAPER_SIZE,
    PRESETS,
    RISE,
    SCALING,
)
from flowbias.experiments.woodworth.image_training import (
    CHOICES,
    as_percent,
    needs,
    numbers,
    picked,
    say_scaling,
    stand_in,
    vgg_curve,
)
from flowbias.ground.look import BLUE, RED
from flowbias.ground.typing import FloatArray
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A start is learned from once this share of the images is wrong no more.
LEARNED = 0.5
MARKERS = "osD^vPX"


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One training is one task."""
    common = picked(settings, "data", "images", "choosing_images", "test_images", "width")
    run = picked(settings, "batch_size", "epochs", "loss_target", "evaluate_every")
    steps = picked(settings, "step_size", "step_power")
    for replicate in range(int(settings["replicates"])):
        for scale in numbers(settings, "curve_scales"):
            yield "curve", {**common, **run, **steps, "replicate": replicate, "scale": scale}


# --- panels ------------------------------------------------------------------------------------


def draw_curves(axes: Axes, table: Table, *, column: str, label: str) -> None:
    import matplotlib as mpl

    rows = table.part("curve")
    scales = rows.levels("scale")
    ramp = mpl.colors.LinearSegmentedColormap.from_list("scale", [BLUE, "#8a5a9e", RED])
    for place, marker, scale in zip(np.linspace(0, 1, len(scales)), MARKERS, scales, strict=False):
        curve = rows.where(scale=scale).summary(column, by="epoch")
        axes.plot(
            curve.x,
            curve.median,
            color=ramp(place),
            marker=marker,
            markersize=4,
            linewidth=1.6,
            label=f"α = {scale:g}",
        )
    axes.set(xlabel="epoch", ylabel=label)
    # Room for the legend above the curves, which all start at the top.
    low, high = float(rows[column].min()), float(rows[column].max())
    axes.set_ylim(top=high + 0.4 * (high - low))
    as_percent(axes)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 0.89))
    say_scaling(axes, rows, f"{rows['width'][0]:.0f} channels first", PAPER_SIZE, top=True)


# --- checks ------------------------------------------------------------------------------------


def check(table: Table) -> list[Check]:
    """What appendix B says about the curves."""
    rows = table.rows(table["part"] == "curve")
    scale = rows.levels("scale")
    ends = [_ends(rows.rows(rows["scale"] == one)) for one in scale]
    epochs, train_error, error = (np.array(column) for column in zip(*ends, strict=True))
    return [
        _fitted(train_error),
        _slower(scale, epochs),
        _levels(scale, error),
        _start(rows),
    ]


def _ends(rows: Table) -> tuple[float, float, float]:
    """Of one scale: epochs until half of the images are right, and both errors at the end."""
    epoch, share, *_ = rows.summary("train_error", by="epoch")
    right = np.flatnonzero(share <= LEARNED)
    error = rows.summary("error", by="epoch").median
    return float(epoch[right[0]]) if right.size else np.nan, float(share[-1]), float(error[-1])


def _fitted(train_error: FloatArray) -> Check:
    worst = float(train_error.max())
    return Check(
        "all-fit",
        "every curve ends at 100% train accuracy",
        f"least train accuracy at the end {1 - worst:.4f}",
        at_most(worst, 0.0),
    )


def _slower(scale: FloatArray, epochs: FloatArray) -> Check:
    small = scale <= 1.0
    steps = np.diff(epochs[small])
    first, one = float(epochs[0]), float(epochs[small][-1])
    return Check(
        "small-starts-are-slow",
        "the smaller the start, the longer it takes to learn",
        f"half of the images are right after {first:g} epochs from α = {scale[0]:g}, after {one:g} "
        f"from α = {scale[small][-1]:g}",
        at_most(steps, 0.0),
        at_least(first, 1.5 * one),
    )


def _levels(scale: FloatArray, error: FloatArray) -> Check:
    least = float(error[scale <= 1.0].min())
    return Check(
        "large-starts-end-higher",
        "the largest start ends at a larger test error than the starts up to α = 1",
        f"{error[-1]:.1%} at α = {scale[-1]:g} against {least:.1%}",
        at_least(error[-1], least + RISE),
    )


def _start(rows: Table) -> Check:
    at_start = rows["train_error"][rows["epoch"] == 0.0]
    return Check(
        "start-knows-nothing",
        "every curve begins near the error of a guess among the labels",
        f"{at_start.min():.1%} to {at_start.max():.1%} of the train images wrong"
        if at_start.size
        else "no start",
        at_least(at_start, 0.6),
    )


EXPERIMENT = Experiment(
    name="woodworth-fig8",
    title="CIFAR-10: small starts learn late, large starts learn less",
    reference=Reference("woodworth2020", "Figure 8"),
    summary=(
        "Train and test error of a VGG11-like network along its training by SGD on cross-entropy, "
        "from α times He's uniform start. A curve ends where every train image is right and the "
        f"loss is small. {SCALING}"
    ),
    paper_says=(
        "All networks reach 100% train accuracy; small starts show the difficulty of optimization "
        "that comes with leaving the kernel regime."
    ),
    # Looked at more often: after how many epochs half of the images are right is what is asked.
    settings={**PRESETS, Preset.LAPTOP: {**PRESETS[Preset.LAPTOP], "evaluate_every": 2}},
    tasks=tasks,
    compute=vgg_curve,
    panels=(
        Panel(
            "a",
            "Small starts learn late",
            partial(draw_curves, column="train_error", label="train error"),
        ),
        Panel(
            "b", "Large starts learn less", partial(draw_curves, column="error", label="test error")
        ),
    ),
    check=check,
    stand_in=stand_in,
    needs=needs,
    choices=CHOICES,
)
