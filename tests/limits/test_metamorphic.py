"""Change the problem in a way whose effect on the limit is known; the limit must follow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb

# Two certified solutions each within 1e-10 of feasibility and gap, in problems of size one.
SAME = {"rtol": 1e-7, "atol": 1e-9}
DEPTHS = st.sampled_from([2, 2.5, 3, 4, 7])
LOG_SCALES = st.floats(-60.0, 3.0)


def problem(seed, n=5, d=13):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n), rng


@given(seed=st.integers(0, 10**6), depth=DEPTHS, log_scale=LOG_SCALES)
def test_features_may_be_permuted_and_flipped(seed, depth, log_scale):
    X, y, rng = problem(seed)
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale)
    order, sign = rng.permutation(13), rng.choice([-1.0, 1.0], 13)
    moved = fb.limit(model, (X * sign)[:, order], y).w
    assert_allclose(moved, (fb.limit(model, X, y).w * sign)[order], **SAME)


@given(seed=st.integers(0, 10**6), depth=DEPTHS, log_scale=LOG_SCALES)
def test_samples_may_be_mixed(seed, depth, log_scale):
    """Only the set of interpolators counts, so any invertible mixing of the rows is the same."""
    X, y, rng = problem(seed)
    mix = rng.standard_normal((5, 5)) + 3.0 * np.eye(5)
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale)
    assert_allclose(fb.limit(model, mix @ X, mix @ y).w, fb.limit(model, X, y).w, **SAME)


@given(seed=st.integers(0, 10**6), depth=DEPTHS, log_scale=LOG_SCALES)
def test_sign_of_the_outputs(seed, depth, log_scale):
    X, y, _ = problem(seed)
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale)
    assert_allclose(fb.limit(model, X, -y).w, -fb.limit(model, X, y).w, **SAME)


@given(seed=st.integers(0, 10**6), depth=DEPTHS, log_scale=st.floats(-20.0, 2.0))
def test_homogeneity(seed, depth, log_scale):
    """scale -> r scale and y -> r^D y takes w to r^D w."""
    X, y, _ = problem(seed)
    small = fb.limit(fb.DiagonalNet(depth=depth, log_scale=log_scale), X, y).w
    large = fb.limit(fb.DiagonalNet(depth=depth, log_scale=log_scale + 1.0), X, np.exp(depth) * y).w
    assert_allclose(large / np.exp(depth), small, **SAME)


@given(seed=st.integers(0, 10**6), log_scale=st.floats(-12.0, 2.0))
def test_a_repeated_feature_shares_its_weight(seed, log_scale):
    """Two equal columns at depth 2 act as one that starts sqrt(2) times as large."""
    X, y, _ = problem(seed)
    doubled = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale), np.hstack([X, X[:, :1]]), y).w
    w0 = np.ones(13)
    w0[0] = np.sqrt(2.0)
    merged = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale, w0=w0), X, y).w
    assert_allclose(doubled[0], doubled[-1], **SAME)
    assert_allclose(doubled[0] + doubled[-1], merged[0], **SAME)
    assert_allclose(doubled[1:-1], merged[1:], **SAME)


@given(seed=st.integers(0, 10**6), log_scale=st.floats(-20.0, 2.0))
def test_shape_zero_is_the_tied_network(seed, log_scale):
    X, y, _ = problem(seed)
    untied = fb.limit(fb.UntiedDiagonalNet(log_scale=log_scale, shape=0.0), X, y)
    tied = fb.limit(fb.DiagonalNet(depth=2, log_scale=log_scale), X, y)
    assert_allclose(untied.w, tied.w, **SAME)


@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 3.0))
def test_explicit_distance_is_depth_four(seed, scale):
    X, y, _ = problem(seed)
    explicit = fb.limit(fb.DistancePotential(scale=scale), X, y).w
    assert_allclose(
        explicit, fb.limit(fb.DiagonalNet(depth=4, scale=np.sqrt(scale)), X, y).w, **SAME
    )


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_two_extremes(depth):
    X, y, rng = problem(1)
    w0 = rng.uniform(0.5, 2.0, 13)
    model = fb.DiagonalNet(depth=depth, scale=1.0, w0=w0)
    kernel = fb.limit(model.at_log_scale(9.0), X, y).w
    assert_allclose(kernel, fb.min_norm(X, y, weights=w0 ** (2.0 - 2 * depth)).w, atol=1e-7)
    rich = fb.limit(model.at_log_scale(-400.0), X, y).w
    pursuit = fb.basis_pursuit(X, y, weights=w0 ** (2.0 - depth))
    assert pursuit.details["dual_margin"] > 0.03
    assert_allclose(rich, pursuit.w, atol=1e-7)
    assert_allclose(fb.rich_limit(model, X, y).w, pursuit.w, atol=1e-12)
