"""What every potential offers, and what a new one has to write.

A potential Q is a convex function of the predictor w. Gradient flow of the parameters is mirror
flow of w in Q [woodworth2020, Theorem 1; azulay2021, Theorem 1], so its limit minimizes Q (or its
Bregman form) among the interpolating predictors. A `Potential` separates: it is a sum over
coordinates. A `JointPotential` (joint.py) does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.routing import Provides
from flowbias.ground.typing import FloatArray
from flowbias.potentials.scale import double_array

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import DualMap

EPS = float(np.finfo(np.float64).eps)
# Coordinates below this share of the largest do not count for stationarity: their logarithm is
# beyond what X w = y in double precision determines.
SEEN = 1e-12


class ConvexPotential(ABC):
    """What a certificate asks of any potential: Q and its conjugate as sums of terms.

    Duals and values are measured in units of exp(log_unit). It is 0, hence the unit is 1, unless
    the scale of the start would push the potential's own units out of the double range.
    """

    log_unit: float = 0.0

    @property
    def potential(self) -> Self:
        """Itself: a potential is its own model, one that starts at dual point 0."""
        return self

    @property
    def mirror_rate(self) -> float:
        """g in d/dt grad Q(w) = -g c X^T r; 1 because a bare potential has no clock of its own."""
        return 1.0

    @property
    def shift(self) -> FloatArray | float:
        """Dual point of the start; 0 because a bare potential knows no other start."""
        return 0.0

    @property
    @abstractmethod
    def provides(self) -> frozenset[Provides]:
        """What a route may count on."""

    @abstractmethod
    def value_terms(self, w: FloatArray) -> FloatArray:
        """Terms that sum to Q(w); infinite outside its domain."""

    @abstractmethod
    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        """Terms that sum to Q*(z) = sup_w <z, w> - Q(w)."""

    @abstractmethod
    def pairing_terms(self, z: FloatArray, w: FloatArray) -> FloatArray:
        """Terms that sum to <z, w>, each the counterpart of one of the others."""

    @abstractmethod
    def grad(self, w: FloatArray) -> FloatArray:
        """The dual point z = grad Q(w); NaN outside the domain."""

    @abstractmethod
    def determined(self, w: FloatArray) -> NDArray[np.bool_]:
        """Coordinates of grad(w) that w to double precision determines."""

    @abstractmethod
    def open_sides(self, d: int, size: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of d coordinates may become +size, and which -size."""


class Potential(ConvexPotential):
    """Separable potential: five functions act per coordinate, arrays in, arrays out.

    They are `value_terms`, `grad`, `conjugate_terms`, and the two below.
    """

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.POTENTIAL})

    @abstractmethod
    def grad_dual(self, z: FloatArray) -> FloatArray:
        """The predictor w(z): the inverse of `grad`."""

    @abstractmethod
    def hess_dual(self, z: FloatArray) -> FloatArray:
        """w'(z) per coordinate, the second derivative of the conjugate."""

    @property
    def shape_of_w(self) -> tuple[int, ...]:
        """Of w; () or (1,) where any number of coordinates will do."""
        return np.shape(self.grad_dual(np.zeros(1)))

    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """Upper bound of w'(z+t)/w'(z) and of its inverse over |t| <= radius; inf where unknown."""
        return np.full(np.broadcast_shapes(np.shape(z), np.shape(radius)), np.inf)

    def growth_along(self, z: FloatArray, rise: FloatArray) -> Callable[[float], float]:
        """The largest `hess_growth` as a function of how much of a rise of z is taken."""
        size = np.abs(rise)
        return lambda reach: float(self.hess_growth(z, reach * size).max())

    def dual_unit(self, z: FloatArray) -> FloatArray:
        """How far z can move before w'(z) changes about e-fold: no bound; inf where unknown."""
        return np.full(np.shape(z), np.inf)

    def dual_map(self, d: int) -> DualMap | None:
        """w(z) of d coordinates in balls of the precision in force; None without a law."""
        return None

    def law_rounding(self, z: FloatArray) -> FloatArray:
        """How far z may be off in `dual_map`, where the numbers of the start are only near it."""
        return np.zeros(np.shape(z))

    def shift_rounding(self, shift: FloatArray | float) -> FloatArray:
        """How far the dual point of a start may be off: logarithms of numbers that were rounded."""
        if not np.any(shift):
            return np.zeros(np.shape(shift))
        return np.where(np.asarray(shift) == 0.0, 0.0, 4.0 * EPS * (1.0 + np.abs(shift)))

    def scale_derivative(self, z: FloatArray) -> FloatArray | None:
        """dw(z)/dlog(scale) at fixed z in fixed units; None for a potential without a scale."""
        return None

    def dual_rounding(self, z: FloatArray) -> FloatArray:
        """How far z may be off because constants that differ between coordinates are rounded."""
        return np.zeros(np.shape(z))

    def tilt_rounding(self, z: FloatArray, shift: FloatArray | float) -> float:
        """All of the three: how far any coordinate of z may be off, of a start at `shift`."""
        off = self.dual_rounding(z) + self.law_rounding(z) + self.shift_rounding(shift)
        return float(off.max(initial=0.0))

    @property
    def evaluation_rounding(self) -> float:
        """Relative error of w(z) and w'(z) in extended precision: that of the constants."""
        return 4.0 * EPS

    def pairing_terms(self, z: FloatArray, w: FloatArray) -> FloatArray:
        return np.asarray(z * w)

    def determined(self, w: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(np.abs(w) > SEEN * np.abs(w).max(initial=0.0))

    def open_sides(self, d: int, size: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        # Infinite outside the domain: what could not be evaluated, far from a huge start, is NaN.
        upward, downward = (self.value_terms(np.full(d, way)) != np.inf for way in (size, -size))
        return upward, downward

    def value(self, w: FloatArray) -> float:
        """Q(w), summed over coordinates."""
        return float(np.sum(self.value_terms(w)))

    def conjugate(self, z: FloatArray) -> float:
        """Q*(z), summed over coordinates."""
        return float(np.sum(self.conjugate_terms(z)))

    def bregman(self, w: FloatArray, w_ref: FloatArray) -> float:
        """Q(w) - Q(w_ref) - <grad Q(w_ref), w - w_ref>, which is >= 0."""
        w, w_ref = double_array(w), double_array(w_ref, "w_ref")
        linear = self.grad(w_ref) * (w - w_ref)
        return float(np.sum(self.value_terms(w) - self.value_terms(w_ref) - linear))
