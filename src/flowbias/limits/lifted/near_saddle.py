"""Flows that pass a saddle so closely that rounding decides when and where they leave it.

A start on the stable manifold of a saddle ends there. An integration does not: rounding puts it
next to the manifold, and what lies next to it leaves. Neither does its result tell, which may be a
fit, nor the agreement of two runs at the end. But they leave at different times: a run from weights
that are off by 1e-12, relative to each of them, leaves before one that is off by rounding. Weights
that are exactly zero, and hidden units however small, keep their digits under such a nudge, as they
do under rounding.
"""

from __future__ import annotations

import numpy as np

from flowbias.flows.lifted.coordinates import LiftedCoordinates
from flowbias.flows.march import Curve
from flowbias.ground.typing import FloatArray

# Relative to each weight: well above what rounding adds up to on the way, well below any overlap
# with the direction in which a saddle is left that would be meant.
NUDGE = 1e-12
LEFT_BY_ROUNDING = (
    "starts on the stable manifold of a saddle, up to rounding: weights that are off by "
    f"{NUDGE:g} of themselves leave it at another time"
)
# Share of the largest product by which runs differ where rounding has decided: far above what their
# tolerances, of 1e-6 at most, come to on flows from small starts that pass saddles (below 1e-4).
_APART = 1e-2
# Nodes at which two curves are compared: leaving takes a tenth of the steps or more.
_NODES = 100


def where_apart(curve: Curve, other: Curve, coordinates: LiftedCoordinates) -> int | None:
    """The first node at which the products of two curves differ; None if they do not."""
    # Beyond its end a curve that has ended stays there; one that was given up is not known.
    known = len(curve.times)
    if other.failure is not None:
        known = int(np.searchsorted(curve.times, other.end, side="right"))
    nodes = np.unique(np.linspace(0, known - 1, _NODES).astype(int))
    products = coordinates.predictor(np.array([curve.states[i] for i in nodes]))
    others = coordinates.predictor(other(np.array([curve.times[i] for i in nodes])))
    sizes = np.linalg.norm(products, axis=(-2, -1))
    apart = np.linalg.norm(products - others, axis=(-2, -1)) > _APART * sizes.max()
    return int(nodes[apart.argmax()]) if apart.any() else None


def slowest_before(curve: Curve, coordinates: LiftedCoordinates, node: int) -> FloatArray:
    """The weights at which the flow was closest to standing still."""
    speeds = [coordinates.relative_speed(state) for state in curve.states[: node + 1]]
    return coordinates.shaped(curve.states[int(np.argmin(speeds))])
