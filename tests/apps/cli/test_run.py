"""`flowbias run`, `reproduce`, `list`: verdicts, files, exit codes, going on after Ctrl-C."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowbias.apps.cli import ExitCode
from flowbias.experiments import EXPERIMENTS, Preset
from flowbias.experiments.record import Cost
from tests.apps.cli import tiny
from tests.apps.cli.program import document, environment, invoke, only_line, spawn

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def smoke(catalogue, tmp_path):
    """Run these words with tiny experiments, in folders of this test's own."""

    def run(*words):
        options = ("--preset", "smoke", "--jobs", "1")
        folders = ("--out", tmp_path / "out", "--cache", tmp_path / "cache")
        return invoke(*words, *options, *folders)

    return run


def test_verdicts_and_a_page_that_says_which_command_made_it(smoke, tmp_path):
    run = smoke("run", "sound")
    assert run.exit_code == ExitCode.ALL_WELL
    assert "holds squares are squares (3 of them)" in " ".join(run.stdout.split())
    assert f"page: {tmp_path / 'out' / 'sound.html'}\n" in run.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *("sound.html", "sound.png", "sound.svg", "sound.csv")
    }
    assert "tasks to compute" in run.stderr
    page = (tmp_path / "out" / "sound.html").read_text(encoding="utf-8")
    words = " ".join(re.sub(r"<[^>]*>", "", page).split())
    assert "flowbias run sound --preset smoke --jobs 1 --out" in words


def test_a_check_that_fails_ends_with_1(smoke):
    run = smoke("run", "doubtful")
    assert run.exit_code == ExitCode.DOUBTFUL
    assert "FAILS squares are below one (largest 4)" in " ".join(run.stdout.split())
    assert "1 of 2 checks hold" in run.stdout


def test_cache_entries_that_are_links_to_themselves_are_computed_again(smoke, tmp_path):
    smoke("run", "sound")
    for entry in (tmp_path / "cache").rglob("*.npz"):
        entry.unlink()
        entry.symlink_to(entry)
    again = smoke("run", "sound")
    assert again.exit_code == ExitCode.ALL_WELL
    assert "cache entries cannot be used and are computed again" in again.stderr
    assert "cannot be used" not in smoke("run", "sound").stderr


def test_one_experiment_that_fails_is_enough(smoke):
    assert smoke("run", "sound", "doubtful").exit_code == ExitCode.DOUBTFUL


def test_a_task_that_fails_ends_with_3_and_costs_nobody_else(smoke, tmp_path):
    run = smoke("run", "doubtful", "failing", "sound")
    assert run.exit_code == ExitCode.TASKS_FAILED
    assert "failing/square number=1: ArithmeticError: one is too few" in run.stdout
    assert (tmp_path / "out" / "sound.png").exists()
    assert not (tmp_path / "out" / "failing.png").exists()
    assert "Traceback" not in run.stdout + run.stderr
    assert "in compute_or_fail" in smoke("run", "failing", "--debug").stderr


def test_a_drawing_that_fails_ends_with_3(smoke):
    run = smoke("run", "undrawn", "--json")
    assert run.exit_code == ExitCode.TASKS_FAILED
    (record,) = document(run.stdout)["records"]
    assert "no ink" in record["failures"][0]["cause"]
    assert record["files"] == []


def test_json_is_one_document_and_the_rest_goes_elsewhere(smoke, tmp_path):
    run = smoke("run", "sound", "failing", "--json")
    told = document(run.stdout)
    assert run.exit_code == told["exit_code"] == ExitCode.TASKS_FAILED
    sound, failing = told["records"]
    assert (sound["name"], sound["preset"], sound["holds"]) == ("sound", "smoke", True)
    assert sound["counts"] == {"computed": 3, "cached": 0, "stale": 0, "failed": 0, "skipped": 0}
    assert sound["checks"] == [
        {
            "name": "squares",
            "claim": "squares are squares",
            "measured": "3 of them",
            "holds": True,
            "silence": "",
            "verdict": "holds",
            "comparison": [1.0, ">=", 1.0],
        }
    ]
    assert all(Path(file).is_file() for file in sound["files"])
    assert len(sound["files"]) == 3
    assert sound["page"] == told["page"] == str(tmp_path / "out" / "selection.html")
    assert failing["counts"]["failed"] == len(failing["failures"]) == 1
    assert (failing["complete"], failing["checks"], failing["files"]) == (False, [], [])
    again = document(smoke("run", "sound", "--json").stdout)["records"][0]
    assert again["counts"] == {"computed": 0, "cached": 3, "stale": 0, "failed": 0, "skipped": 0}


