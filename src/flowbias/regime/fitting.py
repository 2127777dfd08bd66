"""Training to the end, whatever the scale of the start: for sweeps and the command line.

Full-batch descent whose step follows the largest eigenvalue of the tangent kernel: a large start
would diverge with the step of a small one, and a small one would never leave its plateau with that
of a large one. Along the way the kernel grows, and the step with it shrinks.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.flows.integrate import flow
from flowbias.kernels.closed_form import declared_by
from flowbias.kernels.compare import kernel_matrix
from flowbias.kernels.network import Network, copied
from flowbias.kernels.tangent import tangent_kernel
from flowbias.matrix_problems._base import MatrixProblem
from flowbias.nets.train import train
from flowbias.nets.training import TrainingStatus
from flowbias.potentials import Provides
from flowbias.problem import InputError

# Of the stable step 2 / (c lambda): far enough below it to stay near the flow.
SHARE = 0.3
# Epochs between two looks at the kernel.
STRETCH = 50
# Times in a row that a stretch may be taken anew with half the step, after the loss rose on it.
HALVINGS = 30


@dataclass(frozen=True)
class Fit:
    """Where training ended: what `diagnose` takes as `after`, and whether the data were fitted."""

    after: Any
    fitted: bool
    #: the loss at the end as a share of that at the start
    left: float
    epochs: int


def fit(model: Any, x: Any, y: Any, *, loss_left: float = 1e-4, max_epochs: int = 20_000) -> Fit:
    """Train a copy of a module, or follow the flow of a model of the library, until it fits.

    `loss_left` is the share of the loss at the start to reach.

    >>> fb.regime.fit(fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0]).fitted
    True
    """
    if not 0.0 < loss_left < 1.0:
        raise InputError(
            f"loss_left: must be between 0 and 1, got {loss_left!r}. It is the share of the loss "
            "at the start at which training ends."
        )
    if declared_by(model):
        return _followed(model, x, y, loss_left)
    Network.read(model).read_inputs("x", x)
    return _trained(copied(model), x, y, loss_left, max_epochs)


def _followed(model: Any, x: Any, y: Any, loss_left: float) -> Fit:
    # Losses are squares of residuals.
    arguments = (x,) if isinstance(x, MatrixProblem) else (x, y)
    found: Any = flow(model, *arguments, residual=min(1e-2, loss_left**0.5), throw=False)
    if Provides.GRAM in declared_by(model):
        after: Any = found.factors(-1)
    else:
        after = found.parameters(float(found.t[-1]))
    left = float(found.loss[-1] / found.loss[0]) if found.loss[0] > 0.0 else 0.0
    return Fit(after, bool(found.status.ok), left, 0)


def _trained(module: Any, x: Any, y: Any, loss_left: float, max_epochs: int) -> Fit:
    first: float | None = None
    now, epochs, share = float("inf"), 0, SHARE
    halvings = 0
    while epochs < max_epochs:
        kernel = tangent_kernel(module, x, reduce=None)
        top = float(np.linalg.eigvalsh(kernel_matrix(kernel).astype(np.float64))[-1])
        if not top > 0.0:
            break  # a saddle: no gradient anywhere
        kept = copy.deepcopy(module.state_dict())
        run = train(
            module,
            x,
            y,
            loss="half",
            step_size=share * 2.0 / top,
            max_epochs=min(STRETCH, max_epochs - epochs),
            stop_at_loss=None if first is None else max(loss_left * first, 1e-300),
            progress=False,
        )
        first = float(run.losses[0]) if first is None else first
        # The flow never climbs; a step that does may have killed units for good.
        climbed = bool((np.diff(run.losses) > 0.0).any())
        if run.status is TrainingStatus.DIVERGED or climbed:
            module.load_state_dict(kept)
            share, halvings = share / 2.0, halvings + 1
            if halvings > HALVINGS:
                break
            continue
        share, now, epochs = min(SHARE, 1.5 * share), run.loss, epochs + run.epochs
        halvings = 0
        if now <= loss_left * first:
            break
    left = now / first if first else 0.0
    return Fit(module, left <= loss_left, left, epochs)
