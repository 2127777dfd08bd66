"""Designed instances on which the bounds are nearly attained: the claims are not vacuous."""

from dataclasses import replace

import numpy as np
import pytest

import flowbias as fb
from flowbias import theory

STRONGER = 0.99


def test_lemma_5_is_attained_below():
    # ln x >= 1 - 1/x is an equality at x = 1, and one coordinate wastes nothing.
    eps = 0.01
    below, _ = theory.nearly_l1([1.0], eps)
    assert below.holds
    assert not replace(below, predicted=1.0 - STRONGER * eps).holds


def test_lemma_5_is_attained_above():
    # ln b - 1 against ln 2b: the same for an enormous norm.
    eps, w = 0.01, 1e300
    _, above = theory.nearly_l1([w], eps)
    assert above.holds
    assert not replace(above, predicted=(1.0 + STRONGER * eps) * w).holds


def test_lemma_6_is_within_a_factor_2_of_the_truth():
    eps = 0.1
    claim = theory.not_l1(eps, 1e300)
    assert claim.holds
    assert not replace(claim, predicted=1.0 + 2.02 * eps).holds


def test_sharp_form_of_lemma_7_is_attained():
    # One coordinate, because then ||w||_4 = ||w||_2.
    eps, square = 1e-5, 4.0
    below, _ = theory.sharply_l2([2.0, 0.0], eps)
    assert below.holds
    assert not replace(below, predicted=(1.0 - STRONGER * eps) * square).holds


def test_lemma_7_scale_has_room():
    # At the printed scale the deviation stays below eps/40: 3/96 by the paper's own estimate.
    eps = 0.5
    below, above = theory.nearly_l2([2.0, 0.0], eps)
    assert abs(below.measured / 4.0 - 1.0) < eps / 40.0
    assert below.holds
    assert above.holds


@pytest.mark.parametrize(
    ("claims", "leading"),
    [
        (theory.hypentropy_small(0.1), 0.1**2 / 4 - 0.1**4 / 192),
        (theory.hypentropy_large(100.0), 100 * np.log(100) - 100 + 2 - 0.01),
    ],
)
def test_last_term_of_an_expansion_counts(claims, leading):
    below, above = claims
    assert below.predicted == pytest.approx(leading, rel=1e-14)
    last = above.predicted - leading
    assert not replace(above, predicted=leading + STRONGER * last).holds
    assert not replace(below, predicted=leading + 1.01 * last).holds


@pytest.mark.parametrize("depth", [2.2, 3.0, 4.0, 10.0])
def test_quartic_term_is_exact_at_any_depth(depth):
    below, above = theory.depth_potential_small(1e-3, depth)
    drop = above.predicted - below.predicted
    assert not replace(below, predicted=above.predicted - STRONGER * drop).holds


@pytest.mark.parametrize("depth", [3.0, 4.0, 10.0])
def test_constant_at_infinity_is_exact_at_any_depth(depth):
    _, above = theory.depth_potential_large(1e8, depth)
    k = depth / (depth - 2.0)
    constant = (depth - 2.0) * (1.0 - 2.0**-k)
    assert not replace(above, predicted=above.predicted - 0.01 * constant).holds


def test_lemma_8_is_attained_with_the_corrected_constant():
    # A small start must use nearly all of its dual domain to grow.
    model = fb.DiagonalNet(depth=4, scale=0.05)
    claim = theory.dual_stays_inside(model, [[1.0, 0.5]], [1.0], [4000.0], loss="sum")
    assert claim.predicted == 1.0 / (2 * 4 * 2)
    assert claim.holds
    assert not replace(claim, predicted=STRONGER * claim.predicted).holds


def in_the_kernel_regime(depth):
    """One sample and a large start: the residual is e^(-rate t), rate the tangent kernel's."""
    scale = 30.0 ** (2.0 / depth)
    rate = 2.0 * depth**2 * scale ** (2.0 * depth - 2.0) * 5.0
    return fb.DiagonalNet(depth=depth, scale=scale), np.array([[1.0, 2.0]]), np.array([1.0]), rate


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_zero_error_rate_is_attained_in_the_kernel_regime(depth):
    model, X, y, rate = in_the_kernel_regime(depth)
    (claim,) = theory.zero_error(model, X, y, 3.0 / rate)
    assert claim.predicted == pytest.approx(np.exp(-3.0))
    assert claim.holds
    assert not replace(claim, predicted=float(np.exp(-1.01 * 3.0))).holds


