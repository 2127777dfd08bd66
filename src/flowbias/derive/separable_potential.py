"""The potential of a parametrization whose predictors do not share parameters.

    w(z), w'(z), Q and Q* coordinate by coordinate (`coordinate_flows`),    grad = the inverse of w

Duals are counted from the start: grad Q(w(0)) = 0 and Q(w(0)) = 0, so no shift is needed and the
mirror rate is 1.

What a unit of w costs as the start vanishes is known where F(c theta) = c^D F(theta), block by
block. From c theta0 the flow is that from theta0 in other units, w = c^D w_1(c^(D-2) z). Its
direction settles at a critical point of F on the sphere, where F is f say, so that with
r = |theta|, F = f r^D and theta . grad F = D F (Euler)

    D = 2    r r' = 2 f r^2:     w_1 grows like e^(4 f z);    w = 1 at z = log(1/c^2) / (4 f)
    D > 2    r' = D f r^(D-1):   w_1 blows up at T = z + r^2 / (D (D-2) F);   w = 1 at c^(2-D) T

up to terms that vanish beside these. So Q in units of log(1/c^2) or c^(2-D) tends to a weighted l1
norm with weights 1/(4 f) or T, one for each sign; a sign that w never takes costs infinitely much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.derive.coordinate_flows import CoordinateFlows
from flowbias.derive.parametrization import Parametrization, generic_point
from flowbias.derive.unit_time_flow import NoWarp, potential_along_predictor
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.potentials import Potential


@dataclass(frozen=True, eq=False)
class SeparablePotential(Potential):
    """What gradient flow of F(theta) from theta0 minimizes where each parameter moves one w_i.

    Points outside the domain, primal or dual, give NaN (the potential: infinity).

    >>> report = fb.derive.implicit_bias(lambda theta: theta**3, [0.5, 0.2])
    >>> report.potential.grad_dual(np.array([0.1, 0.0])).round(4)
    array([0.2035, 0.008 ])
    """

    flows: CoordinateFlows
    #: which of the flows' coordinates these are
    columns: NDArray[np.intp] = field(repr=False)

    @classmethod
    def of(cls, flows: CoordinateFlows) -> SeparablePotential:
        """Of all coordinates."""
        return cls(flows, np.arange(flows.d))

    @property
    def model(self) -> Parametrization:
        return self.flows.model

    @property
    def dimension(self) -> int:
        return len(self.columns)

    @property
    def rounding(self) -> float:
        """Relative accuracy of all of these: 1e-12 a step, and hundreds of steps at most."""
        return 1e-10

    @property
    def evaluation_rounding(self) -> float:
        return self.rounding

    def grad_dual(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.initial + self.flows.at(row).rise)

    def hess_dual(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.at(row).slope)

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        def terms(row: FloatArray) -> FloatArray:
            area = self.flows.at(row).area
            return np.where(np.isnan(area), np.inf, self.flows.initial * row + area)

        return self._by_rows("z", z, terms)

    def grad(self, w: FloatArray) -> FloatArray:
        return self._by_rows("w", w, self.flows.dual)

    def value_terms(self, w: FloatArray) -> FloatArray:
        def terms(row: FloatArray) -> FloatArray:
            z = self.flows.dual(row)
            here = self.flows.at(z)
            # w(z) is a rounding error away from w: z (w - w(z)) is what that is worth.
            value = here.value + z * (row - self.flows.initial - here.rise)
            return np.where(np.isnan(value), np.inf, value)

        return self._by_rows("w", w, terms)

    def dual_unit(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.at(row).unit)

    def along(self, dw: FloatArray, shares: FloatArray) -> FloatArray:
        """Q(w(0) + share dw) for increasing shares in (0, 1], to drawing accuracy; NaN outside."""
        return potential_along_predictor(self.model, NoWarp(), dw, shares)

    def _by_rows(
        self, name: str, given: FloatArray, of: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """One vector of all coordinates after the other; what is not asked for is at its start."""
        points = np.asarray(given, dtype=np.float64)
        try:
            points = np.broadcast_to(points, np.broadcast_shapes(points.shape, self.columns.shape))
        except ValueError as error:
            raise InputError(
                f"{name}: must have one entry per coordinate ({len(self.columns)}), got shape "
                f"{points.shape}. Pass vectors of that length, one per row."
            ) from error
        rest = self.flows.initial if name == "w" else np.zeros(self.flows.d)
        out = np.empty(points.shape)
        for index in np.ndindex(points.shape[:-1]):
            row = rest.copy()
            row[self.columns] = points[index]
            out[index] = of(row)[self.columns]
        return out


class RichCosts(NamedTuple):
    """Of a positive and of a negative unit of each coordinate, and the degree of F."""

    positive: FloatArray
    negative: FloatArray
    degree: float


def degree_of(model: Parametrization) -> float | None:
    """D with F(c theta) = c^D F(theta), by Euler's identity; None where F is not homogeneous."""
    rng = np.random.default_rng(0)
    points = [generic_point(model, rng) for _ in range(3)]
    J = [model.jacobian(point) for point in points]
    along = np.array([rows @ point for rows, point in zip(J, points, strict=True)])
    terms = np.array([np.abs(rows) @ np.abs(at) for rows, at in zip(J, points, strict=True)])
    F = np.array([model.predictor_at(point) for point in points])
    with np.errstate(all="ignore"):
        F, along = F / terms, along / terms
        degree = float(np.sum(F * along) / np.sum(F * F))
        # Relative to its terms: derivatives are exact up to rounding.
        exact = np.abs(along - degree * F).max() <= 1e-10 * max(1.0, abs(degree))
    return float(np.round(degree, 9)) if exact else None


def rich_costs(flows: CoordinateFlows, degree: float, grown: float = 1e20) -> RichCosts:
    """Costs of both sides, in units of their median.

    Read off where w has grown by `grown` over the size of F at the start, and once more at the
    root of that: what a direction has not settled to by then would show.
    """
    late, early = (_costs(flows, degree, growth) for growth in (grown, grown**0.5))
    open_sides = np.isfinite(late)
    with np.errstate(invalid="ignore"):
        unsettled = open_sides & ~(np.abs(late - early) <= 1e-6 * late)
    if unsettled.any():
        raise InputError(
            "model: must have flows whose direction settles to have a known rich limit, got "
            f"w{int(np.argmax(unsettled.any(axis=0))) + 1}, whose growth still changes after a "
            f"factor {grown:.0e}. Take fb.limit_path towards small scales."
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
