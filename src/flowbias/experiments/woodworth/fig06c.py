"""MNIST: a wide network generalizes better from a small start than from a large one.

[woodworth2020, Figure 6(c)]: one hidden layer, cross-entropy, SGD to 100% train accuracy, the
step size chosen anew for each scale of the start.

(a) test error against the scale, with the last layer trained alone and the exact linearized twin
(b) how far the weights moved, relative to their size at the start
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.experiments._base import Experiment, Panel, Preset, Settings, Task
from flowbias.experiments.drawing import draw_band, name_line, reference_line
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.torch_task import torch_device
from flowbias.experiments.woodworth.fig06c_checks import check, chosen
from flowbias.experiments.woodworth.fig06c_twin import twin_columns
from flowbias.experiments.woodworth.image_training import (
    as_percent,
    copy_of,
    draw_movement,
    kept_in_cache,
    numbers,
    outcome_columns,
    picked,
    say_scaling,
    split_of,
    stand_in,
)
from flowbias.ground.look import BLUE, RED
from flowbias.kernels import linearize
from flowbias.nets import mlp, train, train_last_layer
from flowbias.theory import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One training is one task; the twin is one for all scales, as its kernel is the same."""
    common = picked(settings, "data", "choosing_images", "test_images")
    stop = picked(settings, "batch_size", "loss_target", "evaluate_every")
    steps = numbers(settings, "step_sizes")
    for replicate in range(int(settings["replicates"])):
        drawn = {**common, "replicate": replicate}
        whole = {**drawn, **picked(settings, "images", "width"), **stop}
        for step_size in steps:
            run = {**whole, "step_size": step_size, "epochs": settings["epochs"]}
            for scale in numbers(settings, "scales"):
                yield "network", {**run, "scale": scale}
        for step_size in numbers(settings, "last_step_sizes"):
            run = {**whole, "step_size": step_size, "epochs": settings["last_epochs"]}
            yield "last-layer", {**run, "scale": 1.0}
        kernel = {**drawn, "width": settings["kernel_width"]}
        for scale in numbers(settings, "kernel_scales"):
            run = {**kernel, **stop, "images": settings["images"], "scale": scale}
            yield "linearized", {**run, "step_size": steps[0], "epochs": settings["epochs"]}
        few = {**kernel, "images": settings["twin_images"]}
        yield "twin", {**few, "scales": settings["scales"]}
        for step_size in steps:
            run = {**few, **stop, "step_size": step_size, "epochs": settings["epochs"]}
            yield "same-images", {**run, "scale": 1.0}


def compute(task: Task) -> Columns:
    """A trained network, last layer or linearized network, or the exact twin."""
    return _PARTS[task.part](task)


def _itself(net: Any) -> Any:
    return net


def _trained(task: Task, method: Any = train, model: Callable[[Any], Any] = _itself) -> Columns:
    split, scale = split_of(task), task.number("scale")
    sizes = (split.train.x.shape[1], task.integer("width"), 10)
    with torch_device() as device:
        drawn = mlp(sizes, scale=scale, start="normal", rng=task.integer("replicate"))
        net = model(drawn.to(device))
        start = copy_of(net)
        training = method(
            net,
            split.train.x,
            split.train.y,
            step_size=task.number("step_size"),
            loss="cross_entropy",
            batch_size=task.integer("batch_size"),
            max_epochs=task.integer("epochs"),
            stop_at_accuracy=1.0,
            stop_at_loss=task.number("loss_target"),
            rng=task.integer("replicate"),
            evaluate_every=task.integer("evaluate_every"),
            **kept_in_cache(),
        )
        return outcome_columns(training, start, net, split)


_PARTS: dict[str, Callable[[Task], Columns]] = {
    "network": _trained,
    "last-layer": partial(_trained, method=train_last_layer),
    "linearized": partial(_trained, model=linearize),
    "twin": twin_columns,
    # A network that saw no more images than the twin, to be compared with it.
    "same-images": _trained,
}


# --- panels ------------------------------------------------------------------------------------


