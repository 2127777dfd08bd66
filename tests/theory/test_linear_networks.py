"""Claims on two-layer linear networks along the flow, on hundreds of starts at once.

Beside them printed statements that fail.
"""

import re

import numpy as np
import pytest

from flowbias import theory
from flowbias.models import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.convergence_guarantees import error_path
from flowbias.theory.reduced_net import reduced
from tests.theory.linear_network_flows import (
    flows_together,
    homogeneous,
)
from tests.theory.linear_network_instances import (
    flow_start,
    inputs,
    margin_start,
    orthogonal,
)
from tests.theory.verdicts import failures, why_nothing


def sized_start(rng, r, d, m, width):
    """A start whose guaranteed rate is above 1.5, so that all flows of a batch end together."""
    while True:
        X, Y = inputs(rng, r, d), rng.standard_normal((r, m))
        net = LinearNet.gaussian(d, m, width=width, scale=rng.uniform(0.4, 1.0), rng=rng)
        if reduced(net, X, Y).guaranteed_rate() > 1.5:
            return net, X, Y


@pytest.fixture(scope="module")
def cases():
    """500 flows to their end: r below, equal to and above m; X of full column rank as well."""
    rng = np.random.default_rng(20)
    sizes = [(2, 4, 1, 6), (2, 3, 2, 7), (1, 3, 2, 6), (2, 2, 1, 5)]
    return [
        case
        for size in sizes
        for case in flows_together([sized_start(rng, *size) for _ in range(125)], end=36.0)
    ]


@pytest.fixture(scope="module")
def margin_cases():
    """500 flows from nearly balanced starts with a margin."""
    rng = np.random.default_rng(21)
    starts = {}
    while sum(len(group) for group in starts.values()) < 500:
        start = margin_start(rng)
        starts.setdefault((start[1].shape, start[2].shape, start[0].root.shape), []).append(start)
    return [case for group in starts.values() for case in flows_together(group, end=3.0, count=12)]


@pytest.mark.slow
def test_guarantees_along_500_flows(cases):
    claims = []
    for net, X, Y, path in cases:
        claims.append(theory.exponential_guarantee(net, X, Y, trajectory=path))
        claims.append(theory.imbalance_guarantee(net, X, Y, trajectory=path))
        claims.append(theory.asymptotic_rate(net, X, Y, trajectory=path))
        claims += theory.local_guarantee(net, X, Y, None, trajectory=path)
    assert failures(claims) == []
    assert min(claim.predicted for claim in claims) >= 0.0


def test_margin_guarantee_along_500_flows(margin_cases):
    assert len(margin_cases) == 500
    claims = []
    for net, X, Y, path in margin_cases:
        claims += theory.margin_guarantee(net, X, Y, trajectory=path)
    assert failures(claims) == []
    assert min(claim.predicted for claim in claims) > 0.0


def test_rate_bound_holds_all_along_the_flow(cases):
    for case in cases[::5]:
        problem = MatrixRegression(case.X, case.Y)
        for seen in list(case.path.reduced(problem))[:15:4]:
            assert seen.rate >= seen.rate_bound() - 1e-12 * seen.size


def test_loss_never_rises(cases):
    """Section 3 prints that the loss is non-decreasing; it is the margin that is."""
    for case in cases:
        errors = error_path(case.net, case.X, case.Y, trajectory=case.path).errors
        assert (np.diff(errors) < 0.0).all()


@pytest.mark.slow
def test_weights_and_limits_of_500_flows(cases):
    claims = []
    for net, X, Y, path in cases:
        claims += theory.conserved_imbalance(net, X, Y, path=path)
        claims += theory.weights_converge(net, X, Y, path=path)
        claims.append(theory.limit_decomposition(net, X, Y, path=path))
        if X.shape[0] < X.shape[1]:
            claims += theory.growth_from_invariant_set(net, X, Y, path=path)
    assert failures(claims) == []


@pytest.mark.slow
def test_invariant_starts_reach_min_norm():
    rng = np.random.default_rng(22)
    starts = []
    while len(starts) < 500:
        X, Y = inputs(rng, 2, 4), rng.standard_normal((2, 2))
        net = LinearNet.invariant(X, 2, width=8, scale=0.8, rng=rng)
        if reduced(net, X, Y).guaranteed_rate() > 1.0:
            starts.append((net, X, Y))
    cases = flows_together(starts, end=45.0, count=2)
    assert failures([theory.reaches_min_norm(*case[:3], path=case.path) for case in cases]) == []


