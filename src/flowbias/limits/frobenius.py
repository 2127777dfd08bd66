"""The kernel extreme for matrices: least Frobenius norm, or the solution closest to a start."""

from __future__ import annotations

import time

import numpy as np
import scipy.linalg

from flowbias.certificates.spectral_certificate import certify_spectral
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.solve import check_tol
from flowbias.potentials import L2
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
    check_tol(tol)
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
    outside = np.linalg.norm(problem.target - problem.reachable)
    distance = float(outside / (np.linalg.norm(problem.target) or 1.0))
    status = Status.PROJECTED if distance > 0.0 else Status.CERTIFIED
    return MatrixSolution(
        M=M,
        dual=dual,
        status=status if certificate.ok else Status.STALLED,
        route="least squares",
        certificate=certificate,
        stats=Stats(1, 1, time.perf_counter() - started),
        distance=distance,
    ).checked(throw)


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
