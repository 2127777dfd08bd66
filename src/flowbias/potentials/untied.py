"""Untied depth-2 potential: what w = u+ v+ - u- v- minimizes.  [azulay2021, Theorem 1]

    Q(w) = sum_i q_k(w_i),   q_k' = 1/2 asinh(2 w / sqrt k),   w(z) = (sqrt k / 2) sinh 2z
    sqrt k = 4 scale^2 (1 + shape^2) / (1 - shape^2)

scale = sqrt(|u||v|) (the paper's alpha is its square), shape = (|v| - |u|) / (|v| + |u|); shape 0
is half the tied potential.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.hyperbolic import HyperbolicPotential
from flowbias.potentials.scale import (
    OfScale,
    Scale,
    describe,
    read_real,
    require,
    require_broadcast,
)

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import ExponentialMap

_SHAPE_FIX = "shape = (|v|-|u|)/(|v|+|u|); for u = 0 or v = 0 pass from_sqrt_k(2*(u**2 + v**2))."


@dataclass(frozen=True, eq=False, init=False, repr=False)
class UntiedPotential(OfScale, HyperbolicPotential):
    """Potential of an unbiased untied start.

    Parameters
    ----------
    scale : size of the weights at the start, one number or one per feature
    log_scale : its natural logarithm instead, where the scale itself leaves the double range
    shape : (|v| - |u|) / (|v| + |u|) in (-1, 1), one number or one per feature

    >>> potential = fb.UntiedPotential(scale=0.1, shape=0.5)
    >>> potential.grad_dual(potential.grad(np.array([0.5, -2.0]))).round(12)
    array([ 0.5, -2. ])
    """

    shape: FloatArray

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        log_scale: ArrayLike | None = None,
        shape: ArrayLike = 0.0,
    ) -> None:
        start = Scale.read(scale, log_scale)
        shape = read_real("shape", shape, _SHAPE_FIX)
        require("shape", shape, np.abs(shape) < 1.0, "must lie in (-1, 1)", _SHAPE_FIX)
        require_broadcast("shape", shape, "scale", start.log)
        # (1-s)(1+s), not 1-s^2: |s| -> 1 is a limit of interest and must keep its digits.
        stretch = (1.0 + shape**2) / ((1.0 - shape) * (1.0 + shape))
        object.__setattr__(self, "shape", shape)
        self._keep(start)
        logs = 2.0 * start.log + np.log(stretch)  # log(sqrt k / 4)
        self._install(logs, logs, 2.0, start.times(np.sqrt(stretch)))

    @classmethod
    def from_sqrt_k(cls, sqrt_k: ArrayLike) -> UntiedPotential:
        """From the one number that counts: sqrt k = 2 (u^2 + v^2)."""
        fix = "A coordinate with k = 0 keeps one sign: use HyperbolicPotential with a side at -inf."
        root = read_real("sqrt_k", sqrt_k, fix)
        require("sqrt_k", root, (root > 0) & (root < np.inf), "must be > 0 and finite", fix)
        return cls(scale=0.5 * np.sqrt(root))

    def dual_map(self, d: int) -> ExponentialMap:
        from flowbias.ground.balls import as_balls
        from flowbias.potentials.dual_map import ExponentialMap

        pairs = zip(self._start.log_balls(d), as_balls(self.shape, d), strict=True)
        logs = [2 * log + ((1 + s * s) / (1 - s * s)).log() for log, s in pairs]
        return ExponentialMap(logs, logs, self.rate)

    def __repr__(self) -> str:
        return f"UntiedPotential({self._start!r}, shape={describe(self.shape)})"
