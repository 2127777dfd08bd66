"""Docstrings as they are written here, for autodoc.

They are plain text: single backticks for code, indented formulas, tables with bars, `>>>` examples.
Read as reStructuredText, `|w|` would be a substitution and `w_` a link, so everything that is not
code is escaped first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

SPECIAL = re.compile(r"([\\*_|`])")
BULLET = re.compile(r"[-*] ")
# A word and its meaning, the meanings below each other.
COLUMNS = re.compile(r"\S+ {2,}\S")
RULE = re.compile(r"-{3,}")


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    app.connect("builder-inited", _one_signature_each)
    return {"parallel_read_safe": True}


def _one_signature_each(app: Any) -> None:
    """Calls that are overloaded for type checkers open with what they take, once."""
    from sphinx.pycode import ModuleAnalyzer

    for name in ("flowbias.limits.solve", "flowbias.flows.integrate", "flowbias.flows.descent"):
        analyzer = ModuleAnalyzer.for_module(name)
        analyzer.analyze()
        analyzer.overloads.clear()


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)
    if what == "function" and name.startswith("flowbias.theory."):
        example = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
        lines[example:example] = restructured(theorem_sections(obj))


def theorem_sections(function: Any) -> list[str]:
    """Parameters of a theorem: those of its module's glossary that it takes."""
    import flowbias.theory

    meanings = glossary(inspect.getdoc(flowbias.theory) or "")
    names = inspect.signature(function).parameters
    entries = [f"{name} : {meanings[name]}" for name in names]
    return ["Parameters", "----------", *entries]


def glossary(text: str) -> dict[str, str]:
    """What each name of a section Parameters means."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.sub(r"\n +", " ", section[1]).splitlines() if section else []
    pairs = (entry.split(" : ", 1) for entry in entries)
    return {name: meaning for names, meaning in pairs for name in names.split(", ")}


def restructured(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring as reStructuredText that looks the same."""
    text: list[str] = []
    for block in _blocks(lines):
        text += [*_block(block), ""]
    return text


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Groups of lines between blank ones; a formula with gaps in it stays one group."""
    group: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            group.append(line.rstrip())
        elif group:
            yield group
            group = []


def _block(block: list[str]) -> list[str]:
    first = block[0]
    if first.startswith(">>>"):
        return block
    if first.startswith(" "):
        return _verbatim(block)
    if first.startswith("|") and first.endswith("|"):
        return _table(block)
    if len(block) > 1 and RULE.fullmatch(block[1]):
        return [f".. rubric:: {first}", "", *_entries(block[2:])]
    if sum(map(bool, map(COLUMNS.match, block))) > 1:
        return _verbatim(block)
    return _lines(block)


def _verbatim(block: list[str]) -> list[str]:
    return [".. code-block:: text", "", *(f"   {line}" for line in block)]


def _entries(block: list[str]) -> list[str]:
    """`name : meaning`, going on in indented lines, as a list."""
    entries = [f"  {line.lstrip()}" if line.startswith(" ") else f"- {line}" for line in block]
    return _lines(entries)


def _table(block: list[str]) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block]
    text = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        marks = ["   * - ", *["     - "] * (len(row) - 1)]
        text += [mark + cell for mark, cell in zip(marks, _cells(row), strict=True)]
    return text


def _cells(row: list[str]) -> list[str]:
    return ["\n".join(_lines([cell])) for cell in row]


def _lines(lines: list[str]) -> list[str]:
    """Escaped line by line, unless code in backticks goes on in the next one."""
    return _escaped("\n".join(lines)).split("\n")


def _escaped(text: str) -> str:
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a lone backtick is none of code
        return _plain(text)
    return "".join(_code(part) if i % 2 else _plain(part) for i, part in enumerate(parts))


def _code(text: str) -> str:
    return f"\\ ``{text}``\\ " if text.strip() else ""


def _plain(text: str) -> str:
    return "\n".join(_plain_line(line) for line in text.split("\n"))


def _plain_line(line: str) -> str:
    space = line[: len(line) - len(line.lstrip())]
    rest = line[len(space) :]
    if mark := BULLET.match(rest):
        return space + mark[0] + SPECIAL.sub(r"\\\1", rest[mark.end() :])
    return space + SPECIAL.sub(r"\\\1", rest)
