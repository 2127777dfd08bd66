"""Potentials that do not separate: convex functions of all coordinates of the predictor together.

One linear neuron has one (a function of ||w||), and so may any parametrization that a user derives.
The Hessian of the conjugate is then a matrix, and points come one at a time.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.routing import Provides
from flowbias.ground.typing import FloatArray
from flowbias.potentials._base import ConvexPotential
from flowbias.potentials.scale import double_array


class JointPotential(ConvexPotential):
    """A potential of the whole vector w: `grad` and those below take one vector at a time."""

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.JOINT_POTENTIAL})

    @abstractmethod
    def value(self, w: FloatArray) -> float:
        """Q(w); infinite outside its domain."""

    @abstractmethod
    def grad_dual(self, z: FloatArray) -> FloatArray:
        """The predictor w(z): the inverse of `grad`; NaN outside the dual domain."""

    @abstractmethod
    def hess_dual(self, z: FloatArray) -> FloatArray:
        """dw/dz, (d, d): the Hessian of the conjugate."""

    @abstractmethod
    def conjugate(self, z: FloatArray) -> float:
        """Q*(z) = sup_w <z, w> - Q(w); infinite outside the dual domain."""

    @property
    def dimension(self) -> int | None:
        """How many coordinates w has; None where any number will do."""
        return None

    @property
    def rounding(self) -> float:
        """Relative accuracy of all of these; a potential found by integration has less of it."""
        return 1e-15

    def strong_convexity(self, w: FloatArray, radius: float) -> float:
        """Lower bound of the eigenvalues of Q's Hessian within `radius` of w; 0 where unknown."""
        return 0.0

    def bregman(self, w: FloatArray, w_ref: FloatArray) -> float:
        """Q(w) - Q(w_ref) - <grad Q(w_ref), w - w_ref>, which is >= 0."""
        w, w_ref = double_array(w), double_array(w_ref, "w_ref")
        return self.value(w) - self.value(w_ref) - float(self.grad(w_ref) @ (w - w_ref))

    def value_terms(self, w: FloatArray) -> FloatArray:
        return np.array([self.value(w)])

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        return np.array([self.conjugate(z)])

    def pairing_terms(self, z: FloatArray, w: FloatArray) -> FloatArray:
        return np.array([z @ w])

    def determined(self, w: FloatArray) -> NDArray[np.bool_]:
        # A small coordinate says as much about the direction of w as a large one.
        return np.ones(np.shape(w), dtype=bool)

    def open_sides(self, d: int, size: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        return np.ones(d, dtype=bool), np.ones(d, dtype=bool)
