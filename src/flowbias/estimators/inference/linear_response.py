"""How a limit answers to small changes of its targets, from one factorization at the solution.

    w = grad Q*(z),  z = shift + X^T nu,  W = diag(w'(z)),  H = X W X^T
    d nu/dy = H^+,     dw/dy = W X^T H^+,     d(X w)/dy = P (projection on the range of X)

X and y are the weighted rows (`weighted_rows`), with the intercept's column projected out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias._typing import FloatArray
from flowbias.estimators.inference.weighted_rows import Rows
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.limits.routes import HasPotential
from flowbias.limits.solve import limit
from flowbias.potentials import Provides
from flowbias.problem import Constraint, InputError, Regression
from flowbias.routing import provided_by, unfitting
from flowbias.solution import Solution, SolveError

# How far H H^-1 may be from the identity: what is left of sixteen digits where half are lost.
RESOLVED = 1e-6


@dataclass(frozen=True, eq=False)
class LinearResponse:
    """The limit on some rows with its first-order answer to changes of their targets.

    curvature  w'(z), the diagonal of W
    lift       takes duals of the basis rows to duals nu of the samples, in the range of X
    leverage   diagonal of d(fitted)/dy, intercept included: 1 where sample i is interpolated
               whatever its target
    """

    model: HasPotential
    rows: Rows
    solution: Solution
    curvature: FloatArray
    lift: FloatArray
    leverage: FloatArray

    @property
    def problem(self) -> Regression:
        return self.rows.problem

    @property
    def constraint(self) -> Constraint:
        return self.rows.problem.constraint

    @cached_property
    def _inverse_and_error(self) -> tuple[FloatArray, float]:
        return _inverse(self.constraint, self.curvature)

    @property
    def is_resolved(self) -> bool:
        """Whether double precision shows how the limit answers."""
        return self._inverse_and_error[1] <= RESOLVED

    @property
    def inverse(self) -> FloatArray:
        """(A W A^T)^-1 in the basis rows A of the constraint."""
        inverse, error = self._inverse_and_error
        if not self.is_resolved:
            raise SolveError(
                f"the derivative of the limit is not resolved in double precision (error "
                f"{error:.1e}, allowed {RESOLVED:.0e}): fewer coordinates carry the fit than there "
                "are samples. Use leave_one_out_refits, or a larger scale.",
                self.solution,
            )
        return inverse

    @cached_property
    def dual(self) -> FloatArray:
        """nu without the part that X^T cannot see along the intercept's column."""
        return self.rows.projected(self.solution.dual)

    @cached_property
    def basis_dual(self) -> FloatArray:
        """The dual of the basis rows: A^T basis_dual = X^T nu."""
        constraint = self.constraint
        if constraint.to_data is None:
            return np.asarray(self.dual / constraint.row_scale)
        return np.asarray(constraint.apply(self.problem.X.T @ self.dual))  # orthonormal rows

    @cached_property
    def dual_dy(self) -> FloatArray:
        """d nu/dy = H^+, (n, n)."""
        return np.asarray(self.lift @ self.inverse @ self.lift.T)

    @cached_property
    def dw_dy(self) -> FloatArray:
        """(d, n)."""
        moved = self.inverse @ self.lift.T
        rises = np.stack([self.constraint.adjoint(column) for column in moved.T], axis=1)
        return np.asarray(self.curvature[:, None] * rises)

    @cached_property
    def misfit(self) -> FloatArray:
        """y - X w - b e; zero for an interpolator."""
        return np.asarray(self.problem.y - self.problem.X @ self.solution.w)


def linear_response(model: HasPotential, rows: Rows, tol: float = 1e-10) -> LinearResponse:
    """The limit of `model` on the rows and its linear response."""
    if Provides.POTENTIAL not in provided_by(model):
        raise unfitting(model, "provide POTENTIAL", "Its limit has no derivative of this form.")
    problem = rows.problem
    solution: Solution = limit(model, problem, tol=tol)
    _check_moves_both_ways(model, solution)
    lift, leverage = _lift_and_leverage(rows)
    z = np.asarray(model.shift + problem.X.T @ solution.dual)
    curvature = np.broadcast_to(model.potential.hess_dual(z), solution.w.shape)
    return LinearResponse(model, rows, solution, curvature, lift, leverage)


def _check_moves_both_ways(model: HasPotential, solution: Solution) -> None:
    size = float(np.abs(solution.w).max(initial=0.0)) or 1.0
    up, down = model.potential.open_sides(len(solution.w), size)
    if not (np.all(up) and np.all(down)):
        raise InputError(
            "model: must let every coordinate take both signs, got one that starts with a zero "
            "weight. Dropping a sample may then change which coordinates vanish; take fb.limit on "
            "each set of samples instead."
        )


def _lift_and_leverage(rows: Rows) -> tuple[FloatArray, FloatArray]:
    """The map from basis duals to sample duals in the range of X, and the hat matrix' diagonal."""
    problem, constraint = rows.problem, rows.problem.constraint
    n, free = len(problem.y), int(rows.free is not None)
    if constraint.to_data is None:
        return np.diag(constraint.row_scale), np.ones(n)
    lift = constraint.to_data
    if lift.shape[1] == n - free:
        return rows.projected(lift), np.ones(n)
    left, values, _ = scipy.linalg.svd(problem.X, full_matrices=False)
    left = left[:, values > max(problem.X.shape) * np.finfo(float).eps * values[0]]
    return left @ (left.T @ lift), np.square(left).sum(axis=1) + rows.free_leverage


def _inverse(constraint: Constraint, curvature: FloatArray) -> tuple[FloatArray, float]:
    """(A W A^T)^-1, and how far its product with A W A^T is from the identity."""
    with np.errstate(all="ignore"):
        system = NormalEquations(constraint, curvature, Effort())
        identity = np.eye(len(constraint.target))
        inverse = np.stack([system.solve(column) for column in identity], axis=1)
        products = [constraint.apply(curvature * constraint.adjoint(v)) for v in inverse.T]
        error = float(np.abs(np.stack(products, axis=1) - identity).max())
    return 0.5 * (inverse + inverse.T), error
