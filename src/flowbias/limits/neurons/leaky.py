"""The limit of a leaky ReLU neuron: a linear neuron's, on targets that its own signs choose.

    v = a w = argmin q(v) - <shift, v>   s.t.  <x_n, v> = y_n if a y_n > 0, else y_n / slope

[azulay2021, Theorem 4] has the conditions of first order; that the problem is convex, so that they
give the global minimizer, is ours, like all else here (docs/theory/leaky_neuron.md). It holds for
every flow that reaches zero loss, for the sign that a ends with. So all that has to be known of the
flow is that sign, and that it fits in the end. Where the start proves both there is no flow to
follow; else it is followed until a state does, and so are two more from starts moved by 1e-8 of
their size to either side, which have to agree. Then the limit has the linear neuron's closed form.

The conditions of first order are those of Clarke for

    min q(a w) - <shift, a w>   over (a, w)   s.t.   a sigma(<w, x_n>) = y_n

A point fulfils them if there are multipliers nu_n and c_n in Clarke's d sigma(<w, x_n>) with

    a (grad q(a w) - shift - sum nu_n c_n x_n) = 0,    <w, the same> = 0.

Equality constraints have no complementary slackness. Since c_n >= min(1, slope) > 0, multipliers of
the rows c_n x_n exist exactly if those of x_n do: with nu_n c_n in place of nu_n these are also the
conditions of the convex problem <x_n, v> = z_n, which are enough for its global minimum.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.certificates.certificate import Certificate, certify
from flowbias.flows.leaky_neuron.convergence import is_sure_to_fit, settled_sign, targets
from flowbias.flows.leaky_neuron.field import LeakyStart, activation
from flowbias.flows.leaky_neuron.follow import ActivatedNeuron, LeakyTrajectory, followed, start_of
from flowbias.flows.request import FlowRequest
from flowbias.ground import extended
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.neurons.parts import NeuronParts
from flowbias.limits.neurons.sign import NUDGE
from flowbias.models.neuron import Neuron
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, Stats, Status

AT_ONCE = "closed form; the start proves the sign of a, and zero error"
FOLLOWED = "closed form; the flow, followed until it proves the sign of a, and zero error"
TOO_CLOSE = "from starts moved by 1e-8 of their size it ends elsewhere: too close to call"


def leaky_limit(model: ActivatedNeuron, X: Any, y: Any, tol: float) -> Solution:
    """Where gradient flow from the neuron ends: `w` of the solution is a w there.

    Certified where the flow is proved to reach zero loss and the minimizer's certificate holds.
    Otherwise STALLED, with what the flow has reached; `route` then has the reason. `details` holds
    a, the outer weight at the limit; where a flow was followed, also flow_residual, its switches
    and slides (1 or 0), all as far as it was.
    """
    problem = as_regression(X, y)
    start, begun = start_of(model, problem), time.perf_counter()
    if is_sure_to_fit(start, start.state):
        sign = settled_sign(start, start.state)
        return _at_minimizer(start, problem, sign or 1.0, None, tol, begun)
    trajectory = _until_sure(model, problem)
    if not trajectory.is_sure_to_fit:
        return _stalled(start, trajectory, trajectory.failure, tol, begun)
    sign = settled_sign(start, trajectory.last_state)
    if any(other != sign for other in _nearby_signs(start, problem)):
        return _stalled(start, trajectory, TOO_CLOSE, tol, begun)
    return _at_minimizer(start, problem, sign or 1.0, trajectory, tol, begun)


def _until_sure(
    model: ActivatedNeuron, problem: Regression, rtol: float | None = None
) -> LeakyTrajectory:
    # How far the flow is followed at most, in at most how many steps.
    residual, steps = 1e-9, 5_000
    request = FlowRequest.of(None, "half", residual, rtol, None, None)
    return followed(model, problem, request, steps, is_sure_to_fit)


def _nearby_signs(start: LeakyStart, problem: Regression) -> list[float | None]:
    """The signs that flows end with from outer weights next to the start's; None: no fit."""
    size = max(abs(start.a), float(np.linalg.norm(start.basis.T @ start.w)))
    nudged = (Neuron(start.a + share * size, start.w, start.slope) for share in (NUDGE, -NUDGE))
    return [_sign_from(near, problem) for near in nudged]


def _sign_from(model: ActivatedNeuron, problem: Regression) -> float | None:
    # Steps need not be more accurate than the start is near, unless that leaves too much of an
    # error in the residual for a proof.
    for rtol in (0.1 * NUDGE, None):
        trajectory = _until_sure(model, problem, rtol)
        if trajectory.is_sure_to_fit:
            return float(np.sign(trajectory.last_state[0]))
    return None


