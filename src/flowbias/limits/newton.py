"""The last steps: Newton's method in weights and slacks at once, to working accuracy.

Solves  log P = log_weight(A),  A (P+ - P-) = b  from a nearby point. Three things keep it from
running away where plain dual Newton does:

* the mismatch l = log_weight(A) - log P enters as l where P must grow and as expm1(l) where it
  must shrink, so that a step neither empties nor explodes a branch;
* branches that carry next to no weight simply follow their curve;
* the weights in the matrix are kept above the rounding of the sum, so that directions of the dual
  which only such branches could decide are left alone.
"""

from __future__ import annotations

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.branches import Branches, Response
from flowbias.limits.interior_point import WEIGHT_FLOOR, State
from flowbias.limits.normal_equations import Effort, LinearSystem, MakeSystem, NormalEquations
from flowbias.problems.regression import Constraint

# A branch with less than this share of the mean weight follows its curve.
NEGLIGIBLE = 0.1
# A mismatch this small in the logarithm is on the curve.
ON_CURVE = 1e-2
# Weights below this share of the total are lost in the rounding of A (P+ - P-).
LOST = 1e-15
# Largest change of a log-weight after which the same factorization serves once more.
CHORD = 0.5
# Residual at which a step that does not help may be the fault of a factorization.
NEARLY_SOLVED = 1e-7
# So many steps in a row that do not halve a residual this small: rounding has been reached.
PATIENCE = 2
ROUNDING_REACHED = 1e-9


def polish(
    constraint: Constraint,
    branches: Branches,
    response: Response,
    state: State,
    effort: Effort,
    *,
    tol: float,
    max_steps: int,
    systems: MakeSystem = NormalEquations,
) -> tuple[State, float]:
    """The state on its curve with residual ||A w - b|| / ||b|| below tol, and that residual."""
    newton = _Newton(constraint, branches, response, state, systems)
    size = float(np.linalg.norm(constraint.target)) or 1.0
    best, best_residual, idle = state, np.inf, 0
    for step in range(max_steps + 1):
        on_curve = newton.on_curve()
        residual = float(np.linalg.norm(newton.gap(on_curve))) / size
        idle = idle + 1 if not residual <= 0.5 * best_residual else 0
        if residual < best_residual:
            best, best_residual = State(on_curve, newton.slack, newton.dual), residual
        at_rest = idle >= PATIENCE and best_residual < ROUNDING_REACHED
        if best_residual < tol or at_rest or step == max_steps:
            break
        # A step that did not help, this close: Cholesky's method may have lost the directions that
        # only the lightest branches decide. Every other attempt, in case it was something else.
        graded = idle % 2 == 1 and best_residual < NEARLY_SOLVED
        if graded:
            newton.slack, newton.dual = best.slack, best.dual
        newton.step(effort, tol * size, graded=graded)
    return best, best_residual


class _Newton:
    """Weights, slacks and dual, and the step that moves them."""

    def __init__(
        self,
        constraint: Constraint,
        branches: Branches,
        response: Response,
        state: State,
        systems: MakeSystem,
    ) -> None:
        self.constraint, self.branches, self.response = constraint, branches, response
        self.systems = systems
        self.slack, self.dual = state.slack, state.dual
        self.mass = float(state.weight.sum())
        # Shares are taken in the branches' own units, rounding in those of the sum.
        worth = float((state.weight / branches.unit).sum())
        self.floor = WEIGHT_FLOOR * worth * branches.unit
        self.light = NEGLIGIBLE * worth / len(branches.plus) * branches.unit
        self.weight = np.maximum(state.weight, self.floor)

    def on_curve(self) -> FloatArray:
        """The weights that the slacks ask for."""
        return np.exp(np.minimum(self.response.log_weight(self.slack), 700.0))

    def gap(self, weight: FloatArray) -> FloatArray:
        return self.constraint.target - self.constraint.apply(self.branches.difference(weight))

    def step(self, effort: Effort, goal: float, *, graded: bool) -> None:
        """One factorization, one Newton step, and further ones while the factorization serves."""
        self._follow()
        mismatch = self.response.log_weight(self.slack) - np.log(self.weight)
        pull = np.where(mismatch >= 0, mismatch, np.expm1(mismatch))
        pull = np.where((self.weight <= 1.1 * self.floor) & (pull > 0), 0.0, pull)
        rate = self.response.rate(self.slack)

        least = 0.0 if graded else LOST * self.mass
        conductance = self.branches.total(np.maximum(self.weight, least) * rate)
        system = self.systems(self.constraint, conductance, effort, graded=graded)
        effort.steps += 1
        change = system.solve(self.gap(self.weight * (1.0 + pull)))
        rise = self.branches.signed(self.constraint.adjoint(change))
        reach = self.response.longest_step(self.slack, -rise)
        growth = reach * (pull + rate * rise)
        grown = 1.0 + np.maximum(growth, 0.0)
        shrunk = np.exp(np.minimum(growth, 0.0))
        self.weight = np.maximum(self.weight * np.where(growth >= 0, grown, shrunk), self.floor)
        self.slack, self.dual = self.slack - reach * rise, self.dual + reach * change
        moved = np.abs(rate * rise * (self.weight > LOST * self.mass)).max(initial=0.0)
        if reach == 1.0 and moved < CHORD:
            self._chord(system, goal)

    def _chord(self, system: LinearSystem, goal: float) -> None:
        """Further steps with the factorization at hand, while each cuts the residual tenfold."""
        residual = np.inf
        while True:
            gap = self.gap(self.on_curve())
            before, residual = residual, float(np.linalg.norm(gap))
            if residual <= goal or not residual < 0.1 * before:
                return
            change = system.solve(gap)
            rise = self.branches.signed(self.constraint.adjoint(change))
            if self.response.longest_step(self.slack, -rise) < 1.0:
                return
            self.slack, self.dual = self.slack - rise, self.dual + change

    def _follow(self) -> None:
        """Put branches that are light, or already close, on their curve."""
        log_weight, on_curve = self.response.log_weight(self.slack), self.on_curve()
        light = (self.weight < self.light) & (on_curve < self.light)
        close = np.abs(log_weight - np.log(self.weight)) < ON_CURVE
        self.weight = np.where(light | close, np.maximum(on_curve, self.floor), self.weight)
