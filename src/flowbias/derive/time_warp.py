"""Is the inverse metric a Hessian after a change of time?  [azulay2021, section 5]

There is g > 0 with g H = Hess Q exactly if some phi = grad log g solves

    d_k H_ij - d_j H_ik = H_ik phi_j - H_ij phi_k    for all i, j, k

and phi has no curl. Time then runs at the rate g: d/dt grad Q(w) = -g c X^T r, with the same limit.
In the frame where H is the identity the right side is delta_ac phi_b - delta_ab phi_c, a map whose
columns are orthogonal with length sqrt(2(d-1)). Least squares is therefore a trace:

    phi_b = sum_a D_aba / (d - 1),    D_abc = T_abc - T_acb.

With two predictors the system is square and solvable at every point whatever F is; the verdict then
rests on the curl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.derive.hessian_map import (
    TOLERANCE_ORIGIN,
    lifted_derivative,
    metric_tolerance,
    relative,
)
from flowbias.derive.parametrization import (
    Parametrization,
    as_parametrization,
    random_field,
    reachable_points,
)
from flowbias.derive.unit_time import RTOL, sampled
from flowbias.ground.arguments import InputError, read_rng, real_array
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import ArrayLike, FloatArray


@dataclass(frozen=True)
class WarpedFlow:
    """log g along one flow theta' = sum_i z_i grad F_i, counted from its start."""

    z: FloatArray
    times: FloatArray
    #: (times, p) and (times, d)
    theta: FloatArray
    w: FloatArray
    log_g: FloatArray


@dataclass(frozen=True, repr=False)
class TimeWarp:
    """The best phi, what it leaves unexplained, its curl, and g along a random flow."""

    #: ||D - A phi|| / ||T||, the largest over the points
    residual: float
    #: ||d_k phi_j - d_j phi_k|| relative to the derivatives and ||phi||^2, the largest
    curl: float
    #: grad log g at theta0, in the coordinates of w
    phi: FloatArray = field(compare=False)
    residual_at_points: tuple[float, ...]
    curl_at_points: tuple[float, ...]
    predictors: int
    tolerance: float
    model: Parametrization = field(compare=False)
    #: the random field that `flow` follows
    z: FloatArray = field(compare=False)
    tolerance_origin: str = TOLERANCE_ORIGIN

    @cached_property
    def flow(self) -> WarpedFlow:
        """g along a random flow from theta0."""
        return log_warp_along(self.model, z=self.z, times=np.linspace(0.0, 1.0, 9))

    @property
    def always_solvable(self) -> bool:
        """Whether the system has a solution at each point whatever F is."""
        return self.predictors <= 2

    @property
    def holds(self) -> bool:
        return self.residual <= self.tolerance and self.curl <= self.tolerance

    @property
    def summary(self) -> str:
        if self.predictors == 1:
            return "one predictor: no change of time is needed"
        points = f"over {len(self.residual_at_points)} points (tolerance {self.tolerance:.0e})"
        curl = f"curl of phi {self.curl:.2g}"
        if self.always_solvable:
            return (
                f"two predictors: phi exists at each point whatever F is; {curl} {points} decides"
            )
        return f"residual {self.residual:.2g}, {curl} {points}"

    def __repr__(self) -> str:
        return f"TimeWarp({'yes' if self.holds else 'no'}: {self.summary})"


def time_warp(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    *,
    points: int = 3,
    rng: int | np.random.Generator = 0,
) -> TimeWarp:
    """Whether a change of time makes (J J^T)^{-1} a Hessian map, at theta and along flows.

    Parameters
    ----------
    F, theta, points, rng : as for `commuting`

    Returns
    -------
    TimeWarp, true where it does

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> fb.derive.time_warp(lambda theta: theta[0] * theta[1:], [1.0, 0.5, 0.2, 0.1]).holds
    True
    """
    model = as_parametrization(F, theta)
    model.require_regular()
    random = read_rng(rng)
    visited = reachable_points(model, points, random)
    residuals = tuple(warp_residual(model, point) for point in visited)
    curls = tuple(warp_curl(model, point) for point in visited)
    return TimeWarp(
        residual=max(residuals),
        curl=max(curls),
        phi=warp_field(model, model.start),
        residual_at_points=residuals,
        curl_at_points=curls,
        predictors=model.d,
        tolerance=max(metric_tolerance(model, point) for point in visited),
        model=model,
        z=random_field(model, model.start, random),
    )


