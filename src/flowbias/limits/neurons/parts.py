"""What the data moves of a neuron, what it leaves alone, and where that must end.

With P the projection on the row space of X, w(t) = w(0) + X^T nu(t), so that k = w - P w rests. The
pair (a, P w) follows a flow of its own, that of a neuron which sees nothing but the row space, and
conserves D = a^2 - ||P w||^2. Where it fits the data, a P w = X^+ y =: m, hence

    a^2 = D + ||m||^2/a^2,    a^2 = D/2 + sqrt(D^2/4 + ||m||^2),    a w = m + a k:

the limit, up to the sign of a, in closed form.  (docs/theory/neurons.md)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import Constraint, Regression


def check_columns(per: str, wanted: int, problem: Regression) -> None:
    """Refuse data of another number of features than the neurons have."""
    d = problem.X.shape[1]
    if d != wanted:
        raise InputError(
            f"X: must have one column per {per} ({wanted}), got {d}. Pass samples x features."
        )


def within_reach(problem: Regression) -> tuple[Regression, float]:
    """The problem, with y = 0 where the projection P y is nothing but rounding; and the distance.

    A rounding of X turns its range by the condition number of X times as much. The digits of a P y
    below that are noise, and no measure that is relative to it could be met.
    """
    constraint = problem.constraint
    if constraint.projected is None:
        return problem, constraint.distance
    unit = float(np.abs(problem.y).max())
    reached = np.linalg.norm(constraint.projected / unit) / np.linalg.norm(problem.y / unit)
    # Share of y above which a projection is never taken for rounding, however X is conditioned.
    largest_rounding = 1e-10
    if reached > largest_rounding or reached > _projection_rounding(problem):
        return problem, constraint.distance
    return Regression(problem.X, np.zeros_like(problem.y)), 1.0


def _projection_rounding(problem: Regression) -> float:
    """max(n, d) eps ||X|| ||X^+||."""
    n, d = problem.X.shape
    unit = max(float(problem.X.max()), -float(problem.X.min()))
    inverse = problem.constraint.target_derivative() * unit
    condition = float(np.linalg.norm(problem.X / unit, 2) * np.linalg.norm(inverse, 2))
    eps = float(np.finfo(float).eps)
    return eps * condition * float(max(n, d))


@dataclass(frozen=True, eq=False)
class NeuronParts:
    """A linear neuron (a, w) on a problem, split along the row space of X."""

    a: float
    w: FloatArray
    problem: Regression

    @classmethod
    def of(cls, a: float, w: FloatArray, problem: Regression) -> NeuronParts:
        check_columns("inner weight of the neuron", w.size, problem)
        return cls(a, w, problem)

    @property
    def constraint(self) -> Constraint:
        return self.problem.constraint

    def solve(self, b: FloatArray) -> FloatArray:
        """x with A A^T x = b, from the factorization that came with the constraint."""
        factor = self.constraint.gram_factor
        if factor is None:  # orthonormal rows
            return b
        x, _ = scipy.linalg.lapack.dpotrs(factor, b, lower=1)
        left = b - self.constraint.apply(self.constraint.adjoint(x))
        return np.asarray(x + scipy.linalg.lapack.dpotrs(factor, left, lower=1)[0])

    @cached_property
    def dual_fit(self) -> FloatArray:
        """(A A^T)^{-1} b."""
        return self.solve(self.constraint.target)

    @cached_property
    def dual_start(self) -> FloatArray:
        """(A A^T)^{-1} A w."""
        return self.solve(self.constraint.apply(self.w))

    @cached_property
    def fit(self) -> FloatArray:
        """m = X^+ y, the shortest predictor that fits."""
        return self.constraint.adjoint(self.dual_fit)

    @cached_property
    def moving(self) -> FloatArray:
        """P w at the start."""
        return self.constraint.adjoint(self.dual_start)

    @cached_property
    def resting(self) -> FloatArray:
        """k = w - P w, at all times."""
        if len(self.constraint.rows) == self.w.size:
            return np.zeros_like(self.w)  # the rows span everything: what is left is rounding
        rest = self.w - self.moving
        # Once more: w may be nearly all in the row space, and its rounding must not stay there.
        return rest - self.constraint.adjoint(self.solve(self.constraint.apply(rest)))

    @cached_property
    def fit_length(self) -> float:
        return extended.length(self.fit)

    @cached_property
    def moving_difference(self) -> float:
        """D = a^2 - ||P w||^2, as a product so that equal squares do not cancel."""
        length = extended.length(self.moving)
        return float((abs(self.a) - length) * (abs(self.a) + length))

    @cached_property
    def half_sum(self) -> float:
        """sqrt(D^2/4 + ||m||^2) = (a^2 + ||P w||^2)/2 at the limit."""
        return float(np.hypot(0.5 * self.moving_difference, self.fit_length))

    @cached_property
    def outer_weight(self) -> float:
        """|a| at the limit."""
        half = 0.5 * self.moving_difference
        if half >= 0.0:
            return float(np.sqrt(self.half_sum + half))
        # ||P w|| is the larger of the two; their product is ||m||.
        return self.fit_length / float(np.sqrt(self.half_sum - half))

    def limit(self, sign: float) -> FloatArray:
        """a w at the limit where a ends with that sign."""
        if self.fit_length == 0.0 and self._rests_nothing:
            return np.zeros_like(self.w)
        return self.fit + sign * self.outer_weight * self.resting

    @property
    def _rests_nothing(self) -> bool:
        """Whether k is the rounding of w, which next to a fit of 0 would be all that is left."""
        # Roundings of w, and of its projection, that k may be and be none.
        few = 8.0
        noise = few * float(np.sqrt(self.w.size) * np.finfo(float).eps)
        return extended.length(self.resting) <= noise * extended.length(self.w)

    def dual(self, sign: float) -> FloatArray:
        """nu with 3/2 sign w(inf) = 3/2 sign w(0) + X^T nu, that is grad q = shift + X^T nu."""
        a = self.outer_weight
        fit = self.dual_fit / a if a > 0.0 else np.zeros_like(self.dual_fit)
        return self.constraint.dual_of_data(1.5 * (fit - sign * self.dual_start))
