"""Stages: where a vanishing start rests, one point after the other, and the flow from a small one.

Two equations in three unknowns: the example of [Zhao et al. 2026] without the feature that never
wakes there. On the slow clock tau the flow follows the stages the closer the smaller its start is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, cursor, labels, line, points
from flowbias.apps.explorer.view import MOMENTS, Settings, Slider, View, moment_slider, scale_slider
from flowbias.apps.explorer.views import space
from flowbias.apps.explorer.views.planted_data import bundled
from flowbias.flows.integrate import flow
from flowbias.ground.drawing import apart
from flowbias.ground.html import power_of_ten
from flowbias.ground.typing import FloatArray
from flowbias.limits.stage_path import StagePath
from flowbias.limits.stages import stages
from flowbias.models.diagonal import DiagonalNet

X = np.array([[1.0, 0.7, 0.0], [0.5, 0.1, 0.7]])
# Base-10 logarithms of scales, from 1e-1000 to 0.1, ten in each factor of ten.
SCALES = tuple(float(f"{-(10.0 ** (k / 10)):.2g}") for k in range(30, -1, -1))


@dataclass(frozen=True)
class Followed:
    """The stages, and w of the flow from one scale; one row per tau."""

    path: StagePath
    tau: FloatArray
    w: FloatArray
    #: one of tau for every place of the cursor
    cursors: FloatArray

    @property
    def steps(self) -> tuple[FloatArray, FloatArray]:
        """Beginning and end of each stage on the axis, and w there."""
        ends = np.append(self.path.times[1:], self.cursors[-1])
        begins = np.maximum(self.path.times, self.cursors[0])
        return np.stack([begins, ends], axis=1).ravel(), np.repeat(self.path.w, 2, axis=0)

    @property
    def distance(self) -> FloatArray:
        """Between flow and stages, at the places of the cursor."""
        seen = self.w[np.searchsorted(self.tau, self.cursors)]
        return np.asarray(np.linalg.norm(seen - self.path.at(self.cursors), axis=1))

    @cached_property
    def data(self) -> Data:
        """What is drawn over slow time, wherever the cursor stands."""
        (steps, at_steps), rests = self.steps, self.path.w
        heights = apart(rests[-1], 0.1 * float(np.ptp(rests)))
        return {
            "steps": bundled(steps, at_steps),
            "curves": bundled(self.tau, self.w),
            # Beyond the end of the curves.
            "ends": (np.full(3, 1.3 * self.cursors[-1]), heights, space.COEFFICIENTS),
        }


@dataclass(frozen=True)
class StagesScene:
    """Stages and flow, the place of the cursor, and where they are looked at from."""

    followed: Followed
    exponent: float
    at: int
    sight: space.Sight

    @property
    def tau(self) -> float:
        return float(self.followed.cursors[self.at])

    @property
    def flow_now(self) -> FloatArray:
        followed = self.followed
        return np.asarray(followed.w[np.searchsorted(followed.tau, self.tau)])


# Some 50 kilobytes each: as many as ten readers look at.
@lru_cache(maxsize=64)
def _followed(angle: float, exponent: float) -> Followed:
    log_scale, y = exponent * math.log(10.0), space.direction(angle)
    net = DiagonalNet(2, log_scale=log_scale)
    path, followed = stages(net, X, y), flow(net, X, y)
    cursors = np.geomspace(0.5 * path.times[1], 2.0 * path.times[-1], MOMENTS + 1)
    # The flow's own steps as well: they are many where it jumps.
    pace = path.time_at(log_scale, 1.0)
    steps = followed.t / pace
    inside = (steps > cursors[0]) & (steps < cursors[-1])
    tau = np.union1d(cursors, steps[inside])
    # It has converged at its end, and stays there.
    w = followed.at(np.minimum(pace * tau, followed.t[-1]))
    return Followed(path, tau, w, cursors)


class StagesView(View[StagesScene]):
    """From saddle to saddle, in space and over slow time."""

    name = "stages"
    title = "Stages"
    question = (
        "From a vanishing start the flow rests at a point, a feature wakes, and it jumps to the "
        "next point. The smaller the start, the closer the flow follows these stages."
    )
    controls = (
        scale_slider(SCALES[0], SCALES[-1], 1.0, -10.0, SCALES, plays=True),
        moment_slider("Cursor in slow time, along the axis"),
        # Not 90: a row of which nothing is left to fit has no size to be fitted relative to.
        Slider("angle", "Direction of y", 0.0, 356.0, 4.0, 0.0, "{:g}°".format),
        space.AZIMUTH,
    )

    charts = (
        Chart(
            "From saddle to saddle",
            "Diamonds are the points at which a vanishing start rests, joined in their order; a "
            "curve is the flow from the chosen scale, a circle where it is now. A dashed line "
            "holds all w that fit, three lines are the axes of the coefficients.",
            "to the right",
            "upwards",
            (
                line("fits", Hue.TRUTH, "all w that fit", dash="dashed"),
                *space.SPACE_AXES,
                line("jumps", Hue.RICH, width=1.5, dash="dotted"),
                line("path", Hue.FLOW, "flow", 3.5),
                points("saddles", "diamond", Hue.RICH, 20, "stages", 0.35, line_width=2.5),
                points("now", "circle", Hue.FLOW, 12, "flow at the cursor", 1.0, line_width=1),
            ),
            framed=False,
            **space.SQUARE,
        ),
        Chart(
            "Coefficients over slow time",
            "Steps are the stages, each coefficient constant until the next jump; curves are the "
            "flow from the chosen scale on the same clock.",
            "slow time τ",
            "coefficient wᵢ",
            (
                line("steps", Hue.RICH, "stages", 5, alpha=0.5),
                line("curves", Hue.FLOW, "flow"),
                labels("ends", text_align="right", text_baseline="middle"),
                cursor(),
            ),
            # Of an axis of one decade or two Bokeh would name a few places of the upper end.
            ticks={
                t: f"{t:g}"
                for decade in (0.1, 1, 10, 100)
                for t in (decade, 2 * decade, 5 * decade)
            },
            options={"x_axis_type": "log"},
        ),
    )

    def scene(self, settings: Settings) -> StagesScene:
        exponent = settings["log_scale"]
        followed = _followed(settings["angle"], exponent)
        sight = space.Sight(
            space.shown_reach(followed.path.w, followed.w), space.projection(settings["azimuth"])
        )
        return StagesScene(followed, exponent, settings["moment"], sight)

    def data(self, scene: StagesScene) -> Data:
        followed, sight = scene.followed, scene.sight
        rests = followed.path.w
        # Two equations in three unknowns leave one direction open.
        line = rests[-1] + sight.reach * np.array([[-1.0], [1.0]]) @ space.kernel_of(X)
        return {
            **followed.data,
            **sight.frame(),
            "fits": sight.flat(line),
            "jumps": sight.flat(rests),
            "saddles": sight.flat(rests),
            "path": sight.flat(np.vstack([np.zeros(3), followed.w])),
            "now": sight.flat(scene.flow_now),
            "cursor": ([scene.tau],),
        }

    def text(self, scene: StagesScene) -> str:
        followed, path = scene.followed, scene.followed.path
        rest, now = path.at(scene.tau), scene.flow_now
        told = ", ".join(
            f"{event.told_of(space.COEFFICIENTS[event.feature])} at {event.time:.3g}"
            for event in path.events
        )
        return "\n\n".join(
            (
                f"At slow time τ = **{scene.tau:.3g}** a vanishing start rests at **w = "
                f"({_digits(rest)})**. The flow from {power_of_ten(scene.exponent)} is at "
                f"({_digits(now)}), {np.linalg.norm(now - rest):.1e} away; over half of the axis "
                f"it is within {np.median(followed.distance):.1e} of the stages.",
                f"Jumps: {told}. The last stage fits the data with the least l1 norm.",
                f"Proved of the stages: {path.message}; zeta leaves its bounds by "
                f"{path.certificate.excess:.1e}.",
            )
        )

    def code(self, settings: Settings) -> str:
        return self.script(_SCRIPT.format(X=X.tolist(), places=MOMENTS + 1, **settings))


def _digits(w: FloatArray) -> str:
    # Nothing below is seen in the picture; and no negative zero.
    return ", ".join(f"{round(entry, 3) + 0.0:g}" for entry in w.tolist())


_SCRIPT = """\
angle = np.deg2rad({angle!r})
X, y = np.array({X}), np.round([np.cos(angle), np.sin(angle)], 15)
net = fb.DiagonalNet(depth=2, log_scale={log_scale:g} * np.log(10))
path = fb.stages(net, X, y)
print(path, *path.events, sep="\\n")

