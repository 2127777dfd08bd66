"""Depth D >= 3 from a biased start, w+(0) != w-(0); the dual is counted from the start.

    w(z) = (c_plus - z)^-k - (c_minus + z)^-k,   c = |w(0)|^(2-D),   k = D/(D-2),   z = 0 at start

on (-c_minus, c_plus). The midpoint of that interval is the dual point of a tied start whose reach
is half its length, so `grad` is the tied one, shifted. Q is normalized to vanish at the start,
which makes Q the Bregman form of section 2 of the theory: the limit minimizes it as it stands.
A branch at log = -inf is absent: w keeps one sign, or is frozen at 0 without either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials.depth import power_log_unit
from flowbias.potentials.power import (
    PolePotential,
    check_depth,
    exponent_of,
    power_growth,
    power_rounding,
    rest_to_power,
    solve_natural_dual,
)
from flowbias.potentials.scale import (
    Scale,
    describe,
    double_array,
    frozen_array,
    log_ratio_of,
    read_real,
    require,
    require_broadcast,
    working_array,
)

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import PowerMap, Side

_OVERFLOW_FIX = "Use DepthPotential for an unbiased start of that size, or rescale the data."
_LOG_FIX = "Pass log|w+(0)| and log|w-(0)|; -inf removes that branch."


class _Branch(NamedTuple):
    """(c -+ z)^-k = amplitude (1 -+ z/reach)^-k; an absent one has amplitude 0, reach inf."""

    sign: float
    reach: FloatArray
    log_reach: FloatArray
    amplitude: FloatArray
    log_energy: FloatArray  # log(amplitude * reach)


class SideWeights(NamedTuple):
    """|w(0)| of one side: sizes, of which only those that are present count."""

    size: Scale
    present: NDArray[np.bool_]

    @property
    def log(self) -> FloatArray:
        return np.where(self.present, self.size.log, -np.inf)

    def log_balls(self, d: int) -> Side:
        present = np.broadcast_to(self.present, (d,))
        logs = self.size.log_balls(d)
        return [log if here else None for log, here in zip(logs, present, strict=True)]


def _branch(sign: float, weights: SideWeights, depth: float, unit: float) -> _Branch:
    start, present = weights
    reach = np.where(present, start.power(2.0 - depth, -unit), np.inf)
    present = present & np.isfinite(reach)
    log_reach = np.where(present, (2.0 - depth) * start.log - unit, np.inf)
    amplitude = np.where(present, start.power(depth), 0.0)
    log_energy = np.where(present, 2.0 * start.log - unit, -np.inf)
    return _Branch(sign, *map(frozen_array, (reach, log_reach, amplitude, log_energy)))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class BiasedDepthPotential(PolePotential):
    """Potential of w = w+^D - w-^D from |w+(0)| = exp(log_plus), |w-(0)| = exp(log_minus)."""

    depth: float
    log_plus: FloatArray
    log_minus: FloatArray
    log_unit: float
    start: FloatArray  # w(0)
    _weights: tuple[SideWeights, SideWeights] = field(repr=False)
    _plus: _Branch = field(repr=False)
    _minus: _Branch = field(repr=False)

    def __init__(self, depth: float, log_plus: ArrayLike, log_minus: ArrayLike) -> None:
        sides = []
        for name, log in (("log_plus", log_plus), ("log_minus", log_minus)):
            read = read_real(name, log, _LOG_FIX)
            require(name, read, read < np.inf, "must be a number below inf", _LOG_FIX)
            present = np.isfinite(read)
            sides.append(
                SideWeights(Scale(None, frozen_array(np.where(present, read, 0.0))), present)
            )
        self._begin(check_depth(depth), *sides)

    @classmethod
    def from_weights(
        cls, depth: float, plus: SideWeights, minus: SideWeights
    ) -> BiasedDepthPotential:
        """From the weights themselves, as models have them."""
        potential = cls.__new__(cls)
        potential._begin(check_depth(depth), plus, minus)
        return potential

    def _begin(self, depth: float, plus_weights: SideWeights, minus_weights: SideWeights) -> None:
        plus, minus = frozen_array(plus_weights.log), frozen_array(minus_weights.log)
        # exp(709) is about the largest double, and w(0) = |w+(0)|^D - |w-(0)|^D must be one.
        largest = 709.0
        for name, log in (("log_plus", plus), ("log_minus", minus)):
            limit = f"must be < {largest:g}/depth = {largest / depth:.6g}"
            require(name, log, depth * log < largest, limit, _OVERFLOW_FIX)
        require_broadcast("log_minus", minus, "log_plus", plus)
        # The larger weight has the nearer pole; the flow never sees much of the other side.
        nearer = np.maximum(plus, minus)
        unit = power_log_unit(depth, nearer[np.isfinite(nearer)])
        with np.errstate(all="ignore"):
            branches = (
                _branch(1.0, plus_weights, depth, unit),
                _branch(-1.0, minus_weights, depth, unit),
            )
            amplitude_plus, amplitude_minus = (branch.amplitude for branch in branches)
            log_ratio = depth * log_ratio_of(plus_weights.size, minus_weights.size)
            both = plus_weights.present & minus_weights.present
            close = both & (np.abs(log_ratio) < 1.0)
            # expm1, because w(0) itself cancels for a nearly unbiased start.
            near = amplitude_minus * np.expm1(log_ratio)
            start = np.where(close, near, amplitude_plus - amplitude_minus)
        fields = {
            "depth": depth,
            "log_plus": plus,
            "log_minus": minus,
            "log_unit": unit,
            "_weights": (plus_weights, minus_weights),
            "start": frozen_array(start),
            "_plus": branches[0],
            "_minus": branches[1],
        }
        for name, entry in fields.items():
            object.__setattr__(self, name, entry)

    def dual_map(self, d: int) -> PowerMap:
        from flowbias.potentials.dual_map import PowerMap

        plus, minus = (side.log_balls(d) for side in self._weights)
        return PowerMap(plus, minus, self.depth)

    # --- from dual to primal -------------------------------------------------------------------

    @np.errstate(all="ignore")
    def grad_dual(self, z: FloatArray) -> FloatArray:
        """w(z); infinite at and beyond the ends of the dual domain."""
        z = working_array(z)
        w = self._excess(z, np.zeros(()))
        above, below = z >= self._plus.reach, z <= -self._minus.reach
        return np.where(above, np.inf, np.where(below, -np.inf, w))

    @np.errstate(all="ignore")
    def hess_dual(self, z: FloatArray) -> FloatArray:
        z = working_array(z)
        return self._slope_of(self._plus, z) + self._slope_of(self._minus, z)

    @np.errstate(all="ignore")
    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        """Q*(z), 0 at z = 0; infinite at and beyond the ends of the dual domain."""
        z = working_array(z)
        rests = (np.log1p(-b.sign * z / b.reach) for b in (self._plus, self._minus))
        terms = self._conjugate_less(np.zeros(()), z, *rests)
        inside = (z < self._plus.reach) & (z > -self._minus.reach)
        return np.where(inside, terms, np.inf)

    @np.errstate(all="ignore")
    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """(1 - radius/slack)^-(k+1), slack the distance of z to the nearer end of the domain."""
        z = np.asarray(z, dtype=np.float64)
        slack = np.minimum(self._plus.reach - z, self._minus.reach + z)
        return power_growth(slack, radius, self.exponent)

    def dual_rounding(self, z: FloatArray) -> FloatArray:
        """Each end of the domain is rounded; what that does to w, as a change of z."""
        slopes = [self._slope_of(branch, z) for branch in (self._plus, self._minus)]
        ends = [np.where(np.isfinite(b.reach), b.reach, 0.0) for b in (self._plus, self._minus)]
        moved = slopes[0] * ends[0] + slopes[1] * ends[1]
        total = slopes[0] + slopes[1]
        with np.errstate(all="ignore"):
            share = np.where(total > 0.0, moved / total, 0.0)
        # Next to a pole both slopes may overflow; the error there is that of the pole.
        return self.evaluation_rounding * np.where(np.isfinite(share), share, np.maximum(*ends))

    @property
    def evaluation_rounding(self) -> float:
        return max(
            power_rounding(self.depth, log, self.log_unit)
            for log in (self.log_plus, self.log_minus)
        )

    # --- from primal to dual -------------------------------------------------------------------

    @np.errstate(all="ignore")
    def grad(self, w: FloatArray) -> FloatArray:
        """Dual point of w, counted from the start; NaN where w has the sign of an absent branch."""
        return self._dual_point(double_array(w))[0]

    @np.errstate(all="ignore")
    def value_terms(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        z, *rests = self._dual_point(w)
        terms = -self._conjugate_less(w, z, *rests)
        # At w = 0 a one-sided z is infinite; z w - Q* tends to the branch's energy over m.
        log_energy = np.maximum(self._plus.log_energy, self._minus.log_energy)
        at_zero = 0.5 * (self.depth - 2.0) * np.exp(log_energy)
        one_sided = np.where(w == 0.0, at_zero, np.where(np.isnan(z) & ~np.isnan(w), np.inf, terms))
        return np.where(self._is_two_sided(), terms, one_sided)

    def _dual_point(self, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """z, and log(1 -+ z/reach) of both branches, which z no longer tells close to a pole."""
        z, log_plus, log_minus = self._two_sided_point(w)
        slack = np.minimum(self._plus.reach - z, self._minus.reach + z)
        # One Newton step: the shift by the midpoint rounds, the excess over w does not.
        step = self._excess(z, w) / self.hess_dual(z)
        z = np.where(np.abs(step) < 1e-6 * slack, z - step, z)
        two_sided = self._is_two_sided()
        if np.all(two_sided):
            return z, log_plus, log_minus
        only_plus, only_log_plus = self._one_sided_point(self._plus, w)
        only_minus, only_log_minus = self._one_sided_point(self._minus, w)
        has_plus, has_minus = np.isfinite(self._plus.reach), np.isfinite(self._minus.reach)
        frozen = np.where(w == 0.0, 0.0, np.nan)
        one_sided = np.where(has_plus, only_plus, np.where(has_minus, only_minus, frozen))
        return (
            np.where(two_sided, z, one_sided),
            np.where(two_sided, log_plus, np.where(has_plus, only_log_plus, 0.0)),
            np.where(two_sided, log_minus, np.where(has_minus, only_log_minus, 0.0)),
        )

    def _two_sided_point(self, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        log_half = np.logaddexp(self._plus.log_reach, self._minus.log_reach) - np.log(2.0)
        size = np.abs(w)
        log_ratio = np.log(size) + self.exponent * (log_half + self.log_unit)
        t = solve_natural_dual(np.exp(log_ratio), log_ratio, self.depth)
        t = np.copysign(t, w)
        log_slack_plus = log_half + np.log(2.0) - np.logaddexp(2.0 * t, 0.0)
        log_slack_minus = log_half + np.log(2.0) - np.logaddexp(-2.0 * t, 0.0)
        # Measured from the nearer pole, whose distance is the smaller number.
        from_plus = self._plus.reach - np.exp(log_slack_plus)
        from_minus = np.exp(log_slack_minus) - self._minus.reach
        z = np.where(t >= 0.0, from_plus, from_minus)
        return z, log_slack_plus - self._plus.log_reach, log_slack_minus - self._minus.log_reach

    def _one_sided_point(self, branch: _Branch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        log_amplitude = branch.log_energy - branch.log_reach
        log_rest = -(np.log(branch.sign * w) - log_amplitude) / self.exponent
        return -branch.sign * branch.reach * np.expm1(log_rest), log_rest

    # --- shared pieces -------------------------------------------------------------------------

    def _is_two_sided(self) -> NDArray[np.bool_]:
        return np.isfinite(self._plus.reach) & np.isfinite(self._minus.reach)

    @np.errstate(all="ignore")
    def _slope_of(self, branch: _Branch, z: FloatArray) -> FloatArray:
        """What one branch adds to w'(z)."""
        k, x = exponent_of(self.depth, z), branch.sign * z / branch.reach
        rest = rest_to_power(np.minimum(x, 1.0), -k - 1.0)
        return np.asarray(k * branch.amplitude / branch.reach * rest)

    def _excess(self, z: FloatArray, w: FloatArray) -> FloatArray:
        """w(z) - w, by the increments since the start where z is small against both reaches."""
        x_plus, x_minus = z / self._plus.reach, -z / self._minus.reach
        k = exponent_of(self.depth, z)
        near = (self.start - w) + (
            self._plus.amplitude * np.expm1(-k * np.log1p(-x_plus))
            - self._minus.amplitude * np.expm1(-k * np.log1p(-x_minus))
        )
        far = self._plus.amplitude * rest_to_power(np.minimum(x_plus, 1.0), -k) - (
            self._minus.amplitude * rest_to_power(np.minimum(x_minus, 1.0), -k)
        )
        is_near = np.maximum(np.abs(x_plus), np.abs(x_minus)) < 0.1
        return np.where(is_near, near, far - w)

    def _conjugate_less(
        self, w: FloatArray, z: FloatArray, rest_plus: FloatArray, rest_minus: FloatArray
    ) -> FloatArray:
        """Q*(z) - z w, given log(1 -+ z/reach) of both branches.

        Near the start the linear parts of both branches and z w cancel, so they are left out.
        """
        m = 2.0 / (self.depth - 2.0)
        bent, full = np.zeros(()), np.zeros(())
        is_near = np.ones((), dtype=bool)
        for branch, rest in ((self._plus, rest_plus), (self._minus, rest_minus)):
            x = branch.sign * z / branch.reach
            bent = bent + np.exp(branch.log_energy) * _bent_series(x, m)
            full = full + _energy(branch, x, rest, m)
            # Below it by the series; above it the closed form loses less than 2 digits.
            is_near = is_near & (np.abs(x) * (1.0 + m) < 0.05)
        return np.where(is_near, z * (self.start - w) + bent, full - z * w)

    def __repr__(self) -> str:
        return (
            f"BiasedDepthPotential(depth={self.depth:g}, log_plus={describe(self.log_plus)}, "
            f"log_minus={describe(self.log_minus)})"
        )


def _energy(branch: _Branch, x: FloatArray, log_rest: FloatArray, m: float) -> FloatArray:
    """amplitude reach ((1-x)^-m - 1)/m, the branch's part of the conjugate."""
    # Close to the pole only the caller knows the rest; elsewhere x is the better source.
    growth = -m * np.where(x < 0.5, np.log1p(-x), log_rest)
    energy = np.exp(branch.log_energy)
    # Together with its factor where large: the energy may underflow although the product does not.
    far = np.exp(branch.log_energy + growth) - energy
    terms = np.where(growth < 1.0, energy * np.expm1(np.minimum(growth, 1.0)), far) / m
    return np.where(np.isfinite(branch.reach), terms, 0.0)


def _bent_series(x: FloatArray, m: float) -> FloatArray:
    """((1-x)^-m - 1)/m - x = sum_{n>=2} (m+1)...(m+n-1) x^n / n!, for small x (Horner)."""
    total = np.zeros_like(x)
    for n in range(13, 2, -1):  # 0.05^13 < 2^-53 relative to the first term
        total = (m + n - 1.0) / n * x * (1.0 + total)
    return 0.5 * (m + 1.0) * np.square(x) * (1.0 + total)
