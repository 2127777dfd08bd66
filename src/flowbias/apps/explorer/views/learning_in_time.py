"""Time: small starts learn one coefficient after the other, large ones all at once.

Starting from a scale alpha, a coefficient stays near zero for a time of about log(1 / alpha) at
depth 2, alpha^(2 - D) beyond, and then rises quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.apps.explorer.drawing import Chart, Data, Hue, cursor, line, points
from flowbias.apps.explorer.view import (
    MOMENTS,
    Settings,
    Slider,
    View,
    chosen,
    moment_slider,
    scale_slider,
)
from flowbias.apps.explorer.views.planted_data import (
    AGAINST_TRUTH,
    CURVES,
    NOISE,
    SEED,
    SPARSITY,
    PlantedData,
    against_truth,
    curves,
    population_error,
)
from flowbias.apps.explorer.views.proof_words import proof_of
from flowbias.flows.integrate import flow
from flowbias.ground.arguments import InputError
from flowbias.ground.html import power_of_ten
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

# Sampled times between two places of the cursor.
FINER = 2
# How the flow is followed: to a residual and with a local error that no picture shows.
FOLLOWED: dict[str, Any] = {"residual": 1e-4, "rtol": 1e-5}


@dataclass(frozen=True)
class Passage:
    """The flow at times t, evenly spaced in log t; w has one row per time."""

    t: FloatArray
    w: FloatArray
    loss: FloatArray
    w_true: FloatArray
    limit: Solution
    message: str

    @cached_property
    def error(self) -> FloatArray:
        return population_error(self.w, self.w_true)

    @property
    def distance_to_limit(self) -> float:
        """At the last time, relative to the limit."""
        away = np.linalg.norm(self.w[-1] - self.limit.w)
        return float(away / np.linalg.norm(self.limit.w))

    @cached_property
    def large(self) -> NDArray[np.intp]:
        """The coefficients whose limit is at least a tenth of the largest."""
        size = np.abs(self.limit.w)
        return np.flatnonzero(size >= 0.1 * size.max())

    def share(self) -> FloatArray:
        """The large coefficients in units of their limits, one row per time."""
        return np.asarray(self.w[:, self.large] / self.limit.w[self.large])

    @cached_property
    def half_way(self) -> NDArray[np.intp]:
        """Position in t at which each large coefficient first has half of its limit."""
        reached = self.share() >= 0.5
        return np.where(reached.any(axis=0), reached.argmax(axis=0), len(self.t))

    def follow_separately(self) -> Mask:
        """Of each large coefficient that rises, but the first: whether it follows the one before.

        It is below a tenth of its limit, that is, when the one before is at half.
        """
        order = np.argsort(self.half_way, kind="stable")
        # One that never rises follows nobody.
        order = order[self.half_way[order] < len(self.t)]
        before, after = order[:-1], order[1:]
        return np.asarray(self.share()[self.half_way[before], after] < 0.1)

    @cached_property
    def data(self) -> Data:
        """What is drawn of it, wherever the cursor stands."""
        end = self.limit.w
        return {
            **curves(self.t, self.w, self.w_true),
            "loss": (self.t, self.loss),
            "error": (self.t, self.error),
            # Just beyond the last time, so that they cover no curve.
            "limit": (np.full(len(end), 1.2 * self.t[-1]), end),
        }


@dataclass(frozen=True)
class TimeScene:
    """A passage and the position in it at which the cursor stands."""

    passage: Passage
    at: int


# Up to 200 kilobytes each: as many as ten readers look at.
@lru_cache(maxsize=32)
def _passage(planted: PlantedData, depth: int, exponent: float) -> Passage:
    # Times alpha^(2 - D) beyond this many decades leave the last digits of the dual too few.
    most_decades = 4.0
    if (depth - 2) * -exponent > most_decades:
        raise InputError(
            f"scale: must be >= {power_of_ten(-most_decades / (depth - 2))} at depth {depth}, got "
            f"{power_of_ten(exponent)}. Times grow as the power {2 - depth} of the scale, beyond "
            "what doubles resolve. Take a larger scale or a smaller depth."
        )
    data = planted.draw()
    problem = Regression(data.X, data.y)
    model = DiagonalNet(depth, log_scale=exponent * math.log(10.0))
    followed = flow(model, problem, loss="half_mean", **FOLLOWED)
    falls = followed.loss < 0.99 * followed.loss[0]
    # A little before anything happens.
    first = followed.t[np.argmax(falls)] / 3.0
    t = np.geomspace(first, followed.t[-1], FINER * MOMENTS + 1)
    w = followed.at(t)
    misfit = np.square(w @ data.X.T - data.y)
    return Passage(
        t=t,
        w=w,
        loss=0.5 * misfit.mean(axis=1),
        w_true=data.w_true,
        limit=limit(model, problem, throw=False),
        message=followed.message,
    )


class LearningInTimeView(View[TimeScene]):
    """Loss and coefficients along the flow."""

    name = "time"
    title = "Time"
    question = "In which order does the flow learn, and when?"
    controls = (
        moment_slider("Time cursor, along the axis"),
        scale_slider(-10.0, 1.0, 0.5, -4.0),
        Slider("depth", "Depth D", 2, 4, 1, 2),
        Slider("n", "Samples n", 10, 60, 2, 30),
        Slider("d", "Features d", 20, 60, 2, 40),
        SPARSITY,
        NOISE,
        SEED,
    )

    charts = (
        Chart(
            "Coefficients over time",
            "Each curve is one coefficient along the flow, those of the truth thick; diamonds "
            "at the right mark the limit.",
            "time t",
            "coefficient wᵢ",
            (
                *CURVES,
                points("limit", "diamond", Hue.FLOW, 9, "limit", 1.0, line_width=1),
                cursor(),
            ),
            options={"x_axis_type": "log"},
        ),
        Chart(
            "Loss and population error over time",
            "Training loss and population error along the flow; from small scales the loss falls "
            "in steps.",
            "time t",
            "loss, population error",
            (
                line("loss", Hue.FLOW, "loss (half the mean square)"),
                line("error", Hue.TRUTH, "population error ‖w − w*‖²", dash="dashed"),
                cursor(),
            ),
            options={"x_axis_type": "log", "y_axis_type": "log"},
        ),
        AGAINST_TRUTH,
    )

    def scene(self, settings: Settings) -> TimeScene:
        planted = chosen(PlantedData, settings)
        passage = _passage(planted, settings["depth"], settings["log_scale"])
        return TimeScene(passage, FINER * settings["moment"])

    def data(self, scene: TimeScene) -> Data:
        passage, at = scene.passage, scene.at
        now = {"cursor": ([float(passage.t[at])],)}
        return {**passage.data, **now, **against_truth(passage.w[at], passage.w_true)}

    def text(self, scene: TimeScene) -> str:
        passage = scene.passage
        return "\n\n".join((_moment(passage, scene.at), _stages(passage, scene.at), _end(passage)))

    def code(self, settings: Settings) -> str:
        body = _SCRIPT.format(
            data=chosen(PlantedData, settings).code(),
            times=FINER * MOMENTS + 1,
            cursor=FINER * settings["moment"],
            **settings,
            **FOLLOWED,
        )
        return self.script(body)


def _moment(passage: Passage, at: int) -> str:
    loss, error = passage.loss[at], passage.error[at]
    best = int(np.argmin(passage.error))
    words = (
        f"At time **{passage.t[at]:.3g}** the loss is {loss:.2g} and the population error "
        f"**{error:.2g}**."
    )
    if passage.error[best] < 0.9 * passage.error[-1]:
        words += (
            f" The error is least, {passage.error[best]:.2g}, at time {passage.t[best]:.3g}, "
            f"before the data are fitted, and ends at {passage.error[-1]:.2g}."
        )
    return words


def _stages(passage: Passage, at: int) -> str:
    count, risen = len(passage.large), int(np.count_nonzero(passage.half_way <= at))
    words = (
        f"**{risen} of {count}** coefficients that end above a tenth of the largest have reached "
        "half of their limit."
    )
    if np.count_nonzero(passage.half_way < len(passage.t)) < 2:
        return words
    separate = passage.follow_separately()
    if not separate.any():
        return (
            f"{words} They rise together: none is still below a tenth of its limit when the one "
            "before is at half."
        )
    return (
        f"{words} They come in stages: {np.count_nonzero(separate)} times along the way the next "
        "one is still below a tenth of its limit when the one before is at half."
    )


def _end(passage: Passage) -> str:
    return (
        f"The flow {passage.message}, {passage.distance_to_limit:.1e} (relatively) from its limit, "
        f"the diamonds. Limit: {proof_of(passage.limit)}."
    )


_SCRIPT = """\
{data}
model = fb.DiagonalNet(depth={depth}, log_scale={log_scale:g} * np.log(10))
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
"""
