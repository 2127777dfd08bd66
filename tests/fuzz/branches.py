"""The two parts of a coordinate as functions of its dual, w = p - m, in ball arithmetic.

Every diagonal network minimizes, over parts p, m >= 0 with B (p - m) = b, a sum of one convex
function phi per part (theory, section 3). With z = B^T nu and u the logarithm of a common factor
on all weights of the start,

    depth 2    p = e^{l + u + z},         phi'(p) = log p - l - u         = z
    depth D    p = e^{D u} (c - z)^-k,    phi'(p) = c - mu p^(2/D - 1)    = z

    k = D / (D - 2),   mu = e^{(D-2) u}

and m is the same at -z, with its own l or c. A part whose weight starts at zero is absent: None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flint import arb

Number = Any
Vector = list[Any]

# How far an entry of B^T slope may exceed one by rounding where it is one.
FEASIBLE = arb("1e-45")


def largest(values: Vector) -> Number:
    return max((abs(value).mid() for value in values), default=arb(0))


class Branches(Protocol):
    """What the path and the proof ask of a network."""

    def parts(self, u: Number, z: Vector) -> tuple[Vector, Vector]:
        """p and m."""

    def slopes(self, z: Vector, plus: Vector, minus: Vector) -> Vector:
        """dw/dz > 0."""

    def contains(self, z: Vector) -> bool:
        """Whether z is a dual at all."""

    def reduction(self, z: Vector, dz: Vector) -> tuple[Number, Number]:
        """The size r of a Newton step, and the fraction of it along which the dual surely falls.

        Where the Hessian grows by at most g(s) after a fraction s, the step is safe until the
        integral of g reaches one.
        """

    def abscissa(self, u: Number) -> Number:
        """The function of u in which nu becomes linear as u falls."""

    def log_rate(self, u: Number) -> Number:
        """d log p / d abscissa at a fixed dual."""

    def size_rate(self) -> Number:
        """d log p / d u at the start."""

    def longest_settling_step(self) -> Number:
        """In u, of a path that ends where w does not change any more."""

    def no_part_grows(self, slope: Vector) -> bool:
        """Whether duals that move along B^T slope stay feasible for the l1 problem."""

    def divergence(self, u: Number, to: Number, at: Number) -> Number:
        """D_phi(to, at) = phi(to) - phi(at) - phi'(at) (to - at)."""

    def radius(self, u: Number, gap: Number, to: Number) -> Number:
        """A bound of |to - x| for all x with D_phi(to, x) <= gap."""


@dataclass(frozen=True)
class Exponentials:
    """Depth 2: p = e^{plus + u + z}, m = e^{minus + u - z}."""

    plus: Vector
    minus: Vector

    def parts(self, u: Number, z: Vector) -> tuple[Vector, Vector]:
        up = [None if a is None else (a + u + x).exp() for a, x in zip(self.plus, z, strict=True)]
        down = [
            None if a is None else (a + u - x).exp() for a, x in zip(self.minus, z, strict=True)
        ]
        return up, down

    def slopes(self, z: Vector, plus: Vector, minus: Vector) -> Vector:
        return [(p or 0) + (m or 0) for p, m in zip(plus, minus, strict=True)]

    def contains(self, z: Vector) -> bool:
        return True

    def reduction(self, z: Vector, dz: Vector) -> tuple[Number, Number]:
        r = largest(dz)  # g = e^{s r}
        return r, (r.log1p() / r).mid() if r > 0 else arb(1)

    def abscissa(self, u: Number) -> Number:
        return u

    def log_rate(self, u: Number) -> Number:
        return arb(1)

    def size_rate(self) -> Number:
        return arb(1)

    def longest_settling_step(self) -> Number:
        return arb(10) ** 40

    def no_part_grows(self, slope: Vector) -> bool:
        rising = [-x for x, part in zip(slope, self.plus, strict=True) if part is not None]
        rising += [x for x, part in zip(slope, self.minus, strict=True) if part is not None]
        return all(x <= 1 + FEASIBLE for x in rising)

    def divergence(self, u: Number, to: Number, at: Number) -> Number:
        return to * (to / at).log() - to + at

    def radius(self, u: Number, gap: Number, to: Number) -> Number:
        """From D(to, x) >= (to - x)^2 / (2 max(to, x))."""
        return gap + (gap * gap + 2 * gap * to).sqrt()


