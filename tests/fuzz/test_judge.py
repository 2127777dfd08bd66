"""Sixty problems judged on every run, and that the judge sees what it is there to see."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowbias as fb
from tests.fuzz import answers, runner, verdict
from tests.fuzz.answers import Answer, Outcome, ask
from tests.fuzz.judge import judge
from tests.fuzz.problems import FAMILIES, Problem, Start, as_text, problem
from tests.fuzz.questions import data_of
from tests.fuzz.reference import limit
from tests.fuzz.rounded_rank import chosen_rows, cut_values
from tests.fuzz.table import reasons, table

ORDINARY = Problem(
    seed=0,
    family="by hand",
    entry="limit",
    X=np.array([[1.0, 2.0, -1.0], [0.5, -1.0, 3.0]]),
    y=np.array([1.0, 2.0]),
    start=Start("tied", 2.0, scale=0.1),
)


# A rank that only columns in use decide; a bound that forgot the last digits of a start; no rows;
# a bound of rows that stood for others where the columns in use left nothing to rounding; no limit
# to certify points beside.
ONCE_WRONG = (1002544, 1008816, 1100659, 1103016, 1101961, 14006996, 14001987)


@pytest.mark.parametrize("seed", [*range(60), *ONCE_WRONG])
def test_no_answer_is_false(seed):
    given = problem(seed)
    found = judge(given, ask(given))
    assert found.kind not in verdict.WORST, found
    assert found.kind != verdict.UNJUDGED, found


def test_every_family_and_every_front_door_is_drawn():
    drawn = [problem(seed) for seed in range(600)]
    assert {given.family for given in drawn} == set(FAMILIES)
    assert {given.entry for given in drawn} == set(answers.DOORS)
    assert {given.start.kind for given in drawn} == {
        "tied",
        "tied_weights",
        "untied",
        "untied_weights",
    }


def test_a_seed_is_all_that_a_replay_needs():
    assert json.dumps(as_text(problem(7))) == json.dumps(as_text(problem(7)))
    assert json.dumps(as_text(problem(7))) != json.dumps(as_text(problem(8)))


# --- the judge is not fooled ---------------------------------------------------------------------


def answered(**changes):
    """The library's answer to ORDINARY with some of it forged."""
    outcome = ask(ORDINARY)
    return replace(outcome, answers=(replace(outcome.answers[0], **changes),))


def kind_of(outcome, given=ORDINARY):
    return judge(given, outcome).kind


def test_the_truth_is_good():
    assert kind_of(ask(ORDINARY)) == verdict.GOOD


def test_a_wrong_w_is_false():
    w = ask(ORDINARY).answers[0].w
    null = np.cross(*ORDINARY.X)  # fits the data as well
    assert kind_of(answered(w=w + 1e-5 * null)) == verdict.FALSE
    assert kind_of(answered(w=w * (1.0 + 3e-6))) == verdict.FALSE
    assert kind_of(answered(w=np.full(3, np.nan))) == verdict.FALSE


def test_a_wrong_w_that_is_refused_is_refused():
    wrong = ask(ORDINARY).answers[0].w + 1.0
    assert kind_of(answered(w=wrong, good=False, status="STALLED")) == verdict.REFUSED


def test_a_bound_below_the_error_is_reported():
    w = ask(ORDINARY).answers[0].w
    assert kind_of(answered(w=w + 1e-9, error_bound=1e-10)) == verdict.BOUND
    assert kind_of(answered(w=w + 1e-9, error_bound=np.inf)) == verdict.GOOD
    assert kind_of(answered(error_bound=0.0)) == verdict.BOUND


def test_stated_digits_are_held_to():
    w = ask(ORDINARY).answers[0].w
    poor = {"w": w * (1.0 + 1e-4), "error_bound": np.inf, "status": "FEW_DIGITS"}
    assert kind_of(answered(**poor, digits=3)) == verdict.GOOD
    assert kind_of(answered(**poor, digits=5)) == verdict.FALSE


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), ValueError("singular matrix")])
def test_a_foreign_exception_is_reported(error, monkeypatch):
    def fails(given):
        raise error

    monkeypatch.setitem(answers.DOORS, "limit", fails)
    assert kind_of(ask(ORDINARY)) == verdict.FOREIGN


