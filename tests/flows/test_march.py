"""The stepping loop, on integrators that misbehave on purpose."""

import numpy as np
import pytest
from scipy.integrate import LSODA

from flowbias.flows import FlowError, FlowStatus, flow
from flowbias.flows import march as marching
from flowbias.flows.march import FlowProgress, march, take_step
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
        return FlowProgress(
            size, np.array([size]), is_done=False, is_settled=False, is_within_error=False
        )

    def tighten(self):
        return False

    def is_rounding(self, state):
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


def test_at_its_nodes_the_curve_is_exact():
    curve = march(Decay(), np.array([1.0, 1e-3]))
    assert np.array_equal(curve(np.array(curve.times)), np.array(curve.states))


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


@pytest.mark.parametrize(
    ("seed", "residual", "status"), [(2, 1e-8, "CONVERGED"), (1, 1e-12, "AT_REST")]
)
def test_uneven_starts_of_deep_networks(seed, residual, status):
    # Speeds a^8 with a over a factor 25: tolerances relative to nu are too loose for the fast
    # features and get tightened; with seed 1 even the last digit of nu is, at about 1e-6.
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((4, 6)), rng.standard_normal(4)
    model = DiagonalNet(5, 3.0, w0=np.logspace(-0.7, 0.7, 6))
    trajectory = flow(model, X, y, residual=residual)
    assert trajectory.status is FlowStatus[status]
    assert trajectory.distance_to_limit < 1e-5


def test_a_residual_below_rounding_is_at_rest():
    trajectory = flow(DiagonalNet(2, 0.3), X, Y, residual=1e-17)
    assert trajectory.status in (FlowStatus.AT_REST, FlowStatus.CONVERGED)
    assert trajectory.residual[-1] < 1e-12
    assert trajectory.t_end == np.inf


def test_a_failed_flow_ends_where_it_stopped(monkeypatch):
    monkeypatch.setattr(marching, "MAX_RETRIES", 0)
    monkeypatch.setattr(marching, "RISE", 0.0)
    partial = flow(DiagonalNet(2, 0.3), X, Y, t=[0.0, 1e-6, 0.5, 1.0], throw=False)
    assert partial.status is FlowStatus.STOPPED
    assert partial.t[-1] < 1.0
    assert len(partial.w) == len(partial.t)


def test_a_step_that_does_not_move_is_a_failure():
    """Times of an interpolant must increase; a solver may call a step of length zero a success."""

    class Stuck:
        t, status = 1.0, "running"

        def step(self):
            return None

    assert "spacing" in take_step(Stuck())
