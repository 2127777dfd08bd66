"""Does dF/dtheta keep its rank along a flow?  Where it does, the time warp g stays positive.

    share(t) = smallest / largest singular value of J(theta(t))

log g is the integral of a function of theta that is smooth where J has full rank, so it stays
finite on a path along which `share` does not vanish, wherever the path goes at fixed w.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from flowbias.derive.parametrization import Parametrization
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.typing import FloatArray

# Instants looked at first, and how many of the lowest valleys between them are searched.
_INSTANTS = 400
_VALLEYS = 3


def lowest_rank_share(model: Parametrization, trajectory: Trajectory) -> float:
    """The lowest share along the flow: on a grid of its own steps, then between them."""
    times = trajectory.t
    if len(times) > _INSTANTS:
        times = times[np.unique(np.linspace(0, len(times) - 1, _INSTANTS).astype(int))]

    def share(t: float) -> float:
        return _share(model.jacobian(trajectory.parameters(float(t))[0]))

    shares = np.array([share(t) for t in times])
    lowest = float(shares.min())
    for k in np.argsort(shares)[:_VALLEYS]:
        first, last = float(times[max(0, k - 1)]), float(times[min(len(times) - 1, k + 1)])
        # A simple zero of J is a kink of the share, which golden sections narrow down all the same.
        inside = minimize_scalar(
            share,
            bounds=(first, last),
            method="bounded",
            options={"xatol": 1e-9 * (last - first)},
        )
        lowest = min(lowest, float(inside.fun))
    return lowest


def _share(J: FloatArray) -> float:
    values = np.linalg.svd(J, compute_uv=False)
    return float(values[-1] / values[0]) if values[0] > 0.0 else 0.0
