"""Which word the measures of a regime add up to, and where its lines come from.

One function decides for all that tells of regimes, from what was learned and how:

    beyond    the share of what was learned that is beyond the kernel of the start (`measures.py`)
    turned    by how much tangent features turned (grad distance)
    twin      the distance to the linearized twin with the same outputs, where that was trained
    position  between both extremes, where both are known (models of this library)

KERNEL is said where all distances that are known are small. Features are learned as far as they
turned, and as far as what was learned is made of the turned ones: RICH is said by the product of
both, beyond * turned. The lines are those of 109 small networks of seven architectures whose regime
was set by a known knob (the output scale, the width in NTK and mean-field parametrization), of
which any line for RICH from 0.4 to 0.6 tells 101 to 106 rightly; ReLU networks in two dimensions,
whose features turn by a half however small they start, ask for the lower end.
`python benchmarks/regime_truth.py` draws the networks again and judges the lines on seven
architectures that had no part in them.

Models of this library have both extremes in closed form: with w the limit of gradient flow, w_k
that of the linearized model and w_r that of vanishing scale (least l1 norm of diagonal networks),

    position = ||w - w_k|| / (||w - w_k|| + ||w - w_r||)

is 0 in the kernel regime and 1 in the rich one. There KERNEL is a position up to 1/10, RICH one
from 9/10 on; `python benchmarks/regime.py` finds the lines for the measured position anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Verdict(Enum):
    """What training did to a network.

    >>> [verdict.name for verdict in fb.regime.Verdict]
    ['KERNEL', 'IN_BETWEEN', 'RICH']
    """

    KERNEL = (
        "kernel regime: the network trained like its linearization at the start, with the features "
        "it was born with"
    )
    IN_BETWEEN = (
        "in between: features moved, and a good part of what was learned is still what those of "
        "the start can learn"
    )
    RICH = "rich regime: the network learned its features, and little is left in them of the start"


@dataclass(frozen=True)
class Grounds:
    """What a verdict rests on; None for what is not known."""

    #: share of what was learned that is beyond the kernel of the start
    beyond: float | None
    #: cosine distance of tangent features
    turned: float | None
    #: distance to the linearized twin with the same outputs, relative to the function
    twin: float | None = None
    #: between both extremes, where both are known, and whether the rich one was reached
    position: float | None = None
    at_rest: bool = True

    @property
    def features_learned(self) -> float | None:
        """beyond * turned, in which all of what was learned is beyond at most."""
        if self.beyond is None or self.turned is None:
            return None
        return min(self.beyond, 1.0) * self.turned


@dataclass(frozen=True)
class Thresholds:
    """The lines between verdicts."""

    #: measured position up to which it is KERNEL, and from which it is RICH
    kernel_position: float = 0.1
    rich_position: float = 0.89
    #: share beyond the kernel, and distance to the twin, up to which it is KERNEL
    kernel_gap: float = 0.1
    #: grad distance up to which it is KERNEL
    kernel_turn: float = 0.06
    #: features learned (share beyond the kernel times grad distance) from which it is RICH
    rich_features: float = 0.45
    #: change of the features expected by `predict` that turns them half of the way, and the power
    #: of it that they turn by before
    half_turn: float = 40.0
    power: float = 0.6

    @property
    def kernel_outlook(self) -> float:
        """Expected change of the features up to which it is KERNEL."""
        return self._outlook(self.kernel_turn)

    @property
    def rich_outlook(self) -> float:
        """Expected change of the features from which it is RICH, if all is beyond the kernel."""
        return self._outlook(self.rich_features)

    def _outlook(self, turned: float) -> float:
        return float(self.half_turn * (turned / (1.0 - turned)) ** (1.0 / self.power))

    def expected(self, feature_change: float, lazy_gap: float) -> Grounds:
        """Before training: of a change that is linear in the way, which features never finish.

        Second orders may cancel in the function, as in diagonal networks of depth 2: it is expected
        to be beyond the kernel at least as far as its features turn.
        """
        ratio = (self.half_turn / feature_change) ** self.power if feature_change else np.inf
        turned = 1.0 / (1.0 + ratio)
        return Grounds(beyond=max(lazy_gap, turned), turned=turned)

    def decide(self, evidence: Grounds) -> Verdict:
        """The one word for all measures."""
        if evidence.position is not None:
            found = _divided(evidence.position, self.kernel_position, self.rich_position)
            # The rich extreme may be farther than it was followed: never called rich on that.
            unsure = found is Verdict.RICH and not evidence.at_rest
            return Verdict.IN_BETWEEN if unsure else found
        learned = evidence.features_learned
        if learned is not None and learned >= self.rich_features:
            return Verdict.RICH
        gaps = [gap for gap in (evidence.beyond, evidence.twin) if gap is not None]
        few = evidence.turned is None or evidence.turned <= self.kernel_turn
        small = bool(gaps) and max(gaps) <= self.kernel_gap
        return Verdict.KERNEL if few and small else Verdict.IN_BETWEEN

    def reason(self, evidence: Grounds) -> str:
        """The numbers that were decided by, against their lines; positions have words of their own.

        >>> "turned by 0.001 (grad distance" in THRESHOLDS.reason(Grounds(0.02, 0.001))
        True
        """
        parts = []
        if evidence.twin is not None:
            parts.append(
                f"on new inputs its linearized twin is {evidence.twin:.1%} away (kernel up to "
                f"{self.kernel_gap:.0%}, as for the share beyond the kernel)"
            )
        if evidence.turned is not None:
            parts.append(
                f"its tangent features turned by {evidence.turned:.2g} (grad distance; kernel up "
                f"to {self.kernel_turn:g})"
            )
        if evidence.features_learned is not None:
            parts.append(
                f"the product of that and the share is {evidence.features_learned:.2g} (rich from "
                f"{self.rich_features:g} on)"
            )
        if evidence.twin is None:
            also = "also " if parts else ""
            parts.append(f"kernel {also}asks for a share of at most {self.kernel_gap:.0%}")
        words = ", ".join(parts)
        return f"{words[0].upper()}{words[1:]}."


def _divided(value: float, kernel: float, rich: float) -> Verdict:
    if value <= kernel:
        return Verdict.KERNEL
    return Verdict.RICH if value >= rich else Verdict.IN_BETWEEN


THRESHOLDS = Thresholds()
