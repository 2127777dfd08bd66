"""The leanest network nearby is the rich extreme, as solvers of its own find it."""

import numpy as np
import pytest

import flowbias as fb
from flowbias.regime.leanest import SEARCH, Adjustable, _restore, leanest
from flowbias.regime.points import PredictorPoint, ProductPoint, at_parameters


@pytest.fixture(scope="module")
def data():
    return fb.datasets.sparse_regression(n=8, d=20, sparsity=2, noise_var=0.0, rng=0)


def test_of_a_diagonal_network_it_has_least_l1_norm(data):
    X, y, _ = data
    model = fb.DiagonalNet(depth=2, scale=0.3)
    weights = model.parameters(X.T @ fb.limit(model, X, y).dual)
    found = leanest(PredictorPoint(at_parameters(model, weights, 20), X, np.eye(20)))
    wanted = fb.basis_pursuit(X, y).w
    assert found.at_rest
    assert found.stray <= SEARCH.restored
    # Approached geometrically, so as near as the last steps leave it; the start was 60% away.
    assert np.linalg.norm(found.elsewhere - wanted) <= 0.02 * np.linalg.norm(wanted)


def test_of_a_neuron_it_has_least_norm(data):
    X, y, _ = data
    model = fb.Neuron.from_scale_shape(0.5, -0.5, np.linspace(-1.0, 1.0, 20))
    flow = fb.flow(model, X, y)
    end = at_parameters(model, flow.parameters(flow.t[-1]), 20)
    found = leanest(PredictorPoint(end, X, np.eye(20)))
    wanted = fb.min_norm(X, y).w
    assert np.linalg.norm(flow.w[-1] - wanted) > 0.2 * np.linalg.norm(wanted)
    assert np.linalg.norm(found.elsewhere - wanted) <= 5e-3 * np.linalg.norm(wanted)


def test_of_a_product_it_has_least_nuclear_norm():
    rng = np.random.default_rng(3)
    target = np.outer(rng.standard_normal(5), rng.standard_normal(5))
    matrices = rng.standard_normal((18, 5, 5))
    problem = fb.MatrixSensing(matrices, np.einsum("nij,ij->n", matrices, target))
    model = fb.MatrixFactorization.gaussian((5, 5), width=6, scale=0.8, rng=0)
    flow = fb.flow(model, problem, residual=1e-6)
    end = fb.MatrixFactorization(*flow.factors(-1))
    found = leanest(ProductPoint(end, problem, np.eye(25).reshape(-1, 5, 5)))
    wanted = fb.nuclear_norm(problem).M.ravel()
    assert np.linalg.norm(flow.M[-1].ravel() - wanted) > 0.2 * np.linalg.norm(wanted)
    assert np.linalg.norm(found.elsewhere - wanted) <= 0.02 * np.linalg.norm(wanted)


def test_a_lean_network_stays_where_it_is(data):
    X, y, _ = data
    model = fb.DiagonalNet(depth=2, scale=1e-7)
    weights = model.parameters(X.T @ fb.limit(model, X, y).dual)
    network = PredictorPoint(at_parameters(model, weights, 20), X, np.eye(20))
    before = network.outputs("x_new")
    found = leanest(network)
    assert np.linalg.norm(found.elsewhere - before) <= 1e-2 * np.linalg.norm(before)
    assert found.norm <= 1.0 + 1e-2


class Staircase(Adjustable):
    """f = sinh(a) + worth * stairs(b), where the stairs have no derivative but do rise from 0 to 1.

    Linearized, b costs norm and does nothing, as units do that switch on and off.
    """

    def __init__(self, worth):
        self.worth, self.theta = worth, np.ones(2)

    def parameters(self):
        return self.theta

    def set_parameters(self, theta):
        self.theta = theta

    def outputs(self, name="x"):
        if name == "x_new":
            return self.theta.copy()
        return np.array([np.sinh(self.theta[0]) + self.worth * np.round(self.theta[1], 3)])

    def _slope(self):
        return np.array([np.cosh(self.theta[0]), 0.0])

    def push_forward(self, theta):
        return self._slope() @ theta * np.ones(1)

    def pull_back(self, nu):
        return self._slope() * nu

    def kernel(self):
        return np.array([[self._slope() @ self._slope()]])


def test_what_only_seemed_leaner_is_undone():
    """Without b the outputs take more norm than it has: the trained network stays."""
    network = Staircase(worth=3.0)
    found = leanest(network)
    assert found.norm == 1.0
    assert found.elsewhere.tolist() == network.parameters().tolist() == [1.0, 1.0]
    # Where b is worth little it is given up, and the outputs are kept.
    found = leanest(Staircase(worth=0.1))
    assert found.norm < 0.8
    assert found.stray <= SEARCH.restored


@pytest.mark.parametrize("off", [0.5, 1.5])
def test_outputs_are_put_right(off):
    network = Staircase(worth=0.0)
    targets = network.outputs()
    network.set_parameters(np.array([off, 1.0]))
    _restore(network, network.parameters(), targets)
    assert abs(network.outputs() - targets) <= SEARCH.restored * targets
    assert network.parameters()[1] == 1.0
