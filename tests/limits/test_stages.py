"""The path of a vanishing start: its stages against programs, flows, and its own certificate."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import flowbias as fb
from flowbias.certificates.exact_problem import CONE_ENTRIES
from flowbias.certificates.exact_simplex import rational_matrix
from flowbias.certificates.stage_certificate import ExactStage, certify_exact_stages, certify_stages
from flowbias.limits.basis_pursuit import HIGHS, pursue
from flowbias.limits.exact_stages import _ExactWalk, exact_stages
from flowbias.limits.inverse_scale_space import Columns, Walk
from flowbias.limits.stage_path import Change
from flowbias.potentials import L1
from flowbias.theory.extremes import first_times

NET = fb.DiagonalNet(depth=2, scale=1.0)
# Features 1, 3 and 4 wake, 1 falls asleep again. [Zhao et al. 2026]
FOUR_X, FOUR_Y = np.array([[1.0, 0.5, 0.7, 0.0], [0.5, 1.0, 0.1, 0.7]]), np.array([1.0, 0.0])


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def random_data(rng, n=8, d=20, sparse=False):
    X = rng.standard_normal((n, d))
    planted = rng.standard_normal(d) * (rng.random(d) < 0.2)
    return X, X @ planted if sparse else rng.standard_normal(n)


def test_a_feature_that_wakes_and_falls_asleep_again():
    path = fb.stages(NET, FOUR_X, FOUR_Y)
    # By hand: x1 fits 4/5 alone; x3 meets its bound at tau = 4 and takes over; then x4.
    told = [(e.feature, e.change, e.sign) for e in path.events]
    assert told == [
        (0, Change.WAKES, 1),
        (0, Change.SLEEPS, 1),
        (2, Change.WAKES, 1),
        (3, Change.WAKES, -1),
    ]
    assert_allclose(path.times, [0.0, 1.0, 4.0, 4.0 + 80.0 / 49.0], rtol=1e-14)
    assert_allclose(path.w[-1], [0.0, 0.0, 10.0 / 7.0, -10.0 / 49.0], atol=1e-14)
    assert_allclose(path.w[1], [0.8, 0.0, 0.0, 0.0], rtol=1e-14)
    assert path.status is fb.Status.CERTIFIED
    assert "feature 0 falls asleep" in str(path.events[1])


def rounding_of_zeta(path, X, y, bounds):
    """What n + 8 ulps of the residuals add up to, relative to the bounds: most in a long wait."""
    waits = np.diff(path.times)
    terms = (np.abs(path.w) @ np.abs(X).T + np.abs(y))[:-1]
    ulps = (len(y) + 8) * np.finfo(float).eps
    return ulps * float(np.max((waits @ terms) @ np.abs(X) / bounds))


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
@pytest.mark.parametrize("uneven", [False, True])
@given(seed=st.integers(0, 2**32 - 1), sparse=st.booleans())
@example(seed=101383, sparse=False)  # one stage takes 800 times as long as all before it
@example(seed=201559, sparse=True)  # two weights vanish at once, one of them exactly
def test_the_end_is_the_least_weighted_norm(depth, uneven, seed, sparse):
    rng = np.random.default_rng(seed)
    X, y = random_data(rng, sparse=sparse)
    w0 = np.exp(rng.uniform(-1.0, 1.0, X.shape[1])) if uneven else np.ones(X.shape[1])
    path = fb.stages(fb.DiagonalNet(depth, 1.0, w0=w0), X, y)
    weights = w0 ** (2.0 - depth)
    pursuit = pursue(fb.Regression(X, y), L1(weights), tol=1e-10, ways=(HIGHS,))
    known = rounding_of_zeta(path, X, y, weights)
    assert replace(path.certificate, tol=max(path.certificate.tol, known)).ok
    assert path.certificate.ok or path.status is fb.Status.FEW_DIGITS
    if pursuit.status is fb.Status.CERTIFIED:
        # The linear program's vertex is solved in doubles too: both lose cond(X_S) eps.
        assert_allclose(path.w[-1], pursuit.w, atol=1e-10 * np.abs(pursuit.w).max(initial=1e-300))
        assert_allclose(
            path.limit.w, path.w[-1], atol=1e-10 * np.abs(pursuit.w).max(initial=1e-300)
        )


# Of a stage: how near to a jump the flow is looked at.
NEAR = 0.1


@pytest.mark.parametrize(
    ("depth", "log_scale", "w0"),
    [
        (2, -1000.0, None),
        (2, -10_000.0, None),
        (2, -10_000.0, [1.0, 3.0, 0.5, 0.1]),
        (3, -9.0, [1.0, 0.5, 2.0, 1.5]),
        (4, -6.0, [1.0, 0.8, 1.2, 1.1]),
    ],
)
def test_the_flow_rests_where_the_stages_are(depth, log_scale, w0):
    model = fb.DiagonalNet(depth, log_scale=log_scale, w0=w0)
    path = fb.stages(model, FOUR_X, FOUR_Y)
    ends = np.append(path.times[1:], 1.5 * path.times[-1])
    inside = [
        a + share * (b - a)
        for a, b in zip(path.times, ends, strict=True)
        for share in (NEAR, 1 - NEAR)
    ]
    followed = fb.flow(model, FOUR_X, FOUR_Y, t=path.time_at(log_scale, inside))
    assert_allclose(followed.w, path.at(inside), atol=1e-6)


@pytest.mark.parametrize(("depth", "log_scale"), [(2, -2e3), (2, -2e5), (3, -20.0), (4, -10.0)])
def test_the_times_of_a_flow_resolve_every_jump(depth, log_scale):
    """Without being told where they are: the integrator's steps are its output times."""
    rng = np.random.default_rng(0)
    for X, y in (FOUR_X, FOUR_Y), (rng.standard_normal((6, 12)), rng.standard_normal(6)):
        model = fb.DiagonalNet(depth, log_scale=log_scale)
        path, followed = fb.stages(model, X, y), fb.flow(model, X, y)
        away = np.abs(followed.w[:, None] - path.w).max(axis=2)
        at_rest = away < 1e-6
        # Every stage is seen at rest, one after the other, and on the way from each to the next.
        first, last = at_rest.argmax(axis=0), len(at_rest) - 1 - at_rest[::-1].argmax(axis=0)
        assert at_rest.any(axis=0).all()
        assert (first[1:] - last[:-1] > 10).all()
        # Nothing is spent on the long time before the first feature wakes.
        assert np.sum(followed.t < 0.9 * path.time_at(log_scale)[1]) < 30


