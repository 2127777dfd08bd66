"""Fully connected ReLU networks of any depth, started at scale times He's rule.

    f(x) = W_D s(W_{D-1} ... s(W_1 x)),    s(z) = max(z, slope z)

Without biases the network is D-homogeneous in its weights, D = len(widths) - 1: scale multiplies
the output by scale^D and the tangent kernel by scale^(2(D-1)).  [woodworth2020, Section 2, B.2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.models.lifted_input import read_rng
from flowbias.nets.settings import (
    read_choice,
    read_count,
    read_dtype,
    read_flag,
    read_fraction,
    read_positive,
)
from flowbias.nets.start import Start, blank, draw_layer
from flowbias.problem import InputError


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

    All layers, the last one too, start at `scale` (alpha of the papers) times He's rule, "uniform"
    or "normal"; biases, if wanted, at zero. `slope` makes it leaky (1: a linear network). The same
    `rng` gives the same network at every scale and in both dtypes, and the first layers of a deeper
    network of the same widths.

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
    return tuple(read_count("widths", size, "Pass the units of each layer.") for size in widths)
