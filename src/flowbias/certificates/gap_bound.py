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
leave a face of nearly equal fits.

A (weighted) l1 norm has no dual map, and no other bound but where its minimizer is a vertex: if
the columns in use are a basis of all, w* on them is the one fit to y, whatever the gap, as long as
its signs are those of w and the dual that pays for just these signs pays for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import scipy.linalg

from flowbias.certificates.rows import DEPENDENT, numerical_rank
from flowbias.designs.dense import gram
from flowbias.ground import extended
from flowbias.ground.extended import row_lengths
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import L1, Potential, Provides

EPS = float(np.finfo(float).eps)
# Rounding of one value of Q, Q* or their product, in units in the last place.
EVALUATIONS = 8.0
# Terms of this size keep all digits of what they are made of; what underflows beside them is less
# than a rounding of a rounding.
UNDERFLOW = float(np.finfo(float).tiny) / EPS**2
# Entries of X up to which singular values are worth their time.
SVD_ENTRIES = 1_000_000
# Where tangents touch: this far beyond w, in units of its size.
TOUCHES = 10.0 ** -np.arange(6.0, 17.0, 2.0)


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
    if Provides.COSTS in potential.provides:
        at_vertex = _vertex_bound(X, y, w, nu, cast(L1, potential), noise / unit)
        if np.isfinite(at_vertex):
            return at_vertex
    duals, best, rank = _Duals(X, nu, potential, shift), np.inf, 0
    for weights in _ways_to_repair(w, potential):
        enough = np.count_nonzero(weights) >= rank
        repair = _repaired(X, y, w, weights, noise / unit) if enough else None
        if repair is not None:
            best, rank = min(best, _from_gap(X, y, w, potential, duals, repair)), repair.rank
        if best <= 1e-10 * size:  # so well proved that no second way has to
            return best
    # No gap, but where columns are independent one fit only.
    nothing = np.zeros(len(w), dtype=bool)
    alone = _misfit(X, y, w) + noise / unit
    return min(best, _through_columns(X, alone, _Radii.unknown(len(w)), nothing))


def _from_gap(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    potential: Potential,
    duals: _Duals,
    repair: _Repair,
) -> float:
    # Near the end of its domain Q* has a pole, and the dual's rounding may be more than what is
    # left: a dual that is a little shorter costs as much of the gap, and no more.
    shrinks = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 3e-12, 1e-11, 3e-11, 1e-10)
    gaps = [_gap(potential, *duals.shortened(by), repair) for by in shrinks]
    best = int(np.argmin(np.where(np.isnan(gaps), np.inf, gaps)))
    least = _radii(potential, w, *duals.shortened(shrinks[best]), gaps[best])
    # Coordinates that the gap alone bounds to a share of w need no column: of these shares the
    # best. Fewer and fewer of them; some are the same.
    shares = 10.0 ** -np.arange(7.0, 14.0) * extended.length(w)
    settled = {int(part.sum()): part for part in (least.each <= share for share in shares)}
    misfit = _misfit(X, y, w) + repair.noise
    return min(_through_columns(X, misfit, least, part) for part in settled.values())


class _Repair(NamedTuple):
    """w~ that fits y but for rounding, and how far from it a true fit is at most."""

    fit: FloatArray
    missing: FloatArray
    #: of y, where rows depend on each other
    noise: FloatArray
    rank: int


def _ways_to_repair(w: FloatArray, potential: Potential) -> Iterator[FloatArray]:
    """What coordinates may move by: all that can move alike; or each as far as it is in use.

    The second costs next to nothing, for Q has the slope of the dual there, but what is in use may
    not be enough to fit y.
    """
    touch = TOUCHES[0] * extended.length(w)
    free = np.isfinite(potential.value_terms(w + touch) + potential.value_terms(w - touch))
    yield free.astype(np.float64)
    share = np.abs(w) / np.abs(w).max()
    yield np.where(free & (share > EPS), share, 0.0)


