"""Networks trained on pictures from starts of many scales: data, training, what is recorded.

    w(0) = scale * w_0,    the same w_0 and the same pictures at every scale

Common to Figures 6(c), 6(d) and 8.  [woodworth2020, B.2]
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.datasets.images import Images, cifar10, mnist
from flowbias.experiments._base import Task, checkpoint_file, torch_device
from flowbias.experiments.drawing import draw_band, say
from flowbias.experiments.table import Columns, Table
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import BLUE
from flowbias.ground.progress import SCREEN
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, FloatArray
from flowbias.kernels import parameter_movement
from flowbias.nets import Training, train, train_last_layer, vgg11_like

#: Of both sets of pictures: digits, or kinds of things.
CLASSES = 10

Pictures = tuple[Images, Images]


@lru_cache(maxsize=1)
def _genuine(load: Callable[..., Images]) -> Pictures:
    """Train and test pictures from the data folder; a task never fetches, it says what would."""
    return load(fetch=False), load(split="test", fetch=False)


@lru_cache(maxsize=1)
def _made_up(make: Callable[[int, int], Images]) -> Pictures:
    return make(2000, 0), make(2000, 1)


STAND_INS: dict[str, Callable[[], Pictures]] = {
    "made-up digits": lambda: _made_up(made_up_digits),
    "made-up objects": lambda: _made_up(made_up_objects),
}
SOURCES: dict[str, Callable[[], Pictures]] = {
    "MNIST": lambda: _genuine(mnist),
    "CIFAR-10": lambda: _genuine(cifar10),
    **STAND_INS,
}
CHOICES = {"data": tuple(SOURCES)}


def stand_in(task: Task) -> str:
    """Whether `split_of` gives the task made-up pictures."""
    return "made-up pictures" if task.text("data") in STAND_INS else ""


def needs(task: Task) -> tuple[str, ...]:
    """Of a task that trains on pictures."""
    data = task.text("data")
    return ("torch",) if data in STAND_INS else ("torch", data)


@dataclass(frozen=True)
class Labelled:
    """Inputs of a network with their labels."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Pictures to train on, to choose the step size by, and to report the error of."""

    train: Labelled
    choose: Labelled
    test: Labelled


def split_of(task: Task, *, planes: bool = False) -> Split:
    """The pictures of a replicate, centred at the mean picture of those trained on.

    As rows of pixels, or as planes divided by their standard deviation. Pictures to choose by come
    out of the train set too; those reported on are test pictures alone.
    """
    train_set, test_set = SOURCES[task.text("data")]()
    rng = np.random.default_rng(task.integer("replicate"))
    order, reported = rng.permutation(len(train_set)), rng.permutation(len(test_set))
    trained, chosen = task.integer("images"), task.integer("choosing_images")
    if trained + chosen > len(train_set):
        raise InputError(
            f"images: must be at most {len(train_set)} with those to choose by, got {trained} and "
            f"{chosen}. The train set of {train_set.name} has no more: take fewer."
        )
    parts = (
        train_set.take(order[:trained]),
        train_set.take(order[trained : trained + chosen]),
        test_set.take(reported[: task.integer("test_images")]),
    )
    centre = parts[0].mean()
    if not planes:
        return Split(*(Labelled(part.flat(np.float32, centre), part.labels) for part in parts))
    x = [part.planes(np.float32, centre) for part in parts]
    spread = x[0].std()
    return Split(*(Labelled(a / spread, part.labels) for a, part in zip(x, parts, strict=True)))


def error_of(net: Any, pictures: Labelled) -> float:
    """The share of pictures with the wrong label; NaN without any pictures."""
    torch = require_torch()
    if not len(pictures.y):
        return float("nan")
    device = next(net.parameters()).device
    with torch.no_grad():
        parts = torch.from_numpy(pictures.x).split(
            500
        )  # at once: bounds the memory of convolutions
        labels = torch.cat([net(part.to(device)).argmax(1).cpu() for part in parts])
    return float((labels.numpy() != pictures.y).mean())


def outcome_columns(training: Training, start: Any, net: Any, split: Split) -> Columns:
    """How a training ended, and how its network does on other pictures."""
    return {
        "epochs_done": training.epochs,
        "loss": training.loss,
        "accuracy": float("nan") if training.accuracy is None else training.accuracy,
        "converged": training.status.ok,
        "choosing_error": error_of(net, split.choose),
        "error": error_of(net, split.test),
        "movement": parameter_movement(start, net).overall,
        "device": next(net.parameters()).device.type,
    }


def vgg_curve(task: Task) -> Columns:
    """Loss and both errors along the training of a VGG11-like network.

    The step size is step_size * min(1, scale^-(D-2)), D = 8 layers: at fixed step size, gradients
    that grow as scale^(D-1) would move large weights, relative to their size, by scale^(D-2) more.
    A power of zero keeps it fixed, as the paper does.
    """
    scale, split = task.number("scale"), split_of(task, planes=True)
    with torch_device() as device:
        net = vgg11_like(width=task.integer("width"), scale=scale, rng=task.integer("replicate"))
        net = net.to(device)
        start = copy_of(net)
        training = train(
            net,
            split.train.x,
            split.train.y,
            step_size=task.number("step_size") * min(1.0, scale ** -task.number("step_power")),
            callback=lambda moment: error_of(moment.module, split.test),
            **until_all_fit(task),
        )
        movement = parameter_movement(start, net).overall
    shares = training.accuracies if training.accuracies is not None else np.array([np.nan])
    return {
        "epoch": training.recorded,
        "loss": training.losses,
        "train_error": 1.0 - shares,
        "error": training.notes,
        "converged": training.status.ok,
        "movement": movement,
        "device": device,
    }


