"""Proof of a limit, recomputed from X, y, w, nu and the potential alone.

w is the limit of gradient flow on (X, y) if and only if

    X w = P y                               (feasibility; P projects on the range of X)
    grad Q(w) = shift + X^T nu              (stationarity)

and then Q(w) - <shift, w> + Q*(shift + X^T nu) = <nu, P y> (zero gap). Small measures prove that w
is nearly optimal, not that it is nearly the limit: where rows of X nearly depend on each other, or
where Q is nearly flat on a whole face, they cannot tell. So a limit is certified by its error
bound (docs/theory/error_bound.md has the proof): in doubles where that is enough, and in balls of
as many digits as it takes where it is not and X is small enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.certificates.candidate import Candidate, declares_growth
from flowbias.certificates.error_bound import PROVED, error_bound
from flowbias.certificates.exact_limit import ExactLimit, exact_limit
from flowbias.certificates.exact_vertex import ExactVertex, exact_vertex
from flowbias.certificates.measures import Measure, Measured
from flowbias.certificates.projection import RangeProjection
from flowbias.designs import design_of, refuse_dense
from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray, Mask
from flowbias.potentials import L1, SEEN, ConvexPotential, Potential, Provides
from flowbias.problems.range_fit import IN_RANGE, row_lengths
from flowbias.problems.regression import as_dense

# A pull against the end of a range that is larger than this, relative to the column and to what is
# left of y, is none by rounding.
PULLED = 1e-8
# What is proved to one digit is still an answer, though not one without a word about it.
ONE_DIGIT = 0.1


@dataclass(frozen=True)
class Certificate(Measured):
    """Measures of optimality, and how far w is from the limit at most.

    feasibility   ||X w - P y|| / (||P y|| + || |X| |w| ||)
    stationarity  ||grad Q(w) - shift - X^T nu||_inf / max(1, ||X^T nu||_inf)
    gap           |Q(w) - <shift, w> + Q*(shift + X^T nu) - <nu, P y>| / (1 + |Q(w)|)
    error_bound   bound of ||w - exact limit||_2; inf where none could be proved
    relative      stationarity and gap once more, in units of the dual point and of Q + Q*: at
                  large scales both are far below one, and the measures above see nothing
    size          ||w||_2, the unit of the error, or where that is next to nothing the rounding of
                  w(0) or of the fit to y; None where Q may have several minimizers, and what is
                  certified is that w is one of them

    `ok` where feasibility and the relative measures are within tol and the error bound within
    1e-6 of the size. Where rows of X are nearly dependent no dual in doubles may do better; then w
    and the dual are compared with those of the limit in balls.

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.certificate.ok, solution.certificate.error_bound < 1e-12
    (True, True)
    """

    feasibility: float
    stationarity: float
    gap: float
    error_bound: float
    tol: float
    relative: tuple[float, float] = (0.0, 0.0)
    size: float | None = None
    #: of the potential, where it is known to no more; on big X what its last digits are worth
    accuracy: float = 0.0
    #: the limit itself, where it took balls to tell how far it is
    exact: ExactLimit | None = field(default=None, repr=False, compare=False)
    #: the same of a norm, in rational numbers
    vertex: ExactVertex | None = field(default=None, repr=False, compare=False)
    #: whether w and nu are those of either, to tol
    is_exact: bool = False

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is judged, against what it may be at most; then what is only known."""
        away, gap = self.relative
        judged = None if self.is_exact else max(self.tol, self.accuracy)
        allowed = None if self.size is None else max(PROVED, self.tol)
        return (
            Measure("feasibility", self.feasibility, self.tol),
            Measure("stationarity, relative", away, judged),
            Measure("gap, relative", gap, judged),
            Measure("error bound, relative", self.relative_error, allowed),
            Measure("stationarity", self.stationarity),
            Measure("gap", self.gap),
            Measure("error bound", self.error_bound),
        )

    @property
    def relative_error(self) -> float:
        """The error bound in units of w; inf where several minimizers are allowed."""
        return np.inf if self.size is None else ratio(self.error_bound, self.size)

    @property
    def digits(self) -> int:
        """How many digits of w are proved, that is of its largest entries."""
        error = self.relative_error
        return 0 if not error < 1.0 else int(min(-np.log10(max(error, 1e-300)), 15.0))

    def __repr__(self) -> str:
        return (
            f"Certificate(ok={self.ok}, feasibility={self.feasibility:.1e}, "
            f"stationarity={self.stationarity:.1e}, gap={self.gap:.1e}, "
            f"error_bound={self.error_bound:.1e}, tol={self.tol:.0e})"
        )


