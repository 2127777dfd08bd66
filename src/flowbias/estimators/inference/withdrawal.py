"""From the limit on all samples to the one without sample i, by taking its dual away.

With a share tau of nu_i left, the limit on the others obeys

    A = cost - (+-)(A_rest^T nu + tau a_i nu_i),  log P = log_weight(A),  A_rest (P+ - P-) = b_rest

whose solution is the full fit at tau = 1 and the refit at tau = 0: the path of targets of sample i
along which its dual vanishes. The whole way is tried at once. Where its linear prediction leaves
the domain of the slacks, or Newton's method does not arrive, a part of it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray
from flowbias.limits.interior_point import Branches, Response, State
from flowbias.limits.newton import polish
from flowbias.limits.normal_equations import Effort, MakeSystem
from flowbias.problems.constraint import Constraint

# Parts of the way, tried or gone, and conjugate-gradient iterations per row: a solve from scratch
# is cheaper beyond, and where after the first few parts hardly any of the way is gone.
MAX_PARTS, MAX_ITERATIONS = 40, 40
FIRST_PARTS, HARDLY_ANY = 8, 0.1
# Newton steps for one of them.
MAX_STEPS = 12
# Residual from which the next part may set out.
ON_THE_WAY = 0.1
# Share of a part that is tried after it has failed.
SHORTER = 0.25
# Residual up to which rounding may have ended the last part; the certificate judges it.
ARRIVED = 1e3 * DEFAULT.residual


@dataclass(frozen=True)
class Withdrawal:
    """The way for one sample.

    constraint  of the others, in the units of the branches
    leaving     (+-) a_i nu_i, by how much slacks are lower while nu_i is there
    systems     how linear systems are solved
    """

    constraint: Constraint
    branches: Branches
    law: Response
    leaving: FloatArray
    systems: MakeSystem
    effort: Effort

    def followed(self, state: State) -> State | None:
        """The state at tau = 0 from that at tau = 1, or None where that takes too long."""
        left, longest = 1.0, 1.0
        slope = self._slope(state)
        for tried in range(MAX_PARTS):
            if self._is_too_long(tried, left):
                break
            part = min(left, longest)
            part *= self.law.longest_step(state.slack, part * slope.slack)
            is_last = part >= left
            found, residual = polish(
                self.constraint,
                self.branches,
                self.law,
                self._predicted(state, slope, part),
                self.effort,
                tol=DEFAULT.residual if is_last else ON_THE_WAY,
                max_steps=MAX_STEPS,
                systems=self.systems,
            )
            if is_last and residual <= ARRIVED:
                return found
            if is_last or not residual <= ON_THE_WAY:
                longest = SHORTER * part
                continue
            state, left, longest = found, left - part, 1.0
            slope = self._slope(state)
        return None

    def _is_too_long(self, tried: int, left: float) -> bool:
        slow = tried >= FIRST_PARTS and left > 1.0 - HARDLY_ANY
        return slow or self.effort.iterations > MAX_ITERATIONS * len(self.constraint.target)

    def _slope(self, state: State) -> State:
        """Change of weights, slacks and dual per unit of tau that is taken away."""
        rate = self.law.rate(state.slack)
        conductance = self.branches.total(state.weight * rate)
        # On a branch: dP = P rate (rise - leaving); summed over the branches of a coordinate.
        pushed = self.branches.difference(state.weight * rate * self.leaving)
        system = self.systems(self.constraint, conductance, self.effort, graded=False)
        dual = system.solve(self.constraint.apply(pushed))
        rise = self.branches.signed(self.constraint.adjoint(dual)) - self.leaving
        return State(rate * rise, -rise, dual)

    def _predicted(self, state: State, slope: State, part: float) -> State:
        """The linear prediction of the weights.

        Those that belong to the predicted slacks would be off by the exponential of what the
        prediction misses.
        """
        growth = part * slope.weight
        grown = np.where(growth >= 0.0, 1.0 + growth, np.exp(np.minimum(growth, 0.0)))
        return State(
            state.weight * grown, state.slack + part * slope.slack, state.dual + part * slope.dual
        )
