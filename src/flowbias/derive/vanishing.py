"""What a unit of w costs as the start of a homogeneous F vanishes.

Let F(c theta) = c^D F(theta), block by block. From c theta0 the flow is that from theta0 in other
units, w = c^D w_1(c^(D-2) z). Its direction settles at a critical point of F on the sphere, where F
is f say, so that with r = |theta|, F = f r^D and theta . grad F = D F (Euler)

    D = 2    r r' = 2 f r^2:     w_1 grows like e^(4 f z);    w = 1 at z = log(1/c^2) / (4 f)
    D > 2    r' = D f r^(D-1):   w_1 blows up at T = z + r^2 / (D (D-2) F);   w = 1 at c^(2-D) T

up to terms that vanish beside these. So Q in units of log(1/c^2) or c^(2-D) tends to a weighted l1
norm with weights 1/(4 f) or T, one for each sign; a sign that w never takes costs infinitely much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowbias.derive.coordinate_flows import CoordinateFlows
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.reachable import generic_point
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

# Euler's identity at random points, relative to its terms: derivatives are exact up to rounding.
_HOMOGENEOUS = 1e-10
_POINTS = 3
# Growth of w over the size of F at the start at which costs are read off, and before that once
# more: what a direction has not settled to by then would show.
_GROWN, _EARLIER = 1e20, 1e10
_SETTLED = 1e-6


class RichCosts(NamedTuple):
    """Of a positive and of a negative unit of each coordinate, and the degree of F."""

    positive: FloatArray
    negative: FloatArray
    degree: float


def degree_of(model: Parametrization) -> float | None:
    """D with F(c theta) = c^D F(theta); None where F is not homogeneous."""
    rng = np.random.default_rng(0)
    points = [generic_point(model, rng) for _ in range(_POINTS)]
    J = [model.jacobian(point) for point in points]
    along = np.array([rows @ point for rows, point in zip(J, points, strict=True)])
    terms = np.array([np.abs(rows) @ np.abs(at) for rows, at in zip(J, points, strict=True)])
    F = np.array([model.predictor_at(point) for point in points])
    with np.errstate(all="ignore"):
        F, along = F / terms, along / terms
        degree = float(np.sum(F * along) / np.sum(F * F))
        exact = np.abs(along - degree * F).max() <= _HOMOGENEOUS * max(1.0, abs(degree))
    return float(np.round(degree, 9)) if exact else None


def rich_costs(flows: CoordinateFlows, degree: float) -> RichCosts:
    """Costs of both sides, in units of their median."""
    late, early = (_costs(flows, degree, grown) for grown in (_GROWN, _EARLIER))
    open_sides = np.isfinite(late)
    with np.errstate(invalid="ignore"):
        unsettled = open_sides & ~(np.abs(late - early) <= _SETTLED * late)
    if unsettled.any():
        raise InputError(
            "model: must have flows whose direction settles to have a known rich limit, got "
            f"w{int(np.argmax(unsettled.any(axis=0))) + 1}, whose growth still changes after a "
            f"factor {_GROWN:.0e}. Take fb.limit_path towards small scales."
        )
    unit = float(np.median(late[open_sides])) if open_sides.any() else 1.0
    return RichCosts(late[0] / unit, late[1] / unit, degree)


def _costs(flows: CoordinateFlows, degree: float, grown: float) -> FloatArray:
    """(2, d): read off where w has grown so much; infinite on sides where it does not."""
    model = flows.model
    size = np.sqrt(flows.block_sums(model.start**2))
    found = []
    for sign in (1.0, -1.0):
        z = flows.dual(flows.initial + sign * grown * size**degree)
        here = flows.at(z)
        square = flows.block_sums(here.theta**2)
        w = sign * (flows.initial + here.rise)
        if degree == 2.0:
            cost = square / (4.0 * w)
        else:
            cost = sign * z + square / (degree * (degree - 2.0) * w)
        found.append(np.where(np.isfinite(cost), cost, np.inf))
    return np.array(found)
