"""Bounds on products U V^T that no other test attains: instances within 1%, or how close one comes.

Where a proof says no closer, the sharper form that it proves is the one to be attained.
"""

import numpy as np
import pytest
import scipy.stats

from flowbias import theory
from flowbias.models import LinearNet
from flowbias.models.factorization import MatrixFactorization
from flowbias.problems.matrix import MatrixRegression, MatrixSensing
from flowbias.theory.factorization_kernel_regime import (
    KernelRegime,
    kernel_regime,
    residual_decay,
    wide_gram,
    wide_kernel_regime,
    wide_regime,
)
from flowbias.theory.matrix_factorization import infinitely_wide
from flowbias.theory.measured_flow import follow_weights
from flowbias.theory.tangent_factorization import gaussian_rows_give_delta

STRONGER = 1.01


def attains(claim):
    """An upper bound that holds, and that would not if it were 1% smaller."""
    return claim.holds and STRONGER * claim.measured > claim.predicted


# --- woodworth2020, appendix H ---------------------------------------------------------------


def one_entry(levels, error):
    """Orthogonal rows of [U; V] with these squared lengths, one entry observed, and its error."""
    Z = np.diag(np.sqrt(levels))
    d = len(levels) // 2
    X = np.zeros((1, d, d))
    X[0, 0, 0] = 1.0
    return MatrixFactorization(Z[:d], Z[d:]), MatrixSensing(X, [error])


def test_lemma_11_is_attained_by_the_flow_itself():
    """Not only by the tangent model: a small error hardly moves the kernel."""
    mu, error = 1.3, 1e-4
    model, problem = infinitely_wide((1, 1), np.sqrt(mu / 2)), MatrixSensing([[[1.0]]], [error])
    regime = KernelRegime.of(model, problem)
    decay, tangent = residual_decay(model, problem, loss=1.0)
    assert decay.holds
    assert tangent.holds
    rate = regime.least_rate(regime.movement_bound)
    net = LinearNet(model.root[:1], model.root[1:])
    path = follow_weights(net, MatrixRegression([[1.0]], [[error]]), [1.0 / rate])
    assert path.error[-1] <= error * np.exp(-rate * path.t[-1])
    assert path.error[-1] > error * np.exp(-STRONGER * rate * path.t[-1])


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.2, 0.249])
def test_lemma_12_with_the_best_constant_is_attained(gamma):
    """Movement <= e/sqrt(2 lambda (mu - gamma)) as e -> 0; the printed bound is larger by at least
    sqrt(15/8), the factor reached as gamma -> mu/4, where its hypothesis ends."""
    levels = np.array([1 - gamma, 1 + gamma, 1 - gamma, 1 + gamma])
    model, _ = one_entry(levels, 0.0)
    allowed = KernelRegime.of(model, MatrixSensing([np.diag([1.0, 0.0])], [0.0])).largest_error
    error = 1e-2 * allowed
    model, problem = one_entry(levels, error)
    printed, _ = kernel_regime(model, problem, loss=1.0)
    assert printed.holds
    best = error / np.sqrt(2.0 * (1.0 - gamma))
    assert best / STRONGER < printed.measured <= best
    assert printed.measured <= np.sqrt(8.0 / 15.0) * printed.predicted
    if gamma == 0.249:
        assert STRONGER * printed.measured > np.sqrt(8.0 / 15.0) * printed.predicted


@pytest.mark.parametrize("K", [1.0, 1.5, 4.0, 100.0])
def test_lemma_12_cannot_be_attained(K):
    """Section 5's length over the printed bound, for all gamma and e that the lemma allows."""
    gammas = np.linspace(0.0, 0.25 / K, 200, endpoint=False)
    most = 1.0 / np.sqrt(2.0 * K - 1.0 / (8.0 * K))
    for gamma in gammas:
        largest = KernelRegime(1.0, K, 1.0, gamma, 0.0).largest_error
        for error in largest * np.array([1e-6, 0.3, 1.0]):
            strength = 2.0 * (1.0 - gamma)
            length = 2.0 * error / (np.sqrt(strength) + np.sqrt(strength - 2.0 * error))
            bound = KernelRegime(1.0, K, 1.0, gamma, error).movement_bound
            assert length <= most * bound * (1 + 1e-12)


