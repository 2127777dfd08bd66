"""Limits of leaky ReLU neurons: against their own flows and against a general minimizer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.linalg import null_space
from scipy.optimize import minimize

import flowbias as fb
from flowbias.certificates.error_bound import joint_bound
from flowbias.flows.leaky_neuron.convergence import is_trapped, settled_sign
from flowbias.flows.leaky_neuron.field import PatternField
from flowbias.flows.leaky_neuron.follow import follow_leaky, start_of
from flowbias.flows.leaky_neuron.sides import first_sides
from flowbias.flows.request import FlowRequest
from flowbias.flows.trajectory import FlowStatus
from flowbias.limits.neurons.leaky import AT_ONCE, FOLLOWED, TOO_CLOSE, clarke_kkt, leaky_limit
from flowbias.models.neuron import Neuron
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import Regression
from flowbias.results.solution import Status
from flowbias.theory.neurons import AGREEMENT
from tests.flows.test_leaky_neuron import WIDTH, held, smoothed
from tests.theory.leaky_neuron_instances import leaky


def followed(model, X, y, residual=1e-9):
    return follow_leaky(model, X, y, FlowRequest.of(None, "half", residual, 1e-11, None, None))


def distance_of_flow(model, X, y, solution):
    """Of the end of the flow from the limit, relative to it; None where it was not followed."""
    path = followed(model, X, y)
    if path.status is not FlowStatus.CONVERGED:
        return None
    return np.linalg.norm(path.w[-1] - solution.w) / np.linalg.norm(solution.w)


def random_start(seed):
    """Slope from 0.1 to 2, delta >= 0 but for every fifth, which may change the sign of a."""
    rng = np.random.default_rng([10, seed])
    negative = (lambda size: -size * rng.uniform(0.1, 1.0)) if seed % 5 == 4 else None
    return leaky(rng, delta=negative)


def test_flows_end_at_the_minimizer():
    """Of 50, at least 49 agree to 1e-6; one that does not was not followed to its end."""
    agree = 0
    for seed in range(50):
        model, X, y = random_start(seed)
        solution = leaky_limit(model, X, y, 1e-10)
        assert solution.status is Status.CERTIFIED
        a = solution.details["a"]
        assert clarke_kkt(model, X, y, a, solution.w / a).worst <= 1e-12
        distance = distance_of_flow(model, X, y, solution)
        assert distance is None or distance <= AGREEMENT.size
        agree += distance is not None
    assert agree >= 49


@pytest.mark.parametrize("slope", [0.1, 0.3, 1.8])
def test_flow_that_slides_ends_at_the_minimizer(slope):
    model, X, y = held(slope)
    solution = leaky_limit(model, X, y, 1e-10)
    assert followed(model, X, y).slides
    assert distance_of_flow(model, X, y, solution) <= AGREEMENT.size
    assert solution.status is Status.CERTIFIED


@pytest.mark.parametrize("seed", range(5))
def test_closed_form_against_a_general_minimizer(seed):
    """q(v) - <shift, v> over v = v0 + null(X) u by BFGS; shares the value of q alone."""
    model, X, y = leaky(np.random.default_rng([11, seed]))
    sign = np.sign(model.a)
    z = np.where(sign * y > 0.0, y, y / model.slope)
    potential, shift = NeuronPotential(model.delta), 1.5 * sign * model.w
    base, free = np.linalg.lstsq(X, z, rcond=None)[0], null_space(X)
    found = minimize(
        lambda u: potential.value(base + free @ u) - shift @ (base + free @ u),
        np.zeros(free.shape[1]),
        jac=lambda u: free.T @ (potential.grad(base + free @ u) - shift),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    solution = leaky_limit(model, X, y, 1e-10)
    a = solution.details["a"]
    # BFGS stops where values no longer differ: half of the digits, and some of them for curvature.
    assert_allclose(solution.w, base + free @ found.x, atol=1e-6 * np.linalg.norm(base))
    inner = solution.w / a
    assert_allclose(a**2 - inner @ inner, model.delta, atol=1e-12 * a**2)


def test_slope_one_is_the_linear_neuron():
    model, X, y = leaky(np.random.default_rng(12), slope=1.0)
    linear = leaky_limit(model, X, y, 1e-10)
    assert_allclose(X @ linear.w, y, atol=1e-12)
    assert linear.status is Status.CERTIFIED


@pytest.mark.parametrize("seed", range(4))
def test_negative_delta_takes_the_sign_of_the_flow(seed):
    rng = np.random.default_rng([13, seed])
    model, X, y = leaky(rng, delta=lambda size: -size * rng.uniform(0.5, 1.0))
    solution = leaky_limit(model, X, y, 1e-10)
    if not solution.status.ok:
        pytest.skip(solution.route)
    a, _ = smoothed(model, X, y, np.array([0.5, 20.0]), width=10 * WIDTH)
    assert np.sign(solution.details["a"]) == np.sign(a[-1])
    assert distance_of_flow(model, X, y, solution) <= AGREEMENT.size


def test_sign_change_is_found():
    """A start whose outer weight is driven through zero: the limit is on the other branch."""
    model, X, y = Neuron(0.1, [1.0, 0.5], 0.5), [[1.0, 0.0]], [-1.0]
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.CERTIFIED
    assert solution.details["a"] < 0.0
    assert_allclose(solution.w[0], -1.0, rtol=1e-12)  # a y > 0: no division by the slope
    assert distance_of_flow(model, X, y, solution) <= AGREEMENT.size
    assert FOLLOWED in solution.route


def test_dependent_rows_that_agree():
    """More samples than features, from one neuron: zero loss is proved by the end of the flow."""
    rng = np.random.default_rng(14)
    X, teacher = rng.standard_normal((8, 3)), np.array([1.0, -2.0, 0.5])
    s = X @ teacher
    y = 1.5 * np.where(s > 0.0, s, 0.4 * s)
    model = Neuron(2.0, teacher + 0.3 * rng.standard_normal(3), 0.4)
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.CERTIFIED
    assert_allclose(solution.w, 1.5 * teacher, rtol=1e-10)
    start = start_of(model, Regression(X, y))
    # At the start the rest of the path could be as long as anything.
    assert not is_trapped(start, start.state, PatternField(start, first_sides(start)))


def test_targets_of_zero():
    model, X, y = leaky(np.random.default_rng(15), slope=0.3)
    solution = leaky_limit(model, X, 0.0 * y, 1e-10)
    assert solution.status is Status.CERTIFIED
    assert_allclose(X @ solution.w, 0.0, atol=1e-12 * np.linalg.norm(X) * np.linalg.norm(model.w))


@pytest.mark.parametrize("a", [3.0, 0.3, -0.3, 0.01])
@pytest.mark.parametrize(
    "rows", [[0, 1], [0, 1, 1], [0, 1, 2]], ids=["independent", "twice", "sum"]
)
def test_targets_of_zero_need_no_large_outer_weight(a, rows):
    """Against the flow by an integrator that shares nothing with the library."""
    rng = np.random.default_rng(18)
    X, w, slope = rng.standard_normal((2, 3)), rng.standard_normal(3), 0.3
    X = np.vstack([X, X[0] - 2.0 * X[1]])[rows]
    zero = np.zeros(len(X))

    def velocity(_, state):
        s = X @ state[1:]
        slopes = np.where(s >= 0.0, 1.0, slope)
        pull = state[0] * slopes * s
        return -np.concatenate([[pull @ (slopes * s)], state[0] * (X.T @ (slopes * pull))])

    end = solve_ivp(velocity, (0.0, 300.0), [a, *w], method="LSODA", rtol=1e-9, atol=1e-10).y[:, -1]
    for unit in (1.0, 1e6):
        solution = leaky_limit(Neuron(unit * a, unit * w, slope), X, zero, 1e-10)
        assert solution.status is Status.CERTIFIED
        assert AT_ONCE in solution.route
        assert_allclose(solution.w / unit**2, end[0] * end[1:], atol=1e-6)
        assert_allclose(solution.details["a"] / unit, end[0], atol=1e-6)


@pytest.mark.parametrize(
    ("a", "w", "X"),
    [(0.5, [1.0], [[1.0]]), (1.0, [1.0], [[1.0]]), (1.0, [1.0, 1.0], [[1.0, 0.0]])],
    ids=["below", "balanced", "balanced, with a part at rest"],
)
def test_an_outer_weight_that_dies_out(a, w, X):
    """y = 0 and a(0)^2 <= ||P w(0)||^2: a falls to 0, like t^(-1/2) where they are equal."""
    solution = leaky_limit(Neuron(a, w, 0.3), X, [0.0], 1e-10)
    assert solution.status is Status.CERTIFIED
    assert not solution.w.any()
    resting = leaky_limit(Neuron(0.0, w, 0.3), X, [0.0], 1e-10)
    assert resting.status is Status.CERTIFIED
    assert not resting.w.any()


def test_no_bound_where_the_repair_ends_on_a_kink():
    bound = joint_bound(
        np.array([[1.0]]), np.zeros(1), np.array([1e-12]), np.zeros(1), NeuronPotential(-0.75), 0.0
    )
    assert bound == np.inf


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_limit_follows_the_data(seed):
    """Permuted, rotated, with a sample twice, and in other units of x: the same limit."""
    rng = np.random.default_rng(seed)
    model, X, y = leaky(rng)
    limit = leaky_limit(model, X, y, 1e-10).w
    Q = np.linalg.qr(rng.standard_normal((X.shape[1],) * 2))[0]
    order = np.append(rng.permutation(len(y)), 0)
    turned = leaky_limit(Neuron(model.a, Q @ model.w, model.slope), X[order] @ Q.T, y[order], 1e-10)
    assert turned.status is Status.CERTIFIED
    assert_allclose(turned.w @ Q, limit, atol=1e-9 * np.linalg.norm(limit))
    assert_allclose(
        leaky_limit(model, 3.0 * X, 3.0 * y, 1e-10).w, limit, atol=1e-9 * np.linalg.norm(limit)
    )


def test_kkt_sees_what_is_wrong():
    model, X, y = leaky(np.random.default_rng(16))
    path = followed(model, X, y)
    assert path.status is FlowStatus.CONVERGED
    a, w = float(path.a[-1]), path.inner[-1]
    assert clarke_kkt(model, X, y, a, w).worst <= 1e-7
    # Another fit: along the null space, feasible but not stationary.
    elsewhere = w + null_space(X)[:, 0]
    assert clarke_kkt(model, X, y, a, elsewhere).feasibility <= 1e-7
    assert clarke_kkt(model, X, y, a, elsewhere).stationarity >= 1e-2
    # Stationary but no fit, and the wrong signs.
    assert clarke_kkt(model, X, y, a, w + 0.1 * X[0]).feasibility >= 1e-3
    assert clarke_kkt(model, X, y, -a, w).worst == np.inf


def test_multipliers_are_those_of_the_convex_problem():
    """nu_n c_n = dual_n: the certificate and Clarke's conditions say the same."""
    model, X, y = leaky(np.random.default_rng(17))
    solution = leaky_limit(model, X, y, 1e-10)
    kkt = clarke_kkt(model, X, y, solution.details["a"], solution.w / solution.details["a"])
    assert_allclose(kkt.multipliers * kkt.subgradients, solution.dual, rtol=1e-8, atol=1e-10)


