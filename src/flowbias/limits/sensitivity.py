"""Derivatives of the limit, from one factorization at the solution.

    dw/dy = W X^T H^{-1},   W = diag(w'(z)),   H = X W X^T
    dw/dlog(scale) = v - W X^T H^{-1} X v,     v = d w(z) / d log(scale) at fixed dual z

Coordinates that are frozen, or driven to zero, do not move. Where the potential does not separate W
is a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.weighted_inverse import check_resolved, weighted_inverse
from flowbias.models.reachable import Reachable
from flowbias.potentials import JointPotential, Potential
from flowbias.problems.regression import Regression
from flowbias.results.solution import Sensitivity


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
