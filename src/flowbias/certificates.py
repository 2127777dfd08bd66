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

from flowbias._error_bound import error_bound
from flowbias._typing import FloatArray
from flowbias.potentials import Potential

# Coordinates below this share of the largest do not count for stationarity: their logarithm is
# beyond what X w = y in double precision determines.
SEEN = 1e-12
BLOCK_NUMBERS = 2**19


@dataclass(frozen=True)
class Certificate:
    """Relative measures of optimality; `ok` when all are within `tol`.

    feasibility   ||X w - P y|| / (||P y|| + || |X| |w| ||)
    stationarity  ||grad Q(w) - shift - X^T nu||_inf / max(1, ||X^T nu||_inf)
    gap           |Q(w) - <shift, w> + Q*(shift + X^T nu) - <nu, P y>| / (1 + |Q(w)|)
    error_bound   bound of ||w - exact limit||_2; inf where none could be proved
    """

    feasibility: float
    stationarity: float
    gap: float
    error_bound: float
    tol: float

    @property
    def ok(self) -> bool:
        # NaN compares false, so a measure that could not be computed certifies nothing.
        return self.feasibility <= self.tol and self.stationarity <= self.tol and self.gap <= self.tol

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
        spread = float(np.linalg.norm(_absolute_product(X, w)))
        fit = y
        if float(np.linalg.norm(misfit)) > tol * (float(np.linalg.norm(y)) + spread):
            # Either w is wrong or y has a part outside the range of X, which no w can fit.
            fit = y - _outside_range(X, misfit)
            misfit = X @ w - fit
        size = float(np.linalg.norm(fit)) + spread
        feasibility = float(np.linalg.norm(misfit)) / size if size > 0 else 0.0
        rise = X.T @ nu
        z = shift + rise
        value = potential.value(w)
        duality = value - float(np.sum(shift * w)) + potential.conjugate(z) - float(nu @ fit)
        return Certificate(
            feasibility=feasibility,
            stationarity=_stationarity(potential, w, z, rise),
            gap=abs(duality) / (1.0 + abs(value)),
            error_bound=error_bound(X, fit, w, nu, potential, shift),
            tol=tol,
        )


def _stationarity(potential: Potential, w: FloatArray, z: FloatArray, rise: FloatArray) -> float:
    seen = np.abs(w) > SEEN * np.abs(w).max(initial=0.0)
    difference = np.abs(potential.grad(w) - z)[seen]
    return float(difference.max(initial=0.0)) / max(1.0, float(np.abs(rise).max(initial=0.0)))


def _absolute_product(X: FloatArray, w: FloatArray) -> FloatArray:
    """|X| |w| in column blocks: np.abs(X) alone would copy X."""
    n, d = X.shape
    width = max(1, BLOCK_NUMBERS // n)
    total = np.zeros(n)
    for start in range(0, d, width):
        part = slice(start, start + width)
        total += np.abs(X[:, part] * w[part]).sum(axis=1)
    return total


def _outside_range(X: FloatArray, misfit: FloatArray) -> FloatArray:
    """The part of -misfit (that is, of y - X w) orthogonal to the range of X."""
    size = float(np.abs(misfit).max())
    lengths = np.abs(X).max(axis=1)
    unit = float(lengths.max())
    coefficients = scipy.linalg.lstsq(X / unit, misfit / size)[0]
    return -(misfit - (X / unit) @ coefficients * size)