def test_an_own_exception_is_a_refusal(monkeypatch):
    def refuses(given):
        raise fb.InputError("X: must be something else.")

    monkeypatch.setitem(answers.DOORS, "limit", refuses)
    assert kind_of(ask(ORDINARY)) == verdict.REFUSED


def test_a_certificate_of_a_wrong_point_is_false():
    w = ask(ORDINARY).answers[0].w + 1e-3 * np.cross(*ORDINARY.X)
    given = replace(ORDINARY, entry="certify")
    lie = Answer("CERTIFICATE", True, w, np.inf, deliberate=True)
    assert kind_of(Outcome((lie,), 0.0), given) == verdict.FALSE
    assert kind_of(Outcome((replace(lie, good=False),), 0.0), given) == verdict.GOOD


def test_the_worst_answer_of_a_path_decides():
    given = replace(ORDINARY, entry="limit_path", options={"log_scales": [0.0, -5.0]})
    outcome = ask(given)
    assert kind_of(outcome, given) == verdict.GOOD
    first, second = outcome.answers
    spoiled = replace(outcome, answers=(first, replace(second, w=first.w)))
    assert kind_of(spoiled, given) == verdict.FALSE


def test_of_several_minimizers_any_is_right_if_the_status_says_so():
    given = replace(
        ORDINARY,
        entry="basis_pursuit",
        X=np.array([[1.0, 1.0]]),
        y=np.array([1.0]),
        options={"weights": np.ones(2)},
    )
    honest = Answer("NOT_UNIQUE", True, np.array([0.25, 0.75]), np.inf)
    assert kind_of(Outcome((honest,), 0.0), given) == verdict.GOOD
    assert kind_of(Outcome((replace(honest, status="CERTIFIED"),), 0.0), given) == verdict.FALSE
    longer = replace(honest, w=np.array([-0.25, 1.25]))
    assert kind_of(Outcome((longer,), 0.0), given) == verdict.FALSE


def test_a_rich_limit_that_says_it_is_another_minimizer_has_refused():
    given = replace(ORDINARY, entry="rich_limit", X=np.array([[1.0, 1.0]]), y=np.array([1.0]))
    other = Answer("NOT_UNIQUE", True, np.array([0.25, 0.75]), np.inf)
    assert kind_of(Outcome((other,), 0.0), given) == verdict.REFUSED
    assert kind_of(Outcome((replace(other, w=np.full(2, 0.5)),), 0.0), given) == verdict.GOOD
    assert kind_of(Outcome((replace(other, w=np.array([2.0, -1.0])),), 0.0), given) == verdict.FALSE


def test_a_rank_that_rounding_decides_may_be_either_if_the_status_says_so():
    X = np.array([[1.0, 2.0], [1.0, 2.0 * (1.0 + 2.0**-52)]])
    given = replace(ORDINARY, X=X, y=np.array([1.0, 3.0]))
    # Both rows taken for one, that fits the mean of y.
    alone = replace(given, X=X[:1], y=np.array([2.0]))
    w = ask(alone).answers[0].w
    projected = Answer("PROJECTED", True, w, np.inf, distance=1e-16)
    assert kind_of(Outcome((projected,), 0.0), given) == verdict.GOOD
    assert kind_of(Outcome((replace(projected, status="CERTIFIED"),), 0.0), given) == verdict.FALSE
    assert kind_of(Outcome((replace(projected, w=1.1 * w),), 0.0), given) == verdict.FALSE


def test_what_only_a_frozen_column_tells_apart_may_count_as_the_same():
    X = np.array([[1.0, 2.0, 0.0], [1.0, 2.0 * (1.0 + 2.0**-52), 5.0]])
    weights = (np.array([0.1, 0.1, 0.0]), np.array([0.1, 0.1, 0.0]))
    given = replace(
        ORDINARY, X=X, y=np.array([1.0, 3.0]), start=Start("tied_weights", 2.0, weights=weights)
    )
    outcome = ask(given)
    assert [answer.status for answer in outcome.answers] == ["PROJECTED"]
    assert kind_of(outcome, given) == verdict.GOOD
    sees_all = replace(given, start=Start("tied", 2.0, scale=0.1))
    assert kind_of(outcome, sees_all) == verdict.FALSE


