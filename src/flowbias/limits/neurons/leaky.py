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

A flow that keeps a loss ends at a local minimum of it. Within the sides of the kinks there it is
that of a linear neuron on the rows c_n x_n, and has the same closed form on their least squares,
with <x_n, v> = 0 where a kink holds it. That it ends there is proved by a state from which what is
left of the path is too short to leave these sides; the flows next to it have to agree on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.certificates.certificate import certify
from flowbias.flows.leaky_neuron.convergence import Ending, ending_at_once
from flowbias.flows.leaky_neuron.field import LeakyStart, Sides, activation
from flowbias.flows.leaky_neuron.follow import ActivatedNeuron, LeakyTrajectory, followed, start_of
from flowbias.flows.request import FlowRequest
from flowbias.ground import extended
from flowbias.ground.extended import row_lengths
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.neurons.parts import NeuronParts, within_reach
from flowbias.limits.neurons.sign import NUDGE
from flowbias.models.neuron import Neuron
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, Stats, Status, status_of

AT_ONCE = "closed form; the start proves the sign of a, and zero error"
FOLLOWED = "closed form; the flow, followed until it proves the sign of a, and zero error"
LEFT_AT_ONCE = "closed form; the start proves the sign of a, and the least misfit of its samples"
LEFT_OVER = (
    "closed form; the flow, followed until it proves the sign of a, and on which side of each kink "
    "it ends"
)
TOO_CLOSE = "from starts moved by 1e-8 of their size it ends elsewhere: too close to call"


REMEDY = (
    "Start elsewhere: at weights whose product is about the size of a fit, or with |a| > ||w||; or "
    "see how far it gets by fb.flow"
)


@dataclass(frozen=True, eq=False, repr=False)
class FollowedLimit(Solution):
    """Where a flow ends that keeps a loss: the least squares of the sides it ends on, no others.

    STALLED: how far it was followed, and why its end is not proved.
    """

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        if self.status is Status.STALLED:
            return f"{self.route} (relative residual {self.distance:.1e}). {REMEDY}"
        return (
            f"the flow keeps a misfit of {self.distance:.1e} relative to y, at a local minimum of "
            "the loss: the least-squares limit on the sides of the kinks where it ends, certified: "
            f"feasibility {self.certificate.feasibility:.1e}, gap {self.certificate.gap:.1e}"
        )


def leaky_limit(model: ActivatedNeuron, X: Any, y: Any, tol: float) -> Solution:
    """Where gradient flow from the neuron ends: `w` of the solution is a w there.

    Certified where the flow is proved to reach zero loss and the minimizer's certificate holds;
    PROJECTED where it is proved to keep a loss. Otherwise STALLED, with what the flow has reached;
    `route` then has the reason. `details` holds a, the outer weight at the limit; where a flow was
    followed, also flow_residual, its switches and slides (1 or 0), all as far as it was.
    """
    problem = as_regression(X, y)
    start, begun = start_of(model, problem), time.perf_counter()
    if (ending := ending_at_once(start)) is not None:
        return _at_minimizer(start, problem, ending, None, tol, begun)
    trajectory = _until_sure(model, problem)
    if (ending := trajectory.ending) is None:
        return _stalled(start, trajectory, trajectory.failure, tol, begun)
    if not all(ending.agrees(other) for other in _nearby_endings(start, problem)):
        return _stalled(start, trajectory, TOO_CLOSE, tol, begun)
    return _at_minimizer(start, problem, ending, trajectory, tol, begun)


def _until_sure(
    model: ActivatedNeuron, problem: Regression, rtol: float | None = None
) -> LeakyTrajectory:
    # How far the flow is followed at most, in at most how many steps.
    residual, steps = 1e-9, 5_000
    request = FlowRequest.of(None, "half", residual, rtol, None, None)
    return followed(model, problem, request, steps, until_proved=True)


def _nearby_endings(start: LeakyStart, problem: Regression) -> Iterator[Ending | None]:
    """Where flows end from outer weights next to the start's; None: not known."""
    size = max(abs(start.a), float(np.linalg.norm(start.basis.T @ start.w)))
    for share in (NUDGE, -NUDGE):
        near = Neuron(start.a + share * size, start.w, start.slope)
        # Steps need not be more accurate than the start is near, unless that leaves too much of an
        # error in the residual for a proof.
        quick = _until_sure(near, problem, 0.1 * NUDGE).ending
        yield quick or _until_sure(near, problem).ending


