"""A run computes each task once, keeps what succeeded, says what failed, repeats to the bit."""

import io
import os
import sys
import threading

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from flowbias.experiments import Check, Preset, cache, run
from flowbias.experiments.cache import Cache
from flowbias.experiments.progress import Lines
from flowbias.experiments.record import tally
from flowbias.experiments.report import mark_of
from flowbias.experiments.runner import Options, run_many
from flowbias.experiments.workers import rows_of
from flowbias.ground import sources
from flowbias.ground.arguments import InputError
from flowbias.theory import Reference, Verdict
from flowbias.theory.claim import Statement
from tests.experiments.toy import COUNT, compute_or_die, compute_or_fail, toy

TOTAL = COUNT + 1


@pytest.fixture
def log(tmp_path, monkeypatch):
    file = tmp_path / "log"
    file.touch()
    monkeypatch.setenv("TOY_LOG", str(file))
    return file


@pytest.fixture
def cached(tmp_path):
    """A run of the toy with its own cache, in this process, telling into a string."""

    def start(experiment=None, told=None, **options):
        progress = Lines(told or io.StringIO())
        return run(
            experiment or toy(),
            **{"preset": "smoke", "cache": tmp_path / "cache", "jobs": 1, **options},
            progress=progress,
        )

    start.folder = tmp_path / "cache"
    return start


def computed(log):
    return log.read_text().splitlines()


def test_the_second_run_computes_nothing_and_has_the_same_table(cached, log):
    first, second = cached(), cached()
    assert len(computed(log)) == TOTAL
    assert (first.counts.computed, second.counts.cached) == (TOTAL, TOTAL)
    assert first.table.digest == second.table.digest
    assert first.holds
    assert second.compute_seconds == first.compute_seconds


def test_a_record_says_what_stands_in_for_the_papers_data(cached):
    made_up = toy(stand_in=lambda task: "made-up sums" if task.part == "sums" else "")
    record = cached(made_up)
    assert record.title == "A toy <b> (made-up sums)"
    assert [check.claim for check in record.checks] == ["made-up sums: all values are finite"]
    assert repr(record).startswith("Record(toy (made-up sums), smoke: ")
    assert "(made-up sums)" in record._repr_html_()
    assert tally([record, record]) == "2 of 2 checks hold (2 of the 2 on made-up sums)"
    plain = cached()
    assert plain.title == "A toy <b>"
    assert tally([record, plain]) == "2 of 2 checks hold (1 of the 2 on made-up sums)"
    assert tally([plain]) == "1 of 1 check holds"


def test_a_figure_that_fails_says_it_as_well(cached):
    broken = toy(compute=compute_or_fail, stand_in=lambda task: "made-up sums")
    record = cached(broken)
    assert record.title == "A toy <b> (made-up sums)"
    assert tally([record]) == "nothing checked"


def test_processes_and_order_do_not_matter(cached, tmp_path):
    assert cached().table.digest == cached(cache=tmp_path / "other", jobs=2).table.digest


def test_rows_are_in_the_order_of_the_tasks(cached):
    table = cached().table
    assert_array_equal(table.part("sums")["i"], np.repeat(np.arange(COUNT), 2))
    assert table.columns["part"][-1] == "words"


def test_random_numbers_depend_on_the_name_of_the_task_alone():
    first, second = toy().task_list(Preset.SMOKE)[:2]
    same = toy().task_list(Preset.PAPER)[0]
    assert first.rng().integers(2**60) == same.rng().integers(2**60)
    assert first.rng().integers(2**60) != second.rng().integers(2**60)


