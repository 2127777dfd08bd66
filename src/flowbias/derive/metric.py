"""The metric J J^T and its derivatives, in a frame where it is the identity.

    M = J J^T = L L^T,   H = M^{-1},   V = L^{-1} J

The rows of V are orthonormal in parameter space and lift the frame L of predictor space: moving
theta along row c of V moves w along column c of L. In this frame

    T_abc = (derivative of H_ij along c, i and j contracted with L) = -(L^{-1} dM_c L^{-T})_ab,

so numbers are relative to the metric itself and do not change when w is replaced by A w.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.derive.parametrization import Parametrization
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray

# L L^T = M is trusted while the condition of J leaves this many times eps.
_SINGULAR = 1e-11


class FrameError(InputError):
    """J is rank-deficient (to rounding) at a point where its frame is wanted."""


class LocalMetric(NamedTuple):
    """Everything about the metric at one point (torch tensors)."""

    jacobian: Any
    root: Any  # L
    lifts: Any  # V, (d, p)


def frame(model: Parametrization, theta: Any) -> LocalMetric:
    """J, L and V at a tensor theta; differentiable."""
    torch = require_torch()
    J = torch.func.jacrev(model.torch_function)(theta)
    L = torch.linalg.cholesky_ex(J @ J.T)[0]
    V = torch.linalg.solve_triangular(L, J, upper=False)
    return LocalMetric(J, L, V)


def require_frame(model: Parametrization, theta: FloatArray) -> float:
    """Condition number of J J^T, or FrameError where J has lost rank."""
    values = np.linalg.svd(model.jacobian(theta), compute_uv=False)
    if model.p < model.d or values[-1] <= _SINGULAR * values[0]:
        raise FrameError(
            f"F: must have dF/dtheta of rank {model.d} where the flow goes, got singular values "
            f"{values[0]:.1e} to {values[-1]:.1e} at theta = {theta}. Start elsewhere."
        )
    return float((values[0] / values[-1]) ** 2)


def metric_change(
    model: Parametrization, theta: Any, at: LocalMetric, direction: Any
) -> tuple[Any, Any]:
    """L^{-1} dM L^{-T} along a direction of parameter space, and L^{-1} dJ."""
    torch = require_torch()
    jacobian = torch.func.jacrev(model.torch_function)
    moved = torch.func.jvp(jacobian, (theta,), (direction,))[1]
    turned = torch.linalg.solve_triangular(at.root, moved, upper=False)
    half = turned @ at.lifts.T
    return half + half.T, turned


def metric_derivatives_along(
    model: Parametrization, theta: FloatArray, directions: FloatArray
) -> FloatArray:
    """L^{-1} dM L^{-T} for each row of `directions`, (n, d, d)."""
    torch = require_torch()
    require_frame(model, theta)
    point = model.tensor(theta)
    at = frame(model, point)

    def change(direction: Any) -> Any:
        return metric_change(model, point, at, direction)[0]

    changes = torch.func.vmap(change)(torch.tensor(np.ascontiguousarray(directions)))
    return np.array(changes.detach().numpy())


def lifted_derivative(model: Parametrization, theta: Any) -> tuple[LocalMetric, Any, Any]:
    """The metric, T_abc and the size of the terms it sums, at a tensor theta; differentiable."""
    torch = require_torch()
    at = frame(model, theta)
    changes, moved = torch.func.vmap(lambda row: metric_change(model, theta, at, row))(at.lifts)
    return at, -changes.permute(1, 2, 0), moved.norm()
