"""Where statements on linear networks are wrong as printed; others in test_linear_networks.py."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from flowbias import theory
from flowbias.matrix_problems.regression import MatrixRegression
from flowbias.models import LinearNet
from flowbias.problem import InputError


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