@dataclass(frozen=True)
class Powers:
    """Depth D > 2: p = e^{D u} (plus - z)^-k, m = e^{D u} (minus + z)^-k."""

    plus: Vector
    minus: Vector
    depth: Number

    @property
    def k(self) -> Number:
        return self.depth / (self.depth - 2)

    def _slacks(self, z: Vector) -> tuple[Vector, Vector]:
        up = [None if c is None else c - x for c, x in zip(self.plus, z, strict=True)]
        down = [None if c is None else c + x for c, x in zip(self.minus, z, strict=True)]
        return up, down

    def parts(self, u: Number, z: Vector) -> tuple[Vector, Vector]:
        front, k = self.depth * u, self.k
        up, down = (
            [None if s is None else (front - k * s.log()).exp() for s in side]
            for side in self._slacks(z)
        )
        return up, down

    def slopes(self, z: Vector, plus: Vector, minus: Vector) -> Vector:
        total, k = [arb(0)] * len(z), self.k
        for parts, slacks in zip((plus, minus), self._slacks(z), strict=True):
            for i, (part, slack) in enumerate(zip(parts, slacks, strict=True)):
                if part is not None:
                    total[i] += k * part / slack
        return total

    def contains(self, z: Vector) -> bool:
        return all(s is None or s > 0 for side in self._slacks(z) for s in side)

    def reduction(self, z: Vector, dz: Vector) -> tuple[Number, Number]:
        shares = [
            x / s
            for slacks in self._slacks(z)
            for x, s in zip(dz, slacks, strict=True)
            if s is not None
        ]
        r, k = largest(shares), self.k  # g = (1 - s r)^-(k+1)
        if not r > 0:
            return r, arb(1)
        return k * r, (-(-(k * r).log1p() / k).expm1() / r).mid()

    def abscissa(self, u: Number) -> Number:
        return ((self.depth - 2) * u).exp()

    def log_rate(self, u: Number) -> Number:
        return self.k / self.abscissa(u)

    def size_rate(self) -> Number:
        return self.depth

    def longest_settling_step(self) -> Number:
        """mu falls by 60 decades: slacks of its size must not leave the digits at hand."""
        return 60 * arb(10).log() / (self.depth - 2)

    def no_part_grows(self, slope: Vector) -> bool:
        return True  # c - z > 0 already makes z feasible for the l1 problem

    def _curved(self, mu: Number, x: Number) -> Number:
        """phi less its linear term."""
        return -mu * self.depth / 2 * (2 / self.depth * x.log()).exp()

    def divergence(self, u: Number, to: Number, at: Number) -> Number:
        mu = self.abscissa(u)
        slope = -mu * ((2 / self.depth - 1) * at.log()).exp()
        return self._curved(mu, to) - self._curved(mu, at) - slope * (to - at)

    def radius(self, u: Number, gap: Number, to: Number) -> Number:
        """From D(to, x) >= mu (1 - 2/D) max(to, x)^(2/D - 2) (to - x)^2 / 2."""
        order = 2 - 2 / self.depth
        ratio = 2 * gap / (self.abscissa(u) * (1 - 2 / self.depth))
        if not ratio > 0:
            return arb(0)
        # max(to, x) <= 2 max(to, |to - x|): the smaller or the larger of the two decides.
        near = ratio.sqrt() * (order / 2 * (2 * to).log()).exp()
        far = (self.depth / 2 * (ratio * arb(2) ** order).log()).exp()
        return max(near.upper(), far.upper())