def test_sign_is_settled_once_the_loss_is_below_that_of_zero():
    start = start_of(Neuron(0.1, [1.0, 0.5], 0.5), Regression([[1.0, 0.0]], [-1.0]))
    assert settled_sign(start, start.state) is None
    fitted = np.array([-1.0, 0.0])  # a = -1, w = w(0): f = -1
    assert settled_sign(start, fitted * np.array([1.0, 0.0])) == -1.0


def never(*_given, **_named):
    raise AssertionError("a flow was followed")


def any_start(seed):
    """Scales from 1e-6 to 1e3, slopes from 1e-3 to 1.8, rows twice and of zeros, a = 0, y_n = 0."""
    rng = np.random.default_rng([22, seed])
    n, d = int(rng.integers(1, 4)), int(rng.integers(3, 7))
    slope = (0.3, 1.8, 10.0 ** rng.uniform(-3, 0))[seed % 3]
    X = rng.standard_normal((n, d))
    y = 10.0 ** rng.uniform(-1, 1) * rng.standard_normal(n)
    size = 10.0 ** rng.uniform(-6, 3)
    a = (seed % 7 > 0) * size * 10.0 ** rng.uniform(-2, 2) * rng.choice([-1.0, 1.0])
    if seed % 4 == 0:
        X, y = np.vstack([X, 2.0 * X[:1], 0.0 * X[:1]]), np.concatenate([y, 2.0 * y[:1], [0.0]])
    elif seed % 5 == 0:
        y[0] = 0.0
    return Neuron(a, size * rng.standard_normal(d), slope), X, y


