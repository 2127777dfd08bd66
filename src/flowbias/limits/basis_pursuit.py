"""The rich extreme: the interpolator of least (weighted) l1 norm, by HiGHS, with its dual.

    min sum weights |w|  s.t.  X w = y        dual: max <nu, y>  s.t.  |X^T nu| <= weights

Simplex returns a vertex to about nine digits; its support is then solved exactly.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize

from flowbias._typing import ArrayLike, FloatArray, Mask
from flowbias.certificates import certify
from flowbias.limits.solve import as_regression
from flowbias.potentials import L1
from flowbias.problem import Regression
from flowbias.solution import Solution, Stats, Status

# Relative to the largest entry, and to the weights: what HiGHS' own tolerance (1e-9) may hide.
ON_SUPPORT = 1e-8
TIGHT = 1e-7


def basis_pursuit(
    X: Any, y: Any = None, *, weights: ArrayLike = 1.0, tol: float = 1e-10, throw: bool = True
) -> Solution:
    """argmin sum weights |w|  s.t.  X w = P y, certified; NOT_UNIQUE where there are others.

    `details["dual_margin"]` says how far the inactive |X^T nu| / weights stay below 1.
    """
    return pursue(as_regression(X, y), L1(weights), tol=tol).checked(throw)


def pursue(problem: Regression, potential: L1, *, tol: float) -> Solution:
    """`basis_pursuit` on a checked problem."""
    started = time.perf_counter()
    d = problem.X.shape[1]
    weights = np.broadcast_to(potential.weights, (d,))
    w, dual, steps = _vertex(problem, weights)
    w, dual = _sharpened(problem, weights, w, dual)
    dual = _inside_box(problem.X, weights, dual)
    pull = problem.X.T @ dual / weights
    support = np.abs(w) > ON_SUPPORT * np.abs(w).max(initial=0.0)
    margin = 1.0 - float(np.abs(pull[~support]).max(initial=0.0))
    unique = is_only_minimizer(problem.X, pull, support)
    certificate = certify(problem.X, problem.y, w, dual, potential, tol=tol)
    status = Status.STALLED
    distance = problem.constraint.distance
    if certificate.ok:
        status = Status.PROJECTED if distance > 0 else Status.CERTIFIED
        status = status if unique else Status.NOT_UNIQUE
    return Solution(
        w=w,
        dual=dual,
        status=status,
        route="linear program (HiGHS)",
        certificate=certificate,
        stats=Stats(0, steps, time.perf_counter() - started),
        potential=potential,
        distance=distance,
        details={"dual_margin": margin},
    )


def _vertex(problem: Regression, weights: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """An optimal vertex and its dual, from the equilibrated problem."""
    constraint = problem.constraint
    rows = constraint.row_scale[:, None] * constraint.rows
    size = float(np.linalg.norm(constraint.target)) or 1.0
    typical = float(np.median(weights))
    result = scipy.optimize.linprog(
        np.concatenate([weights, weights]) / typical,
        A_eq=np.hstack([rows, -rows]),
        b_eq=constraint.target / size,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if result.x is None:
        raise RuntimeError(
            f"the linear program could not be solved: HiGHS said {result.message!r}. "
            "Rescale the columns of X to comparable lengths."
        )
    d = len(weights)
    w = size * (result.x[:d] - result.x[d:])
    return w, typical * constraint.dual_of_data(result.eqlin.marginals), int(result.nit)


def _sharpened(
    problem: Regression, weights: FloatArray, w: FloatArray, dual: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve the support exactly: X_S w_S = P y and X_S^T nu = weights sign(w_S)."""
    constraint = problem.constraint
    support = np.flatnonzero(np.abs(w) > ON_SUPPORT * np.abs(w).max(initial=0.0))
    if len(support) == 0:
        return np.zeros_like(w), np.zeros_like(dual)
    columns = constraint.row_scale[:, None] * constraint.rows[:, support]
    sharp = np.zeros_like(w)
    sharp[support] = scipy.linalg.lstsq(columns, constraint.target)[0]
    wanted = weights[support] * np.sign(w[support]) - problem.X[:, support].T @ dual
    correction = scipy.linalg.lstsq(columns.T, wanted)[0]
    return sharp, dual + constraint.dual_of_data(correction)


def _inside_box(X: FloatArray, weights: FloatArray, dual: FloatArray) -> FloatArray:
    """Shrink the dual until |X^T nu| <= weights holds as it is evaluated, rounding included."""
    while ((pull := np.abs(X.T @ dual)) > weights).any():
        dual = dual * ((1.0 - 4.0 * np.finfo(float).eps) / float((pull / weights).max()))
    return dual


def is_only_minimizer(X: FloatArray, pull: FloatArray, support: Mask) -> bool:
    """Whether no other minimizer shares the dual with pull = X^T nu / weights.

    Every minimizer lives where |pull| = 1, with the sign of the pull. So the one on `support` is
    alone unless some h != 0 there has X h = 0 and keeps those signs where the support has none.
    """
    active = np.flatnonzero(support)
    if len(active) and np.linalg.matrix_rank(X[:, active]) < len(active):
        return False
    idle = np.flatnonzero((np.abs(pull) > 1.0 - TIGHT) & ~support)
    if len(idle) == 0:
        return True
    columns = np.hstack([X[:, active], X[:, idle] * np.sign(pull[idle])])
    lengths = np.linalg.norm(columns, axis=0)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(len(active)), -np.ones(len(idle))]),
        A_eq=columns / np.where(lengths > 0, lengths, 1.0),
        b_eq=np.zeros(len(X)),
        bounds=[(None, None)] * len(active) + [(0.0, 1.0)] * len(idle),
        method="highs",
    )
    return result.fun is None or -result.fun < 1e-6
