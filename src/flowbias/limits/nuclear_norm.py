"""The rich extreme for matrices: least nuclear norm, by a semidefinite program, with its dual.

    min ||M||_*  s.t.  <X_n, M> = y_n        dual: max <nu, y>  s.t.  ||sum nu_n X_n||_op <= 1

Clarabel solves it to about nine digits. M is then moved to the nearest matrix that satisfies the
measurements, and nu is shrunk into the unit ball, so that both bounds hold: ||M||_* from above,
<nu, y> from below. `flowbias.certificates.spectral_certificate` measures what is left between them.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flowbias.certificates.spectral_certificate import certify_spectral
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.potentials import L1
from flowbias.problems.matrix import MatrixProblem, as_matrix_problem
from flowbias.results.matrix_solution import MatrixSolution
from flowbias.results.solution import Stats, Status


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
    outside = np.linalg.norm(problem.target - problem.reachable)
    distance = float(outside / (np.linalg.norm(problem.target) or 1.0))
    status = Status.PROJECTED if distance > 0.0 else Status.CERTIFIED
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