def test_loss_gap_is_within_a_factor_of_the_truth():
    # For a quadratic potential the best constant is 1/(2e), taken at rate t = 1/2.
    model, X, y, rate = in_the_kernel_regime(2)
    (claim,) = theory.loss_gap(model, X, y, 0.5 / rate)
    assert claim.measured / claim.predicted == pytest.approx(0.5 / np.e, rel=1e-3)


def one_heavy_many_light(d):
    """w_K with three quarters of its square in one entry, free to move only where Q pulls it."""
    w = np.full(d, np.sqrt(0.25 / (d - 1)))
    w[0] = np.sqrt(0.75)
    pull = w**3 - np.sum(w**4) * w  # orthogonal to w
    basis = np.linalg.svd(pull[None, :])[2][1:]  # rows that span what is orthogonal to it
    return basis, basis @ w


def test_kernel_distance_is_within_a_factor_of_the_truth():
    # w_i^2 as a random variable with probabilities w_i^2 deviates by at most 3 sqrt(3)/16 = 0.325.
    X, y = one_heavy_many_light(60)
    claim = theory.kernel_distance(fb.DiagonalNet(depth=2, scale=5.0), X, y)
    assert claim.holds
    assert claim.measured / claim.predicted == pytest.approx(3.0 * np.sqrt(3.0) / 16.0, rel=0.02)


def test_sharp_kernel_scale_is_within_a_factor_of_the_truth():
    X, y = one_heavy_many_light(60)
    eps = 1e-4
    claim = theory.sharp_kernel_guarantee(X, y, eps)
    assert claim.holds
    least = np.linalg.norm(fb.min_norm(X, y).w)
    smaller = fb.DiagonalNet(log_scale=theory.sharp_kernel_log_scale(eps, least) - 0.5 * np.log(2))
    w = fb.limit(smaller, X, y).w
    assert not replace(claim, measured=float(w @ w) / least**2).holds
    # The printed scale is larger than needed by a factor that grows like eps^(-1/4).
    sharp = np.exp(theory.sharp_kernel_log_scale(eps, least))
    assert theory.kernel_scale(eps, least) > 50.0 * sharp


def test_sharp_rich_scale_is_within_a_factor_of_the_truth_in_the_exponent():
    # One column slightly better than d-1 others, which together tempt a start that is too large.
    d, eps = 1000, 0.1
    X = np.full((1, d), 0.875)
    X[0, 0] = 1.0
    claim = theory.sharp_rich_guarantee(X, [1.0], eps)
    assert claim.holds
    log_scale = theory.sharp_rich_log_scale(eps, 1.0, d)
    w = fb.limit(fb.DiagonalNet(log_scale=0.5 * log_scale), X, [1.0]).w
    assert not replace(claim, measured=float(np.abs(w).sum())).holds
    # The printed condition asks for a scale a hundred times smaller in the exponent.
    assert theory.rich_log_scale(eps, 1.0, d) < 100.0 * log_scale


def test_printed_rich_scale_comes_close_to_ours():
    # 2b = e and 2d/b = (2 + eps) ln(2(1+eps)b): both parts of the printed minimum at once.
    eps, b = 1e-4, np.e / 2.0
    d = 0.5 * b * (2.0 + eps) * np.log(2.0 * (1.0 + eps) * b)
    printed, sharp = theory.rich_log_scale(eps, b, d), theory.sharp_rich_log_scale(eps, b, d)
    assert printed <= sharp
    assert printed == pytest.approx(sharp, rel=1e-3)


def test_untied_bounds_are_attained():
    below, above = theory.untied_near_l2([1e-2], 1.0)
    drop = above.predicted - below.predicted
    assert not replace(below, predicted=above.predicted - STRONGER * drop).holds
    below, above = theory.untied_near_l1([1.0], 1e-3)
    room = above.predicted - below.predicted
    assert not replace(above, predicted=below.predicted + STRONGER * room).holds


