"""What gradient flow on M = U V^T converges to.  [woodworth2020, section 6 and appendix G]

Each claim follows the factors themselves and compares with what needs no integration.

How far they can move, sharply: with e = ||y(0) - y*||, lambda the least eigenvalue of
(<X_n, X_m>)_nm and

    S^2 = lmin(U U^T) + lmin(V V^T)   at the start:   if 2 e < sqrt(lambda) S^2,

gradient flow reaches zero error, its whole path is no longer than S - sqrt(S^2 - 2 e/sqrt(lambda)),
and the residual decays at least at the rate c lambda (S^2 - 2 e/sqrt(lambda)).

Equality holds where one entry is observed and U = V = s I has to shrink to fit it, up to the error
at which that row runs into a saddle: neither the bound nor its hypothesis can be improved. It does
what Theorem 9 of woodworth2020 does, without a Gram matrix near a multiple of the identity and
without a bound on the measurements from above. docs/theory/matrix_factorization.md, section 5, has
the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.optimize

from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.diagonal_measurements import diagonal_limit
from flowbias.limits.spectral import schatten_limit
from flowbias.models.factorization import MatrixFactorization
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Hypentropy
from flowbias.problems.matrix import MatrixProblem, MatrixSensing, checked_tensor, read_shape
from flowbias.theory.arguments import (
    Matrix,
    OutsideHypothesis,
    checked,
    positive,
    same_size,
    unresolved,
)
from flowbias.theory.claim import (
    WOODWORTH,
    Claim,
    Reference,
    Statement,
    beyond_the_papers,
    only_one_fit,
    relative,
)
from flowbias.theory.factorization_kernel_regime import decay_claim, measured_start
from flowbias.theory.measured_flow import (
    FACTORS,
    RATE,
    MeasuredFactors,
    follow_factors,
    measured_or_followed,
)
from flowbias.theory.tangent_factorization import LinearizedFactorization


@checked
def infinitely_wide(shape: tuple[int, int], scale: float) -> MatrixFactorization:
    """A start with [U; V][U; V]^T = 2 scale^2 I: what Gaussian ones tend to as they widen.

    U = [a I, 0], V = [0, a I], a = sqrt(2) scale; scale is mu = sqrt(alpha^2 k/2).
    [woodworth2020, appendix G]

    >>> fb.theory.infinitely_wide((1, 2), scale=0.5).gram
    array([[0.5, 0. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0.5]])
    """
    mu = positive("scale", scale, "Pass mu = sqrt(alpha^2 k/2).")
    d1, d2 = read_shape("shape", shape)
    Z = np.sqrt(2.0) * mu * np.eye(d1 + d2)
    return MatrixFactorization(Z[:d1], Z[d1:])


@checked
def schatten_bias(problem: MatrixProblem, scale: float) -> Claim:
    """From [U; V][U; V]^T = 2 mu^2 I the flow goes to argmin Q_mu(singular values of M).

    [woodworth2020, Theorem 4], where one orthogonal pair diagonalizes all measurements. It is
    stated for measurements that commute, which is not enough, and for the spectrum of M, which
    must be its singular values (docs/errata.md, W9).

    >>> problem = fb.MatrixSensing([np.diag([1.0, 2.0])], [1.0])
    >>> fb.theory.schatten_bias(problem, scale=0.5).holds
    True
    """
    predicted = schatten_limit(problem, scale).M
    reached = follow_factors(infinitely_wide(problem.shape, scale), problem).M[-1]
    reference = WOODWORTH("Theorem 4")
    return _same_limit("Schatten bias", reached, predicted, reference, problem)


def commuting_counterexample() -> MatrixSensing:
    """X_1 = I and X_2 = E_12: they commute, but no orthogonal pair makes both diagonal."""
    return MatrixSensing([np.eye(2), [[0.0, 1.0], [0.0, 0.0]]], [1.0, 2.0])


@checked
def commuting_is_not_enough(scale: float, problem: MatrixProblem | None = None) -> Claim:
    """On measurements that merely commute the limit is not even stationary for Q_mu.

    Against [woodworth2020, Theorem 4] as printed: the share of grad Q_mu(singular values) at the
    limit that lies outside the span of the measurements, which would be 0 at a minimizer.

    >>> fb.theory.commuting_is_not_enough(0.5).holds
    True
    """
    problem = commuting_counterexample() if problem is None else problem
    M, _, gradient = _schatten_gradient(problem, scale)
    potential = Hypentropy(scale=scale)
    # What an error of the flow makes of the gradient, whose slope is largest at 0.
    steepest = float(1.0 / potential.hess_dual(np.zeros(1))[0])
    faked = FACTORS.size * steepest * float(np.linalg.norm(M) / np.linalg.norm(gradient))
    expected = _leading_turn(problem, scale)
    stated = Statement(
        beyond_the_papers("4 Infinite width", "matrix_factorization"),
        "without a common basis the limit does not minimize the Schatten potential",
        "the prediction is what the flow's own error could fake",
    )
    few = f"a share of {expected:.1g}, which is expected here, is below what the flow resolves"
    share = relative(_outside(gradient, problem), gradient)
    silence = "" if expected > 10.0 * faked else few
    return stated.at_least("commuting is not enough", share, faked, silence=silence)


@checked
def resembles_schatten(problem: MatrixProblem, scale: float) -> Claim:
    """||M - M*|| <= ||P_perp grad F(M)|| sqrt(s^2 + 4 mu^4), s = max(||M||_2, ||M*||_2).

    M is the flow's limit from [U; V][U; V]^T = 2 mu^2 I on any measurements, M* the minimizer of
    F = Q_mu(singular values), and P_perp leaves what lies outside their span: <grad F(M) -
    grad F(M*), M - M*> is at most that times the distance, and at least the least curvature of F
    times its square. Measured relative to ||M*||: how much the bias "resembles" Q_mu where the
    measurements do not commute [woodworth2020, section 6]; 0 where they have a common basis.

    >>> problem = fb.MatrixSensing([np.eye(2), [[0.0, 1.0], [0.0, 0.0]]], [1.0, 2.0])
    >>> fb.theory.resembles_schatten(problem, scale=0.5).holds
    True
    """
    M, values, gradient = _schatten_gradient(problem, scale)
    least, misfit = _schatten_minimizer(problem, scale)
    outside = float(np.linalg.norm(_outside(gradient, problem)))
    curvature = float(np.hypot(max(values[0], scipy.linalg.svdvals(least)[0]), 2.0 * scale**2))
    size = float(np.linalg.norm(least)) or 1.0
    rows = _rows(problem)
    fit = misfit / float(scipy.linalg.svdvals(rows)[-1])
    atol = FACTORS.size * curvature / (2.0 * scale**2) + curvature / scale**2 * fit / size
    stated = Statement(
        WOODWORTH("section 6"),
        "the limit is as far from the minimizer as it is from being stationary",
        FACTORS.origin + "; a minimizer known as far as it fits",
    )
    return stated.at_most(
        "bias resembles the Schatten potential",
        relative(M - least, least),
        outside * curvature / size,
        atol=atol,
        silence=unresolved(atol) or only_one_fit(rows),
    )


def _schatten_gradient(
    problem: MatrixProblem, scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Where the flow of infinite width ends, its singular values, and grad Q_mu of them there."""
    M = follow_factors(infinitely_wide(problem.shape, scale), problem).M[-1]
    left, values, right = scipy.linalg.svd(M, full_matrices=False)
    return M, values, (left * Hypentropy(scale=scale).grad(values)) @ right


