"""What gradient flow on a linear network conserves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from flowbias.models import Imbalance, LinearNet
from flowbias.problems.matrix import MatrixRegression
from tests.models.linear_networks import RANK, D, M, follow, weights


def by_definition(U1, V):
    """spread_plus, spread_minus and level from the width x width matrix D."""
    r, m = len(U1), len(V)
    values = np.linalg.eigvalsh(U1.T @ U1 - V.T @ V)[::-1]

    def eigenvalue(ordered, i):
        return max(ordered[i - 1], 0.0) if i <= len(ordered) else 0.0

    plus = [eigenvalue(values, i) for i in (1, r)]
    minus = [eigenvalue(-values[::-1], i) for i in (1, m)]
    return plus[0] - plus[1], minus[0] - minus[1], plus[1] + minus[1]


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 6),
    m=st.integers(1, 6),
    width=st.integers(1, 15),
    ratio=st.sampled_from([1e-4, 0.3, 1.0, 50.0]),
)
def test_imbalance_is_that_of_the_definition(seed, d, m, width, ratio):
    U, V = weights(width, seed, d, m)
    V = ratio * V
    Z = np.vstack([U, V])
    size = np.linalg.norm(Z) ** 2
    full = np.sort(np.linalg.eigvalsh(U.T @ U - V.T @ V))[::-1]
    imbalance = Imbalance.of_root(Z, d)
    measured = imbalance.spread_plus, imbalance.spread_minus, imbalance.level
    assert_allclose(measured, by_definition(U, V), atol=1e-13 * size)
    assert len(imbalance.eigenvalues) <= min(width, d + m)
    padded = np.zeros(width)
    padded[: len(imbalance.eigenvalues)] = imbalance.eigenvalues
    assert_allclose(np.sort(padded)[::-1], full, atol=1e-13 * size)


def test_imbalance_counts_only_what_the_data_moves(data):
    X, _ = data
    U, V = weights(20)
    net = LinearNet(U, V)
    U1 = MatrixRegression(X, X).spectrum.P1.T @ U
    seen = net.imbalance(X)
    assert_allclose((seen.spread_plus, seen.spread_minus, seen.level), by_definition(U1, V))
    assert len(seen.eigenvalues) == RANK + M
    whole = net.imbalance()
    assert_allclose((whole.spread_plus, whole.spread_minus, whole.level), by_definition(U, V))


def test_imbalance_is_conserved_along_the_flow(data):
    problem = MatrixRegression(*data)
    net = LinearNet.gaussian(D, M, width=6, scale=0.7, rng=2)
    Z = follow(net, problem, t=3.0)
    later = LinearNet(Z[:D], Z[D:])
    assert np.abs(later.product - net.product).max() > 0.1
    for X in (None, problem.X):
        assert_allclose(
            later.imbalance(X).eigenvalues, net.imbalance(X).eigenvalues, rtol=1e-9, atol=1e-9
        )


def test_wide_starts_have_a_level(data):
    # Lemma 11: of the order of width * variance, here with a margin of 10%.
    level = LinearNet.gaussian(D, M, width=10**6, scale=1e-3, rng=0).imbalance(data[0]).level
    assert_allclose(level, 2.0, rtol=0.1)


def test_balanced_weights_of_deficient_rank_keep_their_digits():
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    Z = np.vstack([rotation, rotation])
    assert np.abs(Imbalance.of_root(Z, 6).eigenvalues).max() < 1e-13
