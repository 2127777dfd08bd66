"""Any scale of the start: from the kernel regime to starts whose square underflows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.datasets import sparse_regression
from flowbias.flows import flow
from flowbias.flows.coordinates import FOREVER
from flowbias.flows.driver import SHORTER, take_step
from flowbias.flows.request import TIGHTEST
from flowbias.ground.arguments import InputError
from flowbias.models import DiagonalNet

SMALL = sparse_regression(n=10, d=30, sparsity=2, rng=1)
# Residual 1e-8 times the condition number of the last Jacobian, which grows as the start shrinks.
AT_LIMIT = 1e-6


@pytest.mark.parametrize(
    ("depth", "scale"),
    [(2, 10.0), (2, 1e-2), (2, 1e-8), (3, 0.01), (5, 0.1)],
)
def test_benchmark_problem(benchmark_problem, depth, scale):
    X, y, _ = benchmark_problem
    trajectory = flow(DiagonalNet(depth, scale), X, y)
    assert trajectory.residual[-1] <= 1e-8
    assert trajectory.distance_to_limit < AT_LIMIT


def test_near_rest_a_flow_is_taken_up_again_where_it_was(benchmark_problem):
    # As the driver does where a tolerance stands in the way. From some of the states, which ones
    # rounding decides, LSODA would go on in explicit steps: a million of them.
    trajectory = flow(DiagonalNet(5, 0.1), *benchmark_problem[:2])
    curve, coordinates, fit = trajectory._curve, trajectory._coordinates, trajectory._fit
    size, _ = coordinates.natural_scales()
    near = np.flatnonzero(trajectory.residual < 1e-5)[:-1]
    for k in near[:: len(near) // 12]:
        for rtol in (1e2 * TIGHTEST, TIGHTEST):
            step = SHORTER * (curve.times[k] - curve.times[k - 1])
            state = curve.times[k], curve.states[k]
            options = {"first_step": step, "rtol": rtol, "atol": rtol * size}
            solver = coordinates.solver(*state, FOREVER, **options)
            # The last digits take fewer steps than all of the way did.
            for _ in trajectory.t:
                assert take_step(solver) is None
                if fit.residual(coordinates.predictor(solver.y)) <= 1e-8:
                    break
            else:
                pytest.fail(f"held up at a residual of {trajectory.residual[k]:.1e}")


@pytest.mark.parametrize("log_scale", [300.0, 50.0, 5.0, -5.0, -50.0, -300.0, -700.0, -2000.0])
def test_depth_two_at_any_scale(log_scale):
    trajectory = flow(DiagonalNet(2, log_scale=log_scale), SMALL.X, SMALL.y)
    assert trajectory.distance_to_limit < AT_LIMIT


@pytest.mark.parametrize(
    ("depth", "scale"), [(3, 1e3), (3, 1e-4), (4, 1e-2), (10, 0.3), (2.1, 1e-3), (2.001, 0.1)]
)
def test_deeper_networks(depth, scale):
    trajectory = flow(DiagonalNet(depth, scale), SMALL.X, SMALL.y)
    assert trajectory.distance_to_limit < AT_LIMIT


def test_rich_flow_waits_for_the_logarithm_of_the_scale():
    # Near the start z grows linearly, so that half of the loss is left at a time ~ log(1/scale).
    def half_time(log_scale):
        trajectory = flow(DiagonalNet(2, log_scale=log_scale), SMALL.X, SMALL.y)
        return trajectory.t[np.argmax(trajectory.residual < 0.7)]

    assert_allclose(half_time(-400.0) / half_time(-200.0), 2.0, rtol=0.05)


@pytest.mark.parametrize("route", ["dual", "parameter"])
@pytest.mark.parametrize("unit", [1e150, 1e307])
def test_data_whose_rates_overflow_are_refused(route, unit):
    with pytest.raises(InputError, match=r"X.*: must leave the (rates of the flow|flow's speed)"):
        flow(DiagonalNet(2, 1.0), unit * SMALL.X, SMALL.y, route=route)


def test_units_of_the_data_are_those_of_the_clock():
    # X and y in units u: the same predictors at times u^2 sooner, far from where u^2 overflows.
    t, unit = np.array([0.1, 1.0]), 2.0**450
    here = flow(DiagonalNet(2, 0.3), SMALL.X, SMALL.y, t=t).w
    there = flow(DiagonalNet(2, 0.3), unit * SMALL.X, unit * SMALL.y, t=t / unit**2).w
    assert_allclose(there, here, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("depth", "log_scale"), [(2, 1e3), (5, -1e4)])
def test_a_clock_that_overflows_says_so(depth, log_scale):
    with pytest.raises(InputError, match="must give times within the double range"):
        flow(DiagonalNet(depth, log_scale=log_scale), SMALL.X, SMALL.y)