def _schatten_minimizer(problem: MatrixProblem, scale: float) -> tuple[FloatArray, float]:
    """argmin Q_mu(singular values) on any measurements, from its dual; and how far off it fits.

    Continuation in mu from where the dual is linear: sinh of a first guess would overshoot by far.
    """
    top = float(np.linalg.norm(problem.target)) / float(np.linalg.norm(_gram_of(problem), 2)) ** 0.5
    first = max(scale, float(np.sqrt(top)))
    steps = int(np.ceil(np.log2(first / scale))) + 1
    linear = np.linalg.lstsq(_gram_of(problem), problem.target, rcond=None)[0]
    dual: FloatArray = np.asarray(linear / (2.0 * first**2), dtype=np.float64)
    M = problem.adjoint(dual)
    for mu in np.geomspace(first, scale, steps):
        M, dual = _dual_minimum(problem, 2.0 * float(mu) ** 2, dual)
    return M, float(np.linalg.norm(problem.measure(M) - problem.target))


def _dual_minimum(
    problem: MatrixProblem, unit: float, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """min unit sum (cosh(singular values of sum nu_n X_n) - 1) - <nu, y>, and where it is."""

    def point(dual: FloatArray) -> tuple[FloatArray, FloatArray]:
        left, values, right = scipy.linalg.svd(problem.adjoint(dual), full_matrices=False)
        values = np.minimum(values, 500.0)  # far beyond any minimum, below what overflows
        return (left * (unit * np.sinh(values))) @ right, values

    def value(dual: FloatArray) -> tuple[float, FloatArray]:
        M, values = point(dual)
        conjugate = unit * float(np.sum(2.0 * np.sinh(0.5 * values) ** 2))
        return conjugate - float(dual @ problem.target), problem.measure(M) - problem.target

    found = scipy.optimize.minimize(
        value, start, jac=True, method="BFGS", options={"gtol": 1e-12, "maxiter": 1000}
    )
    return point(found.x)[0], np.asarray(found.x)


def _outside(matrix: FloatArray, problem: MatrixProblem) -> FloatArray:
    """The part of a matrix outside the span of the measurements."""
    rows, flat = _rows(problem), matrix.ravel()
    return np.asarray(flat - scipy.linalg.pinv(rows) @ (rows @ flat)).reshape(matrix.shape)


def _leading_turn(problem: MatrixProblem, scale: float) -> float:
    """About the share of grad Q_mu outside the span of the measurements, which is O(1/mu^4).

    The second term of Magnus's series; the third is of the same order. The tangent flow adds
    sum_i a_i e^(-l_i t) Y_i, Y_i the measurements in the eigenvectors of their Gram matrix; what
    does not commute turns the factors by

        N = sum_ij a_i a_j l_j/(l_i + l_j) (Y_i Y_j^T - Y_j Y_i^T)/2,     S = sum_i a_i Y_i,

    and with N' the same for Y_i^T the gradient is 2 S + N S - S N'.
    """
    values, vectors = scipy.linalg.eigh(_gram_of(problem))
    Y = np.tensordot(vectors.T, problem.matrices, 1)
    amounts = (vectors.T @ problem.target) / (4.0 * scale**2 * values)
    weights = 0.5 * np.outer(amounts, amounts) * values / np.add.outer(values, values)
    turns = weights - weights.T
    left = np.einsum("ij,iab,jcb->ac", turns, Y, Y)
    right = np.einsum("ij,iba,jbc->ac", turns, Y, Y)
    S = np.tensordot(amounts, Y, 1)
    return relative(_outside(left @ S - S @ right, problem), 2.0 * S)


def _rows(problem: MatrixProblem) -> FloatArray:
    """One measurement each."""
    return problem.matrices.reshape(len(problem.target), -1)


def _gram_of(problem: MatrixProblem) -> FloatArray:
    return np.asarray(_rows(problem) @ _rows(problem).T)


@checked
def diagonal_bias(model: LiftedModel, problem: MatrixProblem) -> Claim:
    """At any width and from any start: the exact limit where measurements are diagonal together.

    All of U V^T, off the diagonal too. Ours; infinite width is Theorem 4 of woodworth2020.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=5, scale=0.5, rng=0)
    >>> fb.theory.diagonal_bias(model, fb.MatrixSensing([np.diag([1.0, 2.0])], [1.0])).holds
    True
    """
    predicted = diagonal_limit(model, problem).M
    reached = follow_factors(model, problem).M[-1]
    reference = beyond_the_papers("3 Diagonal measurements at finite width", "matrix_factorization")
    return _same_limit("limit at finite width", reached, predicted, reference, problem)


def _same_limit(
    name: str,
    reached: FloatArray,
    predicted: FloatArray,
    reference: Reference,
    problem: MatrixProblem,
) -> Claim:
    words = "gradient flow on the factors converges to the matrix solved for"
    stated = Statement(reference, words, *FACTORS)
    return stated.same(name, reached, predicted, among=_rows(problem))


@checked
def hyperbolic_rows(
    model: LiftedModel, problem: MatrixProblem, t: float, loss: Any = "sum"
) -> tuple[Claim, Claim]:
    """delta = diag(U V^T), Delta = diag(U U^T + V V^T)/2: Delta^2 - delta^2 is conserved, and
    asinh(delta/sqrt(.)) moves by 2 x_i, x = -c X^T int r.

    [woodworth2020, (67)], from any start; measurements must be diagonal matrices. x is computed
    from the growth of u_i + v_i, so that the two claims are independent.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=5, scale=0.5, rng=0)
    >>> problem = fb.MatrixSensing([np.diag([1.0, 2.0])], [1.0])
    >>> all(claim.holds for claim in fb.theory.hyperbolic_rows(model, problem, t=0.5))
    True
    """
    measured = follow_factors(model, problem, t, loss)
    pairs = min(model.shape)
    U, V = measured.U[:, :pairs], measured.V[:, :pairs]
    delta, size = np.sum(U * V, axis=2), 0.5 * np.sum(U**2 + V**2, axis=2)
    conserved = np.sqrt(np.maximum(size**2 - delta**2, 0.0))
    growth = 0.5 * np.log(np.sum((U + V) ** 2, axis=2)[-1] / np.sum((U + V) ** 2, axis=2)[0])
    moved = np.arcsinh(delta[-1] / conserved[0]) - np.arcsinh(delta[0] / conserved[0])
    words = "each pair of rows turns hyperbolically"
    stated = Statement(WOODWORTH("appendix G", "(67)"), words, *FACTORS)
    return (
        stated.same("Delta^2 - delta^2 is conserved", conserved[-1], conserved[0]),
        stated.equal("asinh moves by 2 x", relative(moved - 2.0 * growth, np.ones(pairs))),
    )


@checked
def symmetric_velocity(W: Matrix, problem: MatrixProblem, loss_constant: float = 2.0) -> Claim:
    """For M = W W^T: M' = -2 (G M + M G), G the symmetric part of the gradient of the loss in M.

    [woodworth2020, section 6] prints M' = G M + M G. Measured from the gradient in W itself, by
    complex steps.

    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> fb.theory.symmetric_velocity([[1.0, 0.5], [0.2, 0.3]], problem).holds
    True
    """
    factor = checked_tensor("W", W, ("d", "width"))
    same_size("W", len(factor), problem.shape[0], "rows, one per row of the matrix M")
    same_size("problem", problem.shape[1], problem.shape[0], "columns, since W W^T is square")
    c = positive("loss_constant", loss_constant, "Pass 2 for the sum of squares.")

    def loss(at: Any) -> Any:
        # A real-linear measurement of a complex matrix, part by part.
        M = at @ at.T
        r = problem.measure(M.real) - problem.target + 1j * problem.measure(M.imag)
        return 0.5 * c * np.sum(r * r)

    step = 1e-30
    gradient = np.zeros(factor.shape)
    for place in np.ndindex(*factor.shape):
        shifted = factor.astype(complex)
        shifted[place] += 1j * step
        gradient[place] = loss(shifted).imag / step
    velocity = -(gradient @ factor.T + factor @ gradient.T)
    M = factor @ factor.T
    G = c * problem.adjoint(problem.measure(M) - problem.target)
    G = 0.5 * (G + G.T)
    predicted = -2.0 * (G @ M + M @ G)
    stated = Statement(
        WOODWORTH("section 6"),
        "the flow of W W^T depends on W W^T alone",
        "rounding of two products of matrices; complex steps have no other error",
    )
    return stated.same("velocity of W W^T", velocity, predicted, atol=1e-12)


@checked
def linearized_flow(
    model: LiftedModel, problem: MatrixProblem, t: float, loss: Any = "sum"
) -> Claim:
    """The tangent model's factors at time t in closed form, against its own flow integrated.

    [woodworth2020, (68) and (76)]

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=5, scale=0.5, rng=0)
    >>> fb.theory.linearized_flow(model, fb.MatrixSensing([np.eye(2)], [1.0]), t=0.5).holds
    True
    """
    tangent = LinearizedFactorization(model, problem, loss)
    start, features = model.root.ravel(), tangent.features
    residual = tangent.residual(0.0)
    solved = scipy.integrate.solve_ivp(
        lambda _t, Z: -tangent.speed * features.T @ (residual + features @ (Z - start)),
        (0.0, positive("t", t, "Pass a time.")),
        start,
        method="DOP853",
        rtol=1e-12,
        atol=1e-14 * float(np.abs(start).max()),
    )
    predicted = tangent.factors(t).ravel()
    words = "gradient flow on the tangent model is a matrix exponential of its kernel"
    stated = Statement(WOODWORTH("appendix H", "(68), (76)"), words, *FACTORS)
    return stated.same("linearized flow in closed form", solved.y[:, -1], predicted)


# --- how far they can move ------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """S^2, lambda and e, and what follows from them.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=50, scale=0.5, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> round(fb.theory.Reach.of(model, problem).smallest, 6)
    2.0
    """

    strength: float  # S^2
    smallest: float  # lambda
    error: float  # e

    @classmethod
    @checked
    def of(cls, model: LiftedModel, problem: MatrixProblem) -> Reach:
        """Measured at the start of the model."""
        smallest, _, error = measured_start(model, problem)
        d1 = model.shape[0]
        return cls(_least(model.root[:d1]) + _least(model.root[d1:]), smallest, error)

    @property
    def remaining(self) -> float:
        """S^2 - 2 e/sqrt(lambda): below this lmin(U U^T) + lmin(V V^T) cannot fall."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.strength - float(2.0 * self.error / np.sqrt(self.smallest))

    @property
    def length(self) -> float:
        """Longest path: S - sqrt(S^2 - 2 e/sqrt(lambda)), without its cancellation."""
        used = self.strength - self.remaining
        return used / float(np.sqrt(self.strength) + np.sqrt(self.remaining))

    def required(self) -> Reach:
        """Itself, if 2 e < sqrt(lambda) S^2."""
        if not self.remaining > 0.0:
            raise OutsideHypothesis(
                f"model: must have 2 ||y(0) - y*|| < sqrt(lambda) S^2, got {2 * self.error:.3g} "
                f"and {np.sqrt(self.smallest) * self.strength:.3g}. Beyond it the flow may end at "
                "a saddle: enlarge the scale or the width of the start, or drop dependent "
                "measurements."
            )
        return self


def _least(rows: FloatArray) -> float:
    """Least eigenvalue of rows rows^T."""
    if rows.shape[1] < rows.shape[0]:
        return 0.0
    return float(np.linalg.svd(rows, compute_uv=False)[-1] ** 2)


@checked
def path_length(
    model: LiftedModel,
    problem: MatrixProblem,
    loss: Any = "sum",
    *,
    measured: MeasuredFactors | None = None,
) -> tuple[Claim, Claim]:
    """Path <= S - sqrt(S^2 - 2 e/sqrt(lambda)), and residual decay at c lambda (S^2 - 2 e/...).

    Ours (docs/theory/matrix_factorization.md, section 5); attained at any size of the error. The
    path is measured as a polygon through the steps of the integrator, or through those of a flow
    that was followed already.

    >>> model = fb.MatrixFactorization.gaussian((2, 2), width=50, scale=0.5, rng=0)
    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> all(claim.holds for claim in fb.theory.path_length(model, problem))
    True
    """
    reach = Reach.of(model, problem).required()
    measured = measured_or_followed(measured, model, problem, loss)
    steps = np.linalg.norm(np.diff(measured.Z, axis=0), axis=(1, 2))
    rate = model.rate * measured.loss_constant * reach.smallest * reach.remaining
    longest = "the whole path of the factors is no longer than the first error allows"
    decays = "the residual decays at the rate that is left at the end of the longest path"
    place = beyond_the_papers("5 Length of the path", "matrix_factorization")
    path, decay = Statement(place, longest, *FACTORS), Statement(place, decays, *RATE)
    return (
        path.at_most("length of the path", steps.sum(), reach.length, rtol=FACTORS.size),
        decay_claim(decay, "residual decays", measured.t, measured.error, rate),
    )
