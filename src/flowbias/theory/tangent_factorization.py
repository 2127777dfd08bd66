"""The tangent model of U V^T at its start, and its gradient flow solved exactly.

    f_n = <X_n, M(0)> + <X_n, dU V(0)^T + U(0) dV^T>             [woodworth2020, (68)]
    K_nm = <X_n V, X_m V> + <X_n^T U, X_m^T U>   at the start: the tangent kernel
    r(t) = exp(-c K t) r(0),   q(t) = c int_0^t r = K^+ (1 - exp(-c K t)) r(0)
    U(t) = U(0) - R V(0),   V(t) = V(0) - R^T U(0),   R = sum_n q_n X_n

All of it follows from the Gram matrix of [U; V], at any width and any t, infinity included. Where
K has a null direction its features vanish, and so does what q would do there.

For matrix completion the tangent kernel is

    K((i, j), (k, l)) = <u_i, u_k> 1(j = l) + <v_j, v_l> 1(i = k)   at the start

[woodworth2020, the ICLR version, section 6]. Where it is a multiple of the delta kernel, the
tangent model leaves unobserved entries where they start: for rows of U and of V that are orthogonal
(the paper says columns, which is the same for square orthogonal U and V only) and of equal length,
and for Gaussian ones as the width grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.flows.request import loss_constant
from flowbias.ground.typing import FloatArray
from flowbias.limits.spectral import frobenius_norm
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixCompletion, MatrixProblem
from flowbias.theory.arguments import OutsideHypothesis, check_fields, checked, positive
from flowbias.theory.claim import ONE_PRODUCT, WOODWORTH, Claim, Statement, Tolerance, relative
from flowbias.theory.measured_flow import lifted_pull


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


ICLR = WOODWORTH("ICLR version, section 6")
# Entries of the Gram matrix that count as zero, relative to its diagonal.
ORTHOGONAL = Tolerance("rounding of the Gram matrix", 1e-12)


@checked
def completion_kernel(model: LiftedModel, problem: MatrixCompletion) -> FloatArray:
    """K between the observed entries, from the Gram matrix alone.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> fb.theory.completion_kernel(model, problem)
    array([[2., 0.],
           [0., 2.]])
    """
    model.lifted_problem(problem)  # refuses shapes that do not fit
    d1, gram = model.shape[0], model.gram
    i, j = problem.rows, problem.cols
    left = gram[:d1, :d1][np.ix_(i, i)] * (j[:, None] == j[None, :])
    right = gram[d1:, d1:][np.ix_(j, j)] * (i[:, None] == i[None, :])
    return np.asarray(left + right)


@checked
def completion_kernel_formula(model: LiftedModel, problem: MatrixCompletion) -> Claim:
    """The formula against the gradients of the observed entries in the factors.

    [woodworth2020, the ICLR version, section 6]

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=5, scale=0.5, rng=0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> fb.theory.completion_kernel_formula(model, problem).holds
    True
    """
    predicted = completion_kernel(model, problem)
    measured = LinearizedFactorization(model, problem).kernel
    words = "entries are related where they share a row or a column"
    stated = Statement(ICLR, words, *ONE_PRODUCT)
    return stated.same("tangent kernel of completion", measured, predicted)


@checked
def orthogonal_rows_give_delta(
    model: LiftedModel, problem: MatrixCompletion
) -> tuple[Claim, Claim]:
    """Orthogonal rows of U and of V: K is diagonal, and the tangent model imputes nothing.

    [woodworth2020, the ICLR version, section 6, case (a)]. With rows of equal length K is a
    multiple of the delta kernel; for imputing nothing a diagonal K is enough.

    >>> model = fb.MatrixFactorization.identity((2, 2), scale=1.0)
    >>> problem = fb.MatrixCompletion([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    >>> all(claim.holds for claim in fb.theory.orthogonal_rows_give_delta(model, problem))
    True
    """
    _require_orthogonal_rows(model)
    kernel = completion_kernel(model, problem)
    delta = Statement(ICLR, "with orthogonal rows no two entries are related", *ORTHOGONAL)
    stays = Statement(
        ICLR,
        "a delta kernel leaves unobserved entries where they start",
        "rounding of one solve with the kernel, condition below 1e3",
        1e-10,
    )
    # The fit closest to the start: unobserved entries stay.
    closest = frobenius_norm(problem, model.product).M
    reached = LinearizedFactorization(model, problem).product(np.inf)
    related = relative(kernel - np.diag(np.diag(kernel)), kernel)
    return (
        delta.equal("tangent kernel is a delta", related),
        stays.same("tangent model imputes nothing", reached, closest),
    )


@checked
def gaussian_rows_give_delta(model: LiftedModel, scale: float) -> Claim:
    """||K/(2 alpha^2 k) - 1||_op <= 4 (sqrt(d1/k) + sqrt(d2/k)) on all entries, with probability
    at least 1 - 2 exp(-d1/2) - 2 exp(-d2/2).

    [woodworth2020, the ICLR version, section 6, case (b)], made quantitative by Lemma 13: K takes
    R to U U^T R + R V V^T. For independent N(0, scale^2) entries and width k >= max(d1, d2).

    >>> model = fb.MatrixFactorization.gaussian((30, 30), width=10**6, scale=0.1, rng=0)
    >>> fb.theory.gaussian_rows_give_delta(model, scale=0.1).holds
    True
    """
    alpha = positive("scale", scale, "Pass the standard deviation of the weights.")
    d1, d2 = model.shape
    if model.width < max(d1, d2):
        raise OutsideHypothesis(
            f"model: must have width >= {max(d1, d2)}, got {model.width}. "
            "Narrower factors have dependent rows, and their kernel is no delta."
        )
    level = alpha**2 * model.width
    left, right = (
        np.linalg.eigvalsh(block) - level for block in (model.gram[:d1, :d1], model.gram[d1:, d1:])
    )
    # The eigenvalues of R -> A R + R B are all sums of one of A and one of B.
    extremes: list[Any] = [left[0] + right[0], left[-1] + right[-1]]
    away = float(np.abs(extremes).max()) / (2.0 * level)
    allowed = 4.0 * float(np.sqrt(d1 / model.width) + np.sqrt(d2 / model.width))
    stated = Statement(
        ICLR,
        "as the width grows the tangent kernel becomes a delta",
        "none: an event of the probability given above, not an identity",
    )
    missed = 2.0 * float(np.exp(-0.5 * d1) + np.exp(-0.5 * d2))
    outside = no_refutation(own_gram(model), model.width, alpha, missed)
    silence = outside if away > allowed else ""
    return stated.at_most("tangent kernel of a wide start", away, allowed, silence=silence)


def own_gram(model: LiftedModel) -> FloatArray:
    """Z Z^T of the weights that move: [U; V], or W itself where both factors are one, W W^T."""
    d1 = model.shape[0]
    return model.gram if model.rate == 1.0 else model.gram[:d1, :d1]


def no_refutation(gram: FloatArray, width: int, scale: float, missed: float) -> str:
    """Why a start outside an event says nothing: it is no Gaussian one, or those miss it often.

    tr Z Z^T of independent N(0, scale^2) entries, (p, width), is scale^2 chi^2 of n = p width
    degrees of freedom: within 2 sqrt(n x) below and 2 sqrt(n x) + 2 x above n but for a probability
    exp(-x) each [Laurent and Massart 2000], here once in a million.
    """
    entries, x = float(len(gram)) * width, float(np.log(2e6))
    away, reach = float(np.trace(gram)) / scale**2 - entries, 2.0 * float(np.sqrt(entries * x))
    if not -reach <= away <= reach + 2.0 * x:
        mean = float(np.trace(gram)) / entries
        return (
            f"the weights are no independent N(0, {scale:g}^2): their mean square is {mean:.3g}, "
            f"not {scale**2:.3g}"
        )
    return f"one Gaussian start in {1.0 / missed:.3g} may miss it" if missed > 1e-5 else ""


def _require_orthogonal_rows(model: LiftedModel) -> None:
    d1 = model.shape[0]
    for name, block in (("U", model.gram[:d1, :d1]), ("V", model.gram[d1:, d1:])):
        off = np.abs(block - np.diag(np.diag(block))).max()
        if off > ORTHOGONAL.size * np.diag(block).max():
            raise OutsideHypothesis(
                f"model: must have orthogonal rows of {name}, got an inner product of {off:.3g}. "
                "Use MatrixFactorization.identity, or gaussian_rows_give_delta for wide starts."
            )
