"""Bartlett's decomposition has the law of sampled weights.

Seeds are fixed, so a test here passes or fails for good. The level says how unlikely a failure of
correct code was when the seeds were chosen.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from flowbias.models.lifted import bartlett_root

LEVEL = 1e-3
DRAWS = 1500


def gram(root):
    return root @ root.T


def by_bartlett(size, width, seed):
    rng = np.random.default_rng(seed)
    return np.stack([gram(bartlett_root(size, width, rng)) for _ in range(DRAWS)])


def by_weights(size, width, seed):
    rng = np.random.default_rng(seed)
    return np.stack([gram(rng.standard_normal((size, width))) for _ in range(DRAWS)])


def pseudo_determinant(G, width):
    values = np.linalg.eigvalsh(G)[..., -min(width, G.shape[-1]) :]
    return np.log(values).sum(axis=-1)


STATISTICS = {
    "trace": lambda G, width: np.trace(G, axis1=-2, axis2=-1),
    "log-determinant": pseudo_determinant,
    "first-diagonal": lambda G, width: G[:, 0, 0],
    "last-diagonal": lambda G, width: G[:, -1, -1],
    "off-diagonal": lambda G, width: G[:, 0, -1],
    "last-pair": lambda G, width: G[:, -1, -2],
    "largest-eigenvalue": lambda G, width: np.linalg.eigvalsh(G)[:, -1],
    "triple": lambda G, width: G[:, 0, 1] * G[:, 1, 2] * G[:, 2, 0],
}


# Wide, just wide enough, and narrower than the matrix is large (a singular law).
@pytest.mark.parametrize("width", [40, 5, 3])
@pytest.mark.parametrize("name", STATISTICS)
def test_same_distribution(name, width):
    statistic = STATISTICS[name]
    ours = statistic(by_bartlett(5, width, seed=width), width)
    theirs = statistic(by_weights(5, width, seed=100 + width), width)
    assert stats.ks_2samp(ours, theirs).pvalue > LEVEL


@pytest.mark.parametrize("width", [40, 3, 10**9])
def test_moments(width):
    # E G = h I, Var G_ij = h (1 + [i = j]), and entries of different places are uncorrelated.
    size = 5
    G = by_bartlett(size, width, seed=7)
    spread = np.sqrt(width * (1.0 + np.eye(size)))
    standard = (G - width * np.eye(size)) / spread
    assert np.abs(standard.mean(axis=0)).max() < 5.0 / np.sqrt(DRAWS)
    # Fourth moments of a product are largest at small width: kurtosis 3 + 6/h or so.
    fourth = np.sqrt((2.0 + 12.0 / width) / DRAWS)
    assert np.abs((standard**2).mean(axis=0) - 1.0).max() < 5.0 * fourth
    above = standard[:, *np.triu_indices(size)]
    correlation = np.corrcoef(above.T) - np.eye(above.shape[1])
    assert np.abs(correlation).max() < 5.0 * np.sqrt((1.0 + 12.0 / width) / DRAWS)


@pytest.mark.parametrize("width", [1, 6, 50, 10**9])
def test_exact_laws(width):
    # The trace is chi-squared with size * width degrees of freedom, a diagonal entry with width.
    G = by_bartlett(4, width, seed=11)
    trace = np.trace(G, axis1=1, axis2=2)
    assert stats.kstest(trace, stats.chi2(4.0 * width).cdf).pvalue > LEVEL
    assert stats.kstest(G[:, 3, 3], stats.chi2(float(width)).cdf).pvalue > LEVEL


def test_rank_and_shape():
    rng = np.random.default_rng(0)
    for size, width in [(5, 3), (5, 5), (5, 9), (1, 1)]:
        root = bartlett_root(size, width, rng)
        assert root.shape == (size, min(size, width))
        assert np.linalg.matrix_rank(gram(root)) == min(size, width)
        assert_allclose(root, np.tril(root))
        assert (np.diagonal(root) > 0).all()
