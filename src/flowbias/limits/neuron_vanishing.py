"""Neurons whose start vanishes: the shortest predictor that fits.  [azulay2021, Theorem 3, mended]

What is left of the start at the limit is sum_i a_i(inf) P_null w_i(0), at most

    ||P_null W(0)|| sqrt(A/2 + sqrt(A^2/4 + ||m||^2)),    A = ||a(0)||^2,  m = X^+ y

(docs/theory/neurons.md). It goes to zero with the inner weights. That a_i w_i goes to zero, which
is all the paper asks for, is not enough: a start a -> 0 at fixed w keeps w's null-space part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowbias._typing import FloatArray
from flowbias.limits.min_norm import min_norm
from flowbias.problem import as_regression
from flowbias.solution import Solution

# "Visible": the rest of the start below this share of the limit.
VISIBLE = 1e-3


def neuron_rich_limit(
    a: FloatArray | float, W: FloatArray, X: Any, y: Any = None, *, tol: float = 1e-10
) -> Solution:
    """The limit of limits as all weights of neurons (a, W) are scaled by a factor towards zero.

    `details["visible_log_factor"]`: below that log of the factor, what is left of the start is
    less than 1e-3 of the limit.
    """
    problem = as_regression(X, y)
    solution = min_norm(problem, tol=tol, throw=False)
    inner = np.atleast_2d(W)
    resting = inner - np.linalg.lstsq(problem.X, problem.X @ inner.T, rcond=None)[0].T
    length, outer = float(np.linalg.norm(solution.w)), float(np.linalg.norm(a))
    spread = float(np.linalg.norm(resting, 2))
    details = dict(solution.details)
    details["visible_log_factor"] = _visible(length, outer, spread)
    route = "vanishing start: the shortest predictor that fits"
    return replace(solution, route=route, details=details)


def _visible(length: float, outer: float, spread: float) -> float:
    """Factors c with c ||a|| <= sqrt(m) and c spread sqrt(2 m) <= VISIBLE m."""
    with np.errstate(divide="ignore"):
        balanced = 0.5 * np.log(length) - np.log(outer)
        small = np.log(VISIBLE) + 0.5 * np.log(0.5 * length) - np.log(spread)
    return float(min(balanced, small))
