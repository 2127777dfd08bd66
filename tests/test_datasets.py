"""sparse_regression draws what its docstring says, repeatably, and explains what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from flowbias.datasets import sparse_regression

SEEDS = st.integers(0, 2**32 - 1)
# How often a correct generator would fail a test of its distribution, were the seed not fixed.
FALSE_ALARM = 1e-6


@st.composite
def sizes(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 30))
    return n, d, draw(st.integers(1, d))


def test_defaults_are_the_problem_of_the_paper(benchmark_problem):
    X, y, w_true = benchmark_problem
    assert X.shape == (100, 1000)
    assert y.shape == (100,)
    assert np.count_nonzero(w_true) == 5


@given(size=sizes(), seed=SEEDS)
def test_planted_predictor_has_equal_entries_and_unit_norm(size, seed):
    n, d, sparsity = size
    w_true = sparse_regression(n, d, sparsity, rng=seed).w_true
    assert w_true.shape == (d,)
    assert_array_equal(w_true[w_true != 0], np.full(sparsity, 1 / math.sqrt(sparsity)))


@given(size=sizes(), seed=SEEDS)
def test_without_noise_the_planted_predictor_fits_exactly(size, seed):
    X, y, w_true = sparse_regression(*size, noise_var=0.0, rng=seed)
    assert_array_equal(y, X @ w_true)


@given(size=sizes(), seed=SEEDS)
def test_a_seed_repeats_and_equals_its_generator(size, seed):
    first = sparse_regression(*size, rng=seed)
    for again in (
        sparse_regression(*size, rng=seed),
        sparse_regression(*size, rng=np.random.default_rng(seed)),
    ):
        for a, b in zip(first, again, strict=True):
            assert_array_equal(a, b)


def test_a_generator_gives_a_new_problem_on_each_call():
    rng = np.random.default_rng(0)
    first, second = (sparse_regression(5, 10, 2, rng=rng) for _ in range(2))
    assert not np.any(first.X == second.X)


@given(size=sizes(), more=st.integers(1, 10), seed=SEEDS)
def test_more_samples_append_rows(size, more, seed):
    n, d, sparsity = size
    small = sparse_regression(n, d, sparsity, rng=seed)
    large = sparse_regression(n + more, d, sparsity, rng=seed)
    assert_array_equal(large.X[:n], small.X)
    assert_array_equal(large.w_true, small.w_true)
    # BLAS may add up a product of another shape in another order: d roundings of what is summed.
    summed = np.abs(small.X) @ small.w_true + np.abs(small.y)
    rounding = d * np.finfo(float).eps * summed.max()
    assert_allclose(large.y[:n], small.y, rtol=0, atol=rounding)


@given(size=sizes(), seed=SEEDS)
def test_more_entries_extend_the_support(size, seed):
    n, d, sparsity = size
    sparse = sparse_regression(n, d, sparsity, rng=seed)
    dense = sparse_regression(n, d, d, rng=seed)
    assert np.all(dense.w_true[sparse.w_true != 0] != 0)
    assert_array_equal(dense.X, sparse.X)


@given(size=sizes(), seed=SEEDS)
def test_noise_scales_with_the_square_root_of_its_variance(size, seed):
    clean, unit, fourfold = (sparse_regression(*size, noise_var=v, rng=seed).y for v in (0, 1, 4))
    # Each difference loses at most a few roundings of the largest number it is made of.
    rounding = 8 * np.finfo(float).eps * (np.abs(clean).max() + np.abs(fourfold).max())
    assert_allclose(fourfold - clean, 2 * (unit - clean), rtol=0, atol=rounding)


def test_samples_and_noise_are_normal():
    X, y, w_true = sparse_regression(n=2000, d=20, sparsity=3, noise_var=0.25, rng=1)
    assert stats.kstest(X.ravel(), "norm").pvalue > FALSE_ALARM
    assert stats.kstest((y - X @ w_true) / 0.5, "norm").pvalue > FALSE_ALARM


def test_the_support_is_uniform():
    supports = [np.flatnonzero(sparse_regression(1, 8, 2, rng=s).w_true) for s in range(800)]
    counts = np.bincount(np.concatenate(supports), minlength=8)
    # Lenient: draws without replacement vary less than the multinomial behind this test.
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"n": 0}, "n: must be an integer >= 1, got 0. Pass"),
        ({"n": 2.5}, "n: must be an integer >= 1, got 2.5. Pass"),
        ({"n": True}, "n: must be an integer >= 1, got True. Pass"),
        ({"d": -3}, "d: must be an integer >= 1, got -3. Pass"),
        ({"sparsity": 0}, "sparsity: must be an integer >= 1, got 0. Pass"),
        ({"d": 4}, "sparsity: must be <= d = 4, got 5. Lower sparsity or raise d."),
        ({"noise_var": -0.1}, "noise_var: must be a finite number >= 0, got -0.1. Pass"),
        ({"noise_var": math.nan}, "noise_var: must be a finite number >= 0, got nan. Pass"),
        ({"noise_var": math.inf}, "noise_var: must be a finite number >= 0, got inf. Pass"),
        ({"noise_var": "0.1"}, "noise_var: must be a finite number >= 0, got '0.1'. Pass"),
        ({"rng": -1}, "rng: must be an integer >= 0 or a numpy Generator, got -1. Pass a seed"),
        ({"rng": None}, "rng: must be an integer >= 0 or a numpy Generator, got None. Pass a seed"),
    ],
)
def test_bad_input_names_argument_constraint_value_and_fix(arguments, complaint):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared below
        sparse_regression(**arguments)
    assert str(error.value).startswith(complaint)
