"""In which variables a flow is followed: what a route has to offer to the integrator.

A state may run on an internal time tau = time_rate * t, so that the loss constant and the speed of
a parametrization cost no steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.integrate import BDF, LSODA, OdeSolver

from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters


def stiff_solver(time: float) -> Callable[..., OdeSolver]:
    """Who takes steps of a stiff flow: LSODA from the start on, BDF where it is taken up again.

    LSODA begins with explicit steps, and leaves them by their error: near rest that is rounding,
    and it would stay with steps as short as stability asks for, a million to the end of a flow.
    """
    return LSODA if time == 0.0 else BDF


class FlowCoordinates(ABC):
    """The flow of one model on one problem, as an initial value problem."""

    #: what `Trajectory.route` calls these coordinates
    name: str
    start: FloatArray
    time_rate: float

    def times(self, readings: FloatArray) -> FloatArray:
        """t at internal times."""
        return readings / self.time_rate

    def readings(self, times: FloatArray) -> FloatArray:
        """Internal times at t."""
        return times * self.time_rate

    def durations(self, readings: FloatArray) -> FloatArray:
        """t from each internal time of a curve to the next, the first from 0 on."""
        return np.diff(readings, prepend=0.0) / self.time_rate

    @abstractmethod
    def natural_scales(self) -> tuple[float, float]:
        """Size of the state and length of internal time at which something happens."""

    @abstractmethod
    def solver(
        self,
        time: float,
        state: FloatArray,
        end: float,
        first_step: float,
        rtol: float,
        atol: float,
    ) -> OdeSolver:
        """An integrator set at a state that goes no further than the internal time `end`."""

    @abstractmethod
    def predictor(self, states: FloatArray) -> FloatArray:
        """w at one state, or at each row of states."""

    @abstractmethod
    def parameters(self, state: FloatArray) -> Parameters:
        """The weights at one state."""

    def dual(self, states: FloatArray) -> FloatArray | None:
        """nu with grad Q(w) = shift + X^T nu; None for coordinates that do not know it."""
        return None

    def ahead(self, state: FloatArray) -> FloatArray:
        """What else than residuals falls while a flow gets on."""
        return np.zeros(0)

    def stage(self, state: FloatArray) -> bytes:
        """What falls is compared within a stage: another one may begin higher up."""
        return b""

    def undecided(self, states: list[FloatArray]) -> tuple[int, ...]:
        """Coordinates whose share of what they fit together the digits of states do not tell."""
        return ()

    def rounding(self, state: FloatArray) -> FloatArray:
        """How much of the misfit, row by row, the rounding of the state alone may cause."""
        return np.zeros(1)
