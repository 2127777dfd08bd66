"""How weights are drawn: He's rules, times the scale.  [He et al. 2015; woodworth2020, B.2]

    uniform:  U(-b, b),  b = sqrt(6 / ((1 + slope^2) n_in))
    normal:   N(0, s^2), s = sqrt(2 / ((1 + slope^2) n_in))

Both have the variance 2 / n_in for ReLU (slope 0), and n_in counts what one unit sees: the units
below, or channels times the area of a convolution. Drawn by NumPy in double precision and rounded,
so that torch's own random state is left alone and float32 and float64 networks are the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias._typing import FloatArray

Draw = Callable[[np.random.Generator, float, tuple[int, ...]], FloatArray]


class Start(Enum):
    """The law of the weights at the start.

    >>> [start.name for start in fb.nets.Start]
    ['UNIFORM', 'NORMAL']
    """

    UNIFORM = "uniform"
    NORMAL = "normal"


# Given the standard deviation; a uniform law on (-b, b) has b / sqrt(3).
_DRAWS: dict[Start, Draw] = {
    Start.UNIFORM: lambda rng, std, size: rng.uniform(
        -math.sqrt(3) * std, math.sqrt(3) * std, size
    ),
    Start.NORMAL: lambda rng, std, size: std * rng.standard_normal(size),
}


def draw_layer(
    layer: Any, start: Start, scale: float, slope: float, rng: np.random.Generator
) -> None:
    """Fill the weight of a Linear or Conv2d by He's rule times `scale`; its bias with zeros."""
    size = tuple(layer.weight.shape)
    seen = math.prod(size[1:])
    std = math.sqrt(2.0 / ((1.0 + slope**2) * seen))
    fill(layer.weight, scale * _DRAWS[start](rng, std, size))
    if layer.bias is not None:
        fill(layer.bias, np.zeros(tuple(layer.bias.shape)))


def fill(parameter: Any, values: FloatArray) -> None:
    """Overwrite a parameter, rounding to its dtype."""
    torch = require_torch()
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))


def blank(kind: Any, *sizes: int, **options: Any) -> Any:
    """A layer whose parameters are not drawn yet: torch's random state does not move."""
    torch = require_torch()
    return torch.nn.utils.skip_init(kind, *sizes, **options)
