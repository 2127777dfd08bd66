"""Time: small starts learn one coefficient after the other, large ones all at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowbias.explorer.controls import Control, Slider, power_of_ten
from flowbias.explorer.drawing import FLOW, TRUTH, legend_above, new_figure
from flowbias.explorer.view import Drawn, Pictures, Settings, View
from flowbias.explorer.views.learning_in_time_scene import (
    CURSOR_STEPS,
    FINER,
    RESIDUAL,
    RTOL,
    Passage,
    TimeScene,
    scene_of,
)
from flowbias.explorer.views.planted_data import (
    NOISE,
    SEED,
    SPARSITY,
    AgainstTruth,
    Coefficients,
    Planted,
    empty_source,
    proof_of,
)


class LearningInTimeView(View[TimeScene]):
    """Loss and coefficients along the flow."""

    name = "time"
    title = "Time"
    question = "In which order does the flow learn, and when?"
    controls: ClassVar[tuple[Control, ...]] = (
        Slider(
            "moment",
            "Time cursor, along the axis",
            0,
            CURSOR_STEPS,
            1,
            50,
            shown="{:g}%".format,
            plays=True,
        ),
        Slider("log_scale", "Scale α of the start", -10.0, 1.0, 0.5, -4.0, shown=power_of_ten),
        Slider("depth", "Depth D", 2, 4, 1, 2),
        Slider("n", "Samples n", 10, 60, 2, 30),
        Slider("d", "Features d", 20, 60, 2, 40),
        SPARSITY,
        NOISE,
        SEED,
    )

    def scene(self, settings: Settings) -> TimeScene:
        return scene_of(settings)

    def pictures(self) -> TimePictures:
        return TimePictures()

    def text(self, scene: TimeScene) -> str:
        passage = scene.passage
        return "\n\n".join((_moment(passage, scene.at), _stages(passage, scene.at), _end(passage)))

    def code(self, settings: Settings) -> str:
        return _SCRIPT.format(
            data=Planted.of(settings).code(),
            depth=int(settings["depth"]),
            exponent=f"{settings['log_scale']:g}",
            residual=RESIDUAL,
            rtol=RTOL,
            times=FINER * CURSOR_STEPS + 1,
            cursor=FINER * int(settings["moment"]),
        )


def _moment(passage: Passage, at: int) -> str:
    loss, error = passage.loss[at], passage.error[at]
    best = int(np.argmin(passage.error))
    words = (
        f"At time **{passage.t[at]:.3g}** the loss is {loss:.2g} and the population error "
        f"**{error:.2g}**."
    )
    if passage.error[best] < 0.9 * passage.error[-1]:
        words += (
            f" The error is least, {passage.error[best]:.2g}, at time {passage.t[best]:.3g}; "
            f"afterwards the flow fits noise and ends at {passage.error[-1]:.2g}."
        )
    return words


def _stages(passage: Passage, at: int) -> str:
    count, risen = len(passage.large), int(np.count_nonzero(passage.half_way <= at))
    words = (
        f"**{risen} of {count}** coefficients that end above a tenth of the largest have reached "
        "half of their limit."
    )
    separate = passage.follow_separately()
    if not separate.any():
        return f"{words} They rise together: none waits for another."
    return (
        f"{words} They come in stages: {np.count_nonzero(separate)} times along the way the next "
        "one is still below a tenth of its limit when the one before is at half."
    )


def _end(passage: Passage) -> str:
    return (
        f"The flow {passage.message}, {passage.distance_to_limit:.1e} (relatively) from its limit, "
        f"the diamonds. Limit: {proof_of(passage.limit)}."
    )


class TimePictures(Pictures[TimeScene]):
    """Coefficients, loss and error over time, and w at the cursor."""

    def __init__(self) -> None:
        self._along = empty_source("t", "loss", "error")
        self._limit = empty_source("t", "w")
        self._cursors = [empty_source("t"), empty_source("t")]
        self._stems = AgainstTruth("The predictor at the cursor")
        options = {"x_axis_type": "log", "height": 300}
        coefficients = new_figure("time t", "coefficient wᵢ", **options)
        self._curves = Coefficients(coefficients)
        coefficients.scatter(
            "t",
            "w",
            source=self._limit,
            marker="diamond",
            color=FLOW,
            size=9,
            legend_label="limit",
        )
        losses = new_figure("time t", "loss, population error", y_axis_type="log", **options)
        for name, colour, dash, label in (
            ("loss", FLOW, "solid", "loss (half the mean square)"),
            ("error", TRUTH, "dashed", "population error ‖w − w*‖²"),
        ):
            losses.line(
                "t",
                name,
                source=self._along,
                color=colour,
                line_dash=dash,
                line_width=2.5,
                legend_label=label,
            )
        for plot, cursor in zip((coefficients, losses), self._cursors, strict=True):
            plot.vspan("t", source=cursor, line_color=FLOW, line_width=1.5)
            legend_above(plot)
        self._shown: Passage | None = None
        self.figures = (
            Drawn(
                "Coefficients over time",
                "Each curve is one coefficient along the flow, those of the truth thick; diamonds "
                "at the right mark the limit.",
                coefficients,
            ),
            Drawn(
                "Loss and population error over time",
                "Training loss and population error along the flow; from small scales they fall "
                "in steps.",
                losses,
            ),
            self._stems.drawn,
        )

    def show(self, scene: TimeScene) -> None:
        passage = scene.passage
        # A cursor that moves leaves the curves as they are, and nothing to send.
        if passage is not self._shown:
            self._show_passage(passage)
            self._shown = passage
        for cursor in self._cursors:
            cursor.data = {"t": [float(passage.t[scene.at])]}
        self._stems.show(passage.w[scene.at], passage.w_true)

    def _show_passage(self, passage: Passage) -> None:
        t, end = passage.t, passage.limit.w
        self._curves.show(t, passage.w, passage.w_true)
        self._along.data = {"t": t, "loss": passage.loss, "error": passage.error}
        # Just beyond the last time, so that they cover no curve.
        self._limit.data = {"t": np.full(len(end), 1.2 * t[-1]), "w": end}


_SCRIPT = '''\
"""Coefficients and loss along gradient flow, on planted sparse data."""
import matplotlib.pyplot as plt
import numpy as np

import flowbias as fb

{data}
model = fb.DiagonalNet(depth={depth}, log_scale={exponent} * np.log(10))
traj = fb.flow(model, X, y, loss="half_mean", residual={residual!r}, rtol={rtol!r})
limit = fb.limit(model, X, y, throw=False)
print(traj, limit, sep="\\n")

start = traj.t[np.argmax(traj.loss < 0.99 * traj.loss[0])] / 3
t = np.geomspace(start, traj.t[-1], {times})
w = traj.at(t)
loss = 0.5 * np.mean((w @ X.T - y) ** 2, axis=1)
error = np.sum((w - w_true) ** 2, axis=1)
cursor = {cursor}

fig, axes = plt.subplots(3, 1, figsize=(8, 10), layout="constrained")
for axis in axes[:2]:
    axis.set(xscale="log", xlabel="time")
    axis.axvline(t[cursor], color="tab:orange")
axes[0].plot(t, w[:, w_true == 0], color="grey", linewidth=0.7)
axes[0].plot(t, w[:, w_true != 0], color="tab:purple", linewidth=2)
axes[0].plot(np.full(len(w_true), 1.2 * t[-1]), limit.w, "D", color="tab:orange", markersize=4)
axes[0].set_ylabel("coefficients")
axes[1].plot(t, loss, label="loss")
axes[1].plot(t, error, "--", label="population error")
axes[1].set_yscale("log")
axes[1].legend()
axes[2].stem(w[cursor], markerfmt=".", basefmt=" ", label="flow")
axes[2].plot(np.flatnonzero(w_true), w_true[w_true != 0], "s", mfc="none", label="truth")
axes[2].set(xlabel="coordinate", ylabel=f"coefficient at time {{t[cursor]:.3g}}")
axes[2].legend()
plt.show()
'''
