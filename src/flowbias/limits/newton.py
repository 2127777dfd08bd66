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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.driver import Iteration, iterate
from flowbias.limits.interior_point import (
    WEIGHT_FLOOR,
    Branches,
    PowerResponse,
    Response,
    State,
)
from flowbias.limits.normal_equations import Effort, LinearSystem, MakeSystem, NormalEquations
from flowbias.problems.regression import Constraint


@dataclass(frozen=True)
class _OnCurve:
    """A state with the weights that its slacks ask for, and what these miss of b."""

    state: State
    residual: float
    #: weights on their way to the curve, which steps move
    weight: FloatArray


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
    newton = _Newton(constraint, branches, response, state, systems, effort, tol)
    best = iterate(newton, newton.start(state), effort, max_steps=max_steps).best
    return best.state, best.residual


class _Newton:
    """The step that moves weights, slacks and dual."""

    #: a branch with less than this share of the mean weight follows its curve
    negligible: ClassVar[float] = 0.1
    #: a mismatch this small in the logarithm is on the curve
    close: ClassVar[float] = 1e-2
    #: weights below this share of the total are lost in the rounding of A (P+ - P-)
    lost: ClassVar[float] = 1e-15
    #: largest change of a log-weight after which the same factorization serves once more
    chord: ClassVar[float] = 0.5

    def __init__(
        self,
        constraint: Constraint,
        branches: Branches,
        response: Response,
        state: State,
        systems: MakeSystem,
        effort: Effort,
        tol: float,
    ) -> None:
        self.constraint, self.branches, self.response = constraint, branches, response
        self.systems, self.effort = systems, effort
        self.size = float(np.linalg.norm(constraint.target)) or 1.0
        self.tol = tol
        self.mass = float(state.weight.sum())
        # Shares are taken in the branches' own units, rounding in those of the sum.
        worth = float((state.weight / branches.unit).sum())
        self.floor = WEIGHT_FLOOR * worth * branches.unit
        self.light = self.negligible * worth / len(branches.plus) * branches.unit

    def start(self, state: State) -> _OnCurve:
        return self._at(np.maximum(state.weight, self.floor), state.slack, state.dual)

    def _at(self, weight: FloatArray, slack: FloatArray, dual: FloatArray) -> _OnCurve:
        on_curve = self._on_curve(slack)
        residual = float(np.linalg.norm(self._gap(on_curve))) / self.size
        return _OnCurve(State(on_curve, slack, dual), residual, weight)

    def terminate(self, progress: Iteration[_OnCurve]) -> bool:
        residual = progress.best.residual
        at_rest = progress.idle >= DEFAULT.patience and residual < DEFAULT.rest
        return residual < self.tol or at_rest

    def _on_curve(self, slack: FloatArray) -> FloatArray:
        """The weights that the slacks ask for."""
        return np.exp(np.minimum(self.response.log_weight(slack), 700.0))

    def _gap(self, weight: FloatArray) -> FloatArray:
        return self.constraint.target - self.constraint.apply(self.branches.difference(weight))

    def step(self, progress: Iteration[_OnCurve]) -> _OnCurve:
        """One factorization, one Newton step, and further ones while the factorization serves."""
        here, best = progress.here, progress.best
        # A step that did not help, this close: Cholesky's method may have lost the directions that
        # only the lightest branches decide. Every other attempt, in case it was something else.
        graded = progress.idle % 2 == 1 and best.residual < DEFAULT.nearly_solved
        slack, dual = (best if graded else here).state.slack, (best if graded else here).state.dual
        weight = self._followed(here.weight, slack)
        mismatch = self.response.log_weight(slack) - np.log(weight)
        pull = np.where(mismatch >= 0, mismatch, np.expm1(mismatch))
        pull = np.where((weight <= 1.1 * self.floor) & (pull > 0), 0.0, pull)
        rate = self.response.rate(slack)

        least = 0.0 if graded else self.lost * self.mass
        conductance = self.branches.total(np.maximum(weight, least) * rate)
        system = self.systems(self.constraint, conductance, self.effort, graded=graded)
        change = system.solve(self._gap(weight * (1.0 + pull)))
        rise = self.branches.signed(self.constraint.adjoint(change))
        reach = self.response.longest_step(slack, -rise)
        growth = reach * (pull + rate * rise)
        grown = 1.0 + np.maximum(growth, 0.0)
        shrunk = np.exp(np.minimum(growth, 0.0))
        weight = np.maximum(weight * np.where(growth >= 0, grown, shrunk), self.floor)
        slack, dual = slack - reach * rise, dual + reach * change
        moved = np.abs(rate * rise * (weight > self.lost * self.mass)).max(initial=0.0)
        if reach == 1.0 and moved < self.chord:
            slack, dual = self._chord(system, slack, dual)
        return self._at(weight, slack, dual)

    def _chord(
        self, system: LinearSystem, slack: FloatArray, dual: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Further steps with the factorization at hand, while each cuts the residual tenfold."""
        residual = np.inf
        while True:
            gap = self._gap(self._on_curve(slack))
            before, residual = residual, float(np.linalg.norm(gap))
            if residual <= self.tol * self.size or not residual < 0.1 * before:
                return slack, dual
            change = system.solve(gap)
            rise = self.branches.signed(self.constraint.adjoint(change))
            if self.response.longest_step(slack, -rise) < 1.0:
                return slack, dual
            slack, dual = slack - rise, dual + change

    def _followed(self, weight: FloatArray, slack: FloatArray) -> FloatArray:
        """The weights, with branches that are light, or already close, put on their curve."""
        log_weight, on_curve = self.response.log_weight(slack), self._on_curve(slack)
        light = (weight < self.light) & (on_curve < self.light)
        close = np.abs(log_weight - np.log(weight)) < self.close
        return np.where(light | close, np.maximum(on_curve, self.floor), weight)


def select_on_face(
    constraint: Constraint,
    branches: Branches,
    response: PowerResponse,
    state: State,
    near: FloatArray,
    effort: Effort,
    *,
    tol: float,
) -> FloatArray | None:
    """The weights of `state`, whose law is `response`, with those on the face made exact.

    Which point of the optimal face, when the linear program has more than one solution: near the
    rounding of its cost a slack says little about its weight, and below it nothing. But on the face
    of minimizers the slacks are mu B with B = -(+-) A^T eta, where eta is how the dual leaves the
    face, and P = B^-k holds for the *ratio*: the same power law at cost zero, without small
    numbers. Weights off the face only change the target. The solution maximizes sum P^(2/D) on the
    face.

    `near` holds rough weights, from a mu well above rounding. None where this fails, or where it
    changes a weight by more than the rounding of its slack explains: then there is no such face.
    """
    # Half way (in log) between the slacks on the face, of order mu, and those off it.
    on_face = state.slack < np.exp(0.5 * response.offset / response.exponent)
    columns = _columns(constraint, branches, on_face)
    ratio = PowerResponse(response.exponent, 0.0)
    wanted = ratio.slack(near[on_face])
    if not np.isfinite(wanted).all():
        return None  # a rough weight of zero: it is on no face
    eta = scipy.linalg.lstsq(columns.T, -wanted)[0]
    slack = -columns.T @ eta
    if not (slack > 0).all():
        return None
    plus, minus = branches.plus.copy(), branches.minus.copy()
    plus[plus], minus[minus] = on_face[: branches.split], on_face[branches.split :]
    face = Branches(plus, minus, np.zeros(int(on_face.sum())))
    elsewhere = np.where(on_face, 0.0, state.weight)
    rest = constraint.with_target(
        constraint.target - constraint.apply(branches.difference(elsewhere))
    )
    begin = State(near[on_face], slack, eta)
    found, residual = polish(rest, face, ratio, begin, effort, tol=tol, max_steps=60)
    if not residual <= 1e3 * tol:
        return None
    # Rounding that a slack of cost one may have gathered.
    explained = 1e3 * float(np.finfo(float).eps) / state.slack[on_face]
    if (np.abs(np.log(found.weight / state.weight[on_face])) > explained).any():
        return None
    weight = elsewhere
    weight[on_face] = found.weight
    return weight


def _columns(constraint: Constraint, branches: Branches, chosen: Mask) -> FloatArray:
    """The constraint's columns of the chosen branches, with their signs."""
    index = np.concatenate([np.flatnonzero(branches.plus), np.flatnonzero(branches.minus)])
    sign = np.concatenate([np.ones(branches.split), -np.ones(branches.count - branches.split)])
    columns = constraint.row_scale[:, None] * constraint.rows[:, index[chosen]]
    return np.asarray(columns * sign[chosen])