def test_centring_excuses_what_rounding_the_data_does_and_no_more():
    # Rows that differ by 1e-11: the limit keeps some five digits once X is rounded.
    X = np.array([[1.0, 2.0, 3.0], [1.0, 2.0 + 1e-11, 3.0], [-1.0, 0.5, 1.0]])
    given = replace(ORDINARY, entry="ImplicitBiasRegressor", X=X, y=X @ [1.0, 2.0, -1.0])
    given = replace(given, options={"fit_intercept": True})
    w = np.array([float(v) for v in limit(*data_of(given, given.X, given.y), given.start).w])
    near, far = w * (1.0 + 1e-5), w * 2.0
    assert kind_of(Outcome((Answer("CERTIFIED", True, near, np.inf),), 0.0), given) == verdict.GOOD
    assert kind_of(Outcome((Answer("CERTIFIED", True, far, np.inf),), 0.0), given) == verdict.FALSE
    plain = replace(given, X=ORDINARY.X, y=ORDINARY.y)
    w = np.array([float(v) for v in limit(*data_of(plain, plain.X, plain.y), plain.start).w])
    near = Answer("CERTIFIED", True, w * (1.0 + 1e-5), np.inf)
    assert kind_of(Outcome((near,), 0.0), plain) == verdict.FALSE


def test_a_lower_rank_is_fitted_in_the_norm_of_the_data():
    # Frozen but for one coordinate, so that the lower rank does not fit y either.
    X = np.array([[1.0, 2.0, 1.0], [1.0, 2.0 * (1.0 + 2.0**-52), 1.0], [3.0, 0.0, 1.0]])
    weights = (np.array([0.1, 0.0, 0.0]), np.array([0.1, 0.0, 0.0]))
    start = Start("tied_weights", 2.0, weights=weights)
    given = replace(ORDINARY, X=X, y=np.array([1.0, 3.0, 2.0]), start=start)
    (data,) = cut_values(given.X, given.y, exact_rank=3)
    w = [X[:, 0] @ given.y / (X[:, 0] @ X[:, 0]), 0.0, 0.0]
    assert_allclose([float(v) for v in limit(*data, start).w], w, rtol=1e-12)


def test_of_rows_that_rounding_tells_apart_either_may_be_left_out():
    X = np.array([[1.0, 2.0, 1.0], [1.0, 2.0 * (1.0 + 2.0**-52), 1.0], [3.0, 0.0, 1.0]])
    choices = chosen_rows(X, np.array([1.0, 3.0, 2.0]), exact_rank=3)
    for (rows, target), first in zip(choices, (0, 1), strict=True):
        assert [float(v.p) / float(v.q) for v in rows.entries()] == [*X[first], *X[2]]
        assert_allclose([float(v.p) / float(v.q) for v in target], [2.0, 2.0])


# --- the run -------------------------------------------------------------------------------------


def test_a_hang_is_a_verdict_and_the_run_goes_on(monkeypatch):
    monkeypatch.setattr(runner, "_serve", _hangs_on_odd_seeds)
    hanging, next_one = runner.run([1, 2], jobs=1)
    assert (hanging.seed, hanging.kind) == (1, verdict.HANGS)
    assert hanging.problem == as_text(problem(1))
    assert (next_one.seed, next_one.kind) == (2, verdict.GOOD)


def _hangs_on_odd_seeds(pipe):
    while True:
        seed = pipe.recv()
        runner._die_after(0.2)
        while seed % 2:
            time.process_time()
        pipe.send(runner.record(seed, verdict.Verdict(verdict.GOOD), 0.0))


def test_a_run_is_written_and_read_back(tmp_path):
    one = runner.record(3, verdict.Verdict(verdict.FALSE, "far off"), 0.5)
    path = tmp_path / "run.jsonl"
    path.write_text(runner.as_line(one) + runner.as_line(one)[:-5])  # the second cut short
    (again,) = runner.read_records(path)
    assert again.problem == json.loads(json.dumps(one.problem))
    assert "far off" not in table([again])
    assert "1" in table([again]).splitlines()[-1]
    assert reasons([again]) == ""
