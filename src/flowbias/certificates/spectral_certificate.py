"""Proof that a matrix minimizes a function of its singular values, from the problem, M and nu.

    F(M) = sum_i q(s_i(M)),   F*(Z) = sum_i q*(s_i(Z)),   q even and convex

M minimizes F among the matrices with the same measurements if and only if Z = sum nu_n X_n is a
subgradient of F at M, and then F(M) + F*(Z) = <nu, measurements>: for q = |.| the nuclear norm, for
q = (.)^2/2 the Frobenius norm, for a hypentropy what wide factorizations minimize. The gradient of
F at M = A diag(s) B^T is A diag(q'(s)) B^T. Nothing here is shared with the solvers: not even the
basis in which they work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg

from flowbias.certificates.measures import Measure, Measured
from flowbias.ground.extended import length
from flowbias.ground.typing import FloatArray
from flowbias.potentials import SEEN, Potential, Provides


@dataclass(frozen=True)
class SpectralCertificate(Measured):
    """Measures of optimality; `ok` when all three are within tol.

    feasibility    ||measure(M) - P y|| / (||P y|| + ||measurements|| ||M||_F)
    stationarity   ||grad F(M) - Z||_F / max(1, ||Z||_F) on the singular vectors of M that count;
                   for the nuclear norm, by how much the operator norm of Z exceeds 1
    gap            |F(M) + F*(Z) - <nu, P y>| / max(|F(M)| + |F*(Z)|, tiny): relative
    operator_norm  of Z = sum nu_n X_n
    """

    feasibility: float
    stationarity: float
    gap: float
    operator_norm: float
    tol: float

    @property
    def measures(self) -> tuple[Measure, ...]:
        """All three are judged."""
        return (
            Measure("feasibility", self.feasibility, self.tol),
            Measure("stationarity", self.stationarity, self.tol),
            Measure("gap", self.gap, self.tol),
        )


class Measurements(Protocol):
    """All that a proof asks of a problem: who measured, and how it was solved, is nothing to it."""

    @property
    def matrices(self) -> FloatArray: ...

    @property
    def reachable(self) -> FloatArray: ...

    def measure(self, M: FloatArray) -> FloatArray: ...

    def adjoint(self, r: FloatArray) -> FloatArray: ...


def certify_spectral(
    problem: Measurements, M: FloatArray, nu: FloatArray, potential: Potential, *, tol: float
) -> SpectralCertificate:
    """The certificate of (M, nu) under F = potential of the singular values."""
    Z = problem.adjoint(nu)
    left, values, right = scipy.linalg.svd(M, full_matrices=False)
    dual_values = np.asarray(np.linalg.svd(Z, compute_uv=False))
    operator_norm = float(dual_values.max(initial=0.0))
    misfit = problem.measure(M) - problem.reachable
    size = length(problem.reachable)
    reach = length(problem.matrices) * length(values)
    if Provides.POTENTIAL not in potential.provides:
        # The nuclear norm: its conjugate is 0 inside the unit ball, and leaving the ball is what
        # stationarity measures.
        away, conjugate = max(0.0, operator_norm - 1.0), 0.0
    else:
        seen = values > SEEN * values.max(initial=0.0)
        gradient = potential.grad(values)
        # Z on the singular vectors of M: the pairs that count must see grad F and nothing else.
        rotated = left.T @ Z @ right.T
        difference = (rotated - np.diag(gradient))[seen][:, seen]
        away = length(difference) / max(1.0, length(Z))
        conjugate = potential.conjugate(dual_values)
    value = potential.value(values)
    total = abs(value) + abs(conjugate)
    gap = abs(value + conjugate - float(nu @ problem.reachable))
    return SpectralCertificate(
        feasibility=_ratio(length(misfit), size + reach),
        stationarity=away,
        gap=_ratio(gap, total),
        operator_norm=operator_norm,
        tol=tol,
    )


def _ratio(measure: float, unit: float) -> float:
    """measure / unit, where 0 / 0 is a perfect score and NaN stays NaN."""
    return 0.0 if measure == 0.0 and unit == 0.0 else float(np.divide(measure, unit))
