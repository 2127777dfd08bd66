"""Linear networks: their starts and their Gram matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.models import LinearNet, NarrowWarning
from flowbias.potentials import Provides
from flowbias.problems.matrix import MatrixRegression
from tests.models.linear_networks import RANK, D, M, descend, follow, weights

# --- the Gram matrix ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 5, 11, 30])
def test_from_weights(width):
    U, V = weights(width)
    net = LinearNet(U, V)
    Z = np.vstack([U, V])
    assert (net.shape, net.width) == ((D, M), width)
    assert net.provides == {Provides.GRAM, Provides.FACTORS}
    assert_allclose(net.gram, Z @ Z.T, rtol=1e-13, atol=1e-13)
    assert_allclose(net.gram, net.gram.T, rtol=0)
    assert_allclose(net.product, U @ V.T, rtol=1e-13, atol=1e-14)
    assert net.root.shape == (D + M, min(width, D + M))
    assert_allclose(net.root @ net.root.T, net.gram, rtol=1e-12, atol=1e-12)
    U[...] = 0.0
    assert_allclose(net.factors.V, V)
    assert net.factors.U.any()


def test_a_narrow_root_has_the_products_of_the_weights(data):
    problem = MatrixRegression(*data)
    U, V = weights(30)
    net = LinearNet(0.3 * U, 0.3 * V)
    wide = descend(np.vstack(net.factors), problem, D)
    assert_allclose(descend(net.root, problem, D), wide, rtol=1e-11, atol=1e-11)
    assert np.ptp(wide, axis=0).max() > 0.1  # something moved


# --- Gaussian starts ---------------------------------------------------------------------------


def test_weights_are_kept_where_they_are_few():
    kept = LinearNet.gaussian(D, M, width=50, scale=0.1, rng=0)
    drawn = LinearNet.gaussian(D, M, width=10**6, scale=0.1, rng=0)
    assert kept.factors is not None
    assert (drawn.factors, drawn.provides) == (None, {Provides.GRAM})
    asked = LinearNet.gaussian(D, M, width=50, scale=0.1, rng=0, keep_weights=False)
    assert asked.factors is None
    # Narrower than the Gram matrix is large: weights are the smaller of the two.
    assert LinearNet.gaussian(1500, 1, width=1200, scale=0.1, rng=0).factors is not None


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("width", [3, 60])
def test_layers_have_their_own_scales(keep, width):
    rng = np.random.default_rng(5)
    u, v, draws = 0.5, 0.02, 400
    nets = [
        LinearNet.gaussian(3, M, width=width, scale_u=u, scale_v=v, rng=rng, keep_weights=keep)
        for _ in range(draws)
    ]
    grams = np.stack([net.gram for net in nets])
    scales = np.repeat([u, v], [3, M])
    standard = grams / np.outer(scales, scales) / width
    spread = np.sqrt((1.0 + np.eye(3 + M)) / width / draws)
    assert np.abs((standard.mean(axis=0) - np.eye(3 + M)) / spread).max() < 5.0
    assert_allclose(standard[:, 0, -1].var() * width, 1.0, rtol=0.6)


def test_one_scale_serves_both_layers_unless_a_layer_has_its_own():
    def sizes(**scales):
        net = LinearNet.gaussian(3, M, width=10**9, rng=0, **scales)
        return np.sqrt(np.diag(net.gram)[[0, -1]] / 10**9)

    assert_allclose(sizes(scale=0.3), [0.3, 0.3], rtol=1e-3)
    assert_allclose(sizes(scale=0.3, scale_v=0.1), [0.3, 0.1], rtol=1e-3)
    assert_allclose(sizes(scale_u=0.2, scale_v=0.0), [0.2, 0.0], rtol=1e-3)


def test_the_same_seed_gives_the_same_start():
    first, second = (LinearNet.gaussian(D, M, width=10**8, scale=1.0, rng=3) for _ in range(2))
    assert_allclose(first.gram, second.gram, rtol=0)
    other = LinearNet.gaussian(D, M, width=10**8, scale=1.0, rng=4)
    assert np.abs(first.gram - other.gram).max() > 0


@pytest.mark.parametrize("width", [20, 10**3, 10**6, 10**9])
def test_xavier_products_are_as_large_at_any_width(width):
    # E ||U V^T||_F^2 = d m width (m width)^-1 = d: a mean over d m products, 40 draws.
    rng = np.random.default_rng(width)
    squares = [
        np.sum(LinearNet.xavier(20, 10, width=width, rng=rng).product ** 2) for _ in range(40)
    ]
    assert_allclose(np.mean(squares), 20.0, rtol=0.15)


# --- balanced starts ---------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "rng"), [(None, None), (2, 0), (7, None), (25, 3), (10**7, 3)])
def test_balanced_on_data(data, width, rng):
    X, _ = data
    product = np.random.default_rng(2).standard_normal((D, M))
    net = LinearNet.balanced(product, X, width=width, rng=rng)
    assert net.width == (M if width is None else width)
    assert_allclose(net.product, product, atol=1e-13)
    assert np.abs(net.imbalance(X).eigenvalues).max() < 1e-13
    assert np.abs(net.imbalance().eigenvalues).max() > 0.1  # only what the data moves is balanced
    if net.factors is not None:
        assert_allclose(net.factors.U @ net.factors.V.T, product, atol=1e-13)
        assert_allclose(net.root @ net.root.T, net.gram, atol=1e-13)


def test_balanced_without_data_and_of_low_rank():
    a, b = np.arange(1.0, 6.0)[:, None], np.array([[2.0, -1.0, 0.5]])
    with pytest.warns(NarrowWarning, match="width: 1 is below"):
        net = LinearNet.balanced(a @ b)
    assert net.width == 1
    assert_allclose(net.product, a @ b, atol=1e-13)
    assert np.abs(net.imbalance().eigenvalues).max() < 1e-13


# --- invariant starts --------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("width", [3, 6, 7, 40])
def test_invariant_start_is_orthogonal(data, width, keep):
    X, _ = data
    net = LinearNet.invariant(X, M, width=width, scale=0.5, rng=0, keep_weights=keep)
    assert (net.shape, net.width) == ((D, M), width)
    assert net.invariance_defect(X) < 1e-14 * np.linalg.norm(net.gram)
    still = np.linalg.norm(MatrixRegression(X, X).spectrum.off_range(net.root[:D]))
    # Rows of U1 and V fill r + m dimensions: U2 has room only beyond them.
    assert (still > 0.1) if width > RANK + M else (still < 1e-14)


def test_both_ways_to_draw_an_invariant_start_have_one_law(data):
    X, _ = data

    def mean_gram(keep, draws=300):
        rng = np.random.default_rng(8)
        return np.mean(
            [
                LinearNet.invariant(
                    X, M, width=12, scale_u=0.5, scale_v=0.2, rng=rng, keep_weights=keep
                ).gram
                for _ in range(draws)
            ],
            axis=0,
        )

    spectrum = MatrixRegression(X, X).spectrum
    seen = spectrum.P1 @ spectrum.P1.T
    expected = np.zeros((D + M, D + M))
    expected[:D, :D] = 0.25 * (12 * seen + (12 - RANK - M) * (np.eye(D) - seen))
    expected[D:, D:] = 0.04 * 12 * np.eye(M)
    # Standard error of an entry: at most 0.25 sqrt(2 * 12 / 300).
    for keep in (True, False):
        assert np.abs(mean_gram(keep) - expected).max() < 5 * 0.25 * np.sqrt(24 / 300)


def test_invariant_start_ends_at_the_min_norm_solution(data):
    problem = MatrixRegression(*data)
    X = problem.X
    distances = {}
    for name, net in {
        "invariant": LinearNet.invariant(X, M, width=20, scale=0.6, rng=0),
        "gaussian": LinearNet.gaussian(D, M, width=20, scale=0.6, rng=0),
    }.items():
        Z = follow(net, problem, t=20.0)
        product = Z[:D] @ Z[D:].T
        assert problem.relative_residual(product) < 1e-10
        distances[name] = np.linalg.norm(product - problem.min_norm)
    assert distances["invariant"] < 1e-9
    assert distances["gaussian"] > 0.1


def test_defect_is_the_overlap_with_what_does_not_move(data):
    X, _ = data
    U, V = weights(13)
    s = MatrixRegression(X, X).spectrum
    U1, U2 = s.P1.T @ U, s.P2.T @ U
    expected = np.linalg.norm(np.vstack([V @ U2.T, U1 @ U2.T]))
    assert_allclose(LinearNet(U, V).invariance_defect(X), expected, rtol=1e-12)
