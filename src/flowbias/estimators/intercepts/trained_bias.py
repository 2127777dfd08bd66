"""The limit of a network and a bias trained together.

    minimize  Q(w) + g b^2 / 2   s.t.   X w + b e = P y

with g the network's mirror rate and e the column of the bias: ones, or the roots of the sample
weights. docs/estimators.md has the derivation. Newton's method on the dual of [X, e] solves it down
to moderately small scales; below them the bias is eliminated (`bias_elimination.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.certificates.certificate import Certificate, certify
from flowbias.estimators.intercepts.bias_elimination import eliminate_bias
from flowbias.limits.dual_newton import DualNewton
from flowbias.limits.normal_equations import Effort
from flowbias.models import MirrorModel
from flowbias.potentials import Provides
from flowbias.potentials.with_bias import WithBias
from flowbias.problem import InputError, Regression
from flowbias.solution import Solution, Stats, Status

# Residual at which Newton's method stops: three digits below a certificate of 1e-10.
RESIDUAL = 1e-13
# With a line search it takes about as many steps as the elimination takes factorizations.
MAX_NEWTON_STEPS = 40
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
        potential = WithBias(self.network.potential, self._weight(), d)
        effort = Effort(factorizations=problem.constraint.factorizations)
        route, (w, dual) = "dual Newton", _by_newton(problem, potential, effort)
        certificate = certify(problem.X, problem.y, w, dual, potential, tol=tol)
        if not certificate.ok:
            route, (w, dual) = "bias eliminated", eliminate_bias(self.network, problem, effort)
            dual, certificate = _inside_domain(problem, w, dual, potential, tol)
        distance = problem.constraint.distance
        reached = Status.PROJECTED if distance > 0 else Status.CERTIFIED
        return Solution(
            w=w,
            dual=dual,
            status=reached if certificate.ok else Status.STALLED,
            route=route,
            certificate=certificate,
            stats=Stats(effort.factorizations, effort.steps, time.perf_counter() - started),
            potential=potential,
            distance=distance,
        ).checked(throw)

    def _weight(self) -> float:
        """g, where it is a number: at the extremes the bias is free, or does not move."""
        g = self.network.mirror_rate
        if not 0.0 < g < np.inf:
            other = '"centered"' if g == 0.0 else "False"
            raise InputError(
                'log_scale: must leave the weight of a "trained" bias in the double range, got '
                f"{self.network!r} with weight {g:g}. There the limit is that of "
                f"fit_intercept={other}."
            )
        return g


def _by_newton(
    problem: Regression, potential: WithBias, effort: Effort
) -> tuple[FloatArray, FloatArray]:
    """(w, b) and the dual after Newton's method from the kernel solution."""
    newton = DualNewton(problem.constraint, potential, 0.0, effort)
    with np.errstate(all="ignore"):
        newton.run(tol=RESIDUAL, max_steps=MAX_NEWTON_STEPS, only_if_easy=False)
    return newton.w, problem.constraint.dual_of_data(newton.dual)


def _inside_domain(
    problem: Regression, w: FloatArray, dual: FloatArray, potential: WithBias, tol: float
) -> tuple[FloatArray, Certificate]:
    """The dual, shrunk by what rounding may have put it outside its open domain, certified."""
    for shrink in SHRINKAGES:
        inside = (1.0 - shrink) * dual
        certificate = certify(problem.X, problem.y, w, inside, potential, tol=tol)
        if certificate.ok:
            break
    return inside, certificate
