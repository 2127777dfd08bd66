"""Whatever the data: a certified result, or one of the library's own errors, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.certificates import certify
from flowbias.certificates.certificate import ONE_DIGIT
from flowbias.ground.tolerances import IN_RANGE
from tests.hardening.awkward import Data, assert_explains_itself, regression_data

MODELS = (
    fb.DiagonalNet(depth=2, scale=1.0),
    fb.DiagonalNet(depth=2, scale=1e-3),
    fb.DiagonalNet(depth=2, scale=1e3),
    fb.DiagonalNet(depth=2, log_scale=-2000.0),
    fb.DiagonalNet(depth=3, scale=0.1),
    fb.DiagonalNet(depth=5, scale=0.5),
    fb.UntiedDiagonalNet(scale=0.3, shape=0.7),
    fb.DistancePotential(scale=0.2),
)
# Each returns a Solution of the regression problem.
SOLVERS = {
    "min_norm": fb.min_norm,
    "basis_pursuit": fb.basis_pursuit,
    "rich_limit": lambda X, y: fb.rich_limit(fb.DiagonalNet(depth=2, scale=1.0), X, y),
    "rich_limit of depth 3": lambda X, y: fb.rich_limit(fb.DiagonalNet(depth=3, scale=1.0), X, y),
}


def dense(X: object) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)


def assert_proved(solution: fb.Solution, data: Data, tol: float) -> None:
    """The status is backed by a certificate that anybody can recompute."""
    assert solution.status.ok
    assert np.isfinite(solution.w).all()
    X, w, dual = dense(data.X), solution.w, solution.dual
    again = certify(X, data.y, w, dual, solution.potential, solution.shift, tol=tol)
    if "blocks" in solution.route and 0.0 < solution.distance <= IN_RANGE:
        # Rows that the Gram matrix of blocks takes for dependent, and says so: a column in small
        # units may tell an array that they are not.
        again = solution.certificate
    for certificate in (solution.certificate, again):
        proves_some_digits = certificate.relative_error <= ONE_DIGIT
        says_so = solution.status is fb.Status.FEW_DIGITS and proves_some_digits
        assert certificate.ok or says_so


def solved_or_refused(solve, data: Data):
    """What `solve` returns; None where it refuses the data, or admits that it failed, in words."""
    try:
        return solve(data.X, data.y)
    except fb.InputError as refusal:
        assert_explains_itself(refusal)
    except fb.SolveError as failure:
        assert_admits(failure)
    return None


def proved_or_refused(solve, data: Data, tol: float = 1e-10) -> None:
    solution = solved_or_refused(solve, data)
    if solution is not None:
        assert_proved(solution, data, tol)


def assert_admits(failure: fb.SolveError) -> None:
    """What was reached comes along, and is not passed off as a limit."""
    assert failure.solution.status is fb.Status.STALLED


@given(regression_data(), st.sampled_from(MODELS))
def test_limit(data, model):
    proved_or_refused(lambda X, y: fb.limit(model, X, y), data)


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
@given(regression_data())
def test_extremes(solve, data):
    proved_or_refused(solve, data)
