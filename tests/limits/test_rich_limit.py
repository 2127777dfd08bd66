"""The rich extreme: its certificate, its uniqueness, and the minimizer that the flow selects."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.limits.rich_limit import rich_limit_of_rounded
from tests.exact import distance, exact_limit

# Every w = (0.2 + t, 0.8 - 2t, t) with t in [0, 0.4] interpolates with l1 norm 1.
FACE_X, FACE_Y = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]), np.array([1.0, 0.8])


def on_face(t):
    return np.array([0.2 + t, 0.8 - 2.0 * t, t])


def stationary_t(derivative):
    """The zero of an increasing derivative on the open face, by bisection to the last bit."""
    low, high = 1e-12, 0.4 - 1e-12
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if derivative(middle) < 0 else (low, middle)
    return 0.5 * (low + high)


def entropy_slope(t, w0):
    """d/dt of sum |w| log(|w| / w0^2) along the face."""
    return float(np.array([1.0, -2.0, 1.0]) @ (np.log(on_face(t)) - 2.0 * np.log(w0)))


def power_slope(t, depth):
    """d/dt of -sum |w|^(2/D) along the face."""
    return -float(np.array([1.0, -2.0, 1.0]) @ on_face(t) ** (2.0 / depth - 1.0))


def test_pursuit_says_when_it_is_not_the_only_minimizer():
    pursuit = fb.basis_pursuit(FACE_X, FACE_Y)
    assert pursuit.status is fb.Status.NOT_UNIQUE
    assert "fb.rich_limit" in pursuit.message
    assert pursuit.certificate.ok


def test_what_rounding_leaves_of_a_tie_is_said_to_be_selected_up_to_rounding():
    model = fb.DiagonalNet(depth=3, scale=1.0)
    rich = rich_limit_of_rounded(model, FACE_X, FACE_Y, 1e-10, tol=1e-10)
    assert rich.status is fb.Status.NOT_UNIQUE
    assert "this one gradient flow selects, as far as rounding tells" in rich.message
    assert_allclose(rich.w, fb.rich_limit(model, FACE_X, FACE_Y).w, atol=1e-12)


@pytest.mark.parametrize("w0", [np.ones(3), np.array([0.5, 2.0, 1.3])], ids=["uniform", "shaped"])
def test_selection_at_depth_two(w0):
    expected = on_face(stationary_t(lambda t: entropy_slope(t, w0)))
    model = fb.DiagonalNet(depth=2, scale=1.0, w0=w0)
    selected = fb.rich_limit(model, FACE_X, FACE_Y)
    assert selected.status is fb.Status.CERTIFIED
    # The selection is computed at log(1/scale^2) = 1e6, where slacks carry ten digits.
    assert_allclose(selected.w, expected, atol=1e-9)
    assert_allclose(fb.limit(model.at_log_scale(-2e4), FACE_X, FACE_Y).w, expected, atol=1e-9)


@pytest.mark.parametrize("depth", [3, 4, 6])
def test_selection_at_greater_depth(depth):
    expected = on_face(stationary_t(lambda t: power_slope(t, depth)))
    model = fb.DiagonalNet(depth=depth, scale=1.0)
    assert_allclose(fb.rich_limit(model, FACE_X, FACE_Y).w, expected, atol=1e-12)
    # Far below the rounding of its cost as well, where the slacks no longer tell the weights.
    assert_allclose(fb.limit(model.at_log_scale(-300.0), FACE_X, FACE_Y).w, expected, atol=1e-10)


def test_the_limits_approach_the_selected_point():
    model = fb.DiagonalNet(depth=3, scale=1.0)
    selected = fb.rich_limit(model, FACE_X, FACE_Y).w
    errors = [
        np.abs(fb.limit(model.at_log_scale(s), FACE_X, FACE_Y).w - selected).max()
        for s in (-2.0, -4.0, -6.0)
    ]
    # Off the face by a multiple of mu = alpha^(D-2): each step of 2 in log(alpha) divides by e^2.
    assert errors[1] < 0.2 * errors[0]
    assert errors[2] < 0.2 * errors[1]


def test_shape_survives_at_depth_three_only():
    rng = np.random.default_rng(2)
    X, y, w0 = rng.standard_normal((4, 12)), rng.standard_normal(4), rng.uniform(0.2, 5.0, 12)
    plain, weighted = fb.basis_pursuit(X, y), fb.basis_pursuit(X, y, weights=1.0 / w0)
    assert np.abs(plain.w - weighted.w).max() > 0.1
    assert_allclose(
        fb.rich_limit(fb.DiagonalNet(depth=2, scale=1.0, w0=w0), X, y).w, plain.w, atol=1e-12
    )
    deep = fb.rich_limit(fb.DiagonalNet(depth=3, scale=1.0, w0=w0), X, y)
    assert_allclose(deep.w, weighted.w, atol=1e-12)


ABSENT = np.isin(np.arange(14), [0, 3, 4])
FROZEN = np.isin(np.arange(14), [3])


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("kind", ["biased", "one-sided", "frozen"])
def test_biased_and_one_sided_starts(depth, kind):
    """The two signs may cost different amounts, or one of them be closed."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5, 14)), rng.standard_normal(5)
    plus, minus = rng.uniform(0.2, 3.0, (2, 14))
    minus = np.where(ABSENT & (kind != "biased"), 0.0, minus)
    plus = np.where(FROZEN & (kind == "frozen"), 0.0, plus)
    model = fb.DiagonalNet.from_weights(plus, minus, depth=depth)
    rich = fb.rich_limit(model, X, y)
    assert rich.status is fb.Status.CERTIFIED
    near = fb.limit(model.at_log_scale(-4e3 if depth == 2 else -60.0), X, y)
    assert_allclose(rich.w, near.w, atol=1e-9)


