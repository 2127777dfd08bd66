"""Potentials whose dual map is a difference of exponentials: depth-2 networks of every kind.

    w(z)  = exp(log_plus + rate z) - exp(log_minus - rate z)
    Q(w)  = (1/rate) [ Q2(w; s) + tilt w ],   Q(0) = 0
    Q2    = |w| (asinh(|w|/s) - |w| / (s + hypot(s, w))),   s = 2 exp((log_plus + log_minus)/2)
    Q*(z) = (1/rate) (exp((log_plus + rate z)/2) - exp((log_minus - rate z)/2))^2

with tilt = (log_minus - log_plus)/2.  [woodworth2020, Theorem 1; azulay2021, Theorem 1 and app. A]
A side at -inf is absent: then w keeps one sign and Q = (1/rate)(w log w - w - log_plus w); with
both absent the coordinate is frozen at 0.

Written this way because 2 - sqrt(4 + z^2) + z asinh(z/2) loses every digit for small z, and
s sinh z = 0 * inf for the scales that matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.extended import largest
from flowbias.ground.routing import Provides
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.potentials._base import EPS, Potential
from flowbias.potentials.scale import (
    Scale,
    describe,
    double_array,
    frozen_array,
    read_real,
    require,
    require_broadcast,
    working_array,
)

if TYPE_CHECKING:
    from flowbias.potentials.dual_map import ExponentialMap, Side

# Beyond this sinh is an exponential to all digits and is taken together with the scale.
_EXPONENTIAL = 700.0
_LOG_FIX = "Pass log|w+(0)^2|-like logarithms; -inf removes that side."


@dataclass(frozen=True, eq=False, init=False, repr=False)
class HyperbolicPotential(Potential):
    """The potential with w(z) = exp(log_plus + rate z) - exp(log_minus - rate z)."""

    log_plus: FloatArray
    log_minus: FloatArray
    rate: float
    log_unit: float
    _root: FloatArray = field(repr=False)  # exp((center + log_unit)/2)
    _twice_root: FloatArray = field(repr=False)

    def __init__(self, log_plus: ArrayLike, log_minus: ArrayLike, rate: float = 1.0) -> None:
        plus = read_real("log_plus", log_plus, _LOG_FIX)
        minus = read_real("log_minus", log_minus, _LOG_FIX)
        for name, log in (("log_plus", plus), ("log_minus", minus)):
            require(name, log, log < np.inf, "must be a number below inf", _LOG_FIX)
        require_broadcast("log_minus", minus, "log_plus", plus)
        speed = read_real("rate", rate, "Pass a positive number.")
        require(
            "rate",
            speed,
            (speed > 0) & (speed < np.inf),
            "must be > 0 and finite",
            "Pass 1.0 for tied weights, 2.0 for untied ones.",
        )
        with np.errstate(invalid="ignore"):
            quarter = 0.25 * plus + 0.25 * minus
        start = Scale(None, np.where(np.isfinite(quarter), quarter, 0.0))
        self._install(plus, minus, float(speed), start)

    @classmethod
    def centred(cls, sides: Iterable[FloatArray], rate: float = 1.0) -> HyperbolicPotential:
        """Of a biased start whose bias is in the shift: the even function of the unbiased case."""
        plus, minus = np.broadcast_arrays(*sides)
        centre = 0.5 * plus + 0.5 * minus
        both = np.isfinite(centre)
        return cls(np.where(both, centre, plus), np.where(both, centre, minus), rate)

    def _install(self, plus: FloatArray, minus: FloatArray, rate: float, start: Scale) -> None:
        """Set the fields; start is exp((log_plus + log_minus)/4) wherever both sides exist."""
        if plus is minus:
            plus = minus = frozen_array(plus)
        else:
            plus, minus = (frozen_array(log) for log in np.broadcast_arrays(plus, minus))
        known = {}
        if plus is minus and plus.ndim == 0 and plus.item() > -np.inf:
            # One number for all: what is derived below is known at once.
            top = plus.item()
            reach = min(_EXPONENTIAL, 709.0 - top) / rate if top <= 600.0 else -1.0
            known = {"_is_tilted": False, "_all_two_sided": True, "_plain_reach": reach}
        else:
            finite = plus[np.isfinite(plus) & np.isfinite(minus)]
            top = float(finite.max()) if finite.size else -np.inf
        # Above e^600 the dual w / s comes close to underflow: it is measured in units of about 1/s.
        unit = -top if top > 600.0 else 0.0
        root = np.asarray(start.power(1.0, 0.5 * unit))
        root.setflags(write=False)
        fields = {"log_plus": plus, "log_minus": minus, "rate": rate, "log_unit": unit}
        self.__dict__.update(fields, _root=root, _twice_root=2.0 * root, **known)

    # What follows from the fields, when it is asked for: of a tied start next to nothing is.

    @cached_property
    def _two_sided(self) -> NDArray[np.bool_]:
        return np.isfinite(self.log_plus) & np.isfinite(self.log_minus)

    @cached_property
    def _all_two_sided(self) -> bool:
        return bool(self._two_sided.all())

    @cached_property
    def _sign(self) -> FloatArray:
        """Of a one-sided coordinate; 0 if frozen."""
        return np.isfinite(self.log_plus) * 1.0 - np.isfinite(self.log_minus) * 1.0

    @cached_property
    @np.errstate(all="ignore")
    def _center(self) -> FloatArray:
        """(log_plus + log_minus)/2; 0 where a side is absent."""
        return np.where(self._two_sided, 0.5 * self.log_plus + 0.5 * self.log_minus, 0.0)

    @cached_property
    @np.errstate(all="ignore")
    def _tilt(self) -> FloatArray:
        return np.where(self._two_sided, 0.5 * self.log_minus - 0.5 * self.log_plus, 0.0)

    @cached_property
    @np.errstate(all="ignore")
    def _tilt_in_units(self) -> FloatArray:
        return np.where(self._tilt == 0.0, 0.0, self._tilt * np.exp(-self.log_unit))

    @cached_property
    def _is_tilted(self) -> bool:
        return self.log_plus is not self.log_minus and bool(self._tilt.any())

    @cached_property
    def _plain_reach(self) -> float:
        """|z| up to which w = s sinh(rate z) as it stands, in all coordinates; below 0 for none."""
        if self.log_unit != 0.0 or self._is_tilted or not self._all_two_sided:
            return -1.0
        # Neither the sinh nor its product with s = 2 exp(log_plus) overflows.
        top = float(self.log_plus.max()) if self.log_plus.size else 0.0
        return min(_EXPONENTIAL, 709.0 - top) / self.rate

    def _plain_argument(self, z: FloatArray) -> FloatArray | None:
        """rate z where no coordinate needs any of the branches: the common case, free of them."""
        z = working_array(z)
        reach = self._plain_reach
        # The length of z is had for less than its largest entry, and mostly enough.
        is_short = np.vdot(z, z) <= reach * reach or np.abs(z).max(initial=0.0) <= reach
        if not (reach > 0.0 and is_short):
            return None
        return z if self.rate == 1.0 else self.rate * z

    provides = frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL})
    evaluation_rounding = 4.0 * EPS

    @property
    def shape_of_w(self) -> tuple[int, ...]:
        return self.log_plus.shape

    def dual_map(self, d: int) -> ExponentialMap:
        from flowbias.ground.balls import as_balls
        from flowbias.potentials.dual_map import ExponentialMap

        def side(logs: FloatArray) -> Side:
            balls = as_balls(np.where(np.isfinite(logs), logs, 0.0), d)
            present = np.broadcast_to(np.isfinite(logs), (d,))
            return [ball if here else None for ball, here in zip(balls, present, strict=True)]

        return ExponentialMap(side(self.log_plus), side(self.log_minus), self.rate)

    # --- from dual to primal -------------------------------------------------------------------

    def grad_dual(self, z: FloatArray) -> FloatArray:
        plain = self._plain_argument(z)
        if plain is None:
            return self._branched_grad_dual(z)
        return self._twice_root * (self._root * np.sinh(plain))

    @np.errstate(all="ignore")
    def _branched_grad_dual(self, z: FloatArray) -> FloatArray:
        scaled = self._scaled_argument(z)
        if self.log_unit != 0.0:
            w = 2.0 * self._root * (self._root * scaled * _sinh_ratio(self._in_own_units(scaled)))
        else:
            w = 2.0 * self._root * (self._root * np.sinh(scaled))
            if not self._is_moderate(scaled):
                plus, minus = self._exponents(z)
                w = np.where(self._is_far(scaled), np.exp(plus) - np.exp(minus), w)
        return self._where_two_sided(w, lambda: self._sign * self._one_sided_size(z))

    def hess_dual(self, z: FloatArray) -> FloatArray:
        plain = self._plain_argument(z)
        if plain is None:
            return self._branched_hess_dual(z)
        slope = self._twice_root * (self._root * np.cosh(plain))
        return slope if self.rate == 1.0 else self.rate * slope

    @np.errstate(all="ignore")
    def _branched_hess_dual(self, z: FloatArray) -> FloatArray:
        scaled = self._scaled_argument(z)
        slope = 2.0 * self._root * (self._root * np.cosh(self._in_own_units(scaled)))
        if self.log_unit == 0.0 and not self._is_moderate(scaled):
            plus, minus = self._exponents(z)
            slope = np.where(self._is_far(scaled), np.exp(plus) + np.exp(minus), slope)

        def one_sided() -> FloatArray:
            return np.abs(self._sign) * self._one_sided_size(z, self.log_unit)

        return self.rate * self._where_two_sided(slope, one_sided)

    @np.errstate(all="ignore")
    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        # 4 exp(center) sinh(./2)^2: the difference of exponentials cancels near its minimum.
        scaled = self._scaled_argument(z)
        if self.log_unit != 0.0:
            half = 0.5 * self._in_own_units(scaled)
            terms = np.square(self._root * scaled * _sinh_ratio(half))
        else:
            terms = np.square(2.0 * self._root * np.sinh(0.5 * scaled))
            if not self._is_moderate(scaled):
                plus, minus = self._exponents(z)
                far = np.square(np.exp(0.5 * plus) - np.exp(0.5 * minus))
                terms = np.where(self._is_far(scaled), far, terms)

        def one_sided() -> FloatArray:
            return np.abs(self._sign) * self._one_sided_size(z, -self.log_unit)

        return self._where_two_sided(terms, one_sided) / self.rate

    def scale_derivative(self, z: FloatArray) -> FloatArray:
        """2 w: both exponentials carry the square of the scale."""
        return 2.0 * self.grad_dual(z)

    @np.errstate(all="ignore")
    def hess_growth(self, z: FloatArray, radius: FloatArray | float) -> FloatArray:
        """exp(rate radius): each exponential grows by exactly that factor at most."""
        growth = np.exp(self.rate * self._in_own_units(np.asarray(radius, dtype=np.float64)))
        if growth.shape == np.shape(z) and self.log_plus.size in (1, growth.size):
            return growth
        shape = np.broadcast_shapes(np.shape(z), growth.shape, self.log_plus.shape)
        return np.broadcast_to(growth, shape).copy()

    def growth_along(self, z: FloatArray, rise: FloatArray) -> Callable[[float], float]:
        """exp(rate reach max |rise|)."""
        farthest = self.rate * (largest(np.abs(rise)) if rise.size else 0.0)
        if self.log_unit != 0.0:
            farthest = float(self._in_own_units(np.asarray(farthest)))
        return lambda reach: math.exp(reach * farthest) if reach * farthest < 709.0 else np.inf

    def dual_rounding(self, z: FloatArray) -> FloatArray:
        """An error of all logarithms is one of the scale; one per coordinate counts."""
        logs = self.log_plus
        if logs.size < 2 or (logs == logs.flat[0]).all():
            return np.zeros(np.shape(z))
        return self._rounding_of_logs(z)

    def law_rounding(self, z: FloatArray) -> FloatArray:
        return self._rounding_of_logs(z)

    def _rounding_of_logs(self, z: FloatArray) -> FloatArray:
        """Logarithms of starts round to their own size, and so does the middle of two.

        That is a relative error of w = s sinh(rate z): a change of z by its share of w / w'(z).
        """
        logs = np.where(np.isfinite(self.log_plus), self.log_plus, self.log_minus)
        logs = np.where(np.isfinite(logs), np.abs(logs), 0.0)
        with np.errstate(over="ignore"):
            farthest = np.exp(-self.log_unit) / self.rate
        centred = self._two_sided & (self._tilt == 0.0)
        # tanh(rate z) / rate is no more than either.
        moved = np.where(centred, np.minimum(np.abs(z), farthest), farthest)
        return np.asarray(4.0 * EPS * (1.0 + logs) * moved)

    # --- from primal to dual -------------------------------------------------------------------

    @np.errstate(all="ignore")
    def grad(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        ratio_in_units = self._ratio(w)
        ratio = self._in_own_units(ratio_in_units)
        argument = self._argument(w, ratio)
        if self.log_unit != 0.0:
            # For small ratio asinh(ratio) may underflow although its quotient by the unit does not.
            small = ratio_in_units * _asinh_ratio(ratio) + self._tilt_in_units
            large = argument * np.exp(-0.5 * self.log_unit) * np.exp(-0.5 * self.log_unit)
            argument = np.where(np.abs(ratio) < 1e-3, small, large)
        return self._where_two_sided(argument, lambda: self._one_sided_argument(w)) / self.rate

    @np.errstate(all="ignore")
    def value_terms(self, w: FloatArray) -> FloatArray:
        w = double_array(w)
        ratio_in_units = np.abs(self._ratio(w))
        ratio = self._in_own_units(ratio_in_units)
        largest = np.exp(-self.log_unit)
        share = np.where(ratio < np.inf, ratio_in_units / (1.0 + np.hypot(1.0, ratio)), largest)
        terms = np.where(w == 0.0, 0.0, w * self.grad(w) - np.abs(w) * share / self.rate)
        return self._where_two_sided(terms, lambda: self._one_sided_value(w))

    # --- shared pieces -------------------------------------------------------------------------

    def _ratio(self, w: FloatArray) -> FloatArray:
        """w/s in units; 0 first, because for the smallest starts s underflows."""
        return np.where(w == 0.0, 0.0, w / self._root / self._root * 0.5)

    def _scaled_argument(self, z: FloatArray) -> FloatArray:
        return np.asarray(self.rate * working_array(z) - self._tilt_in_units)

    def _exponents(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        move = self.rate * working_array(z)
        return self.log_plus + move, self.log_minus - move

    def _is_far(self, scaled: FloatArray) -> NDArray[np.bool_]:
        """Where two exponentials are better than a sinh: it overflows, or the tilt cancels."""
        # With a tilt, rate z - tilt rounds more than either exponent; near 0 only the sinh will do.
        threshold = np.where(self._tilt == 0.0, _EXPONENTIAL, 1.0)
        if scaled.dtype == np.longdouble:
            reaches = (threshold == _EXPONENTIAL) & (self._root > 0.0)
            # Extended precision keeps a scale's own digits where the double must use logs.
            farther = _EXPONENTIAL if np.finfo(np.longdouble).maxexp <= 1024 else 11_000.0
            threshold = np.where(reaches, farther, threshold)
        return np.abs(scaled) > threshold

    def _is_moderate(self, scaled: FloatArray) -> bool:
        """Whether a sinh serves every coordinate: the common case, kept free of branches."""
        return not self._is_tilted and bool(np.abs(scaled).max(initial=0.0) <= _EXPONENTIAL)

    def _in_own_units(self, scaled: FloatArray) -> FloatArray:
        """scaled * exp(log_unit), in halves because the unit itself may underflow."""
        if self.log_unit == 0.0:
            return scaled
        half = np.exp(0.5 * self.log_unit)
        return np.asarray(scaled * half * half)

    def _argument(self, w: FloatArray, ratio: FloatArray) -> FloatArray:
        """rate z = asinh(w/s) + tilt, by logarithms where w/s overflows or the tilt cancels."""
        plain = np.arcsinh(ratio)
        inverse = 1.0 / ratio
        correction = np.square(inverse) / (2.0 * (1.0 + np.hypot(1.0, inverse)))
        log_size = np.log(np.abs(w)) + np.log1p(correction)
        side = np.where(w > 0.0, self._center - self._tilt, self._center + self._tilt)
        by_logs = np.copysign(1.0, w) * (log_size - side)
        cancels = np.abs(self._tilt) > np.maximum(np.abs(log_size), np.abs(side))
        use_logs = np.isinf(ratio) | (cancels & (np.abs(ratio) > 1.0))
        return np.where(use_logs, by_logs, plain + self._tilt)

    def _where_two_sided(
        self, two_sided: FloatArray, otherwise: Callable[[], FloatArray]
    ) -> FloatArray:
        if self._all_two_sided:
            return two_sided
        return np.where(self._two_sided, two_sided, otherwise())

    def _one_sided_log(self) -> FloatArray:
        return np.where(self._sign > 0, self.log_plus, self.log_minus)

    def _one_sided_size(self, z: FloatArray, log_factor: float = 0.0) -> FloatArray:
        """|w(z)| exp(log_factor) where one side exists; 0 where none does."""
        move = self._sign * self.rate * self._in_own_units(working_array(z))
        return np.asarray(np.exp(self._one_sided_log() + move + log_factor))

    def _one_sided_argument(self, w: FloatArray) -> FloatArray:
        argument = self._sign * (np.log(self._sign * w) - self._one_sided_log())
        frozen = np.where(w == 0.0, 0.0, np.nan)
        return np.where(self._sign == 0.0, frozen, argument * np.exp(-self.log_unit))

    def _one_sided_value(self, w: FloatArray) -> FloatArray:
        size = self._sign * w
        terms = size * (np.log(size) - self._one_sided_log() - 1.0) / self.rate
        inside = np.where(size > 0.0, terms * np.exp(-self.log_unit), np.inf)
        return np.where(w == 0.0, 0.0, inside)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(log_plus={describe(self.log_plus)}, "
            f"log_minus={describe(self.log_minus)}, rate={self.rate:g})"
        )


def _sinh_ratio(x: FloatArray) -> FloatArray:
    """sinh(x)/x, 1 at 0."""
    return np.where(x == 0.0, 1.0, np.sinh(x) / np.where(x == 0.0, 1.0, x))


def _asinh_ratio(x: FloatArray) -> FloatArray:
    """asinh(x)/x, 1 at 0."""
    return np.where(x == 0.0, 1.0, np.arcsinh(x) / np.where(x == 0.0, 1.0, x))
