"""low_rank_completion draws what its docstring says, repeatably, and explains what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from flowbias.datasets.planted import low_rank_completion

SEEDS = st.integers(0, 2**32 - 1)
# How often a correct generator would fail a test of its distribution, were the seed not fixed.
FALSE_ALARM = 1e-6


@st.composite
def sizes(draw):
    height, width = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rank = draw(st.integers(1, min(height, width)))
    return (height, width), rank, draw(st.integers(1, height * width))


def test_defaults_are_the_problem_of_the_paper():
    rows, cols, values, truth = low_rank_completion()
    assert truth.shape == (10, 10)
    assert np.linalg.matrix_rank(truth) == 1
    assert len(rows) == len(cols) == len(values) == 60


@given(size=sizes(), seed=SEEDS)
def test_sees_different_places_of_a_matrix_of_the_rank(size, seed):
    (height, width), rank, observed = size
    rows, cols, values, truth = low_rank_completion(*size, rng=seed)
    assert truth.shape == (height, width)
    assert np.linalg.matrix_rank(truth) <= rank
    assert len(set(zip(rows.tolist(), cols.tolist(), strict=True))) == observed
    assert_array_equal(values, truth[rows, cols])


@given(size=sizes(), seed=SEEDS)
def test_a_seed_repeats_and_equals_its_generator(size, seed):
    first = low_rank_completion(*size, rng=seed)
    again = low_rank_completion(*size, rng=np.random.default_rng(seed))
    for a, b in zip(first, again, strict=True):
        assert_array_equal(a, b)


@given(seed=SEEDS)
def test_problems_are_nested(seed):
    few = low_rank_completion((6, 5), 2, 7, rng=seed)
    many = low_rank_completion((6, 5), 2, 20, rng=seed)
    for a, b in zip(few[:3], many[:3], strict=True):
        assert_array_equal(a, b[:7])
    assert_array_equal(few.truth, many.truth)
    one, two = (low_rank_completion((6, 5), rank, 1, rng=seed).truth for rank in (1, 2))
    assert np.linalg.svd(two - one, compute_uv=False)[1] <= 1e-12 * np.linalg.norm(two)


def test_factors_are_standard_normal_and_places_uniform():
    drawn = [low_rank_completion((3, 4), 3, 2, rng=seed) for seed in range(4000)]
    # Three products of two independent standard normals: mean 0, variance 3.
    entries = np.array([problem.truth[0, 0] for problem in drawn])
    assert abs(stats.norm.ppf(FALSE_ALARM / 2)) > abs(entries.mean()) / np.sqrt(3.0 / 4000)
    error = np.std(entries**2) / np.sqrt(4000)
    assert_allclose(np.mean(entries**2), 3.0, atol=abs(stats.norm.ppf(FALSE_ALARM / 2)) * error)
    places = np.concatenate([4 * problem.rows + problem.cols for problem in drawn])
    assert stats.chisquare(np.bincount(places, minlength=12)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": 10}, r"shape: must be two integers >= 1, got 10"),
        ({"shape": (3, 0)}, r"shape: must be an integer >= 1, got 0"),
        ({"rank": 0}, r"rank: must be an integer >= 1, got 0"),
        ({"shape": (3, 9), "rank": 4}, r"rank: must be <= the smaller side 3, got 4"),
        ({"observed": 0}, r"observed: must be an integer >= 1, got 0"),
        ({"observed": 101}, r"observed: must be <= 100, the number of entries, got 101"),
        ({"observed": 2.5}, r"observed: must be an integer >= 1, got 2.5"),
        ({"rng": -1}, r"rng: must be an integer >= 0 or a numpy Generator, got -1"),
    ],
)
def test_refuses_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        low_rank_completion(**arguments)
