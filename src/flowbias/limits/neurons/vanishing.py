"""Neurons whose start vanishes: the shortest predictor that fits.  [azulay2021, Theorem 3, mended]

What is left of the start at the limit is sum_i a_i(inf) P_null w_i(0), at most

    ||P_null W(0)|| sqrt(A/2 + sqrt(A^2/4 + ||m||^2)),    A = ||a(0)||^2,  m = X^+ y

(docs/theory/neurons.md). It goes to zero with the inner weights. That a_i w_i goes to zero, which
is all the paper asks for, is not enough: a start a -> 0 at fixed w keeps w's null-space part.

Nor is zero error at the end, which the bound rests on, to be had from every start. Near 0 the flow
is linear, a' = W g, W' = a g^T with g = X^T y, and with u = g/||g|| all that grows is

    p = a + W u.

If p is not 0, all small enough multiples of the start end at zero error. If it is, they lie, up to
terms of third order, on the set that leads into saddles, and nothing is certified.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowbias.certificates.certificate import certify
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.parts import check_columns, within_reach
from flowbias.limits.solve import min_norm
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, Status

# "Visible": the rest of the start, or coordinates that are not in use, below this share of the
# limit.
VISIBLE = 1e-3

FOUND = "vanishing start: the shortest predictor that fits"
RESTS = "vanishing start: a = 0 and W X^T y = 0, a saddle on these data at every scale"
TRAPPED = (
    "vanishing start: a + W u = 0 to rounding, u the direction of X^T y: to first order the start "
    "lies on the set that leads into a saddle, at every small scale"
)


def neuron_rich_limit(
    a: FloatArray | float, W: FloatArray, X: Any, y: Any = None, *, tol: float = 1e-10
) -> Solution:
    """The limit of limits as all weights of neurons (a, W) are scaled by a factor towards zero.

    `details["visible_log_factor"]`: below that log of the factor, what is left of the start is
    less than 1e-3 of the limit, if the flow ends at zero error from there.
    """
    data = as_regression(X, y)
    outer, inner = np.atleast_1d(np.asarray(a, dtype=np.float64)), np.atleast_2d(W)
    check_columns("inner weight of a neuron", inner.shape[1], data)
    problem, distance = within_reach(data)
    solution = min_norm(problem, tol=tol, throw=False)
    if distance > 0.0:
        status = Status.PROJECTED if solution.status.ok else Status.STALLED
        solution = replace(solution, status=status, distance=distance)
    if problem.y.any() and not _grows(outer, inner, problem):
        return _refused(solution, problem, TRAPPED if outer.any() else RESTS, tol)
    resting = inner - np.linalg.lstsq(problem.X, problem.X @ inner.T, rcond=None)[0].T
    length, size = float(np.linalg.norm(solution.w)), float(np.linalg.norm(outer))
    spread = float(np.linalg.norm(resting, 2))
    details = dict(solution.details)
    details["visible_log_factor"] = _visible(length, size, spread)
    return replace(solution, route=FOUND, details=details)


def _grows(a: FloatArray, W: FloatArray, problem: Regression) -> bool:
    """Whether p = a + W u is not 0, by more than the rounding of its terms and of u."""
    X, y = problem.X, problem.y
    unit = max(float(X.max()), -float(X.min()))
    targets = y / np.abs(y).max() / unit
    pull = X.T @ targets
    length = float(np.linalg.norm(pull))
    if length == 0.0:
        return False
    u = pull / length
    terms = np.abs(a) + np.abs(W) @ np.abs(u)
    products = float(np.linalg.norm(extended.absolute_adjoint(X, targets)))
    turned = len(y) * float(np.finfo(float).eps) * products / length
    # p counts beyond this share of its terms: some thousand roundings.
    grows = 1e-12
    blur = grows * terms + turned * np.linalg.norm(W, axis=1)
    return bool((np.abs(a + W @ u) > blur).any())


def _refused(solution: Solution, problem: Regression, route: str, tol: float) -> Solution:
    """The zero predictor that the flow stays at or comes near to, which is no limit of fits."""
    w, dual = np.zeros_like(solution.w), np.zeros_like(solution.dual)
    certificate = certify(problem.X, problem.y, w, dual, solution.potential, tol=tol)
    return replace(
        solution, w=w, dual=dual, status=Status.STALLED, route=route, certificate=certificate
    )


def _visible(length: float, outer: float, spread: float) -> float:
    """Factors c with c ||a|| <= sqrt(m) and c spread sqrt(2 m) <= VISIBLE m."""
    if spread == 0.0 or length == 0.0:
        # Nothing is left of the start at any scale; or it is never a small share of a limit of 0.
        return np.inf if spread == 0.0 else -np.inf
    with np.errstate(divide="ignore"):
        balanced = 0.5 * np.log(length) - np.log(outer)
    small = np.log(VISIBLE) + 0.5 * np.log(0.5 * length) - np.log(spread)
    return float(min(balanced, small))
