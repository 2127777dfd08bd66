"""What steps will do to a start, from the flow alone.

A step of length h falls short of the flow by h^2/2 times the curvature of its path. Summed along
the flow, with the batch's gradient G_b = G + noise in place of G = -c X^T r, that is to first order

    depth 2:  log p_eff = log p - (h/2) rate^2 I,     I = int E[G_b^2] dt
    depth D:  |u_eff|^(2-D) = |u|^(2-D) + (h/2) D^2 (D-1)(D-2) I,    I = int |u|^(D-2) E[G_b^2] dt

for either side (docs/theory/descent.md). Batches of b samples without replacement have

    E[G_b^2] = G^2 + c^2 n (n-b)/(b (n-1)) (sum_i (x_ij r_i)^2 - (sum_i x_ij r_i)^2 / n)

and momentum multiplies the first term by (1 + momentum)/(1 - momentum)^2, the second by
1/(1 - momentum) less what it sums up of the batches of one epoch, which make up for each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.destination import destination
from flowbias.flows.draws import Draws
from flowbias.flows.fit import ReachableFit
from flowbias.flows.integrate import fit_model, flow
from flowbias.flows.loss import loss_constant
from flowbias.flows.steps import DescentRequest
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.models._base import MirrorModel, Parameters
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression, as_regression


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
    problem = as_regression(X, y)
    trajectory = flow(model, problem, loss=loss)
    integral = _integral(trajectory, request)
    if Provides.SQUARES in declared:
        return _smaller_squares(model, problem, 0.5 * step_size * integral[0])
    return _smaller_weights(model, 0.5 * step_size * integral)


def _smaller_squares(model: Any, problem: Regression, half: FloatArray) -> Any:
    by = np.exp(-half * model.step_rate**2)
    return model.with_squares(*(side.value * by for side in model.squares))


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
    """The integrals I along the flow, one row for each side of w."""
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
    """E[G_b^2] at these predictors, as momentum weighs it."""
    problem, c, beta = trajectory.problem, trajectory.loss_constant, request.momentum
    residuals = w @ problem.X.T - problem.y
    full = np.square(c * (residuals @ problem.X))
    mean = full * ((1.0 + beta) / (1.0 - beta) ** 2)
    draws = request.draws(len(problem.y))
    n, b = draws.n, draws.per_step
    if b == n:
        return np.asarray(mean)
    # The flow was followed to a residual of 1e-8; batches rest only where all are fitted.
    if np.linalg.norm(residuals[-1]) > 1e-6 * np.linalg.norm(problem.y):
        raise InputError(
            "y: must be fitted by some w for batches to come to rest, got labels out of the range "
            "of X. Leave batch_size out, or use more features than samples."
        )
    spread = c**2 * (np.square(residuals) @ np.square(problem.X)) - full / n
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
