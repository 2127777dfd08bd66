"""Where theorems say nothing, and where they used to seem to: claims on instances of both kinds."""

import numpy as np
import pytest

import flowbias as fb
from flowbias import theory
from flowbias.models.factorization import SymmetricFactorization
from flowbias.theory import Verdict
from flowbias.theory.factorization_kernel_regime import KernelRegime
from flowbias.theory.matrix_factorization import commuting_counterexample
from tests.theory.linear_network_instances import flow_start
from tests.theory.matrix_factorization_instances import symmetric
from tests.theory.verdicts import as_tuple, failures, why_nothing

SQUARE = np.array([[1.0, 2.0], [0.5, -1.0]])


class Products:
    """Matrices at times, whatever they are."""

    def __init__(self, t, M):
        self.t, self.M = t, M


def test_matrices_that_are_no_trajectory_have_no_asymptotic_rate():
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(20):
        net, X, Y = flow_start(rng)
        t = np.sort(rng.uniform(0.1, 2.0, 5))
        random = Products(t, rng.standard_normal((5, *net.shape)))
        verdicts.append(theory.asymptotic_rate(net, X, Y, trajectory=random).verdict)
        # The same flow on a slower clock is no flow either.
        path = fb.flow(net, X, Y, t=np.array([0.5, 1.0, 1.5]))
        slow = Products(1e3 * path.t, path.M)
        assert not theory.asymptotic_rate(net, X, Y, trajectory=slow).holds
    assert Verdict.HOLDS not in verdicts
    assert Verdict.FAILS in verdicts


def test_counts_that_no_draw_could_exceed_say_nothing():
    rng = np.random.default_rng(0)
    X, Y = np.eye(2, 3), [[1.0], [-1.0]]
    few = theory.wide_limit_rate(X, Y, 700, rng, samples=2)
    assert "2 violations in 2 draws are no surprise" in few.reason
    assert theory.wide_limit_rate(X, Y, 700, rng, samples=8).holds
    # 2 exp(-t^2/2) > 1: the lemma allows everything.
    assert why_nothing(theory.gaussian_singular_values, 10, 3, 1.0, 500, rng)


