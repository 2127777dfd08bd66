"""Guides and questions show what the library prints, says and raises, word for word."""

import contextlib
import importlib
import io
import re
import shlex
import sys
import textwrap
from pathlib import Path

import pytest

from flowbias.results.solution import Status
from tests.apps.cli.program import invoke

DOCS = Path(__file__).resolve().parents[1] / "docs"
SINGLE = [
    DOCS / name for name in ("index.md", "start.md", "faq.md", "how_we_know.md", "extending.md")
]
PAGES = [*SINGLE, *sorted((DOCS / "guides").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def fences(page):
    """(language, text) of the blocks of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [(language, textwrap.dedent(text)) for _, language, text in found]


def printed_by(code, namespace):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs", "exec"), namespace)
    return out.getvalue()


def raised_by(code, namespace):
    """`Type: message` of what a line raises, or None."""
    try:
        eval(code, namespace)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shown(text):
    """One pattern for what a page shows: line breaks are free, ... stands for anything."""
    return ".*?".join(re.escape(part) for part in " ".join(text.split()).split("..."))


def entries(text, prompt):
    """(command, what is shown below it) of a block with prompts."""
    parts = re.split(rf"^{re.escape(prompt)} ", text, flags=re.MULTILINE)
    assert parts[0] == ""
    return [part.partition("\n")[::2] for part in parts[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_what_happens(page, tmp_path, monkeypatch):
    namespace = {"__name__": "docs"}
    blocks = fences(page)
    monkeypatch.setenv("FLOWBIAS_CACHE", str(tmp_path / "cache"))
    for (language, text), (next_language, following) in zip(
        blocks, [*blocks[1:], ("end", "")], strict=True
    ):
        if language == "python":
            # A block without a language below code is what the code prints.
            expected = following if next_language == "" else ""
            assert printed_by(text, namespace) == expected, text
        elif language == "pycon":
            for code, message in entries(text, ">>>"):
                said = raised_by(code, namespace)
                assert said is not None, f"{code} does not raise"
                assert re.fullmatch(shown(message), " ".join(said.split())), said
        elif language == "console":
            monkeypatch.chdir(namespace.get("folder", tmp_path))
            for command, output in entries(text, "$"):
                run_command(command, output)


def run_command(command, output):
    program, *words = shlex.split(command)
    assert program == "flowbias"
    run = invoke(*words)
    told = " ".join((run.stdout + run.stderr).split())
    # A page that shows an error says so by its first word; everything else has to succeed.
    assert (run.exit_code == 0) != output.startswith("error:"), told
    assert re.match(shown(output), told), told


def test_pages_have_something_of_each_kind():
    kinds = {language for page in PAGES for language, _ in fences(page)}
    assert {"python", "pycon", "console", ""} <= kinds


def test_every_status_is_explained():
    page = (DOCS / "faq.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)
    assert sorted(table) == sorted(status.name for status in Status)


def test_missing_torch_is_said_as_shown(monkeypatch):
    message = next(text for _, text in fences(DOCS / "faq.md") if text.startswith("ImportError"))
    monkeypatch.setitem(sys.modules, "torch", None)
    require_torch = importlib.import_module("flowbias.ground.torch").require_torch
    said = raised_by("require_torch()", {"require_torch": require_torch})
    assert re.fullmatch(shown(message), said)


def measured(text):
    """Rows of `| what | measured | by |`, with `same` written out."""
    rows, script = [], None
    for line in re.findall(r"^\| (.+ \| `?(?:benchmarks/|same).*) \|$", text, re.MULTILINE):
        what, figure, by = line.split(" | ")
        script = script if by == "same" else by
        rows.append((what, figure, script))
    return rows


def test_readme_and_benchmarks_say_the_same():
    rows = measured((DOCS / "benchmarks.md").read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows))
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    figures = {what: figure for what, figure, _ in rows}
    ours = figures["one certified limit, depth 2, scale 1e3 to 1e-10000"].split(", ")
    assert f"takes {', '.join(ours[:2])}" in readme
    assert figures["cvxpy with Clarabel"].split(",")[0] in readme


def test_every_benchmark_is_on_its_page():
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    scripts = (DOCS.parent / "benchmarks").glob("[!_]*.py")
    assert {script.name for script in scripts} == set(re.findall(r"`benchmarks/(\w+\.py)`", page))


def test_a_potential_takes_thirty_lines():
    _, code = fences(DOCS / "extending.md")[0]
    assert len(code.splitlines()) <= 30
