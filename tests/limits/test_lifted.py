"""Limits of products: exact where theory gives them, integrated and saying so elsewhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.flows import flow
from flowbias.flows.lifted.flow import reduced_problem
from flowbias.ground.arguments import InputError
from flowbias.limits import limit
from flowbias.limits.lifted.limit import guaranteed_rate
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.results.solution import SolveError, Status
from tests.oracles import ORACLES

RNG = np.random.default_rng(8)
X, Y = RNG.standard_normal((3, 7)), RNG.standard_normal((3, 2))
PROBLEM = MatrixRegression(X, Y)
pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")


def weights(d, m, width, scale=0.5):
    return scale * RNG.standard_normal((d, width)), scale * RNG.standard_normal((m, width))


@pytest.mark.parametrize("problem", ORACLES["problems"], ids=lambda problem: problem["id"])
def test_stored_limits(problem):
    stored = problem["linear_net"]
    solution = limit(LinearNet(stored["U0"], stored["V0"]), problem["X"], stored["Y"])
    assert_allclose(solution.M, stored["UVt_inf"], rtol=0, atol=1e-11)
    assert solution.status is Status.INTEGRATED
    assert "two tolerances" in solution.message
    assert "DOP853 and extrapolated" in solution.route
    # The estimate covers the error, and is no excuse.
    true_error = np.linalg.norm(solution.M - stored["UVt_inf"])
    assert true_error <= solution.error + 1e-12  # the stored limits are good to 1e-12
    assert solution.error < 1e-9


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_integrated_limit_is_where_the_flow_goes(scale):
    net = LinearNet(*weights(7, 2, 12, scale))
    solution = limit(net, X, Y)
    assert solution.status is Status.INTEGRATED
    end = flow(net, X, Y, residual=1e-12, rtol=1e-13)
    assert np.linalg.norm(end.M[-1] - solution.M) <= solution.error + 1e-10
    assert_allclose(solution.gram, end.gram(-1), rtol=0, atol=1e-9)
    # Theta in what the data sees, something else in what it does not.
    P1 = PROBLEM.spectrum.P1
    assert_allclose(P1.T @ solution.M, P1.T @ PROBLEM.min_norm, rtol=0, atol=1e-13)
    assert np.linalg.norm(solution.M - PROBLEM.min_norm) > 1e-2 * scale**2
    assert solution.w is solution.M
    assert not solution.unique


@pytest.mark.parametrize("width", [30, 10**6])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_invariant_starts_have_the_least_norm_limit(width, scale):
    net = LinearNet.invariant(X, 2, width=width, scale=scale, rng=0)
    solution = limit(net, X, Y)
    assert solution.status is Status.CERTIFIED
    assert "V U2^T = 0" in solution.route
    assert_allclose(solution.M, np.linalg.pinv(X) @ Y, rtol=0, atol=1e-13)
    if width == 30:
        end = flow(net, X, Y, residual=1e-11)
        assert_allclose(end.M[-1], solution.M, rtol=0, atol=1e-9)


def test_a_vanishing_overlap_of_v_alone_is_not_enough():
    # V U2^T = 0 but U1 U2^T != 0: V turns towards U1 and meets U2 on its way.
    U, V = weights(7, 2, 12)
    P2 = PROBLEM.spectrum.P2
    span = np.linalg.qr(V.T)[0]
    U2 = P2.T @ U
    U = U - P2 @ (U2 @ span) @ span.T
    net = LinearNet(U, V)
    assert np.abs(P2.T @ U @ V.T).max() < 1e-14
    solution = limit(net, X, Y)
    assert solution.status is Status.INTEGRATED
    assert np.linalg.norm(solution.M - PROBLEM.min_norm) > 1e-2


def test_full_column_rank_leaves_one_limit():
    tall, outputs = RNG.standard_normal((9, 4)), RNG.standard_normal((9, 2))
    expected = np.linalg.lstsq(tall, outputs)[0]
    for scale in (1.0, 1e-4):
        solution = limit(LinearNet(*weights(4, 2, 10, scale)), tall, outputs)
        assert solution.status is Status.PROJECTED
        assert solution.unique
        assert "the data alone determine it" in solution.message
        assert "least-squares" in solution.message
        assert_allclose(solution.M, expected, rtol=0, atol=1e-12)
    inside = limit(LinearNet(*weights(4, 2, 10)), tall, tall @ expected)
    assert inside.status is Status.CERTIFIED
    assert inside.distance == 0.0


def test_closed_forms_are_certified():
    white = 1.7 * np.linalg.qr(RNG.standard_normal((7, 3)))[0].T
    net = LinearNet.balanced(0.3 * RNG.standard_normal((7, 1)), white, width=9, rng=0)
    solution = limit(net, white, Y[:, 0])
    assert solution.status is Status.CERTIFIED
    assert "closed form" in solution.route
    end = flow(net, white, Y[:, 0], route="parameter", residual=1e-12, rtol=1e-13)
    assert_allclose(solution.M, end.M[-1], rtol=0, atol=1e-9)
    # V(inf) matters: it is not the least norm fit.
    assert np.linalg.norm(solution.M - np.linalg.pinv(white) @ Y[:, :1]) > 1e-3


def test_one_sample_one_output_at_any_width():
    for scale in (1.0, 1e-6):
        net = LinearNet(*weights(7, 1, 20, scale))
        solution = limit(net, X[:1], Y[:1, 0])
        assert solution.status is Status.CERTIFIED
        end = flow(net, X[:1], Y[:1, 0], route="gram", residual=1e-12, rtol=1e-13)
        assert_allclose(solution.M, end.M[-1], rtol=0, atol=1e-10)
        assert_allclose(solution.gram, end.gram(-1), rtol=0, atol=1e-9)


def test_a_flow_into_a_saddle_is_no_limit_of_zero_error():
    net = LinearNet([[0.5]], [[-0.5]])
    with pytest.raises(SolveError, match="saddle"):
        limit(net, [[1.0]], [1.0])
    assert limit(net, [[1.0]], [1.0], throw=False).status is Status.STALLED


def test_diagonal_measurements_are_certified():
    diagonals = RNG.standard_normal((2, 4))
    problem = MatrixSensing([np.diag(x) for x in diagonals], [1.0, -0.5])
    model = MatrixFactorization(*weights(4, 4, 6))
    solution = limit(model, problem)
    assert solution.status is Status.CERTIFIED
    assert "diagonal" in solution.route
    end = flow(model, problem, residual=1e-12, rtol=1e-13)
    assert_allclose(solution.M, end.M[-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [0.5, 1e-3])
def test_completion(scale):
    places = RNG.permutation(20)[:12]
    problem = MatrixCompletion(places // 4, places % 4, RNG.standard_normal(12), (5, 4))
    model = MatrixFactorization(*weights(5, 4, 15, scale))
    solution = limit(model, problem)
    assert solution.status is Status.INTEGRATED
    assert solution.feasibility < 1e-12
    end = flow(model, problem, residual=1e-12, rtol=1e-13)
    assert np.linalg.norm(end.M[-1] - solution.M) <= solution.error + 1e-9
    assert solution.error < 1e-8


def test_a_narrow_net_ends_at_the_best_fit_of_its_rank():
    tall, outputs = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
    solution = limit(LinearNet(*weights(4, 3, 1)), tall, outputs)
    assert solution.status is Status.INTEGRATED
    basis = np.linalg.qr(tall)[0]
    left, values, right = np.linalg.svd(basis.T @ outputs)
    assert_allclose(
        tall @ solution.M, basis @ left[:, :1] * values[0] @ right[:1], rtol=0, atol=1e-9
    )
    assert solution.distance > 0.1


def test_the_certificate_tells_the_residual():
    solution = limit(LinearNet(*weights(7, 2, 12)), X, Y)
    certificate = solution.certificate
    assert certificate.ok
    misfit = np.linalg.norm(X @ solution.w - Y) / np.linalg.norm(Y)
    assert_allclose(certificate.residual, misfit, rtol=0, atol=1e-14)
    assert (certificate.error, certificate.feasibility) == (solution.error, solution.feasibility)
    # A width of one does not fit two outputs.
    narrow = limit(LinearNet(*weights(7, 2, 1)), X, Y, throw=False)
    assert narrow.certificate.ok == (narrow.certificate.residual <= narrow.certificate.allowed)


def test_the_trajectory_knows_its_limit():
    trajectory = flow(LinearNet(*weights(7, 2, 12)), X, Y)
    assert trajectory.distance_to_limit < 1e-6
    assert trajectory.limit.status is Status.INTEGRATED


@pytest.mark.parametrize("seed", range(20))
def test_the_guaranteed_rate_is_one(seed):
    # Theorem 3 of min2021, from which convergence is concluded: the loss never above the bound.
    rng = np.random.default_rng(seed)
    d, m, n = rng.integers(2, 6, 3)
    data = MatrixRegression(rng.standard_normal((n, d)), rng.standard_normal((n, m)))
    net = LinearNet.gaussian(int(d), int(m), width=int(d + m + 5), scale=0.7, rng=seed)
    setting = reduced_problem(net, data)
    rate = guaranteed_rate(setting, setting.compression.weights)
    assert rate > 0.0
    trajectory = flow(net, data, route="gram")
    excess = trajectory.residual**2
    assert np.all(excess <= excess[0] * np.exp(-rate * trajectory.t) * (1 + 1e-6) + 1e-20)


def test_a_small_balanced_start_guarantees_nothing_before_it_fits():
    net = LinearNet.balanced(1e-3 * RNG.standard_normal((7, 2)), X, width=4, rng=0)
    setting = reduced_problem(net, PROBLEM)
    assert guaranteed_rate(setting, setting.compression.weights) == 0.0
    later = flow(net, PROBLEM)._states[-1]
    assert guaranteed_rate(setting, later) > 0.0


def test_bad_input():
    net = LinearNet(*weights(7, 2, 12))
    with pytest.raises(InputError, match="tol"):
        limit(net, X, Y, tol=-1.0)
    with pytest.raises(InputError, match="Y: must be given"):
        limit(net, X)
    with pytest.raises(InputError, match="shape"):
        limit(net, X[:, :5], Y)


def test_nothing_infinite_is_returned():
    """Exactly opposite layers end at a saddle, which the least rounding leaves towards the fit."""
    u = np.random.default_rng(1).standard_normal((1, 5))
    solution = limit(LinearNet(u, -u), [[1.0]], [1.0], throw=False)
    assert solution.M[0, 0] == pytest.approx(1.0 if solution.status.ok else 0.0, abs=1e-6)
    times = flow(LinearNet(u, -u), [[1.0]], [1.0], t=[5.0, 8.0], throw=False)
    assert np.abs(times.M).max() < 1.0


@pytest.mark.parametrize(("scale_u", "scale_v"), [(1e-8, 1e7), (1e-12, 1e3)])
def test_a_large_layer_does_not_hide_what_rests_of_the_other(scale_u, scale_v):
    """V hardly moves next to its size, so that what rests of U meets V(0)."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 6)), rng.standard_normal((3, 2))
    U, V = scale_u * rng.standard_normal((6, 10)), scale_v * rng.standard_normal((2, 10))
    expected = np.linalg.pinv(X) @ Y + (np.eye(6) - np.linalg.pinv(X) @ X) @ U @ V.T
    solution = limit(LinearNet(U, V), X, Y, throw=False)
    # V moves by ||Y|| / ||V||, relative to itself its square.
    assert_allclose(
        solution.M, expected, rtol=0, atol=max(1e-9, 10.0 / scale_v**2 * abs(expected).max())
    )


