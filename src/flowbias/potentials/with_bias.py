"""A potential of the features beside a trained bias.

    Q(w, b) = Q(w) + weight b^2 / 2

The bias is an ordinary linear parameter: under the loss (c/2) ||X w + b 1 - y||^2 it moves by
b' = -c 1^T r while grad Q(w)' = -g c X^T r (g is the model's `mirror_rate`): with weight g both
follow one dual.  [woodworth2020, Theorem 1, with one more parameter]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.potentials._base import Potential
from flowbias.potentials.norms import L2
from flowbias.potentials.scale import working_array

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import DualMap

_Terms = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class WithBias(Potential):
    """`features` on the first d coordinates, weight b^2 / 2 on the last one."""

    features: Potential
    bias: L2
    d: int
    log_unit: float

    def __init__(self, features: Potential, weight: float, d: int) -> None:
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "bias", L2(weight))
        object.__setattr__(self, "d", d)
        object.__setattr__(self, "log_unit", features.log_unit)

    def value_terms(self, w: FloatArray) -> FloatArray:
        return self._joined(self.features.value_terms, self.bias.value_terms, w)

    def grad(self, w: FloatArray) -> FloatArray:
        return self._joined(self.features.grad, self.bias.grad, w)

    def grad_dual(self, z: FloatArray) -> FloatArray:
        return self._joined(self.features.grad_dual, self.bias.grad_dual, z)

    def hess_dual(self, z: FloatArray) -> FloatArray:
        return self._joined(self.features.hess_dual, self.bias.hess_dual, z)

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        return self._joined(self.features.conjugate_terms, self.bias.conjugate_terms, z)

    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        z, reach = self._spread(z), self._spread(radius)
        z, reach = np.broadcast_arrays(z, reach)
        growth = self.features.hess_growth(z[..., :-1], reach[..., :-1])
        return np.concatenate([growth, np.ones((*z.shape[:-1], 1))], axis=-1)

    def dual_map(self, d: int) -> DualMap | None:
        from flint import arb

        from flowbias.potentials.dual_map import JoinedMap, LinearMap

        features = self.features.dual_map(self.d)
        if features is None:
            return None
        # The weight is in units of the features' duals.
        weight = arb(float(self.bias.weights)) * arb(self.log_unit).exp()
        return JoinedMap(features, LinearMap([weight]), self.d)

    def scale_derivative(self, z: FloatArray) -> FloatArray | None:
        """Of the features; the bias starts at 0 whatever the scale."""
        z = self._spread(z)
        drift = self.features.scale_derivative(z[..., :-1])
        if drift is None:
            return None
        return np.concatenate([drift, np.zeros((*z.shape[:-1], 1))], axis=-1)

    def dual_rounding(self, z: FloatArray) -> FloatArray:
        return self._joined(self.features.dual_rounding, self.bias.dual_rounding, z)

    @property
    def evaluation_rounding(self) -> float:
        return self.features.evaluation_rounding

    def _spread(self, values: FloatArray | float) -> FloatArray:
        """With d + 1 entries in the last place, as a potential with one scale each would have."""
        array = np.atleast_1d(working_array(values))
        return np.broadcast_to(array, (*array.shape[:-1], self.d + 1))

    def _joined(self, features: _Terms, bias: _Terms, at: FloatArray) -> FloatArray:
        at = self._spread(at)
        return np.concatenate([features(at[..., :-1]), bias(at[..., -1:])], axis=-1)

    def __repr__(self) -> str:
        return f"WithBias({self.features!r}, weight={self.bias.weights:.6g}, d={self.d})"
