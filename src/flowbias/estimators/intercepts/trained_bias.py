"""The limit of a network and a bias trained together.

    minimize  Q(w) + g b^2 / 2   s.t.   X w + b e = P y

with g the network's mirror rate and e the column of the bias: ones, or the roots of the sample
weights. docs/estimators.md has the derivation. Where [X, e] has rank d + 1 only one (w, b) fits.
Otherwise Newton's method on the dual of [X, e] solves it down to moderately small scales; below
them the bias is eliminated (`bias_elimination.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowbias.certificates.certificate import Certificate, certify
from flowbias.estimators.intercepts.bias_elimination import eliminate_bias
from flowbias.ground.arguments import InputError
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.normal_equations import Effort
from flowbias.limits.routes import dual_of, only_predictor
from flowbias.models import MirrorModel
from flowbias.potentials import L2, Potential, Provides
from flowbias.potentials.with_bias import WithBias
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Stats, status_of

# With a line search Newton's method takes about as many steps as the elimination does
# factorizations.
MAX_NEWTON_STEPS = 40
# The least weight of a bias whose inverse is a double.
TINY = float(np.finfo(np.float64).tiny)
# At depth D >= 3 and tiny scales the dual of the limit is within rounding of its domain's end.
SHRINKAGES = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11)


@dataclass(frozen=True)
class TrainedBias:
    """`network` with a bias that starts at 0 and is trained with the rest.

    Its predictor has one entry more than X has columns: the bias, last. `column` multiplies the
    bias in each sample; ones by default.
    """

    network: MirrorModel
    column: FloatArray | None = None

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.OWN_LIMIT})

    def limit(self, X: Any, y: Any, *, tol: float = 1e-10, throw: bool = True) -> Solution:
        """The limit on (X, y), certified on [X, e]."""
        started = time.perf_counter()
        n, d = np.shape(X)
        column = np.ones(n) if self.column is None else self.column
        problem = Regression(np.column_stack([X, column]), y)
        potential = WithBias(self.network.potential, bias_weight(self.network), d)
        effort = Effort()
        task = _Task.of(self.network, problem, potential, effort, tol)
        route, found, certificate = task.solved()
        return Solution(
            w=found.w,
            dual=found.dual,
            status=status_of(certificate, found.distance),
            route=route,
            certificate=certificate,
            stats=Stats(effort.factorizations, effort.steps, time.perf_counter() - started),
            potential=found.potential,
            distance=found.distance,
        ).checked(throw)


def bias_weight(network: MirrorModel) -> float:
    """g, where it is a number: at the extremes the bias is free, or does not move."""
    g = network.mirror_rate
    if not 0.0 < g < np.inf:
        other = '"centered"' if g == 0.0 else "False"
        raise InputError(
            'log_scale: must leave the weight of a "trained" bias in the double range, got '
            f"{network!r} with weight {g:g}. There the limit is that of fit_intercept={other}."
        )
    return g


class _Found(NamedTuple):
    """(w, b), the dual of the rows, how far y is from what they can fit, and whose dual it is."""

    w: FloatArray
    dual: FloatArray
    distance: float
    potential: Potential


@dataclass(frozen=True, eq=False)
class _Task:
    """[X, e], and [X, unit e] whose columns are of one size: the rank of the one is seen there."""

    network: MirrorModel
    problem: Regression
    potential: WithBias
    balanced: Regression
    unit: float
    effort: Effort
    tol: float

    @classmethod
    def of(
        cls,
        network: MirrorModel,
        problem: Regression,
        potential: WithBias,
        effort: Effort,
        tol: float,
    ) -> _Task:
        unit = _unit(problem.X, network.mirror_rate)
        X = np.column_stack([problem.X[:, :-1], unit * problem.X[:, -1]])
        balanced = Regression(X, problem.y)
        effort.factorizations = balanced.constraint.factorizations
        return cls(network, problem, potential, balanced, unit, effort, tol)

    def solved(self) -> tuple[str, _Found, Certificate]:
        """By the first way that is certified, or the last one."""
        problem, tol = self.problem, self.tol
        for route, way in WAYS.items():
            found = way(self)
            if found is None:
                continue
            proof = certify(problem.X, problem.y, found.w, found.dual, found.potential, tol=tol)
            if not proof.ok and proof.exact is not None:
                found = found._replace(w=proof.exact.w, dual=proof.exact.dual)
                route = f"{route}, then Newton in balls"
                proof = certify(problem.X, problem.y, found.w, found.dual, found.potential, tol=tol)
            last = route, found, proof
            if proof.ok:
                break
        return last


def _unit(X: FloatArray, rate: float) -> float:
    """The power of 2 that brings the last column to the size of the others, where that can be."""
    sizes = np.abs(X).max(axis=0)
    largest = float(sizes[:-1].max())
    if largest == 0.0:
        return 1.0
    unit = float(np.exp2(np.round(np.log2(largest) - np.log2(sizes[-1]))))
    with np.errstate(over="ignore", under="ignore"):
        weight = rate * np.float64(unit) ** 2
    return unit if TINY < weight < np.inf else 1.0


def _without_choice(task: _Task) -> _Found | None:
    return _only(task, task.potential)


def _without_choice_or_scale(task: _Task) -> _Found | None:
    """The same, proved as the shortest fit in units of the features.

    What is alone is the limit of every network. Far in the kernel regime grad Q(w) is so far below
    g b that a dual of both, in doubles, says nothing about w.
    """
    lengths = row_lengths(task.problem.X.T)
    weights = np.square(lengths / lengths.max())
    return _only(task, L2(weights)) if weights.all() else None


@np.errstate(all="ignore")
def _only(task: _Task, potential: Potential) -> _Found | None:
    constraint = only_predictor(task.problem)
    if constraint is None:
        return None
    task.effort.factorizations += 1
    w = constraint.target
    dual = dual_of(constraint, task.problem.X, potential.grad(w))
    return _Found(w, dual, constraint.distance, potential)


def _by_newton(task: _Task) -> _Found:
    """After Newton's method from the kernel solution, for b in another unit."""
    constraint, potential = task.balanced.constraint, task.potential
    weight = task.network.mirror_rate * task.unit**2
    balanced = WithBias(potential.features, weight, potential.d)
    newton = DualNewton(constraint, balanced, 0.0, task.effort)
    with np.errstate(all="ignore"):
        end = newton.solve(max_steps=MAX_NEWTON_STEPS)
    w = np.append(end.w[:-1], task.unit * end.w[-1])
    return _Found(w, constraint.dual_of_data(end.dual), constraint.distance, potential)


def _by_elimination(task: _Task) -> _Found:
    constraint, problem = task.balanced.constraint, task.problem
    fitted = problem.y if constraint.projected is None else constraint.projected
    w, dual = eliminate_bias(task.network, Regression(problem.X, fitted), task.effort)
    dual = _inside_domain(problem, w, dual, task.potential, task.tol)
    return _Found(w, dual, constraint.distance, task.potential)


def _inside_domain(
    problem: Regression, w: FloatArray, dual: FloatArray, potential: WithBias, tol: float
) -> FloatArray:
    """The dual, shrunk by what rounding may have put it outside its open domain."""
    for shrink in SHRINKAGES:
        inside = (1.0 - shrink) * dual
        if certify(problem.X, problem.y, w, inside, potential, tol=tol).ok:
            break
    return inside


#: Cheapest first.
WAYS: dict[str, Callable[[_Task], _Found | None]] = {
    "the only predictor": _without_choice,
    "the only predictor, by its length": _without_choice_or_scale,
    "dual Newton": _by_newton,
    "bias eliminated": _by_elimination,
}
