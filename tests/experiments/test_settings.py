"""Presets as data, and settings that are not as in a preset."""

import numpy as np
import pytest

from flowbias.experiments import EXPERIMENTS, Preset, Task, run
from flowbias.experiments.check import (
    Check,
    at_least,
    at_most,
    less_than,
    more_than,
    true,
    within,
)
from flowbias.experiments.record import tally
from flowbias.experiments.settings import AllowedValues, read_assignments
from flowbias.ground.arguments import InputError
from flowbias.theory import Verdict
from tests.experiments.toy import COUNT, toy


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1, 5), "an integer >= 1"),
        ((0, 5), "an integer >= 0"),
        ((-3, 5), "an integer"),
        ((0.1, 5), "a number >= 0"),
        ((-0.1,), "a number"),
        (("1 2", "3"), "integers >= 1"),
        (("-1 0.5",), "numbers"),
        (("MNIST",), "words"),
    ],
)
def test_what_a_setting_may_be_is_read_off_the_presets(values, words):
    assert AllowedValues.of(values).words == words


@pytest.mark.parametrize(
    ("values", "given", "read"),
    [
        ((1,), "7", 7),
        ((1,), np.int64(7), 7),
        ((0.1,), "0", 0.0),
        ((0.1,), 1, 1.0),
        (("1 2",), "3", "3"),
        (("1 2",), [3, 4], "3 4"),
        (("1 2",), np.array([3, 4]), "3 4"),
        (("-1 0.5",), " 1e-3   2 ", "1e-3 2"),
    ],
)
def test_a_change_is_written_as_the_presets_are(values, given, read):
    found = AllowedValues.of(values).read("n", given)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ((1,), "x"),
        ((1,), 1.0),
        ((1,), True),
        ((1,), None),
        ((1,), 0),
        ((0.1,), "nan"),
        ((0.1,), "inf"),
        ((0.1,), -1.0),
        (("1 2",), ""),
        (("1 2",), "1 0"),
        (("1 2",), []),
    ],
)
def test_a_change_of_another_kind_is_refused(values, given):
    with pytest.raises(InputError, match="settings: n must be"):
        AllowedValues.of(values).read("n", given)


def test_words_are_among_those_that_there_are():
    pictures = AllowedValues.of(["MNIST"], ("MNIST", "made-up digits"))
    assert pictures.read("data", "made-up digits") == "made-up digits"
    with pytest.raises(InputError, match="words among MNIST, made-up digits, got 'CIFAR'"):
        pictures.read("data", "CIFAR")
    examples = AllowedValues.of(["a b"], ("a", "b", "c"))
    assert examples.read("examples", "c a") == "c a"


def test_a_setting_is_changed_once():
    assert read_assignments(["a=1", "b=2 3"]) == {"a": "1", "b": "2 3"}
    with pytest.raises(InputError, match="each setting once, got 'a' twice"):
        read_assignments(["a=1", "a=2"])


def test_a_change_to_what_a_setting_is_changes_nothing():
    assert toy().varied({"count": COUNT}).changes == {}
    assert toy().varied({}).file_name == "toy"


def test_long_changes_have_files_of_their_own():
    made = toy(settings={Preset.SMOKE: {"sizes": "1 2"}})
    long = [made.varied({"sizes": list(range(1, 100 + i))}).file_name for i in range(2)]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 130


def test_data_do_not_change_with_what_does_not_concern_them():
    one, other = (Task("a", "b", (("n", 3), ("depth", depth))) for depth in (2, 3))
    draws = [task.rng(apart_from=["depth"]).random() for task in (one, other)]
    assert draws[0] == draws[1] == Task("a", "b", (("n", 3),)).rng().random()
    assert one.rng().random() != other.rng().random()


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_every_setting_of_every_figure_takes_its_own_values(experiment):
    for preset in Preset:
        for name, value in experiment.settings[preset].items():
            read = experiment.allowed[name].read(name, str(value))
            assert (read, type(read)) == (value, type(value))


# --- checks are claims ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (at_most([1.0, 2.0], 2.0), True),
        (at_most([1.0, 3.0], 2.0), False),
        (at_most([1.0, 3.0], [2.0, 3.0]), True),
        (at_least([1.0, 3.0], 2.0), False),
        (at_least(np.inf, 2.0), True),
        (at_least(-np.inf, -np.inf), False),
        (less_than(2.0, 2.0), False),
        (less_than(1.0, 2.0), True),
        (more_than(2.0, 2.0), False),
        (more_than(np.array([3.0]), 2.0), True),
        (true(np.True_), True),
        (true([]), False),
        (at_most([], 1.0), False),
        (at_most([np.nan, 0.0], 1.0), False),
        (at_least(1.0, np.nan), False),
    ],
)
def test_of_many_comparisons_the_worst_counts(claim, holds):
    assert Check("a", "b", "c", claim).holds is holds


def test_of_several_claims_one_that_fails_decides():
    check = Check("a", "b", "c", at_most(1.0, 2.0), at_most(np.nan, 1.0), *within(3.0, 1.0, 2.0))
    assert (check.decisive.measured, check.decisive.predicted) == (3.0, 2.0)
    assert check.verdict is Verdict.FAILS


def figure_of(*checks):
    return toy(check=lambda table: checks)


def test_what_a_preset_cannot_measure_fails(tmp_path):
    checks = (Check("a", "b", "nan", at_most(np.nan, 1.0)), Check("c", "d", "is nan", False))
    record = run(figure_of(*checks), preset="smoke", jobs=1, cache=tmp_path)
    assert [check.verdict for check in record.checks] == [Verdict.FAILS, Verdict.FAILS]


def test_what_other_settings_cannot_measure_says_nothing(tmp_path):
    checks = (
        Check("a", "b", "nan", at_most(np.nan, 1.0)),
        Check("c", "d", "is nan", False),
        Check("e", "f", "2", at_most(2.0, 1.0)),
        Check("g", "h", "1", at_most(1.0, 1.0)),
    )
    record = run(figure_of(*checks), preset="smoke", settings={"count": 5}, jobs=1, cache=tmp_path)
    assert [check.verdict.value for check in record.checks] == [
        *2 * ["says nothing here"],
        "FAILS",
        "holds",
    ]
    why = "the changed settings (count) leave nothing to measure it on"
    assert record.checks[0].measured == why
    assert "1 of 4 checks hold (2 of the 4 say nothing here)" in tally([record])


def test_a_figure_that_is_skipped_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("flowbias.experiments.record.Package.there", lambda self: False)
    figure = toy(needs=lambda task: ("cvxpy",))
    record = run(figure, preset="smoke", jobs=1, cache=tmp_path)
    assert (record.holds, record.complete, record.lacks) == (False, False, ("cvxpy",))
    assert "skipped: needs cvxpy. To get that: pip install 'flowbias[sdp]'" in repr(record)
    with pytest.raises(ValueError, match="skipped: needs cvxpy"):
        record.plot()
