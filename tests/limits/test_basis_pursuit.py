"""Two ways to the least l1 norm: the path of a vanishing start, and the linear program."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.limits.basis_pursuit import HIGHS, WALK, pursue
from flowbias.limits.inverse_scale_space import Columns, Walk
from flowbias.potentials import L1
from flowbias.results.solution import Status

TOL = 1e-10
# The package has a function of that name.
module = sys.modules["flowbias.limits.basis_pursuit"]


def drawn(seed, kind):
    """X, y and what either sign costs."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(9, 25))
    X, y, up, down = rng.standard_normal((n, d)), rng.standard_normal(n), np.ones(d), np.ones(d)
    if kind == "sparse":
        y = X @ (rng.standard_normal(d) * (rng.random(d) < 0.1))
    elif kind == "integers":
        X, y = rng.integers(-2, 3, (n, d)).astype(float), rng.integers(-3, 4, n).astype(float)
        X[0, 0] = 1.0
    elif kind == "duplicates":
        X = X[:, rng.integers(0, d // 2, d)]
    elif kind == "units":
        X = X * 10.0 ** rng.uniform(-4.0, 4.0, d)
    elif kind == "dependent rows":
        X = X[rng.integers(0, n, n)]
    elif kind == "costs":
        up, down = np.exp(rng.uniform(-2.0, 2.0, (2, d)))
    elif kind == "one-sided":
        down[rng.random(d) < 0.7] = np.inf
    return fb.Regression(X, y), L1(up, down)


KINDS = [
    "dense", "sparse", "integers", "duplicates", "units", "dependent rows", "costs", "one-sided",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_path_ends_where_the_linear_program_does(kind, seed):
    problem, norm = drawn(seed, kind)
    walked, solved = (pursue(problem, norm, tol=TOL, ways=(way,)) for way in (WALK, HIGHS))
    assert walked.status is solved.status
    least = norm.value(solved.w)
    # Both are certified to a gap of TOL, in units of the norm.
    assert_allclose(norm.value(walked.w), least, rtol=2.0 * TOL, atol=TOL * (least == 0.0))
    if walked.status in (Status.CERTIFIED, Status.PROJECTED):
        bound = walked.certificate.error_bound + solved.certificate.error_bound
        assert np.linalg.norm(walked.w - solved.w) <= bound + TOL * np.linalg.norm(solved.w)


def test_the_dual_is_the_integral_of_the_residual():
    problem, _ = drawn(0, "costs")
    costs = np.exp(np.random.default_rng(1).uniform(-2.0, 2.0, (2, problem.X.shape[1])))
    walk = Walk(Columns.of_array(problem.X), problem.y, *costs)
    for _ in walk.stages():
        # zeta is a sum over the stages as well, of other products.
        assert_allclose(problem.X.T @ walk.nu, walk.zeta, rtol=0.0, atol=TOL * costs.max())
    assert np.abs(walk.zeta).max() >= costs.min()


def test_the_path_is_tried_first_and_the_route_says_so():
    problem, _ = drawn(0, "dense")
    assert fb.basis_pursuit(problem).route == WALK
    assert fb.rich_limit(fb.DiagonalNet(depth=3, scale=1.0), problem).route == WALK


def test_where_the_path_is_too_long_the_linear_program_answers(monkeypatch):
    problem, _ = drawn(0, "dense")
    walked = fb.basis_pursuit(problem)
    monkeypatch.setattr(module, "MOST_STAGES", 0)
    solved = fb.basis_pursuit(problem)
    assert solved.route == HIGHS
    assert_allclose(solved.w, walked.w, rtol=0.0, atol=TOL * np.abs(walked.w).max())


def test_where_the_path_is_not_certified_the_linear_program_answers(monkeypatch):
    problem, _ = drawn(0, "dense")
    expected = fb.basis_pursuit(problem).w

    def astray(reach, sides):
        w, dual, steps = module._end_of_path(reach, sides)
        return w[::-1], dual, steps

    monkeypatch.setitem(module._VERTICES, WALK, astray)
    # X is small enough for rational numbers, which find the way from anywhere.
    monkeypatch.setattr("flowbias.certificates.certificate.exact_vertex", lambda *_, **__: None)
    solved = fb.basis_pursuit(problem)
    assert solved.route == HIGHS
    assert_allclose(solved.w, expected, rtol=0.0, atol=TOL * np.abs(expected).max())


def test_nothing_to_fit_is_fitted_by_nothing_else():
    X, y, costs = [[1.0, 2.0, 3.0]], [0.0], fb.L1([1.0, 2.0, 0.5])
    for found in (fb.basis_pursuit(X, y), fb.rich_limit(fb.DiagonalNet(3, 0.1), X, y)):
        assert found.certificate.ok
        assert found.certificate.error_bound == 0.0
    assert fb.certify(X, y, [3.0, 0.0, -4.0], [0.0], costs).error_bound == 5.0
    # With a pull of its own the minimizer is another one.
    assert fb.certify(X, y, np.zeros(3), [0.0], costs, shift=np.full(3, 2.0)).error_bound == np.inf
