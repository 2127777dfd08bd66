"""Where the statements on matrix factorization are wrong as printed, shown on an instance each."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from flowbias.datasets.planted import low_rank_completion
from flowbias.limits.lifted.diagonal_measurements import common_basis, plain_commutator
from flowbias.limits.spectral import nuclear_norm
from flowbias.models import LinearNet
from flowbias.models.factorization import MatrixFactorization
from flowbias.potentials import Hypentropy
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.theory.factorization_kernel_regime import KernelRegime, WideRegime
from flowbias.theory.matrix_factorization import infinitely_wide, symmetric_velocity
from flowbias.theory.measured_flow import follow_factors, follow_weights
from flowbias.theory.tangent_factorization import LinearizedFactorization, completion_kernel
from tests.limits.factor_flow import flow_limit, lifted_identity

pytestmark = pytest.mark.filterwarnings("ignore::flowbias.models.lifted.NarrowWarning")


def schatten_gradient(M, mu):
    left, values, right = np.linalg.svd(M)
    return (left * Hypentropy(scale=mu).grad(values)) @ right


def test_w9_commuting_measurements_do_not_minimize_the_schatten_potential():
    """X_1 = I and X_2 = E_12 commute; yet the flow's limit is not stationary for Q_mu."""
    X, y, mu = np.array([np.eye(2), [[0.0, 1.0], [0.0, 0.0]]]), np.array([1.0, 2.0]), 0.3
    assert plain_commutator(X) == 0.0
    M = flow_limit(*lifted_identity(2, 2, mu), X, y)
    span = X.reshape(2, -1)
    gradient = schatten_gradient(M, mu).ravel()
    off = gradient - np.linalg.pinv(span) @ (span @ gradient)
    assert np.linalg.norm(off) > 0.02 * np.linalg.norm(gradient)
    # So Q_mu falls along the feasible direction -off: M is no minimizer.
    potential = Hypentropy(scale=mu)
    values = [
        potential.value(np.linalg.svd(M - step * off.reshape(2, 2), compute_uv=False))
        for step in (0.0, 0.1)
    ]
    assert values[1] < values[0] - 1e-4


def test_w9_spectrum_means_singular_values():
    """One measurement commutes with itself; its limit may have no real eigenvalue at all."""
    X = np.array([[[0.0, 1.0], [-1.0, 0.0]]])
    assert common_basis(MatrixSensing(X, [2.0])) is not None
    M = flow_limit(*lifted_identity(2, 2, 0.3), X, np.array([2.0]))
    assert np.abs(np.linalg.eigvals(M).real).max() < 1e-9
    assert_allclose(np.linalg.svd(M, compute_uv=False), [1.0, 1.0], atol=1e-9)


@pytest.mark.parametrize("width", [3, 4, 5])
def test_w10_theorem_9_needs_width_2d(width):
    """Below 2 d the Gram matrix is singular: gamma >= mu for every mu, and mu > 4 gamma fails."""
    model = MatrixFactorization.gaussian((3, 3), width=width, scale=1.0, rng=0)
    for mu in np.geomspace(1e-2, 1e2, 9):
        regime = KernelRegime.of(model, MatrixSensing([np.eye(3)], [1.0]), mu)
        assert regime.gamma >= regime.mu * (1 - 1e-12)


def test_w10_lifted_measurements_have_half_the_gram_matrix_and_the_sum_loss_a_factor_2():
    """(71)-(75): at Z Z^T = mu I the rate is 4 mu X X^T, which (71) with (73) makes 4 mu X X^T/2
    and (75) 2 mu lambda."""
    rng = np.random.default_rng(0)
    X, mu = rng.standard_normal((3, 2, 2)), 1.28
    lifted = np.zeros((3, 4, 4))
    lifted[:, :2, 2:], lifted[:, 2:, :2] = 0.5 * X, 0.5 * X.transpose(0, 2, 1)
    gram = np.tensordot(X, X, ((1, 2), (1, 2)))
    assert_allclose(np.tensordot(lifted, lifted, ((1, 2), (1, 2))), 0.5 * gram)
    tangent = LinearizedFactorization(
        infinitely_wide((2, 2), np.sqrt(mu / 2)), MatrixSensing(X, np.ones(3))
    )
    assert_allclose(tangent.speed * tangent.kernel, 4.0 * mu * gram)


def test_w11_bound_of_the_first_error():
    """(89) prints 256 k d^3 alpha^4 Lambda^2: wrong units, so that weak measurements fail it."""
    d, k, alpha = 3, 10**4, 0.1
    X = 1e-4 * np.linalg.qr(np.random.default_rng(0).standard_normal((9, 4)))[0].T.reshape(4, d, d)
    model = MatrixFactorization.gaussian((d, d), width=k, scale=alpha, rng=0)
    regime = KernelRegime.of(model, MatrixSensing(X, np.zeros(4)))
    printed = 256 * k * d**3 * alpha**4 * regime.largest**2
    corrected = WideRegime(alpha, k, 2 * d, regime.smallest, regime.largest, 0.0).error ** 2
    assert_allclose(corrected, 256 * k * d**2 * alpha**4 * regime.largest)
    assert printed < regime.error**2 <= corrected


def test_w11_printed_width_is_not_enough():
    """The third term of (94), Y/(2 alpha^2 sqrt(L) (l + 4 L)), does not imply (92)."""
    k, alpha, d = 10**7, 1e-3, 2
    target = 50.0
    regime = WideRegime(alpha, k, 2 * d, 1.0, 1.0, target)
    assert k >= 8192 * d
    assert k >= 512 * d**3 * (4 + 16) ** 2
    assert k >= target / (2 * alpha**2 * (1 + 4))
    assert target > regime.regime.largest_error  # ||y(0) - y*|| is about ||y*||
    assert regime.least_width > k


