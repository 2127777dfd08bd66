"""The size of a start, read once and kept so that no digit is lost.

A scale such as exp(-10000) exists only as a logarithm, and a scale given as a number should not
take the detour through its logarithm, which costs |log scale| units in the last place. `Scale`
keeps whichever was given, and beside it the factor per coordinate: the product of the two rounds,
and the ratio of two coordinates is that of their factors alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import WIDEST, InputError, real_array, shown
from flowbias.ground.typing import ArrayLike, FloatArray

if TYPE_CHECKING:
    from flint import arb


def frozen_array(values: ArrayLike) -> FloatArray:
    """A read-only float64 copy."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


#: The shape of a start where all coordinates are alike.
ONE = frozen_array(1.0)


def working_array(values: ArrayLike, name: str = "z") -> FloatArray:
    """As float64, or in extended precision where the caller already works in it.

    An error that names the argument for anything but real numbers; NaN comes out as NaN.
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    array = real_array(name, values, "Pass one number per coordinate.")
    if array.dtype == np.longdouble:
        return array
    return array.astype(np.float64, copy=False)


def double_array(values: ArrayLike, name: str = "w") -> FloatArray:
    """As float64 whatever it was, with the same errors."""
    return working_array(values, name).astype(np.float64, copy=False)


def describe(values: FloatArray) -> str:
    """A number as such, an array as its size and range: for reprs and error messages."""
    if values.ndim == 0:
        return f"{values.item():.6g}"
    if values.size == 0:
        return "<empty>"
    return f"<{values.size} values in [{values.min():.6g}, {values.max():.6g}]>"


def read_real(name: str, values: ArrayLike, fix: str) -> FloatArray:
    """Read-only float64 copy of an argument, or a ValueError that names it."""
    try:
        given = np.asarray(values)  # numbers may be strings, as they come from files
        if given.dtype.kind == "c":
            raise TypeError("the imaginary part would be lost")
        return frozen_array(given)
    except (TypeError, ValueError, OverflowError):  # the last of integers beyond the doubles
        raise InputError(
            f"{name}: must be a real number or an array of them, got {shown(values)}. {fix}"
        ) from None


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


def require(
    name: str, values: FloatArray, valid: NDArray[np.bool_], constraint: str, fix: str
) -> None:
    """Raise a ValueError naming argument, constraint, first offending value and fix."""
    if not np.asarray(valid).all():
        bad = ~np.asarray(valid)
        first = np.broadcast_to(values, bad.shape)[bad].flat[0]
        raise InputError(f"{name}: {constraint}, got {first:.6g}. {fix}")


def require_broadcast(name: str, values: FloatArray, other_name: str, other: FloatArray) -> None:
    """Raise a ValueError if two per-coordinate arguments have different lengths."""
    try:
        np.broadcast_shapes(values.shape, other.shape)
    except ValueError:
        raise InputError(
            f"{name}: must broadcast against {other_name} of shape {other.shape}, "
            f"got shape {values.shape}. Pass one number, or one per coordinate."
        ) from None


_SCALE_FIX = "For scales too small or too large for a float pass log_scale=log(scale)."
_LOG_SCALE_FIX = "Pass the natural logarithm of the scale, for instance log_scale=-10.0."


@dataclass(frozen=True, eq=False, repr=False)
class Scale:
    """number * factor, the number given directly or by its natural logarithm; all are positive."""

    #: the number; None where it was given by its logarithm
    direct: FloatArray | None
    log_number: FloatArray
    factor: FloatArray | None = None
    #: the logarithm of the product, which rounds to its own size
    log: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        number, factor = self.log_number, self.factor
        log = number if factor is None else frozen_array(number + np.log(factor))
        self.__dict__["log"] = log

    @classmethod
    def read(
        cls, scale: ArrayLike | None, log_scale: ArrayLike | None, name: str = "scale"
    ) -> Scale:
        """Check the pair of arguments scale, log_scale of which exactly one must be given."""
        if scale is not None and log_scale is None:
            direct = read_real(name, scale, f"Pass {name}=0.1 for instance.")
            if direct.ndim or not 0.0 < direct.item() < np.inf:
                finite = np.isfinite(direct) & (direct > 0)
                require(name, direct, finite, "must be > 0 and finite", _SCALE_FIX)
            return cls(direct, frozen_array(np.log(direct)))
        if log_scale is not None and scale is None:
            log = read_real("log_scale", log_scale, _LOG_SCALE_FIX)
            require("log_scale", log, np.isfinite(log), "must be finite", _LOG_SCALE_FIX)
            # A few times the depth as far must be a double.
            inside = np.abs(log) <= WIDEST**0.5
            require("log_scale", log, inside, "must be at most 1e150 in size", _LOG_SCALE_FIX)
            return cls(None, log)
        got = "neither" if scale is None else "both"
        raise InputError(
            f"{name}, log_scale: exactly one of them must be given, got {got}. "
            f"Pass {name}=0.1, or log_scale=-10000.0 when the scale itself underflows."
        )

    @property
    def value(self) -> FloatArray:
        """The product; 0 or inf where only its logarithm exists."""
        if self.direct is None or self.factor is not None:
            return frozen_array(self.power(1.0))
        return self.direct

    def power(self, exponent: float, log_factor: float = 0.0) -> FloatArray:
        """(number * factor)^exponent * exp(log_factor), each power to a unit in its last place."""
        is_itself = exponent == 1.0 and log_factor == 0.0 and self.factor is None
        if is_itself and self.direct is not None:
            return self.direct
        return self._power(exponent, log_factor)

    @np.errstate(all="ignore")
    def _power(self, exponent: float, log_factor: float) -> FloatArray:
        number = self._power_of_number(exponent, log_factor)
        if self.factor is None:
            return number
        product = number * self.factor**exponent
        if np.all(np.isfinite(product) & (product > 0) & np.isfinite(number) & (number > 0)):
            return np.asarray(product)
        return _exp_of_product(exponent, self.log, log_factor)

    def _power_of_number(self, exponent: float, log_factor: float) -> FloatArray:
        if self.direct is not None:
            if log_factor == 0.0:
                return np.asarray(self.direct**exponent)
            # In halves, so that neither factor leaves the double range before the product does.
            half = np.asarray(self.direct ** (0.5 * exponent) * np.exp(0.5 * log_factor))
            if np.all(np.isfinite(half) & (half > 0)):
                return np.asarray(half * half)
        return _exp_of_product(exponent, self.log_number, log_factor)

    def times(self, factor: FloatArray) -> Scale:
        """Multiplied by an ordinary positive factor."""
        if factor.ndim == 0 and factor == 1.0:
            return self
        both = factor if self.factor is None else self.factor * factor
        return replace(self, factor=frozen_array(both))

    def log_balls(self, d: int) -> list[arb]:
        """The logarithms of the d numbers as they were given, in balls."""
        from flowbias.ground.balls import as_balls

        if self.direct is None:
            logs = as_balls(self.log_number, d)
        else:
            logs = [number.log() for number in as_balls(self.direct, d)]
        if self.factor is None:
            return logs
        factors = as_balls(self.factor, d)
        return [log + factor.log() for log, factor in zip(logs, factors, strict=True)]

    def __repr__(self) -> str:
        if self.direct is None:
            return f"log_scale={describe(self.log)}"
        return f"scale={describe(self.value)}"


class OfScale:
    """What a potential knows of the scale that its start was given by."""

    log_scale: FloatArray
    _start: Scale

    def _keep(self, start: Scale) -> None:
        self.__dict__.update(_start=start, log_scale=start.log)

    @property
    def scale(self) -> FloatArray:
        """The scale; 0 or inf where only its logarithm is a double."""
        return self._start.value

    def law_rounding(self, z: FloatArray) -> FloatArray:
        """None: `dual_map` starts from the numbers that were given."""
        return np.zeros(np.shape(z))


@dataclass(frozen=True, eq=False, repr=False)
class ScaledStart:
    """One group of weights at the start, base * scale, per coordinate.

    base keeps signs and zeros, scale the part that exp(-10000) is made of.
    """

    base: FloatArray
    scale: Scale
    #: |w(0)|, with an arbitrary 1 * scale where w(0) is zero: mask with `sign`
    size: Scale = field(init=False)

    def __post_init__(self) -> None:
        size = self.scale
        if self.base is not ONE:
            sizes = np.abs(self.base)
            size = size.times(sizes if sizes.all() else np.where(sizes == 0.0, 1.0, sizes))
        self.__dict__["size"] = size

    @cached_property
    def sign(self) -> FloatArray:
        return frozen_array(np.sign(self.base))

    @cached_property
    def log(self) -> FloatArray:
        """log |w(0)|, -inf where it is zero."""
        return frozen_array(np.where(self.base == 0.0, -np.inf, self.size.log))

    @cached_property
    def value(self) -> FloatArray:
        """w(0) as a number; 0 or inf where only its logarithm exists."""
        return frozen_array(self.sign * self.size.value)

    @np.errstate(all="ignore")
    def times_exp(self, exponent: FloatArray) -> FloatArray:
        """w(0) exp(exponent), together where either factor alone would leave the double range."""
        size = self.size.value
        # exp() of anything up to 300, times a number of ordinary size, stays inside double range.
        ordinary = (size > 1e-150) & (size < 1e150) & (np.abs(exponent) < 300.0)
        by_factors = self.value * np.exp(exponent)
        by_logs = np.where(self.sign == 0.0, 0.0, self.sign * np.exp(self.size.log + exponent))
        return np.where(ordinary, by_factors, by_logs)

    @np.errstate(all="ignore")
    def log_ratio(self, other: ScaledStart) -> FloatArray:
        """log(|self| / |other|) for starts of one common scale; 0 where either is zero."""
        first, second = np.abs(self.base), np.abs(other.base)
        absent = (first == 0.0) | (second == 0.0)
        return np.where(absent, 0.0, log_ratio(first, second))

    def __repr__(self) -> str:
        return describe(self.base)


@np.errstate(all="ignore")
def log_ratio_of(first: Scale, second: Scale) -> FloatArray:
    """log(first / second); by log1p where they are nearly equal multiples of one number.

    The difference of two logarithms rounds to their size.
    """
    if first.factor is None or second.factor is None or first.log_number is not second.log_number:
        return np.asarray(first.log - second.log)
    return log_ratio(first.factor, second.factor)


@np.errstate(all="ignore")
def log_ratio(first: FloatArray, second: FloatArray) -> FloatArray:
    """log(first / second) of positive numbers, by log1p where they are nearly equal."""
    near = np.log1p((first - second) / second)
    far = np.log(first) - np.log(second)
    return np.where((first > 0.5 * second) & (first < 2.0 * second), near, far)


def _exp_of_product(exponent: float, log: FloatArray, log_factor: float) -> FloatArray:
    """exp(exponent * log + log_factor), with the rounding of the product undone."""
    product = exponent * log
    error = product_error(exponent, log, product)
    return np.asarray(np.exp(product + log_factor) * (1.0 + error))


def product_error(a: float, b: FloatArray, product: FloatArray | float) -> FloatArray:
    """a*b - fl(a*b), exactly (Veltkamp splitting): what exp() of the product would amplify."""
    a_high, a_low = _split(np.float64(a))
    b_high, b_low = _split(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(x: FloatArray | np.float64) -> tuple[FloatArray, FloatArray]:
    big = np.asarray(134217729.0 * x)  # 2^27 + 1: halves the 53-bit significand
    high = big - (big - x)
    return high, x - high
