"""Steps: descent on batches ends where the flow does, from another start.  [Even et al. 2023]

Every step of a depth-2 network multiplies a scale of its start by |1 - x^2|, x the step times its
gradient: the larger the steps and the smaller the batches, the smaller the start that explains the
end, and the more so where gradients were large (docs/theory/descent.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Data, Hue, level, line, points, stems
from flowbias.apps.explorer.view import Settings, Slider, View, scale_slider
from flowbias.apps.explorer.views.planted_data import (
    EXAMPLE,
    NOISE,
    SEED,
    SPARSITY,
    PlantedData,
    population_error,
)
from flowbias.apps.explorer.views.proof_words import proof_of
from flowbias.flows.descent import Descent, gradient_descent
from flowbias.ground.arguments import InputError
from flowbias.ground.html import power_of_ten
from flowbias.ground.threads import one_thread
from flowbias.ground.typing import FloatArray
from flowbias.models.diagonal import DiagonalNet

# The most steps take half a second.
RUN: dict[str, Any] = {"loss": "half_mean", "residual": 1e-10, "max_steps": 30_000}


@dataclass(frozen=True)
class StepsScene:
    """A descent, with both of its limits solved."""

    run: Descent
    w_true: FloatArray
    exponent: float

    @property
    def shrunk(self) -> FloatArray:
        """Effective scale of each coordinate over the nominal one."""
        # The gain is of both sides, plus and minus.
        return np.asarray(np.exp(-0.5 * self.run.gain))


# A few kilobytes each: as many as ten readers look at.
@lru_cache(maxsize=64)
def steps_scene(
    planted: PlantedData, exponent: float, step_exponent: float, batch_size: int
) -> StepsScene:
    """Descend and solve; InputError where the steps are too large."""
    data = planted.draw()
    model = DiagonalNet(2, log_scale=exponent * math.log(10.0))
    with one_thread():
        run = gradient_descent(
            *(model, data.X, data.y),
            step_size=10.0**step_exponent,
            batch_size=batch_size,
            rng=planted.seed,
            **RUN,
        )
        if not run.status.ok:
            raise InputError(
                f"step: must be smaller, got {power_of_ten(step_exponent)}. It {run.message}."
            )
        # Solved here, in the thread that may take its time.
        _ = run.explained
    return StepsScene(run, data.w_true, exponent)


class StepsView(View[StepsScene]):
    """Where steps end, and the start that explains it."""

    name = "steps"
    title = "Steps"
    question = (
        "Nobody trains by a flow. Steps on batches end at another solution: the one that the flow "
        "finds from a start that is smaller where gradients were large."
    )
    controls = (
        scale_slider(-2.0, 0.0, 0.1, -1.0, name="log_step", label="Step size h"),
        Slider(
            *("batch", "Batch size b", 1, EXAMPLE.n, 1, 1),
            shown=lambda b: f"all {b:g}" if b == EXAMPLE.n else f"{b:g}",
            stops=(1, 2, 5, 10, EXAMPLE.n),
        ),
        scale_slider(-2.0, 0.0, 0.1, -0.5),
        replace(SPARSITY, default=EXAMPLE.sparsity),
        NOISE,
        SEED,
    )

    charts = (
        Chart(
            "Where the descent ends",
            "For each coordinate a filled circle for the end of the descent, an open square for "
            "the limit of the flow from the same start, and an open diamond for the limit of the "
            "flow from the effective start.",
            "coordinate i",
            "coefficient wᵢ",
            (
                stems("end"),
                points("nominal", "square", Hue.FRAME, 9, "limit of its start"),
                points("effective", "diamond", Hue.TRUTH, 15, "limit of the effective start"),
                points("end", "circle", Hue.FLOW, 5, "end of the descent", 1.0, line_width=1),
            ),
        ),
        Chart(
            "The start that explains it",
            "For each coordinate the scale of the effective start over that of the start as it "
            "was, which is the dotted line.",
            "coordinate i",
            "effective α / α",
            (
                level(1.0),
                points("shrunk", "diamond", Hue.TRUTH, 9, fill=1.0, line_width=1),
            ),
            options={"y_axis_type": "log"},
        ),
        Chart(
            "The fit, step by step",
            "The relative residual of all samples as a line over the steps.",
            "steps",
            "residual ‖Xw − y‖ / ‖y‖",
            (line("residual", Hue.FLOW),),
            options={"y_axis_type": "log"},
        ),
    )

    def scene(self, settings: Settings) -> StepsScene:
        return steps_scene(
            planted_of(settings), settings["log_scale"], settings["log_step"], settings["batch"]
        )

    def data(self, scene: StepsScene) -> Data:
        run = scene.run
        index = np.arange(1, len(run.w) + 1)
        return {
            "end": (index, run.w),
            "nominal": (index, run.limit.w),
            "effective": (index, run.effective_limit.w),
            "shrunk": (index, scene.shrunk),
            "residual": (run.recorded, run.residual),
        }

    def text(self, scene: StepsScene) -> str:
        return "\n\n".join((_end(scene), _start(scene), _proof(scene)))

    def code(self, settings: Settings) -> str:
        return self.script(_SCRIPT.format(data=planted_of(settings).code(), **settings, **RUN))


def planted_of(settings: Settings) -> PlantedData:
    """The data that the sliders describe."""
    return replace(EXAMPLE, **{name: settings[name] for name in ("sparsity", "noise", "seed")})


def _end(scene: StepsScene) -> str:
    run, explained = scene.run, scene.run.explained
    size = run.request.batch_size
    batches = "all samples" if size == EXAMPLE.n else f"batches of {size}"
    return (
        f"Steps of {power_of_ten(math.log10(run.step_size))} on {batches}, from scale "
        f"{power_of_ten(scene.exponent)}, end **{explained.nominal:.1e}** (relatively) from the "
        f"limit of the flow from the same start, and **{explained.distance:.1e}** from that of the "
        f"flow from the effective start. How it ended: {run.message}."
    )


def _start(scene: StepsScene) -> str:
    shrunk, run = scene.shrunk, scene.run
    of_end, of_limit = (float(population_error(w, scene.w_true)) for w in (run.w, run.limit.w))
    return (
        f"The effective start has scales from {shrunk.min():.2g} to {shrunk.max():.2g} times those "
        f"of the start as it was. Population error: {of_end:.2g} at the end of the descent, "
        f"{of_limit:.2g} at the limit of the flow from the same start."
    )


def _proof(scene: StepsScene) -> str:
    return (
        "A descent that fits ends at the limit of its effective start exactly; what is left is the "
        f"residual. That limit: {proof_of(scene.run.effective_limit)}."
    )


_SCRIPT = """\
{data}
model = fb.DiagonalNet(depth=2, log_scale={log_scale:g} * np.log(10))
run = fb.gradient_descent(
    *(model, X, y),
    step_size=10**{log_step!r},
    batch_size={batch},
    loss={loss!r},
    residual={residual!r},
    max_steps={max_steps},
    rng={seed},
)
print(run, run.explained, run.effective_limit, sep="\\n")

fig, axes = plt.subplots(3, 1, figsize=(8, 10), layout="constrained")
axes[0].stem(run.w, markerfmt=".", basefmt=" ", label="end of the descent")
axes[0].plot(run.limit.w, "s", color="grey", mfc="none", label="limit of its start")
axes[0].plot(run.effective_limit.w, "D", color="tab:purple", mfc="none", label="of the effective")
axes[0].set(xlabel="coordinate", ylabel="coefficient")
axes[0].legend()
axes[1].semilogy(np.exp(-run.gain / 2), "D", color="tab:purple")
axes[1].axhline(1, linestyle=":", color="grey")
axes[1].set(xlabel="coordinate", ylabel="effective scale over the scale")
axes[2].semilogy(run.recorded, run.residual)
axes[2].set(xlabel="steps", ylabel="relative residual")
"""