@dataclass(frozen=True, eq=False)
class SidesProblem:
    """Least squares on one side of every kink: c_n <x_n, v> = y_n, and 0 where the kink holds.

    Rows of samples that do not are taken along the kinks that do, so that these are orthogonal to
    them and fitted whatever the others ask for.
    """

    problem: Regression
    #: (n, n): takes a dual of these rows to one of the data's
    to_data: FloatArray

    @classmethod
    def of(cls, problem: Regression, sides: Sides, slope: float) -> SidesProblem:
        held, c = sides == 0, np.where(sides < 0, slope, 1.0)
        rows, y = c[:, None] * problem.X, np.where(held, 0.0, problem.y)
        to_data = np.diag(c)
        if held.any():
            along = rows @ scipy.linalg.pinv(rows[held])
            along[held] = 0.0
            lengths = row_lengths(rows)
            rows = rows - along @ rows[held]
            # What is left of a row in the span of others is rounding.
            rows[row_lengths(rows) <= 64.0 * len(y) * EPS * lengths] = 0.0
            to_data[held] -= along.T
        return cls(Regression(rows, y), to_data)


def _at_minimizer(
    start: LeakyStart,
    problem: Regression,
    ending: Ending,
    trajectory: LeakyTrajectory | None,
    tol: float,
    begun: float,
) -> Solution:
    """The closed form of the linear neuron on the sides where the flow ends."""
    sign = ending.sign
    seen = SidesProblem.of(problem, start.sides_of_data(ending.sides), start.slope)
    reached, distance = within_reach(seen.problem)
    parts = NeuronParts.of(start.a, start.w, reached)
    w, dual = parts.limit(sign), parts.dual(sign)
    steps = 0 if trajectory is None else trajectory.stats.steps
    seconds = time.perf_counter() - begun
    potential, shift = NeuronPotential(start.delta), 1.5 * sign * start.w
    certificate = certify(reached.X, reached.y, w, dual, potential, shift, tol=tol)
    if not ending.fits:
        fitted = activation(problem.X @ (sign * w), start.slope)
        misfit = extended.length(sign * fitted - problem.y)
        distance = misfit / extended.length(problem.y)
    at_once, followed_up = (AT_ONCE, FOLLOWED) if ending.fits else (LEFT_AT_ONCE, LEFT_OVER)
    route = at_once if trajectory is None else followed_up
    make = Solution if ending.fits else FollowedLimit
    return make(
        w=w,
        dual=seen.to_data @ dual,
        status=status_of(certificate, distance),
        route=f"leaky neuron: {route}",
        certificate=certificate,
        stats=Stats(parts.constraint.factorizations, steps, seconds),
        potential=potential,
        shift=shift,
        distance=distance,
        details={"a": sign * parts.outer_weight} | _details(trajectory),
    )


def _stalled(
    start: LeakyStart, trajectory: LeakyTrajectory, reason: str | None, tol: float, begun: float
) -> Solution:
    """What the flow has reached, where nothing shows where it ends."""
    route = f"where the flow ends is not proved: {reason or 'no state of it shows that'}"
    reached, sign = trajectory.last_state, float(np.sign(trajectory.a[-1]))
    moved = reached[1:] / start.singular_values
    dual = start.dual_of_data(1.5 * sign * ((start.rows / start.singular_values) @ moved))
    w, problem = trajectory.w[-1], trajectory.problem
    potential, shift = NeuronPotential(start.delta), 1.5 * sign * start.w
    z = np.where(sign * problem.y > 0.0, problem.y, problem.y / start.slope)
    return FollowedLimit(
        w=w,
        dual=dual,
        status=Status.STALLED,
        route=f"leaky neuron: {route}",
        certificate=certify(problem.X, z, w, dual, potential, shift, tol=tol),
        stats=Stats(1, trajectory.stats.steps, time.perf_counter() - begun),
        potential=potential,
        shift=shift,
        distance=float(trajectory.residual[-1]),
        details={"a": float(trajectory.a[-1])} | _details(trajectory),
    )


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
