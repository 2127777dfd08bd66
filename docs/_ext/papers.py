"""The page of the papers: each of their statements, figures and errata with the call that has it.

Written from what the other pages and the catalogue of experiments already say, so that nothing is
said twice: the tables "Claims, code and tests" of the theory, the references of the figures and the
table of errata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flowbias.experiments import EXPERIMENTS

PAGE = "papers.md"
INTRODUCTION = """\
# The papers

What the papers say, each with the call that computes, tests or draws it. Claims are functions of
`flowbias.theory`; figures are drawn by the command beside them; an erratum says what is printed and
what is right, and leads to its test. Full names are [below the theory](theory/overview.md#papers);
`flowbias cite` prints them.
"""
# The letter by which the errata cite a paper, and the name by which claims and figures do.
PAPERS = {
    "W": ("woodworth2020", "Kernel and rich regimes (Woodworth et al., 2020)"),
    "A": ("azulay2021", "The shape of the start (Azulay et al., 2021)"),
    "M": ("min2021", "Two-layer linear networks (Min et al., 2021)"),
}
# Figures of the first paper's earlier version stand beside its own.
EARLIER = {"woodworth2020": "woodworth2019"}
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)


class Statement(NamedTuple):
    """A place in a paper, what it says, and the code that has it."""

    place: str
    claim: str
    code: str
    #: a link to the page that proves it
    proof: str


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", _write_page)
    return {"parallel_read_safe": True}


def _write_page(app: Any) -> None:
    file = Path(app.srcdir) / PAGE
    text = page(Path(app.srcdir))
    # An unchanged page keeps its date, and Sphinx does not read it again.
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def page(source: Path) -> str:
    """All papers, in the order of PAPERS."""
    statements = [found for file in sorted(source.glob("theory/*.md")) for found in claims(file)]
    errata = (source / "errata.md").read_text(encoding="utf-8")
    sections = [
        line
        for letter, (name, title) in PAPERS.items()
        for line in _section(letter, name, title, statements, errata)
    ]
    return "\n".join([INTRODUCTION, *sections]) + "\n"


def claims(file: Path) -> Iterator[Statement]:
    """The rows of a theory page that cite a paper, one for each place that they cite."""
    text = file.read_text(encoding="utf-8")
    title = text.splitlines()[0].removeprefix("# ")
    proof = f"[{title}](theory/{file.name})"
    for row in ROW.findall(text.partition("## Claims, code and tests")[2])[1:]:
        claim, papers, code, _ = (cell.strip() for cell in row.split(" | "))
        calls = ", ".join(re.findall(r"`\w+`", code))
        for paper in papers.split("; "):
            if cited := re.fullmatch(r"\[(\w+)\]\([^)]*\), (.+)", paper):
                yield Statement(f"{cited[1]}, {cited[2]}", claim, calls, proof)


def _section(
    letter: str, name: str, title: str, statements: list[Statement], errata: str
) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| place | statement | call | proof |\n|---|---|---|---|"
    for one in sorted((one for one in statements if one.place.startswith(name)), key=_by_place):
        place = one.place.removeprefix(f"{name}, ")
        yield f"| {place} | {one.claim} | {one.code} | {one.proof} |"
    yield "\n| figure | shows | command |\n|---|---|---|"
    for figure in EXPERIMENTS:
        reference = str(figure.reference)
        if reference.startswith((name, EARLIER.get(name, name))):
            link = f"[{reference}](figure_checks.md#{figure.name})"
            yield f"| {link} | {figure.title} | `flowbias run {figure.name}` |"
    yield "\n| erratum | place | printed | right |\n|---|---|---|---|"
    for row in re.findall(rf"^\| (\[{letter}\d+\].+) \|$", errata, re.MULTILINE):
        entry, place, printed, right, _ = row.split(" | ")
        yield f"| {entry.replace('](#', '](errata.md#')} | {place} | {printed} | {right} |"
    yield ""


def _by_place(statement: Statement) -> tuple[bool, list[str | int]]:
    """Numbered statements first; numbers in the order of numbers."""
    place = statement.place.partition(", ")[2]
    words = [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", place)]
    return not re.match(r"Theorem|Proposition|Lemma|Corollary|Remark", place), words
