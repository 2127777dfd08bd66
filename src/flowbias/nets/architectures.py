"""Networks of the papers, started at scale times He's rule.  [He et al. 2015; woodworth2020, B]

    uniform:  U(-b, b),  b = sqrt(6 / ((1 + slope^2) n_in))
    normal:   N(0, s^2), s = sqrt(2 / ((1 + slope^2) n_in))

Both have the variance 2 / n_in for ReLU (slope 0), and n_in counts what one unit sees: the units
below, or channels times the area of a convolution. Drawn by NumPy in double precision and rounded,
so that torch's own random state is left alone and float32 and float64 networks are the same one.

Fully connected, of any depth D = len(widths) - 1  [Section 2, B.2]:

    f(x) = W_D s(W_{D-1} ... s(W_1 x)),    s(z) = max(z, slope z)

Without biases it is D-homogeneous in its weights: scale multiplies the output by scale^D and the
tangent kernel by scale^(2(D-1)).

Of one variable, two layers  [B.1, Figure 7]:

    f(x) = w_2 s(w_1 x + b_1) + b_2,    w_1, b_1 ~ N(0, 1),   w_2 ~ N(0, 2 / width),   b_2 = 0

The paper writes N(0, sqrt(2 / width)); as in its other experiments that is the standard deviation.
It does not say how b_2 starts: zero, so that both layers may be rescaled without a change of the
function.

VGG11-like, of the two versions of the paper  [B.2; 2019, E]:

    2020:  64-M-128-M-256-256-M-512-512-M-512-M-FC          7 convolutions
    2019:  64-M-128-M-256-256-M-512-512-M-512-512-M-FC      8 convolutions, as in VGG11 itself

Numbers are channels of 3 x 3 convolutions with ReLU after each, M halves the picture by a maximum
over 2 x 2, FC is one dense layer. There are no biases, so that the network is homogeneous of
degree 8 or 9. The papers do not say whether FC has one; none here, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError, read_positive, read_rng, read_size
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.nets.settings import read_choice, read_dtype, read_flag, read_fraction


class Start(Enum):
    """The law of the weights at the start.

    >>> [start.name for start in fb.nets.Start]
    ['UNIFORM', 'NORMAL']
    """

    UNIFORM = "uniform"
    NORMAL = "normal"

    def draw(self, rng: np.random.Generator, std: float, size: tuple[int, ...]) -> FloatArray:
        """Weights of that standard deviation; a uniform law on (-b, b) has b / sqrt(3)."""
        if self is Start.UNIFORM:
            return rng.uniform(-math.sqrt(3) * std, math.sqrt(3) * std, size)
        return std * rng.standard_normal(size)


def draw_layer(
    layer: Any, start: Start, scale: float, slope: float, rng: np.random.Generator
) -> None:
    """Fill the weight of a Linear or Conv2d by He's rule times `scale`; its bias with zeros."""
    size = tuple(layer.weight.shape)
    seen = math.prod(size[1:])
    std = math.sqrt(2.0 / ((1.0 + slope**2) * seen))
    fill(layer.weight, scale * start.draw(rng, std, size))
    if layer.bias is not None:
        fill(layer.bias, np.zeros(tuple(layer.bias.shape)))


def fill(parameter: Any, values: FloatArray) -> None:
    """Overwrite a parameter, rounding to its dtype."""
    torch = require_torch()
    if not np.isfinite(values).all():
        raise InputError(
            "scale: must leave the weights doubles, got some beyond. Lower it and relative_scale."
        )
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def blank(kind: Any, *sizes: int, **options: Any) -> Any:
    """A layer whose parameters are not drawn yet: torch's random state does not move."""
    torch = require_torch()
    return torch.nn.utils.skip_init(kind, *sizes, **options)


def mlp(
    widths: Sequence[int],
    *,
    scale: float = 1.0,
    start: Start | str = Start.UNIFORM,
    bias: bool = False,
    slope: float = 0.0,
    rng: int | np.random.Generator = 0,
    dtype: Any = None,
) -> Any:
    """A ReLU network as a torch `Sequential`: widths = (inputs, hidden, ..., outputs).

    The same `rng` gives the same network at every scale and in both dtypes, and the first layers of
    a deeper network of the same widths.

    Parameters
    ----------
    widths : of all layers, inputs and outputs included
    scale : alpha of the papers, times which all layers, the last one too, start at He's rule
    start : He's rule, "uniform" or "normal"
    bias : whether layers have biases, started at zero
    slope : of the activation below zero; 1 is a linear network
    rng : seed or generator
    dtype : of the parameters

    Returns
    -------
    torch.nn.Sequential

    Raises
    ------
    InputError for widths that make no network

    >>> net = mlp((2, 30, 30, 1), scale=0.5, rng=0)
    >>> [type(part).__name__ for part in net]
    ['Linear', 'ReLU', 'Linear', 'ReLU', 'Linear']
    """
    sizes = _read_widths(widths)
    alpha = read_positive("scale", scale, "It multiplies all weights at the start.")
    law = read_choice("start", start, Start)
    leak = read_fraction("slope", slope, "It is the slope of a unit that is off.", one=True)
    with_bias, kind = read_flag("bias", bias), read_dtype(dtype)
    nn = require_torch().nn
    # One stream per layer, so that a layer does not depend on the sizes of the others.
    streams = read_rng(rng).spawn(len(sizes) - 1)
    parts: list[Any] = []
    for before, after, stream in zip(sizes[:-1], sizes[1:], streams, strict=True):
        layer = blank(nn.Linear, before, after, bias=with_bias, dtype=kind)
        draw_layer(layer, law, alpha, leak, stream)
        parts += [layer, activation(leak)]
    return nn.Sequential(*parts[:-1])


