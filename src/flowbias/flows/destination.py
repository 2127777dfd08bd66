"""Where a flow ends: `limit`, handed in by the front door.

Limits follow flows where theory has no closed form, so they lie above them, and no flow imports
one. What a trajectory says of its limit is asked for here; `flowbias/__init__.py` says of whom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
