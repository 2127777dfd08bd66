"""The exact limit of a factorization of any width, where measurements are diagonal together.

Rows u_i of U and v_i of V move in pairs. With the pull g = -c X^T r on m_i = <u_i, v_i>,

    u_i' = g_i v_i,  v_i' = g_i u_i:    u_i + v_i grows like e^{t_i},  u_i - v_i like e^{-t_i}
    m_i(t) = P_i e^{2 t_i} - M_i e^{-2 t_i},  P = |u + v|^2/4,  M = |u - v|^2/4 at the start

with t_i = int g_i. So the diagonal is the limit of an untied diagonal network with these P and M,
solved without integration, and t = X^T nu then moves every row, hence all of U V^T, off the
diagonal too. With c_i = 4 P_i M_i: asinh(m_i/sqrt(c_i)) - asinh(m_i(0)/sqrt(c_i)) = 2 t_i.
[woodworth2020, appendix G for infinite width; finite width is ours,
docs/theory/matrix_factorization.md, section 3]

Measurements are diagonal together where one orthogonal pair makes them so:

    X_n = P diag(x_n) Q^T for all n    if and only if    X_n X_m^T and X_n^T X_m are symmetric

for all n and m. In the lifted space that is one word: the matrices [[0, X_n], [X_n^T, 0]] commute.
[woodworth2020, Theorem 4] asks that the X_n themselves commute, which is not enough: X_1 = I and
X_2 = E_12 do, and have no such pair (docs/theory/matrix_factorization.md, section 2).

The pair comes from the singular vectors of one generic combination C = sum a_n X_n. Where two
singular values of C agree for generic a, the two columns of (x_n) agree up to sign for every n, so
that any basis which C pairs is as good. The verdict is the defect of the pair that was found.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import HyperbolicPotential
from flowbias.problems.matrix import MatrixProblem
from flowbias.problems.regression import Regression
from flowbias.results.matrix_solution import MatrixSolution
from flowbias.results.solution import Stats, Status


def diagonal_limit(
    model: LiftedModel,
    problem: MatrixProblem,
    *,
    basis: CommonBasis | None = None,
    tol: float = 1e-10,
    throw: bool = True,
) -> MatrixSolution:
    """The limit of U V^T where one orthogonal pair diagonalizes all measurements, certified.

    The route that `limit(model, problem)` takes on such measurements. Cost does not depend on the
    width. `dual` is nu with t = X^T nu in the common basis, which may be passed where it is known;
    `gram` is [U; V][U; V]^T at the limit. InputError where the measurements have no common basis.

    >>> model = MatrixFactorization([[1.0, 0.0]], [[0.0, 1.0]])  # u and v of length 1, orthogonal
    >>> problem = MatrixSensing([[[1.0]]], [np.sinh(2.0)])
    >>> solution = diagonal_limit(model, problem)
    >>> solution.dual.round(9), solution.gram.round(3)  # u cosh 1 + v sinh 1, and the reverse
    (array([1.]), array([[3.762, 3.627],
           [3.627, 3.762]]))
    """
    started = time.perf_counter()
    measured = model.lifted_problem(problem)
    basis = require_common_basis(measured) if basis is None else basis
    pairs = _Pairs.of(model, basis)
    potential = HyperbolicPotential(*pairs.log_sides(), rate=2.0)
    solution = limit(potential, basis.regression(measured.target), tol=tol, throw=False)
    root = pairs.moved(basis.values.T @ solution.dual)
    M = basis.left @ pairs.product(root, solution.w) @ basis.right.T
    Z = basis.rotation @ root
    # Solved in the common basis; what counts is the problem as it was given. A one-sided start may
    # reach less than the matrices can (PROJECTED): there the certificate of the diagonal says all.
    misfit = measured.relative_residual(M)
    fits = solution.status is not Status.CERTIFIED or misfit <= max(tol, 10.0 * basis.defect)
    return MatrixSolution(
        M=M,
        dual=solution.dual,
        status=solution.status if fits else Status.STALLED,
        route=f"diagonal measurements, {solution.route}",
        certificate=solution.certificate,
        stats=Stats(
            solution.stats.factorizations, solution.stats.steps, time.perf_counter() - started
        ),
        distance=solution.distance,
        gram=Z @ Z.T,
        details={"basis_defect": basis.defect, "relative_residual": misfit},
    ).checked(throw)


class _Pairs:
    """Rows of [U; V] in the common basis, as sums and differences of the pairs."""

    def __init__(self, plus: FloatArray, minus: FloatArray, rest: tuple[FloatArray, FloatArray]):
        self.plus, self.minus, self.rest = plus, minus, rest

    @classmethod
    def of(cls, model: LiftedModel, basis: CommonBasis) -> _Pairs:
        # The narrow root stands for the weights: any Z with their Gram matrix has their flow.
        p, d1 = basis.pairs, basis.left.shape[0]
        U, V = basis.left.T @ model.root[:d1], basis.right.T @ model.root[d1:]
        plus, minus = U[:p] + V[:p], U[:p] - V[:p]
        log_size = np.logaddexp(_log_lengths(U[:p]), _log_lengths(V[:p]))
        for part in (plus, minus):
            # |u - v| after a rotation carries this much of |u| + |v|; what is below counts as 0,
            # and the entry keeps its sign.
            rounding = 64.0 * float(np.finfo(float).eps)
            part[_log_lengths(part) <= np.log(rounding) + log_size] = 0.0
        return cls(plus, minus, (U[p:], V[p:]))

    def log_sides(self) -> tuple[FloatArray, FloatArray]:
        """log |u_i + v_i|^2/4 and log |u_i - v_i|^2/4; -inf where a side vanishes."""
        plus, minus = (2.0 * _log_lengths(0.5 * part) for part in (self.plus, self.minus))
        return plus, minus

    def moved(self, t: FloatArray) -> FloatArray:
        """[U; V] in the common basis with each pair of rows turned hyperbolically by t_i."""
        plus, minus = _grown(self.plus, t), _grown(self.minus, -t)
        U, V = 0.5 * (plus + minus), 0.5 * (plus - minus)
        return np.vstack([U, self.rest[0], V, self.rest[1]])

    def product(self, root: FloatArray, diagonal: FloatArray) -> FloatArray:
        """U V^T in the common basis; its diagonal as solved, free of the rounding of products."""
        d1 = len(self.plus) + len(self.rest[0])
        product = np.asarray(root[:d1] @ root[d1:].T)
        places = np.arange(len(self.plus))
        product[places, places] = diagonal
        return product


def _log_lengths(rows: FloatArray) -> FloatArray:
    """log of each row's length, -inf for a zero row; squares of tiny entries would underflow."""
    largest = np.abs(rows).max(axis=1)
    unit = rows / np.where(largest > 0.0, largest, 1.0)[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(largest) + np.log(np.linalg.norm(unit, axis=1)))


