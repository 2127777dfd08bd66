"""One group of weights at the start: ordinary signed numbers times a scale that may be extreme.

    w(0) = base * scale

base keeps signs and zeros, scale the part that exp(-10000) is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.biased_depth import SideWeights
from flowbias.potentials.scale import Scale, describe, frozen_array, read_real, require
from flowbias.potentials.scale import log_ratio as log_ratio_of_sizes

# exp() of anything smaller in size, times a number of ordinary size, stays inside double range.
_SAFE_EXPONENT = 300.0
_SMALLEST, _LARGEST = 1e-150, 1e150


@dataclass(frozen=True, eq=False, repr=False)
class ScaledStart:
    """base * scale, per coordinate."""

    base: FloatArray
    scale: Scale

    @cached_property
    def sign(self) -> FloatArray:
        return frozen_array(np.sign(self.base))

    @cached_property
    def size(self) -> Scale:
        """|w(0)|, with an arbitrary 1 * scale where w(0) is zero: mask with `sign`."""
        return self.scale.times(np.where(self.base == 0.0, 1.0, np.abs(self.base)))

    @cached_property
    def log(self) -> FloatArray:
        """log |w(0)|, -inf where it is zero."""
        return frozen_array(np.where(self.base == 0.0, -np.inf, self.size.log))

    @cached_property
    def weights(self) -> SideWeights:
        """|w(0)| for potentials."""
        return SideWeights(self.size, self.base != 0.0)

    @cached_property
    def value(self) -> FloatArray:
        """w(0) as a number; 0 or inf where only its logarithm exists."""
        return frozen_array(self.sign * self.size.value)

    @np.errstate(all="ignore")
    def times_exp(self, exponent: FloatArray) -> FloatArray:
        """w(0) exp(exponent), together where either factor alone would leave the double range."""
        size = self.size.value
        ordinary = (size > _SMALLEST) & (size < _LARGEST) & (np.abs(exponent) < _SAFE_EXPONENT)
        by_factors = self.value * np.exp(exponent)
        by_logs = np.where(self.sign == 0.0, 0.0, self.sign * np.exp(self.size.log + exponent))
        return np.where(ordinary, by_factors, by_logs)

    def rescaled(self, log_scale: float) -> ScaledStart:
        """The same base; the scale's geometric mean over coordinates becomes exp(log_scale)."""
        log = self.scale.log
        spread = log - log.mean() if log.ndim else np.zeros(())
        return ScaledStart(self.base, Scale(None, frozen_array(log_scale + spread)))

    def __repr__(self) -> str:
        return describe(self.base)


@np.errstate(all="ignore")
def log_ratio(plus: ScaledStart, minus: ScaledStart) -> FloatArray:
    """log(|plus| / |minus|) for starts of one common scale; 0 where either is zero.

    By log1p where they are nearly equal: the difference of two logarithms rounds to their size.
    """
    first, second = np.abs(plus.base), np.abs(minus.base)
    absent = (first == 0.0) | (second == 0.0)
    return np.where(absent, 0.0, log_ratio_of_sizes(first, second))


def read_weights(name: str, values: ArrayLike) -> FloatArray:
    """A finite number or vector, or an error that names the argument."""
    weights = read_real(name, values, "Pass one number per feature, or one for all.")
    fix = "Pass one finite number per feature, or one for all."
    require(name, weights, np.isfinite(weights), "must be finite", fix)
    if weights.ndim > 1:
        raise InputError(
            f"{name}: must be a number or a vector, got shape {weights.shape}. "
            f"Pass {name}.ravel() if its entries belong to the features in order."
        )
    return weights
