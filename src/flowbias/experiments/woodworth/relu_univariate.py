"""Wide ReLU networks of one variable, trained on a few points.  [woodworth2020, B.1]

The values go up and down in turn. Then the linear spline is the only interpolant of least total
change of slope, which is what the parameter norm costs [Savarese et al. 2019]: where two
neighbouring kinks bend the same way, curves that share the bend between them cost no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flowbias.experiments.table import Columns, Table
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.nets import (
    flow_copies,
    linear_spline,
    natural_cubic_spline,
    stable_step_size,
    tangent_kernel_interpolant,
    train_copies,
    unbiased,
    univariate,
)
from flowbias.nets.splines import Curve

POINTS = np.array([-1.0, -0.6, -0.1, 0.35, 0.8])
VALUES = np.array([0.3, -0.4, 0.5, -0.2, 0.4])
RANGE = float(np.ptp(VALUES))
# Between the points: outside them the splines are a convention.
GRID = np.linspace(POINTS[0], POINTS[-1], 181)
# Largest step of descent, stable at the kernel of networks that have learned these points from
# small starts; large starts take a quarter of what their own kernel allows.
LARGEST_STEP, STABLE = 0.06, 0.25
FLOW_STEPS, FLOW_TOL = 200, 0.1


class Learned(NamedTuple):
    """Curves on GRID, one row per network, and half the sum of squares that is left."""

    curves: FloatArray
    losses: FloatArray
    steps: FloatArray


def doubled(
    width: int, scale: float, relative_scale: float, rng: np.random.Generator, device: Any
) -> Any:
    """A network that is zero at the start; for equal `rng` the same one at all scales."""
    double = require_torch().float64
    net = univariate(width, scale=scale, relative_scale=relative_scale, rng=rng, dtype=double)
    return unbiased(net.to(device))


def learn(starts: Sequence[Any], descent_steps: int) -> Learned:
    """Descent, then gradient flow for what is left.

    Descent copes with units that slide along the points, which small starts end with; the flow with
    the slow directions of large starts, whose steps must be short.
    """
    # Of half the sum of squares: residuals of a thousandth.
    target = 1e-6
    x = POINTS[:, None]
    steps = [min(LARGEST_STEP, stable_step_size(net, x, fraction=STABLE)) for net in starts]
    descended = train_copies(
        starts,
        x,
        VALUES,
        step_size=steps,
        stop_at_loss=target,
        max_epochs=descent_steps,
        progress=False,
    )
    done = flow_copies(
        descended.modules,
        x,
        VALUES,
        stop_at_loss=target,
        tol=FLOW_TOL,
        max_steps=FLOW_STEPS,
        x_test=GRID[:, None],
        progress=False,
    )
    curves = np.asarray(done.predictions)[:, :, 0]
    return Learned(curves, done.losses, (descended.epochs + done.epochs).astype(float))


def curve_columns(start: Any, wide: Curve, scale: float, learned: Learned, place: int) -> Table:
    """One network's curve beside what it is compared with."""
    columns: Columns = {
        "scale": scale,
        "x": GRID,
        "learned": learned.curves[place],
        "linear": linear_spline(POINTS, VALUES)(GRID),
        "cubic": natural_cubic_spline(POINTS, VALUES)(GRID),
        "kernel": tangent_kernel_interpolant(start, POINTS, VALUES)(GRID),
        "wide": wide(GRID),
        "train_rmse": float(np.sqrt(2.0 * learned.losses[place] / len(POINTS))),
        "steps": learned.steps[place],
    }
    return Table.of(columns)
