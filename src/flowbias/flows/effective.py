"""From which start the flow ends where a descent did: of a run, and before one.

Along the flow from a start, weights depend on the integrated pull -c X^T int r alone, and end where
it lies in the span of the samples and fits them. The sum of a descent's steps times gradients lies
there, too. So the flow that passes at the end of a descent after the same pull ends there, if the
data is fitted; where it comes from is the effective start (docs/theory/descent.md).

Without running: a step of length h falls short of the flow by h^2/2 times the curvature of its
path. Summed along the flow, with the batch's gradient G_b = G + noise in place of G = -c X^T r,
that is to first order

    depth 2:  log p_eff = log p - (h/2) rate^2 I,     I = int E[G_b^2] dt
    depth D:  |u_eff|^(2-D) = |u|^(2-D) + (h/2) D^2 (D-1)(D-2) I,    I = int |u|^(D-2) E[G_b^2] dt

for either side. Batches of b samples without replacement have

    E[G_b^2] = G^2 + c^2 n (n-b)/(b (n-1)) (sum_i (x_ij r_i)^2 - (sum_i x_ij r_i)^2 / n)

and momentum multiplies the first term by (1 + momentum)/(1 - momentum)^2, the second by
1/(1 - momentum) less what it sums up of the batches of one epoch, which make up for each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.flows.destination import destination
from flowbias.flows.fit import ReachableFit
from flowbias.flows.integrate import fit_model, flow
from flowbias.flows.request import loss_constant
from flowbias.flows.steps import DescentRequest, Draws
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.models._base import MirrorModel, Parameters
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression, as_regression


class EffectiveStart(NamedTuple):
    """A start, what it is smaller by, and whether the flow from it passes exactly at the end.

    `gain` is log(nominal/effective), summed over the two sides of a coordinate.
    """

    model: Any
    gain: FloatArray
    is_identity: bool


class Explained(NamedTuple):
    """How far a descent ended from where the flow does, relative to the size of that.

    `distance` from the limit of the effective start, `nominal` from that of the start as given.
    `is_identity`: a descent that fits lies at the first up to rounding; else it is a description,
    and its distance the measured error of it.
    """

    distance: float
    nominal: float
    is_identity: bool


def taken_back(model: MirrorModel, parameters: Parameters, pull: FloatArray) -> EffectiveStart:
    """The start whose flow has these weights after the integrated `pull`.

    At depth 2 there always is one. Beyond, |u|^(2-D) moves linearly along the flow and never less
    along a step, by convexity: so there is one, and smaller than the nominal, unless a weight has
    changed its sign or momentum has carried it too far. There the nominal start stands in.
    """
    nominal = [np.broadcast_to(part, np.shape(pull)) for part in model.initial_parameters()]
    pairs = list(zip(parameters, nominal, strict=True))
    same = np.all([np.sign(end) == np.sign(first) for end, first in pairs], axis=0)
    same |= Provides.SQUARES in model.provides
    end = model.restarted(tuple(np.where(same, end, first) for end, first in pairs))
    back = end.parameters(-end.mirror_rate * pull)
    inside = same & np.all([np.isfinite(part) for part in back], axis=0)
    starts = [np.where(inside, part, first) for part, first in zip(back, nominal, strict=True)]
    start = model.restarted(tuple(starts))
    gain = np.sum(log_sides(model, len(pull)) - log_sides(start, len(pull)), axis=0)
    return EffectiveStart(start, gain, bool(np.all(inside)))


def log_sides(model: Any, d: int) -> FloatArray:
    """log of the two sides of each coordinate at the start, (2, d); 0 for one absent for good."""
    if Provides.SQUARES in model.provides:
        sides = [side.value for side in model.squares]
    else:
        sides = model.initial_parameters()
    sizes = np.abs([np.broadcast_to(side, (d,)) for side in sides])
    return np.asarray(np.log(np.where(sizes == 0.0, 1.0, sizes)))


class LassoEnd(NamedTuple):
    """How far a predictor is from the minimizer of ||X w - y||^2 / 2 + penalty ||w||_1.

    `gap` is how much less that can be at most, by duality, relative to ||y||^2 / 2; the predictions
    of the minimizer are within `fit_error` of those of w, relative to ||y||.
    """

    penalty: float
    gap: float
    fit_error: float


def lasso_end(X: FloatArray, y: FloatArray, w: FloatArray, penalty: float) -> LassoEnd:
    """The duality gap at w: the residual, scaled to where |X^T theta| <= penalty, is the dual."""
    left, size = y - X @ w, float(y @ y) or 1.0
    largest = float(np.abs(X.T @ left).max())
    theta = left * min(1.0, penalty / largest if largest > 0.0 else 1.0)
    primal = 0.5 * float(left @ left) + penalty * float(np.abs(w).sum())
    dual = 0.5 * float(y @ y) - 0.5 * float((y - theta) @ (y - theta))
    gap = max(primal - dual, 0.0) / (0.5 * size)
    # The loss is strongly convex in the predictions: half their squared distance is in the gap.
    return LassoEnd(penalty, gap, float(np.sqrt(gap)))


# --- without running -----------------------------------------------------------------------------


def predicted_start(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    batch_size: int | None = None,
    momentum: float = 0.0,
    loss: str | float = "half",
) -> Any:
    """The effective start of a descent that was not run, to first order in the step.

    The error of its scales, relative to their change, falls in proportion to the step.

    Parameters
    ----------
    model : a diagonal network of any depth at its start
    X, y : the data, or a `Regression` in place of X
    step_size, batch_size, momentum, loss : as for `gradient_descent`

    Returns
    -------
    a model, as `gradient_descent(...).effective_start` is

    Raises
    ------
    InputError for data or a model that cannot be used

    >>> model, X, y = fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0]
    >>> run = fb.gradient_descent(model, X, y, step_size=0.02)
    >>> fb.limit(model, X, y).w.round(3), run.w.round(3)
    (array([0.067, 0.467]), array([0.069, 0.466]))
    >>> fb.limit(fb.predicted_start(model, X, y, step_size=0.02), X, y).w.round(3)
    array([0.069, 0.466])
    """
    request = DescentRequest(step_size, loss=loss, batch_size=batch_size, momentum=momentum)
    declared = provided_by(model)
    if not declared & {Provides.SQUARES, Provides.RESTART}:
        raise unfitting(model, "be a diagonal network for steps to act like a start", "")
    if not any(np.any(weights) for weights in model.initial_parameters()):
        raise InputError(
            "model: must start at weights that are doubles for steps to act like a start, got 0. "
            "fb.limit, fb.flow and fb.stages take any scale."
        )
    problem = as_regression(X, y)
    trajectory = flow(model, problem, loss=loss)
    with np.errstate(over="ignore", invalid="ignore"):
        integral = _integral(trajectory, request)
    if not np.isfinite(integral).all():
        raise InputError(
            "step_size: must let the squares of gradients times the step add up to doubles, got "
            f"{step_size:g}. fb.flows.stable_step is the largest with which descents come to rest."
        )
    if Provides.SQUARES in declared:
        return _smaller_squares(model, 0.5 * integral[0], step_size)
    return _smaller_weights(model, 0.5 * integral)


def _smaller_squares(model: Any, half: FloatArray, step_size: float) -> Any:
    exponent = -half * model.step_rate**2
    sides = [(side.value, side.value * np.exp(exponent)) for side in model.squares]
    if any(np.any((first != 0.0) & (start == 0.0)) for first, start in sides):
        # A weight of 0 would be one that is absent for good.
        raise InputError(
            "step_size: must be small enough for its first order to leave a start that is a "
            f"double, got {step_size:g}, which leaves exp({exponent.min():.1e}) of a weight. "
            "fb.flows.stable_step is the largest with which a descent comes to rest."
        )
    return model.with_squares(*(start for _, start in sides))


def _smaller_weights(model: Any, half: FloatArray) -> Any:
    depth, order = model.depth, 2.0 - model.depth
    more = half * depth**2 * (depth - 1.0) * (depth - 2.0)
    weights = [
        # |u| (1 + more |u|^(D-2))^(-1/(D-2)), which does not overflow for small u.
        side * (1.0 + each * np.abs(side) ** -order) ** (1.0 / order)
        for side, each in zip(model.initial_parameters(), more, strict=True)
    ]
    return model.restarted(tuple(weights))


def _integral(trajectory: Trajectory, request: DescentRequest) -> FloatArray:
    """step_size times the integrals I along the flow, one row for each side of w."""
    nodes, weights = np.polynomial.legendre.leggauss(5)
    starts, lengths = trajectory.t[:-1, None], np.diff(trajectory.t)[:, None]
    times = (starts + 0.5 * lengths * (1.0 + nodes)).ravel()
    shares = (0.5 * lengths * weights).ravel()
    w = trajectory.at(np.minimum(times, trajectory.t[-1]))
    squares = _mean_square(trajectory, w, request)
    model = trajectory.model
    if Provides.SQUARES in model.provides:
        return np.stack([shares @ squares] * 2)
    sides = _weights_at(model, w)
    return np.stack([shares @ (squares * np.abs(side) ** (model.depth - 2.0)) for side in sides])


def _mean_square(trajectory: Trajectory, w: FloatArray, request: DescentRequest) -> FloatArray:
    """step_size E[G_b^2] at these predictors, as momentum weighs it."""
    problem, beta = trajectory.problem, request.momentum
    # Times the root of the step: squares of the gradient itself may leave the range.
    unit = trajectory.loss_constant * np.sqrt(request.step_size)
    residuals = unit * (w @ problem.X.T - problem.y)
    full = np.square(residuals @ problem.X)
    mean = full * ((1.0 + beta) / (1.0 - beta) ** 2)
    draws = request.draws(len(problem.y))
    n, b = draws.n, draws.per_step
    if b == n:
        return np.asarray(mean)
    # The flow was followed to a residual of 1e-8; batches rest only where all are fitted.
    first, last = (trajectory.w[[0, -1]] @ problem.X.T) - problem.y
    if np.linalg.norm(last) > 1e-6 * max(np.linalg.norm(problem.y), np.linalg.norm(first)):
        raise InputError(
            "y: must be fitted by some w for batches to come to rest, got labels out of the range "
            "of X. Leave batch_size out, or use more features than samples."
        )
    spread = np.square(residuals) @ np.square(problem.X) - full / n
    return np.asarray(mean + spread * (n * (n - b) / (b * (n - 1.0))) * _carried(draws, beta))


def _carried(draws: Draws, momentum: float) -> float:
    """What momentum makes of the noise of batches: two of one epoch have correlation -b/(n-b)."""
    lags = np.arange(1, draws.epoch)
    together = float(np.sum(momentum**lags * (1.0 - lags / draws.epoch)))
    shared = draws.per_step / (draws.n - draws.per_step)
    return (1.0 - 2.0 * shared * together) / (1.0 - momentum)


def stable_step(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    momentum: float = 0.0,
    loss: str | float = "half",
) -> float:
    """The largest step with which a descent comes to rest at the limit of the flow.

    2 (1 + momentum) over the sharpness: the largest eigenvalue of the tangent kernel K = X J J^T
    X^T times c, at the limit or at the start, whichever is larger. For batches of b that of
    (n/b) ((b-1) K + (n-b) diag K)/(n-1), below which the residual shrinks in the mean square.
    """
    request = DescentRequest(1.0, loss=loss, batch_size=batch_size, momentum=momentum)
    problem = as_regression(X, y)
    c = loss_constant(loss, len(problem.y))
    fit = fit_model(model, problem)
    ends = model.initial_parameters(), _weights_at(model, destination(model, problem).w)
    sharpest = max(_sharpness(model, problem, fit, ends[k], request) for k in range(2))
    return float(2.0 * (1.0 + momentum) / (c * sharpest))


@np.errstate(all="ignore")
def _weights_at(model: Any, w: FloatArray) -> Parameters:
    """The weights when the flow is at w.

    Beyond depth 2 the dual of a tiny start is all but at its pole, and says nothing of the weight
    that has grown, which is then the root of |w|; the other is what it was.
    """
    weights: Parameters = model.parameters(model.potential.grad(w) - model.shift)
    if model.depth == 2:
        return weights
    off = ~(np.abs(model.predictor(weights) - w) <= 1e-6 * np.abs(w).max(initial=0.0))
    roots = np.maximum(w, 0.0) ** (1.0 / model.depth), np.maximum(-w, 0.0) ** (1.0 / model.depth)
    starts = model.initial_parameters()
    sides = zip(weights, roots, starts, strict=True)
    return tuple(np.where(off, np.maximum(root, np.abs(first)), u) for u, root, first in sides)


def _sharpness(
    model: MirrorModel,
    problem: Regression,
    fit: ReachableFit,
    parameters: Any,
    request: DescentRequest,
) -> float:
    draws = request.draws(len(problem.y))
    n, b = draws.n, draws.per_step
    metric = np.broadcast_to(model.metric(parameters), problem.X.shape[1:])
    if b == n:
        return float(np.linalg.norm(fit.rows * np.sqrt(metric), 2) ** 2)
    K = (problem.X * metric) @ problem.X.T
    mixed = ((b - 1.0) * K + (n - b) * np.diag(np.diag(K))) / (n - 1.0)
    return float(n / b * np.linalg.eigvalsh(mixed)[-1])