def _at_minimizer(
    start: LeakyStart,
    problem: Regression,
    sign: float,
    trajectory: LeakyTrajectory | None,
    tol: float,
    begun: float,
) -> Solution:
    """The closed form of the linear neuron on the branch of this sign."""
    parts = NeuronParts.of(
        start.a, start.w, Regression(problem.X, targets(sign, problem.y, start.slope))
    )
    w, dual = parts.limit(sign), parts.dual(sign)
    steps = 0 if trajectory is None else trajectory.stats.steps
    seconds = time.perf_counter() - begun
    certificate = _certificate(problem, start, sign, w, dual, tol)
    return Solution(
        w=w,
        dual=dual,
        status=Status.CERTIFIED if certificate.ok else Status.STALLED,
        route=f"leaky neuron: {AT_ONCE if trajectory is None else FOLLOWED}",
        certificate=certificate,
        stats=Stats(parts.constraint.factorizations, steps, seconds),
        potential=NeuronPotential(start.delta),
        shift=1.5 * sign * start.w,
        details={"a": sign * parts.outer_weight} | _details(trajectory),
    )


def _stalled(
    start: LeakyStart, trajectory: LeakyTrajectory, reason: str | None, tol: float, begun: float
) -> Solution:
    """What the flow has reached, where nothing shows that it fits in the end."""
    reached, sign = trajectory.last_state, float(np.sign(trajectory.a[-1]))
    moved = reached[1:] / start.singular_values
    dual = start.dual_of_data(1.5 * sign * ((start.rows / start.singular_values) @ moved))
    w = trajectory.w[-1]
    return Solution(
        w=w,
        dual=dual,
        status=Status.STALLED,
        route=f"leaky neuron: {reason or 'flow not proved to converge'}",
        certificate=_certificate(trajectory.problem, start, sign, w, dual, tol),
        stats=Stats(1, trajectory.stats.steps, time.perf_counter() - begun),
        potential=NeuronPotential(start.delta),
        shift=1.5 * sign * start.w,
        details={"a": float(trajectory.a[-1])} | _details(trajectory),
    )


def _certificate(
    problem: Regression, start: LeakyStart, sign: float, w: FloatArray, dual: FloatArray, tol: float
) -> Certificate:
    z = targets(sign, problem.y, start.slope)
    potential, shift = NeuronPotential(start.delta), 1.5 * sign * start.w
    return certify(problem.X, z, w, dual, potential, shift, tol=tol)


def _details(trajectory: LeakyTrajectory | None) -> dict[str, float]:
    """What there is to say of a flow that was followed."""
    if trajectory is None:
        return {}
    return {
        "flow_residual": float(trajectory.residual[-1]),
        "switches": float(len(trajectory.switches)),
        "slides": float(trajectory.slides),
    }


@dataclass(frozen=True, eq=False)
class ClarkeKKT:
    """Measures of the conditions at (a, w), each relative to the terms it is a difference of.

    feasibility       ||a sigma(X w) - y|| / (||y|| + ||a sigma(X w)||)
    stationarity      ||grad q - shift - sum nu_n c_n x_n|| / (||grad q|| + ||shift||)
    outer             |<w, grad q - shift - sum nu_n c_n x_n>| / (||w|| times the same)
    wrong_signs       samples with y_n != 0 and sign <w, x_n> other than that of a y_n
    multipliers       nu
    subgradients      c; at a kink 1, which any other value would do as well
    """

    feasibility: float
    stationarity: float
    outer: float
    wrong_signs: int
    multipliers: FloatArray
    subgradients: FloatArray

    @property
    def worst(self) -> float:
        """The largest of the three measures; infinite where a sample has the wrong sign."""
        if self.wrong_signs:
            return np.inf
        return max(self.feasibility, self.stationarity, self.outer)


def clarke_kkt(model: ActivatedNeuron, X: Any, y: Any, a: float, w: ArrayLike) -> ClarkeKKT:
    """The conditions at a neuron (a, w), for the flow that starts from `model`."""
    problem = as_regression(X, y)
    start, inner, sign = start_of(model, problem), np.asarray(w, dtype=np.float64), np.sign(a)
    sums = problem.X @ inner
    subgradients = np.where(sums >= 0.0, 1.0, start.slope)
    gradient = NeuronPotential(start.delta).grad(a * inner)
    shift = 1.5 * sign * start.w
    rows = subgradients[:, None] * problem.X
    multipliers = scipy.linalg.lstsq(rows.T, gradient - shift)[0]
    left = gradient - shift - rows.T @ multipliers
    unit = extended.length(gradient) + extended.length(shift)
    outputs = a * activation(sums, start.slope)
    misfit = extended.length(outputs - problem.y)
    wrong = (problem.y != 0.0) & (np.sign(sums) != np.sign(a * problem.y))
    return ClarkeKKT(
        feasibility=_ratio(misfit, extended.length(problem.y) + extended.length(outputs)),
        stationarity=_ratio(extended.length(left), unit),
        outer=_ratio(abs(float(inner @ left)), extended.length(inner) * unit),
        wrong_signs=int(wrong.sum()),
        multipliers=multipliers,
        subgradients=subgradients,
    )


def _ratio(measure: float, unit: float) -> float:
    """measure / unit, where 0 / 0 is a perfect score."""
    return 0.0 if measure == 0.0 else float(np.divide(measure, unit))
