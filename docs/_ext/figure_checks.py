"""The page of all figures with their checks, computed in this build.

Every experiment of the catalogue is run at the preset `smoke`: its claims, what was measured and
the verdicts are what this build found, not what somebody wrote down. A check that fails is a
warning, and with `-W` the end of the build. The pictures are the committed ones of larger presets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flowbias.experiments import EXPERIMENTS, Preset, Record
from flowbias.experiments.record import known_costs
from flowbias.experiments.report import duration
from flowbias.experiments.runner import Options, run_many
from flowbias.theory import Verdict

PAGE = "figure_checks.md"
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")
INTRODUCTION = """\
# All figures with their checks

Written by `make docs`. Each claim that a caption makes is a check; the numbers below were measured
by this build at the preset `smoke`, which takes seconds a figure. The pictures are those of the
[gallery](gallery.md), which says at which preset they were computed. Where MNIST or CIFAR-10 was
not at hand, a figure says that its pictures are made up: its checks show that the program runs, not
what the paper found.
"""


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", _write_page)
    return {"parallel_read_safe": True}


def _write_page(app: Any) -> None:
    from sphinx.util import logging  # sections are made, and tested, without Sphinx

    if app.builder.format != "html":
        return
    options = Options(Preset.SMOKE, cache=Path(app.doctreedir).parent / "figure_cache")
    records = run_many(EXPERIMENTS, options)
    for record in records:
        for fault in faults(record):
            logging.getLogger(__name__).warning("%s: %s", record.experiment.name, fault)
    source = Path(app.srcdir)
    text = "\n".join([INTRODUCTION, *(section(record, source) for record in records)])
    file = source / PAGE
    # An unchanged page keeps its date, and Sphinx does not read it again.
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def faults(record: Record) -> list[str]:
    """How many tasks failed and why the first did, what was skipped, and checks that fail."""
    failed = [f"{len(record.failures)} tasks failed: {failure}" for failure in record.failures[:1]]
    skipped = [record.skipped] if record.lacks else []
    failing = [str(check) for check in record.checks if check.verdict is Verdict.FAILS]
    return failed + skipped + failing


def section(record: Record, source: Path) -> str:
    """One figure: what it is, its picture, its claims with numbers and verdicts."""
    return "\n".join(_section(record, source))


def _section(record: Record, source: Path) -> Iterator[str]:
    experiment = record.experiment
    yield f"({experiment.name})="
    yield f"## {_text(str(experiment.reference))}: {_text(record.title)}\n"
    yield f"{_text(experiment.summary)}\n"
    yield f"**The paper:** {_text(experiment.paper_says)}\n"
    if (source / "images" / f"{experiment.name}.png").exists():
        yield f"![{_text(experiment.title)}](images/{experiment.name}.png)\n"
    costs = known_costs().get(experiment.name, {})
    times = ", ".join(f"{preset} {duration(cost.seconds)}" for preset, cost in costs.items())
    spent = f" Time of one core: {times}." if times else ""
    yield f"`flowbias run {experiment.name}`{spent}\n"
    yield from _checks(record)


def _checks(record: Record) -> Sequence[str]:
    rows = [
        f"| {_text(check.claim)} | {_text(check.measured)} | {check.verdict.value} |"
        for check in record.checks
    ]
    return ["| claim | measured here | verdict |", "|---|---|---|", *rows, ""]


def _text(words: str) -> str:
    """Plain words for markdown: one line, no markup."""
    return SPECIAL.sub(r"\\\1", " ".join(words.split()))
