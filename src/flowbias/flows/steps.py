"""Steps of one length: what is asked for, how they end, and the loop that takes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from flowbias.flows.destination import LimitT, TowardsLimit
from flowbias.flows.journey import check_tolerance
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.drawing import course
from flowbias.ground.typing import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Growth of the residual from which gradient descent does not come back.
_HOPELESS = 1e6

StateT = TypeVar("StateT")


class DescentStatus(Enum):
    """How a descent ended."""

    CONVERGED = "converged: relative residual {residual:.1e} after {steps} steps"
    STOPPED = (
        "relative residual {residual:.1e} after {steps} steps: raise max_steps or step_size, or "
        "take limit(model, X, y), which does not iterate"
    )
    DIVERGED = (
        "diverged after {steps} steps: lower step_size = {step_size:g}; at the start it is stable "
        "below {stable:.2g}, and less where the weights grow"
    )

    @property
    def ok(self) -> bool:
        return self is not DescentStatus.DIVERGED


@dataclass(frozen=True)
class DescentRequest:
    """The arguments of `gradient_descent`, checked."""

    step_size: float
    max_steps: int
    loss: str | float
    residual: float

    def __post_init__(self) -> None:
        _check_steps(self.step_size, self.max_steps)
        check_tolerance("residual", self.residual)


def _check_steps(step_size: object, max_steps: object) -> None:
    size = as_float(step_size)
    if size is None or not 0.0 < size < np.inf:
        raise InputError(f"step_size: must be > 0 and finite, got {shown(step_size)}. Try 1e-3.")
    if isinstance(max_steps, bool) or not isinstance(max_steps, Integral) or max_steps < 1:
        raise InputError(
            f"max_steps: must be an integer >= 1, got {shown(max_steps)}. Try max_steps=100_000."
        )


@dataclass(frozen=True, eq=False, repr=False)
class BaseDescent(TowardsLimit[LimitT]):
    """Where gradient descent ended; residual[i] is the relative residual after i steps."""

    status: DescentStatus
    steps: int
    seconds: float
    residual: FloatArray
    step_size: float
    model: Any
    problem: Any

    @property
    @abstractmethod
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        return self.status.value.format(
            residual=self.residual[-1],
            steps=self.steps,
            step_size=self.step_size,
            stable=self.stable_step_size,
        )

    def _residuals(self, axes: Axes) -> None:
        """The residual after each step."""
        course(axes, np.arange(self.steps + 1.0), self.residual, label="relative residual")
        axes.set_xlabel("steps")
        axes.set_title(f"{self.status.name}, step size {self.step_size:.4g}")

    @abstractmethod
    def _looks(self) -> Mapping[str, str | float]:
        """What the end looks like."""

    def _facts(self) -> Mapping[str, str | float | None]:
        return {
            "steps": f"{self.steps}",
            "step size": self.step_size,
            "relative residual": float(self.residual[-1]),
            **self._looks(),
            "seconds": f"{self.seconds:.3g}",
        }

    def _about(self) -> str:
        """What only this kind of descent has, in a line."""
        return ""

    def _lines(self) -> tuple[str, ...]:
        return (f"{self._about()}seconds={self.seconds:.3g}",)


class Steps(NamedTuple):
    """The relative residual before the first step and after each, and how the last one ended."""

    residuals: list[float]
    status: DescentStatus


def take_steps(
    start: StateT,
    advance: Callable[[StateT], StateT],
    residual: Callable[[StateT], float],
    visit: Callable[[StateT], None],
    request: DescentRequest,
) -> Steps:
    """`advance` from the start until the residual is small; every state passed goes to `visit`.

    A step from which there is no coming back is not taken: what was visited is finite.
    """
    state, history = start, [residual(start)]
    visit(start)
    for _ in range(request.max_steps):
        if history[-1] <= request.residual:
            return Steps(history, DescentStatus.CONVERGED)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = advance(state)
            now = residual(moved)
        if not now < _HOPELESS * max(history[0], 1.0):
            return Steps(history, DescentStatus.DIVERGED)
        state = moved
        visit(state)
        history.append(now)
    converged = history[-1] <= request.residual
    return Steps(history, DescentStatus.CONVERGED if converged else DescentStatus.STOPPED)
