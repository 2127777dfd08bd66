"""Limits in balls: however they are found, what they prove must be true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates.exact_limit import _Newton, exact_limit
from flowbias.certificates.exact_problem import ExactProblem
from flowbias.ground.balls import precision
from tests.exact import distance
from tests.exact import exact_limit as many_digits
from tests.fuzz.answers import model_of
from tests.fuzz.problems import problem

TIED = np.array([[1.0, -2.0, 1.0, -2.0], [-1.0, 1.0, -1.0, 1.0], [2.0, 1.0, 2.0, 1.0]])


def in_balls(model, X, y):
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    # From nowhere, for weights of ordinary size.
    return exact_limit(X, y, model.potential, model.shift, np.zeros(len(y)), np.ones(X.shape[1]))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 4),
    extra=st.integers(0, 5),
    depth=st.sampled_from([2.0, 2.0 + 1e-12, 2.5, 3.0, 5.0]),
    log10_scale=st.floats(-6.0, 2.0),
)
def test_is_the_limit_in_many_digits(seed, n, extra, depth, log10_scale):
    """Against mpmath, with no code in common."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, n + extra)), rng.standard_normal(n)
    model = fb.DiagonalNet(depth, 10.0**log10_scale, w0=rng.uniform(0.5, 2.0, n + extra))
    found = in_balls(model, X, y)
    assert found is not None
    assert distance(found.w, many_digits(model, X, y, found.dual)) <= found.radius
    assert found.radius <= 1e-15 * np.linalg.norm(found.w)


@pytest.mark.parametrize(("depth", "scale"), [(10, 0.01), (3, 1e-16), (100, 1e-3), (4, 1e-60)])
def test_ties_are_shared_evenly(depth, scale):
    """Two equal columns from equal starts: by symmetry, whatever the digits of a slack."""
    found = in_balls(fb.DiagonalNet(depth, scale), TIED, [1.0, -1.0, 2.0])
    assert_allclose(found.w, [0.5, 0.0, 0.5, 0.0], atol=1e-13)


def test_a_proof_that_is_tampered_with_fails():
    """A dual that is off by 1e-20 of its size is no proof of sixteen digits any more."""
    model = fb.DiagonalNet(3, 0.1)
    X, y = TIED[:2], np.array([1.0, -1.0])
    with precision(200):
        newton = _Newton(ExactProblem.of(X, y, model.potential, model.shift), 200, 100)
        nu = newton._converged(newton._zero(), 100)
        assert newton._proved(nu) is not None
        for off in (1e-10, 1e-5):
            assert newton._proved((nu * (1 + off)).mid()) is None


def test_an_error_is_never_below_what_it_is():
    found = in_balls(fb.DiagonalNet(3, 0.1), TIED, [1.0, -1.0, 2.0])
    for off in (1e-12, 1e-3, 1.0):
        moved = found.w + off * np.array([1.0, 0.0, -1.0, 0.0])
        assert found.error_of(moved) >= np.linalg.norm(moved - found.w)
        assert not found.agrees(TIED, moved, found.dual, 1e-13)
    assert found.agrees(TIED, found.w, found.dual, 1e-13)
    assert not found.agrees(TIED, found.w, 1.001 * found.dual, 1e-10)


def test_what_is_out_of_range_is_projected():
    X = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
    found = in_balls(fb.DiagonalNet(2, 0.5), X, [1.0, 3.0])
    assert_allclose(X @ found.w, [2.0, 2.0], rtol=1e-14)
    assert found.rank == 1
    assert_allclose(found.distance, np.sqrt(2.0 / 10.0), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e100, 1e250])
def test_at_any_scale(scale):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((3, 5)), rng.standard_normal(3)
    found = in_balls(fb.DiagonalNet(2, scale), X, y)
    assert found.radius <= 1e-15 * np.linalg.norm(found.w)
    if scale >= 1e100:
        assert_allclose(found.w, np.linalg.lstsq(X, y)[0], rtol=1e-12)


def test_large_data_are_left_alone():
    X = np.random.default_rng(0).standard_normal((200, 3000))
    assert in_balls(fb.DiagonalNet(2, 0.1), X, np.ones(200)) is None


@pytest.mark.parametrize("seed", [500046, 500497, 501436])
def test_a_line_search_makes_the_most_of_each_step(seed):
    """One-sided deep starts at which damping alone takes 67, 416 and 123 steps."""
    given = problem(seed)
    model = model_of(given.start)
    data = ExactProblem.of(given.X, given.y, model.potential, model.shift)
    with precision(700):
        newton = _Newton(data, 700, 1000)
        assert newton._converged(newton._zero(), 40) is not None
