"""Products of which one hidden unit is all that moves: the limit of a neuron, with its proof."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.flows.lifted.flow import reduced_problem
from flowbias.limits.lifted.limit import one_neuron_limit
from flowbias.problems.matrix import MatrixRegression
from flowbias.results.matrix_solution import LiftedSolution
from flowbias.results.solution import Status
from tests.limits.factor_flow import followed

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")
# Local errors of 1e-11 over some hundred steps, and what is left of the path at their residual.
AGREES = 1e-8


def flow_of(U, V, X, Y, end):
    """U V^T after gradient flow of all weights, by an integrator that shares nothing with ours."""
    d, atol = len(U), 1e-11 * max(np.abs(U).max(), np.abs(V).max())
    Z = followed(U, V, lambda M: X.T @ (Y - X @ M), end, rtol=1e-11, atol=atol)[-1]
    return Z[:d] @ Z[d:].T, Z @ Z.T


def data(seed, n=3, d=6):
    """Singular values from 0.8 to 1.5, so that the flow of the weights is done by t = 300."""
    rng = np.random.default_rng([20, seed])
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    return rng, (left * np.linspace(0.8, 1.5, min(n, d))) @ right, rng.standard_normal(n)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [1.0, 1e-2])
def test_one_hidden_unit_is_a_neuron(seed, scale):
    rng, X, y = data(seed)
    U, V = scale * rng.standard_normal((6, 1)), scale * rng.standard_normal((1, 1))
    solution = fb.limit(fb.LinearNet(U, V), X, y)
    assert type(solution) is LiftedSolution
    assert solution.status is Status.CERTIFIED
    assert solution.route.startswith("one neuron: closed form")
    assert solution.M.shape == (6, 1)
    neuron = fb.limit(fb.Neuron(V[0, 0], U[:, 0]), X, y)
    assert_allclose(solution.M[:, 0], neuron.w, rtol=1e-13)
    proof = solution.certificate.minimizer
    assert proof is not None
    assert proof.ok
    assert solution.error == proof.error_bound < 1e-10
    M, gram = flow_of(U, V, X, y[:, None], 300.0)
    assert_allclose(solution.M, M, rtol=0, atol=AGREES)
    assert_allclose(solution.gram, gram, rtol=0, atol=AGREES)


def test_what_the_data_does_not_see_may_have_any_rank():
    """Copies on the row space of X, each with a part of its own beyond it."""
    rng = np.random.default_rng(30)
    # What the data see, to the last bit: rounding of their row space would be a second unit.
    X, y = np.diag([1.0, 2.0, 0.5, 0.0, 0.0, 0.0])[:3], rng.standard_normal(3)
    q = np.full((1, 4), 0.5)
    U = np.vstack([rng.standard_normal((3, 1)) @ q, 0.3 * rng.standard_normal((3, 4))])
    V = -0.7 * q
    solution = fb.limit(fb.LinearNet(U, V), X, y)
    assert solution.route.startswith("one neuron")
    M, gram = flow_of(U, V, X, y[:, None], 300.0)
    assert_allclose(solution.M, M, rtol=0, atol=AGREES)
    assert_allclose(solution.gram, gram, rtol=0, atol=AGREES)
    # The sum of these neurons is that network, and needs no integration either.
    of_sum = fb.limit(fb.NeuronSum(V[0], U.T), X, y)
    assert of_sum.status is Status.CERTIFIED
    assert_allclose(of_sum.w, solution.M[:, 0], rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_starts_of_one_output_that_are_balanced_on_the_data(seed):
    rng, X, y = data(seed + 40)
    # Along the data: against them a balanced start may run into the saddle at 0.
    product = X.T @ y[:, None] + 0.5 * rng.standard_normal((6, 1))
    net = fb.LinearNet.balanced(0.1 * product, X, width=5, rng=seed)
    solution = fb.limit(net, X, y)
    assert solution.status is Status.CERTIFIED
    assert solution.route.startswith("one neuron")
    M, _ = flow_of(*net.factors, X, y[:, None], 300.0)
    assert_allclose(solution.M, M, rtol=0, atol=AGREES)


@pytest.mark.parametrize("outer", [0.4, 0.0])
def test_several_outputs_along_those_of_the_network(outer):
    rng, X, y = data(50)
    b = rng.standard_normal((3, 1))
    U, V = 0.5 * rng.standard_normal((6, 1)), outer * b
    Y = y[:, None] @ b.T
    solution = fb.limit(fb.LinearNet(U, V), X, Y)
    assert solution.status is Status.CERTIFIED
    assert solution.route.startswith("one neuron")
    assert solution.M.shape == (6, 3)
    assert_allclose(solution.M, flow_of(U, V, X, Y, 300.0)[0], rtol=0, atol=AGREES)


def test_outputs_across_each_other_are_no_neuron():
    """V turns towards those of the data, by as little as they are apart."""
    rng, X, y = data(51)
    b = rng.standard_normal((3, 1))
    U, V, Y = 0.5 * rng.standard_normal((6, 1)), 0.4 * b, y[:, None] @ b.T
    turned = Y + 1e-9 * rng.standard_normal(Y.shape)
    for net, outputs in (
        (fb.LinearNet(U, V), turned),
        (fb.LinearNet(U, V + 1e-9 * rng.standard_normal(V.shape)), Y),
    ):
        assert one_neuron_limit(reduced_problem(net, MatrixRegression(X, outputs)), 1e-10) is None


def test_two_hidden_units_are_no_neuron():
    rng, X, y = data(60)
    net = fb.LinearNet(rng.standard_normal((6, 2)), rng.standard_normal((1, 2)))
    assert fb.limit(net, X, y).status is Status.INTEGRATED


@pytest.mark.parametrize("seed", range(12))
def test_sizes_rows_and_targets_of_every_kind(seed):
    """Scales from 1e-6 to 1e3, rows of zeros and twice, y = 0, V = 0: the neuron's limit."""
    rng = np.random.default_rng([21, seed])
    n, d = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 2)
    X[-1] = (0.0, -2.0, 1.0)[seed % 3] * X[0]
    y = (seed % 4 > 0) * (X @ rng.standard_normal(d))
    U = 10.0 ** rng.uniform(-6, 3) * rng.standard_normal((d, 1))
    V = (seed % 5 > 0) * 10.0 ** rng.uniform(-6, 3) * rng.standard_normal((1, 1))
    solution = fb.limit(fb.LinearNet(U, V), X, y)
    neuron = fb.limit(fb.Neuron(V[0, 0], U[:, 0]), X, y)
    assert solution.status is neuron.status is Status.CERTIFIED
    assert solution.certificate.ok
    assert np.isfinite(solution.error)
    assert_allclose(solution.M[:, 0], neuron.w, rtol=1e-12, atol=1e-12 * np.linalg.norm(neuron.w))


def test_targets_out_of_reach_are_projected():
    rng, X, y = data(70, n=8, d=3)
    solution = fb.limit(fb.LinearNet(rng.standard_normal((3, 1)), [[0.5]]), X, y)
    assert solution.status is Status.PROJECTED
    assert_allclose(solution.M[:, 0], np.linalg.lstsq(X, y)[0], rtol=1e-10)


def test_a_saddle_is_still_refused():
    solution = fb.limit(fb.LinearNet([[1.0]], [[1.0]]), [[1.0]], [-1.0], throw=False)
    assert solution.status is Status.STALLED
    rests = fb.limit(fb.LinearNet([[0.0], [1.0]], [[0.0]]), [[1.0, 0.0]], [1.0], throw=False)
    assert rests.status is Status.STALLED
