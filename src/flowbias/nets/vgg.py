"""The VGG11-like networks of the two versions of the paper.  [woodworth2020, B.2; 2019, E]

    2020:  64-M-128-M-256-256-M-512-512-M-512-M-FC          7 convolutions
    2019:  64-M-128-M-256-256-M-512-512-M-512-512-M-FC      8 convolutions, as in VGG11 itself

Numbers are channels of 3 x 3 convolutions with ReLU after each, M halves the picture by a maximum
over 2 x 2, FC is one dense layer. There are no biases, so that the network is homogeneous of
degree 8 or 9. The papers do not say whether FC has one; none here, for the same reason.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.models.lifted_input import read_rng
from flowbias.nets.settings import read_choice, read_count, read_dtype, read_positive
from flowbias.nets.start import Start, blank, draw_layer
from flowbias.problem import InputError


class Version(Enum):
    """Which version of the paper: they list different networks.

    >>> [version.name for version in fb.nets.Version]
    ['COLT_2020', 'ICLR_2019']
    """

    COLT_2020 = "2020"
    ICLR_2019 = "2019"


# Channels in units of the first layer's, one tuple per block; each block ends with a halving.
_BLOCKS: dict[Version, tuple[tuple[int, ...], ...]] = {
    Version.COLT_2020: ((1,), (2,), (4, 4), (8, 8), (8,)),
    Version.ICLR_2019: ((1,), (2,), (4, 4), (8, 8), (8, 8)),
}
# Five halvings: the smallest picture.
_HALVED = 2**5


def vgg11_like(
    channels: int = 3,
    classes: int = 10,
    *,
    version: Version | str = Version.COLT_2020,
    width: int = 64,
    side: int = 32,
    scale: float = 1.0,
    start: Start | str = Start.UNIFORM,
    rng: int | np.random.Generator = 0,
    dtype: Any = None,
) -> Any:
    """A convolutional network for pictures (channels, side, side), as a torch `Sequential`.

    `width` is the number of channels of the first convolution, 64 in the paper; the others follow
    in proportion, so that width=8 is an eighth of it throughout. Weights start at `scale` times
    He's rule.

    >>> net = vgg11_like(width=4)
    >>> sum(type(part).__name__ == "Conv2d" for part in net), net[-1].in_features
    (7, 32)
    """
    seen = read_count("channels", channels, "Pass 3 for colours, 1 for grey.")
    labels = read_count("classes", classes, "Pass the number of classes.")
    unit = read_count("width", width, "Pass the channels of the first convolution.")
    alpha = read_positive("scale", scale, "It multiplies all weights at the start.")
    law, kind = read_choice("start", start, Start), read_dtype(dtype)
    blocks = _BLOCKS[read_choice("version", version, Version)]
    cells = _cells_left(side)
    nn = require_torch().nn
    streams = iter(read_rng(rng).spawn(sum(map(len, blocks)) + 1))
    parts: list[Any] = []

    def add(layer: Any) -> None:
        draw_layer(layer, law, alpha, 0.0, next(streams))
        parts.append(layer)

    for block in blocks:
        for multiple in block:
            made = multiple * unit
            add(blank(nn.Conv2d, seen, made, kernel_size=3, padding=1, bias=False, dtype=kind))
            parts.append(nn.ReLU())
            seen = made
        parts.append(nn.MaxPool2d(2))
    parts.append(nn.Flatten())
    add(blank(nn.Linear, seen * cells, labels, bias=False, dtype=kind))
    return nn.Sequential(*parts)


def _cells_left(side: Any) -> int:
    length = read_count("side", side, "Pass the height and width of the pictures.")
    if length % _HALVED:
        raise InputError(
            f"side: must be a multiple of {_HALVED}, as the picture is halved five times, got "
            f"{side!r}. Pad the pictures, for instance 28 x 28 to 32 x 32."
        )
    return (length // _HALVED) ** 2
