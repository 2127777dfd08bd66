"""Pictures of a diagnosis, of a history and of a sweep. Nothing is computed here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.regime.thresholds import Thresholds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flowbias.regime.diagnosis import Diagnosis
    from flowbias.regime.history import History
    from flowbias.regime.sweep import Sweep

INK, BLUE, RED, GREY = "#1b1f24", "#3b6fb6", "#c8442f", "#8b949e"


def finished(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written to a file where one is named."""
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def draw_diagnosis(diagnosis: Diagnosis) -> Figure:
    """The position between both extremes on a bar, and the other measures as text beside it."""
    figure, (bar, text) = _panels(2, (9.0, 3.2))
    lines = diagnosis.thresholds
    measures = diagnosis.measures()
    position = measures["position"]
    if position is None:
        value, ends = diagnosis.kernel_change, (lines.kernel_change, lines.rich_change)
        bar.set_xscale("log")
        # Room on both sides, whatever the value: a change of 0 sits at the left end.
        low = min(ends[0] * 1e-2, max(value, 1e-300) / 10.0)
        limits = low, max(ends[1] * 1e2, 10.0 * value)
        value = max(value, low)
        bar.set_xlabel("relative change of the tangent kernel")
    else:
        value, ends, limits = position, (lines.kernel_position, lines.rich_position), (0.0, 1.0)
        bar.set_xlabel("position: 0 linearized twin, 1 leanest network")
    bar.axvspan(limits[0], ends[0], color=BLUE, alpha=0.25, lw=0)
    bar.axvspan(ends[1], limits[1], color=RED, alpha=0.25, lw=0)
    bar.axvline(value, color=INK, lw=3)
    bar.set_xlim(*limits)
    bar.set_yticks([])
    for x, word, colour in ((0.02, "kernel", BLUE), (0.98, "rich", RED)):
        bar.text(
            x,
            0.9,
            word,
            color=colour,
            ha="left" if x < 0.5 else "right",
            transform=bar.transAxes,
        )
    bar.set_title(diagnosis.verdict.name.replace("_", " ").lower(), loc="left")
    text.axis("off")
    known = {name: value for name, value in measures.items() if value is not None}
    for row, (name, number) in enumerate(known.items()):
        height = 1.0 - (row + 0.5) / len(known)
        text.text(0.0, height, name.replace("_", " "), va="center")
        text.text(1.0, height, f"{number:.4g}", va="center", ha="right")
    return figure


def draw_history(history: History) -> Figure:
    """Kernel change and grad distance over steps, the loss below them where it was given."""
    records = history.records
    with_loss = [record for record in records if record.loss is not None]
    figure, axes = _panels(2 if with_loss else 1, (9.0 if with_loss else 5.2, 4.1))
    first = axes[0]
    steps = [record.step for record in records]
    for name, values, colour in (
        ("kernel change", [record.kernel_change for record in records], BLUE),
        ("grad distance", [record.grad_distance for record in records], RED),
    ):
        positive = [(s, v) for s, v in zip(steps, values, strict=True) if v > 0.0]
        if positive:
            first.plot(*zip(*positive, strict=True), color=colour, marker=".", label=name)
    if first.lines:
        first.set_xscale("log")
        first.set_yscale("log")
        first.legend(frameon=False)
    first.set_xlabel("steps")
    first.set_title("distance from the start", loc="left")
    if with_loss:
        axes[1].plot(
            [record.step for record in with_loss],
            [record.loss for record in with_loss],
            color=INK,
            marker=".",
        )
        axes[1].set_xscale("log")
        if all(record.loss is not None and record.loss > 0.0 for record in with_loss):
            axes[1].set_yscale("log")
        axes[1].set_xlabel("steps")
        axes[1].set_title("loss", loc="left")
    return figure


def draw_sweep(sweep: Sweep) -> Figure:
    """Position and kernel change against the scale, with the lines between the regimes."""
    figure, (left, right) = _panels(2, (9.6, 4.1))
    lines: Thresholds = sweep.points[0].diagnosis.thresholds
    for axes, measure, ends, title in (
        (left, "position", (lines.kernel_position, lines.rich_position), "position"),
        (right, "kernel_change", (lines.kernel_change, lines.rich_change), "kernel change"),
    ):
        values = sweep.curve(measure)
        axes.plot(sweep.scales, values, color=INK, marker="o")
        unfitted = np.array([not point.fitted for point in sweep])
        axes.plot(sweep.scales[unfitted], values[unfitted], "o", color="white", ms=4)
        for line, colour in zip(ends, (BLUE, RED), strict=True):
            axes.axhline(line, color=colour, lw=1)
        axes.set_xscale("log")
        axes.set_xlabel(r"scale of the start, $\alpha$")
        axes.set_title(title, loc="left")
    left.set_ylim(-0.03, 1.03)
    if (sweep.curve("kernel_change") > 0.0).all():
        right.set_yscale("log")
    rich = sweep.largest_rich
    if rich is not None:
        left.axvline(rich, color=GREY, lw=1, ls=":")
        left.text(rich, 0.5, " rich up to here", color=GREY, rotation=90, va="center", ha="right")
    return figure


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    """Without pyplot: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, count, squeeze=False)[0]
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes
