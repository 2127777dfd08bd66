"""docs/errata.md is one complete table: every row names tests, and every one of them exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[([A-Z]\d+)\]\(#([a-z]\d+)\) \|(.*)\|$", re.MULTILINE)
ROWS = {entry: (anchor, cells.split(" | ")) for entry, anchor, cells in ROW.findall(PAGE)}


def test_functions():
    """Names of the tests of all modules in this folder, read and not imported."""
    modules = sorted((ROOT / "tests" / "theory").glob("test_*.py"))
    trees = [ast.parse(module.read_text(encoding="utf-8")) for module in modules]
    return {
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


test_functions.__test__ = False
TESTS = test_functions()


def test_table_is_read():
    lines = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(lines) == len(ROWS) >= 26


@pytest.mark.parametrize("entry", ROWS)
def test_row_names_tests_that_exist(entry):
    anchor, cells = ROWS[entry]
    assert anchor == entry.lower()
    assert len(cells) == 4  # place, printed, right, tests
    named = re.findall(r"`(\w+)`", cells[-1])
    assert named
    assert set(named) <= TESTS


@pytest.mark.parametrize("entry", ROWS)
def test_row_has_its_section(entry):
    assert len(re.findall(rf"^## {entry}$", PAGE, re.MULTILINE)) == 1


def test_every_section_has_its_row():
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == set(ROWS)


def test_every_test_of_an_erratum_is_in_its_row():
    """A test is of an erratum where its name starts with one, as test_w3_... does with W3."""
    for name in TESTS:
        of = re.match(r"test_([wmao]\d+)_", name)
        if of:
            assert of[1].upper() in ROWS, f"{name}: add its row to docs/errata.md"
            assert f"`{name}`" in ROWS[of[1].upper()][1][-1], name


def test_entries_are_cited_by_their_name():
    """Where code or theory pages speak of an erratum, there is one of that name."""
    cited = set()
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    for source in sources:
        text = " ".join(source.read_text(encoding="utf-8").split())
        for cite in re.findall(r"docs/errata\.md, ([^)]*)\)", text):
            cited |= set(re.findall(r"\b[WMAO]\d+\b", cite))
    assert cited
    assert cited <= set(ROWS)