@pytest.mark.parametrize("seed", range(30))
def test_limits_are_where_whole_flows_end(seed):
    """The sign is settled early, or at once: the flow to its end agrees wherever it gets there."""
    model, X, y = any_start(seed)
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.ok
    path = followed(model, X, y)
    if path.status is FlowStatus.CONVERGED and y.any():
        # A residual of 1e-9, magnified by the condition of X and where a y_n < 0 by 1/slope.
        values = np.linalg.svd(X, compute_uv=False)
        condition = values[0] / values[values > 1e-12 * values[0]].min()
        atol = 1e-9 * condition / min(1.0, model.slope) * np.linalg.norm(solution.w)
        assert_allclose(path.w[-1], solution.w, rtol=0, atol=atol)
        assert solution.stats.steps < path.stats.steps


def test_where_the_start_proves_the_sign_no_flow_is_followed(monkeypatch):
    monkeypatch.setattr("flowbias.limits.neurons.leaky.followed", never)
    rng = np.random.default_rng(23)
    X, y, w = rng.standard_normal((3, 5)), rng.standard_normal(3), rng.standard_normal(5)
    downhill = np.sign(np.where(X @ w > 0.0, X @ w, 0.3 * (X @ w)) @ y)
    along = 1e-3 * downhill  # too small to be sure to keep its sign, but the loss is below L0
    for a in (4.0, -4.0, along, 0.0):
        solution = leaky_limit(Neuron(a, w, 0.3), X, y, 1e-10)
        assert solution.status is Status.CERTIFIED
        assert AT_ONCE in solution.route
        assert solution.stats.steps == 0
        assert np.sign(solution.details["a"]) == (np.sign(a) or downhill)
    with pytest.raises(AssertionError, match="a flow was followed"):
        leaky_limit(Neuron(-along, w, 0.3), X, y, 1e-10)


