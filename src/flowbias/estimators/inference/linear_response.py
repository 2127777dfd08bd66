"""How a limit answers to small changes of its targets, from one factorization at the solution.

    w = grad Q*(z),  z = shift + X^T nu,  W = diag(w'(z)),  H = X W X^T
    d nu/dy = H^+,     dw/dy = W X^T H^+,     d(X w)/dy = P (projection on the range of X)

X and y are the weighted rows (`weighted_rows`), with the intercept's column projected out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowbias.estimators.inference.weighted_rows import Unseen, WeightedRows, unseen_by
from flowbias.estimators.intercepts.frames import at_rest
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.limits.sensitivity import WeightedInverse, check_resolved, weighted_inverse
from flowbias.limits.solve import limit
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.problems.regression import Constraint
from flowbias.results.solution import Solution, SolveError, UnresolvedError


@dataclass(frozen=True, eq=False)
class LinearResponse:
    """The limit on some rows with its first-order answer to changes of their targets.

    curvature  w'(z), the diagonal of W
    lift       takes duals of the basis rows to duals nu of the samples, in the range of X
    unseen     what neither X nor the intercept can do to the samples
    """

    model: HasPotential
    rows: WeightedRows
    solution: Solution
    curvature: FloatArray
    lift: FloatArray
    unseen: Unseen

    @property
    def constraint(self) -> Constraint:
        return self.rows.constraint

    @property
    def degrees_of_freedom(self) -> int:
        """trace d(fitted)/dy, intercept included."""
        return len(self.rows.y) - self.unseen.dimension

    @cached_property
    def _answers(self) -> WeightedInverse:
        return weighted_inverse(self.constraint, self.curvature)

    @property
    def is_resolved(self) -> bool:
        """Whether double precision shows how the limit answers."""
        return self._answers.is_resolved

    @property
    def _resolved(self) -> WeightedInverse:
        try:
            check_resolved(self._answers.residual, "Use leave_one_out_refits, or a larger scale.")
        except UnresolvedError as lost:
            raise SolveError(str(lost), self.solution) from lost
        return self._answers

    @property
    def inverse(self) -> FloatArray:
        """(A W A^T)^-1 in the basis rows A of the constraint."""
        return self._resolved.inverse

    @cached_property
    def dual(self) -> FloatArray:
        """nu without the part that X^T cannot see along the intercept's column."""
        return self.rows.projected(self.solution.dual)

    @cached_property
    def basis_dual(self) -> FloatArray:
        """The dual of the basis rows: A^T basis_dual = X^T nu."""
        return self.constraint.dual_of_rows(self.rows.X, self.dual)

    @cached_property
    def unit(self) -> FloatArray:
        """The size of nu_i per sample: squares of nu and of d nu/dy would leave the doubles."""
        size = np.abs(self.lift).max(axis=1, initial=0.0)
        return np.where(size > 0.0, size, 1.0)

    @cached_property
    def unit_lift(self) -> FloatArray:
        return np.asarray(self.lift / self.unit[:, None])

    @property
    def unit_dual(self) -> FloatArray:
        """nu_i / unit_i."""
        return np.asarray(self.dual / self.unit)

    @cached_property
    def unit_dual_dy(self) -> FloatArray:
        """d nu/dy = H^+, row i divided by unit_i, (n, n)."""
        return np.asarray(self.unit_lift @ self.inverse @ self.lift.T)

    @cached_property
    def dw_dy(self) -> FloatArray:
        """(d, n)."""
        # Basis rows have unit length: the units of X enter once, through the lift.
        return np.asarray(self._resolved.answer @ self.lift.T)


def linear_response(model: HasPotential, rows: WeightedRows, tol: float = 1e-10) -> LinearResponse:
    """The limit of `model` on the rows and its linear response."""
    if Provides.POTENTIAL not in provided_by(model):
        raise unfitting(model, "provide POTENTIAL", "Its limit has no derivative of this form.")
    solution = _limit(model, rows, tol)
    _check_moves_both_ways(model, solution)
    unseen = unseen_by(rows)
    z = np.asarray(model.shift + rows.X.T @ solution.dual)
    curvature = np.broadcast_to(model.potential.hess_dual(z), solution.w.shape)
    return LinearResponse(model, rows, solution, curvature, _lift(rows, unseen), unseen)


def _limit(model: HasPotential, rows: WeightedRows, tol: float) -> Solution:
    """Of the rows; where nothing is left of X, gradient flow stays where it starts."""
    if not rows.moves:
        n, d = rows.X.shape
        return at_rest((n, d), rows.y, model.potential, model.shift, tol=tol, distance=0.0)
    solution: Solution = limit(model, rows.X, rows.y, tol=tol)
    return solution


def _check_moves_both_ways(model: HasPotential, solution: Solution) -> None:
    size = float(np.abs(solution.w).max(initial=0.0)) or 1.0
    up, down = model.potential.open_sides(len(solution.w), size)
    if not (np.all(up) and np.all(down)):
        raise InputError(
            "model: must let every coordinate take both signs, got one that starts with a zero "
            "weight. Dropping a sample may then change which coordinates vanish; take fb.limit on "
            "each set of samples instead."
        )


def _lift(rows: WeightedRows, unseen: Unseen) -> FloatArray:
    """The map from basis duals to sample duals in the range of X."""
    lift = rows.constraint.to_data
    if lift is None:
        return np.diag(rows.constraint.row_scale)
    return rows.projected(lift - unseen.misfit(lift))
