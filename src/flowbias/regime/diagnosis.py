"""What `diagnose` returns: the measures, the verdict, and both in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flowbias.ground.drawing import picture
from flowbias.ground.html import facts
from flowbias.kernels.feature_distance import GradDistance
from flowbias.regime.drawing import diagnosis_panels
from flowbias.regime.leanest import SEARCH
from flowbias.regime.thresholds import Thresholds, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Gaps:
    """Distances in function space, relative to the function and to how far it moved (the smaller).

    lazy     to the linearized twin with the same outputs on the training inputs
    lean     to the leanest network nearby with the same outputs
    at_rest  whether that network was reached; if not, it is at least `lean` away
    norm     the norm of its parameters as a share of the network's own
    known    whether it is known to be where starts of vanishing scale lead: not of torch modules
    labels   to the linearized twin trained on the labels for ever; None without labels
    """

    lazy: float
    lean: float
    at_rest: bool
    norm: float
    known: bool
    labels: float | None
    #: below this share of the function both extremes are one, up to how well they are known
    indistinct: ClassVar[float] = 0.03
    #: a network is lean where no other nearby has a norm less by more than this share, at which the
    #: search for the leanest takes norms as level too
    lean_share: ClassVar[float] = SEARCH.level

    @property
    def distinct(self) -> bool:
        """Whether the two extremes are known to differ, so that a position means something."""
        known = self.lazy + self.lean if self.at_rest else self.lazy
        return known > self.indistinct

    @property
    def position(self) -> float:
        """lazy / (lazy + lean): 0 is the linearized twin, 1 the leanest network."""
        total = self.lazy + self.lean
        return self.lazy / total if total > 0.0 else 0.0


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Measures of how far training took a network from its tangent kernel.

    kernel_change        ||K_T - K_0||_F / ||K_0||_F, K the trace over outputs of the tangent kernel
    kernel_alignment     centered alignment of K_0 and K_T; None for one sample
    grad_distance        cosine distance of tangent features, per sample and overall
    parameter_movement   ||theta_T - theta_0|| / ||theta_0||
    label_alignment      centered alignment of the kernel with the labels, before and after
    gaps                 distances in function space; None where they were left out
    grad_distance and parameter_movement are None where weights were never drawn.
    """

    samples: int
    outputs: int
    kernel_change: float
    kernel_alignment: float | None
    grad_distance: GradDistance | None
    parameter_movement: float | None
    label_alignment: tuple[float, float] | None
    gaps: Gaps | None
    thresholds: Thresholds

    @property
    def verdict(self) -> Verdict:
        """By the position where both extremes are known and differ, else by the kernel's change."""
        if self.gaps is None or not self.gaps.distinct:
            return self.thresholds.by_kernel_change(self.kernel_change)
        if self._rich_by_both:
            return Verdict.RICH
        found = self.thresholds.by_position(self.gaps.position)
        # The leanest network may be farther than it was followed: never called rich on that.
        unsure = found is Verdict.RICH and not self.gaps.at_rest
        return Verdict.IN_BETWEEN if unsure else found

    @property
    def _rich_by_both(self) -> bool:
        """As lean as the leanest network nearby, with a kernel that is a rich one's.

        With kinks many functions cost the same norm, or nearly so. Small starts lead to one of
        them, and its distance to another is nothing that is left of the start.
        """
        gaps, change = self.gaps, self.thresholds.by_kernel_change(self.kernel_change)
        if gaps is None or gaps.known or not gaps.at_rest:
            return False
        return gaps.norm >= 1.0 - gaps.lean_share and change is Verdict.RICH

    @property
    def explanation(self) -> str:
        """The verdict, and the numbers that it rests on against their thresholds."""
        return f"{self.verdict.value}. {self._reason()}"

    def _reason(self) -> str:
        lines, gaps = self.thresholds, self.gaps
        change = (
            f"the kernel changed by {self.kernel_change:.3g} of its size (kernel up to "
            f"{lines.kernel_change:g}, rich from {lines.rich_change:g} on; rough on the rich side)."
        )
        if gaps is None:
            return f"Functions were not compared; by the kernel alone: {change}"
        if not gaps.distinct:
            other = "and so is" if gaps.at_rest else "and nothing farther was found towards"
            return (
                f"On new inputs its linearized twin is within {gaps.indistinct:.0%} of it, {other} "
                f"the leanest network with its outputs; by the kernel: {change}"
            )
        followed = "" if gaps.at_rest else " or more (it was not reached)"
        return (
            f"On new inputs its linearized twin is {gaps.lazy:.1%} away from it and the leanest "
            f"network with its outputs {gaps.lean:.1%}{followed}: position {gaps.position:.3f} "
            f"from the one to the other (kernel up to {lines.kernel_position:g}, rich from "
            f"{lines.rich_position:g} on{self._or_by_both}). Its kernel changed by "
            f"{self.kernel_change:.3g} of its size."
        )

    @property
    def _or_by_both(self) -> str:
        if self.gaps is None or self.gaps.known:
            return ""
        return (
            f", or with a norm within {self.gaps.lean_share:.0%} of the leanest network's (here "
            f"{1.0 / self.gaps.norm:.3g} times it) and a kernel change from "
            f"{self.thresholds.rich_change:g} on"
        )

    def measures(self) -> dict[str, float | None]:
        """All numbers by name."""
        gaps, aligned = self.gaps, self.label_alignment
        return {
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
            **self.measures(),
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
        lines = [f"Diagnosis: {self.verdict.name} ({self.samples} samples, {self.outputs} outputs)"]
        lines += [
            f"  {name.replace('_', ' '):<24}{value:.4g}"
            for name, value in self.measures().items()
            if value is not None
        ]
        return "\n".join([*lines, f"  {self.explanation}"])


def finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: both become null."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
