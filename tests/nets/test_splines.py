"""Splines against their defining properties, and the kernel's interpolant against training."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowbias.ground.arguments import InputError
from flowbias.nets import (
    linear_spline,
    natural_cubic_spline,
    tangent_kernel_interpolant,
    unbiased,
    univariate,
    wide_interpolant,
)

POINTS = st.lists(st.integers(-20, 20), min_size=3, max_size=7, unique=True)


def slopes(curve, x, h=1e-4):
    return (curve(x + h) - curve(x - h)) / (2 * h)


@given(x=POINTS, seed=st.integers(0, 100))
def test_splines_pass_through_the_points_in_any_order_and_go_on_straight(x, seed):
    y = np.random.default_rng(seed).standard_normal(len(x))
    low, high = min(x), max(x)
    for make in (linear_spline, natural_cubic_spline):
        curve = make(x, y)
        np.testing.assert_allclose(curve(x), y, atol=1e-12)
        np.testing.assert_allclose(make(x[::-1], y[::-1])(x), y, atol=1e-12)
        # Straight beyond the data: the middle of two points is their mean.
        for a in (low - 4.0, high + 1.0):
            assert curve(a + 1) == pytest.approx((curve(a) + curve(a + 2)) / 2, abs=1e-10)
            assert slopes(curve, np.array(a)) == pytest.approx(
                slopes(curve, np.array(low - 1e-3 if a < low else high + 1e-3)), abs=1e-7
            )


@given(x=POINTS, seed=st.integers(0, 100))
def test_each_spline_is_the_least_of_its_kind(x, seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(x), rng.standard_normal(len(x))
    grid = np.unique(np.concatenate([np.linspace(x[0] - 2, x[-1] + 2, 400), x]))
    # Anything that vanishes at the points may be added; it must not lower the measure.
    bump = np.prod(np.sin(np.pi * (grid[:, None] - x) / 45.0), axis=1)
    bump /= np.abs(bump).max()
    for make, power in ((linear_spline, 1), (natural_cubic_spline, 2)):
        curve = make(x, y)(grid)

        def curvature(values, power=power):
            first = np.diff(values) / np.diff(grid)
            width = (grid[2:] - grid[:-2]) / 2
            return np.sum(width * np.abs(np.diff(first) / width) ** power)

        least = curvature(curve)
        for factor in (0.1, -0.1):
            assert curvature(curve + factor * bump) >= least * (1 - 1e-6)


def gradients(net, x):
    """d f / d parameters of a two-layer ReLU network of one variable, by hand."""
    w1, b1, w2, _ = (p.detach().numpy().ravel() for p in net.parameters())
    z = np.outer(x, w1) + b1
    on = (z > 0) * w2
    return np.hstack([on * x[:, None], on, np.maximum(z, 0), np.ones((len(x), 1))])


@pytest.mark.parametrize("doubled", [False, True])
def test_the_kernels_interpolant_is_the_nearest_linearized_network(doubled):
    x, y = np.array([-1.0, 0.2, 0.9]), np.array([0.5, -0.3, 0.8])
    grid = np.linspace(-1.5, 1.5, 8).reshape(2, 4)
    net = univariate(40, rng=1, dtype=torch.float64)
    inner, outer = gradients(net, x), gradients(net, grid.ravel())

    def start(points):
        # The doubled network is zero, with the gradients of both halves.
        return (0 if doubled else 1) * net(torch.from_numpy(points)[:, None]).detach().numpy()[:, 0]

    move = np.linalg.lstsq(inner, y - start(x), rcond=None)[0]
    expected = start(grid.ravel()) + outer @ move
    curve = tangent_kernel_interpolant(unbiased(net) if doubled else net, x, y)
    # The kernel's condition number, about 1e4, times rounding.
    np.testing.assert_allclose(curve(grid), expected.reshape(2, 4), atol=1e-10)
    np.testing.assert_allclose(curve(x), y, atol=1e-10)


@pytest.mark.parametrize("ratio", [1.0, 0.05])
def test_wide_networks_have_the_wide_interpolant(ratio):
    x, y = np.array([-1.0, 0.2, 0.9]), np.array([0.5, -0.3, 0.8])
    grid = np.linspace(-1.5, 1.5, 8).reshape(2, 4)
    wide = wide_interpolant(x, y, width=40_000, scale=2.0, relative_scale=ratio)
    np.testing.assert_allclose(wide(x), y, atol=1e-12)
    away = []
    for width in (400, 40_000):
        net = unbiased(
            univariate(width, scale=2.0, relative_scale=ratio * (40_000 / width) ** 0.25)
        )
        away.append(np.abs(tangent_kernel_interpolant(net, x, y)(grid) - wide(grid)).max())
    # The draw's luck falls as 1/sqrt(width): by ten, give or take its own luck.
    assert away[1] < 0.03 < 3 * away[1] + 0.03 < away[0]


def test_the_wide_kernel_is_the_mean_over_units_by_quadrature():
    """The kernel at weights (w, b) = (cos t, sin t) of length rho, averaged over all angles t."""
    x, y, grid = np.array([0.1, 0.9]), np.array([1.0, -1.0]), np.array([-2.0, -0.4, 0.7, 1.3])
    angles = 2 * np.pi * (np.arange(200_000) + 0.5) / 200_000
    width, ratio, scale = 7.0, 0.6, 3.0

    def kernel(one, other):
        z, zs = (np.outer(p, np.cos(angles)) + np.sin(angles) for p in (other, one))
        # The mean of rho^2 is 2, that of rho^0 is 1.
        second = 2.0 * np.maximum(zs, 0) @ np.maximum(z, 0).T / angles.size
        both = (zs > 0).astype(float) @ (z > 0).T / angles.size
        first = (np.outer(one, other) + 1) * both
        return scale**2 * (width * ratio**2 * second + 2 / ratio**2 * first) + 1.0

    expected = kernel(grid, x) @ np.linalg.solve(kernel(x, x), y)
    curve = wide_interpolant(x, y, width=width, scale=scale, relative_scale=ratio)
    # A midpoint rule over a step: an error of its spacing, 3e-5, times the condition number.
    np.testing.assert_allclose(curve(grid), expected, atol=1e-2 * np.abs(expected).max())


@pytest.mark.parametrize("make", [linear_spline, natural_cubic_spline])
@pytest.mark.parametrize(
    ("x", "y"), [([0, 1], [1]), ([0, 0, 1], [1, 2, 3]), ([0], [1]), ([[0, 1]], [1, 2]), ("ab", [1])]
)
def test_bad_points_are_refused(make, x, y):
    with pytest.raises(InputError, match=r"^[xy]: must .* got "):
        make(x, y)