def certify(
    X: Any,
    y: ArrayLike,
    w: ArrayLike,
    nu: ArrayLike,
    potential: ConvexPotential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float = 1e-10,
) -> Certificate:
    """The certificate of (w, nu) as the limit on (X, y) under `potential` started at `shift`.

    X may be big (docs/big_problems.md) where the potential separates.

    >>> X, y = np.array([[1.0, 2.0]]), np.array([1.0])
    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), X, y)
    >>> fb.certify(X, y, solution.w, solution.dual, fb.Hypentropy(scale=0.1)).ok
    True
    >>> fb.certify(X, y, solution.w + 1e-6, solution.dual, fb.Hypentropy(scale=0.1)).ok
    False
    """
    separates = Provides.POTENTIAL in potential.provides
    design = design_of(X) if separates else None
    if design is not None:
        from flowbias.certificates.block_certificate import (
            certify_design,  # builds on the measures here
        )

        check_shapes(design.shape, {"y": np.shape(y), "w": np.shape(w), "nu": np.shape(nu)})
        y, nu, w = _reals("y", y), _reals("nu", nu), design.column(w)
        _check_shift(shift, design.d)
        return certify_design(design, y, w, nu, cast(Potential, potential), shift, tol=tol)
    if not separates:
        refuse_dense("X", X)
    X, y, w, nu = _read(as_dense(X), y, w, nu)
    _check_shift(shift, X.shape[1])
    certificate, candidate = measured(X, y, w, nu, potential, shift, tol=tol)
    if Provides.COSTS in potential.provides and not _is_settled(certificate, w):
        vertex = exact_vertex(X, y, cast(L1, potential), w, nu)
        return certificate if vertex is None else _beside_vertex(certificate, X, w, nu, vertex)
    if certificate.ok or candidate is None:
        return certificate
    exact = exact_limit(X, y, candidate.potential, shift, nu, w)
    return certificate if exact is None else beside(exact, certificate, candidate)


def certify_beside(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: ConvexPotential,
    vertex: ExactVertex,
    *,
    tol: float,
) -> Certificate:
    """`certify` of a norm's minimizer where a vertex of its minimizers is known already."""
    certificate, _ = measured(X, y, w, nu, potential, tol=tol)
    return _beside_vertex(certificate, X, w, nu, vertex)


def _is_settled(certificate: Certificate, w: FloatArray) -> bool:
    """Whether doubles prove that w is the one minimizer, or that it is zero."""
    proved = certificate.error_bound <= PROVED * extended.length(w)
    return certificate.ok and (proved or not w.any())


def _beside_vertex(
    certificate: Certificate, X: FloatArray, w: FloatArray, nu: FloatArray, vertex: ExactVertex
) -> Certificate:
    """What X can fit of y is what the vertex fits, but for its last digit."""
    apart = ratio(
        extended.length(X @ (w - vertex.w)), extended.length(extended.absolute_apply(X, w))
    )
    return replace(
        certificate,
        feasibility=min(certificate.feasibility, apart + float(np.finfo(float).eps)),
        error_bound=min(certificate.error_bound, vertex.error_of(w)),
        vertex=vertex,
        is_exact=vertex.agrees(X, w, nu, certificate.tol),
    )


