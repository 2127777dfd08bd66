"""The law of a wide Gaussian start, drawn without its weights.

[docs/theory/linear_networks.md, section 11]
"""

from __future__ import annotations

import numpy as np
import scipy.special

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Reference, Statement
from flowbias.theory.wide_networks import CHANCE

_REFERENCE = Reference(
    "flowbias", "docs/theory/linear_networks.md", "11 Gram matrices of wide starts"
)


@checked
def wishart_start(
    d: int, m: int, width: int, samples: int, rng: np.random.Generator
) -> tuple[Claim, Claim]:
    """G = [U; V][U; V]^T, drawn in place of standard normal weights, is Wishart: two of its laws.

        tr G ~ chi^2 with (d + m) h degrees of freedom,
        1/(G^-1)_11 ~ chi^2 with h - (d + m) + 1,       h = width >= d + m

    The largest distance between the distribution of `samples` draws and the one stated, against
    what it exceeds once in a million.

    >>> rng = np.random.default_rng(0)
    >>> all(c.holds for c in fb.theory.wishart_start(2, 1, width=9, samples=200, rng=rng))
    True
    """
    size = d + m
    if width < size:
        raise InputError(
            f"width: must be >= d + m = {size}, got {width}. Narrower, G has no inverse."
        )
    nets = (
        LinearNet.gaussian(d, m, width=width, scale=1.0, rng=rng, keep_weights=False)
        for _ in range(samples)
    )
    grams = np.array([net.gram for net in nets])
    apart = 1.0 / np.linalg.inv(grams)[:, 0, 0]
    allowed = float(np.sqrt(np.log(2.0 / CHANCE) / (2.0 * samples)))
    stated = Statement(
        _REFERENCE,
        "the Gram matrix that stands for wide Gaussian weights has the law of theirs",
        "none: exceeded with probability 1e-6 (Dvoretzky, Kiefer, Wolfowitz; Massart's constant)",
    )
    traces = np.trace(grams, axis1=1, axis2=2)
    return (
        stated.at_most("law of the trace", _distance(traces, size * width), allowed),
        stated.at_most("law of the first row", _distance(apart, width - size + 1), allowed),
    )


def _distance(values: FloatArray, freedom: int) -> float:
    """sup |F_n - F|, F the distribution function of chi^2."""
    expected = scipy.special.chdtr(float(freedom), np.sort(values))
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