def activation(slope: float) -> Any:
    """max(z, slope z), as torch has it."""
    nn = require_torch().nn
    return nn.ReLU() if slope == 0.0 else nn.LeakyReLU(slope)


def _read_widths(widths: Any) -> tuple[int, ...]:
    if isinstance(widths, str) or not isinstance(widths, Sequence) or len(widths) < 2:
        raise InputError(
            f"widths: must list two sizes or more, got {widths!r}. "
            "Pass (inputs, hidden, ..., outputs), for instance (2, 30, 1)."
        )
    return tuple(read_size("widths", size, "the units of each layer") for size in widths)


def univariate(
    width: int = 10_000,
    *,
    scale: float = 1.0,
    relative_scale: float = 1.0,
    rng: int | np.random.Generator = 0,
    dtype: Any = None,
) -> Any:
    """A network of one variable as a torch `Sequential`, one input and one output.

    For one `rng` a wider network adds units.

    Parameters
    ----------
    width : hidden units
    scale : times which all parameters start
    relative_scale : times which w_1 and b_1 are multiplied then, and w_2 divided, which leaves the
        function as it is
    rng : seed or generator
    dtype : of the parameters

    Returns
    -------
    torch.nn.Sequential

    Raises
    ------
    InputError for numbers that make no network

    >>> net = univariate(50, rng=0)
    >>> [tuple(p.shape) for p in net.parameters()]
    [(50, 1), (50,), (1, 50), (1,)]
    """
    units = read_size("width", width, "the number of hidden units")
    alpha = read_positive("scale", scale, "It multiplies all parameters at the start.")
    ratio = read_positive("relative_scale", relative_scale, "It shifts scale to the first layer.")
    kind, nn = read_dtype(dtype), require_torch().nn
    inner, offset, outer = (stream.standard_normal(units) for stream in read_rng(rng).spawn(3))
    first = blank(nn.Linear, 1, units, dtype=kind)
    last = blank(nn.Linear, units, 1, dtype=kind)
    with np.errstate(over="ignore"):
        fill(first.weight, alpha * ratio * inner[:, None])
        fill(first.bias, alpha * ratio * offset)
        fill(last.weight, alpha / ratio * math.sqrt(2.0 / units) * outer[None, :])
    fill(last.bias, np.zeros(1))
    return nn.Sequential(first, nn.ReLU(), last)


class Version(Enum):
    """Which version of the paper: they list different networks.

    >>> [version.name for version in fb.nets.Version]
    ['COLT_2020', 'ICLR_2019']
    """

    COLT_2020 = "2020"
    ICLR_2019 = "2019"

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Channels in units of the first layer's; each block ends with a halving."""
        last = (8,) if self is Version.COLT_2020 else (8, 8)
        return (1,), (2,), (4, 4), (8, 8), last


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

    Parameters
    ----------
    channels, side : of the pictures
    classes : outputs
    version : of the paper, "2020" or "2019"
    width : channels of the first convolution, 64 in the paper; the others follow in proportion, so
        that width=8 is an eighth of it throughout
    scale : times which weights start at He's rule
    start : He's rule, "uniform" or "normal"
    rng : seed or generator
    dtype : of the parameters

    Returns
    -------
    torch.nn.Sequential

    Raises
    ------
    InputError for numbers that make no network

    >>> net = vgg11_like(width=4)
    >>> sum(type(part).__name__ == "Conv2d" for part in net), net[-1].in_features
    (7, 32)
    """
    seen = read_size("channels", channels, "3 for colours, 1 for grey")
    labels = read_size("classes", classes, "the number of classes")
    unit = read_size("width", width, "the channels of the first convolution")
    alpha = read_positive("scale", scale, "It multiplies all weights at the start.")
    law, kind = read_choice("start", start, Start), read_dtype(dtype)
    blocks = read_choice("version", version, Version).blocks
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
    length = read_size("side", side, "the height and width of the pictures")
    smallest = 2**5  # five halvings
    if length % smallest:
        raise InputError(
            f"side: must be a multiple of {smallest}, as the picture is halved five times, got "
            f"{side!r}. Pad the pictures, for instance 28 x 28 to 32 x 32."
        )
    return (length // smallest) ** 2