def _grown(rows: FloatArray, t: FloatArray) -> FloatArray:
    """e^t times each row; together with its size, since 0 may be asked to grow by infinity."""
    largest = np.abs(rows).max(axis=1)
    unit = rows / np.where(largest > 0.0, largest, 1.0)[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(t + np.log(largest))[:, None] * unit)


# Share of a measurement that may be left off the diagonal: the rounding of a product of some
# hundred rows is 1e-14, and of singular vectors whose values almost meet 1e-12.
DIAGONAL = 1e-10


@dataclass(frozen=True, eq=False)
class CommonBasis:
    """X_n = left[:, :p] diag(values[n]) right[:, :p]^T with p the smaller side; both orthogonal."""

    left: FloatArray
    right: FloatArray
    values: FloatArray
    defect: float  # largest share of a measurement that is left off the diagonal

    @property
    def pairs(self) -> int:
        """How many rows of U and V are coupled: the smaller side of the matrix."""
        return int(self.values.shape[1])

    def assemble(self, diagonal: FloatArray) -> FloatArray:
        """P diag(diagonal) Q^T."""
        p = self.pairs
        return np.asarray((self.left[:, :p] * diagonal) @ self.right[:, :p].T)

    def regression(self, target: FloatArray) -> Regression:
        """The measurements as a regression on the diagonal of P^T M Q."""
        return Regression(self.values, target)

    @cached_property
    def rotation(self) -> FloatArray:
        """blockdiag(P, Q): takes [U; V] in the common basis to [U; V] itself."""
        return np.asarray(scipy.linalg.block_diag(self.left, self.right))