def test_distance_to_the_tangent_model_is_of_second_order():
    """Theorem 9 allows 2 e and more; the largest error allowed gives a hundredth of that."""
    model, _ = one_entry(np.ones(2), 0.0)
    allowed = KernelRegime.of(model, MatrixSensing([[[1.0]]], [0.0])).largest_error
    ratios = []
    for share in (0.5, 1.0):
        instance = one_entry(np.ones(2), share * allowed * (1 - 1e-9))
        _, tangent = kernel_regime(*instance, loss=1.0)
        assert tangent.holds
        ratios.append(tangent.measured / tangent.predicted)
        # Rows turn by theta with sinh(2 theta) = e: (cosh theta - 1, sinh theta - e/2), twice.
        theta = 0.5 * np.arcsinh(share * allowed)
        exact = np.sqrt(2.0) * np.hypot(np.cosh(theta) - 1, np.sinh(theta) - share * allowed / 2)
        assert tangent.measured == pytest.approx(exact, rel=1e-4)
    assert ratios[1] == pytest.approx(2.0 * ratios[0], rel=0.05)
    assert ratios[1] == pytest.approx(0.0088, rel=0.02)


def at_the_edge(rows, width, scale):
    """The event of Lemma 13 at its edge: one singular value sqrt(k) + 2 sqrt(p), others sqrt(k)."""
    values = np.full(rows, np.sqrt(width))
    values[0] += 2.0 * np.sqrt(rows)
    return scale * np.diag(values)[:, :width]


