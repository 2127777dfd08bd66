"""Is the inverse metric the Hessian of a potential?  [azulay2021, eq. (6)]

    H = (J J^T)^{-1},    d H_ij / d w_k = d H_ik / d w_j    for all i, j, k

d/dw_k is the derivative along J^T (J J^T)^{-1} e_k, the smallest motion of theta that moves w_k
alone. Where H is a function of w (see `orbit_dimension`) this holds exactly if H = Hess Q, and then
gradient flow is mirror flow with potential Q, commuting or not. It is asked in a frame where the
metric is the identity:

    M = J J^T = L L^T,   H = M^{-1},   V = L^{-1} J

The rows of V are orthonormal in parameter space and lift the frame L of predictor space: moving
theta along row c of V moves w along column c of L. In this frame

    T_abc = (derivative of H_ij along c, i and j contracted with L) = -(L^{-1} dM_c L^{-T})_ab,

so numbers are relative to the metric itself and do not change when w is replaced by A w.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowbias.derive.commuting import TOLERANCE
from flowbias.derive.parametrization import (
    RANK_TOLERANCE,
    Parametrization,
    as_parametrization,
    reachable_points,
)
from flowbias.ground.arguments import InputError, read_rng, real_array, shown, takes
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import ArrayLike, FloatArray

#: Least tolerance of a relative defect is TOLERANCE; more where J J^T is ill-conditioned.
TOLERANCE_ORIGIN = "flows followed to 1e-12, rounding 100 p eps times the condition of J J^T"


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
    if model.p < model.d or values[-1] <= RANK_TOLERANCE * values[0]:
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
    return np.array(changes.numpy(force=True))


def lifted_derivative(model: Parametrization, theta: Any) -> tuple[LocalMetric, Any, Any]:
    """The metric, T_abc and the size of the terms it sums, at a tensor theta; differentiable."""
    torch = require_torch()
    at = frame(model, theta)
    changes, moved = torch.func.vmap(lambda row: metric_change(model, theta, at, row))(at.lifts)
    return at, -changes.permute(1, 2, 0), moved.norm()


@dataclass(frozen=True, repr=False)
class HessianMap:
    """||T_ijk - T_ikj|| / ||T||, T = dH/dw, in a frame where the metric is the identity."""

    #: the largest of `at_points`
    defect: float
    #: at theta0 and along random flows
    at_points: tuple[float, ...]
    predictors: int
    tolerance: float
    tolerance_origin: str = TOLERANCE_ORIGIN

    @property
    def holds(self) -> bool:
        return self.defect <= self.tolerance

    @property
    def summary(self) -> str:
        if self.predictors == 1:
            return "one predictor: its metric is a second derivative whatever F is"
        word = "is" if self.holds else "is not"
        return (
            f"(J J^T)^-1 {word} a Hessian: asymmetry of its derivative {self.defect:.2g} "
            f"(tolerance {self.tolerance:.0e}) over {len(self.at_points)} point(s)"
        )

    def __repr__(self) -> str:
        return f"HessianMap({'yes' if self.holds else 'no'}: {self.summary})"


def hessian_map(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    *,
    points: int = 3,
    rng: int | np.random.Generator = 0,
) -> HessianMap:
    """Whether (J J^T)^{-1} is a Hessian map, at theta and along random flows from it.

    Parameters
    ----------
    F, theta, points, rng : as for `commuting`

    Returns
    -------
    HessianMap, true where it is

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> fb.derive.hessian_map(lambda theta: theta**2, [0.5, 0.5]).holds
    True
    """
    model = as_parametrization(F, theta)
    model.require_regular()
    visited = reachable_points(model, points, read_rng(rng))
    tolerance = max(metric_tolerance(model, point) for point in visited)
    defects = tuple(_defect(model, point) for point in visited)
    return HessianMap(max(defects), defects, model.d, tolerance)


def hessian_map_of_metric(H: Callable[[Any], Any], w: ArrayLike) -> HessianMap:
    """The same test for a metric given as a torch function of w: (d,) -> (d, d).

    H(w) = I + w w^T is the control that must fail.

    Parameters
    ----------
    H : the metric
    w : where

    Returns
    -------
    HessianMap, true where it is one

    Raises
    ------
    InputError where H is no smooth function of a vector

    >>> fb.derive.hessian_map_of_metric(lambda w: (w**2).diag(), [0.5, 0.2]).holds
    True
    """
    value, derivative = metric_and_derivative(H, w)
    root = np.linalg.cholesky(np.linalg.inv(value))
    T = np.einsum("ijk,ia,jb,kc->abc", derivative, root, root, root)
    defect = relative(asymmetry(T), float(np.linalg.norm(T)), 0.0)
    condition = float(np.linalg.cond(value))
    d = len(value)
    return HessianMap(defect, (defect,), d, _rounding(d, condition))


def metric_and_derivative(H: Callable[[Any], Any], w: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """H(w) and d H_ij / d w_k, if H(w) is a symmetric positive definite matrix."""
    torch = require_torch()
    if not takes(H, 1):
        raise InputError(f"H: must be a function of w, got {shown(H)}. Return a matrix (d, d).")
    point = torch.tensor(real_array("w", w, "Pass one number per coordinate.").astype(np.float64))
    if point.ndim not in (1, 2) or not point.numel():
        raise InputError(f"w: must be a vector, got {shown(w)}. Pass one point.")
    returned = H(point)
    if not isinstance(returned, torch.Tensor):
        raise InputError(
            f"H: must return a torch tensor, got {shown(returned)}. Compute with torch functions."
        )
    value = np.array(returned.numpy(force=True))
    d = point.numel()
    if point.ndim != 1 or value.shape != (d, d):
        raise InputError(
            f"H: must map w of shape (d,) to a matrix (d, d), got {value.shape} for w of shape "
            f"{tuple(point.shape)}. Return the metric's inverse in the coordinates of w."
        )
    if not np.allclose(value, value.T, rtol=1e-12) or np.linalg.eigvalsh(value)[0] <= 0.0:
        raise InputError(
            f"H: must be symmetric and positive definite, got {value.tolist()} at w = "
            f"{np.asarray(w).tolist()}. Only metrics define a flow."
        )
    return value, np.array(torch.func.jacfwd(H)(point).numpy(force=True))


def metric_tolerance(model: Parametrization, theta: FloatArray) -> float:
    """What rounding and the flows' errors can make of a defect that is zero."""
    return _rounding(model.p, require_frame(model, theta))


def _rounding(p: int, condition: float) -> float:
    return max(TOLERANCE, 100 * p * float(np.finfo(float).eps) * condition)


def _defect(model: Parametrization, theta: FloatArray) -> float:
    _, T, terms = lifted_derivative(model, model.tensor(theta))
    T = np.array(T.numpy(force=True))
    return relative(asymmetry(T), float(np.linalg.norm(T)), float(terms))


def asymmetry(T: FloatArray) -> FloatArray:
    """T_ijk - T_ikj."""
    return T - np.swapaxes(T, 1, 2)


def relative(part: FloatArray, whole: float, terms: float) -> float:
    """Norm of `part` over `whole`, or 1e-3 of its `terms`, below which it may be their rounding."""
    size = max(whole, 1e-3 * terms)
    return float(np.linalg.norm(part)) / size if size > 0.0 else 0.0
