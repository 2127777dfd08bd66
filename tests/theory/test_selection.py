"""Which minimizer the rich limit selects, against an independent search on the face."""

import numpy as np
import pytest
import scipy.optimize

import flowbias as fb

X = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
Y = np.array([1.0, 0.8])
# A search stops at the root of rounding relative to the curvature of the function it minimizes.
SEARCH = 1e-7


def on_face(t):
    """All minimizers of the l1 norm: X w = y and w >= 0."""
    return np.array([0.2 + t, 0.8 - 2.0 * t, t])


def selected(function):
    found = scipy.optimize.minimize_scalar(
        lambda t: function(on_face(t)),
        bounds=(0.0, 0.4),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return on_face(found.x)


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_uniform_start(depth):
    def selecting(w):
        return np.sum(w * np.log(w)) if depth == 2 else -np.sum(w ** (2.0 / depth))

    expected = selected(selecting)
    model = fb.DiagonalNet(depth=depth, scale=1.0)
    np.testing.assert_allclose(fb.rich_limit(model, X, Y).w, expected, atol=SEARCH)
    # The limit at a small scale agrees up to the remainder, of order scale^2.
    small = fb.limit(model.at_log_scale(np.log(1e-5)), X, Y).w
    np.testing.assert_allclose(small, expected, atol=SEARCH)


def test_shape_of_the_start_tilts_the_selection_at_depth_2():
    w0 = np.array([0.5, 2.0, 0.7])
    expected = selected(lambda w: np.sum(w * np.log(w / w0**2)))
    model = fb.DiagonalNet(depth=2, scale=1.0, w0=w0)
    np.testing.assert_allclose(fb.rich_limit(model, X, Y).w, expected, atol=SEARCH)
    assert np.abs(expected - selected(lambda w: np.sum(w * np.log(w)))).max() > 0.05


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_shape_of_the_start_decides_the_norm_at_depth_3_and_more(depth):
    w0 = np.array([0.8, 1.0, 1.3])
    weights = w0 ** (2.0 - depth)
    model = fb.DiagonalNet(depth=depth, scale=1.0, w0=w0)
    rich = fb.rich_limit(model, X, Y).w
    np.testing.assert_allclose(rich, fb.basis_pursuit(X, Y, weights=weights).w, atol=1e-9)
    small = fb.limit(model.at_log_scale(np.log(1e-9) / (depth - 2)), X, Y).w
    np.testing.assert_allclose(small, rich, atol=1e-6)
    # Plain l1 does not tell the points of the face apart; the weights do.
    assert np.min(rich) < 1e-9
    assert np.min(fb.rich_limit(fb.DiagonalNet(depth=depth, scale=1.0), X, Y).w) > 0.05


@pytest.mark.parametrize("depth", [3, 4])
def test_selection_at_depth_3_and_more_does_not_depend_on_the_shape(depth):
    # Data scaled so that all non-negative solutions have the same weighted norm: to the last bit,
    # by powers of two, since a tie that rounding breaks is none.
    w0 = np.array([0.5, 1.0, 2.0])
    weights = w0 ** (2.0 - depth)
    tilted = np.vstack([weights, X[1]])
    w_true = np.array([0.3, 0.4, 0.3])
    target = tilted @ w_true
    null = np.linalg.svd(tilted)[2][-1]
    ends = np.sort(-w_true / null)
    bounds = (ends[ends < 0].max(), ends[ends > 0].min())
    found = scipy.optimize.minimize_scalar(
        lambda t: -np.sum((w_true + t * null) ** (2.0 / depth)),
        bounds=bounds, method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    model = fb.DiagonalNet(depth=depth, scale=1.0, w0=w0)
    rich = fb.rich_limit(model, tilted, target).w
    np.testing.assert_allclose(rich, w_true + found.x * null, atol=SEARCH)
