"""A flow is not disturbed by another one that runs in the middle of it.

Threads take turns where they like; here the model hands over to the other, and waits for it.
"""

from threading import Thread

import numpy as np

from flowbias.flows import flow
from flowbias.models import DiagonalNet

X, Y, TIMES = [[1.0, 2.0, -1.0]], [1.0], [0.1, 1.0, 10.0]
# In the middle of a step, and in the middle of different ones.
EVERY = 7


class Interrupted(DiagonalNet):
    """Now and then lets a flow in another thread run from start to end before it answers."""

    calls = 0

    def predictor(self, parameters):
        self.calls += 1
        if self.calls % EVERY == 0:
            other = Thread(target=run_another)
            other.start()
            other.join()
        return super().predictor(parameters)


def run_another():
    flow(DiagonalNet(depth=2, scale=1.0), [[1.0, 1.0]], [2.0], t=[1.0], route="parameter")


def test_a_flow_in_the_middle_of_another_changes_nothing():
    """LSODA of SciPy before 1.17 has one state for all: refused, ended or led astray."""
    alone, interrupted = (
        flow(model(depth=2, scale=0.1), X, Y, t=TIMES, route="parameter")
        for model in (DiagonalNet, Interrupted)
    )
    np.testing.assert_array_equal(interrupted.w, alone.w)
