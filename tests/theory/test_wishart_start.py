"""The law of wide starts as a claim: it fails for laws that are nearly right."""

import numpy as np
import pytest
import scipy.stats

import flowbias as fb
from flowbias import theory
from flowbias.models import lifted
from flowbias.models.lifted import bartlett_root
from flowbias.theory.wide_networks import _largest_gap

SAMPLES = 2000


def one_degree_more(size, width, rng):
    return bartlett_root(size, width + 1, rng)


def same_degrees_for_all_rows(size, width, rng):
    root = np.tril(rng.standard_normal((size, size)), -1)
    np.fill_diagonal(root, np.sqrt(rng.chisquare(width, size)))
    return root


def orthogonal_rows(size, width, rng):
    return np.diag(np.diag(bartlett_root(size, width, rng)))


def claims():
    return theory.wishart_start(3, 2, 8, SAMPLES, np.random.default_rng(3))


def test_both_laws_hold():
    trace, row = claims()
    assert trace.holds
    assert row.holds
    assert trace.predicted == pytest.approx(np.sqrt(np.log(2e6) / (2.0 * SAMPLES)))


@pytest.mark.parametrize("other", [one_degree_more, same_degrees_for_all_rows, orthogonal_rows])
def test_another_law_fails(other, monkeypatch):
    monkeypatch.setattr(lifted, "bartlett_root", other)
    assert not all(claim.holds for claim in claims())


def test_distance_is_that_of_kolmogorov_and_smirnov():
    values = np.random.default_rng(0).chisquare(4, 50)
    expected = scipy.stats.kstest(values, scipy.stats.chi2(7).cdf).statistic
    assert _largest_gap(values, 7) == pytest.approx(expected, rel=1e-12)


def test_needs_an_inverse():
    with pytest.raises(fb.InputError, match="width: must be >= d \\+ m = 5, got 4"):
        theory.wishart_start(3, 2, 4, 10, np.random.default_rng(0))
