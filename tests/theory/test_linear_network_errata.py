"""Where statements on linear networks are wrong as printed; others in test_linear_networks.py."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from flowbias import theory
from flowbias.flows import flow
from flowbias.ground.arguments import InputError
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression


@pytest.mark.parametrize("width", [2, 5])
def test_m4_balanced_start_needs_the_transpose(width):
    """Theta G^(-1/4) Q^T and G^(1/4) Q: shapes that fit for width m only, and then not Theta."""
    rng = np.random.default_rng(0)
    theta, X = rng.standard_normal((4, 2)), rng.standard_normal((3, 4))
    P1 = np.linalg.svd(X)[2][:3].T
    # A product with a rotation: for width 2 numpy's Q is a reflection, which is its own transpose.
    Q = np.linalg.qr(rng.standard_normal((width, 2))).Q @ np.array([[0.6, -0.8], [0.8, 0.6]])
    Q[:, 0] *= np.linalg.det(Q) if width == 2 else 1.0
    G = theta.T @ P1 @ P1.T @ theta
    quarter = scipy.linalg.fractional_matrix_power(G, 0.25)
    U = theta @ np.linalg.inv(quarter) @ Q.T
    if width == 2:
        assert np.linalg.norm(U @ (quarter @ Q).T - theta) > 0.5 * np.linalg.norm(theta)
    else:
        with pytest.raises(ValueError, match="matmul"):
            quarter @ Q
    net = LinearNet(U, (quarter @ Q.T))
    assert_allclose(net.product, theta, atol=1e-12)
    assert np.abs(net.imbalance(X).eigenvalues).max() < 1e-12
    # up to a rotation of the hidden units this is the library's own
    assert_allclose(LinearNet.balanced(theta, X, width=width).gram, net.gram, atol=1e-12)


def test_m6_printed_width_does_not_bound_the_growth():
    """(E.17) at a width between the printed one and the right one, for a start of its event."""
    d, m, r, delta = 3, 1, 2, 0.1
    top, bottom = 1000.0, 100.0  # l1(S), lr(S)
    T = np.sqrt(d + m) + np.sqrt(2.0 * np.log(2.0 / delta))
    width = 16.0 * T * T * (1.0 + 1e-9)
    bounds = theory.wide_start_bounds(d, m, r, width, 0.5, delta)
    assert width > 4.0 * m * T * T * top / bottom**3
    assert width < 4.0 * m * T * T * (top / bottom) ** 2
    # U1 and V overlap as much as the event allows: ||U1 V^T|| at the bound (35)
    G = (width + T * T) / width * np.eye(d + m)
    G[0, d] = G[d, 0] = 2.0 * T * np.sqrt(width) / width
    Z = np.linalg.cholesky(G)
    net = LinearNet(Z[:d], Z[d:])
    X = np.diag(np.sqrt([top, bottom, 1.0]))[:r]
    product = theory.wide_start(net, X, bounds)[3]
    assert product.holds
    assert 1.01 * product.measured > product.predicted
    # The second exponential of (E.16), with l1^(1/2) where it belongs: e at most, says (E.17).
    assert top / bottom * product.measured > 4.9
    with pytest.raises(InputError, match=r"width: must be >= "):
        theory.wide_limit_bound(MatrixRegression(X, np.ones((r, m))), width, 0.5, delta)


def test_m9_margin_bounds_the_rate_and_is_not_it():
    """From u = v = 1/2 to u v = y = 1: 4 |u v| starts at the margin's bound and ends at 4."""
    start = LinearNet([[0.5]], [[0.5]])
    products = flow(start, [[1.0]], [[1.0]], residual=1e-6).M[:, 0, 0]
    bound = 1.0 - abs(1.0 - products[0])
    assert bound > 0.0
    # The flow rises to y, from below: nothing is lost to the integrator's 1e-10.
    assert products.min() >= bound - 1e-9
    assert products[-1] > 3.0 * bound


def test_m10_what_data_do_not_see_of_the_product():
    """P2 U2 V^T is the part of U V^T that X does not see; P2^T U2 has no meaning."""
    rng = np.random.default_rng(0)
    U, V, X = (rng.standard_normal(shape) for shape in ((5, 4), (2, 4), (3, 5)))
    P = np.linalg.svd(X)[2].T
    P1, P2 = P[:, :3], P[:, 3:]
    with pytest.raises(ValueError, match="matmul"):
        P2.T @ (P2.T @ U) @ V.T
    unseen = P2 @ (P2.T @ U) @ V.T
    assert_allclose(U @ V.T, P1 @ (P1.T @ U) @ V.T + unseen, atol=1e-12)
    assert_allclose(X @ unseen, 0.0, atol=1e-12)
