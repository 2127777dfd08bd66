"""Two-layer ReLU networks of one variable.  [woodworth2020, B.1, Figure 7]

    f(x) = w_2 s(w_1 x + b_1) + b_2,    w_1, b_1 ~ N(0, 1),   w_2 ~ N(0, 2 / width),   b_2 = 0

The paper writes N(0, sqrt(2 / width)); as in its other experiments that is the standard deviation
[He et al. 2015]. It does not say how b_2 starts: zero, so that both layers may be rescaled without
a change of the function.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flowbias._torch import require_torch
from flowbias.models.lifted_input import read_rng
from flowbias.nets.settings import read_count, read_dtype, read_positive
from flowbias.nets.start import blank, fill


def univariate(
    width: int = 10_000,
    *,
    scale: float = 1.0,
    relative_scale: float = 1.0,
    rng: int | np.random.Generator = 0,
    dtype: Any = None,
) -> Any:
    """A network of one variable as a torch `Sequential`, one input and one output.

    `scale` multiplies all parameters; then w_1 and b_1 are multiplied, and w_2 is divided, by
    `relative_scale`, which leaves the function as it is. For one `rng` a wider network adds units.

    >>> net = univariate(50, rng=0)
    >>> [tuple(p.shape) for p in net.parameters()]
    [(50, 1), (50,), (1, 50), (1,)]
    """
    units = read_count("width", width, "Pass the number of hidden units.")
    alpha = read_positive("scale", scale, "It multiplies all parameters at the start.")
    ratio = read_positive("relative_scale", relative_scale, "It shifts scale to the first layer.")
    kind, nn = read_dtype(dtype), require_torch().nn
    inner, offset, outer = (stream.standard_normal(units) for stream in read_rng(rng).spawn(3))
    first = blank(nn.Linear, 1, units, dtype=kind)
    last = blank(nn.Linear, units, 1, dtype=kind)
    fill(first.weight, alpha * ratio * inner[:, None])
    fill(first.bias, alpha * ratio * offset)
    fill(last.weight, alpha / ratio * math.sqrt(2.0 / units) * outer[None, :])
    fill(last.bias, np.zeros(1))
    return nn.Sequential(first, nn.ReLU(), last)
