"""The limits along scales that cross-validation takes: quick ones, and tested each."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import flowbias as fb
from flowbias.estimators import ImplicitBiasRegressorCV
from flowbias.estimators.intercepts import frames
from flowbias.estimators.intercepts.frames import plain
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.scale_walk import Metric, ScaleWalk, SharedRows, TrainingPart
from flowbias.ground.tolerances import TO_CHOOSE
from flowbias.models import DiagonalNet
from flowbias.results.solution import Status

RNG = np.random.default_rng(3)
X = RNG.standard_normal((18, 30)) + 1.0
Y = X[:, 0] - 2.0 * X[:, 3] + 0.3 * RNG.standard_normal(18)
ODD = np.arange(1, 18, 2)
LOGS = np.linspace(2.0, -7.0, 30)


class Walked:
    """A walk with what it keeps: `w` (parts, scales, d), and what it left to others."""

    def __init__(self, rows, network, log_scales, tol=1e-8, alone=None):
        self.w = np.full((len(rows.parts), len(log_scales), rows.d), np.nan)
        self.alone = []

        def asked(of, at):
            self.alone.append((int(of), int(at)))
            return None if alone is None else alone(of, at)

        self.walk = ScaleWalk(rows, network, np.asarray(log_scales), tol, asked, True)
        with np.errstate(all="ignore"):
            self.walk.run()
        for (at, of), w in self.walk.w.items():
            self.w[of, at] = w


def centred_part(A, b, train, e=None):
    """The data of one part less their means, as it would have them alone."""
    e = np.ones(len(b)) if e is None else e
    mean = (e[train] ** 2 @ (A[train] / e[train, None])) / (e[train] @ e[train])
    level = (e[train] @ b[train]) / (e[train] @ e[train])
    return A[train] - np.outer(e[train], mean), b[train] - level * e[train]


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    depth=st.sampled_from([2, 3, 5]),
    bottom=st.sampled_from([-4.0, -12.0]),
    is_centred=st.booleans(),
)
def test_the_walk_finds_the_limits_of_every_part(seed, depth, bottom, is_centred):
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((10, 26)), rng.standard_normal(10)
    parts = [np.arange(7), np.arange(4, 10)]
    network, logs = DiagonalNet(depth, 1.0), np.linspace(1.0, 2.0 * bottom / depth, 21)
    rows = SharedRows(
        A, np.ones(10) if is_centred else None, [TrainingPart(part, b) for part in parts]
    )
    walked = Walked(rows, network, logs)
    for of, part in enumerate(parts):
        data = centred_part(A, b, part) if is_centred else (A[part], b[part])
        for at, log_scale in enumerate(logs):
            if (of, at) in walked.alone:
                continue
            w = fb.limit(network.at_log_scale(log_scale), *data).w
            # A residual of TO_CHOOSE, times the condition of seven rows of 26 in the worst case.
            assert_allclose(walked.w[of, at], w, atol=300 * TO_CHOOSE * np.abs(w).max())
    # A part whose limit is not handed back leaves the walk: neither has.
    assert len(walked.alone) <= 1


@pytest.mark.parametrize("depth", [2, 3])
def test_one_factorization_serves_two_scales_and_none_is_solved_alone(depth):
    """At the spacing of 50 scales over ten decades of scale^depth; that is what makes it quick."""
    A, b, _ = fb.datasets.sparse_regression(n=50, d=300, sparsity=5, noise_var=0.01, rng=0)
    logs = (2.4 - np.linspace(0.0, np.log(1e10), 50)) / depth
    folds = np.array_split(np.arange(50), 5)
    parts = [TrainingPart(np.setdiff1d(np.arange(50), fold), b) for fold in folds]
    walked = Walked(SharedRows(A, np.ones(50), parts), DiagonalNet(depth, 1.0), logs)
    assert walked.alone == []
    assert not np.isnan(walked.w).any()
    limits = len(parts) * len(logs)
    assert walked.walk.effort.factorizations <= 0.8 * limits
    # Blocks of scales share their steps.
    assert walked.walk.effort.steps <= limits


def test_what_is_left_of_the_other_rows_is_their_error():
    parts = [TrainingPart(ODD, Y)]
    walked = Walked(SharedRows(X, np.ones(18), parts), DiagonalNet(2, 1.0), LOGS)
    even = np.arange(0, 18, 2)
    for at in (0, 15, 29):
        w = walked.w[0, at]
        level = np.mean(Y[ODD] - X[ODD] @ w)
        expected = Y[even] - X[even] @ w - level
        # The same sums in another order.
        assert_allclose(walked.walk.left[at, 0][even], expected, atol=1e-11)


def test_the_walk_tests_what_it_keeps():
    walk = Walked(SharedRows(X, None, [TrainingPart(ODD, Y)]), DiagonalNet(2, 1.0), LOGS).walk
    limit = fb.limit(DiagonalNet(2, 1.0).at_log_scale(LOGS[9]), X[ODD], Y[ODD])
    dual = np.zeros((1, 18))
    dual[0, ODD] = limit.dual

    def passes(dual):
        return bool(walk._are_limits(walk._at(np.array([0]), np.array([9]), dual))[0])

    assert passes(dual)
    assert not passes(dual * (1.0 + 1e-4))
    assert not passes(np.zeros_like(dual))
    with np.errstate(all="ignore"):
        assert not passes(dual * np.nan)


def test_errors_that_are_small_are_known_as_well():
    """Where the part left out is predicted well, limits are better than TO_CHOOSE by as much."""
    A, b, _ = fb.datasets.sparse_regression(n=60, d=120, sparsity=2, noise_var=0.0, rng=1)
    fitted = ImplicitBiasRegressorCV(n_scales=30, eps=1e-14, cv=3, fit_intercept=False).fit(A, b)
    assert fitted.mse_path_.min() < 1e-12 * np.var(b)
    test = np.arange(20)
    train = np.arange(20, 60)
    for at in (10, 20):
        model = DiagonalNet(2, log_scale=fitted.log_scales_[at])
        exact = np.mean((A[test] @ fb.limit(model, A[train], b[train]).w - b[test]) ** 2)
        assert_allclose(fitted.mse_path_[at, 0], exact, rtol=1e-4)


def test_the_walk_goes_on_from_a_limit_solved_alone():
    network = DiagonalNet(2, 1.0)
    # Rich enough that a least-norm fit is no place to start from.
    logs = np.linspace(-18.0, -19.0, 5)

    def alone(of, at):
        return fb.limit(network.at_log_scale(logs[at]), X[ODD], Y[ODD]).dual

    walked = Walked(SharedRows(X, None, [TrainingPart(ODD, Y)]), network, logs, alone=alone)
    assert walked.alone == [(0, 0)]
    assert not np.isnan(walked.w[0, 1:]).any()


def test_a_part_that_fails_leaves_the_others_alone():
    logs = np.linspace(-18.0, -19.0, 5)
    assert Walked(SharedRows(X, None, [TrainingPart(ODD, Y)]), DiagonalNet(2, 1.0), logs).alone == [
        (0, 0)
    ]


@pytest.mark.parametrize(
    ("A", "train"),
    [
        (np.vstack([X, X]), np.arange(36)),
        (X.T[:, :5], np.arange(30)),
        (np.where(np.arange(18)[:, None] == 3, 0.0, X), np.arange(9)),
    ],
    ids=["copied", "tall", "zero"],
)
def test_rows_that_depend_on_each_other_are_not_walked(A, train):
    assert not SharedRows(A, None, [TrainingPart(train, np.ones(len(A)))]).is_fit(0)
    assert SharedRows(X, None, [TrainingPart(ODD, Y)]).is_fit(0)


def test_a_mean_that_hides_the_rows_is_left_to_their_own_frame():
    """An outlier in the part left out moves the centre of all data, not that of the fold."""
    A = X.copy()
    A[0, 0] = 1e12
    A -= A.mean(axis=0)
    assert not SharedRows(A, np.ones(18), [TrainingPart(ODD, Y)]).is_fit(0)
    assert SharedRows(X - X.mean(axis=0), np.ones(18), [TrainingPart(ODD, Y)]).is_fit(0)


@pytest.mark.parametrize("scale", [1e2, 1e-1, 1e-3])
def test_a_metric_is_within_a_factor_of_the_true_one(scale):
    A, b, _ = fb.datasets.sparse_regression(n=20, d=400, rng=0)
    model = DiagonalNet(2, scale)
    slope = model.potential.hess_dual(A.T @ fb.limit(model, A, b).dual)
    rows = SharedRows(A, None, [TrainingPart(np.arange(20), b)])
    metric = rows.metric(0, slope)
    assert isinstance(metric, Metric)
    inverse = np.array([rows.solve(0, metric, row[None])[0] for row in np.eye(20)])
    ratios = np.linalg.eigvals(inverse @ ((A * slope) @ A.T)).real
    assert ratios.min() > 0.5
    assert ratios.max() < 2.0


def test_where_no_columns_are_left_out_a_metric_is_the_true_one():
    slope = RNG.uniform(0.5, 2.0, 30)
    rows = SharedRows(X, None, [TrainingPart(ODD, Y)])
    gap = np.zeros((1, 18))
    gap[0, ODD] = Y[ODD]
    step = rows.solve(0, rows.metric(0, slope), gap)[0]
    # Rounding, times the condition of nine rows of 30.
    assert_allclose((X[ODD] * slope) @ (X[ODD].T @ step[ODD]), Y[ODD], rtol=1e-9)


# --- one by one --------------------------------------------------------------------------------


def test_one_limit_is_enough_where_only_one_predictor_fits(monkeypatch):
    asked, solve = [], frames.limit_with_state

    def counting(*arguments, **options):
        asked.append(1)
        return solve(*arguments, **options)

    monkeypatch.setattr(frames, "limit_with_state", counting)
    frame = plain(Samples.of(X.T, RNG.standard_normal(30)))
    solved = frame.alone(DiagonalNet(2, 1.0), frame.problem(frame.y[:, 0]), 1e-8)
    found = [solved(log_scale) for log_scale in np.arange(5.0)]
    assert len(asked) == 1
    assert_array_equal(found[0].w, found[4].w)
    # Fewer samples than features leave a choice, whatever rounding says of their rank.
    both = np.vstack([X, X[:1]]), np.append(Y, 9.0)
    frame = plain(Samples.of(*both))
    solved = frame.alone(DiagonalNet(2, 1.0), frame.problem(both[1]), 1e-8)
    assert [solved(log_scale).status.ok for log_scale in (0.0, -1.0)]
    assert len(asked) == 3


def test_data_on_which_no_scale_is_certified_are_given_up(monkeypatch):
    solve, asked = frames.limit_with_state, []

    def failing(model, *arguments, **options):
        asked.append(float(model.log_scale))
        solution, state = solve(model, *arguments, **options)
        return replace(solution, status=Status.STALLED, route=f"at {asked[-1]:g}"), state

    monkeypatch.setattr(frames, "limit_with_state", failing)
    frame = plain(Samples.of(X, Y))
    solved = frame.alone(DiagonalNet(2, 1.0), frame.problem(Y), 1e-8)
    routes = [solved(log_scale).route for log_scale in np.arange(9.0)]
    assert asked == [0.0, 1.0, 2.0]
    assert routes[2:] == ["at 2"] * 7
