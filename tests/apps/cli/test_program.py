"""The program around the commands: versions, help, citations, and what it does with exceptions."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import flowbias
from flowbias.apps.cli import ExitCode
from flowbias.apps.cli.program import judge
from flowbias.experiments.workers import ClusterError
from flowbias.ground.arguments import InputError
from tests.apps.cli.program import SOURCE, environment, invoke, only_line, spawn

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (
    "list",
    "run",
    "reproduce",
    "limit",
    "predict",
    "path",
    "stages",
    "cite",
    "data",
    "regime",
)


def test_version():
    run = spawn("--version")
    assert (run.returncode, run.stdout) == (0, f"flowbias {flowbias.__version__}\n")


def test_help_lists_every_command_and_exit_code():
    run = invoke("--help")
    assert run.exit_code == ExitCode.ALL_WELL
    for name in COMMANDS:
        assert re.search(rf"\b{name} ", run.stdout)
    for code in ExitCode:
        assert code.meaning
        assert re.search(rf"\b{code.value}  {re.escape(code.meaning)}", run.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command):
    for option in ("--help", "-h"):
        run = invoke(command, option)
        assert run.exit_code == ExitCode.ALL_WELL
        assert f"Usage: flowbias {command}" in run.stdout


def test_without_words_the_program_explains_itself():
    run = invoke()
    assert run.exit_code == ExitCode.ALL_WELL
    assert run.stdout.split() == invoke("--help").stdout.split()


def test_help_of_limit_explains_data_files():
    words = " ".join(invoke("limit", "--help").stdout.replace("│", " ").split())
    assert "y is the column of that name or of --target, or else the last one" in words


# --- citations ------------------------------------------------------------------------------------


def unlatexed(bibtex: str) -> str:
    return " ".join(re.sub(r"[{}]", "", bibtex.replace(r"{\'e}", "é")).split())


def test_cite_agrees_with_the_citation_file():
    facts = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    told = unlatexed(invoke("cite").stdout)
    for title in re.findall(r'title: "([^"]+)"', facts):
        assert title in told
    for family, given in re.findall(r'family-names: (\S+), given-names: "?([^"}]+)"?}', facts):
        assert f"{family}, {given}" in told
    for key, year in (("woodworth2020", 2020), ("azulay2021", 2021), ("min2021", 2021)):
        assert re.search(rf"@(inproceedings|misc){key},.*?year = {year}", told)
    for number in re.findall(r'value: "arXiv:([^"]+)"', facts):
        assert f"eprint = {number}, archivePrefix = arXiv" in told
    assert re.search(rf"@softwareflowbias,.*?version = {re.escape(flowbias.__version__)}", told)


def test_bibtex_is_balanced():
    bibtex = invoke("cite").stdout
    assert bibtex.count("{") == bibtex.count("}")
    assert bibtex.isascii()
    assert len(re.findall(r"^@\w+{\w+,$", bibtex, re.MULTILINE)) == 4


# --- exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("depth: too deep"), ExitCode.BAD_INPUT, "depth: too deep"),
        (ClusterError("no scheduler"), ExitCode.NO_CLUSTER, "no scheduler"),
        (OSError(28, "No space left", "w.csv"), ExitCode.NOT_WRITTEN, "No space left: w.csv"),
        (OSError("two\nlines"), ExitCode.NOT_WRITTEN, "two lines"),
    ],
)
def test_exceptions_that_are_expected(error, code, message):
    assert judge(error) == (code, message)


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("division by zero")


def test_a_bug_is_called_a_bug(npz, monkeypatch):
    monkeypatch.setattr("flowbias.limits.limit", broken)
    run = invoke("limit", npz, "--scale", "1")
    assert run.exit_code == ExitCode.BUG == 70
    message = only_line(run.stderr)
    assert "this is a bug in flowbias (ZeroDivisionError: division by zero)" in message
    assert "--debug" in message


@pytest.mark.parametrize("place", [0, 1, 4])
def test_debug_shows_the_traceback_wherever_it_stands(npz, monkeypatch, place):
    monkeypatch.setattr("flowbias.limits.limit", broken)
    words = ["limit", npz, "--scale", "1"]
    run = invoke(*words[:place], "--debug", *words[place:])
    assert run.exit_code == ExitCode.BUG
    assert "in broken" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("error: this is a bug")


def test_debug_shows_the_traceback_of_bad_input_too():
    run = invoke("limit", "nothing.csv", "--scale", "1", "--debug")
    assert run.exit_code == ExitCode.BAD_INPUT
    assert "Traceback" in run.stderr
    assert "in read_data" in run.stderr


def test_ctrl_c_outside_a_run_is_one_word(npz, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flowbias.limits.limit", interrupted)
    run = invoke("limit", npz, "--scale", "1")
    assert (run.exit_code, run.stderr) == (ExitCode.INTERRUPTED, "interrupted\n")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
@pytest.mark.parametrize(
    "words", [("limit", "--scale", "1"), ("path", "--count", "2"), ("stages",)]
)
def test_output_that_cannot_be_written(npz, words):
    command, *options = words
    run = invoke(command, npz, *options, "--out", "/proc/flowbias/w.csv")
    assert run.exit_code == ExitCode.NOT_WRITTEN
    assert "cannot write '/proc/flowbias/w.csv'" in only_line(run.stderr)


def test_a_failed_write_leaves_the_old_file(npz, tmp_path, monkeypatch):
    file = tmp_path / "w.csv"
    file.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    run = invoke("limit", npz, "--scale", "1", "--out", file)
    assert run.exit_code == ExitCode.NOT_WRITTEN
    assert "No space left on device" in only_line(run.stderr)
    assert file.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz", "w.csv"]


# --- as a process ---------------------------------------------------------------------------------


def test_help_loads_nothing_that_computes_or_draws():
    # With a bare package in place of flowbias/__init__.py, what is loaded is loaded by the program.
    program = f"""
import sys, types
package = types.ModuleType("flowbias")
package.__path__ = [{str(SOURCE / "flowbias")!r}]
sys.modules["flowbias"] = package
from flowbias.apps.cli import app
try:
    app(["--help"])
except SystemExit as end:
    assert end.code == 0
sys.stderr.write(" ".join(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = run.stderr.split()
    heavy = {"numpy", "scipy", "sklearn", "matplotlib", "dask", "distributed", "jinja2", "joblib"}
    assert {name.split(".")[0] for name in loaded} & heavy == set()
    ours = {name for name in loaded if name.startswith("flowbias.")}
    # data_files: how JSON is written.
    needed = ("flowbias.apps.cli", "flowbias.apps.data_files")
    others = {name for name in ours if not name.startswith(needed)}
    assert others == {"flowbias.apps", "flowbias._version"}


def test_a_reader_that_has_seen_enough_is_no_error(npz):
    # The pipe closes while the program still writes; there is nothing to say about that.
    process = subprocess.Popen(
        [sys.executable, "-m", "flowbias", "cite"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(timeout=60)


def test_letters_that_the_terminal_lacks(tmp_path):
    (tmp_path / "d.csv").write_text("α,b,y\n1,2,3\n", encoding="utf-8")
    run = spawn("limit", "d.csv", "--scale", "1", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (run.returncode, run.stderr) == (0, "")
    assert "?" in run.stdout


def test_the_project_installs_the_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["flowbias"] == "flowbias.apps.cli:main"
