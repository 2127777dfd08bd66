"""Pictures of a diagnosis, a prediction, a history and a sweep. Nothing is computed here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flowbias.ground.drawing import BLUE, GREY, INK, RED, Panel, course
from flowbias.ground.typing import Axes, FloatArray

if TYPE_CHECKING:
    from flowbias.regime.diagnosis import Diagnosis
    from flowbias.regime.history import History
    from flowbias.regime.predict import Prediction
    from flowbias.regime.sweep import Sweep
    from flowbias.regime.thresholds import Verdict


def diagnosis_panels(diagnosis: Diagnosis) -> tuple[Panel, Panel]:
    """What was learned beyond the kernel (or the position) on a bar, and all measures beside it."""
    return partial(_draw_verdict, diagnosis), partial(_write_measures, diagnosis)


def prediction_panels(prediction: Prediction) -> tuple[Panel, Panel]:
    """What to expect of the features and of the function, each between its lines."""
    lines = prediction.thresholds

    def features(axes: Axes) -> None:
        _draw_on_decades(axes, prediction.feature_change, lines.kernel_outlook, lines.rich_outlook)
        axes.set_xlabel("expected change of the features")
        axes.set_title(f"expected: {_words(prediction.verdict)}")

    def gap(axes: Axes) -> None:
        _draw_on_decades(axes, prediction.lazy_gap, lines.kernel_gap, None)
        axes.set_xlabel("expected distance from the linearization")

    return features, gap


def history_panels(history: History) -> tuple[Panel, ...]:
    """How far it is from its start over steps, the loss beside it where it was given."""
    with_loss = any(loss is not None for loss in history.losses)
    movement, loss = partial(_draw_movement, history), partial(_draw_loss, history)
    return (movement, loss) if with_loss else (movement,)


def sweep_panels(sweep: Sweep) -> tuple[Panel, Panel]:
    """Position and kernel change against the scale, with the lines between the regimes.

    Where no position is known, the share of what was learned that is beyond the kernel.
    """
    lines = sweep.points[0].diagnosis.thresholds
    placed = np.isfinite(sweep.curve("position")).any()

    def position(axes: Axes) -> None:
        ends = (lines.kernel_position, lines.rich_position) if placed else (lines.kernel_gap,)
        values = sweep.curve("position" if placed else "beyond_kernel")
        _draw_transition(axes, sweep, np.minimum(values, 1.0), ends)
        axes.set_ylabel("position" if placed else "learned beyond the kernel")
        axes.set_ylim(-0.03, 1.03)
        rich = sweep.largest_rich
        if rich is not None:
            axes.axvline(rich, color=GREY, lw=1, ls=":")
            axes.text(
                rich, 0.5, " rich up to here", color=GREY, rotation=90, va="center", ha="right"
            )

    def kernel_change(axes: Axes) -> None:
        values = sweep.curve("kernel_change")
        _draw_transition(axes, sweep, values, ())
        axes.set_ylabel("kernel change")
        if (values > 0.0).all():
            axes.set_yscale("log")

    return position, kernel_change


def _draw_verdict(diagnosis: Diagnosis, axes: Axes) -> None:
    lines, evidence = diagnosis.thresholds, diagnosis.evidence
    axes.set_xlim(0.0, 1.0)
    if evidence.position is not None:
        _draw_between(axes, evidence.position, lines.kernel_position, lines.rich_position)
        axes.set_xlabel("position: 0 linearized twin, 1 leanest network")
    else:
        known = evidence.twin if evidence.beyond is None else evidence.beyond
        # Rich is a product: the less features turned, the farther away.
        reached = evidence.turned is not None and evidence.turned >= lines.rich_features
        rich = lines.rich_features / evidence.turned if reached and evidence.turned else None
        _draw_between(axes, min(known or 0.0, 1.0), lines.kernel_gap, rich)
        axes.set_xlabel("share of what was learned that is beyond the kernel")
    axes.set_title(_words(diagnosis.verdict))


def _draw_on_decades(axes: Axes, value: float, kernel: float, rich: float | None) -> None:
    """A value on a logarithmic axis with room on both sides; 0 sits at its left end."""
    low = min(kernel * 1e-2, max(value, 1e-300) / 10.0)
    axes.set_xscale("log")
    axes.set_xlim(low, max((rich or kernel) * 1e2, 10.0 * value))
    _draw_between(axes, max(value, low), kernel, rich)


def _draw_between(axes: Axes, value: float, kernel: float, rich: float | None) -> None:
    """A value on a bar from kernel to rich."""
    left, right = axes.get_xlim()
    axes.axvspan(left, kernel, color=BLUE, alpha=0.25, lw=0)
    # The bar may stand where the word does: words lie above it.
    above: dict[str, Any] = {
        "transform": axes.transAxes,
        "zorder": 5,
        "bbox": {"facecolor": "white", "alpha": 0.7, "linewidth": 0},
    }
    axes.text(0.03, 0.9, "kernel", color=BLUE, **above)
    if rich is not None:
        axes.axvspan(rich, right, color=RED, alpha=0.25, lw=0)
        axes.text(0.97, 0.9, "rich", color=RED, ha="right", **above)
    axes.axvline(value, color=INK, lw=3)
    axes.set_yticks([])


def _write_measures(diagnosis: Diagnosis, axes: Axes) -> None:
    axes.axis("off")
    known = {k: value for k, value in diagnosis.measures().items() if value is not None}
    for row, (name, number) in enumerate(known.items()):
        height = 1.0 - (row + 0.5) / len(known)
        axes.text(0.0, height, name.replace("_", " "), va="center")
        axes.text(1.0, height, f"{number:.4g}", va="center", ha="right")


def _draw_movement(history: History, axes: Axes) -> None:
    records = history.records
    steps = [record.step for record in records]
    for name, values, colour in (
        ("kernel change", [record.kernel_change for record in records], BLUE),
        ("grad distance", [record.grad_distance for record in records], RED),
        ("learned beyond the kernel", [record.beyond or 0.0 for record in records], INK),
        ("movement of parameters", [record.parameter_movement or 0.0 for record in records], GREY),
    ):
        positive = [(s, v) for s, v in zip(steps, values, strict=True) if 0.0 < v < np.inf]
        if positive:
            axes.plot(*zip(*positive, strict=True), color=colour, marker=".", label=name)
    if axes.lines:
        axes.set_xscale("log")
        axes.set_yscale("log")
        # Above the picture: four lines leave no corner free.
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    axes.set_xlabel("steps")
    axes.set_ylabel("distance from the start")


def _draw_loss(history: History, axes: Axes) -> None:
    seen = [(step, loss) for step, loss in enumerate(history.losses, 1) if loss is not None]
    steps, losses = np.array(seen, dtype=float).T
    course(axes, steps, losses, label="loss")
    axes.set_xscale("log")
    axes.set_xlabel("steps")


def _draw_transition(axes: Axes, sweep: Sweep, values: FloatArray, ends: tuple[float, ...]) -> None:
    axes.plot(sweep.scales, values, color=INK, marker="o")
    unfitted = np.array([not point.fitted for point in sweep])
    axes.plot(sweep.scales[unfitted], values[unfitted], "o", color="white", ms=4)
    for line, colour in zip(ends, (BLUE, RED), strict=False):
        axes.axhline(line, color=colour, lw=1)
    axes.set_xscale("log")
    axes.set_xlabel(r"scale of the start, $\alpha$")


def _words(verdict: Verdict) -> str:
    return verdict.name.replace("_", " ").lower()
