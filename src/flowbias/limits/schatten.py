"""The limit of infinitely wide factorizations: least Schatten-Q_mu.  [woodworth2020, Theorem 4]

    U, V with i.i.d. N(0, alpha^2) entries, width k -> inf, alpha^2 k -> 2 mu^2:
    [U; V][U; V]^T -> 2 mu^2 I,   limit = argmin Q_mu(singular values of M)  s.t.  <X_n, M> = y_n

where Q_mu is the hypentropy of scale mu: the nuclear norm as mu -> 0, the Frobenius norm as
mu -> infinity. It holds where one orthogonal pair makes all measurements diagonal; the paper asks
only that they commute, which is not enough (`lifted/common_basis.py`), and says "spectrum" for
what must be the singular values.
"""

from __future__ import annotations

import time
from typing import Any

from flowbias.certificates.spectral_certificate import certify_spectral
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.limits.lifted.common_basis import CommonBasis, require_common_basis
from flowbias.limits.solve import limit
from flowbias.potentials import Hypentropy
from flowbias.problems.matrix import MatrixProblem, as_matrix_problem
from flowbias.results.matrix_solution import MatrixSolution
from flowbias.results.solution import Stats, Status


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
