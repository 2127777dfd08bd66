"""What is left of a model as its scale goes to zero, a weighted l1 norm and a slow clock; and when
the features of a path wake on it at a finite scale: the stages, corrected to first order.

The flow keeps grad Q(w(t)) = shift + X^T nu(t), nu' = -g c (X w - y), exactly. On a stage, where w
rests, the columns in use fix one part of nu and the residual r drives the other:

    X_A^T nu = (grad Q(w) - shift)_A,        (I - P_A) nu grows with the speed g c r

So feature j, which is to have the weight w_j on the next stage, reaches a share of it when
x_j^T nu = grad Q_j(share w_j) - shift_j. Stages alone have 1 in place of grad Q / log(1/scale^2),
which is off by log|w| / log(1/scale^2). What is left out is what w does while it jumps: of the
order of the share, and more where a feature falls asleep in the same jump.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.limits.inverse_scale_space import EPS, Columns, Stage
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


def wake_times(
    model: Any, columns: Columns, stages: Sequence[Stage], c: float, share: float
) -> list[tuple[float, ...]]:
    """For each jump, the times at which its features have `share` of the weight they get there."""
    d = columns.shape[1]
    shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), (d,))
    nu, at, found = np.zeros(columns.shape[0]), 0.0, []
    for before, after in pairwise(stages):
        new = sorted(set(after.support) - set(before.support))
        share_of = dict(zip(after.support, share * after.coefficients, strict=True))
        needed = _dual(model, share_of, d) - shift
        ways = {j: _way(columns.column(j), needed[j], nu, before.residual) for j in new}
        # The jump itself takes no time here: nu moves on, then takes what the new weights fix.
        jump = min((way for way in ways.values() if way is not None), default=0.0)
        found.append([at + (jump if way is None else way) for way in ways.values()])
        nu, at = nu + jump * before.residual, at + jump
        nu = _fixed(columns, after, nu, _dual(model, _weights(after), d) - shift)
    # On a clock of speed 1 until now: in plain units a dual, or a time, may be beyond doubles.
    with np.errstate(divide="ignore", over="ignore"):
        return [tuple(np.divide(times, float(model.mirror_rate) * c)) for times in found]


def _way(x: FloatArray, needed: float, nu: FloatArray, residual: FloatArray) -> float | None:
    """How long until x^T nu is what is needed; None where nothing pulls at the feature.

    Such a one has been at its bound for a while, and wakes with those that wake by themselves.
    """
    pull = float(x @ residual)
    if abs(pull) <= len(x) * EPS * float(np.abs(x) @ np.abs(residual)):
        return None
    return float(needed - x @ nu) / pull


def _weights(stage: Stage) -> dict[int, float]:
    return dict(zip(stage.support, stage.coefficients.tolist(), strict=True))


def _dual(model: Any, weights: dict[int, float], d: int) -> FloatArray:
    """grad Q at these weights, where there are any."""
    w = np.zeros(d)
    w[list(weights)] = list(weights.values())
    return np.asarray(model.potential.grad(w))


def _fixed(columns: Columns, stage: Stage, nu: FloatArray, dual: FloatArray) -> FloatArray:
    """nu with X_A^T nu as the weights of a stage need it, moved as little as possible."""
    if not stage.support:
        return nu
    X = np.column_stack([columns.column(j) for j in stage.support])
    missing = dual[list(stage.support)] - X.T @ nu
    return np.asarray(nu + scipy.linalg.lstsq(X.T, missing)[0])