def _repaired(
    X: FloatArray, y: FloatArray, w: FloatArray, weights: FloatArray, noise: FloatArray
) -> _Repair | None:
    """By the least norm in units of the weights; None where these do not suffice."""
    residual = np.asarray(y - extended.apply(X, w), dtype=np.float64)
    inverse, values = _row_space(X, weights)
    whole = len(values) == len(X)
    if not len(values):
        return None
    if not whole and (X.size > SVD_ENTRIES or len(values) != numerical_rank(X)):
        return None
    fit = w + weights * (X.T @ inverse(residual))
    rest = np.asarray(y - extended.apply(X, fit), dtype=np.float64)
    rounding = (len(w) + 2) * extended.EPS * (extended.absolute_apply(X, fit) + np.abs(y))
    noise = np.zeros_like(noise) if whole else noise
    length = extended.length(np.abs(rest) + rounding + noise) / float(values.min())
    missing = np.sqrt(weights) * length
    found = np.isfinite(missing).all() and np.isfinite(fit).all()
    return _Repair(fit, missing, noise, len(values)) if found else None


def _row_space(
    X: FloatArray, weights: FloatArray
) -> tuple[Callable[[FloatArray], FloatArray], FloatArray]:
    """The inverse of X diag(weights) X^T, and singular values of its root above rounding.

    Where half of the digits do not see that all are, by vectors: of X itself if it is small.
    """
    matrix = gram(X, weights, np.ones(len(X)))
    squares = scipy.linalg.eigvalsh(matrix, lower=True)
    if squares[0] > DEPENDENT * squares[-1]:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        return partial(scipy.linalg.cho_solve, factor), np.sqrt(squares)
    if X.size <= SVD_ENTRIES:
        vectors, values, _ = scipy.linalg.svd(X * np.sqrt(weights), full_matrices=False)
        kept = values > DEPENDENT * values[0]
    else:
        squares, vectors = scipy.linalg.eigh(matrix, lower=True)
        kept = squares > DEPENDENT * squares[-1]
        values = np.sqrt(np.where(kept, squares, 0.0))
    vectors, values = vectors[:, kept], values[kept]
    return lambda v: np.asarray(vectors @ ((vectors.T @ v) / values**2)), values


class _Duals:
    """shift + X^T nu, and how far it may be off, for nu and for shorter ones."""

    def __init__(
        self, X: FloatArray, nu: FloatArray, potential: Potential, shift: FloatArray | float
    ) -> None:
        self.potential, self.shift, self.rise = potential, shift, extended.adjoint(X, nu)
        self.blur = (len(nu) + 2) * extended.EPS * extended.absolute_adjoint(X, nu)
        # The start is known to its last digits, and with it the law.
        self.blur = self.blur + potential.shift_rounding(shift)

    def shortened(self, by: float) -> tuple[FloatArray, FloatArray]:
        z = np.asarray(self.shift + (1.0 - np.longdouble(by)) * self.rise, dtype=np.float64)
        law = self.potential.dual_rounding(z)
        return z, self.blur + law + EPS * (np.abs(z) + np.abs(self.shift))


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
    if not sizes.max() > UNDERFLOW:
        # Next to nothing, in whose last digits what underflows would show: w and z are far smaller
        # than one, and F vanishes before either does.
        return np.inf
    rounding = EVALUATIONS * EPS * sizes + blur * np.abs(fit)
    steepest = np.maximum(
        np.abs(potential.grad(fit + missing) - z), np.abs(potential.grad(fit - missing) - z)
    )
    # Summed in extended precision, so that only the terms themselves are rounded.
    terms = values.astype(np.longdouble) + conjugates - products.astype(np.longdouble) + rounding
    if not (terms >= 0.0).all():
        # No F_i is negative: a Q or Q* of so little digits proves nothing.
        return np.inf
    if Provides.POTENTIAL in potential.provides:
        small = np.fmin(terms, _divergence(potential, z, blur, fit))
        terms = np.where(np.isfinite(terms), small, terms)
    rest = np.where(missing > 0.0, missing * (steepest + blur), 0.0)
    return float(terms.sum()) + float(rest.sum())