@pytest.mark.parametrize("rows", [2, 6, 30])
def test_lemma_13_is_attained_on_its_event(rows):
    Z = at_the_edge(rows, rows, 0.3)
    claim = wide_gram(MatrixFactorization(Z[: rows // 2], Z[rows // 2 :]), 0.3)
    assert claim.measured == pytest.approx(claim.predicted, rel=1e-12)
    # and at large width up to a factor 2: 4 sqrt(k p) + 4 p against 8 sqrt(k p)
    wide = MatrixFactorization.gaussian((rows, rows), width=10**8, scale=0.3, rng=0)
    assert wide_gram(wide, 0.3).measured < 0.5 * wide_gram(wide, 0.3).predicted


@pytest.mark.parametrize("d", [1, 3, 10])
def test_delta_kernel_bound_is_attained_on_its_event(d):
    """Both factors at the edge of their events, at width d."""
    Z = at_the_edge(d, d, 0.7)
    claim = gaussian_rows_give_delta(MatrixFactorization(Z, Z), 0.7)
    assert claim.measured == pytest.approx(claim.predicted, rel=1e-12)


def test_corollary_10_inherits_the_slack_of_lemma_12():
    """Gaussian starts have e near ||y*||, for which the corollary has sqrt(2) ||y*||: 1/sqrt(5)."""
    width = 10**9
    model = MatrixFactorization.gaussian((1, 1), width=width, scale=1e-4, rng=0)
    problem = MatrixSensing([[[1.0]]], [0.1])
    assert wide_regime(model, problem, 1e-4).least_width < width
    movement, tangent = wide_kernel_regime(model, problem, 1e-4, loss=1.0)
    assert movement.holds
    assert tangent.holds
    assert movement.measured / movement.predicted == pytest.approx(np.sqrt(0.2), rel=0.01)


# --- min2021, Lemma E.1 and Theorem 12 -------------------------------------------------------


def test_exponent_of_lemma_e1_is_attained():
    """n = m = 1: 2 exp(-1.01 t^2/2) is below the tail of |g| beyond 2 + t once t > 400."""
    t = 1000.0
    log_tail = np.log(2.0) + scipy.stats.norm.logsf(2.0 + t)
    assert log_tail <= np.log(2.0) - 0.5 * t * t
    assert log_tail > np.log(2.0) - STRONGER * 0.5 * t * t


def sharp_wide_limit(problem, bounds):
    """2 T h^(1/2-2a) exp(8/9 (1 + l1^(1/2) ||Y||/lr)/h^(1-2a)): without Theorem 12's losses."""
    root = problem.spectrum.root
    x = (1.0 + root[0] * np.linalg.norm(problem.Y) / root[-1] ** 2) / bounds.level
    return 2.0 * bounds.T * bounds.width ** (0.5 - 2.0 * bounds.exponent) * np.exp(8.0 / 9.0 * x)


def widest_defect(d, r, m, bounds):
    """A start on the event whose V U2^T has the largest operator norm: rank one, 2 T sqrt(h)."""
    unit = bounds.width ** (-2.0 * bounds.exponent)
    G = (bounds.width + bounds.T**2) * unit * np.eye(d + m)
    # A thousandth inside the event, since rounding decides at its edge.
    G[d - 1, d] = G[d, d - 1] = 0.999 * 2.0 * bounds.T * np.sqrt(bounds.width) * unit
    Z = np.linalg.cholesky(G)
    return LinearNet(Z[:d], Z[d:])


@pytest.mark.parametrize(("d", "r", "m"), [(2, 1, 1), (5, 2, 2)])
def test_theorem_12_without_its_losses_is_attained(d, r, m):
    """The operator norm of one block, and the level 9/8: Theorem 12 is larger by sqrt(m + r)."""
    width, exponent, delta = 1e10, 0.35, 0.1
    bounds = theory.wide_start_bounds(d, m, r, width, exponent, delta)
    problem = MatrixRegression(np.eye(r, d), np.ones((r, m)))
    net = widest_defect(d, r, m, bounds)
    assert all(claim.holds for claim in theory.wide_start(net, problem.X, bounds))
    end = follow_weights(net, problem).M[-1]
    distance = np.linalg.norm(end - problem.min_norm, 2)
    sharp = sharp_wide_limit(problem, bounds)
    assert sharp / STRONGER < distance <= sharp
    printed = theory.wide_limit_bound(problem, width, exponent, delta)
    assert distance / printed == pytest.approx(1.0 / np.sqrt(m + r), rel=0.01)


def test_theorem_12_without_its_losses_holds_on_random_starts_of_the_event():
    rng = np.random.default_rng(0)
    closest = 0.0
    for _ in range(25):
        d, m = int(rng.integers(2, 5)), int(rng.integers(1, 3))
        r = int(rng.integers(1, d))
        X = np.linalg.qr(rng.standard_normal((d, d))).Q[:r] * rng.uniform(0.5, 2.0)
        problem = MatrixRegression(X, rng.standard_normal((r, m)) * rng.uniform(0.1, 2.0))
        exponent = rng.uniform(0.35, 0.5)
        T = np.sqrt(m + d) + np.sqrt(2.0 * np.log(2.0 / 0.1))
        least = max(16.0 * T * T, (4.0 * m * T * T) ** (1.0 / (4.0 * exponent - 1.0)))
        bounds = theory.wide_start_bounds(d, m, r, 1.01 * least, exponent, 0.1)
        values = np.sqrt(bounds.width) + bounds.T * rng.choice([-1.0, 1.0], d + m)
        Q = np.linalg.qr(rng.standard_normal((d + m, d + m))).Q
        Z = (Q * (values * bounds.width**-bounds.exponent)) @ Q.T
        end = follow_weights(LinearNet(Z[:d], Z[d:]), problem).M[-1]
        distance = np.linalg.norm(end - problem.min_norm, 2)
        ratio = distance / sharp_wide_limit(problem, bounds)
        assert ratio <= 1.0
        assert distance <= theory.wide_limit_bound(problem, bounds.width, exponent, 0.1)
        closest = max(closest, ratio)
    assert closest > 0.1