def draw_error(axes: Axes, table: Table) -> None:
    best = chosen(table.part("network"))
    curve = best.summary("error", by="scale")
    axes.set(xscale="log", xlabel="scale of the start α", ylabel="test error")
    draw_band(axes, curve.x, curve, color=BLUE, marker="o", markersize=5)
    name_line(axes, "network", curve.x[-2], curve.median[-2], side="below", colour=BLUE)
    last = float(np.median(chosen(table.part("last-layer"))["error"]))
    reference_line(axes, y=last, text="last layer alone")
    twin = table.part("twin")
    own = twin.summary("error", by="scale")
    axes.plot(own.x, own.median, color=RED, linewidth=1.4, linestyle="--")
    level = float(np.median(twin["limit_error"]))
    learned = float(np.median(chosen(table.part("same-images"))["error"]))
    axes.axhline(level, color=RED, linewidth=1.0)
    axes.annotate(
        f"exact twin, squared loss, {twin['images'][0]:.0f} images:\n"
        "solid without, dashed with the start's output\n"
        f"(network from α = 1, same images: {learned:.1%})",
        (0.98, 0.87),
        xycoords="axes fraction",
        ha="right",
        va="top",
        color=RED,
        fontsize=9,
    )
    top = max(float(curve.median.max()), last, level)
    axes.set_ylim(0.0, 1.8 * top)
    as_percent(axes)
    hidden = f"{best['width'][0]:.0f} hidden units"
    say_scaling(axes, best, hidden, "60000 images, 5000 hidden units", top=True)


def draw_moved(axes: Axes, table: Table) -> None:
    best = chosen(table.part("network"))
    draw_movement(axes, best, f"loss ≤ {best['loss_target'][0]:g}", "60000 images, loss ≤ 1e-5")


EXPERIMENT = Experiment(
    name="woodworth-fig6c",
    title="MNIST: large starts are no better than random features",
    reference=Reference("woodworth2020", "Figure 6(c)"),
    summary=(
        "A ReLU network with one hidden layer learns handwritten digits by SGD on cross-entropy "
        "from α times He's normal start, until every train image is right and the loss is small. "
        "The step size is the best of a few for each α, by images that are neither trained on nor "
        "reported on; for large α that is the largest, and still larger ones leave the kernel "
        "regime. Beside it: the last layer trained alone over the random hidden layer, and "
        "the linearized network's exact limit under squared loss from its tangent kernel, "
        "with labels 0 and 1, with the start's own output left out (solid) or in (dashed). "
        "Preset laptop is scaled down: a tenth of the images and of the hidden units, loss 0.02 "
        "instead of 1e-5. Preset smoke uses "
        "made-up pictures, not MNIST, and shows only that the program runs."
    ),
    paper_says=(
        "About 1.4% error for α up to 2 and 2.4% from α = 50 on, although all networks fit their "
        "train images; 2.7% with the last layer alone. Wide networks generalize because they are "
        "started outside the kernel regime, and α = 1 lies just outside."
    ),
    settings={
        Preset.SMOKE: {
            "data": "made-up digits",
            "images": 300,
            "choosing_images": 500,
            "test_images": 1500,
            "width": 150,
            "scales": "0.3 1 2 4 8 50 100",
            "step_sizes": "0.1 0.05",
            "last_step_sizes": "0.1 0.05",
            "batch_size": 64,
            "loss_target": 0.05,
            "epochs": 80,
            "last_epochs": 200,
            "evaluate_every": 2,
            "kernel_width": 150,
            "kernel_scales": "1 50",
            "twin_images": 50,
            "replicates": 1,
        },
        Preset.LAPTOP: {
            "data": "MNIST",
            "images": 55000,
            "choosing_images": 5000,
            "test_images": 10000,
            "width": 1000,
            "scales": "0.1 1 2 8 50 100",
            "step_sizes": "0.5",
            "last_step_sizes": "0.5",
            "batch_size": 256,
            "loss_target": 0.02,
            "epochs": 80,
            "last_epochs": 60,
            "evaluate_every": 3,
            "kernel_width": 500,
            "kernel_scales": "1 50",
            "twin_images": 1000,
            "replicates": 1,
        },
        Preset.PAPER: {
            "data": "MNIST",
            "images": 55000,
            "choosing_images": 5000,
            "test_images": 10000,
            "width": 5000,
            "scales": "0.1 1 2 8 50 100",
            "step_sizes": "0.5 1",
            "last_step_sizes": "0.5 0.1",
            "batch_size": 256,
            "loss_target": 0.02,
            "epochs": 80,
            "last_epochs": 150,
            "evaluate_every": 3,
            "kernel_width": 1000,
            "kernel_scales": "1 50",
            "twin_images": 1000,
            "replicates": 1,
        },
    },
    tasks=tasks,
    compute=compute,
    panels=(
        Panel("a", "Small starts generalize", draw_error),
        Panel("b", "Large starts hardly move", draw_moved),
    ),
    check=check,
    stand_in=stand_in,
)
