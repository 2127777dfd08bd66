"""Neurons: what their flow conserves, and where it ends.  [azulay2021, sections 6 and 8]

One linear neuron a <w, x> has the predictor v = a w; several have v = sum_i a_i w_i. The paper's
samples are columns, ours rows. One leaky ReLU neuron a sigma(<w, x>) has

    a w -> argmin q(v) - <shift, v>   s.t.  <x_n, v> = y_n if a y_n > 0, else y_n / slope,

q the potential of one linear neuron, shift = 3/2 sign(a) w(0), a of the sign that it ends with. Its
claims are about flows that reach zero loss: one that does not is refused, since they say nothing
about it. Proofs in docs/theory/neurons.md and leaky_neuron.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.flows import Trajectory, flow
from flowbias.flows.leaky_neuron.convergence import fits_from_start, least_outer_square, loss_rate
from flowbias.flows.leaky_neuron.follow import (
    ActivatedNeuron,
    LeakyTrajectory,
    follow_leaky,
    start_of,
)
from flowbias.flows.request import FlowRequest
from flowbias.flows.trajectory import FlowStatus
from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.leaky import clarke_kkt, leaky_limit
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.neurons.sum_of_neurons import neuron_sum_limit
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import OutsideHypothesis, checked, same_size, something_to_fit
from flowbias.theory.claim import AZULAY, Claim, Statement, Tolerance, beyond_the_papers, relative
from flowbias.theory.measured_flow import jacobian
from flowbias.theory.regimes import SOLVED

# The residual is magnified by the condition of X (below 1e2 in use) on the way to the predictor.
FLOW = Tolerance(
    "parameter-space flow at rtol 1e-11 to residual 1e-10, magnified by the data", 1e-7
)


def followed(model: Neuron | NeuronSum, problem: Regression) -> Trajectory:
    """The flow in all weights, as the paper writes it, to its end."""
    return flow(model, problem, route="parameter", rtol=1e-11, residual=1e-10)


def _weights(trajectory: Trajectory) -> tuple[FloatArray, FloatArray]:
    """a and w, or W, where the flow was left."""
    a, w = trajectory.parameters(float(trajectory.t[-1]))
    return a, w


class Driven(NamedTuple):
    """What the data makes of one neuron: m = X^+ y, P w(0), and a(inf)^2."""

    shortest: FloatArray
    moving: FloatArray
    outer_square: float


def driven(model: Neuron, problem: Regression) -> Driven:
    """By a pseudoinverse: a(inf)^2 = D/2 + sqrt(D^2/4 + ||m||^2), D = a(0)^2 - ||P w(0)||^2."""
    inverse = np.linalg.pinv(problem.X)
    shortest, moving = inverse @ problem.y, inverse @ (problem.X @ model.w)
    half = 0.5 * (model.a**2 - float(moving @ moving))
    return Driven(shortest, moving, half + float(np.hypot(half, np.linalg.norm(shortest))))


@checked
def neuron_bias(model: Neuron, X: Any, y: Any) -> Claim:
    """The flow of one neuron with delta >= 0 ends at argmin qhat(||v||) + <z, v> with X v = y.

    z = -3/2 sign(a) w at the start, minus the library's shift. [azulay2021, Theorem 2]

    >>> fb.theory.neuron_bias(fb.Neuron(a=1.0, w=[0.5, 0.2]), [[1.0, 2.0]], [1.0]).holds
    True
    """
    if model.delta < 0.0:
        raise OutsideHypothesis(
            f"model: must have delta >= 0, got {model.delta:.6g}. Below 0 the outer weight may "
            "change its sign: see sign_changes_once."
        )
    problem = Regression(X, y)
    end, least = followed(model, problem).w[-1], neuron_limit(model, problem, None, 1e-10)
    words = "the flow's end is the certified minimizer of the neuron's potential"
    stated = Statement(AZULAY("Theorem 2"), words, *FLOW)
    return stated.same("one neuron minimizes q", end, least.checked(True).w, among=problem.X)


@checked
def neuron_closed_form(model: Neuron, X: Any, y: Any) -> Claim:
    """v(inf) = m + a k with a^2 = D/2 + sqrt(D^2/4 + ||m||^2), for any delta.

    m = X^+ y, k = P_null w(0), D = a(0)^2 - ||P w(0)||^2, and a of the sign that it ends with.
    Measured against the flow, with a pseudoinverse in place of the library's factorization.

    >>> fb.theory.neuron_closed_form(fb.Neuron(a=1.0, w=[0.5, 0.2]), [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    trajectory = followed(model, problem)
    outer, _ = _weights(trajectory)
    shortest, moving, square = driven(model, problem)
    predicted = shortest + np.sign(outer[0]) * np.sqrt(square) * (model.w - moving)
    words = "one square root beyond the pseudoinverse gives the limit"
    stated = Statement(beyond_the_papers("The limit in closed form", "neurons"), words, *FLOW)
    end = trajectory.w[-1]
    return stated.same("closed form of one neuron", end, predicted, among=problem.X)


@checked
def sign_changes_once(model: Neuron, X: Any, y: Any) -> tuple[Claim, Claim, Claim]:
    """The outer weight changes its sign at most once, at the loss of the zero predictor.

    So from any state of lower loss on it is settled; and `limit` is on the flow's branch.

    >>> model = fb.Neuron(a=0.2, w=[-0.5, -0.2])
    >>> all(claim.holds for claim in fb.theory.sign_changes_once(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    trajectory = followed(model, problem)
    outer = np.array([float(trajectory.parameters(float(t))[0][0]) for t in trajectory.t])
    changes = np.flatnonzero(np.diff(np.sign(outer)) != 0.0)
    zero = 0.5 * float(problem.y @ problem.y)
    below = trajectory.loss < zero * (1.0 - FLOW.size)
    late = int(np.count_nonzero(below[changes]))
    solution = neuron_limit(model, problem, None, 1e-10).checked(True)

    def stated(words: str) -> Statement:
        place = beyond_the_papers("The sign of the outer weight", "neurons")
        return Statement(place, words, "an integer, exactly known")

    once = stated("a changes its sign once")
    early = stated("no change begins below the loss of the zero predictor")
    branch = stated("the limit has the sign of a with which the flow ends")
    ends = np.sign(solution.details["a"]), np.sign(outer[-1])
    return (
        once.at_most("sign changes of a", changes.size, 1.0),
        early.equal("sign changes below the loss of zero", late),
        branch.equal("branch of the limit", *ends),
    )


@checked
def balanced_neurons_bias(model: NeuronSum, X: Any, y: Any) -> Claim:
    """Strictly balanced neurons end at argmin ||v||^(3/2) - 3/2 ||v(0)||^(-1/2) <v(0), v>.

    All of a a^T - W W^T must vanish; |a_i| = ||w_i|| is not enough. [azulay2021, Proposition 1]

    >>> model = fb.NeuronSum([0.5, 0.4], np.outer([0.5, 0.4], [0.6, 0.8]))
    >>> fb.theory.balanced_neurons_bias(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    if not model.is_strictly_balanced:
        raise OutsideHypothesis(
            f"model: must be strictly balanced, a a^T = W W^T, got {model!r}. "
            "Start from W = np.outer(a, e) with a unit vector e."
        )
    problem = Regression(X, y)
    end, least = followed(model, problem).w[-1], neuron_sum_limit(model, problem, None, 1e-10)
    stated = Statement(AZULAY("Proposition 1"), "strictly balanced neurons behave as one", *FLOW)
    name = "balanced neurons minimize the 3/2-power"
    return stated.same(name, end, least.checked(True).w, among=problem.X)


@checked
def balance_is_conserved(model: NeuronSum, X: Any, y: Any) -> Claim:
    """a a^T - W W^T stays what it is at the start.  [azulay2021, section 6, after Du et al.]

    >>> model = fb.NeuronSum([0.5, -0.4], [[0.5, 0.0], [0.0, 0.4]])
    >>> fb.theory.balance_is_conserved(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    a, W = _weights(followed(model, Regression(X, y)))
    drift = np.outer(a, a) - W @ W.T - model.balance
    size = float(model.a @ model.a + np.sum(model.W**2))
    words = "gradient flow conserves the whole matrix, not only its diagonal"
    stated = Statement(AZULAY("section 6", "Theorem 2.2 of Du et al. (2018)"), words, *FLOW)
    return stated.equal("balance of the neurons", np.linalg.norm(drift) / size)


@checked
def resting_part(model: NeuronSum, X: Any, y: Any) -> Claim:
    """P_null v(inf) = sum_i a_i(inf) P_null w_i(0): the limit from the outer weights alone.

    >>> model = fb.NeuronSum([0.5, -0.4], [[0.5, 0.0], [0.0, 0.4]])
    >>> fb.theory.resting_part(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    trajectory = followed(model, problem)
    a, _ = _weights(trajectory)
    inverse = np.linalg.pinv(problem.X)
    resting = model.W - (model.W @ problem.X.T) @ inverse.T
    words = "the null-space part of a sum of neurons follows from the outer weights"
    stated = Statement(beyond_the_papers("Many neurons", "neurons"), words, *FLOW)
    end, predicted = trajectory.w[-1], inverse @ problem.y + a @ resting
    return stated.same("what the data does not move", end, predicted, among=problem.X)


@checked
def tangent_kernel_moves(model: Neuron, X: Any, y: Any) -> Claim:
    """||K(inf) - K(0)|| >= (1 - (a^2 + ||w||^2)/a(inf)^2) ||K(inf)||, a and w at the start.

    K = X (a^2 I + w w^T) X^T is at most (a^2 + ||w||^2) X X^T at the start and at least
    a(inf)^2 X X^T at the end, a(inf)^2 = D/2 + sqrt(D^2/4 + ||m||^2): from a vanishing start the
    kernel is all new, though the limit is that of a kernel. [azulay2021, section 6], with a bound.

    >>> model = fb.Neuron(a=1e-2, w=[1e-3, 2e-3])
    >>> fb.theory.tangent_kernel_moves(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    trajectory = followed(model, problem)
    weights = [trajectory.parameters(float(t)) for t in trajectory.t[[0, -1]]]
    slopes = (jacobian(model, at, problem.X) for at in weights)
    first, last = (part @ part.T for part in slopes)
    outer = driven(model, problem).outer_square
    predicted = 1.0 - (model.a**2 + float(model.w @ model.w)) / outer
    words = "from a small start the tangent kernel of the end is not that of the start"
    stated = Statement(AZULAY("section 6"), words, *FLOW)
    silence = "" if predicted > 0.0 else "the start is as large as the end: it may stay"
    moved = relative(last - first, last)
    return stated.at_least("the tangent kernel moves", moved, predicted, silence=silence)


@checked
def vanishing_start(model: NeuronSum, X: Any, y: Any) -> Claim:
    """||v(inf) - m|| <= ||P_null W(0)|| sqrt(A/2 + sqrt(A^2/4 + ||m||^2)), A = ||a(0)||^2.

    So the limit is the shortest predictor m if all ||w_i(0)|| go to 0 and a(0) stays bounded. The
    printed hypothesis, a_i(0) w_i(0) -> 0, is too weak. [azulay2021, Theorem 3, mended]

    >>> model = fb.NeuronSum([1e-3, -1e-3], [[1e-3, 0.0], [0.0, 1e-3]])
    >>> fb.theory.vanishing_start(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    same_size("X", problem.X.shape[1], model.W.shape[1], "columns, one per inner weight")
    inverse = np.linalg.pinv(problem.X)
    shortest = inverse @ problem.y
    resting = model.W - (model.W @ problem.X.T) @ inverse.T
    half = 0.5 * float(model.a @ model.a)
    outer = np.sqrt(half + np.hypot(half, np.linalg.norm(shortest)))
    end = neuron_sum_limit(model, problem, None, 1e-10).checked(True).w
    stated = Statement(
        AZULAY("Theorem 3"),
        "what is left of the start is bounded by its inner weights",
        "limits known to 1e-10",
        SOLVED.size,
    )
    return stated.at_most(
        "a vanishing start leaves the shortest predictor",
        np.linalg.norm(end - shortest),
        np.linalg.norm(resting, 2) * outer,
        size=float(np.linalg.norm(shortest) + np.linalg.norm(end)),
        among=problem.X,
    )


# --- one leaky ReLU neuron ------------------------------------------------------------------------

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
    return stated.same("leaky neuron limit", end, exact.w, among=problem.X)


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
