"""The potential of a parametrization whose predictors do not share parameters.

    w(z), w'(z), Q and Q* coordinate by coordinate (`coordinate_flows`),    grad = the inverse of w

Duals are counted from the start: grad Q(w(0)) = 0 and Q(w(0)) = 0, so no shift is needed and the
mirror rate is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowbias.derive.coordinate_flows import CoordinateFlows
from flowbias.derive.parametrization import Parametrization
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
