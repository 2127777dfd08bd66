"""Flows of hundreds of two-layer linear networks at once, and when a bound is nearly attained."""

from typing import NamedTuple

import numpy as np
import scipy.integrate

from flowbias import MatrixRegression
from flowbias.models import LinearNet
from flowbias.theory.measured_flow import MeasuredFactors
from flowbias.theory.reduced_net import weights_of

STRONGER = 1.01


def close(bound, value):
    """A lower bound (positive) that holds, and that would not if it were 1% larger."""
    return bound <= value * (1 + 1e-6) and STRONGER * bound > value


def close_rate(claim):
    return claim.holds and close(claim.predicted, claim.measured)


def homogeneous(level, y, error):
    """U1 = u I, V = v I with u^2 - v^2 = level, targets y I, and E along one direction."""
    v2 = 0.5 * (-level + np.hypot(level, 2.0 * y))
    U, V = np.sqrt(v2 + level) * np.eye(2), np.sqrt(v2) * np.eye(2)
    target = U @ V.T
    target[0, 0] += error
    return LinearNet(U, V), np.eye(2), target


class Case(NamedTuple):
    """One start, its data, and its flow."""

    net: LinearNet
    X: np.ndarray
    Y: np.ndarray
    path: MeasuredFactors


def flows_together(starts, end, count=25):
    """Flows of many starts of the same sizes as one system: 1e-13 per step, in the weights."""
    X, Y = np.stack([s[1] for s in starts]), np.stack([s[2] for s in starts])
    U0, V0 = (np.stack(part) for part in zip(*(weights_of(s[0]) for s in starts), strict=True))
    cut, total = U0.size, U0.size + V0.size
    W = np.stack([MatrixRegression(x, y).spectrum.W for x, y in zip(X, Y, strict=True)])

    def derivative(_t, y):
        U, V = y[:cut].reshape(U0.shape), y[cut:total].reshape(V0.shape)
        XU = X @ U
        R = Y - XU @ V.transpose(0, 2, 1)
        errors = np.linalg.norm(W.transpose(0, 2, 1) @ R, axis=(1, 2))
        dU, dV = X.transpose(0, 2, 1) @ (R @ V), R.transpose(0, 2, 1) @ XU
        return np.concatenate([dU.ravel(), dV.ravel(), errors])

    t = np.concatenate([[0.0], np.geomspace(1e-3, end, count)])
    y0 = np.concatenate([U0.ravel(), V0.ravel(), np.zeros(len(starts))])
    solved = scipy.integrate.solve_ivp(
        derivative, (0.0, end), y0, method="DOP853", t_eval=t, rtol=1e-13, atol=1e-14
    )
    assert solved.success
    U = solved.y[:cut].T.reshape(len(t), *U0.shape)
    V = solved.y[cut:total].T.reshape(len(t), *V0.shape)
    Z = np.concatenate([U, V], axis=2)
    R = W.transpose(0, 2, 1) @ (Y - X @ (U @ V.transpose(0, 1, 3, 2)))
    errors = np.linalg.norm(R, axis=(2, 3))
    d = U.shape[2]
    return [
        Case(*start, MeasuredFactors(t, Z[:, i], d, errors[:, i], solved.y[total + i]))
        for i, start in enumerate(starts)
    ]
