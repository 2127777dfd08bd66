"""Snapshots of trajectories against stored ones, on which two other integrators agree."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import flow
from flowbias.models import DiagonalNet

ORACLES = json.loads(
    (Path(__file__).parents[1] / "oracles" / "oracles.json").read_text(encoding="utf-8")
)
SNAPSHOTS = [
    pytest.param(problem, snapshot, id=f"{problem['id']}-{i}")
    for problem in ORACLES["problems"]
    for i, snapshot in enumerate(problem["trajectories_sum_of_squares_loss"])
]
# The stored trajectories are good to about 1e-12; ours to a few hundred local errors of 1e-11.
SNAPSHOT = 1e-8


@pytest.mark.parametrize("route", ["dual", "parameter"])
@pytest.mark.parametrize(("problem", "snapshot"), SNAPSHOTS)
def test_snapshot(problem, snapshot, route):
    model = DiagonalNet(snapshot["D"], snapshot["alpha"])
    trajectory = flow(model, problem["X"], problem["y"], t=[snapshot["t"]], loss="sum", route=route)
    assert trajectory.route == route
    assert_allclose(trajectory.w[0], snapshot["beta"], rtol=0, atol=SNAPSHOT)
    assert_allclose(trajectory.loss[0], snapshot["loss"], rtol=0, atol=SNAPSHOT)


@pytest.mark.parametrize("problem", ORACLES["problems"], ids=lambda problem: problem["id"])
def test_one_trajectory_serves_all_times(problem):
    snapshots = [s for s in problem["trajectories_sum_of_squares_loss"] if s["D"] == 2]
    snapshots = sorted((s for s in snapshots if s["alpha"] == 0.1), key=lambda s: s["t"])
    model = DiagonalNet(2, 0.1)
    times = [s["t"] for s in snapshots]
    expected = np.array([s["beta"] for s in snapshots])
    together = flow(model, problem["X"], problem["y"], t=times, loss="sum")
    assert_allclose(together.w, expected, rtol=0, atol=SNAPSHOT)
    # The same times from the dense output of a run that knew nothing of them.
    later = flow(model, problem["X"], problem["y"], t=[2.0 * times[-1]], loss="sum")
    assert_allclose(later.at(times), expected, rtol=0, atol=SNAPSHOT)
