"""Gradient descents with steps below and above the stable one, beside the limit of the flow.

    theta <- theta - h J^T X^T r,    stable at the flow's limit for h < 2 / sharpness there

At depth 2 a step multiplies w+ and w- by 1 + x and 1 - x, x = 2 h G, G = -X^T r: it moves
log(w+/w-) by 2x + O(h^3), as the flow does, but shrinks w+ w- by 1 - x^2, where the flow conserves
it. So descent ends, up to O(h^2), at the flow's limit from the smaller start sqrt(w+ w-).
[Even et al. 2023, (S)GD over Diagonal Linear Networks]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowbias.datasets import SparseRegression, sparse_regression
from flowbias.experiments._base import Settings, Task
from flowbias.experiments.table import Columns, Table
from flowbias.flows import gradient_descent
from flowbias.flows.descent import Descent, DescentStatus
from flowbias.ground.typing import FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet
from flowbias.models._base import Parameters

DEPTHS = (2, 3)
# Steps as shares of the stable one, besides its halves: just below it, above it, far above it.
LARGEST_STABLE = 0.9
UNSTABLE = (1.1, 1.3, 1.6, 2.2, 5.0)
# Relative residual at which a descent has come to rest: far below every distance that is drawn.
RESIDUAL = 1e-10
# Unstable descents that are still moving after so many steps count as restless.
STABLE_STEPS, UNSTABLE_STEPS = 200_000, 5_000


def tasks(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One task per depth and problem, all starts and steps of it."""
    rest = {name: value for name, value in settings.items() if name != "replicates"}
    for depth in DEPTHS:
        for replicate in range(int(settings["replicates"])):
            yield "descent", {**rest, "depth": depth, "replicate": replicate}


def compute(task: Task) -> Columns:
    n, d, sparsity = (task.integer(name) for name in ("n", "d", "sparsity"))
    data = sparse_regression(n, d, sparsity, task.number("noise_var"), task.rng())
    halves = 0.5 ** np.arange(task.integer("halvings"), 0, -1)
    shares = [*halves, LARGEST_STABLE, *UNSTABLE]
    depth = task.integer("depth")
    # log10 of alpha^D: the size of the D-th power of a weight at the start.
    log10_starts = np.linspace(0.0, task.number("log10_start_low"), 3)
    nets = [DiagonalNet(depth=depth, scale=10.0 ** (log / depth)) for log in log10_starts]
    return Table.stack(
        [
            Table.of({"log10_start": log, **_descents(net, data, shares)})
            for log, net in zip(log10_starts, nets, strict=True)
        ]
    ).columns


def _descents(net: DiagonalNet, data: SparseRegression, shares: list[float]) -> Columns:
    """One row per step size, from one start."""
    flow_limit = limit(net, data.X, data.y)
    at_limit = net.parameters(flow_limit.shift + data.X.T @ flow_limit.dual)
    stable_step = 2.0 / _sharpness(net, data.X, at_limit)
    rows = [_descent(net, data, flow_limit.w, share, stable_step) for share in shares]
    return {
        "share": np.array(shares),
        **{name: np.array([row[name] for row in rows]) for name in rows[0]},
    }


def _descent(
    net: DiagonalNet, data: SparseRegression, flow_limit: FloatArray, share: float, stable: float
) -> dict[str, float]:
    """Where a descent ends; infinitely far where it does not come to rest."""
    steps = STABLE_STEPS if share < 1.0 else UNSTABLE_STEPS
    run = gradient_descent(
        net, data.X, data.y, step_size=share * stable, max_steps=steps, residual=RESIDUAL
    )
    if run.status is not DescentStatus.CONVERGED:
        measures = ("residual", "distance", "sharpness")
        row = {"rests": 0.0, **dict.fromkeys(measures, np.inf)}
    else:
        row = {
            "rests": 1.0,
            "residual": float(run.residual[-1]),
            "distance": _distance(run.w, flow_limit),
            # In units of the largest one at which this step is stable.
            "sharpness": 0.5 * run.step_size * _sharpness(net, data.X, run.parameters),
        }
    row["diverges"] = float(run.status is DescentStatus.DIVERGED)
    return {**row, **_smaller_start(run, data)} if net.depth == 2 else row


def _smaller_start(run: Descent, data: SparseRegression) -> dict[str, float]:
    """The start that explains where a depth-2 descent ended, and how well it does."""
    if run.status is not DescentStatus.CONVERGED:
        return {"explained_distance": np.inf, "largest_start": np.inf, "typical_start": np.inf}
    w_plus, w_minus = run.parameters
    start = np.sqrt(np.abs(w_plus * w_minus))
    explained = limit(DiagonalNet(depth=2, scale=1.0, w0=start), data.X, data.y)
    relative = start / run.model.scale
    return {
        "explained_distance": _distance(run.w, explained.w),
        "largest_start": float(relative.max()),
        "typical_start": float(np.exp(np.mean(np.log(relative)))),
    }


def _sharpness(net: DiagonalNet, X: FloatArray, parameters: Parameters) -> float:
    """Largest eigenvalue of X diag(metric) X^T: that of the loss's Hessian where X w = y."""
    return float(np.linalg.norm((X * net.metric(parameters)) @ X.T, 2))


def _distance(w: FloatArray, target: FloatArray) -> float:
    return float(np.linalg.norm(w - target) / np.linalg.norm(target))
