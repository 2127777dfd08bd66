"""The table of a run: rows are families or entry points, columns what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.fuzz.runner import Record
from tests.fuzz.verdict import BOUND, FALSE, FOREIGN, GOOD, HANGS, REFUSED, UNJUDGED

# Seconds that a problem may take: any, and one below n = d = 50.
SLOW, SLOW_IF_SMALL = 5.0, 2.0

COLUMNS: dict[str, Callable[[Record], bool]] = {
    "drawn": lambda one: True,
    "certified": lambda one: one.kind == GOOD and one.status in ("CERTIFIED", "CERTIFICATE"),
    "other good": lambda one: one.kind == GOOD and one.status not in ("CERTIFIED", "CERTIFICATE"),
    "refused": lambda one: one.kind == REFUSED,
    "false": lambda one: one.kind == FALSE,
    "bound<error": lambda one: one.kind == BOUND,
    "foreign": lambda one: one.kind == FOREIGN,
    "hangs": lambda one: one.kind == HANGS,
    ">2s small": lambda one: one.small and one.seconds > SLOW_IF_SMALL,
    ">5s": lambda one: one.seconds > SLOW,
    "unjudged": lambda one: one.kind == UNJUDGED,
}


def table(records: Sequence[Record], by: str = "family") -> str:
    """Counts per family, or whatever else `by` names, and in total."""
    groups: dict[str, list[Record]] = {}
    for one in records:
        groups.setdefault(str(getattr(one, by)), []).append(one)
    rows = [(name, groups[name]) for name in sorted(groups)] + [("total", list(records))]
    lines = [[by, *COLUMNS]]
    lines += [
        [name, *(str(sum(map(test, part)) or ".") for test in COLUMNS.values())]
        for name, part in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def reasons(records: Sequence[Record]) -> str:
    """Why problems were refused or left unjudged, the most frequent first."""
    counts = Counter(
        f"{one.kind}: {one.status} {_gist(one.reason)}"
        for one in records
        if one.kind in (REFUSED, UNJUDGED)
    )
    return "\n".join(f"{count:6d}  {reason}" for reason, count in counts.most_common())


def _gist(reason: str) -> str:
    """A message up to its first number or colon, so that like is counted with like."""
    words = []
    for word in reason.split():
        if any(character.isdigit() for character in word):
            break
        words.append(word)
    return " ".join(words)[:70]
