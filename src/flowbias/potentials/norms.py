"""The two limits every potential interpolates: the weighted l1 norm and the squared l2 norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowbias.ground.routing import Provides
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials._base import Potential
from flowbias.potentials.scale import (
    describe,
    double_array,
    read_real,
    require,
    require_broadcast,
    working_array,
)

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import LinearMap, Side

_WEIGHT_FIX = "Remove coordinates that should not be penalized, or give them a small weight."


def _read_weights(weights: ArrayLike) -> FloatArray:
    read = read_real("weights", weights, "Pass one positive number, or one per coordinate.")
    require("weights", read, (read > 0) & (read < np.inf), "must be > 0 and finite", _WEIGHT_FIX)
    return read


def _read_costs(name: str, weights: ArrayLike) -> FloatArray:
    read = read_real(name, weights, "Pass one positive number, or one per coordinate.")
    require(name, read, read > 0, "must be > 0", "Pass inf for a side that is closed.")
    return read


@dataclass(frozen=True, eq=False, init=False, repr=False)
class L2(Potential):
    """sum weights w^2 / 2: the kernel limit.

    Parameters
    ----------
    weights : one number, or one per feature

    >>> fb.L2().value(np.array([3.0, -4.0]))
    12.5
    """

    weights: FloatArray

    def __init__(self, weights: ArrayLike = 1.0) -> None:
        object.__setattr__(self, "weights", _read_weights(weights))

    def value_terms(self, w: FloatArray) -> FloatArray:
        return 0.5 * double_array(w) * self.grad(w)

    def grad(self, w: FloatArray) -> FloatArray:
        return self.weights * double_array(w)

    def grad_dual(self, z: FloatArray) -> FloatArray:
        return working_array(z) / self.weights

    def hess_dual(self, z: FloatArray) -> FloatArray:
        return np.broadcast_arrays(1.0 / self.weights, working_array(z))[0].copy()

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        return 0.5 * working_array(z) * self.grad_dual(z)

    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """1: the second derivative is constant."""
        return np.ones(np.broadcast_shapes(np.shape(z), np.shape(radius), self.weights.shape))

    def dual_map(self, d: int) -> LinearMap:
        from flowbias.ground.balls import as_balls
        from flowbias.potentials.dual_map import LinearMap

        return LinearMap(as_balls(self.weights, d))

    def __repr__(self) -> str:
        return f"L2(weights={describe(self.weights)})"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class L1(Potential):
    """sum weights |w|: the rich limit. Not smooth, so it provides no potential to solve with.

    Parameters
    ----------
    weights : one number, or one per feature
    negative_weights : what negative w cost, the same by default; other numbers for a biased start,
        where a side that costs infinitely much is closed
    source, rounding : of whose rich limit it is, and how far its weights may be off

    >>> fb.L1().value(np.array([3.0, -4.0])), fb.L1(weights=2.0).value(np.array([3.0, -4.0]))
    (7.0, 14.0)
    """

    weights: FloatArray
    negative_weights: FloatArray
    #: the potential whose rich end this is, where that knows the weights to more digits
    source: Potential | None
    #: how far data that were rounded may put costs off, relatively, that are the same
    rounding: float

    def __init__(
        self,
        weights: ArrayLike = 1.0,
        negative_weights: ArrayLike | None = None,
        *,
        source: Potential | None = None,
        rounding: float = 0.0,
    ) -> None:
        if negative_weights is None:
            positive = negative = _read_weights(weights)
        else:
            positive = _read_costs("weights", weights)
            negative = _read_costs("negative_weights", negative_weights)
            require_broadcast("negative_weights", negative, "weights", positive)
        object.__setattr__(self, "weights", positive)
        object.__setattr__(self, "negative_weights", negative)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "rounding", rounding)

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.COSTS})

    def costs(self, d: int) -> tuple[Side, Side]:
        """What a unit of w costs on either side, in balls; None where that side is closed."""
        from flowbias.ground.balls import as_balls

        plus, minus = (
            [cost if cost.is_finite() else None for cost in as_balls(weights, d)]
            for weights in (self.weights, self.negative_weights)
        )
        law = None if self.source is None else self.source.dual_map(d)
        if law is None:
            return plus, minus
        known = law.costs()
        # In the units of the weights: those of one of them.
        pairs = zip(plus + minus, [*known[0], *known[1]], strict=True)
        unit = next(a / b for a, b in pairs if a is not None and b is not None)
        plus, minus = ([None if cost is None else unit * cost for cost in side] for side in known)
        return plus, minus

    def value_terms(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        cost = np.where(w > 0.0, self.weights, self.negative_weights)
        return np.where(w == 0.0, 0.0, cost * np.abs(np.where(w == 0.0, 1.0, w)))

    def grad(self, w: FloatArray) -> FloatArray:
        """A subgradient: the weight with the sign of w, 0 at 0."""
        w = double_array(w)
        return np.where(w > 0.0, self.weights, np.where(w < 0.0, -self.negative_weights, 0.0))

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
        """0 in the box -negative_weights <= z <= weights, inf outside."""
        z = working_array(z)
        inside = (z <= self.weights) & (z >= -self.negative_weights)
        return np.where(inside, 0.0, np.inf)

    def __repr__(self) -> str:
        if self.negative_weights is self.weights:
            return f"L1(weights={describe(self.weights)})"
        sides = f"{describe(self.weights)}, negative_weights={describe(self.negative_weights)}"
        return f"L1(weights={sides})"
