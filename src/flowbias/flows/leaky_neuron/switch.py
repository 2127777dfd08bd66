"""Which side of the kinks the flow goes on to: the pattern after an event.

On a kink s_n = 0 the subgradient c_n is free between slope and 1, and ds_n/dtau depends on it
through its own sample: ds/dtau = b + |a| G u, u_n = sign(a) y_n c_n, with a Gram matrix G.

* (1 - slope) a y_n < 0: c_n = 1 (the side s_n > 0) is the end of the interval of u_n at which a
  minimum of ||dw/dtau||^2 over u has ds_n/dtau >= 0; and conversely. So the sides, and which kinks
  are slid along, are read from one least-squares problem with bounds, whose velocity is unique.
* (1 - slope) a y_n > 0: the kink is crossed, since its own sample pushes on in the direction of
  the arrival. Only a start exactly on such a kink can leave it to both sides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.integrate import DenseOutput
from scipy.optimize import brentq, lsq_linear

from flowbias.flows.leaky_neuron.field import EPS, Indices, LeakyStart, PatternField, Sides
from flowbias.ground.typing import FloatArray

# Share of ||x_n|| ||w|| below which s_n at the start counts as zero: its own rounding.
_ON_KINK = 8.0 * EPS
# Points of a step at which its margins are looked at: a dip between them that no point sees is one
# that the step's own error could have made.
_LOOKS = np.linspace(0.0, 1.0, 9)[1:]
# Points at which a margin that is zero at its begin is looked for.
_HALVES = 0.5 ** np.arange(1, 21)
# Share of the step within which switches count as one.
_TOGETHER = 1e-12


class NotUniqueError(RuntimeError):
    """The differential inclusion has several solutions from here, or none that was found."""


def first_sides(start: LeakyStart) -> Sides:
    """The pattern that the flow sets out in."""
    size = float(np.linalg.norm(start.w))
    on_kink = np.abs(start.preactivations) <= _ON_KINK * start.lengths * size
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
    end = np.where(found.active_mask < 0, bounds[0], bounds[1])
    changed = sides.copy()
    side = np.where(end == at_plus, 1, -1)
    changed[holding] = np.where(found.active_mask == 0, 0, side).astype(np.int8)
    return changed, direction + normals @ found.x


# --- the first switch within a step: the earliest root of a margin on the step's interpolant -----


class KinkCrossing(NamedTuple):
    """When margins vanish, the state there, and which they are."""

    time: float
    state: FloatArray
    margins: Indices


def first_event(
    pattern: PatternField,
    piece: DenseOutput,
    begin: tuple[float, FloatArray],
    end: float,
    allowed: FloatArray,
) -> KinkCrossing | None:
    """The first margin below -allowed on the step from `begin` (time and state) to `end`."""
    looks = begin[0] + _LOOKS * (end - begin[0])
    states = piece(looks).T
    broken = pattern.margins(states) < -allowed
    turned = np.sign(states[:, 0]) * np.sign(begin[1][0]) < 0.0
    seen = np.asarray(broken.any(axis=1))
    if len(pattern.held) and turned.any() and not seen[: int(np.argmax(turned)) + 1].any():
        raise NotUniqueError(
            "the outer weight changes its sign while the flow slides along a kink, which from then "
            "on repels it to both sides"
        )
    if not seen.any():
        return None
    look = int(np.argmax(seen))
    bracket = (begin[0] if look == 0 else float(looks[look - 1])), float(looks[look])
    indices = np.flatnonzero(broken[look])
    times = np.array([_root(pattern, piece, bracket, int(index)) for index in indices])
    time = float(times.min())
    state = begin[1] if time <= begin[0] else np.asarray(piece(time))
    return KinkCrossing(time, state, indices[times <= time + _TOGETHER * (end - begin[0])])


def _root(
    pattern: PatternField, piece: DenseOutput, bracket: tuple[float, float], index: int
) -> float:
    """When a margin vanishes; where it has been zero from the bracket's begin on, that begin.

    Where the velocity does not jump, the end: one switch is enough for a margin that hovers at 0.
    """

    def margin(time: float) -> float:
        return float(pattern.margins(np.asarray(piece(time))[None, :])[0, index])

    begin, end = bracket
    if margin(begin) <= 0.0:
        # A margin that starts from a kink may have risen before it fell.
        risen = next((at for at in begin + _HALVES * (end - begin) if margin(at) > 0.0), None)
        if risen is None:
            jumps = index >= len(pattern.sides) or bool(pattern.start.bends[index])
            return begin if jumps else end
        begin = float(risen)
    if margin(end) >= 0.0:
        # Below zero when all looks were evaluated at once: it is zero to rounding.
        return end
    return float(brentq(margin, begin, end, xtol=4.0 * EPS * end, rtol=4.0 * EPS))
