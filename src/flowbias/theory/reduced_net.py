"""What the data sees of a two-layer linear network Y ~ X U V^T.  [min2021, section 2.1]

With X = W [S^(1/2) 0] [P1 P2]^T of rank r, only U1 = P1^T U and V move the loss:

    L - L* = (c/2) ||E||_F^2,   E = Yt - S^(1/2) U1 V^T,   Yt = W^T Y,   U2 = P2^T U constant.

All that the theorems speak of is unchanged when the hidden units are rotated, so U1, U2 and V may
be any weights with the network's Gram matrix: width 10^9 costs what width d + m costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.imbalance import Imbalance
from flowbias.problems.matrix import MatrixRegression, checked_tensor
from flowbias.theory.arguments import OutsideHypothesis, expects


@runtime_checkable
class LinearStart(Protocol):
    """A two-layer linear network at its start: a `LinearNet`, or any model with these two."""

    @property
    def shape(self) -> tuple[int, int]: ...  # (d, m)
    @property
    def root(self) -> FloatArray: ...  # L with L L^T = [U; V][U; V]^T, rows of U first


expects(
    LinearStart, "a LinearNet", "Pass fb.LinearNet(U, V), or a start such as fb.LinearNet.gaussian."
)


@dataclass(frozen=True)
class ReducedNet:
    """U1 (r, k), V (m, k), U2 (d - r, k), root = diag of S^(1/2) (r,), target = Yt (r, m)."""

    U1: FloatArray
    V: FloatArray
    root: FloatArray
    target: FloatArray
    U2: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def product(self) -> FloatArray:
        """U1 V^T."""
        return self.U1 @ self.V.T

    @property
    def error(self) -> FloatArray:
        """E = Yt - S^(1/2) U1 V^T.  [min2021 (6)]"""
        return self.target - self.root[:, None] * self.product

    @property
    def conditioning(self) -> tuple[float, float]:
        """Largest and smallest eigenvalue of S: l1(S), lr(S)."""
        return float(self.root[0] ** 2), float(self.root[-1] ** 2)

    @property
    def size(self) -> float:
        """l1(S) (||U1||_F^2 + ||V||_F^2): the rates' rounding is relative to this."""
        return self.conditioning[0] * float(np.sum(self.U1**2) + np.sum(self.V**2))

    @cached_property
    def imbalance(self) -> Imbalance:
        """Of D = U1^T U1 - V^T V."""
        return Imbalance.of_root(np.vstack([self.U1, self.V]), len(self.U1))

    @property
    def rate(self) -> float:
        """-(L - L*)'/(L - L*) for c = 1: 2 <E, S^(1/2) U1 U1^T S^(1/2) E + S E V V^T>/<E, E>."""
        scaled = self.root[:, None] * self.error
        size = float(np.sum(self.error**2))
        if not size > 0.0:
            raise OutsideHypothesis(
                "Y: must differ from X U V^T on the range of X, got a start of zero error. "
                "Its loss cannot fall; pass other outputs."
            )
        moved = float(np.sum((self.U1.T @ scaled) ** 2) + np.sum((scaled @ self.V) ** 2))
        return 2.0 * moved / size

    def rate_bound(self) -> float:
        """lr(S) {...}: what Proposition 1 promises for the rate now, c = 1.  [min2021 (17)]"""
        r, m = self.target.shape
        values = singular_values(self.product)
        return self.conditioning[1] * self.imbalance.rate_factor(at(values, m), at(values, r))

    def guaranteed_rate(self, error_norm: float | None = None) -> float:
        """lr(S) c(t): what Theorem 3 promises from now on, given ||E(t)||_F.  [min2021 (21)]"""
        norm = float(np.linalg.norm(self.error)) if error_norm is None else error_norm
        factor = self.imbalance.guaranteed_factor(self.target, float(self.root[0]), norm)
        return self.conditioning[1] * factor


def singular_values(A: FloatArray) -> FloatArray:
    """Decreasing."""
    return np.asarray(scipy.linalg.svdvals(A))


def at(values: FloatArray, index: int) -> float:
    """The index-th of the values, counted from 1; 0 beyond the last, as in the paper."""
    return float(values[index - 1]) if index <= len(values) else 0.0


def weights_of(net: LinearStart) -> tuple[FloatArray, FloatArray]:
    """Weights (U, V) of width at most d + m with the network's Gram matrix."""
    d, _ = net.shape
    return net.root[:d], net.root[d:]


def reduced(net: LinearStart, X: Any, Y: Any) -> ReducedNet:
    """The network in the coordinates of X's singular value decomposition."""
    U, V = weights_of(net)
    return reduced_weights(U, V, regression(net, X, Y))


def reduced_inputs(net: LinearStart, X: Any) -> ReducedNet:
    """The same for inputs alone: with nothing to fit."""
    inputs = checked_tensor("X", X, ("samples", "features"))
    return reduced(net, inputs, np.zeros((len(inputs), net.shape[1])))


def regression(net: LinearStart, X: Any, Y: Any) -> MatrixRegression:
    """The data, checked against the network's shape."""
    problem = MatrixRegression(X, Y)
    if problem.shape != tuple(net.shape):
        raise InputError(
            f"net: must have (inputs, outputs) = {problem.shape} to fit X and Y, got "
            f"{tuple(net.shape)}. Check that X is samples x features and Y samples x outputs."
        )
    return problem


def reduced_weights(U: FloatArray, V: FloatArray, problem: MatrixRegression) -> ReducedNet:
    """Weights (U, V) in the coordinates of X's singular value decomposition."""
    spectrum = problem.spectrum
    target = spectrum.W.T @ problem.Y
    return ReducedNet(spectrum.P1.T @ U, V, spectrum.root, target, spectrum.P2.T @ U)