@np.errstate(all="ignore")
def beside(exact: ExactLimit, certificate: Certificate, candidate: Candidate) -> Certificate:
    """The certificate of a candidate once the limit itself is known."""
    X, w, nu = candidate.X, candidate.w, candidate.nu
    misfit = np.asarray(extended.apply(X, w) - exact.fit, dtype=np.float64)
    spread = extended.length(extended.absolute_apply(X, w)) + candidate.blur
    return replace(
        certificate,
        feasibility=ratio(extended.length(misfit), extended.length(exact.fit) + spread),
        error_bound=min(certificate.error_bound, exact.error_of(w)),
        exact=exact,
        is_exact=exact.agrees(X, w, nu, certificate.tol),
    )


@np.errstate(all="ignore")
def measured(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: ConvexPotential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float,
) -> tuple[Certificate, Candidate | None]:
    """The certificate in doubles, and what balls may have to look at if that is not enough."""
    separates = Provides.POTENTIAL in potential.provides
    # In extended precision: where rows depend on each other, as those of centred data do, what is
    # left of y is all that tells how much of it can be fitted.
    misfit = np.asarray(extended.apply(X, w) - y, dtype=np.float64)
    spread = extended.absolute_apply(X, w)
    fit, rounding_of_fit, driven = y, 0.0, np.zeros(len(w), dtype=bool)
    if extended.length(misfit) > tol * (extended.length(y) + extended.length(spread)):
        # Either w is wrong or y has a part outside the range of X, which no w can fit.
        outside, rounding_of_fit, driven = _out_of_reach(X, w, misfit, potential)
        fit, misfit = y - outside, misfit + outside
        rounding_of_fit = min(rounding_of_fit, IN_RANGE)
        asked = extended.length(np.where(X.any(axis=1), y, 0.0))
        if not w.any() and extended.length(fit) <= rounding_of_fit * asked:
            # w says that nothing of y can be fitted, and what is left of it is rounding.
            fit = misfit = np.zeros_like(y)
    rise = X.T @ nu
    z = np.asarray(shift + rise)
    values, conjugates = potential.value_terms(w), potential.conjugate_terms(z)
    # Q + Q* - <z, w> term by term (each >= 0), then what infeasibility adds:
    # the sum is the duality gap, and no digit of a large <nu, P y> is lost.
    products = potential.pairing_terms(z, w)
    gap = abs(float(np.sum(values + conjugates - products)) + float(nu @ misfit))
    away = _farthest(potential.grad(w) - z, potential.determined(w), w)
    dual_size, total = float(np.abs(rise).max()), abs(float(values.sum()))
    sizes = np.abs(values) + np.abs(conjugates)
    sizes += np.abs(potential.pairing_terms(rise, w)) + np.abs(products)
    # Where w = 0 nothing is left to compare with, and the gap stands for itself.
    value_unit = float(sizes.sum()) if w.any() else 1.0
    units = max(dual_size, float(np.abs(z).max())), value_unit
    # X w is in the range of X, so no more of y than this is outside of it.
    sums = extended.length(spread) + extended.length(y)
    noise = extended.length(misfit) + rounding_of_fit * extended.length(y)
    noise += (len(w) + 2) * extended.EPS * sums
    candidate = None
    if separates and declares_growth(cast(Potential, potential)):
        candidate = Candidate(X, y, fit, w, nu, cast(Potential, potential), shift, noise)
        bound = candidate.bound(driven)
    else:
        bound = error_bound(X, fit, w, nu, potential, shift, noise)
    unit = extended.length(fit) + extended.length(spread)
    certificate = Certificate(
        feasibility=ratio(extended.length(misfit), unit + (candidate.blur if candidate else 0.0)),
        stationarity=away / max(1.0, dual_size),
        gap=gap / (1.0 + total),
        error_bound=bound,
        tol=tol,
        relative=(ratio(away, units[0]), ratio(gap, units[1])),
        size=None if candidate is None else candidate.size,
    )
    return certificate, candidate


def _read(*arrays: ArrayLike) -> tuple[FloatArray, ...]:
    """X, y, w, nu as arrays of doubles whose shapes belong together."""
    X, y, w, nu = (_reals(*named) for named in zip(("X", "y", "w", "nu"), arrays, strict=True))
    check_shapes(X.shape, {"y": y.shape, "w": w.shape, "nu": nu.shape})
    return X, y, w, nu