def test_loss_constant_sets_the_clock():
    start = flow_start(np.random.default_rng(0))
    t = np.array([0.1, 0.4])
    half = theory.exponential_guarantee(*start, t)
    fast = theory.exponential_guarantee(*start, t / 5.0, loss=5.0)
    assert fast.measured == pytest.approx(5.0 * half.measured, rel=1e-8)
    assert fast.predicted == pytest.approx(5.0 * half.predicted)


def test_width_is_free():
    """A net without weights has the claims of a net with them: both from the Gram matrix."""
    rng = np.random.default_rng(3)
    X, Y = inputs(rng, 2, 4), rng.standard_normal((2, 2))
    wide = LinearNet.gaussian(4, 2, width=10**8, scale=1e-4, rng=rng)
    assert wide.factors is None
    assert theory.convergence_rate(wide, X, Y).holds
    assert theory.exponential_guarantee(wide, X, Y, [0.1, 0.5, 1.0]).holds
    kept = LinearNet.gaussian(4, 2, width=40, scale=0.4, rng=rng)
    Q = orthogonal(rng, 40)
    turned = LinearNet(kept.factors.U @ Q, kept.factors.V @ Q)
    first, second = (theory.convergence_rate(net, X, Y) for net in (kept, turned))
    assert first.measured == pytest.approx(second.measured, rel=1e-12)
    assert first.predicted == pytest.approx(second.predicted, rel=1e-11)


# --- printed statements that fail ----------------------------------------------------------------


def test_printed_corollary_5_fails():
    """It prints the rate 2 lr(S) c(0); the flow here has barely more than lr(S) c(0)."""
    claim = theory.margin_guarantee(*homogeneous(1.0, 0.8, 1e-3), [0.5, 1.0])[1]
    assert claim.holds
    assert claim.measured < 0.51 * (2.0 * claim.predicted)


def test_printed_corollary_6_fails(cases):
    """It prints exp(-lr(S) c(t0) t) for exp(-lr(S) c(t0) (t - t0)): false at t = t0 already."""
    net, X, Y = homogeneous(1.0, 0.8, 1e-3)
    path = error_path(net, X, Y, [0.5, 1.0, 1.5])
    rate = path.guaranteed_rate(1)
    fall = (path.errors[2:] / path.errors[1]) ** 2
    assert (fall <= np.exp(-rate * (path.t[2:] - path.t[1]))).all()
    assert (fall > np.exp(-rate * path.t[2:])).all()
    # and in words twice the rate: fails on the same flow
    assert path.mean_rate(1).value < 0.51 * (2.0 * rate)
    for case in cases[:20]:
        path = error_path(case.net, case.X, case.Y, trajectory=case.path)
        last = len(path.t) - 2
        rate, at_t0 = path.guaranteed_rate(last), path.errors[last]
        assert at_t0**2 > np.exp(-rate * path.t[last]) * at_t0**2


def test_initial_error_needs_the_largest_singular_value_of_inputs():
    """Appendix E bounds ||E(0)|| with lr(S)^(-1/2) where l1(S)^(1/2) belongs."""
    U, V = np.diag([2.0, 2.0]), np.diag([2.0, 2.0])
    X, Y = np.diag([5.0, 1.0]), np.zeros((2, 2))
    seen = reduced(LinearNet(U, V), X, Y)
    product = np.linalg.norm(seen.product)
    assert np.linalg.norm(seen.error) > seen.root[-1] ** -1 * product
    assert np.linalg.norm(seen.error) <= seen.root[0] * product


def test_limit_is_not_min_norm_without_both_conditions():
    """V U2^T = 0 alone: the flow ends away from Theta, by as much as the closed form says."""
    for y, scale in ((2.0, 0.7), (-0.5, 1.0)):
        claims = theory.output_orthogonality_is_not_enough(y, scale)
        assert failures(claims) == []
        assert claims[1].measured > 0.1
        net, X, Y, _ = theory.output_orthogonality_counterexample(y, scale)
        assert re.search("V U2", why_nothing(theory.reaches_min_norm, net, X, Y))
