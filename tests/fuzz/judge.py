"""From what came out of a front door to a verdict."""

from __future__ import annotations

import numpy as np

from tests.fuzz import leniency, reference
from tests.fuzz.answers import Answer, Outcome
from tests.fuzz.minimizers import promises_its_norm_alone, verdict_of_minimizer
from tests.fuzz.problems import Problem
from tests.fuzz.questions import Data, data_of, exact_answer, start_of
from tests.fuzz.reference import Reference, UnjudgedError
from tests.fuzz.verdict import (
    BOUND,
    FALSE,
    FOREIGN,
    GOOD,
    ORDER,
    REFUSED,
    RELATIVE_ERROR,
    ROUNDING,
    UNJUDGED,
    Verdict,
)

# Front doors whose answer depends on where the network starts, not on its shape alone.
FROM_A_START = ("limit", "sparse limit", "limit_path", "certify")
# Below this norm doubles are subnormal, and relative errors mean nothing.
SMALLEST = 1e-290


def judge(problem: Problem, outcome: Outcome) -> Verdict:
    """The worst that can be said of what came out."""
    if outcome.error:
        kind = REFUSED if outcome.explained else FOREIGN
        return Verdict(kind, outcome.error, status=outcome.error.partition(":")[0])
    if not outcome.answers:  # a limit that is refused leaves no point to be certified
        return Verdict(REFUSED, "no finite point")
    data = data_of(problem, problem.X, problem.y)
    verdicts = [_judged(problem, answer, data) for answer in outcome.answers]
    return max(verdicts, key=lambda verdict: ORDER.index(verdict.kind))


def _judged(problem: Problem, answer: Answer, data: Data) -> Verdict:
    if not answer.good:
        # That a wrong point is not certified is what was asked for.
        return Verdict(GOOD if answer.deliberate else REFUSED, answer.message, status=answer.status)
    try:
        exact = exact_answer(problem, answer, data)
        verdict = verdict_of(problem, answer, exact)
        if verdict.kind == FALSE and problem.options.get("fit_intercept"):
            return leniency.of_centred_data(problem, answer, verdict, exact, data)
        if verdict.kind in (FALSE, BOUND):
            return leniency.at_a_lower_rank(problem, answer, verdict, verdict_of)
    except UnjudgedError as reason:
        return Verdict(UNJUDGED, str(reason), status=answer.status)
    return verdict


def verdict_of(problem: Problem, answer: Answer, exact: Reference) -> Verdict:
    """How an answer compares with the exact one."""
    if promises_its_norm_alone(problem, answer, exact):
        return verdict_of_minimizer(problem, answer, exact)
    error = exact.distance(answer.w)
    measured = {"error": error, "bound": answer.error_bound, "status": answer.status}
    size = max(exact.norm, SMALLEST)
    promised = RELATIVE_ERROR if answer.digits is None else 10.0**-answer.digits
    if error > promised * size + ROUNDING * _data_size(problem, answer):
        return Verdict(FALSE, f"relative error {error / size:.1e}", **measured)
    if problem.options.get("fit_intercept"):
        # The bound is about the centred doubles, of which the centred data are another rounding.
        return Verdict(GOOD, **measured)
    if error > answer.error_bound + exact.error:
        return Verdict(BOUND, f"error {error:.1e}, bound {answer.error_bound:.1e}", **measured)
    return Verdict(GOOD, **measured)


def _data_size(problem: Problem, answer: Answer) -> float:
    """The size of a w that is not small by cancellation: of w(0), and of y over its row of X."""
    rows = np.linalg.norm(problem.X, axis=1)
    seen = rows > 0
    outputs = float(np.max(np.abs(problem.y[seen]) / rows[seen], initial=0.0))
    if problem.entry not in FROM_A_START:
        return outputs
    return outputs + reference.initial_norm(start_of(problem, answer), problem.X.shape[1])
