"""A trained bias beside the branches of its network: one more branch, whose law is a straight line.

The bias is b = z / g with z its dual and g its weight. Methods in weights and slacks
(`limits/interior_point.py`) know positive weights only, so it is counted from below zero, by
`rest`:

    P = b + rest,     A = cost - z,  cost = g rest      =>     P = 2 rest - A / g

The rows then ask for X w + e P = y + rest e.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.interior_point import Branches, Response, step_to_zero

# Share of the way to P = 0 that a step may go.
INSIDE = 0.9


@dataclass(frozen=True)
class LinearBranch(Response):
    """`network` for all branches but the one at `index`."""

    network: Response
    index: int
    stiffness: float  # g
    rest: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        own = np.log(self._weight(slack))
        return np.insert(self.network.log_weight(self._others(slack)), self.index, own)

    def rate(self, slack: FloatArray) -> FloatArray:
        own = 1.0 / (self.stiffness * self._weight(slack))
        return np.insert(self.network.rate(self._others(slack)), self.index, own)

    def slack(self, weight: FloatArray) -> FloatArray:
        own = self.stiffness * (2.0 * self.rest - weight[self.index])
        return np.insert(self.network.slack(self._others(weight)), self.index, own)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        others = self.network.longest_step(self._others(slack), self._others(change))
        fall = change[self.index] / self.stiffness
        return min(others, INSIDE * step_to_zero(np.array([self._weight(slack)]), -fall))

    def _weight(self, slack: FloatArray) -> float:
        return float(2.0 * self.rest - slack[self.index] / self.stiffness)

    def _others(self, values: FloatArray) -> FloatArray:
        return np.delete(values, self.index)


def with_bias(
    branches: Branches, law: Response, stiffness: float, rest: float
) -> tuple[Branches, LinearBranch]:
    """The branches of a network and of its bias, last among the coordinates."""
    index = branches.split
    unit = np.broadcast_to(branches.unit, branches.count)
    both = replace(
        branches,
        plus=np.append(branches.plus, True),
        minus=np.append(branches.minus, False),
        cost=np.insert(branches.cost, index, stiffness * rest),
        unit=np.insert(unit, index, rest),
    )
    return both, LinearBranch(law, index, stiffness, rest)
