"""What is left of a model as its scale goes to zero: a weighted l1 norm, and a slow clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.ground.routing import provided_by, unfitting
from flowbias.limits.routes import exponential_sides, power_sides
from flowbias.models._base import HasPotential
from flowbias.potentials import L1, Provides


@dataclass(frozen=True)
class VanishingStart:
    """What is left of a model as its scale goes to zero: a weighted l1 norm, and a slow clock.

    tau = speed c t / log(1/scale^2),   or   tau = speed c t scale^order
    """

    bounds: L1
    log_speed: float
    #: of the scale in the clock; None where its logarithm counts
    order: float | None = None

    def log_pace(self, log_scale: float) -> float:
        """log(c t / tau)."""
        if self.order is None:
            return float(np.log(-2.0 * log_scale)) - self.log_speed
        return -self.order * log_scale - self.log_speed


def vanishing_start(model: HasPotential) -> Callable[[HasPotential, int], VanishingStart]:
    declared = provided_by(model)
    for needed, build in _VANISHING.items():
        if needed in declared:
            return build
    raise unfitting(
        model,
        f"provide {' or '.join(need.name for need in _VANISHING)} to have stages",
        "Take fb.flow from starts of smaller and smaller scale.",
    )


def _exponential_start(model: Any, d: int) -> VanishingStart:
    """zeta = rate z / log(1/scale^2): every side that is open has the bound 1."""
    sides = exponential_sides(model, d)
    bounds = L1(*(np.where(np.isfinite(side), 1.0, np.inf) for side in sides))
    return VanishingStart(bounds, float(np.log(model.potential.rate)) + _log_mirror_rate(model))


def _power_start(model: Any, d: int) -> VanishingStart:
    """zeta = scale^(D-2) z, with the bounds a^(2-D) of the start at scale 1."""
    shape = model.at_log_scale(0.0) if Provides.SCALE in provided_by(model) else model
    unit, order = shape.potential.log_unit, 2.0 - shape.potential.depth
    bounds = L1(*(np.exp(side + unit) for side in power_sides(shape, d)))
    return VanishingStart(bounds, _log_mirror_rate(shape), -order)


def _log_mirror_rate(model: Any) -> float:
    """log g of dz/dt = -g c X^T r, in plain units."""
    return float(np.log(model.mirror_rate) + model.potential.log_unit)


_VANISHING: dict[Provides, Callable[[HasPotential, int], VanishingStart]] = {
    Provides.EXPONENTIAL_DUAL: _exponential_start,
    Provides.POWER_DUAL: _power_start,
}