def test_the_clock_follows_the_loss():
    path = fb.stages(NET, FOUR_X, FOUR_Y)
    half, total = (path.time_at(-50.0, loss=loss) for loss in ("half", "sum"))
    assert_allclose(half, 2.0 * total, rtol=1e-14)
    # tau = 4 t / log(1/scale^2).
    assert_allclose(half, path.times * 100.0 / 4.0, rtol=1e-14)


def test_units_of_columns_are_units_of_weights(rng):
    """Also where the square of a column is no double."""
    X, y = random_data(rng)
    bounds, unit = np.ones(X.shape[1]), 2.0 ** np.linspace(-800, 600, X.shape[1]).round()
    plain = Walk(Columns.of_array(X), y, bounds, bounds)
    other = Walk(Columns.of_array(X * unit), y, bounds * unit, bounds * unit)
    for a, b in zip(plain.stages(), other.stages(), strict=True):
        assert a.support == b.support
        assert_allclose(b.time, a.time, rtol=1e-12)
        assert_allclose(b.coefficients * unit[list(b.support)], a.coefficients, rtol=1e-10)


@pytest.mark.parametrize("decades", [200, 300])
@pytest.mark.parametrize("depth", [2, 3])
def test_columns_hundreds_of_decades_apart_are_taken_in_rational_numbers_or_refused(
    decades, depth, rng
):
    """One after the other they wait 1e200 times as long for what rounding has left of y."""
    X, y = random_data(rng, n=6, d=9)
    spread = X * 10.0 ** np.linspace(-decades, 0, 9)
    path = fb.stages(fb.DiagonalNet(depth, 1.0), spread, y)
    assert path.is_exact
    assert_allclose(spread @ path.w[-1], y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
    # Columns that never wake make it too large for fractions.
    wide = np.hstack([spread, np.zeros((6, CONE_ENTRIES // 6))])
    with pytest.raises(fb.SolveError, match="columns of comparable length"):
        fb.stages(fb.DiagonalNet(depth, 1.0), wide, y)
    with pytest.raises(fb.SolveError, match="columns of comparable length"):
        fb.estimators.StagesRegressor().fit(wide, y)


def woken(model, path, t):
    """The shares of their next weights that features have at these times, one for each jump."""
    shares = []
    for k, at in enumerate(t):
        (new,) = set(path[k + 1].support) - set(path[k].support)
        followed = fb.flow(model, path.data.X, path.data.y, t=[at], rtol=1e-10)
        shares.append(followed.w[0, new] / path.w[k + 1, new])
    return np.array(shares)


@pytest.mark.parametrize("log_scale", [-30.0, -300.0])
@pytest.mark.parametrize("w0", [1.0, [1.0, 3.0, 0.2, 0.7, 2.0]])
def test_features_wake_when_the_corrected_stages_say(log_scale, w0):
    # Orthogonal columns but for a little: no feature falls asleep.
    X = np.eye(5) + 0.1 * np.random.default_rng(2).standard_normal((5, 5))
    y = np.array([5.0, -4.0, 3.0, 2.0, 1.0])
    path = fb.stages(fb.DiagonalNet(2, 1.0, w0=w0), X, y)
    assert all(event.change is Change.WAKES for event in path.events)
    model = path.model.at_log_scale(log_scale)
    share = 0.01
    times = path.wake_times(log_scale, share=share)
    # To first order in the share, and what the next order of the scale leaves.
    assert_allclose(woken(model, path, times), share, rtol=5 * share + 10.0 / abs(log_scale))
    # Stages alone are off by log|w| in the exponent.
    leading = woken(model, path, path.time_at(log_scale)[1:])
    assert np.abs(np.log(leading / share)).max() > 1.0


def test_how_far_times_of_waking_are_off():
    """docs/theory/stages.md: as the share before a feature falls asleep, first order after it."""
    rng, share = np.random.default_rng(0), 0.01
    for X, y in (FOUR_X, FOUR_Y), (rng.standard_normal((6, 12)), rng.standard_normal(6)):
        path = fb.stages(NET, X, y)
        woken = [event for event in path.events if event.change is Change.WAKES]
        assert len({event.feature for event in woken}) == len(woken)
        asleep = min(event.time for event in path.events if event.change is Change.SLEEPS)
        before = np.array([event.time <= asleep for event in woken])
        weights = share * np.array([path.at(event.time)[event.feature] for event in woken])
        errors = []
        for log_scale in (-100.0, -1000.0):
            followed = fb.flow(path.model.at_log_scale(log_scale), X, y, rtol=1e-12)
            found = first_times(followed, [event.feature for event in woken], weights)
            off = np.abs(found / path.wake_times(log_scale, share=share) - 1.0)
            errors.append(-2.0 * log_scale * off)
        first, second = errors
        # A share for each of a few jumps; from the larger scale some weights have no time to rest.
        assert (second[before] < 10 * share).all()
        # In units of 1/log(1/scale^2) a constant, up to the next order.
        worst = first[~before].max()
        assert worst > 1.0
        assert_allclose(second[~before].max(), worst, rtol=0.1)


def test_the_times_of_waking_are_in_the_units_of_the_data():
    path = fb.stages(NET, FOUR_X, FOUR_Y)
    scaled = fb.stages(NET, 1024.0 * FOUR_X, FOUR_Y)
    # w is 1024 times smaller: as if from a start that is 32 times larger, on a clock 2^20 faster.
    same = scaled.wake_times(-50.0 - np.log(32.0))
    assert_allclose(same * 1024.0, path.wake_times(-50.0), rtol=1e-12)


def test_a_time_of_waking_beyond_the_doubles_is_infinite():
    path = fb.stages(fb.DiagonalNet(5, 1.0), FOUR_X, FOUR_Y)
    assert np.isposinf(path.wake_times(-3000.0)).all()
    assert np.isposinf(path.time_at(-3000.0)[1:]).all()


def test_a_feature_without_pull_wakes_with_the_others():
    # By hand: at tau = 1/3 the last three are at their bound, and the second fits all that they
    # feel: r = (1, 0, -1) is across them. At tau = 1 the first wakes, and they with it.
    X = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [-1, 0, 1, 1]], dtype=float)
    path = fb.stages(fb.DiagonalNet(4, 1.0), X, np.array([1.0, 3.0, -1.0]))
    assert [event.feature for event in path.events] == [1, 0, 2, 3]
    times = path.wake_times(-20.0)
    assert_allclose(times, path.time_at(-20.0)[[1, 2, 2, 2]], rtol=1e-6)  # scale^2 is 4e-18


def test_an_untied_start_has_the_stages_of_a_tied_one():
    tied, untied = (
        fb.stages(m, FOUR_X, FOUR_Y) for m in (NET, fb.UntiedDiagonalNet(0.4, shape=0.5))
    )
    assert_allclose(untied.times, tied.times)
    assert_allclose(untied.w, tied.w)
    log_scale = -2000.0
    model = fb.UntiedDiagonalNet(log_scale=log_scale, shape=0.5)
    middle = 0.5 * (untied.times[:-1] + untied.times[1:])
    followed = fb.flow(model, FOUR_X, FOUR_Y, t=untied.time_at(log_scale, middle))
    assert_allclose(followed.w, untied.at(middle), atol=1e-6)


# --- what a stage leaves open ---------------------------------------------------------------------


def test_equal_columns_share_as_the_flow_has_them_share():
    X, y = np.array([[1.0, 1.0, 0.2], [0.0, 0.0, 1.0]]), np.array([1.0, 0.5])
    for depth in (2, 3):
        even = fb.stages(fb.DiagonalNet(depth, 1.0), X, y)
        assert_allclose(even.w[:, 0], even.w[:, 1], rtol=1e-12)
        assert even.status is fb.Status.CERTIFIED
    # At depth 2 a start that is twice as large has four times the weight.
    uneven = fb.stages(fb.DiagonalNet(2, 1.0, w0=[2.0, 1.0, 1.0]), X, y)
    assert_allclose(uneven.w[1:, 0], 4.0 * uneven.w[1:, 1], rtol=1e-10)


def test_features_that_meet_their_bounds_together_share_a_fit():
    # All corners of a cube are pulled alike: none is in the span of another two.
    X = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    path = fb.stages(NET, X, [1.0, 0.0, 0.0])
    assert_allclose(path.w[-1], np.full(4, 0.25), rtol=1e-12)
    assert path.status is fb.Status.CERTIFIED


def test_one_sided_starts_end_at_non_negative_least_squares(rng):
    for _ in range(20):
        X, y = random_data(rng, 8, 12)
        closed = rng.random(12) < 0.7
        model = fb.DiagonalNet.from_weights(np.ones(12), np.where(closed, 0.0, 1.0))
        path = fb.stages(model, X, y)
        sides = np.hstack([X, -X[:, ~closed]])
        _, misfit = scipy.optimize.nnls(sides, y)
        assert_allclose(np.linalg.norm(path[-1].residual), misfit, atol=1e-10)
        assert (path.w[:, closed] >= 0.0).all()


@pytest.mark.parametrize("unit", [2.0**-950, 2.0**900])
def test_squares_of_y_may_leave_the_double_range(unit):
    path, plain = (fb.stages(NET, FOUR_X, u * FOUR_Y, throw=False) for u in (unit, 1.0))
    assert path.status is fb.Status.CERTIFIED
    assert_allclose(path.residual, plain.residual)
    # What is left of the pull is seen: without the last stage the path does not end at rest.
    cut = judged(path, path.stages[:-1])
    assert_allclose(cut.rest, judged(plain, plain.stages[:-1]).rest)
    assert cut.rest > 0.1


def test_frozen_features_never_wake(rng):
    X, y = random_data(rng)
    frozen = np.arange(20) % 3 == 0
    weights = np.where(frozen, 0.0, 1.0)
    path = fb.stages(fb.DiagonalNet.from_weights(weights, weights), X, y)
    assert not path.w[:, frozen].any()
    assert path.certificate.ok


# --- the certificate ------------------------------------------------------------------------------


def judged(path, stages):
    bounds = path.start.bounds
    return certify_stages(path.data.design, path.data.y, stages, bounds, tol=1e-10, whole=True)


@pytest.fixture
def path(rng):
    return fb.stages(NET, *random_data(rng))


def test_a_path_is_certified_from_its_numbers_alone(path):
    assert judged(path, path.stages).ok
    assert path.certificate == judged(path, path.stages)


def later(stages):
    return [*stages[:-1], replace(stages[-1], time=stages[-1].time * (1.0 + 1e-6))]


def heavier(stages):
    return [*stages[:-1], replace(stages[-1], coefficients=stages[-1].coefficients * (1.0 + 1e-6))]


def other_sign(stages):
    return [*stages[:-1], replace(stages[-1], coefficients=-stages[-1].coefficients)]


def without_one(stages):
    return [*stages[:3], *stages[4:]]


def cut_short(stages):
    return stages[:-1]


def swapped(stages):
    middle = len(stages) // 2
    a, b = stages[middle], stages[middle + 1]
    return [
        *stages[:middle],
        replace(b, time=a.time),
        replace(a, time=b.time),
        *stages[middle + 2 :],
    ]


@pytest.mark.parametrize("spoil", [later, heavier, other_sign, without_one, cut_short, swapped])
def test_a_path_that_is_tampered_with_is_refused(path, spoil):
    assert not judged(path, spoil(path.stages)).ok


def test_a_weight_on_a_closed_side_is_refused(path):
    with np.errstate(invalid="ignore", divide="ignore"):
        certificate = certify_stages(
            path.data.design,
            path.data.y,
            path.stages,
            L1(np.full(20, np.inf), np.ones(20)),
            tol=1e-10,
            whole=True,
        )
    assert not certificate.ok


# --- the same path, said otherwise ----------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), powers=st.tuples(*[st.integers(-400, 400)] * 2))
def test_units_of_the_data(seed, powers):
    X, y = random_data(np.random.default_rng(seed), 5, 9)
    a, b = 2.0 ** powers[0], 2.0 ** powers[1]
    path = fb.stages(NET, X, y)
    try:
        scaled = fb.stages(NET, a * X, b * y)
    except fb.InputError:
        # A dual or a predictor beyond the double range.
        assert abs(powers[0]) > 200 or abs(powers[1]) > 200
        return
    assert_allclose(scaled.w, (b / a) * path.w, rtol=1e-13)
    assert_allclose(scaled.times, path.times / a / b, rtol=1e-13)


def test_order_and_signs_of_features(rng):
    X, y = random_data(rng)
    order, signs = rng.permutation(20), rng.choice([-1.0, 1.0], 20)
    path, other = fb.stages(NET, X, y), fb.stages(NET, (X * signs)[:, order], y)
    assert_allclose(other.times, path.times, rtol=1e-10)
    assert_allclose(other.w, (path.w * signs)[:, order], atol=1e-10)


# --- in use ---------------------------------------------------------------------------------------


def test_nothing_to_fit():
    path = fb.stages(NET, FOUR_X, [0.0, 0.0])
    assert (len(path), path.events, path.is_whole) == (1, (), True)
    assert not path.w.any()
    assert not path.limit.w.any()


def test_where_y_is_out_of_reach_the_end_is_least_squares(rng):
    X, y = rng.standard_normal((12, 4)), rng.standard_normal(12)
    assert_allclose(fb.stages(NET, X, y).w[-1], np.linalg.lstsq(X, y)[0], atol=1e-12)


def test_between_the_times(path):
    middle = 0.5 * (path.times[2] + path.times[3])
    assert_allclose(path.at(middle), path.w[2])
    assert_allclose(path.at([0.0, path.times[3], 10.0 * path.times[-1]]), path.w[[0, 3, -1]])
    assert_allclose(path.at(path.times[[[0, 3], [2, 1]]]), path.w[[[0, 3], [2, 1]]])
    assert path.at([]).shape == (0, path.w.shape[1])


def test_stopping(path):
    assert len(path.stopped(n_features=3).support) == 3
    assert path.stopped(tau=path.times[4]) is path[4]
    early = path.stopped(residual=0.5)
    assert np.linalg.norm(early.residual) <= 0.5 * np.linalg.norm(path.data.y)
    assert path.stopped(n_features=100) is path[-1]
    assert path.stopped(residual=0.0) is path[-1] or path.residual.min() == 0.0


def test_a_path_that_is_cut_short_says_so(rng):
    X, y = random_data(rng)
    whole, cut = fb.stages(NET, X, y), fb.stages(NET, X, y, max_stages=4)
    assert (len(cut), cut.is_whole, cut.certificate.ok) == (4, False, True)
    assert_allclose(cut.w, whole.w[:4])
    assert "cut short" in cut.message


def test_it_shows_itself(path, tmp_path):
    assert f"{len(path)} stages, certified" in repr(path)
    assert "wakes" in path._repr_html_()
    path.plot(tmp_path / "stages.png")
    assert (tmp_path / "stages.png").stat().st_size > 1000


def test_data_that_doubles_do_not_tell_apart_are_refused(rng):
    X = np.vander(rng.uniform(-1.0, 1.0, 14), CONE_ENTRIES // 14 + 1)  # too large for fractions
    refused = fb.stages(NET, X, rng.standard_normal(14), throw=False)
    assert refused.status in (fb.Status.STALLED, fb.Status.FEW_DIGITS)
    with pytest.raises(fb.SolveError, match="not certified"):
        replace(refused, status=fb.Status.STALLED).checked(throw=True)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (
            "max_stages: must be an integer >= 1, got 0",
            lambda: fb.stages(NET, FOUR_X, FOUR_Y, max_stages=0),
        ),
        (
            "max_stages: must be an integer >= 1, got 1.5",
            lambda: fb.stages(NET, FOUR_X, FOUR_Y, max_stages=1.5),
        ),
        ("X: must be finite", lambda: fb.stages(NET, [[1.0, np.nan]], [1.0])),
        ("tol: must be a positive number", lambda: fb.stages(NET, FOUR_X, FOUR_Y, tol=-1.0)),
        ("tau: must be >= 0", lambda: fb.stages(NET, FOUR_X, FOUR_Y).at(-1.0)),
        ("log_scale: must be negative", lambda: fb.stages(NET, FOUR_X, FOUR_Y).time_at(1.0)),
        ("log_scale: must be negative", lambda: fb.stages(NET, FOUR_X, FOUR_Y).time_at("-9")),
        ("log_scale: must be negative", lambda: fb.stages(NET, FOUR_X, FOUR_Y).wake_times(1.0)),
        ("share: must be > 0", lambda: fb.stages(NET, FOUR_X, FOUR_Y).wake_times(-9.0, share=0)),
        ("tau: must be >= 0", lambda: fb.stages(NET, FOUR_X, FOUR_Y).time_at(-9.0, -1.0)),
        ("exactly one must be given", lambda: fb.stages(NET, FOUR_X, FOUR_Y).stopped()),
        ("be >= 0, got {'tau': '1'}", lambda: fb.stages(NET, FOUR_X, FOUR_Y).stopped(tau="1")),
        ("model: must provide", lambda: fb.stages(fb.Neuron(2.0, np.ones(4)), FOUR_X, FOUR_Y)),
        (
            "must have one column per coordinate",
            lambda: fb.stages(fb.DiagonalNet(2, 1.0, w0=np.ones(3)), FOUR_X, FOUR_Y),
        ),
    ],
)
def test_what_cannot_be_is_refused(words, call):
    with pytest.raises(fb.InputError, match=words):
        call()


def test_big_and_sparse_data_have_the_same_path(rng):
    # Above the size that is made dense.
    X = scipy.sparse.random_array((30, 400_000), density=1e-3, rng=rng, format="csr")
    y = rng.standard_normal(30)
    path = fb.stages(NET, X, y, max_stages=8)
    seen = np.unique(X.indices)
    dense = fb.stages(NET, X[:, seen].toarray(), y, max_stages=8)
    assert path.certificate.ok
    assert_allclose(path.times, dense.times, rtol=1e-10)
    assert_allclose(path.w[:, seen], dense.w, atol=1e-10)


def test_operators_are_refused():
    operator = scipy.sparse.linalg.aslinearoperator(FOUR_X)
    with pytest.raises(fb.InputError, match="must have entries that can be looked at"):
        fb.stages(NET, operator, FOUR_Y)


def test_a_biased_start_shares_differently_on_either_side():
    # Two equal columns that first push one way, then the other; the starts of their sides differ.
    model = fb.DiagonalNet.from_weights([1.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    X = np.array([[1.0, 1.0, 1.2], [0.0, 0.0, 1.0]])
    for y, ratio in (([1.0, 0.0], 4.0), ([-1.0, 0.0], 1.0)):
        path = fb.stages(model, X, y)
        shared = path.w[np.abs(path.w[:, 0]) > 0]
        assert_allclose(shared[:, 1], ratio * shared[:, 0], rtol=1e-10)


def test_many_stages_with_equal_columns_are_settled_once(rng):
    X, y = random_data(rng, 20, 30)
    X[:, 7] = X[:, 3]
    path = fb.stages(NET, X, y)
    assert_allclose(path.w[:, 7], path.w[:, 3], atol=1e-13)
    assert path.status is fb.Status.CERTIFIED


@pytest.mark.parametrize(
    ("entry", "said"), [(np.nan, r"got nan at index \(0, 3\)"), (0.0, "must have a nonzero entry")]
)
def test_blocks_of_nothing_are_refused_as_an_array_is(entry, said):
    dask = pytest.importorskip("dask.array")
    X = np.zeros((4, 6))
    X[0, 3] = entry
    with pytest.raises(fb.InputError, match=said):
        fb.stages(NET, dask.from_array(X, chunks=(4, 2)), np.ones(4))


def test_one_stage_is_counted_as_one():
    assert fb.stages(NET, FOUR_X, np.zeros(2)).message.startswith("1 stage, certified")


def test_a_path_that_rounding_ends_before_its_limit_says_so():
    """Columns that nearly agree: what pulls to the last of y is less than rounding."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((3, 1)) + 1e-10 * rng.standard_normal((3, 8))
    path = fb.stages(NET, X, X[:, 0] + 1e-11 * rng.standard_normal(3))
    assert path.status is fb.Status.CERTIFIED
    assert not path.is_whole
    assert "what still pulls is rounding" in path.message
    assert path.limit.status is fb.Status.CERTIFIED
    assert np.abs(path.limit.w - path.w[-1]).max() > 0.01
    # Neither where y is fitted, nor where none fits the rest.
    X = rng.standard_normal((9, 4))
    assert fb.stages(NET, X, rng.standard_normal(9)).is_whole
    assert fb.stages(NET, X.T, rng.standard_normal(4)).is_whole
    assert fb.stages(NET, X.T, rng.standard_normal(4), max_stages=2).message.endswith("cut short")


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.filterwarnings("error")
def test_a_start_that_cannot_move_has_one_stage(depth):
    stuck = fb.DiagonalNet.from_weights([0.0, 0.0], [0.0, 0.0], depth=depth)
    path = fb.stages(stuck, np.eye(2), np.ones(2))
    assert len(path) == 1
    with pytest.raises(fb.InputError, match="must have a coordinate that can move"):
        _ = path.limit


CIRCLES = {
    # Rows that nearly repeat each other, in units 10 and 1e13 apart.
    "weights": (
        [[-1.0, 0.0, 1.0, -3.0, -1.0, -1.0], [-0.1, 0.0, 0.1, -0.3, -0.1, -0.1]],
        [[0.0] * 6, [-2e-9, -5.9e-10, -1e-9, -1e-9, 0.0, 1.7e-9]],
        2,
    ),
    "stages": (
        [
            [0.0, -1.0, -2.0, 0.0, -3.0, 3.0, -2.0],
            [0.0, 0.0, 2.0, 1.0, -2.0, -1.0, -2.0],
            [1.0, -2.0, -2.0, 2.0, -3.0, -3.0, 2.0],
            [0.0, -1e13, -2e13, 0.0, -3e13, 3e13, -2e13],
        ],
        [[0.0] * 7] * 3 + [[-6.1e-10, 0.0, 0.0, -6.3e-10, 0.0, 0.0, 0.0]],
        3,
    ),
}


@pytest.mark.parametrize("case", CIRCLES)
@pytest.mark.parametrize("seed", range(20))
def test_rounding_does_not_lead_in_circles(case, seed):
    """What is taken for rounding is taken no second time: there is an end, whatever it is worth."""
    rows, noise, depth = CIRCLES[case]
    rng = np.random.default_rng(seed)
    X = np.array(rows) + np.array(noise) * rng.standard_normal(np.shape(rows))
    model = fb.DiagonalNet(depth, 0.1, w0=10.0 ** rng.uniform(-0.5, 0.5, X.shape[1]))
    path = fb.stages(model, X, X @ rng.standard_normal(X.shape[1]), throw=False)
    assert len(path) <= 10 * X.shape[1]


def hilbert(n, d):
    return 1.0 / (1.0 + np.arange(n)[:, None] + np.arange(d))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5), extra=st.integers(0, 5))
def test_rational_numbers_give_the_stages_of_doubles(seed, n, extra):
    """Where doubles are enough both ways agree: on data that are no harder than Gaussian ones."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, n + extra)), rng.standard_normal(n)
    path = fb.stages(NET, X, y, throw=False)
    if path.status.name != "CERTIFIED" or path.is_exact or not path.is_whole:
        return
    ones = np.ones(n + extra)
    found, certificate = exact_stages(X, y, ones, ones, None, 1e-10)
    assert certificate.ok
    assert certificate.whole
    # To the digits that nearly dependent columns leave: as many as the certificate asks for.
    far = 1e-6 * np.linalg.cond(X)
    assert_allclose([stage.time for stage in found], path.times, rtol=far)
    for stage, other in zip(found, path.stages, strict=True):
        assert sorted(stage.support) == sorted(other.support)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("size", [(6, 6), (8, 6), (8, 8)])
def test_nearly_dependent_columns_take_rational_numbers(depth, size, rng):
    """zeta is the sum of parts that cancel in doubles: these paths were refused."""
    X = hilbert(*size)
    path = fb.stages(fb.DiagonalNet(depth, 1e-3), X, rng.standard_normal(len(X)))
    assert path.status.name == "CERTIFIED"
    assert path.is_exact
    assert path.is_whole
    assert "certified in rational numbers, to the limit" in path.message
    # The end is the rich limit, which is found and proved another way.
    limit = fb.rich_limit(fb.DiagonalNet(depth, 1e-3), X, path.data.y)
    assert_allclose(path.w[-1], limit.w, rtol=1e-6, atol=1e-9 * np.abs(limit.w).max())


def test_a_path_in_rational_numbers_may_be_cut_short():
    path = fb.stages(NET, hilbert(6, 6), np.ones(6) / np.arange(1.0, 7.0), max_stages=4)
    whole = fb.stages(NET, hilbert(6, 6), np.ones(6) / np.arange(1.0, 7.0))
    assert_allclose(path.times, whole.times[: len(path)], rtol=1e-12)


def test_the_exact_proof_sees_what_is_wrong():
    X, y, ones = hilbert(4, 4), np.array([1.0, -1.0, 2.0, 0.5]), np.ones(4)
    right = list(_ExactWalk(X, y, ones, ones).stages())
    proved = partial(certify_exact_stages, X, y, tol=1e-10)
    assert proved(ones, ones, right, whole=True).ok
    least, nothing = type(right[1].time)(1, 10**30), rational_matrix(np.zeros((4, 1)))
    wrong = {
        "later": [right[0], replace(right[1], time=right[1].time + least), *right[2:]],
        "heavier": [
            *right[:2],
            replace(right[2], weights={i: w + least for i, w in right[2].weights.items()}),
            *right[3:],
        ],
        "cut short": right[:-1],
        "out of order": [right[0], right[2], right[1], *right[3:]],
        "no start": right[1:],
        "wrong side": [right[0], ExactStage(right[1].time, {0: -least}, nothing), *right[2:]],
    }
    for kind, stages in wrong.items():
        assert proved(ones, ones, stages, whole=True) is None, kind
    assert proved(ones, ones, right[:-1], whole=False).ok
    assert proved(ones / 2, ones, right, whole=True) is None


def test_rows_that_rounding_alone_tells_apart_are_not_fitted_in_rational_numbers():
    X = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0 + 4e-16]])
    ones = np.ones(3)
    assert exact_stages(X, np.array([1.0, 2.0]), ones, ones, None, 1e-10) is None