def last_layer_columns(task: Task) -> Columns:
    """The last layer of a VGG11-like network trained alone, from He's own start."""
    split = split_of(task, planes=True)
    with torch_device() as device:
        net = vgg11_like(width=task.integer("width"), rng=task.integer("replicate")).to(device)
        training = train_last_layer(
            net,
            split.train.x,
            split.train.y,
            step_size=task.number("step_size"),
            evaluate_every=task.integer("epochs"),
            **sgd_options(task),
        )
        error = error_of(net, split.test)
    share = float("nan") if training.accuracy is None else training.accuracy
    return {
        "epoch": training.epochs,
        "loss": training.loss,
        "train_error": 1.0 - share,
        "error": error,
        "converged": training.status.ok,
        "device": device,
    }


def sgd_options(task: Task) -> dict[str, Any]:
    """Options of `train` for a task, which goes on from its checkpoint where there is one.

    How far it is, the run shows; a process beside it shows nothing.
    """
    file = checkpoint_file()
    return {
        "loss": "cross_entropy",
        "batch_size": task.integer("batch_size"),
        "max_epochs": task.integer("epochs"),
        "rng": task.integer("replicate"),
        "progress": None if SCREEN.get() else False,
        "checkpoint": file,
        "resume": file is not None,
    }


def until_all_fit(task: Task) -> dict[str, Any]:
    """The same for a training that ends where every picture is right and the loss is small."""
    return {
        **sgd_options(task),
        "stop_at_accuracy": 1.0,
        "stop_at_loss": task.number("loss_target"),
        "evaluate_every": task.integer("evaluate_every"),
    }


def copy_of(net: Any) -> Any:
    """The network as it is now, to compare with later."""
    return copy.deepcopy(net)


def say_scaling(axes: Axes, rows: Table, network: str, paper: str, *, top: bool = False) -> None:
    """What was trained on what, so that nobody takes a small run for the paper's."""
    trained = f"{rows['data'][0]}, {rows['images'][0]:.0f} images, {network}\n(paper: {paper})"
    height, side = (0.97, "top") if top else (0.02, "bottom")
    say(axes, trained, 0.98, height, ha="right", va=side, fontsize=9)


def draw_movement(axes: Axes, rows: Table, network: str, paper: str) -> None:
    """How far the weights moved, against the scale of the start."""
    curve = rows.summary("movement", by="scale")
    axes.set(xscale="log", yscale="log")
    draw_band(axes, curve.x, curve, color=BLUE, marker="o", markersize=5)
    axes.set(xlabel="scale of the start α", ylabel="movement ‖w − w(0)‖ / ‖w(0)‖")
    say_scaling(axes, rows, network, paper, top=True)


def as_percent(axes: Axes) -> None:
    """Shares on the vertical axis, as percentages."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None))


def made_up_digits(count: int, seed: int) -> Images:
    """Smooth grey pictures, 28 x 28, with labels from 0 to 3: the signs of two products of waves.

    Each label is a product of two coordinates out of sixteen, which no function that is additive
    in the coordinates can tell.
    """
    # Waves per side: few enough that a picture is smooth.
    per_side = 4
    rng = np.random.default_rng((seed, 28))
    waves = rng.standard_normal((count, per_side, per_side))
    # Away from zero, where the label would be a matter of rounding.
    waves[:, 0] += np.sign(waves[:, 0])
    side = np.cos(np.pi * np.outer(np.arange(per_side), (np.arange(28) + 0.5) / 28))
    signs = waves[:, 0, :2] * waves[:, 0, 2:] > 0
    pictures = np.einsum("nij,ix,jy->nxy", waves, side, side)
    return Images(_grey(24.0 * pictures), signs @ np.array([2, 1]), "made-up digits")


def made_up_objects(count: int, seed: int) -> Images:
    """Noise in colour, 32 x 32, each with one of four marks somewhere on it."""
    # Half the grey values that separate a mark from the noise behind it.
    contrast = 90.0
    rng = np.random.default_rng((seed, 32))
    labels = rng.integers(4, size=count)
    pictures = 15.0 * rng.standard_normal((count, 32, 32, 3))
    up, down = np.eye(8), np.eye(8)[::-1]
    bars = np.tile([[1.0], [-1.0]], (4, 8))
    marks = np.stack([2 * up - 1, 2 * down - 1, bars, bars.T])
    corners = rng.integers(32 - 8, size=(count, 2))
    for picture, label, (row, column) in zip(pictures, labels, corners, strict=True):
        picture[row : row + 8, column : column + 8] += contrast * marks[label][..., None]
    return Images(_grey(pictures), labels, "made-up objects")


def _grey(values: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.clip(np.rint(128.0 + values), 0, 255).astype(np.uint8)
