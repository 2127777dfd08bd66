"""How flows and descents show and draw themselves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flowbias.ground.drawing import Panel, course, curves, positive_times, time_axis
from flowbias.ground.html import facts
from flowbias.ground.typing import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Followed(Protocol):
    """What every trajectory offers."""

    @property
    def t(self) -> FloatArray: ...
    @property
    def loss(self) -> FloatArray: ...
    @property
    def status(self) -> Enum: ...
    @property
    def route(self) -> str: ...
    @property
    def stats(self) -> Any: ...
    @property
    def message(self) -> str: ...


class Stepped(Protocol):
    """What every descent offers."""

    @property
    def residual(self) -> FloatArray: ...
    @property
    def status(self) -> Enum: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_size(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def message(self) -> str: ...


def flow_panels(
    flow: Followed, values: FloatArray, *, label: str, symbol: str, first: int = 0
) -> tuple[Panel, Panel]:
    """Columns of `values` and the loss against time, on logarithmic axes."""
    kept = positive_times(flow.t)

    def over_time(axes: Axes) -> None:
        curves(axes, flow.t[kept], values[kept], symbol=symbol, first=first)
        axes.set_ylabel(label)
        axes.set_title(f"{flow.status.name}, {flow.route}")
        time_axis(axes, flow.t)

    def loss_over_time(axes: Axes) -> None:
        course(axes, flow.t[kept], flow.loss[kept], label="loss")
        time_axis(axes, flow.t)

    return over_time, loss_over_time


def flow_table(flow: Followed, more: Mapping[str, str | float]) -> str:
    """A trajectory as HTML; `more` is what only its kind has."""
    return facts(
        f"{type(flow).__name__}: {flow.status.name}",
        {
            "route": flow.route,
            "times": f"{len(flow.t)}, from {flow.t[0]:.4g} to {flow.t[-1]:.4g}",
            "loss": f"{flow.loss[0]:.4g} at the first, {flow.loss[-1]:.4g} at the last",
            **more,
            "steps": f"{flow.stats.steps}",
            "evaluations": f"{flow.stats.evaluations}",
            "seconds": f"{flow.stats.seconds:.3g}",
        },
        note=flow.message,
    )


def descent_panel(descent: Stepped) -> Panel:
    """The residual after each step."""

    def panel(axes: Axes) -> None:
        course(axes, np.arange(descent.steps + 1.0), descent.residual, label="relative residual")
        axes.set_xlabel("steps")
        axes.set_title(f"{descent.status.name}, step size {descent.step_size:.4g}")

    return panel


def descent_table(descent: Stepped, more: Mapping[str, str | float]) -> str:
    """A descent as HTML; `more` is what only its kind has."""
    return facts(
        f"{type(descent).__name__}: {descent.status.name}",
        {
            "steps": f"{descent.steps}",
            "step size": descent.step_size,
            "relative residual": float(descent.residual[-1]),
            **more,
            "seconds": f"{descent.seconds:.3g}",
        },
        note=descent.message,
    )
