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

from flowbias._typing import FloatArray
from flowbias.limits.branches import Branches, Response
from flowbias.limits.interior_point import WEIGHT_FLOOR, State
from flowbias.limits.normal_equations import Effort, NormalEquations
from flowbias.problem import Constraint

# A branch with less than this share of the mean weight follows its curve.
NEGLIGIBLE = 0.1
# A mismatch this small in the logarithm is on the curve.
ON_CURVE = 1e-2
# Weights below this share of the total are lost in the rounding of A (P+ - P-).
LOST = 1e-15
# Largest change of a log-weight after which the same factorization serves once more.
CHORD = 0.5
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
) -> tuple[State, float]:
    """The state on its curve with residual ||A w - b|| / ||b|| below tol, and that residual."""
    slack, dual = state.slack, state.dual
    size = float(np.linalg.norm(constraint.target)) or 1.0
    mass = float(state.weight.sum())
    # Shares are taken in the branches' own units, rounding in those of the sum.
    worth = float((state.weight / branches.unit).sum())
    floor, light = WEIGHT_FLOOR * worth * branches.unit, NEGLIGIBLE * worth / len(branches.plus)
    weight = np.maximum(state.weight, floor)
    best, best_residual, idle = state, np.inf, 0
    for step in range(max_steps + 1):
        log_weight = response.log_weight(slack)
        on_curve = np.exp(np.minimum(log_weight, 700.0))
        gap = constraint.target - constraint.apply(branches.difference(on_curve))
        residual = float(np.linalg.norm(gap)) / size
        idle = idle + 1 if residual > 0.5 * best_residual else 0
        if residual < best_residual:
            best, best_residual = State(on_curve, slack, dual), residual
        at_rest = idle >= PATIENCE and best_residual < ROUNDING_REACHED
        if best_residual < tol or at_rest or step == max_steps:
            break
        weight = _follow(weight, on_curve, log_weight, light * branches.unit, floor)
        rate = response.rate(slack)
        mismatch = log_weight - np.log(weight)
        floored = weight <= 1.1 * floor
        pull = np.where(mismatch >= 0, mismatch, np.expm1(mismatch))
        pull = np.where(floored & (pull > 0), 0.0, pull)

        conductance = branches.total(np.maximum(weight, LOST * mass) * rate)
        system = NormalEquations(constraint, conductance, effort)
        effort.steps += 1
        aim = constraint.apply(branches.difference(weight * (1.0 + pull)))
        change = system.solve(constraint.target - aim)
        rise = branches.signed(constraint.adjoint(change))
        reach = response.longest_step(slack, -rise)
        growth = reach * (pull + rate * rise)
        grown = 1.0 + np.maximum(growth, 0.0)
        weight = weight * np.where(growth >= 0, grown, np.exp(np.minimum(growth, 0.0)))
        weight = np.maximum(weight, floor)
        slack, dual = slack - reach * rise, dual + reach * change
        if reach == 1.0 and np.abs(rate * rise * (weight > LOST * mass)).max() < CHORD:
            slack, dual = _chord(constraint, branches, response, system, slack, dual, tol * size)
    return best, best_residual


def _chord(
    constraint: Constraint,
    branches: Branches,
    response: Response,
    system: NormalEquations,
    slack: FloatArray,
    dual: FloatArray,
    goal: float,
) -> tuple[FloatArray, FloatArray]:
    """Further steps with the factorization at hand, while each cuts the residual tenfold."""
    residual = np.inf
    while True:
        on_curve = np.exp(np.minimum(response.log_weight(slack), 700.0))
        gap = constraint.target - constraint.apply(branches.difference(on_curve))
        before, residual = residual, float(np.linalg.norm(gap))
        if residual <= goal or not residual < 0.1 * before:
            return slack, dual
        change = system.solve(gap)
        rise = branches.signed(constraint.adjoint(change))
        if response.longest_step(slack, -rise) < 1.0:
            return slack, dual
        slack, dual = slack - rise, dual + change


def _follow(
    weight: FloatArray,
    on_curve: FloatArray,
    log_weight: FloatArray,
    light: FloatArray | float,
    floor: FloatArray | float,
) -> FloatArray:
    """Put branches that are light, or already close, on their curve."""
    is_light = (weight < light) & (on_curve < light)
    is_close = np.abs(log_weight - np.log(weight)) < ON_CURVE
    return np.where(is_light | is_close, np.maximum(on_curve, floor), weight)
