"""Data files that cannot be used: one line that says what is wrong and where; exit code 2."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from flowbias.apps.cli import ExitCode
from flowbias.apps.cli.files import read_data
from flowbias.ground.arguments import InputError
from tests.apps.cli.program import invoke, only_line

GOOD = "1,2,3\n4,5,7\n"


def refused(file: Path) -> str:
    """What all commands that read data say of a file."""
    told = []
    for words in (("limit", file, "--scale", "0.1"), ("path", file), ("stages", file)):
        run = invoke(*words)
        assert run.exit_code == ExitCode.BAD_INPUT
        assert run.stdout == ""
        told.append(only_line(run.stderr))
    assert told[0] == told[1] == told[2]
    assert told[0].startswith("error: ")
    return told[0]


def csv_file(folder: Path, text: str | bytes) -> Path:
    file = folder / "data.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty file"),
        ("\n \n\n", "empty file"),
        ("a,y\n", "a header and nothing below it"),
        ("1\n2\n", "got 1 in line 1"),
        ("1 2 3\n4 5 6\n", "Separate columns by commas"),
        ("1,2,3\n4,five,6\n", "line 2, column 2: must be a finite number, got 'five'"),
        ("a,b,y\n1,2,3\n\n4,,6\n", "line 4, column 2 (b): must be a finite number, got nothing"),
        ("1,2,3\n4,nan,6\n", "line 2, column 2: must be a finite number, got 'nan'"),
        ("1,2,3\n4,5,-inf\n", "line 2, column 3: must be a finite number, got '-inf'"),
        ("1,2,3\n4,5,1e999\n", "line 2, column 3: must be a finite number, got '1e999'"),
        ("1;2,5;3\n4;5.5;6\n", "got '2,5' with a decimal comma in line 1 and '5.5' with a point"),
        ("1,2,3\n4,5\n", "line 2: must have 3 columns like line 1, got 2"),
        ("1,2,3\n4,5,6,7\n", "line 2: must have 3 columns like line 1, got 4"),
        ("1,2,x3\n4,5,6\n", "line 1: must be a header or numbers, got both: column 3 is 'x3'"),
        (",a,y\n0,1,2\n", "line 1, column 1: has no name"),
        ("0,1,2\n5,6,7\n", "line 1: 0,1,2,... looks like column numbers"),
        ("y,a,y\n1,2,3\n", "must name every column differently, got 'y' twice"),
        ("0,0,1\n0,0,2\n", "X: must have a nonzero entry"),
        (b"1,2\n\xff\xfe,4\n", "must be text, got the byte 0xff at position 4"),
        ('"1,2\n3,4', "line"),
    ],
)
def test_csv_that_is_no_table_of_numbers(tmp_path, text, says):
    file = csv_file(tmp_path, text)
    message = refused(file)
    assert says in message
    assert str(file) in message


@pytest.mark.parametrize(
    ("text", "X", "y"),
    [
        (GOOD, [[1, 2], [4, 5]], [3, 7]),
        ("a,b,c\n" + GOOD, [[1, 2], [4, 5]], [3, 7]),
        ("a,y,b\n" + GOOD, [[1, 3], [4, 7]], [2, 5]),
        ("0,1,y\n" + GOOD, [[1, 2], [4, 5]], [3, 7]),
        ("y,0,1\n" + GOOD, [[2, 3], [5, 7]], [1, 4]),
        ("# a,b,c\n" + GOOD, [[1, 2], [4, 5]], [3, 7]),
        ("\ufeffa,b,c\r\n1,2,3\r\n4,5,7\r\n", [[1, 2], [4, 5]], [3, 7]),
        ("\ufeff" + GOOD, [[1, 2], [4, 5]], [3, 7]),
        (GOOD.replace(",", ";"), [[1, 2], [4, 5]], [3, 7]),
        (GOOD.replace(",", "\t"), [[1, 2], [4, 5]], [3, 7]),
        ('"a, first","b",c\n"1", 2 ,3\n4,5,7', [[1, 2], [4, 5]], [3, 7]),
        ("0.0,1,2\n5,6,7\n", [[0, 1], [5, 6]], [2, 7]),
    ],
)
def test_csv_that_is_one(tmp_path, text, X, y):
    data = read_data(csv_file(tmp_path, text))
    assert data.problem.X.tolist() == X
    assert data.problem.y.tolist() == y
    assert data.names is None or len(data.names) == 2


def npz_file(folder: Path, **members: object) -> Path:
    file = folder / "data.npz"
    np.savez(file, **members)
    return file


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"A": np.eye(2), "b": np.ones(2)}, "there is no X and no y; there is: 'A', 'b'"),
        ({"X": np.eye(2)}, "there is no y; there is: 'X'"),
        ({}, "there is: nothing"),
        ({"X": np.eye(2), "y": np.ones(3)}, "y: must have one entry per row of X (2), got 3"),
        ({"X": np.ones(2), "y": np.ones(2)}, "X: must have 2 dimension(s), got shape (2,)"),
        ({"X": np.eye(2), "y": np.eye(2)}, "y: must have 1 dimension(s), got shape (2, 2)"),
        ({"X": np.array([[1.0, np.nan]]), "y": np.ones(1)}, "got nan at index (0, 1)"),
        ({"X": np.array([["1", "2"]]), "y": np.ones(1)}, "X: must hold real numbers"),
        ({"X": np.empty((0, 2)), "y": np.empty(0)}, "X: must not be empty"),
    ],
)
def test_npz_without_the_right_arrays(tmp_path, members, says):
    file = npz_file(tmp_path, **members)
    message = refused(file)
    assert says in message
    assert str(file) in message


class Trap:
    """A pickle of this makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("inside_archive", [True, False])
