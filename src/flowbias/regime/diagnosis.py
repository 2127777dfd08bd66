"""What `diagnose` returns: the measures, the verdict, and both in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowbias.ground.drawing import picture
from flowbias.ground.html import facts
from flowbias.kernels.movement import GradDistance
from flowbias.regime.drawing import diagnosis_panels
from flowbias.regime.measures import Beyond, Gaps, LayerMovement, StepEffect
from flowbias.regime.thresholds import Grounds, Thresholds, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Measures of how far training took a network from its tangent kernel.

    beyond               the share of what was learned that is beyond the kernel of the start
    kernel_change        ||K_T - K_0||_F / ||K_0||_F, K the trace over outputs of the tangent kernel
    kernel_alignment     centered alignment of K_0 and K_T; None for one sample
    grad_distance        cosine distance of tangent features, per sample and overall
    parameter_movement   ||theta_T - theta_0|| / ||theta_0||
    label_alignment      centered alignment of the kernel with the labels, before and after
    gaps                 distances in function space; None where they were left out
    layers               which layers moved, by name, where that was asked for
    step                 how far steps of the size given are from the flow, at the start
    beyond, grad_distance and parameter_movement are None where weights were never drawn. `samples`
    were measured of the `given` ones, and `samples_new` of the `given_new` ones that functions were
    compared on; `hurried` is whether a budget of time left something out.
    """

    samples: int
    outputs: int
    beyond: Beyond | None
    kernel_change: float
    kernel_alignment: float | None
    grad_distance: GradDistance | None
    parameter_movement: float | None
    label_alignment: tuple[float, float] | None
    gaps: Gaps | None
    layers: dict[str, LayerMovement] | None
    given: int
    samples_new: int
    given_new: int
    hurried: bool
    thresholds: Thresholds
    step: StepEffect | None = None

    @property
    def evidence(self) -> Grounds:
        """What the verdict rests on."""
        gaps = self.gaps
        placed = gaps is not None and gaps.known and gaps.distinct
        return Grounds(
            beyond=None if self.beyond is None else self.beyond.share,
            turned=None if self.grad_distance is None else self.grad_distance.overall,
            twin=None if gaps is None else gaps.lazy,
            position=gaps.position if gaps is not None and placed else None,
            at_rest=gaps is not None and gaps.at_rest,
        )

    @property
    def verdict(self) -> Verdict:
        """By the position where both extremes are known and differ, else by what was learned."""
        return self.thresholds.decide(self.evidence)

    @property
    def explanation(self) -> str:
        """What was learned beyond the kernel, the verdict, and what that rests on."""
        learned = [] if self.beyond is None else [_sentence(self.beyond.in_words)]
        return " ".join([*learned, _sentence(self.verdict.value), *self._reasons()])

    def _reasons(self) -> Iterator[str]:
        lines, gaps, evidence = self.thresholds, self.gaps, self.evidence
        if self.parameter_movement == 0.0:
            yield "No parameter moved."
        if evidence.position is not None and gaps is not None and gaps.lean is not None:
            followed = "" if gaps.at_rest else " or more (it was not reached)"
            yield (
                f"On new inputs its linearized twin is {gaps.lazy:.1%} away from it and the "
                f"leanest network with its outputs {gaps.lean:.1%}{followed}: position "
                f"{evidence.position:.3f} from the one to the other (kernel up to "
                f"{lines.kernel_position:g}, rich from {lines.rich_position:g} on)."
            )
        else:
            yield lines.reason(evidence)
        if self.label_alignment is not None:
            aligned = "from {:.2g} to {:.2g}".format(*self.label_alignment)
            yield f"The alignment of its kernel with the labels went {aligned}."
        if self.samples < self.given:
            yield (
                f"Measured on {self.samples} of the {self.given} inputs and {self.samples_new} of "
                f"the {self.given_new} new ones, to keep the budget."
            )
        elif self.hurried:
            yield "Functions were not compared, to keep the budget."
        if self.step is not None:
            yield f"{self.step}"

    def measures(self) -> dict[str, float | None]:
        """All numbers by name."""
        gaps, aligned = self.gaps, self.label_alignment
        return {
            "beyond_kernel": None if self.beyond is None else self.beyond.share,
            "beyond_kernel_error": None if self.beyond is None else self.beyond.error,
            "kernel_change": self.kernel_change,
            "kernel_alignment": self.kernel_alignment,
            "grad_distance": None if self.grad_distance is None else self.grad_distance.overall,
            "parameter_movement": self.parameter_movement,
            "label_alignment_before": None if aligned is None else aligned[0],
            "label_alignment_after": None if aligned is None else aligned[1],
            "lazy_gap": None if gaps is None else gaps.lazy,
            "lean_gap": None if gaps is None else gaps.lean,
            "position": gaps.position if gaps is not None and gaps.distinct else None,
            "lazy_gap_to_labels": None if gaps is None else gaps.labels,
        }

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        per_sample = None if self.grad_distance is None else self.grad_distance.per_sample.tolist()
        return {
            "verdict": self.verdict.name,
            "explanation": self.explanation,
            "samples": self.samples,
            "outputs": self.outputs,
            "given": self.given,
            "samples_new": self.samples_new,
            "given_new": self.given_new,
            **self.measures(),
            "layers": None
            if self.layers is None
            else {name: vars(layer) for name, layer in self.layers.items()},
            "grad_distance_per_sample": per_sample,
            "thresholds": vars(self.thresholds),
        }

    def to_json(self) -> str:
        """The document as JSON; infinities (of a parameter that started at 0) become null."""
        return json.dumps(finite(self.document()), indent=2, allow_nan=False)

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The verdict on its bar from kernel to rich, and all measures; on `ax` the bar alone."""
        return picture(*diagnosis_panels(self), path=path, ax=ax)

    def _repr_html_(self) -> str:
        named = {name.replace("_", " "): value for name, value in self.measures().items()}
        counted = {"samples": f"{self.samples}", "outputs": f"{self.outputs}"}
        return facts(f"Diagnosis: {self.verdict.name}", {**counted, **named}, note=self.explanation)

    def __repr__(self) -> str:
        many = (
            f"{self.samples}" if self.samples == self.given else f"{self.samples} of {self.given}"
        )
        learned = "" if self.beyond is None else f"{self.beyond.in_words}: "
        lines = [
            f"Diagnosis: {learned}{self.verdict.name} ({many} samples, {self.outputs} outputs)"
        ]
        lines += [
            f"  {name.replace('_', ' '):<24}{value:.4g}"
            for name, value in self.measures().items()
            if value is not None
        ]
        if self.layers is not None:
            lines += [f"  {'layer':<32}{'moved':>10}{'carries':>10}"]
            lines += [
                f"  {name:<32}{layer.moved_in_words:>10}{layer.carries:>10.3g}"
                for name, layer in self.layers.items()
            ]
        return "\n".join([*lines, f"  {self.explanation}"])


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
