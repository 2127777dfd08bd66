"""Every statement of the theory pages leads to its paper, its code and its test, and all exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.theory.test_claims import PUBLIC_CLAIMS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs" / "theory").glob("*.md")), ROOT / "docs" / "derive.md"]
TESTS = ROOT / "tests"
PAPER = re.compile(r"\[\w+\]\([\w./]*#(woodworth2020|min2021|azulay2021)\), (.+)")
HEAD = "| claim | paper | code | tests |\n|---|---|---|---|\n"


class Row(NamedTuple):
    """One line of a table, its page beside it."""

    page: Path
    claim: str
    paper: str
    code: str
    tests: str


def rows_of(page):
    _, table = page.read_text(encoding="utf-8").split(HEAD)
    lines = table.strip().splitlines()
    return [Row(page, *(cell.strip() for cell in line.strip("|").split(" | "))) for line in lines]


ROWS = [
    pytest.param(row, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, row in enumerate(rows_of(page))
]


@cache
def defined_in(path):
    """Names of the functions and classes at the top of a file, which is read and not imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def source_of(row):
    (target,) = re.findall(r"\]\(([^)]+)\)", row.code)
    return (row.page.parent / target).resolve()


def names_of(row):
    return set(re.findall(r"`(\w+)`", row.code))


@pytest.mark.parametrize("row", ROWS)
def test_code_exists(row):
    assert row.claim
    assert source_of(row).is_relative_to(ROOT / "src" / "flowbias")
    assert names_of(row)
    assert names_of(row) <= defined_in(source_of(row))


@pytest.mark.parametrize("row", ROWS)
def test_tests_exist(row):
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", row.tests)
    assert named
    assert len(named) == len(row.tests.split(", "))
    for test, target in named:
        file = (row.page.parent / target).resolve()
        assert file.is_relative_to(TESTS)
        assert test in defined_in(file), f"{file.name}::{test}"


def test_tests_named_elsewhere_exist():
    """As `folder/file.py::test`, on any page."""
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    named = {pair for text in texts for pair in re.findall(r"`(\w+/\w+\.py)::(\w+)`", text)}
    assert len(named) > 10
    missing = {(file, test) for file, test in named if test not in defined_in(TESTS / file)}
    assert not missing


@pytest.mark.parametrize("row", [p for p in ROWS if "theory/" in p.values[0].code])
def test_place_is_the_one_that_the_claim_cites(row):
    """A claim carries its reference: the table must name a place that its source file names."""
    source = source_of(row).read_text(encoding="utf-8")
    for cited in row.paper.split("; "):
        own = re.fullmatch(r"here, \[(.+)\]\(#[\w-]+\)", cited)
        place = own[1] if own else PAPER.fullmatch(cited)[2]
        assert f'"{place}"' in source, place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_own_proofs_are_on_the_page(page):
    text = page.read_text(encoding="utf-8")
    for section, anchor in re.findall(r"here, \[(.+?)\]\(#([\w-]+)\)", text):
        assert f"\n## {section}\n" in text
        assert anchor == re.sub(r"[^\w -]", "", section.lower()).replace(" ", "-")


def test_every_claim_of_the_library_is_in_a_table():
    listed = [name for row in ROWS for name in names_of(row.values[0])]
    missing = set(PUBLIC_CLAIMS) - set(listed)
    assert not missing
    twice = {name for name in PUBLIC_CLAIMS if listed.count(name) > 1}
    assert not twice, "one home per claim"
