"""Gradient flow on U and V by SciPy alone, and measurements that are diagonal together."""

import numpy as np
from scipy.integrate import solve_ivp


def flow_limit(U, V, matrices, target, end=1e5):
    """U V^T where half the sum of squares has a residual of 1e-11; checked, not assumed."""
    U, V, X = np.asarray(U), np.asarray(V), np.asarray(matrices)
    split = U.size

    def derivative(_t, y):
        u, v = y[:split].reshape(U.shape), y[split:].reshape(V.shape)
        R = np.tensordot(np.tensordot(X, u @ v.T, 2) - target, X, 1)
        return np.concatenate([-(R @ v).ravel(), -(R.T @ u).ravel()])

    def product(y):
        return y[:split].reshape(U.shape) @ y[split:].reshape(V.shape).T

    def ended(_t, y):
        return np.abs(np.tensordot(X, product(y), 2) - target).max() - 1e-11

    ended.terminal = True
    start = np.concatenate([U.ravel(), V.ravel()])
    solved = solve_ivp(
        derivative, (0, end), start, method="DOP853", rtol=1e-12, atol=1e-14, events=ended
    )
    assert solved.status == 1, "flow has not ended"
    return product(solved.y[:, -1])


def lifted_identity(d1, d2, mu):
    """U, V with [U; V][U; V]^T = 2 mu^2 I."""
    Z = np.sqrt(2.0) * mu * np.eye(d1 + d2)
    return Z[:d1], Z[d1:]


def orthogonal(n, rng):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def diagonal_together(d1, d2, count, rng):
    """X_n = P diag(x_n) Q^T with x_n of comparable sizes: (count, d1, d2)."""
    P, Q, p = orthogonal(d1, rng), orthogonal(d2, rng), min(d1, d2)
    values = rng.standard_normal((count, p)) + 0.5
    return np.stack([(P[:, :p] * row) @ Q[:, :p].T for row in values])
