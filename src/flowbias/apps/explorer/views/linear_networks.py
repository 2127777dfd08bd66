"""Linear networks: the imbalance that the flow conserves, and what it guarantees.

Y ~ X U V^T under the loss ||Y - X U V^T||^2/2, X with singular values 1: what is left to decide the
rate is how unevenly the layers share their product.  [min2021, Figures 2 and 3]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, Mark, level, line, points
from flowbias.apps.explorer.view import Settings, Slider, View, chosen, scale_slider
from flowbias.apps.explorer.views.matrices import width_of
from flowbias.apps.explorer.views.planted_data import SEED
from flowbias.experiments.min.loss_and_bounds import RESOLVED, DescentProblem, measured_flow
from flowbias.flows.integrate import flow
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray
from flowbias.models.imbalance import Imbalance
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixRegression

# How the flow is followed: to a relative residual, whose square is the share of the loss left, and
# with a local error beyond the digits that are shown of its end.
FOLLOWED: dict[str, Any] = {"residual": 1e-5, "rtol": 1e-6}


@dataclass(frozen=True)
class LinearSetup:
    """Which data are drawn, and from where the flow starts."""

    n: int
    d: int
    outputs: int
    log_width: float
    log_scale: float
    # Size of U's entries over those of V's.
    log_ratio: float
    seed: int

    def draw(self) -> tuple[FloatArray, FloatArray, LinearNet]:
        """X, Y and the network; the code to copy draws the same."""
        rng = np.random.default_rng(self.seed)
        left, _, right = np.linalg.svd(rng.standard_normal((self.n, self.d)), full_matrices=False)
        X = left @ right
        planted = rng.standard_normal((self.d, self.outputs)) / np.sqrt(self.d)
        Y = X @ planted + 0.01 * rng.standard_normal((self.n, self.outputs))
        scale, root = 10.0**self.log_scale, np.sqrt(10.0**self.log_ratio)
        net = LinearNet.gaussian(
            *(self.d, self.outputs),
            width=width_of(self.log_width),
            scale_u=scale * root,
            scale_v=scale / root,
            rng=rng,
        )
        return X, Y, net


@dataclass(frozen=True)
class LinearNetworksScene:
    """The conserved imbalance, and curves over time: the loss is relative to the first."""

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
    """A network as wide as its inputs and outputs together at most, with the same flow."""
    d = net.shape[0]
    return LinearNet(net.root[:d], net.root[d:])


def _curves(name: str, bound: str) -> tuple[Mark, ...]:
    return line(name, Hue.FLOW, name, 3), line(f"{name} bound", Hue.FLOW, bound, 2, "dashed")


class LinearNetworksView(View[LinearNetworksScene]):
    """How fast a linear network learns, and what is known of that beforehand."""

    name = "linear-networks"
    title = "Linear networks"
    question = (
        "How fast does a linear network learn? What its layers do not share, the imbalance, never "
        "changes while it trains, and bounds its rate from below."
    )
    controls = (
        Slider("log_width", "Width", 1.0, 4.0, 0.5, 2.5, lambda x: f"{width_of(x)}"),
        scale_slider(-2.0, 0.0, 0.1, -1.0, label="Scale α of the weights", plays=True),
        scale_slider(-1.0, 1.0, 0.1, 0.0, name="log_ratio", label="U's entries over V's"),
        Slider("d", "Features d", 50, 200, 10, 100),
        Slider("n", "Samples n", 5, 50, 5, 20),
        Slider("outputs", "Outputs m", 1, 5, 1, 2),
        SEED,
    )

    charts = (
        Chart(
            "Spectrum of the imbalance",
            "Eigenvalues of U₁ᵀU₁ − VᵀV, from the largest: upward triangles for positive ones, "
            "downward triangles for negative ones.",
            "i (eigenvalue, from the largest)",
            "λᵢ of the imbalance D",
            (
                level(0.0),
                points("plus", "triangle", Hue.RICH, 9, "positive: U is larger", 1.0, line_width=1),
                points(
                    *("minus", "inverted_triangle", Hue.KERNEL, 9, "negative: V is larger", 1.0),
                    line_width=1,
                ),
            ),
        ),
        Chart(
            "The loss and its guarantee",
            "The loss over time as a solid line; the dashed line above it is what the start "
            "guarantees.",
            "t (time)",
            "L(t) / L(0) (loss)",
            _curves("loss", "Min et al., Theorem 3: never above this"),
            options={"y_axis_type": "log"},
        ),
        Chart(
            "The rate and its bound",
            "The rate at which the loss falls as a solid line over logarithmic time; the "
            "dashed line below it is what the imbalance guarantees at each time.",
            "t (time)",
            "−L′/L (rate)",
            _curves("rate", "Min et al., Proposition 1: never below this"),
            options={"x_axis_type": "log", "y_axis_type": "log"},
        ),
    )

    def scene(self, settings: Settings) -> LinearNetworksScene:
        """The flow until the residual is small; FlowError where it cannot be followed so far."""
        X, Y, net = chosen(LinearSetup, settings).draw()
        with one_thread():
            narrow = narrowed(net)
            # To know where it ends, or is too small to draw; the curves are followed more closely.
            whole = flow(narrow, X, Y, **FOLLOWED)
            end = float(whole.t[whole.loss >= RESOLVED * whole.loss[0]][-1])
            times = np.concatenate([[0.0], np.geomspace(1e-3 * end, end, 60)])
            columns = measured_flow(narrow, DescentProblem(X, Y, 1.0, step=0.0), times)
        names = ("t", "loss", "loss_bound", "rate", "rate_bound")
        curves = {name: np.asarray(columns[name], dtype=np.float64) for name in names}
        first = curves["loss"][0]
        curves |= {name: curves[name] / first for name in ("loss", "loss_bound")}
        theta = MatrixRegression(X, Y).min_norm
        return LinearNetworksScene(
            imbalance=net.imbalance(X),
            drift=float(np.asarray(columns["drift"])),
            from_min_norm=float(np.linalg.norm(whole.M[-1] - theta) / np.linalg.norm(theta)),
            **curves,
        )

    def data(self, scene: LinearNetworksScene) -> Data:
        values = scene.imbalance.eigenvalues
        index = np.arange(1, len(values) + 1)
        # Time 0 has no place on a logarithmic axis, nor has a bound of zero.
        bound = np.where(scene.rate_bound > 0.0, scene.rate_bound, np.nan)
        return {
            "plus": (index[values > 0.0], values[values > 0.0]),
            "minus": (index[values < 0.0], values[values < 0.0]),
            "loss": (scene.t, scene.loss),
            "loss bound": (scene.t, scene.loss_bound),
            "rate": (scene.t[1:], scene.rate[1:]),
            "rate bound": (scene.t[1:], bound[1:]),
        }

    def text(self, scene: LinearNetworksScene) -> str:
        imbalance = scene.imbalance
        spreads = f"{imbalance.spread_plus:.2g} and {imbalance.spread_minus:.2g}"
        return " ".join(
            [
                f"The imbalance has a **level of {imbalance.level:.2g}** and spreads of {spreads}; "
                f"the flow changed it by {scene.drift:.0e} of the weights' size, which is "
                "integration.",
                _guarantee(scene),
                "The end differs from the fit of least norm by "
                f"{scene.from_min_norm:.2g} times that fit's own norm.",
            ]
        )

    def code(self, settings: Settings) -> str:
        width = width_of(settings["log_width"])
        return self.script(CODE.format(width=width, **FOLLOWED, **settings))


def _guarantee(scene: LinearNetworksScene, good: float = 0.5) -> str:
    # A bound is good where it accounts for half of what it bounds, as in the reproduced figures.
    share = scene.accounted
    least = float(np.min(scene.rate_bound / scene.rate))
    rate = (
        f"Proposition 1 of Min et al. accounts for at least {least:.0%} of the rate at every time."
    )
    if not scene.loss_bound[-1] < 1.0:
        return (
            "There is no level and no margin to rest on, so Theorem 3 of Min et al. guarantees "
            f"nothing: the dashed line of the loss stays where it starts. {rate}"
        )
    quality = "a good guarantee" if share >= good else "most of the speed is not foreseen"
    return (
        f"Theorem 3 of Min et al. accounts for {share:.0%} of the fall of log L: {quality}. {rate}"
    )


CODE = """\
rng = np.random.default_rng({seed})
left, _, right = np.linalg.svd(rng.standard_normal(({n}, {d})), full_matrices=False)
X = left @ right  # all singular values are 1
planted = rng.standard_normal(({d}, {outputs})) / np.sqrt({d})
Y = X @ planted + 0.01 * rng.standard_normal(({n}, {outputs}))
scale, root = 10**{log_scale!r}, np.sqrt(10**{log_ratio!r})
net = fb.LinearNet.gaussian(
    {d}, {outputs}, width={width}, scale_u=scale * root, scale_v=scale / root, rng=rng
)
imbalance = net.imbalance(X)
print("level", imbalance.level, "spreads", imbalance.spread_plus, imbalance.spread_minus)

trajectory = fb.flow(net, X, Y, residual={residual!r}, rtol={rtol!r})
# Min et al. 2021, Theorem 3
claim = fb.theory.exponential_guarantee(net, X, Y, trajectory=trajectory)
print(claim)

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].plot(imbalance.eigenvalues, "o")
axes[0].set(xlabel="eigenvalue, from the largest", ylabel="imbalance D")
loss = trajectory.loss / trajectory.loss[0]
axes[1].semilogy(trajectory.t, loss, label="loss")
axes[1].semilogy(trajectory.t, np.exp(-claim.predicted * trajectory.t), "--", label="guaranteed")
axes[1].set(xlabel="time", ylabel="L / L(0)")
axes[1].legend()
"""
