"""How a limit answers to its data and to its scale, from one factorization at the solution.

    dw/dy = W X^T H^{-1},   W = diag(w'(z)),   H = X W X^T
    dw/dlog(scale) = v - W X^T H^{-1} X v,     v = d w(z) / d log(scale) at fixed dual z

Coordinates that are frozen, or driven to zero, do not move. Where the potential does not separate W
is a matrix.

Over independent rows A of X the first is G = W A^T (A W A^T)^-1: G b is the solution of A v = b of
least length in the metric 1/W. Its entries are bounded for all positive W at once [Stewart 1989],
though A W A^T may be singular to working precision, as it is near the rich limit where fewer
coordinates carry the fit than there are samples. For the same reason v = W A^T x is accurate to
about the size of its residual A v - b, which is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.ground.linear_algebra import graded_qr
from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.models.reachable import Reachable
from flowbias.potentials import JointPotential, Potential
from flowbias.problems.regression import Constraint, Regression
from flowbias.results.solution import Sensitivity, UnresolvedError

# Residual up to which a derivative counts as found: half of the digits.
SHOWN_TO = 1e-8


def sensitivity(reach: Reachable, potential: Potential, z: FloatArray) -> Sensitivity:
    """Both derivatives of the limit at the dual point z."""
    constraint = reach.constraint
    curvature = reach.restrict(potential.hess_dual(z))
    found = weighted_inverse(constraint, curvature)
    check_resolved(found.residual)
    dw_dy = reach.embed(found.answer @ constraint.target_derivative())
    drift = potential.scale_derivative(z)
    if drift is None:
        return Sensitivity(dw_dy, None)
    drift = reach.restrict(drift)
    return Sensitivity(dw_dy, reach.embed(drift - found.answer @ constraint.apply(drift)))


def at_limit(
    derivatives: Callable[[Reachable, Any, FloatArray], Sensitivity],
    reach: Reachable,
    model: Any,
    problem: Regression,
    dual: FloatArray,
) -> Sensitivity:
    """Either kind at the dual point of a limit of `model`."""
    z = np.asarray(model.shift + problem.X.T @ dual)
    return derivatives(reach, model.potential, z)


def joint_sensitivity(reach: Reachable, potential: JointPotential, z: FloatArray) -> Sensitivity:
    """The derivative in y of a limit under a joint potential, which has no scale of its own."""
    constraint = reach.constraint
    rows = constraint.rows * constraint.row_scale[:, None]
    moves = potential.hess_dual(z) @ rows.T
    targets = constraint.target_derivative()
    # Symmetric and definite up to rounding, which Cholesky's method would not forgive.
    dw_dy = np.asarray(moves @ np.linalg.lstsq(rows @ moves, targets)[0])
    residual = np.linalg.norm(rows @ dw_dy - targets) / np.linalg.norm(targets)
    check_resolved(float(residual))
    return Sensitivity(dw_dy, None)


def check_resolved(residual: float, advice: str = "Take a larger scale.") -> None:
    """Of A v = b, relative to b."""
    if not residual <= SHOWN_TO:
        raise UnresolvedError(
            "the derivative of the limit is not resolved in double precision (relative residual "
            f"{residual:.1e}, allowed {SHOWN_TO:.0e}): fewer coordinates carry the fit than there "
            f"are samples, and the others are too small. {advice}"
        )


@dataclass(frozen=True, eq=False)
class WeightedInverse:
    """For the rows A of a constraint and the weights W.

    answer    G, (d, rows)
    inverse   (A W A^T)^-1
    residual  the largest ||A v - b|| of a column v of G, b a unit vector
    """

    answer: FloatArray
    inverse: FloatArray
    residual: float

    @property
    def is_resolved(self) -> bool:
        """Whether double precision shows it."""
        return self.residual <= SHOWN_TO


def weighted_inverse(constraint: Constraint, weights: FloatArray) -> WeightedInverse:
    """By the normal equations, or where they lose it by orthogonal factors."""
    rows = len(constraint.target)
    if not rows:
        return WeightedInverse(np.zeros((len(weights), 0)), np.zeros((0, 0)), 0.0)
    with np.errstate(all="ignore"):
        found = _by_normal_equations(constraint, weights)
        if found.residual <= 1e-12:
            return found
        return _by_orthogonal_factors(constraint, weights)


def _by_normal_equations(constraint: Constraint, weights: FloatArray) -> WeightedInverse:
    system = NormalEquations(constraint, weights, Effort())
    identity = np.eye(len(constraint.target))
    inverse = np.stack([system.solve(column) for column in identity], axis=1)
    answer = constraint.rows.T @ (constraint.row_scale[:, None] * inverse)
    answer *= weights[:, None]
    return WeightedInverse(answer, 0.5 * (inverse + inverse.T), _residual(constraint, answer))


def _by_orthogonal_factors(constraint: Constraint, weights: FloatArray) -> WeightedInverse:
    """From W^(1/2) A^T = Q R P^T: with S = R^-T P^T, G = W^(1/2) Q S and (A W A^T)^-1 = S^T S.

    The weights are never squared.
    """
    root = np.sqrt(weights)[:, None]
    scaled = constraint.rows.T * constraint.row_scale
    scaled *= root
    Q, R, pivots = graded_qr(scaled)
    S, singular = scipy.linalg.lapack.dtrtrs(R, np.eye(len(pivots))[pivots], trans=1)
    answer = np.zeros_like(scaled)
    if not singular:  # else no weight rests on some direction: zero, which fits nothing
        answer = root * (Q @ S)
    return WeightedInverse(answer, S.T @ S, _residual(constraint, answer))


def _residual(constraint: Constraint, answer: FloatArray) -> float:
    """The rows of A have unit length; not a number where something has left the double range."""
    fitted = constraint.row_scale[:, None] * (constraint.rows @ answer)
    return float(np.linalg.norm(fitted - np.eye(len(fitted)), axis=0).max())