# On the slow clock, with the flow's own steps, which are many where it jumps.
traj = fb.flow(net, X, y)
pace = path.time_at({log_scale:g} * np.log(10), 1.0)
cursors = np.geomspace(path.times[1] / 2, 2 * path.times[-1], {places})
steps = traj.t / pace
tau = np.union1d(cursors, steps[(steps > cursors[0]) & (steps < cursors[-1])])
w = traj.at(np.minimum(pace * tau, traj.t[-1]))
now = np.searchsorted(tau, cursors[{moment}])
print("distance at the cursor", np.linalg.norm(w[now] - path.at(tau[now])))

fig = plt.figure(figsize=(12, 5), layout="constrained")
space = fig.add_subplot(1, 2, 1, projection="3d", elev=25, azim={azimuth!r})
space.plot(*path.w.T, ":D", color="tab:green", ms=8, label="stages")
space.plot(*w.T, color="tab:orange", lw=2, label="flow")
space.plot(*w[now], "o", color="tab:orange", label="flow at the cursor")
space.set(xlabel="$w_1$", ylabel="$w_2$", zlabel="$w_3$")
space.legend()
time = fig.add_subplot(1, 2, 2, xscale="log", xlabel=r"slow time $\\tau$", ylabel="$w_i$")
time.plot(tau, path.at(tau), color="tab:green", lw=4, alpha=0.5)
time.plot(tau, w, color="tab:orange")
time.axvline(tau[now], color="tab:orange")
"""
