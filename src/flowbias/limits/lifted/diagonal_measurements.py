"""The exact limit of a factorization of any width, where measurements are diagonal together.

Rows u_i of U and v_i of V move in pairs. With the pull g = -c X^T r on m_i = <u_i, v_i>,

    u_i' = g_i v_i,  v_i' = g_i u_i:    u_i + v_i grows like e^{t_i},  u_i - v_i like e^{-t_i}
    m_i(t) = P_i e^{2 t_i} - M_i e^{-2 t_i},  P = |u + v|^2/4,  M = |u - v|^2/4 at the start

with t_i = int g_i. So the diagonal is the limit of an untied diagonal network with these P and M,
solved without integration, and t = X^T nu then moves every row, hence all of U V^T, off the
diagonal too. With c_i = 4 P_i M_i: asinh(m_i/sqrt(c_i)) - asinh(m_i(0)/sqrt(c_i)) = 2 t_i.
[woodworth2020, appendix G for infinite width; finite width is ours,
docs/theory/matrix_factorization.md, section 3]
"""

from __future__ import annotations

import time

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.common_basis import CommonBasis, require_common_basis
from flowbias.limits.solve import limit
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import HyperbolicPotential
from flowbias.problems.matrix import MatrixProblem
from flowbias.results.matrix_solution import MatrixSolution
from flowbias.results.solution import Stats, Status

# |u - v| after a rotation carries this much of |u| + |v|; what is below counts as 0, and the entry
# keeps its sign.
_ROUNDING = 64.0 * float(np.finfo(float).eps)


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
            part[_log_lengths(part) <= np.log(_ROUNDING) + log_size] = 0.0
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
