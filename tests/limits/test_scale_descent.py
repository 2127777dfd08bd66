"""Limits that stall from a cold start: down from larger scales, or with the dual of the weights."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import flowbias as fb
from flowbias.certificates import exact_limit
from flowbias.ground.routing import first_fitting
from flowbias.limits import solve
from flowbias.limits.continuation import Continuation, even_ladders
from flowbias.limits.normal_equations import NormalEquations
from flowbias.limits.routes import asked_for
from flowbias.results.solution import Stats
from tests.limits.scaled_models import Declares

DESCENDED = "down from larger scales"
IN_BALLS = "then Newton in balls"
REPAIRED = "dual from the weights in use"


def sparse(seed, n, d, k, mean=0.0, equal=False):
    """y is a combination of k < n features: fewer coordinates carry the fit than samples."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + mean
    w = np.zeros(d)
    w[:k] = 1.0 if equal else rng.standard_normal(k)
    return X, X @ w


#: Data and scales that stall from a cold start, in the rounding of one processor or another.
STALLS = [
    (sparse(696575915, 21, 25, 9, mean=0.5, equal=True), 1.2712060220761376e-11),
    (sparse(153109323, 15, 27, 6, mean=0.5, equal=True), 7.751167297299215e-09),
    (sparse(552105280, 32, 44, 17), 2.9896657937119536e-12),
    (sparse(44886536, 31, 40, 9), 5.574720397009593e-09),
    (sparse(5, 40, 400, 8), 1e-300),
]

#: Rows that nearly repeat each other, with outputs that do not.
NEARLY_REPEATED = np.array([[1.0, 2.0], [1.0, 2.0 + 1e-12]]), np.array([1.0, 5.0])


@pytest.fixture
def too_large_for_balls(monkeypatch):
    """As if the data were: Newton's method in balls would cure these stalls before a descent."""
    monkeypatch.setattr(exact_limit, "LARGEST_WORK", 0.0)


def cold(model, X, y, tol=1e-10):
    route = first_fitting(model, solve.POTENTIAL_ROUTES)
    return solve.InMemory(route, fb.Regression(X, y), tol).attempt(model, None)[0]


@pytest.mark.parametrize("case", range(len(STALLS)))
def test_a_stall_is_cured_in_balls(case):
    (X, y), scale = STALLS[case]
    model = fb.DiagonalNet(depth=2, scale=scale)
    found = fb.limit(model, X, y)
    assert found.certificate.ok
    assert found.route.endswith((IN_BALLS, DESCENDED)) or cold(model, X, y).certificate.ok


@pytest.mark.usefixtures("too_large_for_balls")
@pytest.mark.parametrize("case", range(len(STALLS)))
def test_a_stall_is_cured(case):
    (X, y), scale = STALLS[case]
    model = fb.DiagonalNet(depth=2, scale=scale)
    found = fb.limit(model, X, y)
    assert found.route.endswith(DESCENDED) or cold(model, X, y).certificate.ok
    proof = fb.certify(X, y, found.w, found.dual, model.potential, model.shift, tol=1e-10)
    assert proof.ok
    # At scale zero the l1 norm is least. The bending term is 1 / log(1 / scale^2) beside it.
    least = np.abs(fb.rich_limit(model, X, y).w).sum()
    assert least * (1.0 - 1e-9) <= np.abs(found.w).sum() <= least * (1.0 - 0.5 / np.log(scale))


@pytest.mark.usefixtures("too_large_for_balls")
def test_every_factorization_counts(monkeypatch):
    made, begin = [], NormalEquations.__init__

    def counted(self, *args, **options):
        made.append(1)
        begin(self, *args, **options)

    monkeypatch.setattr(NormalEquations, "__init__", counted)
    (X, y), scale = STALLS[1]
    found = fb.limit(fb.DiagonalNet(depth=2, scale=scale), X, y)
    assert found.route.endswith(DESCENDED)
    # The data are factored once, for all scales.
    assert found.stats.factorizations == len(made) + 1


