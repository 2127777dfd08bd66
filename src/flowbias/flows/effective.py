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
from flowbias.potentials import Provides


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
    """The start whose flow has these weights after the integrated `pull`.

    At depth 2 there always is one. Beyond, |u|^(2-D) moves linearly along the flow and never less
    along a step, by convexity: so there is one, and smaller than the nominal, unless a weight has
    changed its sign or momentum has carried it too far. There the nominal start stands in.
    """
    nominal = [np.broadcast_to(part, np.shape(pull)) for part in model.initial_parameters()]
    pairs = list(zip(parameters, nominal, strict=True))
    same = np.all([np.sign(end) == np.sign(first) for end, first in pairs], axis=0)
    same |= Provides.SQUARES in model.provides
    end = model.restarted(tuple(np.where(same, end, first) for end, first in pairs))
    back = end.parameters(-end.mirror_rate * pull)
    inside = same & np.all([np.isfinite(part) for part in back], axis=0)
    starts = [np.where(inside, part, first) for part, first in zip(back, nominal, strict=True)]
    start = model.restarted(tuple(starts))
    gain = np.sum(log_sides(model, len(pull)) - log_sides(start, len(pull)), axis=0)
    return EffectiveStart(start, gain, bool(np.all(inside)))


def log_sides(model: Any, d: int) -> FloatArray:
    """log of the two sides of each coordinate at the start, (2, d); 0 for one absent for good."""
    if Provides.SQUARES in model.provides:
        sides = [side.value for side in model.squares]
    else:
        sides = model.initial_parameters()
    sizes = np.abs([np.broadcast_to(side, (d,)) for side in sides])
    return np.asarray(np.log(np.where(sizes == 0.0, 1.0, sizes)))


class LassoEnd(NamedTuple):
    """How far a predictor is from the minimizer of ||X w - y||^2 / 2 + penalty ||w||_1.

    `gap` is how much less that can be at most, by duality, relative to ||y||^2 / 2; the predictions
    of the minimizer are within `fit_error` of those of w, relative to ||y||.
    """

    penalty: float
    gap: float
    fit_error: float


def lasso_end(X: FloatArray, y: FloatArray, w: FloatArray, penalty: float) -> LassoEnd:
    """The duality gap at w: the residual, scaled to where |X^T theta| <= penalty, is the dual."""
    left, size = y - X @ w, float(y @ y) or 1.0
    largest = float(np.abs(X.T @ left).max())
    theta = left * min(1.0, penalty / largest if largest > 0.0 else 1.0)
    primal = 0.5 * float(left @ left) + penalty * float(np.abs(w).sum())
    dual = 0.5 * float(y @ y) - 0.5 * float((y - theta) @ (y - theta))
    gap = max(primal - dual, 0.0) / (0.5 * size)
    # The loss is strongly convex in the predictions: half their squared distance is in the gap.
    return LassoEnd(penalty, gap, float(np.sqrt(gap)))
