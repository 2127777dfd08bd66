"""What callers give, read and checked; and the error that says what is wrong with it."""

from __future__ import annotations

import inspect
import math
import reprlib
import sys
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Larger counts leave the degrees of freedom of a wide product's Gram matrix no double, and have too
# many digits for a message.
WIDEST = 1e300
# Rows of an array: what an index can count.
LARGEST_SIZE = int(np.iinfo(np.intp).max)


class InputError(ValueError):
    """Input that cannot be used: names the argument, the constraint, the value and the fix.

    >>> try:
    ...     fb.min_norm([[1.0, float("nan")]], [1.0])
    ... except fb.InputError as error:
    ...     print(error)
    X: must be finite, got nan at index (0, 1). Drop or impute such entries.
    """


def read_size(name: str, size: Any, meaning: str) -> int:
    """A positive integer, such as the number of features."""
    count = read_count(name, size, f"Pass {meaning}.")
    if count > LARGEST_SIZE:
        raise InputError(f"{name}: must be <= {LARGEST_SIZE}, got {shown(size)}. Pass {meaning}.")
    return count


def read_count(name: str, value: Any, meaning: str, at_least: int = 1) -> int:
    """A whole number, such as the number of units of a layer."""
    # bool is an Integral, but n=True is a slip, not a size.
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < at_least:
        raise InputError(f"{name}: must be an integer >= {at_least}, got {value!r}. {meaning}")
    return int(value)


def read_positive(name: str, value: Any, meaning: str) -> float:
    """A finite number above zero."""
    number = as_float(value)
    if number is None or not 0.0 < number < math.inf:
        raise InputError(f"{name}: must be a finite number > 0, got {shown(value)}. {meaning}")
    return number


def read_nonnegative(name: str, value: Any, meaning: str) -> float:
    """A finite number that may be zero."""
    number = as_float(value)
    if number is None or not 0.0 <= number < math.inf:
        raise InputError(f"{name}: must be a finite number >= 0, got {shown(value)}. {meaning}")
    return number


def read_tolerance(name: str, value: Any) -> float:
    """What a certificate or a stopping rule is held to."""
    number = as_float(value)
    if number is None or not 0.0 < number < math.inf:
        raise InputError(
            f"{name}: must be a positive number, got {shown(value)}. Leave it out for the default."
        )
    return number


def real_array(name: str, values: Any, fix: str) -> NDArray[Any]:
    """Real numbers of any dtype, as they are; those that no dtype holds, as doubles.

    Whether they are finite is left to the caller. A string of digits is no number, nor is None,
    though NumPy reads both; and complex numbers do not lose their imaginary part.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(
            f"{name}: must hold real numbers, got rows of different lengths. {fix}"
        ) from None
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind == "O":  # integers beyond 64 bits, fractions, decimals, or no numbers
        numbers = [as_float(entry) for entry in array.flat]
        if None not in numbers:
            return np.array(numbers, dtype=np.float64).reshape(array.shape)
    raise InputError(f"{name}: must hold real numbers, got {shown(values)}. {fix}")


def as_array(values: Any) -> NDArray[Any]:
    """A NumPy array of a tensor (also one on a GPU), an array or nested lists."""
    # A tensor can only be given where torch is loaded already.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return np.asarray(values.detach().cpu())
    return np.asarray(values)


def as_reals(name: str, values: Any, fix: str) -> NDArray[Any]:
    """`real_array`, also of a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = as_array(values)
    return real_array(name, values, fix)


def as_float(value: Any) -> float | None:
    """A real number as a float; None for anything else, for bools and for what has no float."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer or a fraction beyond the doubles
        return None


def takes(function: Any, count: int) -> bool:
    """Whether it can be called with so many arguments, as far as it says what it takes."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # built-in functions may not say
        return True
    return True


def shown(value: Any) -> str:
    """The value as an error message quotes it: integers of hundreds of digits by their length."""
    if isinstance(value, int) and abs(value) > WIDEST:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 200 else reprlib.repr(value)


def read_rng(rng: Any) -> np.random.Generator:
    """A generator, or the seed of one."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, Integral) or rng < 0:
        raise InputError(
            f"rng: must be an integer >= 0 or a numpy Generator, got {rng!r}. "
            "Pass a seed, or a generator from numpy.random.default_rng."
        )
    return np.random.default_rng(int(rng))


def refuse_masked(name: str, value: Any) -> None:
    """InputError where entries of a NumPy array are masked: what is below the mask is no data."""
    if np.ma.is_masked(value):
        raise InputError(
            f"{name}: must hold plain numbers, got {int(value.mask.sum())} masked entries of "
            f"{value.size}. Drop their rows, or fill them: {name}.filled(0.0)."
        )


def depth_inside() -> int:
    """How many calls up the first line outside the package is: the `stacklevel` of a warning."""
    package = __name__.partition(".")[0]
    frame, depth = sys._getframe(1), 1
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == package
    ):
        frame, depth = frame.f_back, depth + 1
    return depth