def _divergence(
    potential: Potential, z: FloatArray, blur: FloatArray, fit: FloatArray
) -> FloatArray:
    """Upper bound of F_i in small numbers: (grad Q(fit) - z) (fit - w(z)), by convexity."""
    slope = potential.grad(fit)
    steep = np.abs(slope - z) + blur + EVALUATIONS * EPS * np.abs(slope)
    ends = potential.grad_dual(z - blur), potential.grad_dual(z + blur)
    away = [np.abs(fit - end) + EVALUATIONS * EPS * np.abs(end) for end in ends]
    return np.asarray(steep * np.maximum(*away))


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
    rest = extended.length(terms) + float((row_lengths(X.T) * share).max())
    return extended.length(np.append(rest / smallest / lengths, apart))


def _vertex_bound(
    X: FloatArray, y: FloatArray, w: FloatArray, nu: FloatArray, norm: L1, noise: FloatArray
) -> float:
    """The bound of a norm's minimizer whose columns are a basis of all columns; else inf.

    With A for the basis and T = A^+ X, X is A T but for rounding: w* = A^+ y on the basis, and zero
    elsewhere. The dual that pays what the basis costs pays T^T times the difference more than nu.
    """
    used, lengths = w != 0.0, np.linalg.norm(X, axis=0)
    count, units = int(used.sum()), np.where(lengths > 0.0, lengths, 1.0)
    if count > len(X) or X.size > SVD_ENTRIES:
        return np.inf
    basis = X[:, used] / units[used]
    Q, triangle = scipy.linalg.qr(basis, mode="economic", check_finite=False)
    if not np.diagonal(triangle).all():
        return np.inf
    inverse = scipy.linalg.solve_triangular(triangle, Q.T, check_finite=False)
    wrong = np.abs(np.eye(count) - inverse @ basis)
    left = float(max(wrong.sum(axis=0).max(), wrong.sum(axis=1).max()))
    if not left < 0.5:
        return np.inf
    table = inverse @ (X / units)
    rounding, misfit = 0.0, _misfit(X, y, w)
    if count < len(X) or norm.rounding > 0.0:
        # Of data of lower rank, such as centred ones, and of those that say so.
        outside = float(np.linalg.norm(X / units - basis @ table, axis=0).max())
        if outside > IN_RANGE or (count < len(X) and count != numerical_rank(X)):
            return np.inf
        rounding = max(len(X) * EPS, outside)
        misfit = misfit + noise + rounding * extended.absolute_apply(X, w)
    error = np.abs(inverse) @ misfit
    # A^+ e = inverse e + (1 - inverse A) A^+ e.
    error = (error + 2.0 * left * float(error.max())) / units[used]
    pull, terms = extended.adjoint(X, nu), extended.absolute_adjoint(X, nu)
    blur = (len(nu) + 2) * extended.EPS * terms + rounding * units * extended.length(nu)
    due = norm.grad(w)[used]
    unpaid = np.abs(np.asarray(due - pull[used], dtype=np.float64)) + DEPENDENT * np.abs(due)
    unpaid = (unpaid + blur[used]) / units[used]
    more = units * (np.abs(table).T @ (unpaid + 2.0 * left * float(unpaid.max())))
    more += blur + norm.rounding * terms
    pull, least = np.asarray(pull, dtype=np.float64), 1.0 - max(norm.rounding, DEPENDENT)
    pays = (pull + more >= least * norm.weights) | (more - pull >= least * norm.negative_weights)
    is_vertex = bool((error < np.abs(w[used])).all()) and not pays[~used].any()
    return extended.length(error) if is_vertex else np.inf
