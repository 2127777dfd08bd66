"""The one loop: a solver is a step and an end, its state is data; the loop iterates and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from flowbias.limits.normal_equations import Effort


class Iterate(Protocol):
    """A state of a solver: frozen data, of which the loop knows what is left to solve."""

    @property
    def residual(self) -> float: ...


StateT = TypeVar("StateT", bound=Iterate)


class Iteration(NamedTuple, Generic[StateT]):
    """Where an iteration stands, the best it has seen, and how long it has been idle."""

    here: StateT
    best: StateT
    #: steps in a row that have not halved the best residual, once that is at rest
    idle: int = 0


class Solver(Protocol[StateT]):
    """What iterates: see `iterate`."""

    def terminate(self, progress: Iteration[StateT]) -> bool:
        """Whether to stop here."""

    def step(self, progress: Iteration[StateT]) -> StateT | None:
        """The next state; None where no step helps."""


def iterate(
    solver: Solver[StateT],
    start: StateT,
    effort: Effort,
    *,
    max_steps: int,
    rest: float = np.inf,
    watch: Callable[[int, StateT], None] | None = None,
) -> Iteration[StateT]:
    """Step until the solver is done, no step helps, or `max_steps` were taken; each is counted.

    A residual below `rest` is at rest: from there on steps that do not halve it are idle.
    """
    progress = Iteration(start, start)
    for _ in range(max_steps):
        if solver.terminate(progress):
            break
        effort.steps += 1
        here = solver.step(progress)
        if here is None:
            break
        if watch is not None:
            watch(effort.steps, here)
        best = progress.best
        # NaN compares false: it is no progress.
        is_idle = best.residual < rest and not here.residual <= 0.5 * best.residual
        better = here if here.residual < best.residual else best
        progress = Iteration(here, better, progress.idle + 1 if is_idle else 0)
    return progress
