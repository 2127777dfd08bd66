"""The two limits every potential interpolates: the weighted l1 norm and the squared l2 norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias._typing import ArrayLike, FloatArray
from flowbias.potentials._base import Potential, Provides
from flowbias.potentials.scale import describe, read_real, require, working_array

_WEIGHT_FIX = "Remove coordinates that should not be penalized, or give them a small weight."


def _read_weights(weights: ArrayLike) -> FloatArray:
    read = read_real("weights", weights, "Pass one positive number, or one per coordinate.")
    require("weights", read, (read > 0) & (read < np.inf), "must be > 0 and finite", _WEIGHT_FIX)
    return read


@dataclass(frozen=True, eq=False, init=False, repr=False)
class L2(Potential):
    """sum weights w^2 / 2: the kernel limit."""

    weights: FloatArray

    def __init__(self, weights: ArrayLike = 1.0) -> None:
        object.__setattr__(self, "weights", _read_weights(weights))

    def value_terms(self, w: FloatArray) -> FloatArray:
        return 0.5 * w * self.grad(w)

    def grad(self, w: FloatArray) -> FloatArray:
        return self.weights * np.asarray(w, dtype=np.float64)

    def grad_dual(self, z: FloatArray) -> FloatArray:
        return working_array(z) / self.weights

    def hess_dual(self, z: FloatArray) -> FloatArray:
        return np.broadcast_arrays(1.0 / self.weights, z)[0].copy()

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        return 0.5 * z * self.grad_dual(z)

    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """1: the second derivative is constant."""
        return np.ones(np.broadcast_shapes(np.shape(z), np.shape(radius), self.weights.shape))

    def __repr__(self) -> str:
        return f"L2(weights={describe(self.weights)})"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class L1(Potential):
    """sum weights |w|: the rich limit. Not smooth, so it provides no potential to solve with."""

    weights: FloatArray

    def __init__(self, weights: ArrayLike = 1.0) -> None:
        object.__setattr__(self, "weights", _read_weights(weights))

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset()

    def value_terms(self, w: FloatArray) -> FloatArray:
        return self.weights * np.abs(w)

    def grad(self, w: FloatArray) -> FloatArray:
        """A subgradient: weights sign(w), 0 at 0."""
        return self.weights * np.sign(w)

    def grad_dual(self, z: FloatArray) -> FloatArray:
        raise TypeError(
            "L1.grad_dual: z must determine w, but the subdifferential of |w| maps every w > 0 to "
            "the same z = weights. Use basis_pursuit for the minimizer itself, or "
            "Hypentropy(log_scale=-1e4) for a smooth stand-in."
        )

    def hess_dual(self, z: FloatArray) -> FloatArray:
        raise TypeError(
            "L1.hess_dual: the conjugate must be twice differentiable, but that of |w| is the "
            "indicator of a box. Hypentropy(log_scale=-1e4) is a smooth stand-in."
        )

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        """0 in the box |z| <= weights, inf outside."""
        return np.where(np.abs(z) <= self.weights, 0.0, np.inf)

    def __repr__(self) -> str:
        return f"L1(weights={describe(self.weights)})"