@pytest.mark.usefixtures("too_large_for_balls")
def test_models_that_cannot_move_their_scale_say_that_they_stall():
    (X, y), scale = STALLS[1]
    potential = fb.DiagonalNet(depth=2, scale=scale).potential
    found = fb.limit(potential, X, y, throw=False)
    assert not found.certificate.ok
    np.testing.assert_array_equal(found.w, cold(potential, X, y).w)


@pytest.mark.usefixtures("too_large_for_balls")
def test_what_stalls_all_the_way_down_is_returned_as_it_was(monkeypatch):
    monkeypatch.setattr(solve, "even_ladders", partial(even_ladders, rungs=(1, 2)))
    X, y = NEARLY_REPEATED
    model = fb.DiagonalNet(depth=2, scale=0.1)
    first, found = cold(model, X, y), fb.limit(model, X, y, throw=False)
    assert not found.certificate.ok
    assert DESCENDED not in found.route
    np.testing.assert_array_equal(found.w, first.w)
    assert found.stats.factorizations > first.stats.factorizations


class Scripted:
    """Attempts that cost so many factorizations each, and are certified or not."""

    def __init__(self, costs, certified=None):
        X, y = sparse(0, 3, 6, 3)
        self.model = fb.DiagonalNet(depth=2, scale=1e-3)
        self.ok = fb.limit(self.model, X, y)
        self.costs, self.models = costs, []
        self.certified = certified or [True] * len(costs)

    def answer(self, ok, cost):
        status = fb.Status.CERTIFIED if ok else fb.Status.STALLED
        proof = self.ok.certificate if ok else replace(self.ok.certificate, feasibility=1.0)
        return replace(self.ok, status=status, certificate=proof, stats=Stats(cost, 1, 0.0)), None

    def __call__(self, model, warm):
        at = len(self.models)
        self.models.append(model)
        return self.answer(self.certified[at], self.costs[at])

    def descend(self, stalled):
        first = self.answer(False, stalled)
        path = Continuation(lambda *_: None, self, even_ladders)
        return path.descended(self.model, first)[0]


def test_a_descent_is_given_up_when_it_has_cost_too_much():
    worth = Continuation.worth_trying
    attempts = Scripted([10] * 100)
    found = attempts.descend(stalled=10)
    assert not found.status.ok
    assert len(attempts.models) == worth + 1
    assert found.stats.factorizations == 10 * (worth + 2)


def test_a_limit_that_has_been_found_is_kept_whatever_it_has_cost():
    first, least_rise = 8, 10.0
    attempts = Scripted([0] * first + [10**6])
    found = attempts.descend(stalled=1)
    assert found.status.ok
    assert found.stats.factorizations == 10**6 + 1
    # Down in even steps of log(scale), to the model itself.
    scales = [float(model.log_scale) for model in attempts.models]
    assert attempts.models[-1] is attempts.model
    assert scales[0] == pytest.approx(np.log(1e-3) + least_rise)
    np.testing.assert_allclose(np.diff(scales, 2), 0.0, atol=1e-12)


def test_a_descent_that_stalls_is_tried_once_more_in_smaller_steps():
    attempts = Scripted([0] * 4, [True, False, True, False])
    assert not attempts.descend(stalled=1).status.ok
    top, first, again, second = (float(model.log_scale) for model in attempts.models)
    assert top == again
    assert 0.0 < top - second < 0.5 * (top - first)


@pytest.mark.usefixtures("too_large_for_balls")
def test_own_models_that_know_their_scale_descend_too():
    (X, y), scale = STALLS[1]
    potential = fb.DiagonalNet(depth=2, scale=scale).potential
    found = fb.limit(Declares(potential, np.log(scale)), X, y)
    assert found.route.endswith(DESCENDED)


