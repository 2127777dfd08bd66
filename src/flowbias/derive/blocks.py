"""Which parameter moves which predictor: an F separates where each moves one at most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowbias.derive.parametrization import Parametrization
from flowbias.derive.reachable import reachable_points

# Points along random flows, as the tests of the verdict take.
_POINTS = 3


def owners(model: Parametrization, rng: int = 0) -> NDArray[np.intp] | None:
    """For each parameter the one predictor that it moves; None where some parameter moves two.

    Judged by zeros of dF/dtheta, which are exact where F does not mix coordinates, at theta0 and at
    points along random flows: an entry of an analytic J that is zero there is zero on the orbit.
    """
    points = reachable_points(model, _POINTS, np.random.default_rng(rng))
    moves = np.any([model.jacobian(point) != 0.0 for point in points], axis=0)
    if (moves.sum(axis=0) > 1).any():
        return None
    # A parameter that moves nothing does not move itself, whichever block it is counted to.
    return np.asarray(moves.argmax(axis=0))
