"""How well a product U V^T fits, next to what its digits can tell."""

from __future__ import annotations

import numpy as np

from flowbias.flows.lifted.compression import EPS
from flowbias.flows.lifted.flow import Setting
from flowbias.ground.typing import FloatArray

# Beyond it nothing is certified, however large the weights.
WORST_ROUNDING = 1e-6


def _moving(setting: Setting, M: FloatArray) -> FloatArray:
    basis = setting.compression.basis
    return M if basis is None else basis.T @ M


def residual_of(setting: Setting, M: FloatArray) -> float:
    """||measure(M) - reachable|| / ||reachable||: what is decided by."""
    return setting.fit.residual(_moving(setting, M))


def feasibility_of(setting: Setting, M: FloatArray) -> float:
    """||measure(M) - reachable|| / (||reachable|| + ||measure|| ||M||): what is shown.

    As in every certificate relative to the terms of the difference: next to a large start a tiny
    target is met up to the digits of M.
    """
    size = setting.fit.size
    terms = size + setting.fit.norm * float(np.linalg.norm(M))
    return residual_of(setting, M) * size / terms


def rounding_of(setting: Setting, M: FloatArray) -> float:
    """What the digits of M leave undecided of the residual."""
    # Of all of M: what rests is subtracted again to see what moved.
    size = setting.fit.norm * float(np.linalg.norm(M))
    return 100.0 * EPS * size / setting.fit.size


def distance_of(setting: Setting) -> float:
    """Of the target from what can be reached, relative to the target."""
    problem = setting.problem
    outside = float(np.linalg.norm(problem.target - problem.reachable))
    outside = float(np.hypot(outside, np.linalg.norm(setting.fit.target - setting.fit.reachable)))
    size = float(np.linalg.norm(problem.target))
    return outside / size if outside > 1e-10 * size else 0.0
