"""The certificate of a limit on a big X: `certificate.py` over blocks of columns.

Recomputed from X, y, w, nu and the potential alone, with nothing taken from the solver. X is seen
through products with its blocks, and where y is outside its range through its own Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from flowbias.certificates.block_error_bound import block_error_bound
from flowbias.certificates.block_range import BlockRange
from flowbias.certificates.certificate import Certificate, ratio
from flowbias.designs import Design, Totals
from flowbias.designs.coordinates import Coordinates
from flowbias.designs.rows import Uniform
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.potentials import SEEN, Potential
from flowbias.problems.range_fit import IN_RANGE

# Units in the last place by which X may be perturbed in the certificate's own evaluation: for
# nearly dependent rows nu is so huge that no double nu does better, and there are no balls here.
ULPS = 8.0
# No amount of rounding excuses more than this.
WORST_ROUNDING = 1e-4
# Multiplications up to which a bound of the error is worth its time: a minute or two here.
BOUND_WORK = 2e11


@dataclass(frozen=True)
class _Largest(Uniform):
    """Largest |w|; NaN where one is not finite."""

    def __call__(self, block: Any, w: FloatArray) -> Totals:
        largest = float(np.abs(w).max(initial=0.0))
        return Totals(largest=(largest if np.isfinite(w).all() else np.nan,))


@dataclass(frozen=True)
class _Measure:
    """All that the measures of a certificate sum or maximize over coordinates."""

    coordinates: Coordinates
    nu: FloatArray
    largest_w: float
    has_entries: bool

    def on(self, columns: slice) -> Self:
        return replace(self, coordinates=self.coordinates.on(columns))

    @np.errstate(all="ignore")
    def __call__(self, block: Any, w: FloatArray) -> Totals:
        potential = self.coordinates.potential
        rise = block.adjoint(self.nu)
        z = np.asarray(self.coordinates.shift + rise)
        values, conjugates = potential.value_terms(w), potential.conjugate_terms(z)
        products = potential.pairing_terms(z, w)
        sizes = np.abs(values) + np.abs(conjugates)
        sizes += np.abs(potential.pairing_terms(rise, w)) + np.abs(products)
        counted = np.abs(w) > SEEN * self.largest_w
        away = np.abs(potential.grad(w) - z)[counted].max(initial=0.0)
        # Without entries ||P y|| alone is the unit of feasibility: a stricter one.
        spread = block.absolute_apply(w) if self.has_entries else np.zeros(block.n)
        return Totals(
            (
                block.apply(w),
                spread,
                float(values.sum()),
                float(np.sum(values + conjugates - products)),
                float(sizes.sum()),
            ),
            (float(away), float(np.abs(rise).max()), float(np.abs(z).max())),
        )


@np.errstate(all="ignore")
def certify_design(
    design: Design,
    y: FloatArray,
    w: Any,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float = 1e-10,
) -> Certificate:
    """The certificate of (w, nu) as the limit on a design under `potential` started at `shift`."""
    coordinates = Coordinates(potential, shift, design.d)
    largest_w = float(design.reduce(_Largest(), w).largest[0])
    found = design.reduce(_Measure(coordinates, nu, largest_w, design.has_entries), w)
    applied, spread, total, terms, sizes = found.sums
    away, dual_size, point_size = found.largest
    away = away if np.isfinite(largest_w) else np.nan
    fit, misfit = y, applied - y
    unit = extended.length(y) + extended.length(spread)
    rows = BlockRange(design)
    if not extended.length(misfit) <= tol * unit:
        # Either w is wrong or y has a part outside the range of X, which no w can fit.
        misfit, rounding_of_fit = rows.fitted(misfit)
        fit = applied - misfit
        rounding_of_fit = min(rounding_of_fit, IN_RANGE)
        if largest_w == 0.0 and extended.length(fit) <= rounding_of_fit * extended.length(y):
            # w says that nothing of y can be fitted, and what is left of it is rounding.
            fit = misfit = np.zeros_like(y)
    gap = abs(terms + float(nu @ misfit))
    units = max(dual_size, point_size), sizes if largest_w > 0 else 1.0
    relative = ratio(away, units[0]), ratio(gap, units[1])
    accuracy = 0.0
    if not np.max(relative) <= tol and design.has_entries:
        accuracy = _rounding(design, rows.shortest(nu), spread + np.abs(fit), units)
    bound = np.inf
    if design.has_entries and float(design.n) * design.entries <= BOUND_WORK:
        bound = block_error_bound(design, fit, w, nu, coordinates)
    return Certificate(
        feasibility=ratio(extended.length(misfit), extended.length(fit) + extended.length(spread)),
        stationarity=away / max(1.0, dual_size),
        gap=gap / (1.0 + abs(total)),
        error_bound=bound,
        tol=tol,
        relative=relative,
        accuracy=accuracy,
    )


@dataclass(frozen=True)
class _AbsoluteAdjoint(Uniform):
    nu: FloatArray

    def __call__(self, block: Any) -> Totals:
        return Totals(largest=(float(block.absolute_adjoint(self.nu).max()),))


def _rounding(
    design: Design, shortest: FloatArray, spread: FloatArray, units: tuple[float, float]
) -> float:
    """What ULPS of X are worth, through the shortest dual with the same X^T nu."""
    largest = float(design.reduce(_AbsoluteAdjoint(shortest)).largest[0])
    of_value = ratio(float(np.abs(shortest) @ spread), units[1])
    ulps = ULPS * float(np.finfo(float).eps)
    return min(WORST_ROUNDING, ulps * max(ratio(largest, units[0]), of_value))