def log_warp_along(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    *,
    z: ArrayLike,
    times: ArrayLike,
) -> WarpedFlow:
    """log g - log g(theta) = integral of phi . dw along theta' = sum_i z_i grad F_i.

    A number for every F; only where `time_warp` holds does it not depend on the path.

    Parameters
    ----------
    F : the parametrization w = F(theta), a function of a torch vector, or a `Parametrization`
    theta : the start; left out for a `Parametrization`
    z : (d,), the direction
    times : at which to say it

    Returns
    -------
    WarpedFlow

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> F, theta = lambda th: th[0] * th[1:], [1.0, 0.5, 0.2]
    >>> warped = fb.derive.log_warp_along(F, theta, z=[1.0, 0.0], times=[0.0, 0.1])
    >>> float(warped.log_g[0]), warped.w.shape
    (0.0, (2, 2))
    """
    model = as_parametrization(F, theta)
    model.require_regular()
    field_z, at = (
        real_array(name, given, "Pass a list of numbers.").astype(np.float64, copy=False)
        for name, given in (("z", z), ("times", times))
    )
    if at.ndim != 1 or len(at) < 2 or at[0] != 0.0 or not (np.diff(at) > 0.0).all():
        raise InputError(
            f"times: must start at 0 and increase, got {at.tolist()}. The flow starts at theta."
        )
    if field_z.shape != (model.d,):
        raise InputError(
            f"z: must have one entry per predictor ({model.d}), got shape {field_z.shape}. "
            "It names the flow theta' = sum_i z_i grad F_i."
        )

    last = float(at[-1])

    def velocity(_: float, state: FloatArray) -> FloatArray:
        J, phi = _jacobian_and_field(model, state[:-1])
        motion = last * field_z @ J
        return np.append(motion, phi @ (J @ motion))

    path = sampled(velocity, np.append(model.start, 0.0), RTOL, at / last)
    if not np.isfinite(path).all():
        raise InputError(
            f"times: must end before the flow along z leaves the double range, got {last:g}. "
            "Take a shorter time or a smaller z."
        )
    predictors = np.array([model.predictor_at(point) for point in path[:, :-1]])
    return WarpedFlow(field_z, at, path[:, :-1], predictors, path[:, -1])


def warp_field(model: Parametrization, theta: FloatArray) -> FloatArray:
    """phi at a point: the least-squares solution, (d,)."""
    return _jacobian_and_field(model, theta)[1]


def warp_residual(model: Parametrization, theta: FloatArray) -> float:
    """What phi leaves of T_ijk - T_ikj, relative to T."""
    _, T, terms = lifted_derivative(model, model.tensor(theta))
    D = T - T.transpose(1, 2)
    left = D - _explained(_trace(D))
    return relative(np.array(left.numpy(force=True)), float(T.norm()), float(terms))


def warp_curl(model: Parametrization, theta: FloatArray) -> float:
    """||d_k phi_j - d_j phi_k|| / (||d phi|| + ||phi||^2), in the frame of the metric."""
    torch = require_torch()
    point = model.tensor(theta)
    at, T, terms = lifted_derivative(model, point)

    def along(lift: Any) -> Any:
        return torch.func.jvp(lambda th: _field(model, th)[1], (point,), (lift,))[1]

    slopes = (torch.func.vmap(along)(at.lifts) @ at.root).numpy(force=True)
    phi = float((at.root.T @ _field(model, point)[1]).norm())
    size = float(np.linalg.norm(slopes)) + phi**2
    # phi is a sum of terms of the size of T's; its derivative has the square of their unit.
    return relative(slopes - slopes.T, size, max(float(terms), float(T.norm())) ** 2)


def _jacobian_and_field(model: Parametrization, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    J, phi = _field(model, model.tensor(theta))
    return np.array(J.numpy(force=True)), np.array(phi.numpy(force=True))


def _field(model: Parametrization, theta: Any) -> tuple[Any, Any]:
    """J and phi at a tensor theta; differentiable."""
    torch = require_torch()
    at, T, _ = lifted_derivative(model, theta)
    in_frame = _trace(T - T.transpose(1, 2))
    phi = torch.linalg.solve_triangular(at.root.T, in_frame[:, None], upper=True)[:, 0]
    return at.jacobian, phi


def _trace(D: Any) -> Any:
    """The least-squares phi in the frame; 0 for one predictor, where D vanishes."""
    return D.diagonal(dim1=0, dim2=2).sum(-1) / max(1, D.shape[0] - 1)


def _explained(phi: Any) -> Any:
    """delta_ac phi_b - delta_ab phi_c."""
    torch = require_torch()
    identity = torch.eye(len(phi), dtype=phi.dtype)
    first = identity[:, None, :] * phi[None, :, None]
    return first - first.transpose(1, 2)
