"""Answers whose status says that they are one of several l1 minimizers.

Such an answer promises its norm and its fit, not itself. From `basis_pursuit` that is all there is
to ask for; the limit of vanishing scales is one of the minimizers, and an answer that is another
one, and says so, has refused to find it. Columns that tie to the last digit may be taken for ties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb, ctx

from tests.fuzz.answers import Answer
from tests.fuzz.problems import Problem
from tests.fuzz.questions import RICH
from tests.fuzz.reference import DIGITS, Reference
from tests.fuzz.starts import rich_costs
from tests.fuzz.verdict import FALSE, GOOD, REFUSED, RELATIVE_ERROR, ROUNDING, Verdict

# The one good status that promises that there is no other minimizer, and that all of y is fitted.
ONLY_ONE = "CERTIFIED"


def promises_its_norm_alone(problem: Problem, answer: Answer, exact: Reference) -> bool:
    if problem.entry == "basis_pursuit":
        return answer.status == "NOT_UNIQUE" or not exact.unique
    return problem.entry in RICH and answer.status == "NOT_UNIQUE"


def verdict_of_minimizer(problem: Problem, answer: Answer, exact: Reference) -> Verdict:
    """As small as the exact one, and as good a fit?"""
    least, found = _norm(problem, exact.w), _norm(problem, [arb(float(v)) for v in answer.w])
    larger = float(abs(found - least))
    off = _misfit(problem.X, np.array([float(v) for v in exact.w]), answer.w)
    measured: dict[str, Any] = {"error": larger, "bound": math.inf, "status": answer.status}
    if larger > RELATIVE_ERROR * float(least) or not off <= RELATIVE_ERROR:
        return Verdict(FALSE, f"norm off by {larger:.1e}, fit by {off:.1e}", **measured)
    if problem.entry in RICH:
        selected = exact.distance(answer.w) <= RELATIVE_ERROR * exact.norm
        kind = GOOD if selected else REFUSED
        return Verdict(kind, "" if selected else "another minimizer than the selected", **measured)
    if answer.status == ONLY_ONE:
        return Verdict(FALSE, "there are other minimizers", **measured)
    return Verdict(GOOD, **measured)


def _misfit(X: np.ndarray, exact: np.ndarray, w: np.ndarray) -> float:
    """The largest relative error of a fitted output, beyond the rounding of its sum.

    Row by row: one in small units is fitted like the others.
    """
    fitted, sums = np.abs(X @ exact), np.abs(X) @ np.abs(exact)
    beyond = np.abs(X @ (w - exact)) - ROUNDING * sums
    off = np.divide(beyond, fitted, out=np.where(beyond > 0.0, np.inf, 0.0), where=fitted > 0.0)
    return float(off.max(initial=0.0))


def _norm(problem: Problem, w: list[Any]) -> Any:
    """The weighted l1 norm that the front door minimizes."""
    with ctx.workdps(DIGITS):
        if problem.entry == "basis_pursuit":
            costs = [arb(float(value)) for value in problem.options["weights"]]
            plus, minus = costs, costs
        else:
            plus, minus = rich_costs(problem.start, len(w))
        terms = (v * p if v > 0 else -v * m for v, p, m in zip(w, plus, minus, strict=True))
        return sum(terms, arb(0))
