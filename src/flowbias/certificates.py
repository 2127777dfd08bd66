"""Proof of a limit, recomputed from X, y, w, nu and the potential alone.

w is the limit of gradient flow on (X, y) if and only if

    X w = P y                               (feasibility; P projects on the range of X)
    grad Q(w) = shift + X^T nu              (stationarity)

and then Q(w) - <shift, w> + Q*(shift + X^T nu) = <nu, P y> (zero gap). Nothing here is shared with
the solvers, so an error in one of them cannot certify itself. `error_bound` goes further: it bounds
the distance to the exact limit (docs/theory/error_bound.md has the proof).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias import _extended as extended
from flowbias._typing import FloatArray
from flowbias.error_bound import error_bound
from flowbias.potentials import Potential

# Coordinates below this share of the largest do not count for stationarity: their logarithm is
# beyond what X w = y in double precision determines.
SEEN = 1e-12
# Units in the last place by which X may be perturbed in the certificate's own evaluation: for
# nearly dependent rows nu is so huge that no double nu does better.
ULPS = 8.0
# No amount of rounding excuses more than this.
WORST_ROUNDING = 1e-4


@dataclass(frozen=True)
class Certificate:
    """Relative measures of optimality; `ok` when all are within `tol`.

    feasibility   ||X w - P y|| / (||P y|| + || |X| |w| ||)
    stationarity  ||grad Q(w) - shift - X^T nu||_inf / max(1, ||X^T nu||_inf)
    gap           |Q(w) - <shift, w> + Q*(shift + X^T nu) - <nu, P y>| / (1 + |Q(w)|)
    error_bound   bound of ||w - exact limit||_2; inf where none could be proved
    rounding      (of stationarity, of gap): what a change of X in its last digits does to them.
                  Where rows of X are nearly dependent this exceeds tol, and they are judged against
                  it: w is then the limit of data that agree with X and y to the last digits
    """

    feasibility: float
    stationarity: float
    gap: float
    error_bound: float
    tol: float
    rounding: tuple[float, float] = (0.0, 0.0)

    @property
    def ok(self) -> bool:
        # NaN compares false, so a measure that could not be computed certifies nothing.
        for_stationarity, for_gap = (max(self.tol, rounding) for rounding in self.rounding)
        optimal = self.stationarity <= for_stationarity and self.gap <= for_gap
        return optimal and self.feasibility <= self.tol

    def __repr__(self) -> str:
        return (
            f"Certificate(ok={self.ok}, feasibility={self.feasibility:.1e}, "
            f"stationarity={self.stationarity:.1e}, gap={self.gap:.1e}, "
            f"error_bound={self.error_bound:.1e}, tol={self.tol:.0e})"
        )


def certify(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float = 1e-10,
) -> Certificate:
    """The certificate of (w, nu) as the limit on (X, y) under `potential` started at `shift`."""
    with np.errstate(all="ignore"):
        misfit = X @ w - y
        spread_terms = extended.absolute_apply(X, w)
        spread = extended.length(spread_terms)
        fit = y
        if extended.length(misfit) > tol * (extended.length(y) + spread):
            # Either w is wrong or y has a part outside the range of X, which no w can fit.
            outside = _out_of_reach(X, w, misfit, potential)
            fit, misfit = y - outside, misfit + outside
        size = extended.length(fit) + spread
        rise = X.T @ nu
        z = np.asarray(shift + rise)
        value = potential.value(w)
        # Q + Q* - <z, w> coordinate by coordinate (each >= 0), then what infeasibility adds:
        # the sum is the duality gap, and no digit of a large <nu, P y> is lost.
        fenchel = potential.value_terms(w) + potential.conjugate_terms(z) - z * w
        gap = float(np.sum(fenchel)) + float(nu @ misfit)
        unit = max(1.0, float(np.abs(rise).max(initial=0.0)))
        value_unit = 1.0 + abs(value)
        rounding = (
            float(extended.absolute_adjoint(X, nu).max(initial=0.0)) / unit,
            float(np.abs(nu) @ (spread_terms + np.abs(fit))) / value_unit,
        )
        return Certificate(
            feasibility=extended.length(misfit) / size if size > 0 else 0.0,
            stationarity=_largest_seen(potential.grad(w) - z, w) / unit,
            gap=abs(gap) / value_unit,
            error_bound=error_bound(X, fit, w, nu, potential, shift),
            tol=tol,
            rounding=(_allowed(rounding[0]), _allowed(rounding[1])),
        )


def _allowed(amplification: float) -> float:
    return min(WORST_ROUNDING, ULPS * float(np.finfo(float).eps) * amplification)


def _largest_seen(difference: FloatArray, w: FloatArray) -> float:
    seen = np.abs(w) > SEEN * np.abs(w).max(initial=0.0)
    return float(np.abs(difference[seen]).max(initial=0.0))


def _out_of_reach(
    X: FloatArray, w: FloatArray, misfit: FloatArray, potential: Potential
) -> FloatArray:
    """The part of y - X w that no coordinate which is free to move can fit.

    That is all that is orthogonal to the range of X; and where a coordinate keeps one sign and has
    vanished, what only the other sign could fit.
    """
    size = float(np.abs(misfit).max())
    unit = max(float(X.max()), -float(X.min()))
    probe = float(np.abs(w).max(initial=0.0)) or 1.0
    upward = np.isfinite(potential.value_terms(np.full(len(w), probe)))
    downward = np.isfinite(potential.value_terms(np.full(len(w), -probe)))
    pull = -(X / unit).T @ (misfit / size)
    at_end = np.abs(w) <= SEEN * probe
    stuck = at_end & ((~upward & (pull > 0)) | (~downward & (pull < 0)))
    columns = X[:, ~stuck] / unit
    coefficients = scipy.linalg.lstsq(columns, misfit / size)[0]
    return -(misfit - columns @ coefficients * size)
