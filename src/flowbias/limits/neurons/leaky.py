"""The limit of a leaky ReLU neuron: a linear neuron's, on targets that its own signs choose.

    v = a w = argmin q(v) - <shift, v>   s.t.  <x_n, v> = y_n if a y_n > 0, else y_n / slope

[azulay2021, Theorem 4] has the conditions of first order; that the problem is convex, so that they
give the global minimizer, is ours, like all else here (docs/theory/leaky_neuron.md). It holds for
every flow that reaches zero loss, for the sign that a ends with. So the flow is followed to find
that sign and to see it converge; then the minimizer has a closed form. With zhat the shortest
solution of X v = z, N the part of w(0) outside the row space of X, m = delta + ||N||^2,

    a^2 = m/2 + sqrt(m^2/4 + ||zhat||^2),    v = zhat + a N,    w = zhat/a + N.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.certificates.certificate import Certificate, certify
from flowbias.flows.journey import FlowRequest
from flowbias.flows.leaky_neuron.convergence import (
    is_sure_to_fit,
    least_outer_square,
    settled_sign,
    targets,
)
from flowbias.flows.leaky_neuron.field import LeakyStart
from flowbias.flows.leaky_neuron.follow import ActivatedNeuron, followed, start_of
from flowbias.flows.leaky_neuron.trajectory import LeakyTrajectory
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problem import Regression, as_regression
from flowbias.solution import Solution, Stats, Status

# How far the flow is followed, in at most how many steps.
_RESIDUAL, _STEPS = 1e-9, 5_000
# Distance of the flow's end from the minimizer that its own error explains: some thousand local
# errors and what is left of the path at that residual, magnified by up to 1e2.
AGREEMENT = 1e-6


@dataclass(frozen=True, eq=False)
class ExactNeuron:
    """A neuron at the end of its flow, and the certificate's ingredients.

    grad q(a w) = 3/2 sign(a) w = shift + X^T dual
    """

    a: float
    w: FloatArray
    dual: FloatArray
    shift: FloatArray

    @property
    def product(self) -> FloatArray:
        """a w."""
        return self.a * self.w


def exact_neuron(start: LeakyStart, sign: float) -> ExactNeuron:
    """The only neuron with an outer weight of this sign that fits and that the start's flow allows.

    That is: zero loss, w - w(0) in the row space of X, and a^2 - ||w||^2 as at the start. Where it
    has a = 0 (y = 0 and a start with m <= 0) many w do, and w is the one that the dual belongs to.
    """
    values, left = start.singular_values, start.rows / start.singular_values
    shortest = left.T @ targets(sign, start.y, start.slope) / values
    half, size = 0.5 * least_outer_square(start), float(np.linalg.norm(shortest))
    radius = float(np.hypot(half, size))
    # The sum without cancellation: (radius + half)(radius - half) = size^2.
    square = radius + half if half >= 0.0 else size * size / (radius - half)
    a = sign * float(np.sqrt(square))
    moved = (shortest / a if a != 0.0 else 0.0 * shortest) - start.basis.T @ start.w
    return ExactNeuron(
        a=a,
        w=start.w + start.basis @ moved,
        dual=start.dual_of_data(1.5 * sign * (left @ (moved / values))),
        shift=1.5 * sign * start.w,
    )


def leaky_limit(model: ActivatedNeuron, X: Any, y: Any, tol: float) -> Solution:
    """Where gradient flow from the neuron ends: `w` of the solution is a w there.

    Certified where the flow is proved to reach zero loss and the minimizer's certificate holds.
    Otherwise STALLED, with what the flow has reached; `route` then has the reason. `details` holds
    a, the outer weight at the limit, and the flow's own end against it: flow_residual,
    flow_distance (||a w - limit|| / ||limit||, or / ||a(0) w(0)|| if the limit is 0), switches, and
    slides (1 or 0).
    """
    problem = as_regression(X, y)
    start, begun = start_of(model, problem), time.perf_counter()
    request = FlowRequest.of(None, "half", _RESIDUAL, None, None, None)
    trajectory = followed(model, problem, request, _STEPS)
    last = trajectory.last_state
    sign = settled_sign(start, last)
    if sign is None or not is_sure_to_fit(start, last):
        return _stalled(start, trajectory, tol, begun)
    exact = exact_neuron(start, sign)
    certificate = _certificate(problem, start, sign, exact.product, exact.dual, tol)
    distance = _distance(start, trajectory.w[-1], exact.product)
    # A flow that has come to its end elsewhere is evidence against all of this.
    agrees = not trajectory.status.ok or distance <= AGREEMENT + _unfinished(trajectory, start)
    return Solution(
        w=exact.product,
        dual=exact.dual,
        status=Status.CERTIFIED if certificate.ok and agrees else Status.STALLED,
        route="leaky neuron: flow for the sign, closed form for the limit",
        certificate=certificate,
        stats=Stats(1, trajectory.stats.steps, time.perf_counter() - begun),
        potential=NeuronPotential(start.delta),
        shift=exact.shift,
        details=_details(trajectory, exact.a) | {"flow_distance": distance},
    )


def _stalled(start: LeakyStart, trajectory: LeakyTrajectory, tol: float, begun: float) -> Solution:
    """What the flow has reached, where nothing shows that it fits in the end."""
    reached, sign = trajectory.last_state, float(np.sign(trajectory.a[-1]))
    moved = reached[1:] / start.singular_values
    dual = start.dual_of_data(1.5 * sign * ((start.rows / start.singular_values) @ moved))
    w = trajectory.w[-1]
    return Solution(
        w=w,
        dual=dual,
        status=Status.STALLED,
        route=f"leaky neuron: {trajectory.failure or 'flow not proved to converge'}",
        certificate=_certificate(trajectory.problem, start, sign, w, dual, tol),
        stats=Stats(1, trajectory.stats.steps, time.perf_counter() - begun),
        potential=NeuronPotential(start.delta),
        shift=1.5 * sign * start.w,
        details=_details(trajectory, float(trajectory.a[-1])),
    )


def _certificate(
    problem: Regression, start: LeakyStart, sign: float, w: FloatArray, dual: FloatArray, tol: float
) -> Certificate:
    z = targets(sign, problem.y, start.slope)
    potential, shift = NeuronPotential(start.delta), 1.5 * sign * start.w
    return certify(problem.X, z, w, dual, potential, shift, tol=tol)


def _details(trajectory: LeakyTrajectory, a: float) -> dict[str, float]:
    return {
        "flow_residual": float(trajectory.residual[-1]),
        "switches": float(len(trajectory.switches)),
        "slides": float(trajectory.slides),
        "a": a,
    }


def _unfinished(trajectory: LeakyTrajectory, start: LeakyStart) -> float:
    """What the residual left explains of the distance from a limit of 0: y = 0 and m <= 0.

    There |a| ||P w|| lo sigma_k <= ||r|| and ||P w||^2 = a^2 - m: near m = 0 a residual tells of
    a's square alone.
    """
    half = 0.5 * least_outer_square(start)
    strength = min(1.0, start.slope) * float(start.singular_values[-1])
    excess = float(trajectory.residual[-1]) * start.misfit_scale / strength
    if start.y.any() or half > 0.0 or excess == 0.0:
        return 0.0
    outer = excess / float(np.sqrt(np.hypot(half, excess) - half))
    return outer * float(np.linalg.norm(trajectory.inner[-1])) / _unit(start, 0.0 * start.w)


def _distance(start: LeakyStart, reached: FloatArray, limit: FloatArray) -> float:
    return float(np.linalg.norm(reached - limit)) / _unit(start, limit)


def _unit(start: LeakyStart, limit: FloatArray) -> float:
    """Size of the limit; where that is 0, of the predictor at the start."""
    return float(np.linalg.norm(limit)) or abs(start.a) * float(np.linalg.norm(start.w)) or 1.0