def test_from_zero_the_outer_weight_leaves_with_the_sign_of_the_flow():
    rng = np.random.default_rng(24)
    for _ in range(10):
        X, y, w = rng.standard_normal((3, 5)), rng.standard_normal(3), rng.standard_normal(5)
        solution = leaky_limit(Neuron(0.0, w, 0.4), X, y, 1e-10)
        path = followed(Neuron(0.0, w, 0.4), X, y)
        assert path.status is FlowStatus.CONVERGED
        assert np.sign(solution.details["a"]) == np.sign(path.a[-1])
    rests = leaky_limit(Neuron(0.0, [0.0, 1.0], 0.4), [[1.0, 0.0]], [1.0], 1e-10)
    assert rests.status is Status.STALLED  # <sigma(X w), y> = 0: a saddle


def test_a_start_that_may_leave_its_kink_to_both_sides_has_one_limit():
    """Every solution of the inclusion ends there: the sign alone decides."""
    model, X, y = Neuron(1.0, [0.0, 0.5], 0.5), [[1.0, 0.0], [1.0, 1.0]], [2.0, -1.0]
    assert "both sides" in followed(model, X, y).failure
    solution = leaky_limit(model, X, y, 1e-10)
    assert solution.status is Status.CERTIFIED
    for nudge in (1e-9, -1e-9):
        path = followed(Neuron(1.0, [nudge, 0.5], 0.5), X, y)
        assert_allclose(path.w[-1], solution.w, rtol=1e-7)


def test_a_start_next_to_one_that_ends_elsewhere_is_too_close_to_call():
    """|a| = ||w|| in one dimension runs into the saddle; next to it either sign of a is kept."""
    close = leaky_limit(Neuron(1.0 - 1e-9, [1.0], 0.5), [[1.0]], [-1.0], 1e-10)
    assert close.status is Status.STALLED
    assert TOO_CLOSE in close.route or "saddle" in close.route
    clear = leaky_limit(Neuron(1.0 - 1e-4, [1.0], 0.5), [[1.0]], [-1.0], 1e-10)
    assert clear.status is Status.CERTIFIED
    assert clear.details["a"] < 0.0


@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_targets_of_zero_where_all_of_w_is_seen(slope):
    """What rests of w is rounding: the limit is 0, not a times it."""
    rng = np.random.default_rng(25)
    for rows in (2, 4, 6):
        X = rng.standard_normal((rows, 4))
        w = X.T @ rng.standard_normal(rows)
        for a in (9.0, 0.3, -1e3):
            solution = fb.limit(Neuron(a, w, slope), X, np.zeros(rows))
            assert solution.status is Status.CERTIFIED
            assert not solution.w.any()
