"""Options that cannot be used: one line, exit code 2, nothing computed and nothing written."""

import pytest

from flowbias.apps.cli import ExitCode
from tests.apps.cli.program import invoke, only_line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("limit", "DATA"), "exactly one of them must be given, got neither"),
        (("limit", "DATA", "--scale", "1", "--log-scale", "0"), "must be given, got both"),
        (("limit", "DATA", "--scale", "0"), "--scale: must be a positive number, got '0'"),
        (("limit", "DATA", "--scale", "-1"), "--scale: must be a positive number, got '-1'"),
        (("limit", "DATA", "--scale", "tiny"), "--scale: must be a positive number, got 'tiny'"),
        (("limit", "DATA", "--log-scale", "nan"), "log_scale: must be finite, got nan"),
        (("limit", "DATA", "--log-scale", "x"), "--log-scale"),
        (("limit", "DATA", "--scale", "1", "--depth", "1"), "depth: must be >= 2 and finite"),
        (("limit", "DATA", "--scale", "1", "--depth", "inf"), "depth: must be >= 2 and finite"),
        (("limit", "DATA", "--scale", "1", "--shape", "2"), "shape: must lie in (-1, 1), got 2"),
        (
            ("limit", "DATA", "--scale", "1", "--shape", "0", "--depth", "3"),
            "--shape: must come with --depth 2, got depth 3",
        ),
        (("limit", "DATA", "--scale", "1", "--tol", "0"), "tol: must be a positive number"),
        (("limit", "DATA", "--scale", "1", "--out", "w.txt"), "must end in .npz or .csv"),
        (("limit", "DATA", "--scale", "1", "--out", "DATA/w.csv"), "is a file"),
        (("limit", "DATA", "--scale", "1", "--out", "FOLDER.csv"), "must be a file, got the"),
        (("limit",), "Missing argument"),
        (("limit", "DATA", "more", "--scale", "1"), "unexpected extra argument"),
        (("path", "DATA", "--from", "0"), "--from: must be a positive number, got '0'"),
        (("path", "DATA", "--to", "none"), "--to: must be a positive number, got 'none'"),
        (("path", "DATA", "--from", "1", "--to", "1.0"), "must be different scales"),
        (("path", "DATA", "--count", "1"), "--count: must be between 2 and 100000, got 1"),
        (("path", "DATA", "--shape", "2"), "shape: must lie in (-1, 1), got 2"),
        (("path", "DATA", "--out", "path.gif"), "must end in .png or .svg or .csv or .npz"),
        (("stages", "DATA", "--depth", "1"), "depth: must be >= 2 and finite"),
        (("stages", "DATA", "--max-stages", "0"), "max_stages: must be an integer >= 1, got 0"),
        (("stages", "DATA", "--tol", "0"), "tol: must be a positive number"),
        (("stages", "DATA", "--target", "y"), "target: must come with a .csv file, got 'y'"),
        (("stages", "DATA", "--out", "w.gif"), "must end in .png or .svg or .csv or .npz"),
        (("run",), "Missing argument"),
        (("run", "sound", "--jobs", "0"), "jobs: must be an integer >= 1, got 0"),
        (("run", "sound", "--jobs", "-1"), "jobs: must be an integer >= 1, got -1"),
        (("run", "sound", "--preset", "labtop"), "Did you mean 'laptop'?"),
        (("reproduce", "--preset", "papers"), "Did you mean 'paper'?"),
        (("run", "sond"), "Did you mean 'sound'?"),
        (("run", "sound", "--out", "DATA"), "out: must be a folder"),
        (("run", "sound", "--out", "DATA/deeper"), "out: must be a folder"),
        (("run", "sound", "--cache", "DATA"), "cache: must be a folder"),
        (("run", "sound", "--cluster", "nonsense"), "cluster: must be an address such as tcp://"),
        (("run", "sound", "--cluster", "tcp://host"), "cluster: must be an address such as"),
        (("rum",), "No such command 'rum'"),
        (("rum",), "Did you mean 'run'? Try: flowbias --help"),
        (("--nonsense",), "No such option: --nonsense"),
        (("limit", "DATA", "--scales", "1"), "No such option: --scales"),
    ],
)
@pytest.mark.usefixtures("catalogue")
def test_one_line_that_names_the_trouble(words, says, npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    run = invoke(*(word.replace("DATA", str(npz)) for word in words))
    assert run.exit_code == ExitCode.BAD_INPUT
    assert run.stdout == ""
    message = only_line(run.stderr)
    assert message.startswith("error: ")
    assert says in message
    assert sorted(tmp_path.rglob("*")) == before


def test_usage_errors_say_where_help_is():
    assert invoke("limit").stderr.endswith("Try: flowbias limit --help\n")
    assert invoke("--nonsense").stderr.endswith("Try: flowbias --help\n")
