"""Explicit distance to the start at depth 2.  [woodworth2020, equations (8)-(9)]

    R(w) = min ||theta - scale||^2  s.t.  F(theta) = w,    R = sum scale^2 r(w / scale^2)

r is exactly the depth-4 potential q_4: staying close in parameters at depth 2 is the implicit bias
of depth 4 with a start of size sqrt(scale), R = scale * Q_4. In the language of the power family:
depth 4, log_plus = log_minus = log(scale)/2, log_unit = -log(scale), and grad R lies in (-1, 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.ground.routing import Provides
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.power import PowerPotential
from flowbias.potentials.scale import OfScale, Scale


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DistancePotential(OfScale, PowerPotential):
    """Least squared parameter distance from (scale, ..., scale).

    Parameters
    ----------
    scale : size of the weights at the start, one number or one per feature
    log_scale : its natural logarithm instead, where the scale itself leaves the double range

    >>> round(fb.DistancePotential(scale=1.0).value(np.array([0.5])), 4)
    0.0308
    """

    def __init__(
        self, scale: ArrayLike | None = None, *, log_scale: ArrayLike | None = None
    ) -> None:
        start = Scale.read(scale, log_scale)
        self._keep(start)
        largest = float(np.max(start.log, initial=-np.inf))
        # Beyond e^150 r'(w/scale^2) underflows; R is then measured in units of 1/scale^2.
        extra = -2.0 * largest if largest > 150.0 else 0.0
        log_reach = np.full(start.log.shape, -extra)
        uniform = bool(np.all(start.log == start.log.flat[0])) if start.log.size else True
        with np.errstate(over="ignore"):
            reach = np.exp(log_reach)
        self._install(
            4.0,
            0.5 * start.log,
            extra - largest if uniform else 0.0,
            inverse_root_gain=start.power(-1.0),
            reach=reach,
            slope=start.power(2.0, extra),
            energy=start.power(2.0, -extra),
            logs=(2.0 * start.log, log_reach),
        )

    @property
    def provides(self) -> frozenset[Provides]:
        """The power form holds with one unit for all coordinates, so only for a uniform scale."""
        if self.log_scale.size and np.any(self.log_scale != self.log_scale.flat[0]):
            return frozenset({Provides.POTENTIAL})
        return super().provides

    def scale_derivative(self, z: FloatArray) -> FloatArray:
        """2 w, since w(z) = scale^2 h(z)."""
        return 2.0 * self.grad_dual(z)

    def __repr__(self) -> str:
        return f"DistancePotential({self._start!r})"
