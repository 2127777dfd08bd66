"""Gradient flow of a two-layer linear network with its bounds.  [min2021, Figures 2 and 3]

Y ~ X U V^T under the loss ||Y - X U V^T||^2/2, X with singular values 1: what is left to decide the
rate is how unevenly the layers share their product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias._threads import one_thread
from flowbias._typing import FloatArray
from flowbias.experiments.min.loss_and_bounds import RESOLVED, Regression, measured_flow
from flowbias.flows.integrate import flow
from flowbias.matrix_problems.regression import MatrixRegression
from flowbias.models.imbalance import Imbalance
from flowbias.models.linear_net import LinearNet

# Relative residual to which the flow is shown: its square is the share of the loss that is left.
RESIDUAL = 1e-5
# Local error of the flow that finds the end, beyond the digits that are shown of it.
RTOL = 1e-6
# Times along the curves, after time 0.
POINTS = 60


@dataclass(frozen=True)
class Setup:
    """Which data are drawn, and from where the flow starts."""

    n: int
    d: int
    outputs: int
    width: int
    scale: float
    # Size of U's entries over those of V's.
    ratio: float
    seed: int

    def draw(self) -> tuple[FloatArray, FloatArray, LinearNet]:
        """X, Y and the network; the code to copy draws the same."""
        rng = np.random.default_rng(self.seed)
        left, _, right = np.linalg.svd(rng.standard_normal((self.n, self.d)), full_matrices=False)
        X = left @ right
        planted = rng.standard_normal((self.d, self.outputs)) / np.sqrt(self.d)
        Y = X @ planted + 0.01 * rng.standard_normal((self.n, self.outputs))
        root = np.sqrt(self.ratio)
        net = LinearNet.gaussian(
            *(self.d, self.outputs),
            width=self.width,
            scale_u=self.scale * root,
            scale_v=self.scale / root,
            rng=rng,
        )
        return X, Y, net


@dataclass(frozen=True)
class LinearNetworksScene:
    """The conserved imbalance, and curves over time: the loss is relative to the first."""

    setup: Setup
    imbalance: Imbalance
    t: FloatArray
    loss: FloatArray
    loss_bound: FloatArray
    rate: FloatArray
    rate_bound: FloatArray
    # What integration lost of what the flow conserves.
    drift: float
    # ||U V^T - Theta||_F / ||Theta||_F at the end, Theta the fit of least norm.
    from_min_norm: float

    @property
    def accounted(self) -> float:
        """Share of the fall of log L that the guarantee accounts for."""
        return float(np.log(self.loss_bound[-1]) / np.log(self.loss[-1]))


def narrowed(net: LinearNet) -> LinearNet:
    """A network as wide as its inputs and outputs together, with the same flow.

    By W = (U; V) alone through W W^T: with W^T = Q R, R^T is another W of the same product.
    """
    # Very wide ones are kept as W W^T from the start.
    if net.factors is None or net.width <= sum(net.shape):
        return net
    U, V = net.factors
    W = np.vstack([U, V])
    root = scipy.linalg.qr(W.T, mode="r")[0][: len(W)].T
    return LinearNet(root[: len(U)], root[len(U) :])


def linear_networks_scene(setup: Setup) -> LinearNetworksScene:
    """The flow until the residual is small; FlowError where it cannot be followed so far."""
    X, Y, net = setup.draw()
    with one_thread():
        narrow = narrowed(net)
        # Only to know where it ends, or is too small to draw; the curves are followed more closely.
        whole = flow(narrow, X, Y, residual=RESIDUAL, rtol=RTOL)
        end = float(whole.t[whole.loss >= RESOLVED * whole.loss[0]][-1])
        times = np.concatenate([[0.0], np.geomspace(1e-3 * end, end, POINTS)])
        columns = measured_flow(narrow, Regression(X, Y, 1.0, step=0.0), times)
    measured = {name: np.asarray(columns[name], dtype=np.float64) for name in columns}
    first = measured["loss"][0]
    theta = MatrixRegression(X, Y).min_norm
    return LinearNetworksScene(
        setup=setup,
        imbalance=net.imbalance(X),
        t=measured["t"],
        loss=measured["loss"] / first,
        loss_bound=measured["loss_bound"] / first,
        rate=measured["rate"],
        rate_bound=measured["rate_bound"],
        drift=float(measured["drift"]),
        from_min_norm=float(np.linalg.norm(whole.M[-1] - theta) / np.linalg.norm(theta)),
    )
