"""The limits along scales that cross-validation takes: quick ones, and tested each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import flowbias as fb
from flowbias.estimators import scale_walk
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression

RNG = np.random.default_rng(3)
X = RNG.standard_normal((18, 30)) + 1.0
Y = X[:, 0] - 2.0 * X[:, 3] + 0.3 * RNG.standard_normal(18)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    depth=st.sampled_from([2, 3, 5]),
    bottom=st.sampled_from([-4.0, -12.0, -300.0]),
    rows=st.sampled_from(["plain", "copied", "centred"]),
)
def test_the_walk_finds_the_limits(seed, depth, bottom, rows):
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((7, 16)), rng.standard_normal(7)
    if rows == "copied":
        A, b = np.vstack([A, A]), np.append(b, b)
    elif rows == "centred":
        A, b = A - A.mean(axis=0), b - b.mean()
    network, logs = DiagonalNet(depth, 1.0), np.linspace(1.0, 2.0 * bottom / depth, 9)
    steps = scale_walk.walk(network, A, b, logs, 1e-8)
    path = fb.limit_path(network, A, b, log_scales=logs)
    for step, w in zip(steps, path.w, strict=True):
        assert step.failure is None
        # Certified to 1e-8, in the l2 norm of an l1 problem in the worst case.
        assert_allclose(step.w, w, atol=1e-6 * np.abs(w).max())


@pytest.mark.parametrize("depth", [2, 3])
def test_one_factorization_serves_two_scales(depth, monkeypatch):
    """At the spacing of 50 scales over ten decades of scale^depth; that is what makes it quick."""
    made = []
    factor = scale_walk.nearby_system

    def counting(*arguments, **options):
        made.append(1)
        return factor(*arguments, **options)

    def cold(*_):
        pytest.fail("a limit was solved for from scratch")

    monkeypatch.setattr(scale_walk, "nearby_system", counting)
    monkeypatch.setattr(scale_walk, "_solved", cold)
    A, b, _ = fb.datasets.sparse_regression(n=40, d=300, sparsity=5, noise_var=0.01, rng=0)
    logs = (2.4 - np.linspace(0.0, np.log(1e10), 50)) / depth
    scale_walk.walk(DiagonalNet(depth, 1.0), A, b, logs, 1e-8)
    assert 0 < len(made) <= 40


@pytest.mark.parametrize("rows", [X, np.vstack([X, X])], ids=["plain", "copied"])
def test_the_walk_goes_on_from_a_limit_solved_from_scratch(rows, monkeypatch):
    solved, corrected, solve = [], scale_walk._Walker._corrected, scale_walk._solved

    def reluctant(walker, model, dual):
        return corrected(walker, model, dual) if solved else None

    def counting(*arguments):
        solved.append(1)
        return solve(*arguments)

    monkeypatch.setattr(scale_walk._Walker, "_corrected", reluctant)
    monkeypatch.setattr(scale_walk, "_solved", counting)
    outputs = np.resize(Y, len(rows))
    # Rich enough that a dual of 0, or one in other units, is no place to start from.
    logs = np.linspace(-8.0, -9.0, 5)
    scale_walk.walk(DiagonalNet(2, 1.0), rows, outputs, logs, 1e-8)
    assert len(solved) == 1


def test_the_walk_leaves_two_digits_to_its_test():
    # Rows of unit length: the residual of the constraint is that of the data.
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 8)))[0].T
    steps = scale_walk.walk(DiagonalNet(2, 1.0), rows, Y[:8], np.linspace(1.0, -7.0, 40), 1e-4)
    misfits = [np.linalg.norm(rows @ step.w - Y[:8]) / np.linalg.norm(Y[:8]) for step in steps]
    assert max(misfits) <= 1.01e-6


def test_the_walk_tests_what_it_returns(monkeypatch):
    model = DiagonalNet(2, 0.1)
    good = fb.limit(model, X, Y)
    walker = scale_walk._Walker(model, Regression(X, Y), 1e-8)
    assert walker._is_proved(model, good.w, good.dual)
    for w, dual in [
        (good.w * (1.0 + 1e-6), good.dual),
        (good.w, good.dual * (1.0 + 1e-3)),
        (np.linalg.lstsq(X, Y)[0], good.dual),
        (np.full_like(good.w, np.nan), good.dual),
    ]:
        assert not walker._is_proved(model, w, dual)
    monkeypatch.setattr(scale_walk._Walker, "_is_proved", lambda *_: False)
    steps = scale_walk.walk(model, X, Y, np.log([0.1]), 1e-8)
    assert_array_equal(steps[0].w, fb.limit(model.at_log_scale(np.log(0.1)), X, Y, tol=1e-8).w)


def test_one_limit_is_enough_where_only_one_predictor_fits(monkeypatch):
    asked, solved = [], scale_walk._solved

    def counting(*arguments):
        asked.append(arguments)
        return solved(*arguments)

    monkeypatch.setattr(scale_walk, "_solved", counting)
    steps = scale_walk.walk(DiagonalNet(2, 1.0), X.T, RNG.standard_normal(30), np.arange(5.0), 1e-8)
    assert len(asked) == 1
    assert len(steps) == 5
    # Fewer samples than features leave a choice, whatever rounding says of their rank.
    scale_walk.walk(
        DiagonalNet(2, 1.0), np.vstack([X, X[:1]]), np.append(Y, 9.0), [0.0, -1.0], 1e-8
    )
    assert len(asked) == 3


def test_data_on_which_no_scale_is_certified_are_given_up(monkeypatch):
    asked = []

    def failing(log_scale):
        asked.append(log_scale)
        return scale_walk.Step(np.zeros(1), f"failed at {log_scale:g}")

    steps = scale_walk._steps(failing, np.arange(9.0))
    assert asked == [0.0, 1.0, 2.0]
    assert [step.failure for step in steps[2:]] == ["failed at 2"] * 7
    # Not where one of the first was.
    good = scale_walk.Step(np.zeros(1), None)
    asked.clear()
    scale_walk._steps(lambda s: failing(s) if s else good, np.arange(9.0))
    assert len(asked) == 8
