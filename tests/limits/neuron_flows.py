"""Linear neurons: small problems, their limits, and their flows in the weights themselves."""

import numpy as np
from scipy.integrate import solve_ivp

from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import Neuron

TOL = 1e-10


def limit(a, w, X, y):
    return neuron_limit(Neuron(a, w), X, y, TOL)


def random_problem(rng, spread=0.7):
    """(X, y, w) with singular values in exp(-+spread): a flow that ends soon."""
    n = int(rng.integers(1, 5))
    d = n + int(rng.integers(0, 4))
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    X = (left * np.exp(rng.uniform(-spread, spread, n))) @ right
    return X, X @ rng.standard_normal(d), rng.standard_normal(d)


def flow_limit(a, w, X, y):
    """(a, w) at the end of the flow, by an integrator and in unknowns that the library avoids."""

    def velocity(_, state):
        pull = X.T @ (y - X @ (state[0] * state[1:]))
        return np.concatenate([[state[1:] @ pull], state[0] * pull])

    end, time = np.concatenate([[a], w]), 0.0
    while np.linalg.norm(X @ (end[0] * end[1:]) - y) > 1e-7 * np.linalg.norm(y):
        assert time < 1e6, "flow not done"
        span = (time, 400.0 + 3.0 * time)
        end = solve_ivp(velocity, span, end, method="LSODA", rtol=1e-10, atol=1e-12).y[:, -1]
        time = span[1]
    return end[0], end[1:]