def test_zero_outputs():
    rich = fb.rich_limit(fb.DiagonalNet(depth=3, scale=1.0), FACE_X, np.zeros(2))
    assert not rich.w.any()


def test_uniqueness_does_not_depend_on_the_units_of_the_rows():
    rng = np.random.default_rng(3)
    X, y, units = rng.standard_normal((5, 20)), rng.standard_normal(5), [1, 1e-9, 1e9, 1e-18, 1]
    assert fb.basis_pursuit(X, y).status is fb.Status.CERTIFIED
    rescaled = fb.basis_pursuit(np.array(units)[:, None] * X, units * y)
    assert rescaled.status is fb.Status.CERTIFIED


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_scale_at_which_it_becomes_visible(depth):
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((6, 30)), rng.standard_normal(6)
    model = fb.DiagonalNet(depth=depth, scale=1.0)
    rich = fb.rich_limit(model, X, y)
    inactive = rich.w == 0.0

    def leftover(log_scale):
        w = np.abs(fb.limit(model.at_log_scale(log_scale), X, y).w)
        return w[inactive].sum() / w.sum()

    visible = rich.details["visible_log_scale"]
    # "Visible" is a share of 1e-3; the estimate assumes every inactive feature at the margin.
    assert leftover(visible) <= 1e-3
    assert leftover(0.3 * visible) > leftover(visible)


def test_pursuit_agrees_with_its_weights_rescaled():
    rng = np.random.default_rng(6)
    X, y, weights = rng.standard_normal((5, 20)), rng.standard_normal(5), rng.uniform(0.1, 10.0, 20)
    weighted = fb.basis_pursuit(X, y, weights=weights)
    plain = fb.basis_pursuit(X / weights, y)
    assert_allclose(weighted.w, plain.w / weights, atol=1e-12)
    assert weighted.certificate.ok
    assert weighted.certificate.error_bound < 1e-11


# At depth 10 the weights off the face, about mu^1.25, are far above the tolerance.
@pytest.mark.parametrize("depth", [3, 4, 6, 10])
@pytest.mark.parametrize("log_mu", [-10.0, -16.0, -24.0, -32.0])
def test_limit_near_a_face_in_fifty_digits(depth, log_mu):
    """Where slacks are close to rounding and still decide between the minimizers."""
    model = fb.DiagonalNet(depth=depth, log_scale=log_mu / (depth - 2))
    coarse = fb.DiagonalNet(depth=depth, log_scale=-2.0 / (depth - 2))
    # The normalized dual hardly depends on the scale; its unit is mu^-1.
    dual = np.exp(-2.0 - log_mu) * fb.limit(coarse, FACE_X, FACE_Y).dual
    exact = exact_limit(model, FACE_X, FACE_Y, dual, dps=60)
    # Before the face is resolved separately (log_mu > -12) slacks carry 16 + log10(mu) digits.
    assert distance(fb.limit(model, FACE_X, FACE_Y).w, exact) <= 1e-11
