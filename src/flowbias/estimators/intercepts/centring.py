"""What an intercept can do, taken out of data to the last digit of what remains.

The share of values along e is known to the rounding of the values. Where their mean exceeds their
spread, what one projection leaves along e is then more than rounding of the rest: centred rows that
should depend on each other do not, and a limit would fit their difference as if it were data. A
second projection, of the rest, leaves nothing (twice is enough).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from flowbias.certificates.certificate import beside, measured
from flowbias.certificates.exact_limit import exact_limit
from flowbias.designs.dense import ArrayDesign
from flowbias.ground.typing import FloatArray
from flowbias.potentials import Potential, Provides
from flowbias.results.solution import Solution, status_of

# A row or column is rounding where centring leaves no more than this of the size of its entries.
CANCELLED = 16.0 * np.finfo(np.float64).eps
# A mean of centred values below this share of their size is their own rounding.
CENTRED = np.finfo(np.float64).eps


def centred(values: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """`values` (n, k) less the (weighted) means of their columns, and the means.

    Samples at the mean and constant columns come out as zeros, not as constraints made of rounding.
    Only whole rows and columns: a small entry set to zero would put the others off their mean.
    """
    mean = np.average(values, axis=0, weights=weight)
    rest = values - mean
    cancelled = np.abs(rest) <= CANCELLED * np.abs(values).max(axis=0)
    rest[:, cancelled.all(axis=0)] = 0.0
    away = ~cancelled.all(axis=1)
    rest[~away] = 0.0
    if away.any():
        again = np.average(rest[away], axis=0, weights=None if weight is None else weight[away])
        off = np.abs(again) > CENTRED * np.abs(rest).max(axis=0)
        rest[away] -= np.where(off, again, 0.0)
    return rest, np.asarray(mean)


def without(e: FloatArray, values: FloatArray) -> FloatArray:
    """The part of `values` (n, ...) orthogonal to e."""
    for _ in range(2):
        values = values - np.multiply.outer(e, e @ values / float(e @ e))
    return np.asarray(values)


def about_the_mean(
    solution: Solution, X: FloatArray, y: FloatArray, given: tuple[FloatArray, FloatArray]
) -> Solution:
    """The limit on the data given less their exact means, near that on (X, y), their doubles.

    Itself where that cannot be had.
    """
    potential, shift, tol = solution.potential, solution.shift, solution.certificate.tol
    if Provides.POTENTIAL not in potential.provides:
        return solution
    exact = exact_limit(X, y, cast(Potential, potential), shift, solution.dual, solution.w, given)
    if exact is None:
        return solution
    measures, candidate = measured(
        ArrayDesign(X), y, exact.w, exact.dual, potential, shift, tol=tol
    )
    proof = measures if candidate is None else beside(exact, measures, candidate)
    if not proof.ok:
        return solution
    return replace(
        solution,
        w=exact.w,
        dual=exact.dual,
        certificate=proof,
        status=status_of(proof, solution.distance),
        _sensitivity=solution.derivatives_at(exact.dual),
    )
