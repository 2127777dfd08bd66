"""Proof of a limit, recomputed from X, y, w, nu and the potential alone.

w is the limit of gradient flow on (X, y) if and only if

    X w = P y                               (feasibility; P projects on the range of X)
    grad Q(w) = shift + X^T nu              (stationarity)

and then Q(w) - <shift, w> + Q*(shift + X^T nu) = <nu, P y> (zero gap). The solvers share
the potentials and the arithmetic of two doubles with this file and nothing else, so an error in one
of them cannot certify itself. `error_bound` goes further: it bounds the distance to the exact limit
(docs/theory/error_bound.md has the proof).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias import _extended as extended
from flowbias._measures import Measure, Measured
from flowbias._typing import ArrayLike, FloatArray
from flowbias.certificates.error_bound import error_bound
from flowbias.certificates.projection import RangeProjection
from flowbias.designs import design_of, refuse_dense
from flowbias.potentials import SEEN, ConvexPotential, Potential, Provides
from flowbias.problem import IN_RANGE, InputError, as_dense, row_lengths

# Units in the last place by which X may be perturbed in the certificate's own evaluation: for
# nearly dependent rows nu is so huge that no double nu does better.
ULPS = 8.0
# No amount of rounding excuses more than this.
WORST_ROUNDING = 1e-4


@dataclass(frozen=True)
class Certificate(Measured):
    """Measures of optimality; `ok` when feasibility and the scale-free ones are within tol.

    feasibility   ||X w - P y|| / (||P y|| + || |X| |w| ||)
    stationarity  ||grad Q(w) - shift - X^T nu||_inf / max(1, ||X^T nu||_inf)
    gap           |Q(w) - <shift, w> + Q*(shift + X^T nu) - <nu, P y>| / (1 + |Q(w)|)
    error_bound   bound of ||w - exact limit||_2; inf where none could be proved
    relative      stationarity and gap once more, in units of the dual point and of Q + Q*: at
                  large scales both are far below one, and the measures above see nothing
    rounding      what a change of X in its last digits does to `relative`. Where rows of X are
                  nearly dependent this exceeds tol, and `relative` is judged against it

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
    rounding: tuple[float, float] = (0.0, 0.0)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is judged, against what it may be at most; then what is only known."""
        (away, gap), (for_dual, for_value) = self.relative, self.rounding
        return (
            Measure("feasibility", self.feasibility, self.tol),
            Measure("stationarity, relative", away, max(self.tol, for_dual)),
            Measure("gap, relative", gap, max(self.tol, for_value)),
            Measure("stationarity", self.stationarity),
            Measure("gap", self.gap),
            Measure("error bound", self.error_bound),
        )

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
    with np.errstate(all="ignore"):
        misfit = X @ w - y
        spread = extended.absolute_apply(X, w)
        fit = y
        if extended.length(misfit) > tol * (extended.length(y) + extended.length(spread)):
            # Either w is wrong or y has a part outside the range of X, which no w can fit.
            outside, rounding_of_fit = _out_of_reach(X, w, misfit, potential)
            fit, misfit = y - outside, misfit + outside
            rounding_of_fit = min(rounding_of_fit, IN_RANGE)
            if not w.any() and extended.length(fit) <= rounding_of_fit * extended.length(y):
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
        relative = ratio(away, units[0]), ratio(gap, units[1])
        rounding = (0.0, 0.0)
        if max(relative) > tol:
            rounding = _rounding(X, rise, spread + np.abs(fit), units)
        return Certificate(
            feasibility=ratio(
                extended.length(misfit), extended.length(fit) + extended.length(spread)
            ),
            stationarity=away / max(1.0, dual_size),
            gap=gap / (1.0 + total),
            error_bound=error_bound(X, fit, w, nu, potential, shift),
            tol=tol,
            relative=relative,
            rounding=rounding,
        )


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
    return 0.0 if measure == 0.0 and unit == 0.0 else float(np.divide(measure, unit))


def _rounding(
    X: FloatArray, rise: FloatArray, spread: FloatArray, units: tuple[float, float]
) -> tuple[float, float]:
    """What ULPS of X are worth, through the shortest dual with the same X^T nu."""
    shortest = np.abs(scipy.linalg.lstsq(X.T, rise, cond=_dependent(X))[0])
    amplified = float(extended.absolute_adjoint(X, shortest).max()), float(shortest @ spread)
    ulps = ULPS * float(np.finfo(float).eps)
    for_dual, for_value = map(ratio, amplified, units)
    return min(WORST_ROUNDING, ulps * for_dual), min(WORST_ROUNDING, ulps * for_value)


def _dependent(X: FloatArray) -> float:
    """Singular values below this share of the largest are rounding: rows repeat each other."""
    return float(max(X.shape) * np.finfo(float).eps)


def _farthest(difference: FloatArray, counted: NDArray[np.bool_], w: FloatArray) -> float:
    if not np.isfinite(w).all():
        return np.nan
    return float(np.abs(difference[counted]).max(initial=0.0))


def _out_of_reach(
    X: FloatArray, w: FloatArray, misfit: FloatArray, potential: ConvexPotential
) -> tuple[FloatArray, float]:
    """The part of y - X w that no coordinate which is free to move can fit, and its rounding.

    That is all that is orthogonal to the range of X; and where a coordinate keeps one sign and has
    vanished, what only the other sign could fit.
    """
    size = float(np.abs(misfit).max())
    unit = max(float(X.max()), -float(X.min()))
    probe = float(np.abs(w).max(initial=0.0)) or 1.0
    upward, downward = potential.open_sides(len(w), probe)
    pull = -(X / unit).T @ (misfit / size)
    at_end = np.abs(w) <= SEEN * probe
    stuck = at_end & ((~upward & (pull > 0)) | (~downward & (pull < 0)))
    fitted, rounding = _within_range(X[:, ~stuck], misfit)
    return fitted - misfit, rounding


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