@pytest.fixture
def with_made_up(monkeypatch):
    """The catalogue of a sound experiment and of one whose numbers are made up."""
    pair = tiny.loaders(tiny.SOUND, tiny.MADE_UP)
    monkeypatch.setattr("flowbias.experiments.catalogue.LOADERS", pair)


def test_what_is_made_up_is_said_wherever_it_is_named(smoke, with_made_up, tmp_path):
    told = " ".join(smoke("reproduce").stdout.split())
    assert "made-up The made-up one (made-up numbers) (woodworth2020, Figure 0)" in told
    assert "holds made-up numbers: squares are squares (3 of them)" in told
    assert "2 of 2 checks hold (1 of the 2 on made-up numbers)" in told
    # And of the other one it is not said.
    assert "sound The sound one (woodworth2020, Figure 0)" in told
    assert "holds squares are squares (3 of them)" in told
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert page.count("The made-up one (made-up numbers)") == 2
    assert "2 of 2 checks hold (1 of the 2 on made-up numbers)" in page


def test_what_is_made_up_is_said_to_machines(smoke, with_made_up):
    told = document(smoke("reproduce", "--json").stdout)
    assert told["checks"] == {"total": 2, "hold": 2, "on_stand_ins": {"made-up numbers": 1}}
    sound, made_up = told["records"]
    assert (sound["stand_in"], made_up["stand_in"]) == ("", "made-up numbers")
    assert sound["checks"][0]["claim"] == "squares are squares"
    assert made_up["checks"][0]["claim"] == "made-up numbers: squares are squares"


def test_a_name_given_twice_is_run_once(smoke):
    told = document(smoke("run", "sound", "sound", "--json").stdout)
    assert [record["name"] for record in told["records"]] == ["sound"]


def test_reproduce_runs_everything(smoke, catalogue):
    told = document(smoke("reproduce", "--json").stdout)
    assert [record["name"] for record in told["records"]] == [e.name for e in catalogue]


def test_the_preset_is_laptop_unless_given(catalogue, tmp_path):
    words = ("--jobs", "1", "--out", tmp_path / "out", "--cache", tmp_path / "cache", "--json")
    (record,) = document(invoke("run", "sound", *words).stdout)["records"]
    assert (record["preset"], record["counts"]["computed"]) == ("laptop", 5)


def test_stale_results_are_used_only_if_asked_for(smoke, monkeypatch):
    smoke("run", "sound")
    for module in ("runner", "workers"):
        monkeypatch.setattr(f"flowbias.experiments.{module}.fingerprint_of", lambda _: "0" * 16)
    kept = document(smoke("run", "sound", "--keep-stale", "--json").stdout)["records"][0]
    assert kept["counts"]["stale"] == 3
    fresh = document(smoke("run", "sound", "--json").stdout)["records"][0]
    assert fresh["counts"]["computed"] == 3


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_page_that_cannot_be_written_ends_with_4(catalogue, tmp_path):
    words = ("--preset", "smoke", "--jobs", "1", "--cache", tmp_path)
    run = invoke("run", "sound", *words, "--out", "/proc/flowbias")
    assert run.exit_code == ExitCode.NOT_WRITTEN
    assert run.stdout == ""
    assert "error: cannot write /proc/flowbias/sound.png" in run.stderr


def test_a_cluster_that_is_not_there_ends_with_5(smoke, monkeypatch):
    monkeypatch.setattr("flowbias.experiments.workers.CLUSTER_PATIENCE", 0.2)
    run = smoke("run", "sound", "--cluster", "tcp://127.0.0.1:1")
    assert run.exit_code == ExitCode.NO_CLUSTER
    assert run.stderr.splitlines()[-1].startswith("error: cluster: ")


# --- Ctrl-C ---------------------------------------------------------------------------------------

PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from flowbias.experiments import catalogue
from tests.apps.cli import tiny
catalogue.LOADERS = tiny.loaders(*tiny.ALL)
from flowbias.apps.cli import main
main()
"""


@pytest.fixture
def start(tmp_path):
    """Begin a run, by way of another program if given; it is within its second of three tasks."""
    now = tmp_path / "now"
    words = ("run", "sound", "--preset", "smoke", "--jobs", "1")
    folders = ("--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"))
    started = []

    def begin(*by_way_of):
        process = subprocess.Popen(
            [*by_way_of, sys.executable, "-c", PROGRAM, *words, *folders],
            env=environment(**{tiny.SLOW: str(now)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        deadline = time.monotonic() + 60.0
        while not now.exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline, "no task in a minute"
            time.sleep(0.01)
        return process, now

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_after_ctrl_c_the_same_command_goes_on(start, smoke, tmp_path):
    process, _ = start()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert stdout == ""
    assert stderr.splitlines()[-1] == (
        "interrupted: finished tasks are kept, and the same command continues from here"
    )
    assert "Traceback" not in stderr
    assert not (tmp_path / "out").exists()
    (record,) = document(smoke("run", "sound", "--json").stdout)["records"]
    assert record["counts"] == {"computed": 2, "cached": 1, "stale": 0, "failed": 0, "skipped": 0}


def test_a_background_job_of_a_script_is_not_for_ctrl_c(start):
    """A shell has it ignored in such jobs, because it is meant for what runs in front."""
    process, now = start("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    process.send_signal(signal.SIGINT)
    now.unlink()
    process.communicate(timeout=60)
    assert process.returncode == ExitCode.ALL_WELL


# --- list -----------------------------------------------------------------------------------------


def test_list_shows_names_and_the_cost_of_each_preset(catalogue, monkeypatch):
    measured = {"smoke": 2.5, "laptop": 200.0, "paper": 4000.0}
    costs = {"sound": {preset: Cost(s, "a slow one") for preset, s in measured.items()}}
    monkeypatch.setattr("flowbias.experiments.record.known_costs", lambda: costs)
    header, *lines = invoke("list").stdout.splitlines()
    assert header.split() == ["name", "smoke", "laptop", "paper", "full", "title"]
    assert [line for line in lines if line.endswith(" ")] == []
    words = "sound 2.5 200 4000 - The sound one"
    assert " ".join(lines[0].split()) == words
    # A sum with a part that nobody measured is no sum.
    assert " ".join(lines[4].split()) == "all - - - -"
    assert "(a slow one)" in lines[-2]
    assert [line.split()[0] for line in lines[:4]] == [e.name for e in catalogue]


def test_the_list_fits_into_a_window():
    lines = invoke("list").stdout.splitlines()
    assert max(map(len, lines)) <= 112  # with times of four digits
    assert "woodworth-fig1" in lines[1]


def test_lines_for_other_programs_are_not_broken(monkeypatch):
    long = tiny.experiment("long", title="word " * 50 + "end")
    monkeypatch.setattr("flowbias.experiments.catalogue.LOADERS", tiny.loaders(long))
    assert invoke("list").stdout.splitlines()[1].endswith("word word end")


def test_list_for_machines(catalogue):
    first = document(invoke("list", "--json").stdout)["experiments"][0]
    assert first == {
        "name": "sound",
        "title": "The sound one",
        "reference": "woodworth2020, Figure 0",
        "tasks": {"smoke": 3, "laptop": 5, "paper": 8, "full": 8},
        "cpu_seconds": {},
        "seconds_on_two_cores": {},
        "genuine": {},
        "settings": {
            "count": {"may_be": "an integer >= 1", "smoke": 3, "laptop": 5, "paper": 8, "full": 8}
        },
    }


def test_the_list_says_what_smoke_has_where_the_data_are_at_hand():
    assert "smoke where the data are at hand: data MNIST, images 5000" in invoke(
        "list", "woodworth-fig6c"
    ).stdout.replace("\n", " ")
    assert "at hand: " not in invoke("list", "woodworth-fig1").stdout


def test_list_of_the_papers_figures():
    told = document(invoke("list", "--json").stdout)["experiments"]
    assert [entry["name"] for entry in told] == [e.name for e in EXPERIMENTS]
    assert all(count > 0 for entry in told for count in entry["tasks"].values())


def test_unknown_names_as_a_process_of_its_own():
    run = spawn("run", "woodworth-fgi1", "--preset", Preset.SMOKE)
    assert run.returncode == ExitCode.BAD_INPUT
    assert "Did you mean 'woodworth-fig" in only_line(run.stderr)


def test_list_of_one_figure_shows_its_settings_and_how_to_change_one(catalogue):
    told = invoke("list", "sound").stdout
    (row,) = [line for line in told.splitlines() if line.startswith("count")]
    assert row.split() == ["count", "an", "integer", ">=", "1", "3", "5", "8", "8"]
    assert "flowbias run sound --set count=3" in told  # of smoke: at laptop it is 5


# --- other settings -------------------------------------------------------------------------------


def test_other_settings_have_files_of_their_own(smoke, tmp_path):
    smoke("run", "sound")
    run = smoke("run", "sound", "--set", "count=4", "--json")
    (record,) = document(run.stdout)["records"]
    assert run.exit_code == ExitCode.ALL_WELL
    assert record["changes"] == {"count": 4}
    # What the preset has computed already is not computed again.
    assert (record["counts"]["computed"], record["counts"]["cached"]) == (1, 3)
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"sound.csv", "sound.html", "sound_count=4.csv", "sound_count=4.html"} <= names
    assert len((tmp_path / "out" / "sound.csv").read_text().splitlines()) == 4
    page = (tmp_path / "out" / "sound_count=4.html").read_text()
    assert "The sound one (count = 4)" in page
    again = "flowbias run sound --preset smoke --set count=4"
    assert again in " ".join(re.sub("<[^>]+>", "", page).split())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cuont=4", "must be among count; got 'cuont'. Did you mean 'count'?"),
        ("count=4.5", "count must be an integer >= 1, got '4.5'"),
        ("count=0", "count must be an integer >= 1, got '0'"),
        ("count=3 4", "count must be an integer >= 1, got '3 4'"),
        ("count=", "count must be an integer >= 1, got ''"),
        ("count", "must be NAME=VALUE, such as sparsity=10, got 'count'"),
    ],
)
def test_settings_that_are_none_are_refused_before_anything_is_computed(smoke, word, message):
    run = smoke("run", "sound", "--set", word)
    assert run.exit_code == ExitCode.BAD_INPUT
    assert message in only_line(run.stderr)


# --- what is not at hand --------------------------------------------------------------------------


@pytest.fixture
def without_torch(monkeypatch):
    """A catalogue of which one figure needs what is not at hand."""
    far = tiny.experiment("far", needs=lambda task: ("torch", "MNIST"))
    monkeypatch.setattr("flowbias.experiments.catalogue.LOADERS", tiny.loaders(far, tiny.SOUND))
    for kind in ("Package", "Pictures"):
        monkeypatch.setattr(f"flowbias.experiments.record.{kind}.there", lambda self: False)


def test_what_is_not_at_hand_is_said_once_and_what_needs_it_is_skipped(
    smoke, without_torch, tmp_path
):
    run = smoke("reproduce")
    assert run.exit_code == ExitCode.ALL_WELL
    command = "pip install 'flowbias[nets]' && flowbias data fetch mnist"
    said = f"far: skipped, for want of torch, MNIST. To get them: {command}"
    assert run.stderr.count("skipped") == 1
    assert said == run.stderr.splitlines()[0]
    assert f"skipped  needs torch, MNIST. To get that: {command}" in run.stdout
    assert "1 of 1 check holds, figures skipped: 1" in run.stdout
    page = (tmp_path / "out" / "index.html").read_text()
    assert "1 figure skipped" in " ".join(page.split())
    assert "(needs torch, MNIST)" in page
    assert not (tmp_path / "out" / "far.csv").exists()


def test_what_was_skipped_is_told_to_machines(smoke, without_torch):
    far, sound = document(smoke("reproduce", "--json").stdout)["records"]
    assert (far["lacks"], far["complete"], far["files"]) == (["torch", "MNIST"], False, [])
    assert (far["counts"]["skipped"], far["failures"]) == (3, [])
    assert sound["lacks"] == []


def test_what_is_kept_needs_nothing(smoke, without_torch, monkeypatch):
    with monkeypatch.context() as at_hand:
        for kind in ("Package", "Pictures"):
            at_hand.setattr(f"flowbias.experiments.record.{kind}.there", lambda self: True)
        assert smoke("run", "far").exit_code == ExitCode.ALL_WELL
    (far,) = document(smoke("run", "far", "--json").stdout)["records"]
    assert (far["complete"], far["lacks"]) == (True, [])


# --- what it costs --------------------------------------------------------------------------------


def test_costs_are_added_to_a_file(smoke, tmp_path):
    file = tmp_path / "costs.json"
    smoke("run", "sound", "--costs", file)
    smoke("run", "doubtful", "failing", "--costs", file)
    smoke("run", "sound", "--set", "count=2", "--costs", file)
    told = document(file.read_text())
    # What failed and what is not a preset has no cost; tiny ones cost less than a second.
    assert {name: list(costs) for name, costs in told.items()} == {
        "doubtful": ["smoke"],
        "sound": ["smoke"],
    }
    assert 0.0 <= told["sound"]["smoke"]["seconds"] < 1.0
    assert "cores" in told["sound"]["smoke"]["machine"]


def test_a_file_that_is_no_file_of_costs_is_refused(smoke, tmp_path):
    file = tmp_path / "costs.json"
    file.write_text("[1]")
    run = smoke("run", "sound", "--costs", file)
    assert run.exit_code == ExitCode.BAD_INPUT
    assert "costs: must be a file that a run has written" in run.stderr.splitlines()[-1]
    assert file.read_text() == "[1]"
