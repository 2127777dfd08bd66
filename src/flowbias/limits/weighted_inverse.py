"""How a limit answers to its data: G = W A^T (A W A^T)^-1, whatever the spread of the weights W.

G b is the solution of A v = b of least length in the metric 1/W. Its entries are bounded for all
positive W at once [Stewart 1989], though A W A^T may be singular to working precision, as it is
near the rich limit where fewer coordinates carry the fit than there are samples. For the same
reason v = W A^T x is accurate to about the size of its residual A v - b, which is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.ground.graded_qr import graded_qr
from flowbias.ground.typing import FloatArray
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problems.regression import Constraint
from flowbias.results.solution import UnresolvedError

# Residual above which the normal equations are left for orthogonal factors.
ACCURATE = 1e-12
# And up to which a derivative counts as found: half of the digits.
RESOLVED = 1e-8


def check_resolved(residual: float, advice: str = "Take a larger scale.") -> None:
    """Of A v = b, relative to b."""
    if not residual <= RESOLVED:
        raise UnresolvedError(
            "the derivative of the limit is not resolved in double precision (relative residual "
            f"{residual:.1e}, allowed {RESOLVED:.0e}): fewer coordinates carry the fit than there "
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
        return self.residual <= RESOLVED


def weighted_inverse(constraint: Constraint, weights: FloatArray) -> WeightedInverse:
    """By the normal equations, or where they lose it by orthogonal factors."""
    rows = len(constraint.target)
    if not rows:
        return WeightedInverse(np.zeros((len(weights), 0)), np.zeros((0, 0)), 0.0)
    with np.errstate(all="ignore"):
        found = _by_normal_equations(constraint, weights)
        if found.residual <= ACCURATE:
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