def test_a_level_of_rounding_is_no_level():
    """Balanced up to rounding, and no margin: c(0) is positive in the last digits only."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        Z = rng.standard_normal((3, 2))
        net = fb.LinearNet(np.linalg.qr(Z)[0][:2] * 0.3, np.linalg.qr(Z)[0][:2] * 0.3)
        assert "c(0) > 0" in why_nothing(theory.weights_converge, net, np.eye(2), 5.0 * np.eye(2))


def test_a_start_inside_the_row_space_has_nothing_to_drift():
    rng = np.random.default_rng(4)
    for _ in range(10):
        X, Y = rng.standard_normal((2, 4)), rng.standard_normal((2, 2))
        net = fb.LinearNet.balanced(X.T @ rng.standard_normal((2, 2)), X)
        assert "never leaves" in why_nothing(theory.growth_from_invariant_set, net, X, Y)


def test_where_only_one_fit_exists_nothing_is_chosen():
    y = SQUARE @ [1.0, -1.0]
    tied, untied = fb.DiagonalNet(2, 0.5), fb.UntiedDiagonalNet(scale=0.5, shape=0.2)
    neuron = fb.Neuron(1.0, [0.5, 0.2])
    claims = [
        theory.tied_limit(tied, SQUARE, y),
        theory.untied_limit(untied, SQUARE, y),
        theory.neuron_bias(neuron, SQUARE, y),
        theory.rich_guarantee(SQUARE, y, 0.5),
        theory.kernel_guarantee(SQUARE, y, 0.5),
        theory.race(SQUARE, y, 0.5, 0.2),
        theory.closest_interpolator(SQUARE, y, 0.5),
        *theory.rich_excess(tied, SQUARE, y),
    ]
    assert {claim.reason for claim in claims} == {"only one w fits the data, whatever the start"}
    assert theory.limit_decomposition(
        fb.LinearNet.gaussian(2, 1, width=4, scale=0.7, rng=0), SQUARE, y[:, None]
    ).reason.startswith("only one")


def test_selection_is_silent_where_l1_is_unique_and_measures_the_limit_elsewhere():
    rng = np.random.default_rng(5)
    model = fb.DiagonalNet(2, 1e-4)
    X = rng.standard_normal((2, 5))
    assert all(
        claim.verdict is Verdict.SILENT
        for claim in theory.rich_selection(model, X, X @ [1.0, 0.0, 0.0, 0.0, 0.0])
    )
    assert all(theory.rich_selection(model, [[1.0, 1.0, 0.5]], [1.0]))


def test_theorem_2_ends_at_eps_equal_to_d():
    X, y = [[1.0, 2.0]], [1.0]
    for guarantee in (theory.rich_guarantee, theory.kernel_guarantee):
        assert guarantee(X, y, 1.9).holds
        assert "eps: must be < d = 2" in why_nothing(guarantee, X, y, 2.0)


def test_a_negative_rate_promises_nothing():
    """Six hidden units: Z Z^T is far from any multiple of the identity."""
    model = fb.MatrixFactorization.gaussian((3, 3), width=6, scale=1.0, rng=0)
    problem = fb.MatrixSensing([np.eye(3), np.diag([1.0, 0.0, 0.0])], [1.0, 0.5])
    claims = theory.residual_decay(model, problem)
    assert KernelRegime.of(model, problem).least_rate(0.0) < 0.0
    assert "need not fall" in claims[1].reason
    assert claims[0].verdict is Verdict.SILENT


@pytest.mark.parametrize("size", [1e160, 1e-170, 1e300, 5e-324])
def test_scalar_rates_beyond_doubles_say_so(size):
    claims = theory.scalar_rate(size, -size, 1.0)
    assert {claim.reason for claim in claims} == {"the rate is beyond the range of doubles"}
    assert all(theory.scalar_rate(1.0, size, 1.0)) or size > 1.0


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0])
def test_commuting_is_not_enough_at_any_scale(scale):
    assert theory.commuting_is_not_enough(scale).holds


def test_commuting_says_nothing_where_the_flow_would_not_show_it():
    assert "below what the flow resolves" in theory.commuting_is_not_enough(100.0).reason
    common = fb.MatrixSensing([np.diag([1.0, 2.0]), np.diag([1.0, 0.0])], [1.0, 2.0])
    assert theory.commuting_is_not_enough(1.0, common).verdict is Verdict.SILENT
    assert theory.commuting_is_not_enough(1.0, commuting_counterexample()).holds


def test_theorem_9_on_one_factor():
    """W W^T lifted to [W; W] has a singular Gram matrix; the theorem is about W itself."""
    rng = np.random.default_rng(6)
    for _ in range(10):
        model, problem = symmetric(rng)
        regime = KernelRegime.of(model, problem)
        assert regime.gamma < 0.5 * regime.mu
        assert failures(theory.kernel_regime(model, problem)) == []
    narrow = SymmetricFactorization.gaussian(2, width=10**6, scale=1e-2, rng=0)
    problem = fb.MatrixSensing([np.eye(2)], [200.5])
    assert all(theory.kernel_regime(narrow, problem))
    assert theory.wide_gram(narrow, 1e-2).holds


def test_a_start_at_the_targets_has_no_rate():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((2, 4))
    net = fb.LinearNet.balanced(X.T @ rng.standard_normal((2, 2)), X)
    for error in (0.0, 1e-9):
        Y = X @ net.product + error
        reason = why_nothing(theory.exponential_guarantee, net, X, Y, [0.1, 0.2])
        assert reason.startswith("net: must start with an error")


def test_tiny_starts_do_not_fail_their_guarantees():
    rng = np.random.default_rng(8)
    for _ in range(20):
        _, X, Y = flow_start(rng)
        net = fb.LinearNet.gaussian(4, Y.shape[1], width=9, scale=1e-9, rng=rng)
        t = np.sort(rng.uniform(0.05, 1.0, 4))
        for guarantee in (
            theory.exponential_guarantee,
            theory.imbalance_guarantee,
            theory.local_guarantee,
        ):
            assert failures(as_tuple(guarantee(net, X, Y, t))) == []


@pytest.mark.parametrize(
    "claim",
    [
        lambda X, y: fb.theory.closest_interpolator(X, y, scale=0.5),
        lambda X, y: fb.theory.kernel_distance(fb.DiagonalNet(2, 10.0), X, y),
        lambda X, y: fb.theory.leaky_neuron_kkt(fb.Neuron(1.0, [0.5, 0.2], slope=0.3), X, y)[0],
        lambda X, y: fb.theory.weights_converge(
            fb.LinearNet(np.zeros((2, 3)), np.ones((1, 3))), X, y[:, None]
        )[0],
    ],
)
def test_nothing_is_said_of_outputs_that_are_fitted_at_zero(claim):
    X = np.array([[1.0, 2.0]])
    assert why_nothing(claim, X, np.zeros(1))
    assert claim(X, np.ones(1)).holds


@pytest.mark.parametrize("claim", [theory.wide_gram, theory.gaussian_rows_give_delta])
def test_a_start_outside_its_event_refutes_nothing_where_that_is_no_surprise(claim):
    """All weights in one, of the mean square of Gaussian ones: 20 rows may miss, 80 do not."""

    def found(rows, width=1000):
        U, V = np.zeros((2, rows, width))
        U[0, 0] = np.sqrt(2 * rows * width)
        return claim(fb.MatrixFactorization(U, V), 1.0)

    assert found(10).verdict is Verdict.SILENT
    assert "may miss it" in found(10).reason
    assert found(40).verdict is Verdict.FAILS


@pytest.mark.parametrize("claim", [theory.wide_gram, theory.gaussian_rows_give_delta])
def test_weights_that_are_not_gaussian_refute_nothing(claim):
    """All of size 1 where the entries would be of size 0.1; Gaussian ones of that size hold."""
    found = claim(fb.MatrixFactorization(np.ones((2, 40)), np.ones((2, 40))), 0.1)
    assert found.verdict is Verdict.SILENT
    assert "no independent N(0, 0.1^2)" in found.reason
    gaussian = fb.MatrixFactorization.gaussian((30, 30), width=10**4, scale=0.1, rng=0)
    assert claim(gaussian, 0.1).holds


def test_wakings_that_time_does_not_resolve_say_nothing():
    X, y = np.diag([1.0, 2.0]), [3.0, 1.0]
    assert all(theory.waking_times(fb.DiagonalNet(4, log_scale=-3.0), X, y))
    deep = fb.DiagonalNet(4, log_scale=-17.0)
    assert "t has no digits for" in why_nothing(theory.waking_times, deep, X, y)
    small = fb.DiagonalNet(2, 0.01)
    assert "orthogonal columns" in why_nothing(theory.waking_times, small, X + 0.1, y)
    assert "scale below 1" in why_nothing(theory.waking_times, fb.DiagonalNet(2, 2.0), X, y)
    assert "nothing wakes" in why_nothing(theory.waking_times, small, [[1.0], [0.0]], [0.0, 1.0])
    assert "share: must lie in (0, 1)" in why_nothing(theory.waking_times, small, X, y, 1.0)
    biased = fb.DiagonalNet.from_weights([0.1, 0.1], [0.1, 0.2])
    assert "start unbiased" in why_nothing(theory.waking_times, biased, X, y)
