"""Do the gradient fields commute?  Then gradient flow is mirror flow of the predictor.

    [grad F_i, grad F_j] = Hess F_j grad F_i - Hess F_i grad F_j = 0    for all i, j

Sufficient for a potential Q(w), and the simplest test of all: second derivatives, no inverse.
[Li, Wang, Lee and Arora, 2022]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowbias.derive.parametrization import (
    LARGEST_HESSIANS,
    Parametrization,
    as_parametrization,
    reachable_points,
)
from flowbias.derive.unit_time import CLEARLY, RTOL
from flowbias.ground.arguments import InputError, read_rng, read_tolerance
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray

TOLERANCE = CLEARLY * RTOL
TOLERANCE_ORIGIN = "flows followed to 1e-12, derivatives exact up to rounding; factor 1000"


@dataclass(frozen=True, repr=False)
class Commuting:
    """The largest bracket, relative to the size of its two terms."""

    #: largest of `relative`; at most `tolerance` when the fields commute
    defect: float
    #: the same at theta0 alone
    start_defect: float
    #: i, j of the largest bracket, counted from 1
    pair: tuple[int, int]
    #: (d, d), worst point: ||bracket|| / (||Hess F_j grad F_i|| + ||Hess F_i grad F_j||)
    relative: FloatArray = field(compare=False)
    #: where it was looked at: theta0 and this many points along random flows
    points: int
    tolerance: float = TOLERANCE
    tolerance_origin: str = TOLERANCE_ORIGIN

    @property
    def holds(self) -> bool:
        return self.defect <= self.tolerance

    @property
    def summary(self) -> str:
        where = f"at theta0 and {self.points} points along random flows"
        if self.holds:
            return (
                f"all brackets [grad F_i, grad F_j] vanish {where}: "
                f"at most {self.defect:.1e} of their terms (tolerance {self.tolerance:.0e})"
            )
        i, j = self.pair
        return (
            f"[grad F_{i}, grad F_{j}] is {self.defect:.2g} of its terms "
            f"({self.start_defect:.2g} at theta0; tolerance {self.tolerance:.0e})"
        )

    def __repr__(self) -> str:
        return f"Commuting({'yes' if self.holds else 'no'}: {self.summary})"


def commuting(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    *,
    points: int = 3,
    rng: int | np.random.Generator = 0,
    tolerance: float = TOLERANCE,
) -> Commuting:
    """All Lie brackets of the gradient fields, at theta and along random flows from it.

    Parameters
    ----------
    F : the parametrization w = F(theta), a function of a torch vector, or a `Parametrization`
    theta : where; left out for a `Parametrization`
    points : how many points beside theta, along random flows
    rng : seed or generator of those flows
    tolerance : relative size up to which a bracket counts as zero

    Returns
    -------
    Commuting, true where all of them vanish

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> fb.derive.commuting(lambda theta: theta**2, [0.5, 0.5]).holds
    True
    >>> fb.derive.commuting(lambda theta: theta[0] * theta[1:], [1.0, 0.5, 0.2]).holds
    False
    """
    # Below that its inverse is no double.
    tolerance = max(read_tolerance("tolerance", tolerance), float(np.finfo(np.float64).tiny))
    model = as_parametrization(F, theta, afford=require_room)
    visited = reachable_points(model, points, read_rng(rng))
    each = np.stack([relative_brackets(model, point, tolerance) for point in visited])
    worst = each.max(axis=0)
    i, j = np.unravel_index(int(np.argmax(worst)), worst.shape)
    return Commuting(
        defect=float(worst.max()),
        start_defect=float(each[0].max()),
        pair=(int(i) + 1, int(j) + 1),
        relative=worst,
        points=points,
        tolerance=tolerance,
    )


def relative_brackets(model: Parametrization, theta: FloatArray, tolerance: float) -> FloatArray:
    """(d, d): size of each bracket relative to its two terms.

    Terms that are themselves rounding of larger factors count as what rounding could make of them,
    so that 1e-17 against 1e-17 is not a bracket of relative size one.
    """
    J, moved, curvature = moved_gradients(model, theta)
    terms = np.linalg.norm(moved, axis=2)
    brackets = np.linalg.norm(moved - np.swapaxes(moved, 0, 1), axis=2)
    factors = np.linalg.norm(J, axis=1)[:, None] * curvature[None, :]
    # What is left of Hess F_j grad F_i after cancellation inside the product: 64 ulps.
    floor = 64.0 * np.finfo(float).eps / tolerance * (factors + factors.T)
    size = np.maximum(terms + terms.T, floor)
    relative: FloatArray = np.divide(brackets, size, out=np.zeros_like(size), where=size > 0.0)
    return relative


def moved_gradients(
    model: Parametrization, theta: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """J, all Hess F_j grad F_i as (i, j, p), and about the Frobenius norm of each Hess F_j.

    One forward derivative of J per field: d^2 p numbers, never the d p^2 of all Hessians.
    """
    torch = require_torch()
    point = model.tensor(theta)
    jacobian = torch.func.jacrev(model.torch_function)
    J = jacobian(point)
    probes = np.random.default_rng(1).standard_normal((4, model.p))
    tangents = torch.cat([J, torch.tensor(probes)])

    def along(tangent: Any) -> Any:
        return torch.func.jvp(jacobian, (point,), (tangent,))[1]

    moved = np.array(torch.func.vmap(along)(tangents).numpy(force=True))
    # E ||H v||^2 = ||H||_F^2 for standard normal v.
    curvature = np.sqrt(np.mean(np.sum(moved[model.d :] ** 2, axis=2), axis=0))
    return np.array(J.numpy(force=True)), moved[: model.d], curvature


def require_room(model: Parametrization) -> None:
    """Refuse more brackets than memory holds, with their number."""
    cost = model.d * model.d * model.p
    if cost > LARGEST_HESSIANS:
        raise InputError(
            f"theta: must be small enough for all brackets, {model.d}^2 pairs x {model.p} "
            f"parameters = {cost:.1e} numbers ({8e-9 * cost:.1f} GB), got more than the "
            f"{LARGEST_HESSIANS:.0e} allowed. Study a smaller instance of the same F."
        )
