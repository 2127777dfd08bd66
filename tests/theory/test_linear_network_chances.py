"""Statements on wide random starts that hold with a probability, counted."""

import numpy as np
import scipy.optimize
import scipy.stats

from flowbias import theory
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.claim import MIN
from flowbias.theory.wide_networks import violations
from tests.theory.linear_network_flows import (
    flows_together,
)
from tests.theory.linear_network_instances import (
    inputs,
)
from tests.theory.verdicts import failures


def test_lemma_11_fails_for_at_most_delta_and_the_count_can_tell():
    rng = np.random.default_rng(7)
    X, delta = inputs(rng, 2, 4), 0.2
    T = np.sqrt(5) + np.sqrt(2.0 * np.log(2.0 / delta))
    width = int(16.0 * T * T) + 1
    claims = theory.wide_start_rate(X, 1, width, rng, delta=delta, samples=500)
    assert failures(claims) == []
    # the same count flags bounds that do not hold with that probability
    bounds = theory.wide_start_bounds(4, 1, 2, width, delta=delta)
    draws = [LinearNet.gaussian(4, 1, width=width, scale=width**-0.5, rng=rng) for _ in range(500)]
    level = np.array([net.imbalance(X).level for net in draws])
    defect = np.array([net.invariance_defect(X) for net in draws])
    for wrong in (level <= 1.9 * bounds.level, defect > bounds.invariance_defect / 8.0):
        assert not violations("", int(wrong.sum()), 500, delta, claims[0].reference).holds


def test_lemma_e1_and_the_printed_tail():
    """2 exp(-t^2/2), not 2 exp(-t^2): for n = m = 1 the tail of |g| beyond 2 + t is known."""
    t = 6.0
    tail = 2.0 * scipy.stats.norm.sf(2.0 + t)
    assert 2.0 * np.exp(-(t**2)) < tail < 2.0 * np.exp(-(t**2) / 2.0)


def wide_net(width, scale, rng):
    return LinearNet.gaussian(3, 1, width=width, scale=scale, rng=rng, keep_weights=False)


def test_theorem_12_on_500_starts():
    rng = np.random.default_rng(8)
    delta = 0.1
    X, Y = inputs(rng, 2, 3, spread=(1.0, 1.1)), rng.standard_normal((2, 1))
    problem = MatrixRegression(X, Y)
    for exponent, wide in ((0.5, 800), (0.4, 10**5)):
        starts = [(wide_net(wide, wide**-exponent, rng), X, Y) for _ in range(500)]
        flows = flows_together(starts, end=20.0 / wide ** (1.0 - 2.0 * exponent), count=2)
        ends = np.stack([case.path.M[-1] for case in flows])
        distance = np.linalg.norm(ends - problem.min_norm, 2, axis=(1, 2))
        bound = theory.wide_limit_bound(problem, wide, exponent, delta)
        bad = int((distance > bound).sum())
        assert bad == 0
        assert violations("", bad, 500, delta, MIN("Theorem 12")).holds
        # and far: the bound is loose, but not vacuous beside ||Theta|| once the net is wide
        assert distance.max() > bound / 100.0
