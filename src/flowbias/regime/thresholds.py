"""Where the regimes are divided, and where the numbers come from.

Diagonal networks have both extremes in closed form: with w the limit of gradient flow, w_k that of
the linearized network and w_r that of vanishing scale (least l1 norm),

    position = ||w - w_k|| / (||w - w_k|| + ||w - w_r||)

is 0 in the kernel regime and 1 in the rich one. By definition here KERNEL is a position up to
1/10, RICH one from 9/10 on. `diagnose` measures a position without knowing w_r, and a few numbers
that are cheaper. The lines below are those that tell the fewest diagonal networks of depths 2 to 6
wrongly, rounded; no other model had a part in them. `python benchmarks/regime.py` finds them anew,
and judges them on factorizations, neurons and deep linear networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
        "in between: features moved, and what was learned still depends on the scale of the start"
    )
    RICH = (
        "rich regime: the network learned its features, and little of the start is left in its "
        "function"
    )


@dataclass(frozen=True)
class Thresholds:
    """The lines between verdicts, by position and by what is cheaper than it."""

    #: measured position up to which it is KERNEL, and from which it is RICH
    kernel_position: float
    rich_position: float
    #: relative kernel change up to which it is KERNEL, and from which it is RICH
    kernel_change: float
    rich_change: float
    #: expected change of the features (`predict`) up to which it is KERNEL, and from which RICH
    kernel_outlook: float
    rich_outlook: float
    #: expected distance from the linearization up to which it is KERNEL, if the features agree
    kernel_gap: float

    def by_position(self, position: float) -> Verdict:
        """By the distances in function space to both extremes."""
        return _divided(position, self.kernel_position, self.rich_position)

    def by_kernel_change(self, change: float) -> Verdict:
        """By the kernel alone, where functions cannot be compared: rough, on the rich side most."""
        return _divided(change, self.kernel_change, self.rich_change)

    def by_outlook(self, feature_change: float, lazy_gap: float) -> Verdict:
        """By what is expected before training: KERNEL only where both numbers say so."""
        found = _divided(feature_change, self.kernel_outlook, self.rich_outlook)
        bent = found is Verdict.KERNEL and lazy_gap > self.kernel_gap
        return Verdict.IN_BETWEEN if bent else found


def _divided(value: float, kernel: float, rich: float) -> Verdict:
    if value <= kernel:
        return Verdict.KERNEL
    return Verdict.RICH if value >= rich else Verdict.IN_BETWEEN


THRESHOLDS = Thresholds(
    kernel_position=0.1,
    rich_position=0.89,
    kernel_change=0.08,
    rich_change=4e3,
    kernel_outlook=0.24,
    rich_outlook=80.0,
    kernel_gap=0.05,
)


def true_verdict(position: float, margin: float = 0.1) -> Verdict:
    """By the exact position between both limits: kernel up to `margin`, rich from 1 minus it on."""
    return _divided(position, margin, 1.0 - margin)
