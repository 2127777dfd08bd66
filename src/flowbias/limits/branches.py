"""Every coordinate as a difference of two positive weights, w = P+ - P-.

Both network families grow each side by a law of its own slack A = cost - (+-)(A^T nu):

    exponential (depth 2):   log P = -A / flexibility
    power (depth D > 2):     log P = -k log A + offset,      k = D / (D - 2)

so that one solver serves both. A side that the start left out (a weight that is zero stays zero)
has no branch at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flowbias.ground.typing import FloatArray, Mask


@dataclass(frozen=True)
class Branches:
    """Which coordinates have a positive and a negative side, and what each side costs."""

    plus: Mask  # over the coordinates
    minus: Mask
    cost: FloatArray  # slack of each branch at dual zero: positive sides first
    #: weights are compared in these units: what a branch is worth, where costs differ widely
    unit: FloatArray | float = 1.0

    @property
    def count(self) -> int:
        return len(self.cost)

    @property
    def split(self) -> int:
        return int(np.count_nonzero(self.plus))

    def difference(self, values: FloatArray) -> FloatArray:
        """Per coordinate: value of the positive side minus that of the negative side."""
        return self._combine(values, -1.0)

    def total(self, values: FloatArray) -> FloatArray:
        """Per coordinate: the sum of both sides."""
        return self._combine(values, 1.0)

    def _combine(self, values: FloatArray, sign: float) -> FloatArray:
        d, split = len(self.plus), self.split
        if self.count == 2 * d:
            return values[:d] + sign * values[d:]
        out = np.zeros(d)
        out[self.plus] = values[:split]
        out[self.minus] += sign * values[split:]
        return out

    def lesser(self, values: FloatArray) -> FloatArray:
        """Per coordinate: the smaller of its sides' values."""
        out = np.full(len(self.plus), np.inf)
        out[self.plus] = values[: self.split]
        out[self.minus] = np.minimum(out[self.minus], values[self.split :])
        return out[self.plus | self.minus]

    def signed(self, z: FloatArray) -> FloatArray:
        """(z on the positive sides, -z on the negative ones)."""
        if self.count == 2 * len(self.plus):
            return np.concatenate([z, -z])
        return np.concatenate([z[self.plus], -z[self.minus]])


class Response(ABC):
    """How the weight P of a branch answers to its slack A."""

    @abstractmethod
    def log_weight(self, slack: FloatArray) -> FloatArray:
        """log P at this slack."""

    @abstractmethod
    def rate(self, slack: FloatArray) -> FloatArray:
        """-d log P / d slack."""

    @abstractmethod
    def slack(self, weight: FloatArray) -> FloatArray:
        """The slack at which the branch has this weight."""

    @abstractmethod
    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        """The fraction of `change` (at most 1) that keeps every slack in its domain."""


@dataclass(frozen=True)
class ExponentialResponse(Response):
    """log P = -A / flexibility, for any real slack."""

    flexibility: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        return -slack / self.flexibility

    def rate(self, slack: FloatArray) -> FloatArray:
        return np.full_like(slack, 1.0 / self.flexibility)

    def slack(self, weight: FloatArray) -> FloatArray:
        return -self.flexibility * np.log(weight)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        return 1.0


@dataclass(frozen=True)
class PowerResponse(Response):
    """log P = -k log A + offset, for positive slack."""

    exponent: float
    offset: float

    def log_weight(self, slack: FloatArray) -> FloatArray:
        return -self.exponent * np.log(slack) + self.offset

    def rate(self, slack: FloatArray) -> FloatArray:
        return self.exponent / slack

    def slack(self, weight: FloatArray) -> FloatArray:
        return np.exp((self.offset - np.log(weight)) / self.exponent)

    def longest_step(self, slack: FloatArray, change: FloatArray) -> float:
        return min(1.0, 0.9 * step_to_zero(slack, change))


def step_to_zero(value: FloatArray, change: FloatArray) -> float:
    """The multiple of `change` that brings the first entry of a positive `value` to zero."""
    steepest = float((-change / value).max(initial=0.0))
    return 1.0 / steepest if steepest > 0.0 else np.inf
