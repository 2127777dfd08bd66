"""At which steps a monitor looks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from flowbias.problem import InputError


class Schedule(Protocol):
    """Any object that says which step comes after a given one.

    >>> class OnlyOnce:
    ...     def following(self, step):
    ...         return 1 if step < 1 else 10**9
    >>> schedule: fb.regime.Schedule = OnlyOnce()
    >>> schedule.following(0)
    1
    """

    def following(self, step: int) -> int:
        """The first step after `step` at which to look."""
        ...


@dataclass(frozen=True)
class Geometric:
    """Each step `ratio` times the last, at least one later: 1, 2, 3, 4, 5, 7, 9, ... at 1.25.

    Training moves by factors, not by steps: a million steps are 60 looks.

    >>> step, steps = 0, []
    >>> for _ in range(7):
    ...     step = Geometric(1.5).following(step)
    ...     steps.append(step)
    >>> steps
    [1, 2, 3, 5, 8, 12, 18]
    """

    ratio: float = 1.25

    def __post_init__(self) -> None:
        if not 1.0 < self.ratio < math.inf:
            raise InputError(
                f"ratio: must be > 1, got {self.ratio!r}. It is the factor between two looks."
            )

    def following(self, step: int) -> int:
        return max(step + 1, math.ceil(self.ratio * step))


@dataclass(frozen=True)
class Every:
    """Every so many steps.

    >>> fb.regime.Every(10).following(3)
    10
    """

    steps: int

    def __post_init__(self) -> None:
        if not self.steps >= 1:
            raise InputError(
                f"steps: must be >= 1, got {self.steps!r}. It is the number between two looks."
            )

    def following(self, step: int) -> int:
        return (step // self.steps + 1) * self.steps