def test_nearly_equal_measurements_are_not_called_diagonal():
    """A part of 1e-11 off the diagonal, magnified 1e6 times by measurements that nearly agree."""
    first = np.diag([1.0, 0.5])
    second = first + 1e-6 * np.diag([0.0, 1.0]) + 1e-11 * np.array([[0.0, 1.0], [-1.0, 0.0]])
    stack = np.array([first, second])
    values = np.einsum("nij,ij->n", stack, np.array([[1.0, 2.0], [-1.0, 0.5]]))
    model = MatrixFactorization.gaussian((2, 2), width=4, scale=1.0, rng=0)
    # 1e-5 in all: more than this tolerance allows.
    solution = limit(model, MatrixSensing(stack, values), tol=1e-6, throw=False)
    assert solution.status is not Status.CERTIFIED


def test_closed_forms_do_not_lose_a_small_column():
    """Exactly balanced, graded over twelve decades: against the flow of the root itself."""
    small = 1e-12
    U = np.diag([1.0, small])
    Y = np.array([[2.0, 0.3], [0.1, 1.0]])
    solution = limit(LinearNet(U, U), np.eye(2), Y, throw=False)
    # X is the identity: the only limit of zero error is Y.
    assert_allclose(solution.M, Y, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e-150, 1e150])
@pytest.mark.parametrize("what", ["target", "measurements", "start"])
def test_sizes_that_leave_the_double_range_are_refused(size, what):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 5)), rng.standard_normal((3, 2))
    U, V = rng.standard_normal((5, 4)), rng.standard_normal((2, 4))
    X = size * X if what == "measurements" else X
    Y = size * Y if what == "target" else Y
    U = size * U if what == "start" and size > 1 else U
    if what == "start" and size < 1:
        pytest.skip("a small layer beside one of ordinary size is an ordinary start")
    with pytest.raises(InputError):
        limit(LinearNet(U, V), X, Y)
