"""On which sides of its kinks the flow of a leaky ReLU neuron sets out and goes on.

On a kink s_n = 0 the subgradient c_n is free between slope and 1, and ds_n/dtau depends on it
through its own sample: ds/dtau = b + |a| G u, u_n = sign(a) y_n c_n, with a Gram matrix G.

* (1 - slope) a y_n < 0: c_n = 1 (the side s_n > 0) is the end of the interval of u_n at which a
  minimum of ||dw/dtau||^2 over u has ds_n/dtau >= 0; and conversely. So the sides, and which kinks
  are slid along, are read from one least-squares problem with bounds, whose velocity is unique.
* (1 - slope) a y_n > 0: the kink is crossed, since its own sample pushes on in the direction of
  the arrival. Only a start exactly on such a kink can leave it to both sides.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from flowbias.flows.leaky_neuron.field import (
    OF_UNIT_VECTORS,
    Indices,
    LeakyStart,
    PatternField,
    Sides,
)
from flowbias.ground.typing import FloatArray


class NotUniqueError(RuntimeError):
    """The differential inclusion has several solutions from here, or none that was found."""


def first_sides(start: LeakyStart) -> Sides:
    """The pattern that the flow sets out in."""
    size = float(np.linalg.norm(start.w))
    # s_n counts as zero where it is its own rounding.
    on_kink = np.abs(start.preactivations) <= OF_UNIT_VECTORS * start.lengths * size
    sides = np.sign(start.preactivations).astype(np.int8)
    sides[on_kink] = 1
    kinks = np.flatnonzero(on_kink & start.bends)
    if not len(kinks):
        return sides
    chosen, other = (
        sides_after(start, start.state, _with(sides, kinks, guess), kinks) for guess in (1, -1)
    )
    if not np.array_equal(chosen, other):
        raise NotUniqueError(
            f"the start lies on the kink of sample {kinks[0]}, which the flow can leave to both "
            "sides. Perturb w(0) to choose one"
        )
    return chosen


def _with(sides: Sides, where: Indices, value: int) -> Sides:
    changed = sides.copy()
    changed[where] = value
    return changed


def sides_after(start: LeakyStart, state: FloatArray, guess: Sides, kinks: Indices) -> Sides:
    """The pattern in which the flow leaves a state with s_n = 0 for n in `kinks`.

    `guess` holds the sides of the others, and for kinks that are crossed the side expected.
    """
    sign = _sign_of_outer(start, state, guess, kinks)
    bend = (1.0 - start.slope) * sign * start.y[kinks]
    holding, crossed = kinks[bend < 0.0], kinks[bend >= 0.0]
    sides = guess.copy()
    for _ in range(len(crossed) + 2):
        sides, direction = _least_motion(start, state, sides, holding, sign)
        onward = np.sign(start.rows[crossed] @ direction)
        if np.all((onward == sides[crossed]) | (onward == 0.0)):
            return sides
        sides[crossed] = np.where(onward == 0.0, sides[crossed], onward).astype(np.int8)
    raise NotUniqueError(f"no side of the kinks of samples {list(map(int, kinks))} is consistent")


def _sign_of_outer(start: LeakyStart, state: FloatArray, sides: Sides, kinks: Indices) -> float:
    """The sign of a from now on."""
    if state[0] != 0.0:
        return float(np.sign(state[0]))
    return float(np.sign(PatternField(start, _with(sides, kinks, 0)).velocity(0.0, state)[0]))


def _least_motion(
    start: LeakyStart, state: FloatArray, sides: Sides, holding: Indices, sign: float
) -> tuple[Sides, FloatArray]:
    """Sides of the kinks that may hold, and dw/dtau / |a|: the shortest within the bounds."""
    others = PatternField(start, _with(sides, holding, 0))
    direction = -sign * (others.residuals(state)[others.free] @ others.slope_rows)
    if not len(holding):
        return sides.copy(), direction
    normals, y = start.rows[holding].T, sign * start.y[holding]
    at_plus, at_minus = y, y * start.slope
    bounds = np.minimum(at_plus, at_minus), np.maximum(at_plus, at_minus)
    found = lsq_linear(normals, -direction, bounds=bounds, method="bvls")
    onward = direction + normals @ found.x
    # Of dependent kinks, which have many u with this velocity, all hold if an inner one has it.
    middle = 0.5 * (bounds[0] + bounds[1])
    inner = middle + np.linalg.pinv(normals) @ (onward - direction - normals @ middle)
    if len(holding) > 1 and bool(((bounds[0] < inner) & (inner < bounds[1])).all()):
        return _with(sides, holding, 0), onward
    end = np.where(found.active_mask < 0, bounds[0], bounds[1])
    changed = sides.copy()
    side = np.where(end == at_plus, 1, -1)
    changed[holding] = np.where(found.active_mask == 0, 0, side).astype(np.int8)
    return changed, onward