def test_a_pickle_is_never_loaded(tmp_path, inside_archive):
    sprung, file = tmp_path / "sprung", tmp_path / "data.npz"
    if inside_archive:
        np.savez(file, X=np.array([[Trap(sprung)]], dtype=object), y=np.ones(1))
    else:
        file.write_bytes(pickle.dumps(Trap(sprung)))
    assert "cannot be read as a NumPy archive of numbers" in refused(file)
    assert not sprung.exists()
    # The trap is a real one.
    loaded = np.load(file, allow_pickle=True)
    if inside_archive:
        _ = loaded["X"]
    assert sprung.exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut short"])
def test_npz_that_is_no_archive(tmp_path, content):
    file = tmp_path / "data.npz"
    file.write_bytes(content)
    assert "cannot be read as a NumPy archive of numbers" in refused(file)


def test_npz_with_damaged_bytes(tmp_path):
    file = npz_file(tmp_path, X=np.arange(4000.0).reshape(2, 2000), y=np.ones(2))
    content = bytearray(file.read_bytes())
    content[5000] ^= 255
    file.write_bytes(content)
    assert "cannot be read as a NumPy archive of numbers" in refused(file)


def test_npz_that_is_a_single_array(tmp_path):
    file = tmp_path / "data.npz"
    with file.open("wb") as stream:
        np.save(stream, np.eye(2))
    assert "got a single array" in refused(file)


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_a_file_that_does_not_exist(tmp_path, suffix):
    assert "does not exist" in refused(tmp_path / f"nothing{suffix}")


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_a_folder(tmp_path, suffix):
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert "must be a file, got the folder" in refused(folder)


@pytest.mark.parametrize("name", ["data.txt", "data", "data.npy"])
def test_an_unknown_suffix(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    assert "must end in .npz or .csv" in refused(tmp_path / name)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    # Not by its permissions: those do not bind an administrator, who may be running this.
    def denied(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    file = csv_file(tmp_path, GOOD)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InputError, match=r"cannot read .*: Permission denied"):
        read_data(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('a,b,y\n"1,5","2,5",3\n4,5,6\n', "line 2: '1,5' may have a decimal comma or thousands"),
        ("Y,a,b\n1,2,3\n4,5,6\n", "has a column Y but none y"),
        ("a,a,y\n1,2,3\n4,5,6\n", "must name every column differently, got 'a' twice"),
        ("a,b,y\n1,1_000,3\n4,5,6\n", "line 2, column 2 (b): must be a finite number"),
    ],
)
def test_csv_that_would_have_to_be_guessed(tmp_path, text, says):
    file = tmp_path / "data.csv"
    file.write_text(text)
    run = invoke("limit", str(file), "--scale", "1")
    assert run.exit_code == ExitCode.BAD_INPUT
    assert says in run.stderr


def test_a_separator_inside_a_name_separates_nothing(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text('"height; cm","b",y\n1,2,3\n4,5,7\n')
    run = invoke("limit", str(file), "--scale", "1")
    assert run.exit_code == ExitCode.ALL_WELL, run.stderr
    assert "height; cm" in run.stdout


@pytest.mark.parametrize("command", ["limit", "path", "stages"])
def test_data_are_never_overwritten(tmp_path, command):
    file = tmp_path / "data.csv"
    file.write_text("a,b,y\n1,2,3\n4,5,7\n")
    scale = ["--scale", "1"] if command == "limit" else []
    run = invoke(command, str(file), *scale, "--out", str(tmp_path / "." / "data.csv"))
    assert run.exit_code == ExitCode.BAD_INPUT
    assert "must not be DATA itself" in run.stderr
    assert file.read_text() == "a,b,y\n1,2,3\n4,5,7\n"
