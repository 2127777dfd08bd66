"""From which start the flow ends where a descent did: the end, taken back along the flow.

Along the flow from a start, weights depend on the integrated pull -c X^T int r alone, and end where
it lies in the span of the samples and fits them. The sum of a descent's steps times gradients lies
there, too. So the flow that passes at the end of a descent after the same pull ends there, if the
data is fitted; where it comes from is the effective start (docs/theory/descent.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.models._base import MirrorModel, Parameters


class EffectiveStart(NamedTuple):
    """A start, what it is smaller by, and whether the flow from it passes exactly at the end.

    `gain` is log(nominal/effective), summed over the two sides of a coordinate.
    """

    model: Any
    gain: FloatArray
    is_identity: bool


class Explained(NamedTuple):
    """How far a descent ended from where the flow does, relative to the size of that.

    `distance` from the limit of the effective start, `nominal` from that of the start as given.
    `is_identity`: a descent that fits lies at the first up to rounding; else it is a description,
    and its distance the measured error of it.
    """

    distance: float
    nominal: float
    is_identity: bool


def taken_back(model: MirrorModel, parameters: Parameters, pull: FloatArray) -> EffectiveStart:
    """The start whose flow has these weights after the integrated `pull`, at depth > 2.

    |u|^(2-D) moves linearly along the flow and never less along a step, by convexity: so there is
    such a start, and a smaller one than the nominal, unless a weight has changed its sign or
    momentum has carried it too far. There the nominal start stands in.
    """
    nominal = [np.broadcast_to(part, np.shape(pull)) for part in model.initial_parameters()]
    pairs = list(zip(parameters, nominal, strict=True))
    same = np.all([np.sign(end) == np.sign(first) for end, first in pairs], axis=0)
    end = model.restarted(tuple(np.where(same, end, first) for end, first in pairs))
    back = end.parameters(-end.mirror_rate * pull)
    inside = same & np.all([np.isfinite(part) for part in back], axis=0)
    starts = [np.where(inside, part, first) for part, first in zip(back, nominal, strict=True)]
    gain = sum(log_ratio(first, part) for first, part in zip(nominal, starts, strict=True))
    return EffectiveStart(model.restarted(tuple(starts)), np.asarray(gain), bool(np.all(inside)))


def log_ratio(first: FloatArray, second: FloatArray) -> FloatArray:
    """log|first/second|, 0 where both are zero for good."""
    ratio = np.divide(first, second, out=np.ones_like(second), where=second != 0.0)
    return np.asarray(np.log(np.abs(ratio)))
