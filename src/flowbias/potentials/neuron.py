"""What one linear neuron a <w, x> minimizes: a function of the predictor's length.

    q(v) = qhat(||v||),    qhat'(x) = 3/2 sqrt(sqrt(x^2 + delta^2/4) - delta/2),    qhat(0) = 0

for the predictor v = a w and delta = a^2 - ||w||^2, which the flow conserves.
[azulay2021, Theorem 2], whose qhat is ours minus max(delta, 0)^(3/2)/2; its linear term <z, v> is
-shift of the model.

Everything is simple in the weights that a predictor of length x = |a| m belongs to,

    a^2 = sqrt(x^2 + delta^2/4) + delta/2,    m = ||w|| = x/|a|:

    grad q(v) = 3/2 v/|a| = 3/2 sign(a) w,        hess_dual = 2/3 (|a| I + w w^T/|a|)
    q(v) = |a| (m^2 - delta/2) + max(delta, 0)^(3/2)/2,    q*(z) = (|a|^3 - max(delta, 0)^(3/2))/2.

delta < 0: q has a kink at 0, where grad fills the ball ||z|| <= 3/2 sqrt(-delta); grad_dual is 0 on
all of it. The formulas hold on either sign of a, as long as a keeps it (docs/theory/neurons.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.potentials.joint import JointPotential
from flowbias.potentials.scale import double_array


@dataclass(frozen=True)
class NeuronPotential(JointPotential):
    """q of one neuron with a^2 - ||w||^2 = delta."""

    delta: float

    def __post_init__(self) -> None:
        try:
            delta = float(self.delta)
        except (TypeError, ValueError):
            delta = np.nan
        # Weights up to 1e100: the potential has the size of their cubes.
        if not abs(delta) <= 1e200:
            raise InputError(
                f"delta: must be a finite number up to 1e+200 in size, got {self.delta!r}. "
                "It is a^2 - ||w||^2 of the start; rescale weights that large."
            )
        object.__setattr__(self, "delta", delta)

    # --- the weights behind a predictor, and behind a dual point ---------------------------------

    def weights(self, x: float) -> tuple[float, float]:
        """|a| and ||w|| of a neuron whose predictor has length x."""
        half = 0.5 * abs(self.delta)
        # The larger of the two has no cancellation, and the other is x divided by it.
        larger = float(np.sqrt(np.hypot(x, half) + half))
        smaller = 0.0 if larger == 0.0 else x / larger
        return (larger, smaller) if self.delta >= 0.0 else (smaller, larger)

    def outer_weight(self, m: float) -> float:
        """|a| = sqrt(delta + m^2) of a neuron with ||w|| = m; 0 where there is none."""
        root = float(np.sqrt(abs(self.delta)))
        if self.delta >= 0.0:
            return float(np.hypot(root, m))
        return 0.0 if m <= root else float(np.sqrt(m - root) * np.sqrt(m + root))

    # --- the potential ---------------------------------------------------------------------------

    def value(self, w: FloatArray) -> float:
        a, m = self.weights(_length(double_array(w)))
        if self.delta < 0.0:
            return 0.0 if a == 0.0 else a * (m * m - 0.5 * self.delta)
        root = float(np.sqrt(self.delta))
        if a == 0.0:
            return 0.0
        # |a| (m^2 - delta/2) + delta^(3/2)/2 without the cancellation; the fraction is at most
        # 3/2 a, and taken with one m after the other: the square may be below the double range.
        return m * (m * ((a * a + a * root - 0.5 * self.delta) / (a + root)))

    def grad(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        a, _ = self.weights(_length(w))
        # At a kink: the least subgradient.
        return np.zeros_like(w) if a == 0.0 else 1.5 * (w / a)

    def grad_dual(self, z: FloatArray) -> FloatArray:
        inner = double_array(z, "z") / 1.5
        return self.outer_weight(_length(inner)) * inner

    def hess_dual(self, z: FloatArray) -> FloatArray:
        inner = double_array(z, "z") / 1.5
        a = self.outer_weight(_length(inner))
        if a == 0.0:
            return np.zeros((inner.size, inner.size))
        # A tangential part |a| everywhere, and m^2/|a| more along z.
        return np.asarray((a * np.eye(inner.size) + np.outer(inner, inner / a)) / 1.5)

    def conjugate(self, z: FloatArray) -> float:
        m = _length(double_array(z, "z")) / 1.5
        a, root = self.outer_weight(m), float(np.sqrt(abs(self.delta)))
        if self.delta <= 0.0:
            # The length of z does not tell |a| apart from 0 this near the ball, and |a|^3 is then
            # far below the rounding of <z, w> = 3/2 m^2 |a|. 8: roundings of ||z||.
            near = 8.0 * float(np.finfo(float).eps) * root
            return 0.5 * a * a * a if m - root > near else 0.0
        # a^3 - root^3 = (a - root)(a^2 + a root + root^2), and (a - root)(a + root) = m^2.
        return 0.5 * m * (m * ((a * a + a * root + self.delta) / (a + root)))

    def determined(self, w: FloatArray) -> NDArray[np.bool_]:
        # At the kink grad is a whole ball, of which `grad` returns the centre.
        at_kink = self.delta < 0.0 and not np.any(w)
        return np.full(np.shape(w), not at_kink)

    # --- its curvature ---------------------------------------------------------------------------

    def curvatures(self, x: float) -> tuple[float, float]:
        """Eigenvalues of the Hessian of q at length x: along w and across it, radial <= tangential.

        3 |a|/(4 S) and 3/(2 |a|), S = sqrt(x^2 + delta^2/4); infinite at a kink.
        """
        a, _ = self.weights(x)
        S = float(np.hypot(x, 0.5 * self.delta))
        if a == 0.0:
            return (np.inf if S == 0.0 else 0.0), np.inf
        return 0.75 * a / S, 1.5 / a

    def strong_convexity(self, w: FloatArray, radius: float) -> float:
        """The least radial curvature: it rises with x up to S = -delta and falls from there on."""
        x = _length(w)
        nearest, farthest = max(x - radius, 0.0), x + radius
        return min(self.curvatures(nearest)[0], self.curvatures(farthest)[0])


@dataclass(frozen=True)
class BalancedNeuronPotential(NeuronPotential):
    """||w||^(3/2), what strictly balanced linear neurons minimize.  [azulay2021, Proposition 1]

    Of sum_i a_i w_i with a_i a_j = <w_i, w_j> for all i, j: all w_i = a_i e share one direction e,
    and the sum is one neuron with delta = 0, of outer weight ||a|| and inner weights ||a|| e. The
    balance of each neuron alone, |a_i| = ||w_i||, is not enough.
    """

    delta: float = field(default=0.0, init=False, repr=False)


def _length(v: FloatArray) -> float:
    return extended.length(np.asarray(v, dtype=np.float64))
