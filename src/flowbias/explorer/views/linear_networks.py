"""Linear networks: the imbalance that the flow conserves, and what it guarantees."""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.explorer.controls import Slider
from flowbias.explorer.drawing import FLOW, FRAME, KERNEL, RICH, legend_above, new_figure
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.linear_networks_scene import (
    RESIDUAL,
    RTOL,
    LinearNetworksScene,
    Setup,
    linear_networks_scene,
)
from flowbias.explorer.views.matrices import width_of
from flowbias.explorer.views.planted_data import SEED

# A bound is good where it accounts for half of what it bounds, as in the reproduced figures.
GOOD = 0.5


class LinearNetworksPictures(Pictures[LinearNetworksScene]):
    """Spectrum, loss and rate."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._sources = {
            name: ColumnDataSource({"x": [], "y": []})
            for name in ("plus", "minus", "loss", "loss_bound", "rate", "rate_bound")
        }
        spectrum = self._spectrum()
        loss = self._curves(
            "loss",
            "L(t) / L(0) (loss)",
            "Theorem 3: never above this",
            {"y_axis_type": "log"},
        )
        rate = self._curves(
            "rate",
            "−L′/L (rate)",
            "Proposition 1: never below this",
            {"x_axis_type": "log", "y_axis_type": "log"},
        )
        self.figures = (
            Drawn(
                "Spectrum of the imbalance",
                "Eigenvalues of U₁ᵀU₁ − VᵀV, from the largest: upward triangles for positive ones, "
                "downward triangles for negative ones.",
                spectrum,
            ),
            Drawn(
                "The loss and its guarantee",
                "The loss over time as a solid line; the dashed line above it is what the start "
                "guarantees.",
                loss,
            ),
            Drawn(
                "The rate and its bound",
                "The rate at which the loss falls as a solid line over logarithmic time; the "
                "dashed line below it is what the imbalance guarantees at each time.",
                rate,
            ),
        )

    def _spectrum(self) -> Any:
        made = new_figure("i (eigenvalue, from the largest)", "λᵢ of the imbalance D", height=300)
        made.hspan(y=0.0, line_color=FRAME, line_dash="dotted")
        for name, marker, colour, word in (
            ("plus", "triangle", RICH, "positive: U is larger"),
            ("minus", "inverted_triangle", KERNEL, "negative: V is larger"),
        ):
            made.scatter(
                *("x", "y"),
                source=self._sources[name],
                marker=marker,
                size=9,
                color=colour,
                legend_label=word,
            )
        legend_above(made)
        return made

    def _curves(self, name: str, label: str, bound: str, axes: dict[str, str]) -> Any:
        made = new_figure("t (time)", label, height=300, **axes)
        of = self._sources
        made.line("x", "y", source=of[name], color=FLOW, line_width=3, legend_label=name)
        made.line(
            *("x", "y"),
            source=of[f"{name}_bound"],
            color=FLOW,
            line_width=2,
            line_dash="dashed",
            legend_label=bound,
        )
        legend_above(made)
        return made

    def show(self, scene: LinearNetworksScene) -> None:
        values = scene.imbalance.eigenvalues
        index = np.arange(1, len(values) + 1)
        for name, part in (("plus", values > 0.0), ("minus", values < 0.0)):
            self._sources[name].data = {"x": index[part], "y": values[part]}
        # Time 0 has no place on a logarithmic axis, nor has a bound of zero.
        bound = np.where(scene.rate_bound > 0.0, scene.rate_bound, np.nan)
        for name, y, first in (
            ("loss", scene.loss, 0),
            ("loss_bound", scene.loss_bound, 0),
            ("rate", scene.rate, 1),
            ("rate_bound", bound, 1),
        ):
            self._sources[name].data = {"x": scene.t[first:], "y": y[first:]}


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
        Slider("log_scale", "Scale of the weights (log10)", -2.0, 0.0, 0.1, -1.0, plays=True),
        Slider("log_ratio", "U's entries over V's (log10)", -1.0, 1.0, 0.1, 0.0),
        Slider("d", "Features d", 50, 200, 10, 100),
        Slider("n", "Samples n", 5, 50, 5, 20),
        Slider("outputs", "Outputs m", 1, 5, 1, 2),
        SEED,
    )

    def scene(self, settings: Settings) -> LinearNetworksScene:
        return linear_networks_scene(setup_of(settings))

    def pictures(self) -> LinearNetworksPictures:
        return LinearNetworksPictures()

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
        setup = setup_of(settings)
        return CODE.format(
            n=setup.n,
            d=setup.d,
            outputs=setup.outputs,
            width=setup.width,
            log_scale=settings["log_scale"],
            log_ratio=settings["log_ratio"],
            seed=setup.seed,
            residual=RESIDUAL,
            rtol=RTOL,
        )


def setup_of(settings: Settings) -> Setup:
    """What the sliders describe."""
    return Setup(
        n=int(settings["n"]),
        d=int(settings["d"]),
        outputs=int(settings["outputs"]),
        width=width_of(settings["log_width"]),
        scale=10.0 ** settings["log_scale"],
        ratio=10.0 ** settings["log_ratio"],
        seed=int(settings["seed"]),
    )


def _guarantee(scene: LinearNetworksScene) -> str:
    share = scene.accounted
    least = float(np.min(scene.rate_bound / scene.rate))
    rate = f"Proposition 1 accounts for at least {least:.0%} of the rate at every time."
    if not scene.loss_bound[-1] < 1.0:
        return (
            "There is no level and no margin to rest on, so Theorem 3 guarantees nothing: "
            f"the dashed line of the loss stays where it starts. {rate}"
        )
    quality = "a good guarantee" if share >= GOOD else "most of the speed is not foreseen"
    return f"Theorem 3 accounts for {share:.0%} of the fall of log L: {quality}. {rate}"


CODE = """\
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

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
claim = fb.theory.exponential_guarantee(net, X, Y, trajectory=trajectory)
print(claim)

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].plot(imbalance.eigenvalues, "o")
axes[0].set(xlabel="eigenvalue, from the largest", ylabel="imbalance D")
loss = trajectory.loss / trajectory.loss[0]
axes[1].semilogy(trajectory.t, loss, label="loss")
axes[1].semilogy(trajectory.t, np.exp(-claim.predicted * trajectory.t), "--", label="Theorem 3")
axes[1].set(xlabel="time", ylabel="L / L(0)")
axes[1].legend()
plt.show()
"""
