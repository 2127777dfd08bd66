"""The potential of tied diagonal networks of depth D >= 3.  [woodworth2020, Theorem 3]

    grad Q = a^(2-D) h_D^{-1}(w / a^D),   w(z) = a^D h_D(a^(D-2) z),   Q = sum a^2 q_D(w / a^D)

per coordinate, a = scale the size of w+(0) = w-(0); the general start a is not in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.power import PowerPotential, check_depth
from flowbias.potentials.scale import OfScale, Scale

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import PowerMap


def power_log_unit(depth: float, log_start: FloatArray) -> float:
    """The log_unit in which duals are ordinary numbers for starts exp(log_start).

    Small starts: duals fill (-a^(2-D), a^(2-D)). Large ones: duals are about w a^(2-2D).
    """
    if log_start.size == 0:
        return 0.0
    widest = (depth - 2.0) * float(np.max(np.abs(log_start)))
    steepest = (depth - 1.0) * float(np.max(log_start))
    if max(widest, steepest) <= 300.0:  # e^300 and its square are doubles
        return 0.0
    typical = float(np.median(log_start))
    return (2.0 - depth if typical < 0.0 else 2.0 - 2.0 * depth) * typical


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DepthPotential(OfScale, PowerPotential):
    """Potential of w = w+^D - w-^D from w+(0) = w-(0) = scale.

    Parameters
    ----------
    depth : D > 2, not only integers
    scale : size of the weights at the start, one number or one per feature
    log_scale : its natural logarithm instead, where the scale itself leaves the double range

    >>> potential = fb.DepthPotential(depth=3, scale=0.1)
    >>> potential.grad_dual(potential.grad(np.array([0.5, -2.0]))).round(12)
    array([ 0.5, -2. ])
    """

    def __init__(
        self, depth: float, scale: ArrayLike | None = None, *, log_scale: ArrayLike | None = None
    ) -> None:
        self._begin(check_depth(depth), Scale.read(scale, log_scale))

    @classmethod
    def from_start(cls, depth: float, start: Scale) -> DepthPotential:
        """From the start itself, as models have it."""
        potential = cls.__new__(cls)
        potential._begin(check_depth(depth), start)
        return potential

    def _begin(self, depth: float, start: Scale) -> None:
        unit = power_log_unit(depth, start.log)
        self._keep(start)
        self._install(
            depth,
            start.log,
            unit,
            inverse_root_gain=start.power(-0.5 * depth),
            reach=start.power(2.0 - depth, -unit),
            slope=start.power(2.0 * depth - 2.0, unit),
            energy=start.power(2.0, -unit),
            logs=(depth * start.log, (2.0 - depth) * start.log - unit),
        )

    def dual_map(self, d: int) -> PowerMap:
        from flowbias.potentials.dual_map import PowerMap

        logs = self._start.log_balls(d)
        return PowerMap(logs, logs, self.depth)

    def __repr__(self) -> str:
        return f"DepthPotential(depth={self.depth:g}, {self._start!r})"
