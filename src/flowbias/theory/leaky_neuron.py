"""Where gradient flow of one leaky ReLU neuron a sigma(<w, x>) ends.  [azulay2021, section 8]

    a w -> argmin q(v) - <shift, v>   s.t.  <x_n, v> = y_n if a y_n > 0, else y_n / slope,

q the potential of one linear neuron, shift = 3/2 sign(a) w(0), a of the sign that it ends with. All
claims are about flows that reach zero loss: one that does not is refused, since they say nothing
about it. Proofs in docs/theory/leaky_neuron.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.journey import FlowRequest
from flowbias.flows.leaky_neuron.convergence import fits_from_start, least_outer_square, loss_rate
from flowbias.flows.leaky_neuron.follow import ActivatedNeuron, follow_leaky, start_of
from flowbias.flows.leaky_neuron.trajectory import LeakyTrajectory
from flowbias.flows.trajectory import FlowStatus
from flowbias.limits.neurons.leaky import leaky_limit
from flowbias.limits.neurons.leaky_kkt import clarke_kkt
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import OutsideHypothesis, checked, only_one_fit, something_to_fit
from flowbias.theory.claim import AZULAY, Claim, Statement, Tolerance, beyond_the_papers, relative

# Some hundred local errors up to a thousand, which nothing pulls back.
DRIFT = Tolerance("flow at rtol 1e-12: up to a thousand local errors", 1e-9)
# At the end what is left of the residual adds to them, through the multipliers by up to 1e2.
END = Tolerance("flow at rtol 1e-12 to a relative residual of 1e-9, magnified by up to 1e2", 1e-7)
# The distance to a limit once more by its conditioning, by up to 10.
AGREEMENT = Tolerance(
    END.origin + "; the distance to a limit once more by its conditioning", 10.0 * END.size
)


@checked
def leaky_neuron_limit(model: ActivatedNeuron, X: Any, y: Any) -> Claim:
    """The flow's limit is the global minimizer of a convex problem.  [azulay2021, Theorem 4]

    The paper states its conditions of first order; that they single out one point is ours, and its
    appendix G ends with the constraint X v = y, which is another for slope != 1.

    >>> model = fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3)
    >>> fb.theory.leaky_neuron_limit(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    end = _converged(model, problem).w[-1]
    exact = leaky_limit(model, problem, None, 1e-10)
    if not exact.status.ok:
        raise OutsideHypothesis(
            f"model: must have a certified limit on the data, got: {exact.message}. "
            "Take data with independent rows."
        )
    words = "a w converges to the minimizer of q, with y_n / slope where a y_n < 0"
    stated = Statement(AZULAY("Theorem 4"), words, *AGREEMENT)
    off, alone = relative(end - exact.w, exact.w), only_one_fit(problem.X)
    return stated.equal("leaky neuron limit", off, silence=alone)


@checked
def leaky_neuron_kkt(model: ActivatedNeuron, X: Any, y: Any) -> tuple[Claim, Claim, Claim]:
    """KKT conditions in Clarke's sense at the end of the flow.  [azulay2021, Theorem 4, appendix G]

    Feasibility, and stationarity in the inner and in the outer weights.

    >>> model = fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3)
    >>> all(c.holds for c in fb.theory.leaky_neuron_kkt(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    something_to_fit(problem.y)
    trajectory = _converged(model, problem)
    kkt = clarke_kkt(model, problem, None, float(trajectory.a[-1]), trajectory.inner[-1])
    words = "the limit fulfils the conditions of first order of min q(a w)"
    stated = Statement(AZULAY("Theorem 4", "(31)"), words, *END)
    return (
        stated.equal("Clarke KKT, feasibility", kkt.feasibility),
        stated.equal("Clarke KKT, inner weights", kkt.stationarity),
        stated.equal("Clarke KKT, outer weight", kkt.outer),
    )


@checked
def leaky_neuron_signs(model: ActivatedNeuron, X: Any, y: Any) -> Claim:
    """At the end sign <w, x_n> = sign(a y_n) for every sample with y_n != 0.

    >>> model = fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3)
    >>> fb.theory.leaky_neuron_signs(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    trajectory = _converged(model, problem)
    last = trajectory.pattern(float(trajectory.t[-1]))
    seen = problem.y != 0.0
    wrong = last[seen] != np.sign(trajectory.a[-1] * problem.y[seen])
    words = "the activation pattern at the end is that of the targets"
    stated = Statement(beyond_the_papers("3 The limit", "leaky_neuron"), words, "a count: none")
    return stated.equal("signs at the end", float(wrong.sum()))


@checked
def leaky_neuron_conserved(model: ActivatedNeuron, X: Any, y: Any) -> tuple[Claim, Claim]:
    """a^2 - ||w||^2 and the part of w outside the row space of X stay, across all switches.

    [azulay2021, section 6] for the first; its use in appendix G.

    >>> model = fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3)
    >>> all(c.holds for c in fb.theory.leaky_neuron_conserved(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    trajectory = _converged(model, problem)
    moved = trajectory.inner - trajectory.inner[0]
    row_part = np.linalg.lstsq(problem.X.T, moved.T, rcond=None)[0]
    outside = np.linalg.norm(moved.T - problem.X.T @ row_part, axis=0)
    size = float(np.abs(trajectory.inner).max()) or 1.0
    words = "gradient flow conserves it, at kinks and along them as well"
    printed = Statement(AZULAY("appendix G"), words, *DRIFT)
    ours = Statement(beyond_the_papers("1 The flow", "leaky_neuron"), words, *DRIFT)
    return (
        printed.equal("a^2 - ||w||^2", trajectory.conserved_drift),
        ours.equal("w outside the row space", outside.max() / size),
    )


@checked
def leaky_neuron_converges(model: ActivatedNeuron, X: Any, y: Any) -> tuple[Claim, Claim]:
    """a^2 >= m and L(t) <= L(0) exp(-2 c m (lo sigma)^2 t), for independent rows and m > 0.

    m = a(0)^2 - ||P_row w(0)||^2, lo = min(1, slope), sigma the least singular value of X. Ours.

    >>> model = fb.Neuron(a=1.0, w=[0.5, 0.2], slope=0.3)
    >>> all(c.holds for c in fb.theory.leaky_neuron_converges(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    start = start_of(model, problem)
    if not fits_from_start(start):
        raise OutsideHypothesis(
            f"model: must have |a(0)| > ||P_row w(0)|| on independent rows, got "
            f"a(0)^2 - ||P_row w(0)||^2 = {least_outer_square(start):.3g}. Raise |a(0)|."
        )
    trajectory = _converged(model, problem)
    reference = beyond_the_papers("2 When it reaches zero loss", "leaky_neuron")
    room = np.log(trajectory.loss / trajectory.loss[0]) + loss_rate(start) * trajectory.t
    floor, least = least_outer_square(start), float(np.min(trajectory.a**2))
    away = Statement(
        reference,
        "the part of w outside the row space rests, and with it a floor of a^2",
        DRIFT.origin + ", relative to the larger a^2",
        DRIFT.size,
    )
    falls = Statement(
        reference,
        "log L(t)/L(0) <= -2 c m (lo sigma)^2 t",
        "residuals down to 1e-9 known to 1e-12 of the data: 1e-3 of a log",
        2e-3,
    )
    size = float(np.max(trajectory.a**2)) / floor
    return (
        away.at_least("outer weight stays away from zero", least / floor, 1.0, size=size),
        falls.at_most("loss falls exponentially", room.max(), 0.0),
    )


def _converged(
    model: ActivatedNeuron, problem: Regression, rtol: float = 1e-12, residual: float = 1e-9
) -> LeakyTrajectory:
    """The flow at this local error per step, to this relative residual."""
    request = FlowRequest.of(None, "half", residual, rtol, None, None)
    trajectory = follow_leaky(model, problem, None, request)
    if trajectory.status is not FlowStatus.CONVERGED:
        raise OutsideHypothesis(
            f"model: must have a flow that reaches zero loss, got one that {trajectory.message}. "
            "Nothing is claimed about its end: take data with independent rows."
        )
    return trajectory