def test_explicit_distance_approaches_l1_polynomially_hypentropy_exponentially():
    d, eps = 100.0, np.geomspace(1e-1, 1e-5, 9)
    of_distance = [
        theory.l1_approach_log_scale(lambda log: fb.DistancePotential(log_scale=log), e, d, -200.0)
        for e in eps
    ]
    slopes = np.diff(of_distance) / np.diff(np.log(eps))
    # Slope 1 in the limit; at eps = 0.1 the correction is of the order of eps d^(1/4).
    np.testing.assert_allclose(slopes, 1.0, atol=0.1)
    assert slopes[-1] == pytest.approx(1.0, abs=1e-3)
    eps = np.geomspace(1e-1, 1e-3, 9)
    of_hypentropy = [
        theory.l1_approach_log_scale(lambda log: fb.Hypentropy(log_scale=log), e, d) for e in eps
    ]
    # A straight line in 1/eps, not in log eps.
    np.testing.assert_allclose(
        np.diff(of_hypentropy) / np.diff(1.0 / eps), -np.log(d) / 4.0, rtol=1e-6
    )


# --- bounds that no instance comes near: they are pinned by their formulas, on one coordinate -----


def hypentropy(w, alpha):
    """The potential of depth 2 as the paper prints it, s = 2 alpha^2."""
    s = 2.0 * alpha**2
    return w * np.arcsinh(w / s) - np.hypot(s, w) + s


ALPHA, TARGET = 0.3, 1.7
ONE = fb.DiagonalNet(depth=2, scale=ALPHA), [[1.0]], [TARGET]


def test_loss_gap_is_bounded_by_the_divergence_over_time():
    times = np.array([0.2, 1.0, 3.0])
    found = [claim.predicted for claim in theory.loss_gap(*ONE, t=times)]
    # g = 4 at depth 2, for c = 1.
    np.testing.assert_allclose(found, hypentropy(TARGET, ALPHA) / (4.0 * times), rtol=1e-9)


def test_the_saddle_is_left_at_the_latest_where_the_loss_gap_halves_the_loss():
    early, late = theory.escape_from_the_saddle(*ONE)
    # asinh((1 - 1/sqrt 2) |y|/(2 a^2))/(4 |y|), and 2 D_Q/(g L(0)) with g = 4, L(0) = y^2/2.
    reach = (1.0 - np.sqrt(0.5)) * TARGET / (2.0 * ALPHA**2)
    times = [np.arcsinh(reach) / (4.0 * TARGET), hypentropy(TARGET, ALPHA) / TARGET**2]
    shares = (1.0 - fb.flow(*ONE, t=times).w[:, 0] / TARGET) ** 2
    np.testing.assert_allclose([early.measured, late.measured], shares, atol=1e-6)


def test_distance_to_the_kernel_limit_is_bounded_by_the_smaller_root():
    scale, y = 2.0, 3.0
    claim = theory.kernel_distance(fb.DiagonalNet(2, scale), [[1.0, 1.0]], [y])
    # w_K = (y/2, y/2), and kappa = 1/48 at depth 2.
    T = 48.0 * scale**4 / (y**2 / 2.0)
    eta = claim.predicted**2
    assert eta == pytest.approx(4.0 * (1.0 + eta) ** 3 / T**2, rel=1e-9)


def test_weights_stay_bounded_by_the_first_error_over_the_rate():
    u, v, y = 1.5, 0.4, 1.0
    bounded, _, _ = theory.weights_converge(fb.LinearNet([[u]], [[v]]), [[1.0]], [[y]])
    error = abs(y - u * v)
    rate = 2.0 * np.hypot(u**2 - v**2, 2.0 * max(y - error, 0.0))  # [min2021, (15)]
    assert bounded.predicted == pytest.approx(2.0 * error / rate, rel=1e-12)


@pytest.mark.parametrize("depth", [3.0, 4.0, 10.0])
def test_room_below_the_expansion_at_infinity_is_a_power(depth):
    below, above = theory.depth_potential_large(20.0, depth)
    assert above.predicted - below.predicted == pytest.approx(20.0 ** (2.0 / depth - 1.0))
