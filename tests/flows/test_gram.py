"""Flows of products through a root of the Gram matrix: the flow of the weights, at any width."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import FlowError, FlowStatus, flow, gradient_descent
from flowbias.flows.lifted import coordinates as lifted_coordinates
from flowbias.flows.lifted.coordinates import LiftedCoordinates
from flowbias.flows.lifted.flow import reduced_problem
from flowbias.ground.arguments import InputError
from flowbias.limits import limit
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.lifted import LiftedModel, NarrowWarning
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.results.solution import Status
from tests.oracles import ORACLES

RNG = np.random.default_rng(12)
# A few hundred local errors of 1e-12, in products of order ten.
TIGHT = 1e-9
TIMES = np.array([0.01, 0.1, 0.5, 2.0, 8.0])


def completion(shape=(5, 4), entries=11):
    places = RNG.permutation(shape[0] * shape[1])[:entries]
    values = RNG.standard_normal(entries)
    return MatrixCompletion(places // shape[1], places % shape[1], values, shape)


def sensing(shape=(3, 4), count=5):
    return MatrixSensing(RNG.standard_normal((count, *shape)), RNG.standard_normal(count))


def gaussian(cls, shape, width, scale):
    return cls(
        scale * RNG.standard_normal((shape[0], width)),
        scale * RNG.standard_normal((shape[1], width)),
    )


REGRESSION = MatrixRegression(RNG.standard_normal((3, 6)), RNG.standard_normal((3, 2)))
INCONSISTENT = MatrixRegression(
    RNG.standard_normal((5, 2)) @ RNG.standard_normal((2, 4)), RNG.standard_normal((5, 2))
)
CASES = {
    "regression": (gaussian(LinearNet, (6, 2), 11, 0.5), REGRESSION),
    "regression, few units": (gaussian(LinearNet, (6, 2), 3, 0.5), REGRESSION),
    "layers of different size": (
        LinearNet(2.0 * RNG.standard_normal((6, 9)), 1e-3 * RNG.standard_normal((2, 9))),
        REGRESSION,
    ),
    "one layer zero": (LinearNet(RNG.standard_normal((6, 9)), np.zeros((2, 9))), REGRESSION),
    "outputs out of range": (gaussian(LinearNet, (4, 2), 9, 0.5), INCONSISTENT),
    "completion": (gaussian(MatrixFactorization, (5, 4), 20, 0.2), completion()),
    "completion, few units": (gaussian(MatrixFactorization, (5, 4), 4, 0.5), completion()),
    "identity": (MatrixFactorization.identity((4, 4), scale=0.3), completion((4, 4), 9)),
    "sensing": (gaussian(MatrixFactorization, (3, 4), 15, 0.3), sensing()),
    "symmetric": (
        MatrixFactorization.symmetric(0.4 * RNG.standard_normal((4, 9))),
        sensing((4, 4), 5),
    ),
}
EVERY_CASE = pytest.mark.parametrize(("model", "problem"), CASES.values(), ids=CASES.keys())


@pytest.mark.parametrize("problem", ORACLES["problems"], ids=lambda problem: problem["id"])
@pytest.mark.parametrize("route", ["gram", "parameter"])
def test_stored_snapshots(problem, route):
    stored = problem["linear_net"]
    net = LinearNet(stored["U0"], stored["V0"])
    times = [snapshot["t"] for snapshot in stored["snapshots"]]
    trajectory = flow(net, problem["X"], stored["Y"], t=times, route=route)
    for M, loss, snapshot in zip(trajectory.M, trajectory.loss, stored["snapshots"], strict=True):
        assert_allclose(M, snapshot["UVt"], rtol=0, atol=TIGHT)
        assert_allclose(loss, snapshot["loss"], rtol=0, atol=TIGHT)


@pytest.mark.parametrize("problem", ORACLES["problems"], ids=lambda problem: problem["id"])
def test_stored_weights_at_the_end(problem):
    stored = problem["linear_net"]
    net = LinearNet(stored["U0"], stored["V0"])
    trajectory = flow(net, problem["X"], stored["Y"], residual=1e-11)
    assert_allclose(trajectory.M[-1], stored["UVt_inf"], rtol=0, atol=TIGHT)
    assert_allclose(trajectory.factors(-1).V, stored["V_inf"], rtol=0, atol=TIGHT)


@EVERY_CASE
def test_the_root_follows_the_weights(model, problem):
    gram = flow(model, problem, t=TIMES, route="gram", rtol=1e-12)
    weights = flow(model, problem, t=TIMES, route="parameter", rtol=1e-12)
    assert_allclose(gram.M, weights.M, rtol=0, atol=TIGHT)
    assert_allclose(gram.loss, weights.loss, rtol=1e-8, atol=TIGHT)
    for i in range(len(TIMES)):
        assert_allclose(gram.gram(i), weights.gram(i), rtol=0, atol=10 * TIGHT)
        for a, b in zip(gram.factors(i), weights.factors(i), strict=True):
            assert_allclose(a, b, rtol=0, atol=TIGHT)
    for trajectory in (gram, weights):
        assert trajectory.imbalance_drift < 1e-10
    # Not by standing still.
    assert np.abs(gram.M[-1] - model.product).max() > 1e-2


@EVERY_CASE
def test_weights_obey_the_flow(model, problem):
    # Against the equation itself, by differences: Z' = -c rate A Z with nothing reduced.
    h, c = 1e-4, 2.0
    times = [0.3 - h, 0.3, 0.3 + h]
    trajectory = flow(model, problem, t=times, loss=c, route="gram", rtol=1e-12)
    before, now, after = (trajectory.factors(i) for i in range(3))
    lifted = model.lifted_problem(problem)
    R = lifted.adjoint(lifted.measure(now.U @ now.V.T) - lifted.target)
    pulls = (-c * model.rate * R @ now.V, -c * model.rate * R.T @ now.U)
    for early, late, pull in zip(before, after, pulls, strict=True):
        # Third derivatives times h^2, of rates up to a few hundred.
        assert_allclose((late - early) / (2 * h), pull, rtol=0, atol=1e-3 * np.abs(pull).max())


@EVERY_CASE
def test_to_a_residual(model, problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowWarning)
        trajectory = flow(model, problem, route="gram", residual=1e-7)
    assert trajectory.status is FlowStatus.CONVERGED
    assert trajectory.residual[-1] <= 1e-7 < trajectory.residual[-2]
    assert np.all(np.diff(trajectory.loss) <= 1e-12 * trajectory.loss[0])
    assert "converged" in repr(trajectory)


@pytest.mark.parametrize("width", [40, 4000])
def test_unknowns_do_not_depend_on_the_width(width):
    problem = completion()
    model = MatrixFactorization.gaussian((5, 4), width=width, scale=0.1, rng=0)
    trajectory = flow(model, problem, t=[1.0])
    assert trajectory._compression.weights.shape == (9, 9)
    net = LinearNet.gaussian(6, 2, width=width, scale=0.1, rng=0)
    assert flow(net, REGRESSION, t=[1.0])._compression.weights.shape == (5, 5)


def test_a_start_of_low_rank_has_few_unknowns():
    net = LinearNet.balanced(RNG.standard_normal((6, 2)), REGRESSION.X, width=50, rng=0)
    assert flow(net, REGRESSION, t=[1.0])._compression.weights.shape == (5, 2)


def test_only_the_gram_matrix_counts():
    model, problem = CASES["regression"]
    turn = np.linalg.qr(RNG.standard_normal((11, 11)))[0]
    U, V = model.factors
    turned = flow(LinearNet(U @ turn, V @ turn), problem, t=TIMES)
    wider = np.hstack([U, np.zeros((6, 5))]), np.hstack([V, np.zeros((2, 5))])
    M = flow(model, problem, t=TIMES).M
    assert_allclose(turned.M, M, rtol=0, atol=TIGHT)
    assert_allclose(flow(LinearNet(*wider), problem, t=TIMES).M, M, rtol=0, atol=TIGHT)
    # Without weights altogether: from a root alone.
    bare = LinearNet._from_root(model.root, model.shape, model.width)
    trajectory = flow(bare, problem, t=TIMES)
    assert_allclose(trajectory.M, M, rtol=0, atol=TIGHT)
    with pytest.raises(InputError, match="FACTORS"):
        trajectory.factors(0)
    with pytest.raises(InputError, match="FACTORS"):
        flow(bare, problem, route="parameter")


def test_what_the_data_does_not_see_never_moves():
    model, problem = CASES["regression"]
    P2 = problem.spectrum.P2
    trajectory = flow(model, problem)
    assert_allclose(P2.T @ trajectory.factors(-1).U, P2.T @ model.factors.U, rtol=0, atol=1e-13)


def test_metamorphic():
    model, problem = CASES["regression"]
    M = flow(model, problem, t=TIMES).M
    turn = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    rotated = MatrixRegression(turn @ problem.X, turn @ problem.Y)
    assert_allclose(flow(model, rotated, t=TIMES).M, M, rtol=0, atol=TIGHT)
    # Two copies of the data at half the loss; a clock twice as fast.
    twice = MatrixRegression(np.tile(problem.X, (2, 1)), np.tile(problem.Y, (2, 1)))
    assert_allclose(flow(model, twice, t=TIMES, loss=0.5).M, M, rtol=0, atol=TIGHT)
    assert_allclose(flow(model, problem, t=TIMES / 2, loss="sum").M, M, rtol=0, atol=TIGHT)
    assert_allclose(flow(model, problem, t=3 * TIMES, loss="half_mean").M, M, rtol=0, atol=TIGHT)
    # Outputs in another order, features in another basis.
    U, V = model.factors
    swapped = flow(LinearNet(U, V[::-1]), problem.X, problem.Y[:, ::-1], t=TIMES)
    assert_allclose(swapped.M, M[:, :, ::-1], rtol=0, atol=TIGHT)
    basis = np.linalg.qr(RNG.standard_normal((6, 6)))[0]
    turned = flow(LinearNet(basis @ U, V), problem.X @ basis.T, problem.Y, t=TIMES)
    assert_allclose(turned.M, basis @ M, rtol=0, atol=TIGHT)
    # A problem measured entry by entry is the same problem.
    units = np.eye(6)
    matrices = [np.outer(x, e) for x in problem.X for e in units[:2, :2]]
    sensed = MatrixSensing(np.array(matrices), problem.Y.ravel())
    assert_allclose(flow(model, sensed, t=TIMES).M, M, rtol=0, atol=TIGHT)


def test_between_steps():
    model, problem = CASES["completion"]
    trajectory = flow(model, problem)
    middle = (trajectory.t[1:] + trajectory.t[:-1])[::5] / 2
    there = flow(model, problem, t=middle, rtol=1e-12).M
    assert_allclose(trajectory.at(middle), there, rtol=0, atol=TIGHT)
    assert trajectory.at(0.0).shape == (5, 4)
    assert_allclose(trajectory.at(trajectory.t[3]), trajectory.M[3], rtol=0, atol=0)
    with pytest.raises(InputError, match="t: must lie in"):
        trajectory.at(2.0 * trajectory.t_end)


@pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
def test_a_narrow_net_ends_at_the_best_fit_of_its_rank():
    X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
    net = gaussian(LinearNet, (4, 3), 2, 0.5)
    trajectory = flow(net, X, Y)
    left, values, right = np.linalg.svd(np.linalg.qr(X)[0].T @ Y)
    best = np.linalg.qr(X)[0] @ (left[:, :2] * values[:2]) @ right[:2]
    assert_allclose(X @ trajectory.M[-1], best, rtol=0, atol=1e-7)
    assert np.linalg.matrix_rank(trajectory.M[-1], tol=1e-8) == 2


@pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
def test_a_narrow_factorization_that_cannot_fit_says_so():
    problem = MatrixCompletion(*np.divmod(np.arange(9), 3), RNG.standard_normal(9), (3, 3))
    model = gaussian(MatrixFactorization, (3, 3), 1, 0.5)
    with pytest.raises(FlowError, match="start wider"):
        flow(model, problem)
    stopped = flow(model, problem, throw=False)
    assert stopped.status is FlowStatus.STOPPED
    assert flow(model, problem, t=[5.0]).status is FlowStatus.FOLLOWED


@pytest.mark.parametrize("scale", [1e-2, 1e-5])
def test_small_starts(scale):
    # Starts this small wait for log(1/scale) and pass saddles on their way.
    problem = completion((4, 4), 12)
    model = gaussian(MatrixFactorization, (4, 4), 30, scale)
    times = np.log(1.0 / scale) * np.array([0.5, 1.0, 2.0])
    gram = flow(model, problem, t=times, rtol=1e-12)
    weights = flow(model, problem, t=times, route="parameter", rtol=1e-13)
    # Relative, also while the product is of the size of the start.
    for a, b in zip(gram.M, weights.M, strict=True):
        assert np.linalg.norm(a - b) <= TIGHT * np.linalg.norm(b)
    assert gram.imbalance_drift < 1e-10


def test_rates_far_apart_are_followed_by_implicit_steps():
    basis = np.linalg.qr(RNG.standard_normal((5, 3)))[0]
    X = np.array([1.0, 0.1, 0.02])[:, None] * basis.T
    net = gaussian(LinearNet, (5, 1), 6, 0.7)
    Y = X @ RNG.standard_normal(5)
    trajectory = flow(net, X, Y)
    assert trajectory.status is FlowStatus.CONVERGED
    assert trajectory.stats.steps < 3000  # explicit ones would be ten times as many
    assert trajectory.imbalance_drift < 1e-8
    explicit = flow(net, X, Y, t=[50.0], route="parameter", rtol=1e-12)
    assert_allclose(trajectory.at(50.0), explicit.M[0], rtol=0, atol=1e-8)


def test_residuals_far_below_the_tolerance_of_a_step(monkeypatch):
    # Explicit steps at the limit of stability would keep the residual at their error times G.
    monkeypatch.setattr(lifted_coordinates, "FEW_UNKNOWNS", 0)
    model = gaussian(LinearNet, (6, 2), 300, 1.0)
    trajectory = flow(model, REGRESSION, residual=1e-12, route="gram")
    assert trajectory.status is FlowStatus.CONVERGED


def test_a_start_that_fits_stays():
    model = gaussian(LinearNet, (6, 2), 8, 0.5)
    X = RNG.standard_normal((3, 6))
    trajectory = flow(model, X, X @ model.product)
    assert trajectory.t_end == np.inf
    assert_allclose(trajectory.M[-1], model.product, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-3])
def test_outputs_that_the_data_cannot_reach_are_a_target_of_zero(scale):
    # Not of rounding, relative to which a flow would have no end.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 3))
    Y = np.linalg.qr(X, mode="complete")[0][:, 3:] @ rng.standard_normal((3, 2))
    model = LinearNet(scale * rng.standard_normal((3, 8)), scale * rng.standard_normal((2, 8)))
    trajectory, zero = (flow(model, X, outputs, route="gram") for outputs in (Y, 0.0 * Y))
    assert trajectory.status is FlowStatus.CONVERGED
    assert_allclose(trajectory.t_end, zero.t_end, rtol=1e-6)
    # To the residual that flows end at by default.
    assert np.linalg.norm(X @ trajectory.M[-1]) <= 1e-8 * np.linalg.norm(X @ model.product)


def test_bad_input():
    model, problem = CASES["regression"]
    with pytest.raises(InputError, match="route: must be one of 'closed form', 'gram'"):
        flow(model, problem, route="dual")
    with pytest.raises(InputError, match="equal singular values"):
        flow(model, problem, route="closed form")
    with pytest.raises(InputError, match="model's shape"):
        flow(model, np.ones((3, 5)), np.ones((3, 2)))
    with pytest.raises(InputError, match="Y: must be given"):
        flow(model, problem.X)
    with pytest.raises(InputError, match="residual"):
        flow(model, problem, residual=2.0)


def test_a_users_product_joins_by_declaring():
    class Mine(LiftedModel):
        pass

    U, V = CASES["regression"][0].factors
    M = flow(Mine(U, V), REGRESSION, t=[1.0]).M
    assert_allclose(M, flow(LinearNet(U, V), REGRESSION, t=[1.0]).M, rtol=0, atol=0)


@EVERY_CASE
def test_the_jacobian_is_the_derivative(model, problem):
    setting = reduced_problem(model, problem)
    coordinates = LiftedCoordinates(setting, 1.0)
    state = coordinates.start + 0.1 * RNG.standard_normal(coordinates.start.size)
    jacobian = coordinates.jacobian(0.0, state)
    assert_allclose(jacobian, jacobian.T, rtol=0, atol=1e-13 * np.abs(jacobian).max())
    direction = RNG.standard_normal(state.size)
    h = 1e-5
    ahead, behind = (coordinates.velocity(0.0, state + s * h * direction) for s in (1, -1))
    # The velocity is cubic: the error of a central difference is h^2 times its third derivative.
    difference = (ahead - behind) / (2 * h)
    assert_allclose(jacobian @ direction, difference, rtol=0, atol=1e-7 * np.abs(difference).max())


def test_explicit_steps_held_back_by_stability_give_way(monkeypatch):
    # Entries that decide what the last mode does are seen through weights of the start's size.
    rng = np.random.default_rng(1)
    low_rank = rng.standard_normal((5, 1)) @ rng.standard_normal((1, 5))
    places = rng.permutation(25)[:18]
    problem = MatrixCompletion(places // 5, places % 5, low_rank.ravel()[places], (5, 5))
    model = MatrixFactorization.gaussian((5, 5), width=12, scale=1e-3, rng=0)
    trajectory = flow(model, problem)
    assert trajectory.status is FlowStatus.CONVERGED
    assert trajectory.stats.jacobians > 0
    assert trajectory.imbalance_drift < 1e-8
    # The same flow with explicit steps all the way, as far as they get in a moment.
    later = trajectory.t[400]
    monkeypatch.setattr(lifted_coordinates, "FEW_UNKNOWNS", 0)
    explicit = flow(model, problem, t=[later / 2, later], rtol=1e-11)
    assert explicit.stats.jacobians == 0
    assert_allclose(trajectory.at([later / 2, later]), explicit.M, rtol=0, atol=1e-8)


def test_one_factor_used_twice_does_not_come_apart():
    """W W^T of rank one ends at the best one, which is a saddle of U V^T.

    What rounding sets apart of U and V grows like e^(4.1 t) there, the largest eigenvalue of M - T
    being 2.05: from 1e-16 to the size of W in nine units of time.
    """
    T = np.diag([0.9, -0.8, 0.1, 0.9])
    T[0, 1] = T[1, 0] = 1.2
    T[1, 3] = T[3, 1] = -1.5
    problem = MatrixCompletion(*np.divmod(np.arange(16), 4), np.ravel(T), (4, 4))
    with pytest.warns(NarrowWarning):
        model = MatrixFactorization.symmetric([[-0.3], [0.3], [-0.2], [-0.2]])
    values, vectors = np.linalg.eigh(T)
    best = values[-1] * np.outer(vectors[:, -1], vectors[:, -1])
    # The next eigenvalue is 1.25 below: nothing is left of the way there, and rounding is damped.
    assert_allclose(flow(model, problem, t=[30.0]).w[-1], best, atol=1e-9)
    assert_allclose(gradient_descent(model, problem, step_size=0.05).M, best, atol=1e-9)
    solution = limit(model, problem)
    assert (solution.status, solution.is_rest) == (Status.INTEGRATED, True)
    assert_allclose(solution.M, best, atol=solution.certificate.error)