def common_basis(problem: MatrixProblem, *, tol: float = DIAGONAL) -> CommonBasis | None:
    """The orthogonal pair that diagonalizes all measurements; None where none does it to `tol`."""
    matrices = problem.matrices
    if _is_diagonal(matrices):
        # Diagonal as given: no rotation, no rounding.
        left, right = np.eye(problem.shape[0]), np.eye(problem.shape[1])
        return CommonBasis(left, right, _diagonals(matrices), 0.0)
    unit = _normalized(matrices)
    rng = np.random.default_rng(0)  # any draw will do, and the same data gets the same pair
    bases = (_basis_of(np.tensordot(draw, unit, 1), matrices) for draw in _draws(rng, len(unit)))
    best = min(bases, key=lambda basis: basis.defect)
    return best if best.defect <= tol else None


def require_common_basis(problem: MatrixProblem, *, tol: float = DIAGONAL) -> CommonBasis:
    """`common_basis`, or InputError that says how far the measurements are from having one."""
    basis = common_basis(problem, tol=tol)
    if basis is not None:
        return basis
    matrices = problem.matrices
    commute = plain_commutator(matrices) <= tol
    hint = "They commute, but that is not enough. " if commute else ""
    raise InputError(
        "problem: must have measurements that one orthogonal pair makes diagonal (all X_n X_m^T "
        f"and X_n^T X_m symmetric), got an asymmetry of {lifted_commutator(matrices):.1e} relative "
        f"to their norms. {hint}Follow the flow instead: fb.flow(model, problem)."
    )


def lifted_commutator(matrices: FloatArray) -> float:
    """Largest asymmetry of X_n C^T and X_n^T C relative to the norms, C a generic combination.

    Zero if and only if all [[0, X_n], [X_n^T, 0]] commute, up to the luck of one random draw.
    """
    unit = _normalized(matrices)
    combined = np.tensordot(np.random.default_rng(1).standard_normal(len(unit)), unit, 1)
    size = float(np.linalg.norm(combined)) or 1.0
    left = unit @ combined.T
    right = np.swapaxes(unit, 1, 2) @ combined
    return max(_largest(stack - np.swapaxes(stack, 1, 2)) for stack in (left, right)) / size


def plain_commutator(matrices: FloatArray) -> float:
    """Largest X_n C - C X_n relative to the norms; inf where the matrices are not square."""
    if matrices.shape[1] != matrices.shape[2]:
        return np.inf
    unit = _normalized(matrices)
    combined = np.tensordot(np.random.default_rng(1).standard_normal(len(unit)), unit, 1)
    size = float(np.linalg.norm(combined)) or 1.0
    return _largest(unit @ combined - combined @ unit) / size


def _draws(rng: np.random.Generator, count: int) -> list[FloatArray]:
    # Combinations that are tried: one is enough but for an unlucky near-crossing of singular
    # values.
    draws = 4
    return [rng.standard_normal(count) for _ in range(draws)]


def _basis_of(combined: FloatArray, matrices: FloatArray) -> CommonBasis:
    left, _, right = scipy.linalg.svd(combined)
    rotated = left.T @ matrices @ right.T
    values = _diagonals(rotated)
    off = rotated - _embedded(values, rotated.shape)
    sizes = np.linalg.norm(matrices, axis=(1, 2))
    shares = np.linalg.norm(off, axis=(1, 2)) / np.where(sizes > 0, sizes, 1.0)
    return CommonBasis(left, np.ascontiguousarray(right.T), values, float(shares.max()))


def _normalized(matrices: FloatArray) -> FloatArray:
    sizes = np.linalg.norm(matrices, axis=(1, 2), keepdims=True)
    return np.asarray(matrices / np.where(sizes > 0, sizes, 1.0))


def _diagonals(matrices: FloatArray) -> FloatArray:
    return np.ascontiguousarray(np.diagonal(matrices, axis1=1, axis2=2))


def _embedded(values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    matrices = np.zeros(shape)
    places = np.arange(values.shape[1])
    matrices[:, places, places] = values
    return matrices


def _is_diagonal(matrices: FloatArray) -> bool:
    return bool((matrices == _embedded(_diagonals(matrices), matrices.shape)).all())


def _largest(stack: FloatArray) -> float:
    return float(np.linalg.norm(stack, axis=(1, 2)).max())
