"""Potentials whose dual map has poles: depth 3 and more.  [woodworth2020, Theorem 3]

    w(z)  = gain h(z / reach),   h(x) = (1-x)^-k - (1+x)^-k,   k = depth/(depth-2)
    Q(w)  = reach gain q(w / gain),   q = integral of h^{-1}
    Q*(z) = reach gain ((1-x)^-m + (1+x)^-m - 2) / m,   x = z/reach,   m = k - 1 = 2/(depth-2)

with gain = a^depth for a start of size a, and reach = a^(2-depth) in units of exp(log_unit).
The natural dual coordinate is t = atanh(x), in which h = 2 cosh(t)^k sinh(k t) and
q(h) = h tanh t - (2/m) expm1(m log cosh t + log cosh m t): no cancellation at either end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowbias.ground.arguments import WIDEST, InputError
from flowbias.ground.routing import Provides
from flowbias.ground.typing import FloatArray
from flowbias.potentials._base import EPS, Potential
from flowbias.potentials.scale import (
    double_array,
    frozen_array,
    product_error,
    read_real,
    require,
    working_array,
)

_LOG2 = float(np.log(2.0))
# Below it h(x) = 2 k x and q(h) = h^2 / (4 k) to all digits, x or t times k being what counts.
LINEAR = 1e-9
_DEPTH_FIX = "Depth 2 has its own potential, Hypentropy; depth 1 is the plain L2 norm."


def check_depth(depth: float) -> float:
    """The depth as a float, or a ValueError."""
    value = read_real("depth", depth, "Pass one number, for instance depth=3.")
    if value.ndim:
        raise InputError(
            f"depth: must be a single number, got {depth!r}. Pass depth=3 for instance."
        )
    require("depth", value, (value > 2.0) & (value < np.inf), "must be > 2 and finite", _DEPTH_FIX)
    require("depth", value, value <= WIDEST**0.5, "must be at most 1e150", _DEPTH_FIX)
    return float(value)


class PolePotential(Potential):
    """What poles of order k make of any start of depth D."""

    depth: float

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.POTENTIAL, Provides.POWER_DUAL})

    @property
    def exponent(self) -> float:
        """k = depth/(depth-2), the order of the poles of w(z)."""
        return self.depth / (self.depth - 2.0)

    def scale_derivative(self, z: FloatArray) -> FloatArray:
        """D w + (D-2) z w', from w(z; r a) = r^D w(r^(D-2) z; a)."""
        z = working_array(z)
        return self.depth * self.grad_dual(z) + (self.depth - 2.0) * z * self.hess_dual(z)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class PowerPotential(PolePotential):
    """The algebra shared by potentials with w(z) = gain h(z/reach); subclasses set the numbers."""

    depth: float
    log_plus: FloatArray
    log_minus: FloatArray
    log_unit: float
    reach: FloatArray = field(repr=False)  # the dual domain is (-reach, reach)
    _log_reach: FloatArray = field(repr=False)
    _log_gain: FloatArray = field(repr=False)
    _inverse_root_gain: FloatArray = field(repr=False)  # gain^(-1/2): the root, for its range
    _slope: FloatArray = field(repr=False)  # gain / reach
    _energy: FloatArray = field(repr=False)  # gain * reach

    def _install(
        self,
        depth: float,
        log_start: FloatArray,
        log_unit: float,
        *,
        inverse_root_gain: FloatArray,
        reach: FloatArray,
        slope: FloatArray,
        energy: FloatArray,
        logs: tuple[FloatArray, FloatArray],
    ) -> None:
        """Set the fields; logs are those of gain and reach, either of which may overflow."""
        arrays = {
            "log_plus": log_start,
            "log_minus": log_start,
            "reach": reach,
            "_slope": slope,
            "_energy": energy,
            "_log_gain": logs[0],
            "_log_reach": logs[1],
            "_inverse_root_gain": inverse_root_gain,
        }
        for name, array in arrays.items():
            object.__setattr__(self, name, frozen_array(array))
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "log_unit", log_unit)

    # --- from dual to primal -------------------------------------------------------------------

    @np.errstate(all="ignore")
    def grad_dual(self, z: FloatArray) -> FloatArray:
        """w(z); infinite at and beyond the ends of the dual domain."""
        z = working_array(z)
        x, k = np.abs(z) / self.reach, exponent_of(self.depth, z)
        # (1-x)^-k (1 - ((1-x)/(1+x))^k): one pole, and expm1 keeps the digits of small x.
        shape = rest_to_power(x, -k) * -np.expm1(-2.0 * k * np.arctanh(x))
        # Divided by x: for very large starts reach is inf while the slope is an ordinary number.
        ratio = np.where(k * x < LINEAR, 2.0 * k, shape / x)
        w = self._slope * ratio * z
        # For depths close to 2 the pole overflows while the slope underflows.
        lost = (x < 1.0) & ~np.isfinite(w)
        if lost.any():
            far = np.exp(self._log_gain - k * np.log1p(-x))
            w = np.where(lost, np.copysign(far, z), w)
        return np.where(x < 1.0, w, np.copysign(np.inf, z))

    @np.errstate(all="ignore")
    def hess_dual(self, z: FloatArray) -> FloatArray:
        z = working_array(z)
        x, k = np.abs(z) / self.reach, exponent_of(self.depth, z)
        bend = rest_to_power(x, -k - 1.0) + rest_to_power(-x, -k - 1.0)
        slope = k * self._slope * bend
        lost = (x < 1.0) & ~np.isfinite(slope)
        if lost.any():
            far = np.exp(self._log_gain - self._log_reach - (k + 1.0) * np.log1p(-x))
            slope = np.where(lost, k * far, slope)
        return np.where(x < 1.0, slope, np.inf)

    @np.errstate(all="ignore")
    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        """Q*(z); infinite at and beyond the ends of the dual domain."""
        z = working_array(z)
        x = np.abs(z) / self.reach
        # Not by the square of z, which may be no double where w and z w are.
        small = self.exponent * self._slope * z * z
        terms = self._conjugate_at(np.arctanh(x))
        return np.where(x < 1.0, np.where(self.exponent * x < LINEAR, small, terms), np.inf)

    @np.errstate(all="ignore")
    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """(1 - radius/slack)^-(k+1), slack the distance of z to the nearer end of the domain."""
        slack = self.reach - np.abs(np.asarray(z, dtype=np.float64))
        return power_growth(slack, radius, self.exponent)

    def dual_rounding(self, z: FloatArray) -> FloatArray:
        """An error of all reaches is a rescaled dual and harmless; one per coordinate is not.

        It moves w as a change of z by its share of reach tanh((k+1) atanh(z / reach)) would.
        """
        uneven = bool(np.any(self.reach != self.reach.flat[0])) if self.reach.size else False
        moved = np.minimum(self.reach, (self.exponent + 1.0) * np.abs(z))
        return np.asarray(uneven * self.evaluation_rounding * moved)

    @property
    def evaluation_rounding(self) -> float:
        """Powers of the start; in units of its own they come by logarithms, which round more."""
        return power_rounding(self.depth, self.log_plus, self.log_unit)

    # --- from primal to dual -------------------------------------------------------------------

    @np.errstate(all="ignore")
    def grad(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        t = self._natural_dual(w)
        # Where k t is a tiny number or t underflows, the linear map w / w'(0) is exact.
        linear = self.exponent * t < LINEAR
        return np.where(linear, self._linear_grad(w), np.copysign(self.reach * np.tanh(t), w))

    @np.errstate(all="ignore")
    def value_terms(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        t = self._natural_dual(w)
        small = 0.5 * w * self._linear_grad(w)
        dual = self._conjugate_at(t)
        linear = self.exponent * t < LINEAR
        return np.where(linear, small, np.abs(w) * self.reach * np.tanh(t) - dual)

    def _conjugate_at(self, t: FloatArray) -> FloatArray:
        """Q* at the natural dual t: ((1-x)^-m + (1+x)^-m - 2)/m times the energy, x = tanh t."""
        growth = log_cosh_sum(t, self.depth)
        # By its logarithm where t is large: energy alone may underflow, its product does not.
        far = np.exp(growth + self._log_gain + self._log_reach) - self._energy
        near = self._energy * np.expm1(np.minimum(growth, 30.0))
        return np.where(growth > 30.0, far, near) * (self.depth - 2.0)

    @np.errstate(all="ignore")
    def dual_slack(self, w: FloatArray) -> FloatArray:
        """reach - |grad(w)| with full relative accuracy, where the subtraction would give 0."""
        w, k = np.abs(double_array(w)), self.exponent
        t = self._natural_dual(w)
        slack = 2.0 * np.exp(-np.logaddexp(2.0 * t, 0.0))
        # One turn of slack = (w/gain + (2-slack)^-k)^(-1/k) removes the rounding of exp(2t).
        ratio = self._ratio(w)
        turned = _inverse_root(ratio + np.power(2.0 - slack, -k), self.depth)
        near = self.reach * np.where(ratio > 1.0, turned, slack)
        far = 2.0 * np.exp(self._log_reach - np.logaddexp(2.0 * t, 0.0))
        return np.where(ratio < np.inf, near, far)

    def _ratio(self, size: FloatArray) -> FloatArray:
        """|w|/gain, in halves because the gain itself may leave the double range."""
        ratio = size * self._inverse_root_gain * self._inverse_root_gain
        return np.where(size == 0.0, 0.0, ratio)

    def _linear_grad(self, w: FloatArray) -> FloatArray:
        # 0 first: for the smallest starts the slope at 0 underflows.
        return np.where(w == 0.0, 0.0, w / (2.0 * self.exponent * self._slope))

    def _natural_dual(self, w: FloatArray) -> FloatArray:
        """|t| for each w: h(tanh t) = w/gain."""
        size = np.abs(w)
        return solve_natural_dual(self._ratio(size), np.log(size) - self._log_gain, self.depth)


def power_rounding(depth: float, log_start: FloatArray, log_unit: float) -> float:
    """Relative rounding of start^(2D - 2) and lower powers."""
    finite = np.isfinite(log_start)
    largest = float(np.max(np.abs(log_start), initial=0.0, where=finite)) if log_unit else 0.0
    return EPS * (4.0 + depth * (1.0 + 2.0 * largest))


def exponent_of(depth: float, z: FloatArray) -> Any:
    """k = depth/(depth-2) in the precision of z: close to depth 2 a unit in its last place counts.

    A power with exponent k has a relative error of |log| of its value times that of k.
    """
    exact = z.dtype.type(depth)
    return exact / (exact - 2)


def rest_to_power(x: FloatArray, order: FloatArray) -> FloatArray:
    """(1-x)^order: by log1p where 1-x rounds, which a large order would amplify."""
    return np.where(x < 0.5, np.exp(order * np.log1p(-x)), np.power(1.0 - x, order))


def _inverse_root(base: FloatArray, depth: float) -> FloatArray:
    """base^(-1/k), 1/k = (depth-2)/depth: its rounding is undone, for log(base) amplifies it."""
    order = (depth - 2.0) / depth
    product = order * depth
    remainder = ((depth - 2.0 - product) - product_error(order, np.asarray(depth), product)) / depth
    return np.power(base, -order) * (1.0 - remainder * np.log(base))


def power_growth(slack: FloatArray, radius: FloatArray | float, k: float) -> FloatArray:
    """(1 - radius/slack)^-(k+1); inf once the radius reaches the end of the domain."""
    rest = 1.0 - np.asarray(radius, dtype=np.float64) / slack
    return np.where((slack > 0.0) & (rest > 0.0), np.power(np.maximum(rest, 0.0), -k - 1.0), np.inf)


def log_cosh(t: FloatArray) -> FloatArray:
    """log cosh t for t >= 0, accurate at 0 and free of overflow."""
    near = np.log1p(2.0 * np.square(np.sinh(0.5 * np.minimum(t, 1.0))))
    return np.where(t < 1.0, near, t - _LOG2 + np.log1p(np.exp(-2.0 * t)))


def log_cosh_sum(t: FloatArray, depth: float) -> FloatArray:
    """m log cosh t + log cosh(m t) with m = 2/(depth-2)."""
    m = 2.0 / (depth - 2.0)
    return m * log_cosh(t) + log_cosh(m * t)


def solve_natural_dual(ratio: FloatArray, log_ratio: FloatArray, depth: float) -> FloatArray:
    """t >= 0 with 2 cosh(t)^k sinh(k t) = ratio; log_ratio serves where ratio overflows.

    The start log1p(ratio)/(2k) is a lower bound, since cosh t <= e^t. Newton on the logarithm is
    nearly linear in t; a last step in linear form removes the rounding of the logarithm.
    """
    k = depth / (depth - 2.0)
    safe_log = np.where(ratio > 0.0, log_ratio, 0.0)
    t = np.where(np.isinf(ratio), safe_log, np.log1p(ratio)) / (2.0 * k)
    t = np.where(ratio > 0.0, t, 1.0)
    # From there at most 5 steps for 2.001 <= depth <= 1000 (measured).
    for _ in range(12):
        log_h = _LOG2 + k * log_cosh(t) + k * t + np.log(-0.5 * np.expm1(-2.0 * k * t))
        step = (log_h - safe_log) / (k * np.tanh(t) + k / np.tanh(k * t))
        t = t - step
        if not np.any(np.abs(step) > 1e-9 * t):
            break
    h = 2.0 * np.exp(k * log_cosh(t)) * np.sinh(k * t)
    step = (h / ratio - 1.0) / (k * np.tanh(t) + k / np.tanh(k * t))
    t = np.where((ratio < 1e280) & (ratio > 1e-290), t - step, t)
    # Small ratios, and NaN, which has no t.
    return np.where(ratio >= 1e-9, t, ratio / (2.0 * k))
