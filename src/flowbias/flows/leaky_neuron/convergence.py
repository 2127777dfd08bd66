"""Where the flow of a leaky ReLU neuron is sure to end.  [docs/theory/leaky_neuron.md]

With lo = min(1, slope), sigma the least nonzero singular value of X and r the residuals,
||d(a, w)/dtau|| >= |a| lo sigma ||r|| wherever r lies in the range of diag(c) X: always, where the
rows of X are independent. So the loss falls exponentially as long as |a| stays away from 0:

* a^2 >= a(0)^2 - ||P_row w(0)||^2 =: m, since the part of w outside the row space rests;
* once ||r|| < ||y||, the loss is below that of a = 0, and a can never vanish again;
* from a(0) = 0 that is at once, unless <sigma(X w), y> = 0, with the sign of the latter.

Where y = 0, (a^2)' = -2 ||r||^2 makes ||r||^2 integrable, and as it never rises it goes to 0: for
all rows and all starts, with a of its own sign or, where m <= 0, tending to 0.

Where rows are dependent, the flow within one pattern of sides is that of a linear neuron on the
rows c_n x_n, and goes to their least squares; a residual so near to what these leave that the rest
of the path can reach neither a kink nor a = 0 proves that it ends there, zero loss or not.

Samples in one direction are one sample here, and zero loss is that of the samples so merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.flows.leaky_neuron.field import LeakyStart, PatternField, Sides, activation
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.models.neuron import ALONG, AT_START, is_below_zero

# What the flow's own error may be of ||y||, of ||w|| and of multipliers, which are of order 1.
_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class Ending:
    """The sign of a and the sides of the kinks a flow ends on, 0 where it is held at one."""

    sign: float
    sides: Sides
    #: whether it ends at zero loss
    fits: bool

    def agrees(self, other: Ending | None) -> bool:
        """Whether another flow has the same limit, up to what its start is moved by."""
        if other is None:
            return False
        return self.sign == other.sign and np.array_equal(self.sides, other.sides)


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


def ending_at_once(start: LeakyStart) -> Ending | None:
    """Where the flow ends, if the start proves it."""
    sign = settled_sign(start, start.state)
    if sign is None or not (start.has_independent_rows or not start.y.any()):
        return None
    return _fit(start, sign)


def ending_of(start: LeakyStart, state: FloatArray, pattern: PatternField) -> Ending | None:
    """Where the flow through this state ends, if that is proved."""
    if start.has_independent_rows or not start.y.any():
        sign = settled_sign(start, state)
        return None if sign is None else _fit(start, sign)
    if not is_trapped(start, state, pattern):
        return None
    sign = float(np.sign(state[0]))
    return _fit(start, sign) if _can_fit(start, pattern) else Ending(sign, pattern.sides, False)


def _fit(start: LeakyStart, sign: float) -> Ending:
    # Samples of target 0 end at their kink, on either side.
    sides = np.where(sign * start.y < 0.0, -1, 1).astype(np.int8)
    return Ending(sign, sides, start.lost == 0.0)


def _can_fit(start: LeakyStart, pattern: PatternField) -> bool:
    """Whether some w on these sides fits all samples."""
    left = float(np.linalg.norm(pattern.least_squares.residuals))
    return not len(pattern.held) and left <= IN_RANGE * float(np.linalg.norm(start.y))


def is_trapped(start: LeakyStart, state: FloatArray, pattern: PatternField) -> bool:
    """Whether the rest of the path is too short to leave the pattern or to reach a = 0.

    Its length l obeys l <= e / ((|a| - l) sigma) as long as it has done neither, with e the
    distance of the residuals from those of least squares, which never rises.
    """
    least, outer = pattern.least_squares, abs(float(state[0]))
    residuals = pattern.residuals(state)[pattern.free]
    if fits := _can_fit(start, pattern):
        # Samples of target 0 may come to either side, and c_n with them.
        left = float(np.linalg.norm(residuals))
        slowest = min(1.0, start.slope) * float(start.singular_values[-1])
    else:
        left, slowest = float(np.linalg.norm(residuals - least.residuals)), least.slowest
    excess = left / slowest
    discriminant = outer * outer - 4.0 * excess
    if discriminant <= 0.0:
        return False
    length = 2.0 * excess / (outer + float(np.sqrt(discriminant)))
    size = float(np.linalg.norm(start.weights(state)))
    matters = pattern.free & (start.bends if fits else start.bending_rows)
    distances, multipliers = pattern.distances(state)
    kept = distances[matters] > length + (0.0 if fits else _ERROR * size)
    changes = 2.0 * left * pattern.multiplier_rates + _ERROR
    return bool(kept.all() and (multipliers > changes).all())
