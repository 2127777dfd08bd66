"""Limits of one linear neuron: oracles, the flow itself, the sign of a, awkward data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates import certify
from flowbias.ground.arguments import InputError
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.neurons.parts import NeuronParts
from flowbias.limits.neurons.sum_of_neurons import neuron_sum_limit
from flowbias.models.neuron import Neuron, NeuronSum
from flowbias.potentials import Provides
from flowbias.results.solution import Status
from tests.limits.neuron_flows import TOL, flow_limit, limit, random_problem
from tests.oracles import ORACLES

# The figure the project promises; the references carry 15 digits.
ORACLE_ATOL = 1e-9
NEURONS = [
    pytest.param(problem, case, id=f"{problem['id']}-{case['params']['kind']}")
    for problem in ORACLES["problems"]
    for case in problem["limits"]
    if case["model"] == "single_neuron"
]


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
