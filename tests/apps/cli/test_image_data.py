"""`flowbias data`: list, fetch and verify, and how they end."""

import pytest

from flowbias.apps.cli import ExitCode
from flowbias.datasets.image_files import gunzip, public_address
from flowbias.datasets.image_sets import IMAGE_SETS
from tests import tiny_images as tiny
from tests.apps.cli.program import document, invoke, only_line, spawn
from tests.tiny_images import CONTENT, Shelved, tiny_from


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two small data sets in place of the genuine ones, and an empty data folder."""
    sets = {
        "tiny": tiny_from(Shelved({}, "first", "no network"), Shelved(CONTENT, "second")),
        "tiny-colours": tiny.TINY_COLOURS,
    }
    monkeypatch.setattr("flowbias.datasets.image_sets.IMAGE_SETS", sets)
    monkeypatch.setenv("FLOWBIAS_DATA", str(tmp_path))
    return tmp_path


def test_the_genuine_ones_are_listed(tmp_path):
    run = spawn("data", "list", FLOWBIAS_DATA=str(tmp_path))
    assert run.returncode == ExitCode.ALL_WELL
    assert [line.split()[0] for line in run.stdout.splitlines()[1:4]] == list(IMAGE_SETS)
    assert run.stdout.count(" 0 of ") == 3
    assert run.stderr == ""


def test_list_tells_how_much_is_there(folder):
    tiny.put(folder / "tiny", {"train-images": b"", "test-labels": b""})
    run = invoke("data", "list")
    assert run.exit_code == ExitCode.ALL_WELL
    assert run.stdout.splitlines()[1].split()[:4] == ["tiny", "2", "of", "4"]
    first, second = document(invoke("data", "list", "--json").stdout)["data_sets"]
    assert (first["name"], first["files"], first["files_there"]) == ("tiny", 4, 2)
    assert first["folder"] == str(folder / "tiny")
    assert first["bytes"] == sum(map(len, CONTENT.values()))
    assert first["sources"] == ["first", "second"]
    assert second["files_there"] == 0


def test_fetch_then_verify(folder):
    run = invoke("data", "fetch", "tiny")
    assert run.exit_code == ExitCode.ALL_WELL
    assert run.stdout == f"tiny: {folder / 'tiny'} (second)\n"
    assert run.stderr.splitlines() == [
        "tiny: first",
        "tiny: not from there: no network",
        "tiny: second",
    ]
    again = invoke("data", "fetch", "tiny", "--json")
    assert (again.exit_code, again.stderr) == (ExitCode.ALL_WELL, "")
    entry = {"name": "tiny", "folder": str(folder / "tiny"), "sources": []}
    assert document(again.stdout) == {"data_sets": [entry]}
    checked = invoke("data", "verify")
    assert checked.exit_code == ExitCode.ALL_WELL
    assert [line.split()[-1] for line in checked.stdout.splitlines()[1:]] == ["genuine"] * 4


def test_a_name_given_twice_counts_once(folder):
    entries = document(invoke("data", "fetch", "tiny", "tiny", "--json").stdout)["data_sets"]
    assert [entry["name"] for entry in entries] == ["tiny"]


def test_fetch_into_a_folder_of_choice(folder, tmp_path):
    invoke("data", "fetch", "tiny", "--folder", tmp_path / "other")
    assert (tmp_path / "other" / "tiny" / "test-images").read_bytes() == CONTENT["test-images"]
    assert not (folder / "tiny").exists()
    assert invoke("data", "verify", "tiny", "--folder", tmp_path / "other").exit_code == 0


def test_without_patience_nothing_is_asked_for(folder, monkeypatch):
    sets = {"tiny": tiny_from(public_address("http://127.0.0.1:9", {"a.gz": "0" * 64}, gunzip))}
    monkeypatch.setattr("flowbias.datasets.image_sets.IMAGE_SETS", sets)
    run = invoke("data", "fetch", "tiny", "--patience", "0")
    assert run.exit_code == ExitCode.NOT_WRITTEN
    assert "no time was left for it" in run.stderr


def test_what_no_source_has_is_output_that_could_not_be_written(folder):
    run = invoke("data", "fetch", "tiny-colours")
    assert run.exit_code == ExitCode.NOT_WRITTEN
    assert only_line(run.stderr).startswith("error: tiny-colours: could not be fetched")


def test_verify_finds_damage(folder):
    tiny.put(folder / "tiny", CONTENT | {"test-images": CONTENT["test-images"][:-1]})
    for words in ((), ("tiny",)):
        run = invoke("data", "verify", *words)
        assert run.exit_code == ExitCode.DOUBTFUL
        assert only_line(run.stderr).startswith(f"{folder / 'tiny' / 'test-images'}: must be")
        states = [line.split()[-1] for line in run.stdout.splitlines()[1:]]
        assert states == ["genuine", "genuine", "damaged", "genuine"]
    found = document(invoke("data", "verify", "--json").stdout)
    assert found["exit_code"] == ExitCode.DOUBTFUL
    assert [file["state"] for file in found["files"]].count("damaged") == 1


def test_verify_finds_what_is_missing_from_a_set_that_is_named_or_begun(folder):
    assert invoke("data", "verify").exit_code == ExitCode.ALL_WELL
    assert invoke("data", "verify", "tiny").exit_code == ExitCode.DOUBTFUL
    tiny.put(folder / "tiny", {"train-images": CONTENT["train-images"]})
    run = invoke("data", "verify")
    assert run.exit_code == ExitCode.DOUBTFUL
    assert run.stdout.count("absent") == 3
    assert "tiny-colours" not in run.stdout


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_an_unknown_name_is_refused_before_anything_is_fetched(folder, command):
    run = invoke("data", command, "tiny", "minst")
    assert run.exit_code == ExitCode.BAD_INPUT
    assert only_line(run.stderr) == ("error: NAME: must be one of tiny, tiny-colours, got 'minst'.")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", [("fetch", "tiny"), ("verify",), ("list",)])
def test_a_file_is_no_folder(folder, words):
    (folder / "file").write_text("")
    run = invoke("data", *words, "--folder", folder / "file")
    assert run.exit_code == ExitCode.BAD_INPUT
    assert only_line(run.stderr).startswith("error: --folder: must be a folder, got the file")


def test_without_a_command_it_explains_itself():
    run = invoke("data")
    assert run.exit_code == ExitCode.ALL_WELL
    for command in ("list", "fetch", "verify"):
        assert f" {command} " in run.stdout
        assert invoke("data", command, "--help").exit_code == ExitCode.ALL_WELL
