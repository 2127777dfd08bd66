"""The limit of one linear neuron: a closed form after one factorization.  [azulay2021, Theorem 2]

The minimizer of q(v) - <shift, v> with X v = y is m + sign(a) |a| k of `parts.py`, for any
delta; which sign a ends with is settled first (`neuron_sign`), for delta < 0 by the flow if need
be. What is returned is certified against the potential, with which neither has anything to do.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Protocol

import numpy as np

from flowbias.certificates.certificate import certify
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.parts import NeuronParts, within_reach
from flowbias.limits.neurons.sign import Branch, settle
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import as_regression
from flowbias.results.solution import Sensitivity, Solution, Stats, Status


class LinearNeuron(Protocol):
    """What this route needs of a model."""

    @property
    def a(self) -> float: ...
    @property
    def w(self) -> FloatArray: ...
    @property
    def potential(self) -> NeuronPotential: ...
    def shift_on(self, sign: float) -> FloatArray: ...


def neuron_limit(model: LinearNeuron, X: Any, y: Any, tol: float) -> Solution:
    """The limit of gradient flow from one linear neuron, certified.

    `details["a"]` is the outer weight there, and `details["sign_change"]` is 1.0 where it is not
    of the sign that it started with.
    """
    data = as_regression(X, y)
    started = time.perf_counter()
    with threads_for(data.X), np.errstate(over="ignore", under="ignore"):
        problem, distance = within_reach(data)
        parts = NeuronParts.of(model.a, model.w, problem)
        branch = settle(parts)
        w, dual = ending(parts, branch)
        seconds = time.perf_counter() - started
        potential, shift = model.potential, model.shift_on(branch.sign)
        certificate = certify(problem.X, problem.y, w, dual, potential, shift, tol=tol)
    status = Status.STALLED
    if certificate.ok and branch.reason.decided:
        status = Status.PROJECTED if distance > 0.0 else Status.CERTIFIED
    a = 0.0 if branch.reason.is_saddle else branch.sign * parts.outer_weight
    return Solution(
        w=w,
        dual=dual,
        status=status,
        route=branch.reason.value,
        certificate=certificate,
        stats=Stats(parts.constraint.factorizations, branch.steps, seconds),
        potential=potential,
        shift=shift,
        distance=distance,
        details={
            "a": a,
            "sign_change": float(branch.sign * model.a < 0.0),
        },
        # Where a = 0 the predictor is at the kink of the potential.
        _sensitivity=partial(derivatives, parts, branch) if a != 0.0 else None,
    )


def ending(parts: NeuronParts, branch: Branch) -> tuple[FloatArray, FloatArray]:
    """The predictor where the flow ends, and its dual."""
    dual = parts.dual(branch.sign)
    if branch.reason.is_saddle:
        return np.zeros_like(parts.w), dual
    return parts.limit(branch.sign), dual


def derivatives(parts: NeuronParts, branch: Branch) -> Sensitivity:
    """Of m + a k in y, through m and through a^2 = D/2 + h, h = sqrt(D^2/4 + ||m||^2):

    da = <m, dm>/(2 a h),    and for a start scaled by e^t    da/dt = D (1/2 + D/(4 h))/a.
    """
    constraint, a, h = parts.constraint, parts.outer_weight, parts.half_sum
    moves = [constraint.adjoint(parts.solve(target)) for target in constraint.target_derivative().T]
    dm = np.stack(moves, axis=1)
    D, rest = parts.moving_difference, branch.sign * parts.resting
    dw_dy = dm + np.outer(rest, (parts.fit @ dm) / (2.0 * a * h))
    growth = D * (0.5 + 0.25 * D / h) / a
    return Sensitivity(dw_dy, rest * (a + growth))
