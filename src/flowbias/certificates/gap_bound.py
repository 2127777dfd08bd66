"""The error bound where Q is nearly flat: from the duality gap, and the columns that are in use.

For any nu, with z = shift + X^T nu, every term of

    F(v) = sum_i F_i(v_i),   F_i(v) = Q_i(v) + Q_i*(z_i) - z_i v >= 0

is convex, and among the v with X v = y the limit w* minimizes F. So F_i(w*_i) <= F(w~) = G for any
w~ that fits y, here w with its residual repaired. A tangent of F_i at t then bounds a coordinate:

    w*_i <= t + G / F_i'(t)  where F_i'(t) > 0,      w*_i >= t + G / F_i'(t)  where F_i'(t) < 0.

That settles coordinates that the dual holds down: near the rich limit all but those in use. They
share one G, so that together they are off by no more than the one that is off most. For the rest,
S, X_S (w*_S - w_S) = (y - X w) - X_off (w*_off - w_off) bounds the error through the smallest
singular value of X_S. Where columns in use depend on each other nothing is proved: there the data
leave a face of nearly equal fits. For a (weighted) l1 norm, which has no dual map, this is the
only bound there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg

from flowbias.certificates.rank import DEPENDENT, numerical_rank
from flowbias.designs.dense import gram
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential
from flowbias.problems.range_fit import row_lengths

EPS = float(np.finfo(float).eps)
# Rounding of one value of Q, Q* or their product, in units in the last place.
EVALUATIONS = 8.0
# Entries of X up to which singular values are worth their time.
LARGEST = 1_000_000
# Where tangents touch: this far beyond w, in units of its size.
TOUCHES = 10.0 ** -np.arange(6.0, 17.0, 2.0)
# Near the end of its domain Q* has a pole, and the dual's rounding may be more than what is left:
# a dual that is a little shorter costs as much of the gap, and no more.
SHRINKS = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11)
# Coordinates that the gap alone bounds to this, in units of w, need no column: the best of these.
SETTLED = 10.0 ** -np.arange(7.0, 14.0)


@np.errstate(all="ignore")
def gap_bound(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float = 0.0,
    noise: float = 0.0,
) -> float:
    """Upper bound of ||w - w*||_2, or inf; rows that depend on others may be off by `noise`."""
    # Rows of about unit length: by powers of two, which round nothing.
    lengths = row_lengths(X)
    unit = np.exp2(np.floor(np.log2(np.where(lengths > 0.0, lengths, 1.0))))
    X, y, nu = X / unit[:, None], y / unit, nu * unit
    size = extended.length(w)
    if size == 0.0 or not np.isfinite(potential.value_terms(w)).all():
        # Where not even w is in the domain, the limit may not fit y at all.
        return np.inf
    repair = _repaired(X, y, w, potential, noise / unit)
    if repair is None:
        # No gap, but where columns are independent one fit only.
        nothing = np.zeros(len(w), dtype=bool)
        return _through_columns(X, _misfit(X, y, w) + noise / unit, _Radii.unknown(len(w)), nothing)
    duals = _Duals(X, nu, shift)
    gaps = [_gap(potential, *duals.shortened(by), repair) for by in SHRINKS]
    best = int(np.argmin(np.where(np.isnan(gaps), np.inf, gaps)))
    least = _radii(potential, w, *duals.shortened(SHRINKS[best]), gaps[best])
    # Fewer and fewer of them; some are the same.
    settled = {int(part.sum()): part for part in (least.each <= share * size for share in SETTLED)}
    misfit = _misfit(X, y, w) + repair.noise
    return min(_through_columns(X, misfit, least, part) for part in settled.values())


class _Repair(NamedTuple):
    """w~ that fits y but for rounding, how far from it a true fit is at most, and where."""

    fit: FloatArray
    missing: float
    moved: Mask
    #: of y, where rows depend on each other
    noise: FloatArray


def _repaired(
    X: FloatArray, y: FloatArray, w: FloatArray, potential: Potential, noise: FloatArray
) -> _Repair | None:
    """By the least norm, of columns that may move either way; None where these do not suffice."""
    touch = TOUCHES[0] * extended.length(w)
    moved = np.isfinite(potential.value_terms(w + touch) + potential.value_terms(w - touch))
    weights = moved.astype(np.float64)
    residual = np.asarray(y - extended.apply(X, w), dtype=np.float64)
    inverse, values = _row_space(X, weights)
    whole = len(values) == len(X)
    if not len(values):
        return None
    if not whole and (X.size > LARGEST or len(values) != numerical_rank(X)):
        return None
    fit = w + weights * (X.T @ inverse(residual))
    rest = np.asarray(y - extended.apply(X, fit), dtype=np.float64)
    rounding = (len(w) + 2) * extended.EPS * (extended.absolute_apply(X, fit) + np.abs(y))
    noise = np.zeros_like(noise) if whole else noise
    missing = extended.length(np.abs(rest) + rounding + noise) / float(values.min())
    found = np.isfinite(missing) and np.isfinite(fit).all()
    return _Repair(fit, missing, moved, noise) if found else None


def _row_space(
    X: FloatArray, weights: FloatArray
) -> tuple[Callable[[FloatArray], FloatArray], FloatArray]:
    """The inverse of X diag(weights) X^T for weights 0 and 1, and singular values above rounding.

    Where half of the digits do not see that all are, by vectors: of X itself if it is small.
    """
    matrix = gram(X, weights, np.ones(len(X)))
    squares = scipy.linalg.eigvalsh(matrix, lower=True)
    if squares[0] > DEPENDENT * squares[-1]:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        return partial(scipy.linalg.cho_solve, factor), np.sqrt(squares)
    if X.size <= LARGEST:
        vectors, values, _ = scipy.linalg.svd(X * weights, full_matrices=False)
        kept = values > DEPENDENT * values[0]
    else:
        squares, vectors = scipy.linalg.eigh(matrix, lower=True)
        kept = squares > DEPENDENT * squares[-1]
        values = np.sqrt(np.where(kept, squares, 0.0))
    vectors, values = vectors[:, kept], values[kept]
    return lambda v: np.asarray(vectors @ ((vectors.T @ v) / values**2)), values


class _Duals:
    """shift + X^T nu, and how far it may be off, for nu and for shorter ones."""

    def __init__(self, X: FloatArray, nu: FloatArray, shift: FloatArray | float) -> None:
        self.shift, self.rise = shift, extended.adjoint(X, nu)
        self.blur = (len(nu) + 2) * extended.EPS * extended.absolute_adjoint(X, nu)

    def shortened(self, by: float) -> tuple[FloatArray, FloatArray]:
        z = np.asarray(self.shift + (1.0 - np.longdouble(by)) * self.rise, dtype=np.float64)
        return z, self.blur + EPS * (np.abs(z) + np.abs(self.shift))


class _Radii(NamedTuple):
    """How far coordinates may be from w: `touch`, and a part of `share`, the parts adding to 1."""

    touch: FloatArray
    share: FloatArray

    @classmethod
    def unknown(cls, d: int) -> _Radii:
        return cls(np.zeros(d), np.full(d, np.inf))

    @property
    def each(self) -> FloatArray:
        return self.touch + self.share


def _radii(
    potential: Potential, w: FloatArray, z: FloatArray, blur: FloatArray, gap: float
) -> _Radii:
    """By the gap alone, each coordinate by the tangents that say most of it."""
    best = _Radii.unknown(len(w))
    for touch in TOUCHES * extended.length(w):
        above = _tangent(potential.grad(w + touch) - (z + blur), gap)
        below = _tangent(-(potential.grad(w - touch) - (z - blur)), gap)
        share = np.maximum(above, below)
        better = touch + share < best.each
        best = _Radii(np.where(better, touch, best.touch), np.where(better, share, best.share))
    return best


def _tangent(slope: FloatArray, gap: float) -> FloatArray:
    """gap / slope; inf where the tangent does not rise."""
    return np.where(slope > 0.0, gap / slope, np.inf)


def _gap(potential: Potential, z: FloatArray, blur: FloatArray, repair: _Repair) -> float:
    """Upper bound of F at the fit next to the repaired one."""
    fit, missing = repair.fit, repair.missing
    values = potential.value_terms(fit)
    # Q* is convex: over all that z may be it is largest at an end.
    conjugates = np.maximum(
        potential.conjugate_terms(z - blur), potential.conjugate_terms(z + blur)
    )
    products = z * fit
    sizes = np.abs(values) + np.abs(conjugates) + np.abs(products)
    rounding = EVALUATIONS * EPS * sizes + blur * np.abs(fit)
    steepest = np.maximum(
        np.abs(potential.grad(fit + missing) - z), np.abs(potential.grad(fit - missing) - z)
    )
    steepest = np.where(repair.moved, steepest, 0.0)
    # Summed in extended precision, so that only the terms themselves are rounded.
    terms = values.astype(np.longdouble) + conjugates - products.astype(np.longdouble) + rounding
    if not (terms >= 0.0).all():
        # No F_i is negative: a Q or Q* of so little digits proves nothing.
        return np.inf
    return float(terms.sum()) + missing * float(np.linalg.norm(steepest))


def _misfit(X: FloatArray, y: FloatArray, w: FloatArray) -> FloatArray:
    """At least |y - X w|."""
    residual = np.asarray(y - extended.apply(X, w), dtype=np.float64)
    rounding = (len(w) + 2) * extended.EPS * (extended.absolute_apply(X, w) + np.abs(y))
    return np.asarray(np.abs(residual) + rounding)


def _through_columns(X: FloatArray, misfit: FloatArray, radii: _Radii, settled: Mask) -> float:
    """The bound of all coordinates: those that the gap does not settle, through their columns."""
    off = np.where(settled, radii.touch, 0.0)
    share = np.where(settled, radii.share, 0.0)
    apart = extended.length(off) + float(share.max())
    if settled.all():
        return apart
    columns = X[:, ~settled]
    lengths = np.linalg.norm(columns, axis=0)
    if columns.shape[1] > len(X) or not lengths.all():
        return np.inf
    smallest = float(scipy.linalg.svdvals(columns / lengths)[-1])
    if not smallest > DEPENDENT:
        return np.inf
    terms = misfit + extended.absolute_apply(X, off)
    rest = extended.length(terms) + float((np.linalg.norm(X, axis=0) * share).max())
    return extended.length(np.append(rest / smallest / lengths, apart))