@pytest.mark.usefixtures("too_large_for_balls")
@pytest.mark.parametrize("log_scale", [None, np.nan, "small", [0.0, -np.inf]])
def test_own_models_without_the_scale_they_declare_are_refused(log_scale):
    (X, y), scale = STALLS[1]
    potential = fb.DiagonalNet(depth=2, scale=scale).potential
    with pytest.raises(fb.InputError, match=r"model: must have a finite `log_scale`.*Declares"):
        fb.limit(Declares(potential, log_scale), X, y, throw=False)


@pytest.mark.usefixtures("too_large_for_balls")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(seed=44886536, shape=(31, 40, 9), scale=5.574720397009593e-09)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(10, 14, 3), (15, 60, 4), (25, 40, 12), (40, 120, 5)]),
    scale=st.sampled_from([1e-4, 1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9, 1e-10, 1e-12, 1e-300]),
)
def test_sparse_targets_are_certified_and_old_answers_keep_their_bits(seed, shape, scale):
    X, y = sparse(seed, *shape)
    model = fb.DiagonalNet(depth=2, scale=scale)
    found, first = fb.limit(model, X, y), cold(model, X, y)
    assert found.status.ok
    assert first.certificate.ok == (DESCENDED not in found.route)
    if first.certificate.ok:
        np.testing.assert_array_equal(found.w, first.w)
        np.testing.assert_array_equal(found.dual, first.dual)
        assert found.stats.factorizations == first.stats.factorizations


DEEP = fb.datasets.sparse_regression(n=50, d=200, rng=5)[:2]


@pytest.mark.parametrize("scale", [1e-3])
def test_deep_networks_whose_light_weights_ask_for_another_dual(scale):
    X, y = DEEP
    model = fb.DiagonalNet(depth=10, scale=scale)
    found = fb.limit(model, X, y)
    assert found.route.endswith(REPAIRED)
    # The scale's 10th power is far below the rounding of w: this is the limit of scale zero, which
    # a linear program finds.
    end = fb.rich_limit(model, X, y).w
    np.testing.assert_allclose(found.w, end, atol=1e-8 * np.abs(end).max())


@pytest.mark.usefixtures("too_large_for_balls")
@pytest.mark.parametrize("data", [DEEP, NEARLY_REPEATED], ids=["certified", "stalled"])
def test_a_repair_counts_as_one_factorization(monkeypatch, data):
    model = fb.DiagonalNet(depth=10, scale=1e-3)
    repaired = cold(model, *data)
    assert repaired.certificate.ok == (data is DEEP)
    plain = tuple(replace(way, repair=None) for way in solve.POTENTIAL_ROUTES)
    monkeypatch.setattr(solve, "POTENTIAL_ROUTES", plain)
    plain = cold(model, *data)
    assert not plain.certificate.ok
    assert repaired.stats.factorizations == plain.stats.factorizations + 1


def test_a_dual_that_the_weights_do_not_determine_is_left_alone():
    X, y = sparse(0, 5, 12, 5)
    found = fb.limit(fb.DiagonalNet(depth=4, scale=0.1), X, y)
    # Where weights start at zero w cannot be negative: no dual asks for that.
    one_sided = fb.DiagonalNet.from_weights(np.ones(12), np.zeros(12), depth=4).potential
    with np.errstate(all="ignore"):
        kept = asked_for(one_sided, X, np.full(12, -1.0), found.dual)
    np.testing.assert_array_equal(kept, found.dual)


def test_a_rough_weight_of_zero_is_on_no_face():
    # Three columns of zeros, at depth 30, from scales far apart: SciPy was handed an infinity.
    model = fb.DiagonalNet(30, log_scale=5.0, w0=[8.1169, 1.5867, 0.50238, 0.16544])
    path = fb.limit_path(model, [[0.0, 0.0, 0.0, 1.0]], [1.0789], log_scales=[-1.12, -12.2, -18.75])
    np.testing.assert_allclose(path.w[:, 3], 1.0789)
