"""The tangent model of U V^T at its start, and its gradient flow solved exactly.

    f_n = <X_n, M(0)> + <X_n, dU V(0)^T + U(0) dV^T>             [woodworth2020, (68)]
    K_nm = <X_n V, X_m V> + <X_n^T U, X_m^T U>   at the start: the tangent kernel
    r(t) = exp(-c K t) r(0),   q(t) = c int_0^t r = K^+ (1 - exp(-c K t)) r(0)
    U(t) = U(0) - R V(0),   V(t) = V(0) - R^T U(0),   R = sum_n q_n X_n

All of it follows from the Gram matrix of [U; V], at any width and any t, infinity included. Where
K has a null direction its features vanish, and so does what q would do there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.flows.loss import loss_constant
from flowbias.ground.typing import FloatArray
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.theory.arguments import check_fields
from flowbias.theory.measured_factors import lifted_pull


@dataclass(frozen=True, eq=False)
class LinearizedFactorization:
    """The tangent model of `model` on `problem` under the loss (c/2) ||r||^2.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> fb.theory.LinearizedFactorization(model, problem).kernel
    array([[2., 0.],
           [0., 2.]])
    """

    model: LiftedModel
    problem: MatrixProblem
    loss: Any = "sum"

    def __post_init__(self) -> None:
        check_fields(self)

    @cached_property
    def measurements(self) -> MatrixProblem:
        """The measurements as the model's flow sees them."""
        return self.model.lifted_problem(self.problem)

    @cached_property
    def speed(self) -> float:
        """What the kernel is multiplied with in the exponent: c, twice that for W W^T."""
        return self.model.rate * loss_constant(self.loss, len(self.problem.target))

    @cached_property
    def features(self) -> FloatArray:
        """Gradients of the measurements in the narrow factors, one row each."""
        root = self.model.root
        return np.stack([lifted_pull(X, root).ravel() for X in self.measurements.matrices])

    @cached_property
    def kernel(self) -> FloatArray:
        """K, (N, N)."""
        return np.asarray(self.features @ self.features.T)

    @cached_property
    def _modes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Eigenvalues and vectors of K from the singular values of the features, and r(0) there."""
        vectors, values, _ = scipy.linalg.svd(self.features, full_matrices=True)
        rates = np.zeros(len(vectors))
        rates[: len(values)] = np.where(
            values > max(self.features.shape) * np.finfo(float).eps * values[0], values, 0.0
        )
        residual = self.measurements.measure(self.model.product) - self.problem.target
        return rates**2, vectors, vectors.T @ residual

    def residual(self, t: float) -> FloatArray:
        """r(t), not projected: what lies in the null space of K stays."""
        rates, vectors, start = self._modes
        with np.errstate(invalid="ignore"):  # 0 * inf, in the modes that stay
            decay = np.where(rates > 0.0, np.exp(-self.speed * rates * t), 1.0)
        return np.asarray(vectors @ (decay * start))

    def pull(self, t: float) -> FloatArray:
        """q(t) = speed int_0^t r, without the null space of K."""
        rates, vectors, start = self._modes
        moving = rates > 0.0
        share = np.zeros_like(rates)
        share[moving] = -np.expm1(-self.speed * rates[moving] * t) / rates[moving]
        return np.asarray(vectors @ (share * start))

    def factors(self, t: float) -> FloatArray:
        """Narrow [U; V] at time t, beside the model's `root`."""
        R = self.measurements.adjoint(self.pull(t))
        return np.asarray(self.model.root - lifted_pull(R, self.model.root))

    def product(self, t: float) -> FloatArray:
        """M(0) + dU V(0)^T + U(0) dV^T: the matrix that the tangent model predicts with."""
        R = self.measurements.adjoint(self.pull(t))
        d1, gram = self.model.shape[0], self.model.gram
        move = R @ gram[d1:, d1:] + gram[:d1, :d1] @ R
        return np.asarray(self.model.product - move)
