"""Limits of linear neurons: oracles, the flow itself, the sign of a, awkward data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowbias as fb
from flowbias.certificates import certify
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.neurons.parts import NeuronParts
from flowbias.limits.neurons.sign import InputFlow
from flowbias.limits.neurons.sum_of_neurons import neuron_sum_limit
from flowbias.limits.neurons.vanishing import neuron_rich_limit
from flowbias.models.neuron import Neuron
from flowbias.models.neuron_sum import NeuronSum
from flowbias.potentials import Provides
from flowbias.problem import InputError
from flowbias.solution import Status
from tests.oracles import ORACLES

TOL = 1e-10
# The figure the project promises; the references carry 15 digits.
ORACLE_ATOL = 1e-9
NEURONS = [
    pytest.param(problem, case, id=f"{problem['id']}-{case['params']['kind']}")
    for problem in ORACLES["problems"]
    for case in problem["limits"]
    if case["model"] == "single_neuron"
]
BALANCED = [
    pytest.param(problem, case, id=problem["id"])
    for problem in ORACLES["problems"]
    for case in problem["limits"]
    if case["model"] == "balanced_multi_neuron"
]


def limit(a, w, X, y):
    return neuron_limit(Neuron(a, w), X, y, TOL)


def random_problem(rng, spread=0.7):
    """(X, y, w) with singular values in exp(-+spread): a flow that ends soon."""
    n = int(rng.integers(1, 5))
    d = n + int(rng.integers(0, 4))
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    X = (left * np.exp(rng.uniform(-spread, spread, n))) @ right
    return X, X @ rng.standard_normal(d), rng.standard_normal(d)


def flow_limit(a, w, X, y):
    """(a, w) at the end of the flow, by an integrator and in unknowns that the library avoids."""

    def velocity(_, state):
        pull = X.T @ (y - X @ (state[0] * state[1:]))
        return np.concatenate([[state[1:] @ pull], state[0] * pull])

    end, time = np.concatenate([[a], w]), 0.0
    while np.linalg.norm(X @ (end[0] * end[1:]) - y) > 1e-7 * np.linalg.norm(y):
        assert time < 1e6, "flow not done"
        span = (time, 400.0 + 3.0 * time)
        end = solve_ivp(velocity, span, end, method="LSODA", rtol=1e-10, atol=1e-12).y[:, -1]
        time = span[1]
    return end[0], end[1:]


# --- one neuron ------------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "case"), NEURONS)
def test_oracle(problem, case):
    params = case["params"]
    solution = limit(params["a0"], params["w0"], problem["X"], problem["y"])
    error = np.abs(solution.w - case["beta"]).max()
    assert error <= ORACLE_ATOL
    assert_allclose(solution.details["a"], case["a_inf"], rtol=1e-9)
    assert solution.status is Status.CERTIFIED
    assert solution.stats.factorizations == 1
    assert error - 1e-15 <= solution.certificate.error_bound < 1e-9


def test_sign_changes_follow_the_flow():
    """20 flows on which a changes its sign, and those met on the way on which it does not."""
    rng = np.random.default_rng(5)
    count = {True: 0, False: 0}
    for _ in range(120):
        if count[True] >= 20 and count[False] >= 5:
            break
        X, y, w = random_problem(rng, spread=0.4)
        a = -np.sign(w @ X.T @ y) * rng.uniform(0.0, 0.9) * np.linalg.norm(w)
        solution = limit(a, w, X, y)
        if "flow" not in solution.route:
            continue
        end, inner = flow_limit(a, w, X, y)
        changed = end * a < 0
        count[changed] += 1
        assert bool(solution.details["sign_change"]) == changed
        assert ("changes" in solution.route) == changed
        assert solution.status is Status.CERTIFIED
        # 1e-7 of the data's residual, magnified by the singular values and the flow's tolerance.
        assert_allclose(solution.w, end * inner, atol=2e-6 * np.linalg.norm(solution.w))
    assert count[True] >= 20
    assert count[False] >= 5


def test_wrong_branch_has_a_certificate_too():
    """Why the sign cannot be read off the minimizers: the kept branch has one as well."""
    X, y, w = np.array([[1.0, 0.0]]), np.array([1.0]), np.array([1.0, 0.5])
    solution = limit(-0.1, w, X, y)
    assert solution.details["sign_change"] == 1.0
    neuron = Neuron(-0.1, w)
    parts = NeuronParts.of(neuron.a, neuron.w, fb.Regression(X, y))
    wrong, dual = parts.limit(-1.0), parts.dual(-1.0)
    assert certify(X, y, wrong, dual, neuron.potential, neuron.shift).ok
    assert np.linalg.norm(wrong - solution.w) > 0.5


@given(
    seed=st.integers(0, 10**6),
    shape=st.floats(-0.9, 0.9),
    log_scale=st.floats(-3.0, 3.0),
)
def test_newton_on_the_dual_agrees(seed, shape, log_scale):
    rng = np.random.default_rng(seed)
    X, y, w = random_problem(rng)
    neuron = Neuron.from_scale_shape(np.exp(log_scale), shape, w)
    solution = neuron_limit(neuron, X, y, TOL)
    if not solution.status.ok:
        return  # n = d = 1 may end in the saddle

    class Joint:
        provides = frozenset({Provides.JOINT_POTENTIAL})
        potential, shift = neuron.potential, solution.shift

    other = fb.limit(Joint(), X, y, throw=False)
    if other.status.ok:
        assert_allclose(other.w, solution.w, atol=1e-7 * np.linalg.norm(solution.w))


@pytest.mark.parametrize("a", [10.0, 0.5, -1e-3])
@pytest.mark.parametrize(
    ("data", "target", "weights"),
    [
        (1.0, 1.0, 1e-75),
        (1e-150, 1e-150, 1.0),
        (1e150, 1e150, 1e-75),
        (1e-75, 1e75, 1.0),
        (1.0, 1e150, 1.0),
        (1.0, 1e150, 1e75),
        (1e75, 1.0, 1e-60),
        (1e-150, 1.0, 1e75),
        (1.0, 1.0, 1e10),
    ],
)
def test_any_size(data, target, weights, a):
    rng = np.random.default_rng(1)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    solution = limit(a * weights, weights * w, data * X, target * y)
    assert solution.status is Status.CERTIFIED
    # The same problem in other units: weights times c, the target times c^2.
    other = limit(8 * a * weights, 8 * weights * w, data * X, 64 * target * y)
    size = np.abs(solution.w).max()
    assert_allclose(other.w / 64 / size, solution.w / size, atol=1e-9)
    shortest = target / data * (np.linalg.pinv(X) @ y)
    assert_allclose(X @ (solution.w / size), X @ (shortest / size), atol=1e-9)


def test_a_start_that_dwarfs_the_data():
    """a falls by 60 orders of magnitude before the data decides which way it turns."""
    rng = np.random.default_rng(1)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    assert limit(5e29, 1e30 * w, X, y).status is Status.CERTIFIED


@given(seed=st.integers(0, 10**6), shape=st.floats(-0.5, 0.9))
def test_rotation_duplicates_and_mixing(seed, shape):
    rng = np.random.default_rng(seed)
    X, y, w = random_problem(rng)
    neuron = Neuron.from_scale_shape(1.0, shape, w)
    solution = neuron_limit(neuron, X, y, TOL)
    if not solution.status.ok:
        return
    size = float(np.linalg.norm(solution.w))
    turn = np.linalg.qr(rng.standard_normal((w.size, w.size))).Q
    turned = limit(neuron.a, turn @ neuron.w, X @ turn.T, y)
    assert_allclose(turned.w, turn @ solution.w, atol=1e-9 * size)
    twice = limit(neuron.a, neuron.w, np.vstack([X, X]), np.concatenate([y, y]))
    assert_allclose(twice.w, solution.w, atol=1e-8 * size)
    assert twice.status is Status.CERTIFIED
    if "cannot" in solution.route:  # else mixing changes the flow, and may change the branch
        mix = rng.standard_normal((len(y), len(y))) + 3.0 * np.eye(len(y))
        mixed = limit(neuron.a, neuron.w, mix @ X, mix @ y)
        assert_allclose(mixed.w, solution.w, atol=1e-6 * size)


def test_awkward_data():
    rng = np.random.default_rng(2)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    dependent = np.vstack([X, X[0] + X[1]])
    assert limit(1.0, w, dependent, dependent @ w).status is Status.CERTIFIED
    outside = limit(1.0, w, dependent, np.append(y, 7.0))
    assert outside.status is Status.PROJECTED
    assert outside.distance > 0.1
    fitted = dependent @ np.linalg.lstsq(dependent, np.append(y, 7.0), rcond=None)[0]
    assert_allclose(dependent @ outside.w, fitted)
    # w = 0: the flow never leaves the row space, and the limit is the shortest fit.
    assert_allclose(limit(-2.0, 0 * w, X, y).w, np.linalg.pinv(X) @ y)
    # w in the row space: no null part to keep.
    assert_allclose(limit(3.0, X.T @ y, X, y).w, np.linalg.pinv(X) @ y)
    # More samples than features.
    tall = rng.standard_normal((9, 6))
    assert_allclose(limit(1.0, w, tall, tall @ w).w, w)


def test_zero_outer_weight_moves_at_once():
    rng = np.random.default_rng(3)
    X, y, w = random_problem(rng)
    solution = limit(0.0, w, X, y)
    assert solution.status is Status.CERTIFIED
    assert np.sign(solution.details["a"]) == np.sign(w @ X.T @ y)


@pytest.mark.parametrize("a", [0.3, 4.0])
def test_zero_target(a):
    """y = 0: the loss of the zero predictor is the least there is, and a keeps its sign."""
    rng = np.random.default_rng(4)
    X, w = rng.standard_normal((2, 5)), rng.standard_normal(5)
    solution = limit(a, w, X, np.zeros(2))
    assert solution.status is Status.CERTIFIED
    moving = np.linalg.pinv(X) @ X @ w
    D = a**2 - moving @ moving
    assert_allclose(solution.w, np.sqrt(max(D, 0.0)) * (w - moving), atol=1e-12)


def test_saddles_are_no_limits():
    X, y = np.array([[2.0, 0.0]]), np.array([1.0])
    resting = limit(0.0, [0.0, 1.0], X, y)  # w is orthogonal to what the data pulls at
    assert resting.status is Status.STALLED
    assert "saddle" in resting.route
    assert not resting.w.any()
    with pytest.raises(fb.SolveError):
        resting.checked(True)
    trapped = limit(-1.0, [1.0], [[2.0]], [1.0])  # balanced, one dimension, against the data
    assert trapped.status is Status.STALLED
    assert "ends in the saddle" in trapped.route
    near = limit(-1.0, [1.0, 0.0], np.diag([2.0, 1.0]), [1.0, 0.0])
    assert near.status is Status.STALLED
    assert "too close to call" in near.route
    # Off balance by a little, either way, the same start has a limit.
    assert limit(-1.1, [1.0, 0.1], np.diag([2.0, 1.0]), [1.0, 0.5]).status is Status.CERTIFIED
    assert limit(-0.9, [1.0], [[2.0]], [1.0]).details["sign_change"] == 1.0


def test_a_saddle_has_no_outer_weight():
    """a tends to 0 there, whatever the closed form would say of a fit."""
    assert limit(0.0, [0.0, 1.29], [[2.0, 0.0]], [1.0]).details["a"] == 0.0
    assert limit(-1.29, [1.29], [[2.0]], [1.0]).details["a"] == 0.0


def test_resting_at_zero_loss_is_no_saddle():
    """a = 0 and y = 0: the start is a global minimum."""
    rng = np.random.default_rng(10)
    X, w = rng.standard_normal((2, 5)), rng.standard_normal(5)
    for inner in (w, w - np.linalg.pinv(X) @ X @ w):
        solution = limit(0.0, inner, X, np.zeros(2))
        assert solution.status is Status.CERTIFIED
        assert not solution.w.any()
        assert fb.flow(Neuron(0.0, inner), X, np.zeros(2)).status.ok


def test_no_derivative_at_the_kink():
    solution = limit(0.3, [1.0, 0.5], [[1.0, 0.0]], [0.0])
    assert solution.details["a"] == 0.0
    with pytest.raises(fb.InputError, match="must come by a route that has a derivative"):
        solution.sensitivity()


@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e-120, 1e120])
@pytest.mark.parametrize("a", [1.0, 0.1, 0.0, -0.1])
def test_targets_that_cancel_are_targets_of_zero(a, stretch):
    """All of y is outside the range of X: what rounding leaves of its projection is no target."""
    rng = np.random.default_rng(13)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    X[0] *= 1e3
    twice, against = np.vstack([X, X]), stretch * np.concatenate([y, -y])
    for inner in (w, 0.0 * w) if a else (w,):
        solution, zero = limit(a, inner, twice, against), limit(a, inner, X, np.zeros(3))
        assert solution.status is Status.PROJECTED
        assert solution.distance == 1.0
        assert_allclose(solution.w, zero.w, atol=1e-12)
        rich = fb.rich_limit(Neuron(a, inner), twice, against)
        assert rich.status is Status.PROJECTED
        assert not rich.w.any()


def test_a_small_projection_is_still_a_target():
    rng = np.random.default_rng(14)
    X, y, w = rng.standard_normal((3, 6)), rng.standard_normal(3), rng.standard_normal(6)
    twice, nearly = np.vstack([X, X]), np.concatenate([y + 1e-4 * y, -y])
    solution = limit(-1e-3, 1e-3 * w, twice, nearly)
    assert solution.status is Status.PROJECTED
    assert_allclose(X @ solution.w, 0.5e-4 * y, atol=1e-12)


def test_settled_states_stay_settled():
    """The criterion is one of the loss: true from some time on, and never before a sign change."""
    rng = np.random.default_rng(6)
    seen = 0
    for _ in range(40):
        X, y, w = random_problem(rng)
        a = -np.sign(w @ X.T @ y) * 0.3 * np.linalg.norm(w)
        solution = limit(a, w, X, y)
        if not solution.details["sign_change"]:
            continue
        seen += 1
        flow = InputFlow.of(NeuronParts.of(a, w, fb.Regression(X, y)))
        path = solve_ivp(flow.velocity, (0.0, 200.0), flow.start, rtol=1e-10, atol=1e-12)
        settled = np.array([flow.is_settled(state, 1e-9) for state in path.y.T])
        first = int(np.argmax(settled))
        assert settled[first:].all()
        assert (np.sign(path.y[0, first:]) == np.sign(solution.details["a"])).all()
        assert np.sign(path.y[0, 0]) == np.sign(a)
        if seen == 5:
            break
    assert seen == 5


@given(seed=st.integers(0, 10**6), a=st.floats(-2.0, 2.0))
def test_settled_means_a_loss_below_that_of_zero(seed, a):
    rng = np.random.default_rng(seed)
    X, y, w = random_problem(rng)
    flow = InputFlow.of(NeuronParts.of(a or 1.0, w, fb.Regression(X, y)))
    outer, inputs = flow.start[0], flow.start[1:]
    loss, zero = np.sum((outer * inputs - flow.target) ** 2), np.sum(flow.target**2)
    assert flow.is_settled(flow.start, 1e-9) == (loss < zero * (1 - 1e-8)) or abs(
        loss - zero
    ) < 1e-6 * (zero + np.sum((outer * inputs) ** 2))


def test_too_close_to_call_is_not_called():
    """Between starts that end on different branches lies one that leads into a saddle."""
    X, y, w = np.diag([2.0, 1.0]), np.array([1.0, 0.3]), np.array([1.0, 0.5])
    keeps, turns = -1.2, -0.01
    assert limit(keeps, w, X, y).details["sign_change"] == 0.0
    assert limit(turns, w, X, y).details["sign_change"] == 1.0
    while turns - keeps > 1e-11:
        middle = 0.5 * (keeps + turns)
        solution = limit(middle, w, X, y)
        if not solution.status.ok:
            assert "too close to call" in solution.route
            return
        if solution.details["sign_change"]:
            turns = middle
        else:
            keeps = middle
    pytest.fail("a start within 1e-11 of the other branch was called")


@pytest.mark.parametrize(("a", "index"), [(1.3, 0), (-0.2, 1), (0.4, 2)])
def test_sensitivity(a, index):
    X = np.array([[1.0, 0.2, 0.0, 0.5], [0.3, -1.0, 0.4, 0.1], [0.0, 0.1, 1.0, -1.0]])
    y, w = np.array([0.7, -0.4, 0.2]), np.array([0.5, 0.1, -0.3, 0.8])
    derivatives = limit(a, w, X, y).sensitivity()
    step = 1e-6 * np.eye(3)[index]
    by_difference = (limit(a, w, X, y + step).w - limit(a, w, X, y - step).w) / 2e-6
    assert_allclose(derivatives.dw_dy[:, index], by_difference, atol=1e-8)
    up, down = np.exp(1e-6), np.exp(-1e-6)
    by_scale = (limit(a * up, up * w, X, y).w - limit(a * down, down * w, X, y).w) / 2e-6
    assert_allclose(derivatives.dw_dlog_scale, by_scale, atol=1e-8)


def test_wrong_size():
    with pytest.raises(InputError, match=r"X: must have .* per inner weight .*\(3\), got 2"):
        limit(1.0, [1.0, 2.0, 3.0], np.eye(2), [1.0, 1.0])
    with pytest.raises(InputError, match=r"X: must have one column per column of W \(3\), got 2"):
        neuron_sum_limit(NeuronSum([1.0], [[1.0, 2.0, 3.0]]), np.eye(2), [1.0, 1.0], TOL)
    for model in (Neuron(1.0, [0.4, 0.3, 0.2]), NeuronSum([1.0], [[1.0, 2.0, 3.0]])):
        with pytest.raises(InputError, match=r"X: must have .* per inner weight .*\(3\), got 2"):
            fb.rich_limit(model, np.eye(2), [1.0, 1.0])


# --- many neurons ----------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "case"), BALANCED)
def test_balanced_oracle(problem, case):
    a, e = np.array(case["params"]["a0"]), np.array(case["params"]["direction"])
    model = NeuronSum(a, np.outer(a, e / np.linalg.norm(e)))
    solution = neuron_sum_limit(model, problem["X"], problem["y"], TOL)
    assert np.abs(solution.w - case["beta"]).max() <= ORACLE_ATOL
    assert solution.status is Status.CERTIFIED
    assert "strictly balanced" in solution.route
    assert solution.potential.delta == 0.0


def test_copies_of_one_neuron_end_as_it_does():
    rng = np.random.default_rng(7)
    X, y, w = random_problem(rng)
    u = rng.standard_normal(4)
    u /= np.linalg.norm(u)
    many = neuron_sum_limit(NeuronSum(1.7 * u, np.outer(u, w)), X, y, TOL)
    assert_allclose(many.w, limit(1.7, w, X, y).w, atol=1e-12)
    assert "copies of one neuron" in many.route


def test_unbalanced_neurons_are_integrated_and_say_so():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((2, 5)), rng.standard_normal(2)
    model = NeuronSum(rng.standard_normal(3), rng.standard_normal((3, 5)))
    solution = neuron_sum_limit(model, X, y, TOL)
    assert solution.status is Status.INTEGRATED
    assert solution.w.shape == (5,)
    assert solution.feasibility < 1e-12
    # The identity compares two flows in different unknowns; both are followed to about 1e-10.
    assert solution.details["null_space_defect"] < 1e-8
    end = fb.flow(model, X, y, route="parameter", residual=1e-10).w[-1]
    assert_allclose(solution.w, end, atol=max(1e-8, 10 * solution.error))
    # |a_i| = ||w_i|| neuron by neuron is not enough for the 3/2-power.
    a = model.a
    W = a[:, None] * model.W / np.linalg.norm(model.W, axis=1)[:, None]
    assert neuron_sum_limit(NeuronSum(a, W), X, y, TOL).status is Status.INTEGRATED


def test_vanishing_start_is_the_shortest_fit():
    rng = np.random.default_rng(9)
    X, y = rng.standard_normal((2, 5)), rng.standard_normal(2)
    a, w = 0.7, rng.standard_normal(5)
    rich = neuron_rich_limit(a, w, X, y)
    assert_allclose(rich.w, np.linalg.pinv(X) @ y, atol=1e-12)
    factor = np.exp(rich.details["visible_log_factor"])
    start = limit(factor * a, factor * w, X, y)
    assert np.linalg.norm(start.w - rich.w) <= 1e-3 * np.linalg.norm(rich.w)
    # And it says when, not only that: a hundred times larger is visible.
    larger = limit(100 * factor * a, 100 * factor * w, X, y)
    assert np.linalg.norm(larger.w - rich.w) > 1e-3 * np.linalg.norm(rich.w)


SADDLES = [
    (Neuron(1.0, [1.0]), [[1.0]], [-1.0]),
    (Neuron(0.0, [0.0, 1.0]), [[1.0, 0.0]], [1.0]),
    (Neuron(-1.0, [1.0, 0.0]), np.diag([2.0, 1.0]), [1.0, 0.0]),
    (Neuron(-5.0, [3.0, 4.0, 7.0]), 1e120 * np.eye(2, 3), [0.3, 0.4]),
    (NeuronSum([0.6, 0.8], [[0.6], [0.8]]), [[1.0]], [-1.0]),
    (NeuronSum([0.0, 0.0], [[0.0, 1.0], [0.0, 2.0]]), [[1.0, 0.0]], [1.0]),
    (NeuronSum([0.0, 0.0], [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]), [[1.0, 0.0, 0.0]], [1.0]),
    (NeuronSum([1.0, 2.0], [[-1.0, 3.0], [-2.0, 1.0]]), [[1.0, 0.0]], [1.0]),
]


@pytest.mark.parametrize(("model", "X", "y"), SADDLES)
def test_vanishing_start_that_never_leaves_a_saddle_has_no_limit(model, X, y):
    rich = fb.rich_limit(model, X, y, throw=False)
    assert rich.status is Status.STALLED
    assert "saddle" in rich.route
    assert not rich.w.any()
    a, W = model.initial_parameters()
    smaller = type(model)(*(1e-6 * np.asarray(part) for part in (np.squeeze(a), W)))
    if np.abs(X).max() < 1e70:  # beyond it sums are refused
        assert not fb.limit(smaller, X, y, throw=False).status.ok
    # Off that set by a little, in a or in W, the same start has one.
    moved = type(model)(np.squeeze(a) + 1e-6, W)
    assert_allclose(fb.rich_limit(moved, X, y).w, np.linalg.lstsq(X, y)[0])


def test_limit_of_a_sum_that_nothing_moves_says_so():
    model, X, y = SADDLES[6]
    assert "saddle" in fb.limit(model, X, y, throw=False).message


@pytest.mark.parametrize("seed", range(6))
def test_vanishing_sums_reach_the_shortest_fit(seed):
    """Followed by an integrator that shares nothing with the library, against what grows near 0."""
    rng = np.random.default_rng([15, seed])
    X, y = rng.standard_normal((2, 4)), rng.standard_normal(2)
    a, W = 1e-3 * rng.standard_normal(3), 1e-3 * rng.standard_normal((3, 4))
    u = X.T @ y / np.linalg.norm(X.T @ y)
    a = -W @ u + 1e-3 * (seed + 1) * a  # little of it grows

    def velocity(_, state):
        outer, inner = state[:3], state[3:].reshape(3, 4)
        pull = X.T @ (y - X @ (outer @ inner))
        return np.concatenate([inner @ pull, np.outer(outer, pull).ravel()])

    start = np.concatenate([a, W.ravel()])
    end = solve_ivp(velocity, (0.0, 2000.0), start, method="LSODA", rtol=1e-10, atol=1e-14).y[:, -1]
    rich = fb.rich_limit(NeuronSum(a, W), X, y)
    assert rich.status is Status.CERTIFIED
    # What is left of the start: ||K|| ||a(inf)||, both known from above.
    length = np.linalg.norm(rich.w)
    left = np.linalg.norm(W) * np.sqrt(a @ a + length)
    assert np.linalg.norm(end[:3] @ end[3:].reshape(3, 4) - rich.w) <= left + 1e-6 * length


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_nothing_is_a_small_share_of_a_limit_of_zero(a):
    rich = fb.rich_limit(Neuron(a, [1.0, 2.0]), [[1.0, 0.0]], [0.0])
    assert rich.details["visible_log_factor"] == -np.inf
    within = fb.rich_limit(Neuron(a, [1.0, 0.0]), [[1.0, 0.0]], [0.0])
    assert within.details["visible_log_factor"] == np.inf


@pytest.mark.parametrize(
    "model", [Neuron(1.0, [1.0, 2.0], 0.3), fb.LinearNet(np.eye(2), np.eye(2))], ids=repr
)
def test_models_without_a_known_rich_limit_hear_of_those_that_have_one(model):
    with pytest.raises(InputError, match="POWER_DUAL or NEURON or NEURON_SUM"):
        fb.rich_limit(model, np.eye(2), [1.0, 1.0])
