"""Gradient flow on U and V by SciPy alone, and measurements that are diagonal together."""

import numpy as np
from scipy.integrate import solve_ivp


def followed(U, V, pull, end, ended=None, **options):
    """Z = [U; V] along Z' = [P V; P^T U], P = pull(U V^T): at each time that SciPy is asked for.

    `ended` is a number that falls to 0 with U V^T where the flow is over; checked, not assumed.
    """
    d, width = U.shape

    def slope(_t, flat):
        Z = flat.reshape(-1, width)
        P = pull(Z[:d] @ Z[d:].T)
        return np.vstack([P @ Z[d:], P.T @ Z[:d]]).ravel()

    def event(_t, flat):
        Z = flat.reshape(-1, width)
        return ended(Z[:d] @ Z[d:].T)

    event.terminal = True
    start, options["events"] = np.vstack([U, V]).ravel(), ended and event
    run = solve_ivp(slope, (0.0, end), start, method="DOP853", **options)
    assert ended is None or run.status == 1, "flow has not ended"
    return run.y.T.reshape(-1, len(U) + len(V), width)


def pull_of(problem):
    """Minus the gradient of half the sum of squares in U V^T."""
    return lambda M: problem.adjoint(problem.target - problem.measure(M))


def flow_limit(U, V, matrices, target, end=1e5):
    """U V^T where half the sum of squares has a residual of 1e-11."""
    X, d = np.asarray(matrices), len(U)

    def residual(M):
        return target - np.tensordot(X, M, 2)

    Z = followed(
        np.asarray(U),
        np.asarray(V),
        lambda M: np.tensordot(residual(M), X, 1),
        end,
        lambda M: np.abs(residual(M)).max() - 1e-11,
        rtol=1e-12,
        atol=1e-14,
    )[-1]
    return Z[:d] @ Z[d:].T


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