def test_presets_share_the_tasks_that_they_share(cached, log):
    cached(preset="smoke")
    larger = toy(settings={Preset.SMOKE: {"count": COUNT}, Preset.LAPTOP: {"count": COUNT + 2}})
    assert vars(cached(larger, preset="laptop").counts) == {
        **dict.fromkeys(("stale", "failed", "skipped"), 0),
        "computed": 2,
        "cached": TOTAL,
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_task_is_reported_and_tried_again_and_the_others_are_kept(cached, jobs):
    told = io.StringIO()
    record = cached(toy(compute=compute_or_fail), told=told, jobs=jobs)
    (failure,) = record.failures
    assert failure.cause == "FloatingPointError: told to fail"
    assert "i=3" in failure.task
    assert "toy.py" in failure.traceback
    assert str(failure) in told.getvalue()
    assert record.counts.failed == 1
    assert record.table is None
    assert not record.holds
    with pytest.raises(ValueError, match="told to fail"):
        record.plot()
    assert record.compute_seconds > 0
    mended = cached()
    assert (mended.counts.computed, mended.counts.cached) == (1, TOTAL - 1)
    assert mended.holds


def test_a_process_that_dies_is_reported_and_the_other_tasks_are_done(cached):
    record = cached(toy(compute=compute_or_die), jobs=2)
    assert record.counts.computed == TOTAL - 1
    (failure,) = record.failures
    assert "i=3" in failure.task
    assert "TerminatedWorkerError" in failure.cause
    assert cached().counts.computed == 1


class Panic(BaseException):
    """What Rust raises in Python is no Exception."""


def panic(task):
    raise Panic("unwrapped nothing")


def test_a_panic_is_a_failure_not_a_crash(cached):
    record = cached(toy(compute=panic))
    assert record.counts.failed == TOTAL
    assert record.failures[0].cause == "Panic: unwrapped nothing"


def test_a_task_that_cannot_be_sent_is_a_failure_not_a_crash(cached):
    lock = threading.Lock()

    def compute_here(task):
        with lock:
            return {"value": [1.0]}

    record = cached(toy(compute=compute_here, check=lambda table: []), jobs=2)
    assert record.counts.failed == TOTAL
    assert "Could not pickle" in record.failures[0].cause


def test_a_damaged_entry_is_computed_again(cached, log):
    first = cached()
    entries = sorted(cached.folder.rglob("*.npz"))
    entries[0].write_bytes(entries[0].read_bytes()[:-20])
    entries[1].write_bytes(b"")
    told = io.StringIO()
    second = cached(told=told)
    assert (second.counts.computed, second.counts.cached) == (2, TOTAL - 2)
    assert "2 cache entries cannot be used" in told.getvalue()
    assert str(entries[0].parent) in told.getvalue()
    assert second.table.digest == first.table.digest
    assert cached().counts.cached == TOTAL


def unwritable(tmp_path):
    """A folder that even root cannot write to, where there is one."""
    if os.geteuid() == 0:
        return "/proc/flowbias-cache"
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    return folder / "cache"


def test_an_unwritable_cache_loses_no_result(cached, tmp_path):
    told = io.StringIO()
    record = cached(told=told, cache=unwritable(tmp_path))
    assert record.holds
    assert record.table.digest == cached().table.digest
    assert told.getvalue().count("results cannot be kept") == 1


def test_changed_sources_are_computed_again_unless_told_otherwise(cached, log, monkeypatch):
    first = cached()
    for module in ("cache", "workers", "runner"):
        monkeypatch.setattr(f"flowbias.experiments.{module}.fingerprint", lambda **_: "f" * 16)
    cache.fingerprint_of.cache_clear()
    stale = cached(keep_stale=True)
    assert stale.counts.stale == TOTAL
    assert stale.table.digest == first.table.digest
    assert len(computed(log)) == TOTAL
    assert cached().counts.computed == TOTAL
    assert cached(keep_stale=True).counts.cached == TOTAL


@pytest.fixture(autouse=True)
def forgetful():
    """Fingerprints that a test has made up are not remembered."""
    yield
    cache.fingerprint_of.cache_clear()


def test_a_worker_with_other_sources_refuses(cached, monkeypatch):
    monkeypatch.setattr("flowbias.experiments.workers.fingerprint_of", lambda _: "0" * 16)
    record = cached()
    assert record.counts.failed == TOTAL
    assert "Install the same ones" in record.failures[0].cause


def threads(task):
    return {"threads": [max(pool["num_threads"] for pool in threadpool_info())]}


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_blas_thread_per_task(cached, jobs):
    with threadpool_limits(2, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        record = cached(toy(compute=threads, check=lambda table: []), jobs=jobs)
        assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert_array_equal(np.unique(record.table["threads"]), [1.0])


def test_a_check_that_breaks_is_a_failure_not_a_crash(cached):
    def broken(table):
        yield Check("a", "b", "c", True)
        raise KeyError("no such column")

    record = cached(toy(check=broken))
    assert not record.holds
    assert "no such column" in record.failures[0].cause
    assert record.table is not None


def test_a_computed_column_may_not_hide_a_setting():
    task = toy().task_list(Preset.SMOKE)[0]
    with pytest.raises(ValueError, match=r"\['i'\]"):
        rows_of(task, {"i": [1.0]})


def test_several_experiments_share_one_queue(tmp_path):
    names = [toy(name=name) for name in ("one", "two")]
    options = Options(Preset.SMOKE, jobs=2, cache=tmp_path)
    records = run_many(names, options, Lines(io.StringIO()))
    assert [record.experiment.name for record in records] == ["one", "two"]
    # Seeds come from names, so that two experiments do not share their random numbers.
    assert records[0].table.digest != records[1].table.digest


@pytest.mark.parametrize("jobs", [0, -1, 1.5, "two"])
def test_bad_jobs(jobs):
    with pytest.raises(InputError, match=rf"jobs: must be an integer >= 1, got {jobs!r}"):
        run(toy(), jobs=jobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": "woodworth-fg1"}, "Did you mean 'woodworth-fig1'"),
        ({"experiment": "woodworth-fig1", "preset": "smok"}, "Did you mean 'smoke'"),
        ({"experiment": "woodworth-fig1", "preset": "?"}, "preset: must be one of"),
    ],
)
def test_unknown_names_suggest_the_nearest(arguments, message):
    with pytest.raises(InputError, match=message):
        run(**arguments)


def test_cache_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(InputError, match=r"cache: must be a folder, but .*file is none"):
            run(toy(), cache=tmp_path / place)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"], ids=["too long", "null byte"])
def test_cache_whose_name_no_folder_can_have(tmp_path, name):
    with pytest.raises(InputError, match=r"cache: must be a folder, but .* cannot be one \("):
        run(toy(), cache=tmp_path / name / "below")


def test_a_function_without_a_file_is_refused(tmp_path):
    names = {}
    exec("def compute(task): return {}", names)
    with pytest.raises(InputError, match="defined in a file"):
        run(toy(compute=names["compute"]), cache=tmp_path)


def test_entries_of_a_users_experiment_follow_its_file(tmp_path):
    marks = set()
    for source in ("def compute(task): return {}", "def compute(task): return {'a': 1}"):
        file = tmp_path / "own.py"
        file.write_text(source)
        names = {}
        exec(compile(source, str(file), "exec"), names)
        marks.add(cache.fingerprint_of(np.errstate(all="ignore")(names["compute"])))
    assert len(marks) == 2
    assert sources.fingerprint() not in marks


def test_the_cache_has_a_folder_for_each_experiment(cached):
    cached()
    assert {file.parent for file in cached.folder.rglob("*.npz")} == {
        Cache(cached.folder).folder / "toy"
    }


def leave(task):
    sys.exit(7)


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no")


def speak(task):
    raise UnspeakableError


@pytest.mark.parametrize("compute", [leave, speak])
@pytest.mark.parametrize("jobs", [1, 2])
def test_no_task_can_end_the_run(cached, compute, jobs):
    assert cached(toy(compute=compute), jobs=jobs).counts.failed == TOTAL


def nothing(task):
    return None


def test_a_computation_must_return_columns(cached):
    assert (
        "must return columns by name, got NoneType"
        in cached(toy(compute=nothing)).failures[0].cause
    )


def awkward(task):
    return {"file": [1.0], "allow_pickle": [2.0], "__entry__": ["a"], "description": [3.0]}


def test_columns_may_have_any_name(cached):
    experiment = toy(compute=awkward, check=lambda table: [])
    assert cached(experiment).table.digest == cached(experiment).table.digest
    assert set(awkward(None)) < set(cached(experiment).table.columns)


def mixed(task):
    return {"value": ["a"] if task.part == "words" else [1.0]}


def test_a_column_is_numbers_or_words(cached):
    record = cached(toy(compute=mixed))
    assert "is numbers in one task and words in another" in record.failures[0].cause


def test_a_check_must_be_a_check(cached):
    assert "must give Check objects" in cached(toy(check=lambda table: [True])).failures[0].cause
    assert type(Check("a", "b", "c", np.bool_(True)).holds) is bool


@pytest.mark.parametrize("name", ["", "../up", "/up/x", "a b", "[/b]", "UPPER"])
def test_names_are_safe_as_files(name):
    with pytest.raises(InputError, match="name: must be"):
        toy(name=name)


def test_what_a_preset_does_not_give_is_as_in_the_one_before_it():
    small, large = {"size": 3, "count": 1}, {"count": 2}
    made = toy(settings={Preset.LAPTOP: large, Preset.SMOKE: small})
    assert list(made.settings.values()) == [small, *3 * [{"size": 3, "count": 2}]]
    # The order of the names is that of the names of tasks.
    assert list(made.settings[Preset.PAPER]) == ["size", "count"]
    with pytest.raises(InputError, match="must hold the preset smoke, got laptop"):
        toy(settings={Preset.LAPTOP: large})
    with pytest.raises(InputError, match="preset smoke, got none for 'odd' of paper"):
        toy(settings={Preset.SMOKE: small, Preset.PAPER: {"odd": 3}})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a", {"i": 1}), ("a", {"i": 1})], "must all be different, got 'toy/a i=1' 2 times"),
        ([("a", {"part": 1})], "got part=1"),
        ([("a", {"i": [1, 2]})], r"got i=\[1, 2\]"),
    ],
)
def test_tasks_are_told_apart_by_plain_settings(pairs, message):
    with pytest.raises(InputError, match=message):
        toy(tasks=lambda settings: pairs).task_list(Preset.SMOKE)


def test_a_number_has_one_name():
    names = {
        toy(tasks=lambda settings, x=x: [("a", {"x": x})]).task_list(Preset.SMOKE)[0].name
        for x in (0.1, np.float64(0.1))
    }
    assert names == {"toy/a x=0.1"}


def test_a_check_of_a_claim_takes_its_verdict_and_its_reason():
    bound = Statement(Reference("woodworth2020", "Theorem 2"), "nearly the least norm", "none")
    claims = (
        bound.at_most("a", 1.0, 2.0),
        bound.at_most("a", 2.0, 1.0),
        bound.at_most("a", 1.0, 2.0, silence="only one fit"),
    )
    checks = [Check("norm", "the norm is small", "one", claim) for claim in claims]
    assert [check.verdict for check in checks] == list(Verdict)
    assert [check.holds for check in checks] == [True, False, False]
    assert str(checks[0]) == "holds: the norm is small (one)"
    assert str(checks[2]) == "says nothing here: the norm is small (only one fit)"
    assert [mark_of(check).value for check in checks] == ["holds", "fails", "says nothing here"]
