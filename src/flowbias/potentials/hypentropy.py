"""Hypentropy: what tied depth-2 diagonal networks minimize.  [woodworth2020, Theorem 1]

    Q(w) = sum_i |w_i| (asinh(|w_i|/s_i) - |w_i| / (s_i + hypot(s_i, w_i))),   s = 2 scale^2
    w(z) = s sinh z

scale is the size of w+(0) = w-(0), per coordinate or one for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.hyperbolic import HyperbolicPotential
from flowbias.potentials.scale import OfScale, Scale

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import ExponentialMap


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Hypentropy(OfScale, HyperbolicPotential):
    """Potential of w = w+^2 - w-^2 from w+(0) = w-(0) = scale.

    Parameters
    ----------
    scale : size of the weights at the start, one number or one per feature
    log_scale : its natural logarithm instead, where the scale itself leaves the double range

    >>> potential = fb.Hypentropy(scale=0.1)
    >>> potential.grad_dual(potential.grad(np.array([0.5, -2.0]))).round(12)
    array([ 0.5, -2. ])
    """

    def __init__(
        self, scale: ArrayLike | None = None, *, log_scale: ArrayLike | None = None
    ) -> None:
        self._begin(Scale.read(scale, log_scale))

    @classmethod
    def from_start(cls, start: Scale) -> Hypentropy:
        """From the start itself, as models have it."""
        potential = cls.__new__(cls)
        potential._begin(start)
        return potential

    def _begin(self, start: Scale) -> None:
        logs = 2.0 * start.log
        self._install(logs, logs, 1.0, start)
        self._keep(start)

    def dual_map(self, d: int) -> ExponentialMap:
        from flowbias.potentials.dual_map import ExponentialMap

        logs = [2 * log for log in self._start.log_balls(d)]
        return ExponentialMap(logs, logs, self.rate)

    def tilt_rounding(self, z: FloatArray, shift: FloatArray | float) -> float:
        """None of a start at 0 with one scale for all, which is where it was given."""
        if self.log_plus.ndim == 0 and isinstance(shift, float) and shift == 0.0:
            return 0.0
        return super().tilt_rounding(z, shift)

    def __repr__(self) -> str:
        return f"Hypentropy({self._start!r})"
