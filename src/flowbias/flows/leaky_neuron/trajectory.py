"""What `flow` returns for a leaky ReLU neuron: its weights over time, and where samples switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.leaky_neuron.convergence import is_sure_to_fit
from flowbias.flows.leaky_neuron.field import LeakyStart, activation
from flowbias.flows.leaky_neuron.march import LeakyCurve
from flowbias.flows.trajectory import BaseTrajectory
from flowbias.ground.drawing import Panel
from flowbias.ground.html import coefficients
from flowbias.ground.look import GREY
from flowbias.ground.typing import FloatArray
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Switch(NamedTuple):
    """Samples whose activation changes at time t; sides before and after, 0 for sliding."""

    t: float
    samples: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LeakyTrajectory(BaseTrajectory[Solution]):
    """Gradient flow of a sigma(<w, x>) at times t; w[i] is a times the inner weights at t[i]."""

    problem: Regression
    _states: FloatArray = field(repr=False)
    _start: LeakyStart = field(repr=False)
    _curve: LeakyCurve = field(repr=False)

    #: the unknowns (a, p) within one pattern of activations after the other
    route: ClassVar[str] = "patterns"
    stopped: ClassVar[str] = (
        "stopped at t = {t:.4g} with relative residual {residual:.1e}: {reason}. Pass times "
        "t=[...], change rtol, or start elsewhere"
    )

    @property
    def a(self) -> FloatArray:
        """Outer weights, (len(t),)."""
        return self._states[:, 0]

    @cached_property
    def inner(self) -> FloatArray:
        """Inner weights of the neuron, (len(t), d)."""
        return self._start.weights(self._states)

    @cached_property
    def w(self) -> FloatArray:
        """a times the inner weights, (len(t), d): what the limit is stated for."""
        return self.a[:, None] * self.inner

    @cached_property
    def residuals(self) -> FloatArray:
        """r_n = a sigma(<w, x_n>) - y_n at each t, (len(t), n)."""
        fitted = activation(self.inner @ self.problem.X.T, self._start.slope)
        return np.asarray(self.a[:, None] * fitted - self.problem.y)

    @property
    def _misfits(self) -> FloatArray:
        return self.residuals

    @cached_property
    def residual(self) -> FloatArray:
        """||r|| / ||y|| at each t; where y = 0 relative to the first one."""
        return np.asarray(np.linalg.norm(self.residuals, axis=1) / self._start.misfit_scale)

    @cached_property
    def segments(self) -> tuple[tuple[float, NDArray[np.int8]], ...]:
        """Time from which on, and sides of all samples: +1, -1, or 0 where it slides."""
        return tuple(
            (part.start / self.loss_constant, self._start.sides_of_data(part.sides))
            for part in self._curve.segments
        )

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Changes of the pattern, in order."""
        pairs = zip(self.segments[:-1], self.segments[1:], strict=True)
        return tuple(_switch(before, *after) for (_, before), after in pairs)

    @property
    def slides(self) -> bool:
        """Whether the flow was held at a kink for some of the time."""
        return any(bool((sides == 0).any()) for _, sides in self.segments)

    def pattern(self, t: float) -> NDArray[np.int8]:
        """Sides of all samples at one time, those after the switch at a time of one."""
        self._within(np.array([t]))
        starts = [start for start, _ in self.segments]
        return self.segments[max(int(np.searchsorted(starts, t, side="right")) - 1, 0)][1]

    @property
    def t_end(self) -> float:
        """How far the flow was followed; infinite where it has come to rest."""
        return np.inf if self._curve.settled else self._curve.end / self.loss_constant

    def _predictors(self, times: FloatArray) -> FloatArray:
        states = self._states_at(times)
        return np.asarray(states[:, :1] * self._start.weights(states))

    def parameters(self, t: float) -> tuple[float, FloatArray]:
        """(a, w): the outer and the inner weights at one time."""
        state = self._states_at(self._within(np.array([t], dtype=np.float64)))[0]
        return float(state[0]), self._start.weights(state)

    @cached_property
    def conserved_drift(self) -> float:
        """Largest change of a^2 - ||w||^2 over t, relative to the terms it is a difference of."""
        inner = np.sum(np.square(self.inner), axis=1)
        drift = np.abs(self.a**2 - inner - self._start.delta)
        return float(np.max(drift / np.maximum(self.a**2 + inner, abs(self._start.delta))))

    @property
    def is_sure_to_fit(self) -> bool:
        """Whether the flow through the last state is proved to converge to zero loss."""
        return is_sure_to_fit(self._start, self._states[-1])

    @property
    def last_state(self) -> FloatArray:
        """(a, p) at the last time, w = w(0) + V p."""
        return np.asarray(self._states[-1])

    @property
    def failure(self) -> str | None:
        """Why the flow was not followed to its end."""
        return self._curve.failure

    @property
    def _numbers(self) -> Mapping[str, Any]:
        return {"residual": float(self.residual[-1])}

    def _states_at(self, times: FloatArray) -> FloatArray:
        return self._curve(times * self.loss_constant)

    def _panels(self) -> tuple[Panel, ...]:
        """Coefficients, with the switches as thin lines, and loss over time."""
        over_time, loss = self._over_time(self.w, label="coefficient  a w", symbol="w")

        def with_switches(axes: Axes) -> None:
            over_time(axes)
            for switch in self.switches:
                if switch.t > 0.0:
                    axes.axvline(switch.t, color=GREY, linewidth=0.9, linestyle=":")

        return with_switches, loss

    def _looks(self) -> Mapping[str, str | float]:
        switches: dict[str, str | float] = {
            "slope": self._start.slope,
            "switches": f"{len(self.switches)}{', held at a kink' if self.slides else ''}",
        }
        return {**switches, **coefficients(self.w[-1])}

    def _about(self) -> str:
        slid = ", slides" if self.slides else ""
        return (
            f"slope={self._start.slope:g}, unknowns={self._states.shape[1]}, "
            f"{len(self.switches)} switches{slid}, "
        )


def _switch(before: NDArray[np.int8], t: float, after: NDArray[np.int8]) -> Switch:
    changed = np.flatnonzero(before != after)
    sides = (tuple(int(side) for side in part[changed]) for part in (before, after))
    return Switch(t, tuple(int(n) for n in changed), *sides)
