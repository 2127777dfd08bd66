"""The linearized twin of a network, trained without ever forming it.

    f_lin(x, t) = f_0(x) + K(x, X) nu(t),    nu' = -grad loss(f_lin(X, t))

The n c numbers nu are all that training moves; what the twin says elsewhere is one product with
J^T and one with J. The squared loss has nu in closed form, cross-entropy is integrated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.special import logsumexp, softmax

from flowbias.ground.typing import FloatArray


def squared_loss_dual(kernel: NDArray[Any], targets: FloatArray, left: float = 1e-3) -> FloatArray:
    """nu = K^+ (I - exp(-K t)) r, the dual of gradient flow from 0 to the targets r.

    Followed until only the share `left` of r is left: gaps of functions are judged at a few
    percent, and stopping there, rather than at infinity, leaves alone the directions whose
    eigenvalue is rounding.

    >>> bool(np.allclose(squared_loss_dual(np.eye(2), np.array([1.0, 2.0])), [1, 2], 1e-2))
    True
    """
    values, vectors = np.linalg.eigh(kernel.astype(np.float64))
    top = float(values[-1])
    if not top > 0.0:
        return np.zeros(len(targets))
    # Relative to the largest: kernels may be as small as 1e-30, or as large. What is rounding of
    # the matrix is no direction that can be learned.
    rounding = len(values) * float(np.finfo(kernel.dtype).eps)
    rates = np.where(values > rounding * top, values / top, 0.0)
    parts = vectors.T @ targets
    time = _time_to_fit(rates, parts, rounding, left)
    moving = rates > 0.0
    response = np.where(moving, -np.expm1(-rates * time) / np.where(moving, rates, 1.0), 0.0)
    return np.asarray(vectors @ (response * parts) / top)


def _time_to_fit(rates: FloatArray, parts: FloatArray, slowest: float, share: float) -> float:
    """The time at which that share of the targets is left, or all that can be is fitted."""
    size = float(np.linalg.norm(parts))
    low, high = -1.0, float(np.log(10.0 / slowest))
    for _ in range(60):
        middle = 0.5 * (low + high)
        left = float(np.linalg.norm(np.exp(-rates * np.exp(middle)) * parts))
        low, high = (middle, high) if left > share * size else (low, middle)
    return float(np.exp(high))


def cross_entropy(outputs: FloatArray, one_hot: FloatArray) -> float:
    """-sum of log probabilities of the classes; rows without one do not count."""
    logs = outputs - logsumexp(outputs, axis=-1, keepdims=True)
    return float(-np.sum(one_hot * logs))


def cross_entropy_dual(
    kernel: NDArray[Any], start: FloatArray, one_hot: FloatArray, until: float
) -> FloatArray:
    """nu of gradient flow on cross-entropy, from 0 to where that has fallen to `until`.

    Outputs at the start and classes are (rows, classes): a row per sample, or per position of one.
    It has no end of its own, so that two networks are compared at one loss. Stiff, as the kernel's
    eigenvalues are: by backward differentiation, with the derivative -S K, S that of softmax.

    >>> labels = np.eye(2)
    >>> nu = cross_entropy_dual(np.eye(4), np.zeros((2, 2)), labels, until=0.5)
    >>> round(cross_entropy(nu.reshape(2, 2), labels), 3)
    0.5
    """
    kernel = kernel.astype(np.float64)
    top = float(np.linalg.norm(kernel, 2))
    if not top > 0.0 or cross_entropy(start, one_hot) <= until:
        return np.zeros(start.size)
    counted = one_hot.sum(axis=-1, keepdims=True)

    def outputs(nu: FloatArray) -> FloatArray:
        return np.asarray(start + (kernel @ nu).reshape(start.shape))

    # Time in units in which the fastest direction has rate one.
    def slope(_: float, nu: FloatArray) -> FloatArray:
        pulled = one_hot - counted * softmax(outputs(nu), axis=-1)
        return np.asarray(pulled.reshape(-1) / top)

    def derivative(_: float, nu: FloatArray) -> FloatArray:
        p = counted * softmax(outputs(nu), axis=-1)
        rows = kernel.reshape(*start.shape, -1)
        centred = rows - np.einsum("rc,rck->rk", p, rows)[:, None]
        return np.asarray(-(p[:, :, None] * centred).reshape(kernel.shape) / top)

    def excess(_: float, nu: FloatArray) -> float:
        return cross_entropy(outputs(nu), one_hot) - until

    excess.terminal = True  # type: ignore[attr-defined]
    # Directions slower than rounding of the largest are never learned.
    end = 1.0 / np.finfo(np.float64).eps
    found = solve_ivp(
        slope, (0.0, end), np.zeros(start.size), "BDF", jac=derivative, events=excess, rtol=1e-4
    )
    return np.asarray(found.y[:, -1])
