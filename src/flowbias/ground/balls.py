"""Ball arithmetic of any precision: FLINT's, with its one setting guarded.

A ball holds every number that its true value may be, so that what is computed with balls is proved.
FLINT keeps the precision in a variable of the process: `precision` is the only place that sets it,
one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import numpy as np
from flint import arb, arb_mat, ctx

from flowbias.ground.typing import FloatArray

_IN_USE = RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Balls with this many bits inside the block; other threads wait."""
    with _IN_USE:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def as_balls(values: FloatArray | float, d: int) -> list[arb]:
    """The d doubles of `values`, or the one of all, exactly."""
    return [arb(float(value)) for value in np.broadcast_to(values, (d,))]


def as_matrix(values: FloatArray) -> arb_mat:
    """A matrix of doubles, exactly."""
    return arb_mat(values.tolist())


def column(values: Iterable[arb]) -> arb_mat:
    """The balls as a matrix of one column."""
    return arb_mat([[value] for value in values])


def midpoints(values: Iterable[arb]) -> list[arb]:
    """The middles of all balls, exact numbers."""
    return [value.mid() for value in values]


def to_doubles(values: Sequence[arb]) -> FloatArray:
    """The doubles nearest to the middles."""
    return np.array([float(value.mid()) for value in values])


def length(values: Iterable[arb]) -> arb:
    """The largest that the Euclidean norm may be."""
    return sum((value.abs_upper() ** 2 for value in values), arb(0)).sqrt().upper()


def above(value: arb) -> float:
    """A double at least as large as every number in the ball; inf where there is none."""
    if value.is_nan():
        return math.inf
    return math.nextafter(float(value.upper()), math.inf)


def largest(values: Iterable[arb]) -> arb:
    """A ball whose upper end is that of the largest."""
    return max((value.upper() for value in values), default=arb(0))
