"""What an intercept can do, taken out of data to the last digit of what remains.

The share of values along e is known to the rounding of the values. Where their mean exceeds their
spread, what one projection leaves along e is then more than rounding of the rest: centred rows that
should depend on each other do not, and a limit would fit their difference as if it were data. A
second projection, of the rest, leaves nothing (twice is enough).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from flowbias.certificates.certificate import beside, measured
from flowbias.certificates.exact_limit import exact_limit
from flowbias.designs import Design
from flowbias.designs.dense import PIECE_NUMBERS, ArrayDesign, DenseBlock
from flowbias.designs.sparse import SparseBlock, SparseDesign
from flowbias.estimators.intercepts.frames import Frame, Samples, as_array, is_large
from flowbias.ground.extended import column_parts
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit
from flowbias.potentials import Potential, Provides
from flowbias.results.solution import Solution, Status, status_of

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


class Contrasts:
    """n - 1 orthonormal combinations of n rows that see no multiple of e: a reflection less a row.

    Of rows less their mean they say all there is, and are independent where those are not.
    """

    def __init__(self, e: FloatArray) -> None:
        self._axis = e / np.linalg.norm(e)
        self._axis[0] += 1.0

    def of(self, rows: FloatArray) -> FloatArray:
        """(n - 1, k) of rows (n, k)."""
        return self._reflected(rows)[1:]

    def adjoint(self, dual: FloatArray) -> FloatArray:
        """The dual (n,) of the rows, from that of their contrasts."""
        return self._reflected(np.append(0.0, dual))

    def _reflected(self, rows: FloatArray) -> FloatArray:
        axis = self._axis
        return np.asarray(rows - np.multiply.outer(axis, (axis @ rows) / axis[0]))


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


class CentredBlock(DenseBlock):
    """Some columns of X - e m^T."""

    def __init__(self, block: SparseBlock, e: FloatArray, m: FloatArray) -> None:
        self.values, self.columns, self.n = block.values, block.columns, block.n
        self.block, self.e, self.m = block, e, m

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // self.n)):
            yield part, self.values[:, part].toarray() - np.outer(self.e, self.m[part])

    def apply(self, w: FloatArray) -> FloatArray:
        return self.block.apply(w) - np.multiply.outer(self.e, self.m @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return self.block.adjoint(dual) - np.multiply.outer(self.m, self.e @ dual)

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        # Means in units of the largest: their squares may leave the double range.
        size = float(np.abs(self.m).max()) or 1.0
        m, e = self.m / size, row_scale * (size * self.e)
        across = np.outer(row_scale * self.block.apply(weights * m), e)
        total = self.block.gram(weights, row_scale) - across - across.T
        return total + float(weights @ m**2) * np.outer(e, e)


class CentredSparseDesign(Design):
    """A large sparse X less the means m of its columns, which would fill it: X - e m^T, as that.

    Products and X diag(c) X^T, which the solver takes at every step, are those of X and a
    correction of rank one. The few that a certificate takes besides go through dense pieces.
    """

    kind = "centred sparse"

    def __init__(self, X: Any, e: FloatArray, m: FloatArray) -> None:
        self.sparse, self.e, self.m = SparseDesign(X), e, m
        self.n, self.d = self.sparse.shape

    @property
    def dense_shape(self) -> tuple[int, int]:
        return self.sparse.dense_shape

    def blocks(self) -> Iterator[CentredBlock]:
        for block in self.sparse.blocks():
            yield CentredBlock(block, self.e, self.m[block.columns])


# --- the frame of centred data -------------------------------------------------------------------


@dataclass(frozen=True)
class CentredFrame(Frame):
    """The rows of X, times the roots of the weights, add up to zero."""

    @property
    def rounding(self) -> float:
        """That of the means tells columns apart that tie; IN_RANGE is well above it."""
        return IN_RANGE

    def _from_scratch(self, model: Any, y: FloatArray, tol: float) -> Solution:
        """On one row less, which says the same; on all where that is not certified."""
        if 1 < len(y) <= self.X.shape[1]:
            X, rest = self.reduced(self.X), self.reduced(y)
            if X.any():
                solution = self.restored(limit(model, X, rest, tol=tol, throw=False))
                if solution.status is Status.CERTIFIED:
                    return solution
        return super()._from_scratch(model, y, tol)

    def reduced(self, values: Any) -> Any:
        return self._contrasts.of(values)

    def restored(self, solution: Solution) -> Solution:
        return replace(solution, dual=self._contrasts.adjoint(solution.dual))

    @property
    def _contrasts(self) -> Contrasts:
        """One row less says the same, and independent rows need no singular values."""
        return Contrasts(self.samples.root)

    def said(self, solution: Solution, y: FloatArray) -> Solution:
        """Centring leaves rows that rounding alone tells apart: that is no projection of y.

        And it breaks ties: where doubles could not tell what the limit is, that of the data less
        their exact means is taken.
        """
        if Provides.COSTS in solution.potential.provides and self._loses_rows():
            why = "centring loses rows in units far below the mean of a column"
            return replace(solution, status=Status.STALLED, route=f"{solution.route}: {why}")
        in_doubles = solution.status.ok and solution.certificate.is_in_doubles
        if self.samples.root_weight is None and not in_doubles:
            given = as_array(self.samples.X), y
            solution = about_the_mean(solution, self.X, y - np.mean(y), given)
        if not 0.0 < solution.distance <= IN_RANGE:
            return solution
        projected = solution.status is Status.PROJECTED
        status = Status.CERTIFIED if projected else solution.status
        proof = replace(solution.certificate, distance=0.0)
        return replace(solution, status=status, distance=0.0, certificate=proof)

    def _loses_rows(self) -> bool:
        """Whether what tells two rows apart is, beside the means, near the last digit."""
        sizes = np.abs(as_array(self.samples.X)).max(axis=1)
        small = IN_RANGE * float(np.abs(self.X_mean).max())
        return bool(np.count_nonzero((sizes > 0.0) & (sizes < small)) > 1)


@dataclass(frozen=True)
class LargeFrame(Frame):
    """X is a design, centred without being filled."""

    varies: bool = True

    @property
    def moves(self) -> bool:
        return self.varies


def centred_frame(samples: Samples) -> Frame:
    """Data less their means."""
    if is_large(samples.X):
        return _centred_large(samples)
    X, X_mean = centred(as_array(samples.X), samples.weight)
    y, y_mean = _centred_outputs(samples)
    return CentredFrame(samples, samples.weighted(X), y, X_mean, y_mean, samples.root)


def _centred_large(samples: Samples) -> Frame:
    e = samples.root
    varies = _varying(samples.X)
    # Constant columns are left out, not turned into rounding.
    kept = samples.weighted(samples.X) @ scipy.sparse.diags_array(varies.astype(np.float64))
    mean = np.where(varies, np.asarray(e**2 @ samples.X) / samples.total_weight, 0.0)
    y, y_mean = _centred_outputs(samples)
    X = CentredSparseDesign(kept, e, mean)
    return LargeFrame(samples, X, y, mean, y_mean, varies=bool(varies.any()))


def _varying(X: Any) -> NDArray[np.bool_]:
    """Which columns of a sparse X differ between samples by more than rounding."""
    highest, lowest = (extreme.toarray().ravel() for extreme in (X.max(axis=0), X.min(axis=0)))
    size = np.maximum(np.abs(highest), np.abs(lowest))
    return np.asarray(highest - lowest > CANCELLED * size)


def _centred_outputs(samples: Samples) -> tuple[FloatArray, FloatArray]:
    """y, and its means, one output at a time: what is rounding in one need not be in another."""
    columns = (np.ascontiguousarray(column)[:, None] for column in samples.y.T)
    parts = [centred(column, samples.weight) for column in columns]
    rest, means = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return samples.weighted(rest), means
