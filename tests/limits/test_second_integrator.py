"""The integrator that limits by integration are held against."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from flowbias.flows.lifted import coordinates as lifted_coordinates
from flowbias.flows.lifted.coordinates import LiftedCoordinates
from flowbias.flows.lifted.flow import reduced_problem
from flowbias.limits import limit
from flowbias.limits.lifted import second_integrator
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.lifted import NarrowWarning
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.results.solution import Status


def regression(smallest):
    """Singular values of X from 1 down to this one."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((7, 4)))[0]
    X = np.geomspace(1.0, smallest, 4)[:, None] * basis.T
    net = LinearNet(0.5 * rng.standard_normal((7, 12)), 0.5 * rng.standard_normal((2, 12)))
    return net, MatrixRegression(X, X @ rng.standard_normal((7, 2)))


def completion(scale):
    rng = np.random.default_rng(1)
    truth = np.outer(rng.standard_normal(5), rng.standard_normal(5))
    places = rng.permutation(25)[:15]
    problem = MatrixCompletion(places // 5, places % 5, truth.ravel()[places], (5, 5))
    return MatrixFactorization.gaussian((5, 5), width=50, scale=scale, rng=0), problem


def coordinates_of(setting):
    return LiftedCoordinates(setting, 1.0)


def methods(setting):
    coordinates = coordinates_of(setting)
    return {
        "explicit": second_integrator._explicit(setting),
        "kernel": second_integrator._by_kernel(setting),
        "Hessian": second_integrator._by_hessian(coordinates, coordinates.jacobian),
    }


CASES = {"regression": regression(0.3), "completion": completion(0.3)}
EVERY = pytest.mark.parametrize("case", CASES)
EVERY_METHOD = pytest.mark.parametrize("name", ["explicit", "kernel", "Hessian"])


def followed(coordinates, end):
    """By SciPy alone, far below the tolerances here."""
    start = coordinates.start
    return solve_ivp(
        coordinates.velocity, (0.0, end), start, method="DOP853", rtol=3e-14, atol=1e-16
    ).y[:, -1]


@EVERY
@EVERY_METHOD
def test_it_follows_the_flow(case, name):
    setting = reduced_problem(*CASES[case])
    coordinates = coordinates_of(setting)
    extrapolation = second_integrator._Extrapolation(coordinates, methods(setting)[name], 1e-9)
    state = np.ravel(extrapolation.run(2.0, 1000))
    expected = followed(coordinates, 2.0)
    # Some tens of steps, each off by the tolerance of weights of order one.
    assert 0.0 < np.abs(state - expected).max() < 1e-7


def step_error(setting, name, length):
    """Of one extrapolated step from the start, its length in units of the fastest rate."""
    coordinates, weights = coordinates_of(setting), setting.compression.weights
    h = length / coordinates.fastest_rate(coordinates.start)
    ahead = second_integrator._extrapolated(weights, h, methods(setting)[name](weights))[0]
    return np.linalg.norm(np.ravel(ahead) - followed(coordinates, h))


@EVERY
def test_a_step_is_of_order_eight(case):
    setting = reduced_problem(*CASES[case])
    errors = [step_error(setting, "explicit", length) for length in (1.0, 0.5)]
    # Local errors go like the ninth power.
    assert 8.3 < np.log2(errors[0] / errors[1]) < 9.5


@EVERY
@pytest.mark.parametrize("name", ["kernel", "Hessian"])
def test_implicit_steps_may_be_longer_than_the_fastest_rate(case, name):
    setting = reduced_problem(*CASES[case])
    assert step_error(setting, name, 4.0) < 1e-3 * step_error(setting, "explicit", 4.0)
    # A table of order two would gain a factor of 8.
    assert step_error(setting, name, 1.0) < step_error(setting, name, 2.0) / 12.0


def test_blocks_of_a_regression_are_the_kernel():
    # The same problem measured entry by entry has one block, from the definition of the kernel.
    net, problem = regression(0.3)
    setting = reduced_problem(net, problem)
    weights, rows, h = setting.compression.weights, setting.compression.rows, 0.7
    upper, lower = weights[:rows], weights[rows:]
    r = np.random.default_rng(0).standard_normal(setting.fit.target.shape)
    blocks, turn = second_integrator._regression_kernel(setting.root, upper, lower)
    damped = second_integrator._damping(blocks, turn, h)(r)
    R = setting.fit.adjoint(damped)
    K_damped = setting.fit.measure(upper @ upper.T @ R + R @ lower @ lower.T)
    assert_allclose(damped + h * K_damped, r, rtol=0, atol=1e-13)
    dense = [np.outer(x, e) for x in problem.X for e in np.eye(2)]
    sensed = reduced_problem(net, MatrixSensing(np.array(dense), problem.Y.ravel()))
    Z, d = sensed.compression.weights, sensed.compression.rows
    block = second_integrator._kernel(sensed.fit, Z[:d], Z[d:])
    assert_allclose(
        np.linalg.eigvalsh(block), np.sort(np.ravel([np.linalg.eigvalsh(b) for b in blocks]))
    )


@pytest.mark.parametrize("smallest", [1e-3, 1e-6])
def test_rates_far_apart(smallest):
    solution = limit(*regression(smallest), tol=1e-7)
    assert solution.status is Status.INTEGRATED
    assert "LSODA and extrapolated implicit Euler steps" in solution.route
    assert solution.error < 1e-4


def test_more_unknowns_than_implicit_steps_of_the_first_are_for(monkeypatch):
    monkeypatch.setattr(lifted_coordinates, "FEW_UNKNOWNS", 0)
    solution = limit(*completion(2e-2))
    assert solution.status is Status.INTEGRATED
    assert "DOP853 and extrapolated implicit Euler steps" in solution.route
    assert solution.error < 1e-8


def test_few_steps_do_where_explicit_ones_are_held_back():
    model, problem = completion(1e-4)
    setting = reduced_problem(model, problem)
    begun = []
    method = methods(setting)["kernel"]

    def counted(weights):
        begun.append(1)
        return method(weights)

    # To where the fastest rate, of order ten, has passed 1e7 times.
    state = second_integrator._Extrapolation(coordinates_of(setting), counted, 1e-10).run(1e6, 1000)
    assert state is not None
    assert len(begun) < 200


def test_without_a_second_integrator_the_route_says_why(monkeypatch):
    monkeypatch.setattr(second_integrator, "_MOST_WORK", 1.0)
    solution = limit(*regression(0.3))
    assert solution.status is Status.INTEGRATED
    assert "DOP853 alone (another would take" in solution.message


@pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
def test_towards_rest_with_an_error_the_hessian_is_used(monkeypatch):
    used, by_hessian = [], second_integrator._by_hessian

    def recorded(*arguments):
        used.append(1)
        return by_hessian(*arguments)

    monkeypatch.setattr(second_integrator, "_by_hessian", recorded)
    rng = np.random.default_rng(3)
    problem = MatrixCompletion(*np.divmod(np.arange(9), 3), rng.standard_normal(9), (3, 3))
    model = MatrixFactorization(rng.standard_normal((3, 1)), rng.standard_normal((3, 1)))
    assert "not a fit" in limit(model, problem).route
    assert used


def test_tolerances_below_rounding_give_way():
    setting = reduced_problem(*CASES["regression"])
    coordinates, method = coordinates_of(setting), methods(setting)["explicit"]
    state = second_integrator._Extrapolation(coordinates, method, 1e-18).run(2.0, 40)
    assert_allclose(np.ravel(state), followed(coordinates, 2.0), rtol=0, atol=1e-9)
    # Up to a point.
    assert second_integrator._Extrapolation(coordinates, method, 1e-18).run(2.0, 1) is None


def test_steps_that_overflow_are_not_taken():
    U = np.array([[3, -1, 1], [1, 1, 0], [0, 0, -1], [0, 0, -2]]) / 100.0
    upper = {(0, 1): -79, (0, 2): 169, (0, 3): -38, (1, 2): -36, (1, 3): -22, (2, 3): 35}
    entries = upper | {(j, i): value for (i, j), value in upper.items()} | {(2, 2): 346, (3, 3): -4}
    values = np.array(list(entries.values())) / 100.0
    with pytest.warns(NarrowWarning):
        model = MatrixFactorization(U, U)
    problem = MatrixCompletion(*np.transpose(list(entries)), values, (4, 4))
    assert limit(model, problem).status is Status.INTEGRATED
