"""When the flow of a leaky ReLU neuron is sure to reach zero loss.  [docs/theory/leaky_neuron.md]

With lo = min(1, slope), sigma the least nonzero singular value of X and r the residuals,
||d(a, w)/dtau|| >= |a| lo sigma ||r|| wherever r lies in the range of diag(c) X: always, where the
rows of X are independent. So the loss falls exponentially as long as |a| stays away from 0:

* a^2 >= a(0)^2 - ||P_row w(0)||^2 =: m, since the part of w outside the row space rests;
* once ||r|| < ||y||, the loss is below that of a = 0, and a can never vanish again;
* from a(0) = 0 that is at once, unless <sigma(X w), y> = 0, with the sign of the latter.

Where y = 0, (a^2)' = -2 ||r||^2 makes ||r||^2 integrable, and as it never rises it goes to 0: for
all rows and all starts, with a of its own sign or, where m <= 0, tending to 0.

Where rows are dependent, a residual so small that what is left of the path can reach neither a kink
nor a = 0 proves it as well.
"""

from __future__ import annotations

import numpy as np

from flowbias.flows.leaky_neuron.field import LeakyStart, activation
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.models.neuron import ALONG, AT_START, is_below_zero

# What the flow's own error may be of ||y||.
_ERROR = 1e-9


def least_outer_square(start: LeakyStart) -> float:
    """m = a(0)^2 - ||P_row w(0)||^2, a lower bound of a^2 along the flow where it is positive."""
    moving = float(np.linalg.norm(start.basis.T @ start.w))
    return (abs(start.a) - moving) * (abs(start.a) + moving)


def keeps_outer_weight(start: LeakyStart) -> bool:
    """Whether a is sure to stay away from 0, by more than the rounding of m."""
    moving = float(np.linalg.norm(start.basis.T @ start.w))
    return least_outer_square(start) > 1e-14 * max(start.a**2, moving**2)


def fits_from_start(start: LeakyStart) -> bool:
    """Whether the flow is proved to converge to zero loss before it has set out."""
    return start.has_independent_rows and start.lost == 0.0 and keeps_outer_weight(start)


def loss_rate(start: LeakyStart) -> float:
    """L(tau) <= L(0) exp(-rate tau) with rate = 2 m (lo sigma)^2, for independent rows."""
    slowest = min(1.0, start.slope) * float(start.singular_values[-1])
    return 2.0 * max(least_outer_square(start), 0.0) * slowest**2


def targets(sign: float, y: FloatArray, slope: float) -> FloatArray:
    """z with <x_n, a w> = z_n if and only if a sigma(<x_n, w>) = y_n, for a of this sign.

    z_n = y_n if sign y_n > 0, else y_n / slope.
    """
    return np.where(sign * y > 0.0, y, y / slope)


def can_fit(start: LeakyStart, sign: float) -> bool:
    """Whether some w fits all samples with an outer weight of this sign."""
    z = targets(sign, start.y, start.slope)
    left = start.rows / start.singular_values
    return bool(np.linalg.norm(z - left @ (left.T @ z)) <= IN_RANGE * np.linalg.norm(z))


def settled_sign(start: LeakyStart, state: FloatArray) -> float | None:
    """The sign that a has for ever from this state of the flow on; None where it may change."""
    if not start.y.any():
        return float(np.sign(start.a)) or 1.0  # a = 0 rests, and either branch says so
    if keeps_outer_weight(start):
        return float(np.sign(start.a))
    outer, fitted = float(state[0]), activation(start.sums(state), start.slope)
    # Where a = 0 it leaves with the sign of <sigma(X w), y>, if it leaves.
    sign = float(np.sign(outer or fitted @ start.y))
    if np.array_equal(state, start.state):
        return sign if is_below_zero(sign, outer, fitted, start.y, AT_START) else None
    # Next to a saddle all that is left of a and of the outputs may be the flow's own error.
    misfit, target = np.linalg.norm(outer * fitted - start.y), np.linalg.norm(start.y)
    if not is_below_zero(sign, outer, fitted, start.y, ALONG) or misfit > (1.0 - _ERROR) * target:
        return None
    return sign


def is_sure_to_fit(start: LeakyStart, state: FloatArray) -> bool:
    """Whether the flow through this state is proved to converge to zero loss."""
    sign = settled_sign(start, state)
    if sign is None or start.lost > 0.0:
        return False
    return start.has_independent_rows or not start.y.any() or is_trapped(start, state, sign)


def is_trapped(start: LeakyStart, state: FloatArray, sign: float) -> bool:
    """Whether the rest of the path is too short to reach a kink (where y_n != 0) or a = 0.

    Its length l obeys l <= ||r|| / ((|a| - l) lo sigma) as long as it has done neither.
    """
    if not can_fit(start, sign):
        return False
    sums, outer = start.sums(state), abs(float(state[0]))
    strength = min(1.0, start.slope) * float(start.singular_values[-1])
    excess = float(np.linalg.norm(_residuals(start, state))) / strength
    discriminant = outer * outer - 4.0 * excess
    if discriminant <= 0.0:
        return False
    length = 2.0 * excess / (outer + float(np.sqrt(discriminant)))
    fitted = start.y != 0.0
    on_side = sign * start.y[fitted] * sums[fitted] > 0.0
    away = np.abs(sums[fitted]) / start.lengths[fitted] > length
    return bool(np.all(on_side & away))


def _residuals(start: LeakyStart, state: FloatArray) -> FloatArray:
    return np.asarray(state[0] * activation(start.sums(state), start.slope) - start.y)
