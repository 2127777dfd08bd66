"""The stepping loop, on integrators that misbehave on purpose."""

import numpy as np
import pytest
from scipy.integrate import LSODA

from flowbias.flows import FlowError, FlowStatus, flow
from flowbias.flows import march as marching
from flowbias.flows.march import Progress, march
from flowbias.models import DiagonalNet

X, Y = np.array([[1.0, 2.0, -1.0]]), np.array([1.0])


class Jumping(LSODA):
    """Leaves the solution at some time, as an implicit step can that accepts a bad root."""

    jump_after = 0.5

    def step(self):
        message = super().step()
        if self.t > self.jump_after:
            self.y = self.y + 1e3
        return message


class AlwaysJumping(Jumping):
    jump_after = 0.0


class Decay:
    """x' = -x; the first integrator is the given one, every later one is sound."""

    rtol = 1e-8
    first_step = 1e-4

    def __init__(self, *integrators):
        self.integrators, self.departures = list(integrators), []

    def depart(self, time, state, first_step):
        self.departures.append((time, first_step))
        kind = self.integrators.pop(0) if self.integrators else LSODA
        return kind(lambda t, x: -x, time, state, 5.0, first_step=first_step, rtol=1e-8, atol=1e-10)

    def progress(self, state):
        size = float(np.abs(state).max())
        return Progress(size, size, is_done=False, is_settled=False, is_within_error=False)

    def tighten(self):
        return False


def test_a_step_after_which_the_loss_has_risen_is_taken_back():
    journey = Decay(Jumping)
    curve = march(journey, np.array([1.0]))
    assert curve.failure is None
    assert len(journey.departures) == 2
    time, first_step = journey.departures[1]
    assert 0.0 < time <= 0.5
    assert first_step < 0.1
    # Ten steps of local error 1e-8 each, with room.
    assert abs(curve(np.array([5.0]))[0, 0] - np.exp(-5.0)) < 1e-6


def test_an_integrator_that_never_recovers_is_a_failure():
    journey = Decay(*[AlwaysJumping] * 100)
    curve = march(journey, np.array([1.0]))
    assert curve.failure == "the loss rises however short the step"
    assert curve.end == 0.0


def test_too_many_steps_is_a_failure():
    curve = march(Decay(), np.array([1.0]), max_steps=3)
    assert curve.failure == "3 steps were not enough"
    assert len(curve.pieces) == 3


def test_a_failed_flow_carries_its_trajectory_and_a_remedy(monkeypatch):
    monkeypatch.setattr(marching, "PATIENCE", 5)
    monkeypatch.setattr(marching, "FALL", 1.0)  # no fall is deep enough
    with pytest.raises(FlowError, match=r"not fallen for 6 steps.*limit") as caught:
        flow(DiagonalNet(2, 0.3), X, Y)
    partial = flow(DiagonalNet(2, 0.3), X, Y, throw=False)
    assert partial.status is FlowStatus.STOPPED
    assert partial.w.shape == caught.value.trajectory.w.shape
    assert not partial.status.ok
