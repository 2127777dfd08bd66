"""The first switch within a step: the earliest root of a margin on the step's interpolant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.integrate import DenseOutput
from scipy.optimize import brentq

from flowbias.flows.leaky_neuron.field import EPS, Indices, PatternField
from flowbias.flows.leaky_neuron.switch import NotUniqueError
from flowbias.ground.typing import FloatArray

# Points of a step at which its margins are looked at: a dip between them that no point sees is one
# that the step's own error could have made.
_LOOKS = np.linspace(0.0, 1.0, 9)[1:]
# Points at which a margin that is zero at its begin is looked for.
_HALVES = 0.5 ** np.arange(1, 21)
# Share of the step within which switches count as one.
_TOGETHER = 1e-12


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