def _reals(name: str, values: Any) -> FloatArray:
    """As doubles; what is not finite is left for the certificate to fail on."""
    array = np.asarray(values)
    try:
        return array.astype(np.float64, casting="same_kind", copy=False)
    except TypeError:
        raise InputError(
            f"{name}: must hold real numbers, got dtype {array.dtype}. "
            f"Convert it first, for example {name}.astype(float)."
        ) from None


def _check_shift(shift: Any, d: int) -> None:
    if np.shape(shift) not in ((), (1,), (d,)):
        raise InputError(
            f"shift: must be a number or one per feature ({d}), got shape {np.shape(shift)}. "
            "Pass model.shift."
        )


def check_shapes(shape: tuple[int, ...], given: dict[str, tuple[int, ...]]) -> None:
    """InputError where y, w or nu do not belong to an X of this shape."""
    wanted = {"y": shape[:1], "w": shape[1:], "nu": shape[:1]}
    for name, got in given.items():
        if len(shape) != 2 or got != wanted[name]:
            raise InputError(
                f"{name}: must have shape {wanted[name]} for X of shape {shape}, got {got}. "
                "X is samples x features, w has one entry per feature, y and nu one per sample."
            )


def ratio(measure: float, unit: float) -> float:
    """measure / unit, where 0 / 0 is a perfect score and NaN stays NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 0.0 if measure == 0.0 and unit == 0.0 else float(np.divide(measure, unit))


def _dependent(X: FloatArray) -> float:
    """Singular values below this share of the largest are rounding: rows repeat each other."""
    return float(max(X.shape) * np.finfo(float).eps)


def _farthest(difference: FloatArray, counted: NDArray[np.bool_], w: FloatArray) -> float:
    if not np.isfinite(w).all():
        return np.nan
    return float(np.abs(difference[counted]).max(initial=0.0))


def _out_of_reach(
    X: FloatArray, w: FloatArray, misfit: FloatArray, potential: ConvexPotential
) -> tuple[FloatArray, float, Mask]:
    """The part of y - X w that no coordinate which is free to move can fit, and its rounding.

    That is all that is orthogonal to the range of X; and where a coordinate keeps one sign and has
    vanished, what only the other sign could fit. Which those are comes third.
    """
    size = float(np.abs(misfit).max())
    unit = max(float(X.max()), -float(X.min()))
    probe = float(np.abs(w).max(initial=0.0)) or 1.0
    upward, downward = potential.open_sides(len(w), probe)
    pull = -(X / unit).T @ (misfit / size)
    at_end = np.abs(w) <= SEEN * probe
    clear = np.abs(pull) > PULLED * np.linalg.norm(X / unit, axis=0) * np.linalg.norm(misfit / size)
    stuck = at_end & clear & ((~upward & (pull > 0)) | (~downward & (pull < 0)))
    fitted, rounding = _within_range(X[:, ~stuck], misfit)
    return fitted - misfit, rounding, stuck


def _within_range(columns: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
    """P y on the range of these columns, and its rounding relative to y."""
    fitted, rounding = np.zeros_like(y), float(np.finfo(float).eps)
    if not columns.any():
        return fitted, rounding
    lengths = row_lengths(columns)
    seen = lengths > 0.0
    unit = lengths[seen]
    rows: Any = columns[seen] / unit[:, None]
    if rows.shape[1] > len(rows):
        # The same left factors, without right ones that are as long as X.
        rows = scipy.linalg.qr(rows.T, mode="r", overwrite_a=True)[0][: len(rows)].T
    left, values, _ = scipy.linalg.svd(rows, full_matrices=False)
    kept = values > _dependent(columns) * values[0]
    fitted[seen] = y[seen]
    if kept.sum() < len(unit):
        condition = float(values[0] / values[kept][-1])
        projection = RangeProjection(unit, left[:, kept], condition)
        fitted[seen], rounding = projection.projected(y[seen])
    return fitted, rounding
