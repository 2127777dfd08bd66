"""Matrices that minimize a function of their singular values: both extremes, and what is between.

`frobenius_norm`, the kernel extreme: least Frobenius norm, or the solution closest to a start.

`schatten_limit`, infinitely wide factorizations: least Schatten-Q_mu.  [woodworth2020, Theorem 4]

    U, V with i.i.d. N(0, alpha^2) entries, width k -> inf, alpha^2 k -> 2 mu^2:
    [U; V][U; V]^T -> 2 mu^2 I,   limit = argmin Q_mu(singular values of M)  s.t.  <X_n, M> = y_n

where Q_mu is the hypentropy of scale mu: the nuclear norm as mu -> 0, the Frobenius norm as
mu -> infinity. It holds where one orthogonal pair makes all measurements diagonal; the paper asks
only that they commute, which is not enough (`lifted/diagonal_measurements.py`), and says "spectrum"
for what must be the singular values.

`nuclear_norm`, the rich extreme, by a semidefinite program, with its dual.

    min ||M||_*  s.t.  <X_n, M> = y_n        dual: max <nu, y>  s.t.  ||sum nu_n X_n||_op <= 1

Clarabel solves it to about nine digits. M is then moved to the nearest matrix that satisfies the
measurements, and nu is shrunk into the unit ball, so that both bounds hold: ||M||_* from above,
<nu, y> from below. `flowbias.certificates.spectral_certificate` measures what is left between them.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.certificates.spectral_certificate import certify_spectral
from flowbias.ground.arguments import InputError, as_float, read_tolerance, shown
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.lifted.diagonal_measurements import CommonBasis, require_common_basis
from flowbias.limits.solve import limit
from flowbias.potentials import L1, L2, Hypentropy
from flowbias.problems.matrix import MatrixProblem, MatrixSensing, as_matrix_problem
from flowbias.problems.regression import checked_array
from flowbias.results.matrix_solution import MatrixSolution
from flowbias.results.solution import Stats, Status


def frobenius_norm(
    problem: MatrixProblem,
    start: ArrayLike | None = None,
    *,
    tol: float = 1e-10,
    throw: bool = True,
) -> MatrixSolution:
    """argmin ||M - start||_F  s.t.  <X_n, M> = y_n, certified: M - start = sum dual_n X_n.

    What wide and large starts tend to: the kernel extreme, beside `nuclear_norm`, the rich one.

    Parameters
    ----------
    problem : MatrixCompletion, MatrixSensing or MatrixRegression
    start : U V^T at the start, 0 by default; where entries are observed, the others stay as they
        are there
    tol, throw : as for `limit`

    Returns
    -------
    MatrixSolution; where the target cannot be reached, its projection is fitted (PROJECTED)

    Raises
    ------
    SolveError where it cannot be certified

    >>> problem = fb.MatrixCompletion(rows=[0, 1], cols=[0, 1], values=[1.0, 2.0], shape=(2, 2))
    >>> fb.frobenius_norm(problem, start=[[5.0, 6.0], [7.0, 8.0]]).M
    array([[1., 6.],
           [7., 2.]])
    """
    read_tolerance("tol", tol)
    problem = as_matrix_problem(problem)
    started = time.perf_counter()
    origin = _origin(problem, start)
    rows = problem.matrices.reshape(len(problem.target), -1)
    gap = problem.reachable - problem.measure(origin)
    shortest, _, _, _ = scipy.linalg.lstsq(rows, gap)
    dual, _, _, _ = scipy.linalg.lstsq(rows.T, shortest)
    move = problem.adjoint(dual)
    M = origin + move
    # Counted from the start this is least norm with the measurements that are missing there.
    certificate = certify_spectral(MatrixSensing(problem.matrices, gap), move, dual, L2(), tol=tol)
    status, distance = _reached(problem)
    return MatrixSolution(
        M=M,
        dual=dual,
        status=status if certificate.ok else Status.STALLED,
        route="least squares",
        certificate=certificate,
        stats=Stats(1, 1, time.perf_counter() - started),
        distance=distance,
    ).checked(throw)


def _reached(problem: MatrixProblem) -> tuple[Status, float]:
    """What a proof shows, and how far the target is from what can be measured, relative to it."""
    outside = np.linalg.norm(problem.target - problem.reachable)
    distance = float(outside / (np.linalg.norm(problem.target) or 1.0))
    return Status.PROJECTED if distance > 0.0 else Status.CERTIFIED, distance


def _origin(problem: MatrixProblem, start: ArrayLike | None) -> FloatArray:
    if start is None:
        return np.zeros(problem.shape)
    origin = checked_array("start", start, 2)
    if origin.shape != problem.shape:
        raise InputError(
            f"start: must have the shape of the problem {problem.shape}, got {origin.shape}. "
            "Pass U V^T at the start."
        )
    return origin


def schatten_limit(
    problem: MatrixProblem,
    scale: float | None = None,
    *,
    log_scale: float | None = None,
    basis: CommonBasis | None = None,
    tol: float = 1e-10,
    throw: bool = True,
) -> MatrixSolution:
    """argmin Q_mu(singular values) on the measurements; scale is mu = sqrt(alpha^2 k / 2).

    Pass log_scale for a mu too small for a float, and `basis` where it is known (`common_basis`).
    The certificate is that of the matrix problem, over all matrices and not only those that are
    diagonal in the common basis. InputError where the measurements have no common basis.
    At finite width the limit is that of `limit(model, problem)`, O(k^(-1/2)) away from this one.

    >>> problem = MatrixSensing([[[1.0, 0.0], [0.0, 0.5]]], [1.0])  # m_11 + m_22/2 = 1
    >>> schatten_limit(problem, scale=1e3).M.round(3)  # kernel: least Frobenius norm
    array([[0.8, 0. ],
           [0. , 0.4]])
    >>> schatten_limit(problem, log_scale=-500.0).M.round(3)  # rich: least nuclear norm
    array([[1., 0.],
           [0., 0.]])
    """
    problem = as_matrix_problem(problem)
    started = time.perf_counter()
    potential = Hypentropy(
        _one_number("scale", scale), log_scale=_one_number("log_scale", log_scale)
    )
    basis = require_common_basis(problem) if basis is None else basis
    solution = limit(potential, basis.regression(problem.target), tol=tol, throw=False)
    M = basis.assemble(solution.w)
    # The common basis is exact to its defect only, and so is the proof in the matrix space.
    within = max(tol, 10.0 * basis.defect)
    certificate = certify_spectral(problem, M, solution.dual, potential, tol=within)
    ok = solution.status.ok and certificate.ok
    return MatrixSolution(
        M=M,
        dual=solution.dual,
        status=solution.status if ok else Status.STALLED,
        route=f"Schatten potential in the common basis, {solution.route}",
        certificate=certificate,
        stats=Stats(
            solution.stats.factorizations, solution.stats.steps, time.perf_counter() - started
        ),
        distance=solution.distance,
        details={"basis_defect": basis.defect},
    ).checked(throw)


def _one_number(name: str, value: Any) -> float | None:
    """One scale for all singular values: a vector of them would depend on the basis."""
    if value is None:
        return None
    number = as_float(value)
    if number is not None:
        return number
    raise InputError(
        f"{name}: must be one number, got {shown(value)}. "
        "All singular values start from the same scale."
    )


@dataclass(frozen=True)
class _Basis:
    """Orthonormal measurements with the same solutions: rows (r, d1 d2), target (r,)."""

    rows: FloatArray
    target: FloatArray
    to_data: FloatArray  # takes a dual of these rows to one of the problem's own measurements

    @classmethod
    def of(cls, problem: MatrixProblem) -> _Basis:
        stacked = problem.matrices.reshape(len(problem.target), -1)
        left, values, right = scipy.linalg.svd(stacked, full_matrices=False)
        rank = int((values > max(stacked.shape) * np.finfo(float).eps * values[0]).sum())
        left, values, right = left[:, :rank], values[:rank], right[:rank]
        return cls(right, (left.T @ problem.reachable) / values, left / values)


def _check_size(problem: MatrixProblem) -> None:
    size = float(np.abs(problem.target).max(initial=0.0))
    if size != 0.0 and not 1e-70 <= size <= 1e70:
        raise InputError(
            f"target: must have entries between 1e-70 and 1e70 in size, got {size:.1e}. "
            "Rescale it: the least nuclear norm scales with it."
        )
    largest = float(np.abs(problem.matrices).max())
    if not 1e-150 <= largest <= 1e150:
        raise InputError(
            f"problem: must have measurements of 1e-150 to 1e150 in size, got {largest:.1e}. "
            "Multiply them and their target by a common factor, which changes no solution."
        )


def nuclear_norm(
    problem: MatrixProblem, *, tol: float = 1e-6, throw: bool = True
) -> MatrixSolution:
    """argmin ||M||_*  s.t.  <X_n, M> = y_n, certified. Needs the extra `sdp`.

    Parameters
    ----------
    problem : MatrixCompletion, MatrixSensing or MatrixRegression
    tol, throw : as for `limit`

    Returns
    -------
    MatrixSolution; `details["nuclear_norm"]` is the value, and `unique` says whether M is shown to
    be the only minimizer

    Raises
    ------
    SolveError where it cannot be certified

    >>> problem = fb.MatrixCompletion([0, 0, 1], [0, 1, 0], [1.0, 2.0, 3.0], (2, 2))
    >>> abs(fb.nuclear_norm(problem).M).round(1)
    array([[1., 2.],
           [3., 1.]])
    """
    read_tolerance("tol", tol)
    problem = as_matrix_problem(problem)
    _check_size(problem)
    started = time.perf_counter()
    basis = _Basis.of(problem)
    size = float(np.linalg.norm(basis.target))
    if size == 0.0:
        M, nu, steps = np.zeros(problem.shape), np.zeros(len(basis.target)), 0
    else:
        M, nu, steps = _program(basis, problem.shape, size)
        M = M - (basis.rows.T @ (basis.rows @ M.ravel() - basis.target)).reshape(problem.shape)
    dual = basis.to_data @ nu
    dual = dual / max(1.0, float(np.linalg.norm(problem.adjoint(dual), 2)))
    certificate = certify_spectral(problem, M, dual, L1(), tol=tol)
    status, distance = _reached(problem)
    return MatrixSolution(
        M=M,
        dual=dual,
        status=status if certificate.ok else Status.STALLED,
        route="semidefinite program (Clarabel)",
        certificate=certificate,
        stats=Stats(0, steps, time.perf_counter() - started),
        distance=distance,
        unique=_is_only_minimizer(problem, basis, dual),
        details={
            "nuclear_norm": float(np.linalg.norm(M, "nuc")),
            "lower_bound": float(dual @ problem.reachable),
        },
    ).checked(throw)


def _program(
    basis: _Basis, shape: tuple[int, int], size: float
) -> tuple[FloatArray, FloatArray, int]:
    """M and the dual of the orthonormal measurements, solved for a target of length 1."""
    try:
        import clarabel  # noqa: F401
        import cvxpy
    except ImportError as missing:
        raise ImportError(
            "nuclear_norm needs cvxpy and Clarabel to solve its semidefinite program. "
            "Install them with the extra `sdp`: pip install 'flowbias[sdp]'."
        ) from missing
    M = cvxpy.Variable(shape)
    measured = basis.rows @ cvxpy.vec(M, order="C") == basis.target / size
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.normNuc(M)), [measured])
    with warnings.catch_warnings():
        # "Solution may be inaccurate": whether it is, the certificate says with numbers.
        warnings.simplefilter("ignore")
        program.solve(
            solver=cvxpy.CLARABEL,
            # Reached or not, the certificate judges.
            tol_gap_abs=1e-10,
            tol_gap_rel=1e-10,
            tol_feas=1e-10,
        )
    if M.value is None or measured.dual_value is None:
        raise RuntimeError(
            f"the semidefinite program could not be solved: Clarabel said {program.status!r}. "
            "Rescale the measurements to comparable norms, or drop nearly dependent ones."
        )
    # cvxpy adds the multiplier times (measurements - target) to the objective: the other sign.
    steps = int(program.solver_stats.num_iters or 0)
    return size * np.asarray(M.value), -np.asarray(measured.dual_value), steps


def _is_only_minimizer(problem: MatrixProblem, basis: _Basis, dual: FloatArray) -> bool:
    """Whether no other minimizer can share the dual.

    Every minimizer is A H B^T with H symmetric positive semidefinite, A and B the singular vectors
    of sum nu_n X_n whose value is 1. Where the measurements of these determine H, it is alone.
    """
    left, values, right = scipy.linalg.svd(problem.adjoint(dual), full_matrices=False)
    # The square root of what the program leaves, so that the face is rather too large than too
    # small.
    face = values >= 1.0 - 1e-4
    if not face.any():
        return True  # only the zero matrix
    A, B = left[:, face], right[face]
    rank = A.shape[1]
    images = []
    for i in range(rank):
        for j in range(i + 1):
            H = np.outer(A[:, i], B[j]) + (np.outer(A[:, j], B[i]) if i != j else 0.0)
            images.append(basis.rows @ H.ravel())
    if len(images) > len(basis.rows):
        return False
    spread = np.linalg.svd(np.stack(images), compute_uv=False)
    return bool(spread[-1] > 1e-8 * spread[0])
