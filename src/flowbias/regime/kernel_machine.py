"""What a tangent kernel makes of given outputs: the machine that a network is compared with.

Gradient flow of a model that is linear in its parameters, with kernel K, from the function 0 to
targets r on the inputs X, is

    g(x, t) = K(x, X) K^+ (I - exp(-K t)) r.

It is followed until it fits r to a stated share. Stopping there, rather than at infinity, leaves
alone the directions whose eigenvalue is rounding.
"""

from __future__ import annotations

import numpy as np

from flowbias._typing import FloatArray

# The share of the targets that may be left. Gaps of functions are judged at a few percent.
LEFT = 1e-3


def kernel_machine(kernel: FloatArray, cross: FloatArray, targets: FloatArray) -> FloatArray:
    """g on the inputs of the rows of `cross` = K(x, X), with kernel = K(X, X).

    >>> bool(np.allclose(kernel_machine(np.eye(2), np.eye(2), np.array([1.0, 2.0])), [1, 2], 1e-2))
    True
    """
    values, vectors = np.linalg.eigh(kernel)
    top = float(values[-1])
    if not top > 0.0:
        return np.zeros(len(cross))
    # Relative to the largest: kernels may be as small as 1e-30, or as large. What is rounding of
    # the matrix is no direction that can be learned.
    rounding = len(values) * float(np.finfo(np.float64).eps)
    rates = np.where(values > rounding * top, values / top, 0.0)
    parts = vectors.T @ targets
    time = _time_to_fit(rates, parts, rounding)
    moving = rates > 0.0
    response = np.where(moving, -np.expm1(-rates * time) / np.where(moving, rates, 1.0), 0.0)
    return np.asarray(cross @ (vectors @ (response * parts)) / top)


def _time_to_fit(rates: FloatArray, parts: FloatArray, slowest: float) -> float:
    """The time at which a share LEFT of the targets is left, or all that can be is fitted."""
    size = float(np.linalg.norm(parts))
    low, high = -1.0, float(np.log(10.0 / slowest))
    for _ in range(60):
        middle = 0.5 * (low + high)
        left = float(np.linalg.norm(np.exp(-rates * np.exp(middle)) * parts))
        low, high = (middle, high) if left > LEFT * size else (low, middle)
    return float(np.exp(high))
