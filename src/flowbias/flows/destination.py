"""Where a flow ends: `limit`, handed in by the front door.

Limits follow flows where theory has no closed form, so they lie above them, and no flow imports
one. What a trajectory says of its limit is asked for here; `flowbias/__init__.py` says of whom.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.results.solution import Result


class AnyLimit(Protocol):
    """A Solution or a LiftedSolution."""

    @property
    def w(self) -> FloatArray: ...


LimitT = TypeVar("LimitT", bound=AnyLimit)


@dataclass
class Destination:
    """The limit of a flow from `model` on `problem`, a Solution or a LiftedSolution."""

    limit: Callable[[Any, Any], Any] | None = None

    def __call__(self, model: Any, problem: Any) -> Any:
        if self.limit is None:
            raise RuntimeError(
                "flows.destination: `limit` must be handed in before it is asked for"
            )
        return self.limit(model, problem)


destination = Destination()


class TowardsLimit(Result, Generic[LimitT]):
    """What flows and descents share: a limit, and how far from it they ended."""

    model: Any
    problem: Any

    @cached_property
    def limit(self) -> LimitT:
        """The limit of gradient flow from the same start."""
        solution: LimitT = destination(self.model, self.problem)
        return solution

    @property
    @abstractmethod
    def _end(self) -> FloatArray:
        """The predictor at the last time, or after the last step."""

    @property
    def distance_to_limit(self) -> float:
        """||w - limit|| / ||limit|| at the end: of a descent, what finite steps cost, too."""
        return relative_distance(self._end, self.limit.w)


def relative_distance(end: FloatArray, limit: FloatArray) -> float:
    """||end - limit|| / ||limit||."""
    return extended.length(end - limit) / (extended.length(limit) or 1.0)
