"""Linear networks on small data: weights, and their flows in the weights themselves."""

import numpy as np

from tests.limits.factor_flow import followed, pull_of

N, D, M, RANK = 4, 9, 2, 4


def weights(width, seed=1, d=D, m=M):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, width)), rng.standard_normal((m, width))


def descend(Z, problem, d, steps=40, step=0.01):
    """Gradient descent on the rows [U; V]: the products on the way."""
    products = []
    for _ in range(steps):
        product = Z[:d] @ Z[d:].T
        products.append(product)
        R = problem.adjoint(problem.measure(product) - problem.target)
        Z = Z - step * np.vstack([R @ Z[d:], R.T @ Z[:d]])
    return np.stack(products)


def follow(net, problem, t):
    """The weights at time t, by integration in parameter space."""
    return followed(*net.factors, pull_of(problem), t, rtol=1e-12, atol=1e-13)[-1]
