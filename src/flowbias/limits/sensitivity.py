"""Derivatives of the limit, from one factorization at the solution.

dw/dy = W X^T H^{-1},   W = diag(w'(z)),   H = X W X^T
dw/dlog(scale) = v - W X^T H^{-1} X v,     v = d w(z) / d log(scale) at fixed dual z
"""

from __future__ import annotations

import numpy as np

from flowbias._typing import FloatArray
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.potentials import Potential
from flowbias.problem import Constraint
from flowbias.solution import Sensitivity


def sensitivity(
    constraint: Constraint, potential: Potential, z: FloatArray, curvature: FloatArray
) -> Sensitivity:
    """Both derivatives of the limit at the dual point z, where `curvature` is w'(z)."""
    system = NormalEquations(constraint, curvature, Effort())
    targets = constraint.target_derivative()
    duals = np.stack([system.solve(column) for column in targets.T], axis=1)
    dw_dy = curvature[:, None] * (constraint.rows.T @ (constraint.row_scale[:, None] * duals))
    drift = potential.scale_derivative(z)
    if drift is None:
        return Sensitivity(dw_dy, None)
    correction = system.solve(constraint.apply(drift))
    return Sensitivity(dw_dy, drift - curvature * constraint.adjoint(correction))