@pytest.mark.parametrize(
    ("lam", "big", "target"), [(1.0, 30.0, 1e-9), (2.0, 2.0, 1e-9), (0.5, 0.6, 1e9)]
)
def test_w11_corrected_widths(lam, big, target):
    """(94) for square matrices, as the errata have it; its first term is never the largest."""
    d, alpha = 5, 0.7
    terms = (
        8192 * big**2 * d / lam**2,
        512 * d**2 * big**2 * (4 + 16 * big / lam) ** 2 / lam**2,
        8 * target * np.sqrt(big) * (lam + 4 * big) / (alpha**2 * lam**2),
    )
    assert_allclose(WideRegime(alpha, 1, 2 * d, lam, big, target).least_width, max(terms))


@pytest.mark.parametrize("k", [10**4, 10**8, 10**12])
def test_w11_printed_right_hand_side_is_negative(k):
    """(93) prints 8 sqrt(2 k d)/sqrt(k) for gamma/mu: at any width the bound could never hold."""
    d = 2
    right = 8 * np.sqrt(2 * d) / np.sqrt(k)
    printed = 8 * np.sqrt(2 * k * d) / np.sqrt(k)
    assert_allclose(right, WideRegime(1.0, k, 2 * d, 1.0, 1.0, 1.0).gamma / k)
    assert 1 - np.sqrt((1 + printed) / 1.25) < 0


def test_w12_velocity_of_the_symmetric_model():
    rng = np.random.default_rng(0)
    W, X, y = rng.standard_normal((3, 2)), rng.standard_normal((2, 3, 3)), rng.standard_normal(2)
    assert symmetric_velocity(W, MatrixSensing(X, y)).holds
    M = W @ W.T
    G = 2 * np.tensordot(np.tensordot(X, M, 2) - y, X, 1)
    G = 0.5 * (G + G.T)
    h = 1e-6
    moved = W - h * 2 * G @ W  # one small step down the gradient in W, 2 G W
    velocity = (moved @ moved.T - M) / h
    printed = G @ M + M @ G
    assert_allclose(velocity, -2 * printed, rtol=1e-3, atol=1e-3)
    assert np.linalg.norm(velocity - printed) > np.linalg.norm(printed)


def test_w13_scale_between_1_over_k_and_1_over_root_k_is_rich():
    """alpha = k^(-3/4) goes to zero slower than 1/k, yet alpha^2 k -> 0: no kernel regime."""
    problem = MatrixCompletion([0, 0, 1], [0, 1, 0], [1.0, 1.0, 1.0], (2, 2))
    ends = []
    for k in (10**3, 10**6):
        model = MatrixFactorization.gaussian((2, 2), width=k, scale=k**-0.75, rng=1)
        ends.append(follow_factors(model, problem).M[-1][1, 1])
    # Kernel: the unobserved entry stays near 0. Rich: rank one, so it goes to 1.
    assert ends[0] > 0.5
    assert ends[1] > 0.9
    model = MatrixFactorization.gaussian((2, 2), width=10**6, scale=(10**6) ** -0.3, rng=1)
    assert abs(follow_factors(model, problem).M[-1][1, 1]) < 0.05


def test_w14_rows_and_not_columns_must_be_orthogonal():
    """One column is orthogonal to all others, for want of any; its kernel is no delta."""
    ones = np.ones((2, 1)) / np.sqrt(2)
    problem = MatrixCompletion([0, 0, 1], [0, 1, 0], [1.0, 1.0, 1.0], (2, 2))
    kernel = completion_kernel(MatrixFactorization(ones, ones), problem)
    assert np.abs(kernel - np.diag(np.diag(kernel))).max() > 0.4
    wide = np.hstack([np.eye(2), np.eye(2)])  # orthogonal rows, columns that are not
    kernel = completion_kernel(MatrixFactorization(wide, wide), problem)
    assert_allclose(kernel, 4 * np.eye(3))


def test_w15_planted_matrix_need_not_have_the_least_nuclear_norm():
    """The sizes of Figure 5: in one draw the planted matrix is the least, in another not."""
    pytest.importorskip("cvxpy")
    shares = {}
    for seed in (2, 5):
        rows, cols, values, truth = low_rank_completion((10, 10), rank=1, observed=60, rng=seed)
        least = nuclear_norm(MatrixCompletion(rows, cols, values, (10, 10)))
        assert_allclose(least.M[rows, cols], values, atol=1e-9)
        shares[seed] = np.linalg.norm(least.M, "nuc") / np.linalg.norm(truth, "nuc")
    assert shares[2] == pytest.approx(1.0, abs=1e-6)
    assert shares[5] < 0.95


@pytest.mark.parametrize("t", [0.1, 1.0])
def test_hyperbolic_angle_is_twice_the_dual(t):
    """One entry: m = c_i^(1/2) sinh(2 x) with x = -c int r, followed in the factors."""
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((1, 3)), rng.standard_normal((1, 3))
    net, target = LinearNet(u, v), 2.0
    path = follow_weights(net, MatrixRegression([[1.0]], [[target]]), t)
    m = path.M[:, 0, 0]
    assert (np.diff(np.sign(m - target)) == 0).all()  # so that int |r| is int r up to its sign
    x = np.sign(target - m[0]) * path.error_integral[-1]
    root_c = np.sqrt((0.5 * (np.sum(u**2) + np.sum(v**2))) ** 2 - m[0] ** 2)
    moved = np.arcsinh(m[-1] / root_c) - np.arcsinh(m[0] / root_c)
    assert moved == pytest.approx(2.0 * x, rel=1e-9)
    assert abs(moved - x) > 0.1 * abs(x)
