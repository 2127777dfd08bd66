"""Runs of every kind, with real drawings, and a reader for the pages made of them."""

import dataclasses
import functools
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np

from flowbias.experiments._base import Check, Experiment, Panel, Preset
from flowbias.experiments.drawing import (
    Drawing,
    PanelDrawing,
    draw,
    draw_band,
    name_line,
    reference_line,
)
from flowbias.experiments.record import Counts, Failure, Provenance, Record
from flowbias.experiments.report import page
from flowbias.experiments.table import Summary, Table
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from flowbias.theory import Reference

SCRIPT = "<script>alert('&amp;')</script>\"'"
TRACEBACK = "Traceback (most recent call last):\n  " + "a line far too long for a phone " * 6
VERSIONS = {"flowbias": "0.1.0", "python": "3.11.0", "numpy": "2.0.0", "torch": "not installed"}
PROVENANCE = Provenance(
    command="flowbias reproduce --preset smoke",
    preset="smoke",
    versions=VERSIONS,
    sources="0123456789abcdef" * 4,
    machine="Linux x86_64",
    cores=2,
    jobs=None,
    cluster=None,
    started=datetime(2026, 3, 14, 15, 9, tzinfo=UTC),
    seconds=95.3,
    keep_stale=False,
)
HOLDS = Check("falls", "the error falls with the scale", "0.886 to 0.0094", True)
FAILS = Check("proved", "every limit is certified", "319 of 320", False)
FAILURES = (
    Failure("lost/path depth=3", "SolveError: gap 1e-3", TRACEBACK),
    Failure("lost/path depth=4", "ImportError: no torch", "first of two"),
    Failure("lost/path depth=5", "ImportError: no torch", "second of two"),
)


def draw_curves(axes, table):
    """Lines, a clipped band and labels, as most panels have them."""
    x = table["x"]
    for depth in (2, 5):
        y = x**depth
        draw_band(axes, x, Summary(x, y, 0.8 * y, 1.2 * y), color=DEPTH_COLOURS[depth])
        name_line(axes, f"D = {depth}", 0.8, 0.8**depth, colour=DEPTH_COLOURS[depth])
    reference_line(axes, text="least l1 norm", y=0.5)
    axes.set_xlim(0.2, 0.9)
    axes.set_xlabel("scale of the start α")


def draw_bars(axes, table):
    """Other glyphs and other clip paths than the curves have."""
    axes.bar(table["x"], table["x"], width=0.1, hatch="//", color="none", edgecolor=INK)
    axes.text(0.2, 0.6, "BLACK", color="black")
    axes.set_xlabel("number of samples n")


CURVES = Panel("a", "error against the scale", draw_curves)
BARS = Panel("b", "error against the number of samples, a title of two lines", draw_bars)
TABLE = Table.of({"x": np.linspace(0.0, 1.0, 11)})


def at_all_presets(**settings):
    return {preset: dict(settings) for preset in Preset}


def experiment(name="woodworth-fig1", *panels, **changes):
    made = Experiment(
        name=name,
        title=f"what {name} is about",
        reference=Reference("woodworth2020", "Figure 1"),
        summary="A network learns.\n\nIts start decides.",
        paper_says="Small starts generalize.",
        settings=at_all_presets(d=1000, noise_var=0.01, depths="2, 3, 5"),
        tasks=lambda settings: [],
        compute=lambda task: {},
        panels=panels or (CURVES,),
        check=lambda table: [],
    )
    return dataclasses.replace(made, **changes)


def complete(made, *checks, counts=None):
    """A record whose tasks all succeeded."""
    return Record(made, Preset.SMOKE, TABLE, checks, (), counts or Counts(4, 2), (81.2,))


def incomplete(made, failures=FAILURES):
    """A record without a table."""
    counts = Counts(computed=5, failed=len(failures))
    return Record(made, Preset.SMOKE, None, (), failures, counts, (3.0,))


@functools.cache
def svg_of(drawn):
    """A panel's real SVG, drawn once for all tests."""
    return draw((Panel("", "", drawn),), TABLE).panels[0].svg


def drawing_of(panels):
    named = (PanelDrawing(panel.name, panel.title, svg_of(panel.draw)) for panel in panels)
    return Drawing(png=b"", svg="", panels=tuple(named))


def page_of(*records, provenance=PROVENANCE):
    drawings = {
        record.experiment.name: drawing_of(record.experiment.panels)
        for record in records
        if record.complete
    }
    return page(records, drawings, provenance)


def every_kind_of_record():
    """Three panels, two, one, none: holding, failing with stale results, unchecked, incomplete."""
    return (
        complete(experiment("woodworth-fig1", CURVES, BARS, CURVES), HOLDS),
        complete(experiment("woodworth-fig2", BARS, CURVES), HOLDS, FAILS, counts=Counts(1, 2, 3)),
        complete(experiment("azulay-fig7-1", reference=Reference("azulay2021", "Figure 7.1"))),
        incomplete(experiment("lost", reference=Reference("flowbias", "docs/theory.md", "4"))),
    )


class Parsed(HTMLParser):
    """Elements with their attributes, and the text by the section (`""` outside) it stands in."""

    BLOCKS = ("dd", "dt", "div", "figcaption", "h2", "h3", "li", "p", "pre", "summary", "td", "th")

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self.section, self.tag = [], {}, "", ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tag = tag
        self._add(" " if tag in self.BLOCKS else "")
        if tag == "section":
            self.section = attributes.get("id", "")
        self.elements.append((self.section, tag, attributes))

    def handle_endtag(self, tag):
        if tag == "section":
            self.section = ""

    def handle_data(self, data):
        self._add("" if self.tag == "style" else data)

    def _add(self, text):
        self.text[self.section] = self.text.get(self.section, "") + text

    def tags(self, name, section=None):
        return [a for s, tag, a in self.elements if tag == name and section in (None, s)]

    def words(self, section=""):
        return " ".join(self.text[section].split())


def parsed(*records, **options):
    return Parsed(page_of(*records, **options))


def hostile_records():
    """A script in every place that a text comes from."""
    failure = Failure(SCRIPT, SCRIPT, SCRIPT)
    panels = (Panel(SCRIPT, SCRIPT, draw_bars), Panel("b", SCRIPT, draw_bars))
    texts = {"title": SCRIPT, "summary": SCRIPT, "paper_says": SCRIPT}
    texts |= {"reference": Reference(SCRIPT, SCRIPT, SCRIPT)}
    texts |= {"settings": at_all_presets(**{SCRIPT: SCRIPT})}
    check = Check(SCRIPT, SCRIPT, SCRIPT, False)
    return (
        complete(experiment("hostile", *panels, **texts), check, counts=Counts(stale=1)),
        incomplete(experiment("lost", **texts), (failure, failure)),
    )


def hostile_provenance():
    texts = dict.fromkeys(("command", "preset", "sources", "machine", "cluster"), SCRIPT)
    return dataclasses.replace(PROVENANCE, versions={"flowbias": SCRIPT, SCRIPT: SCRIPT}, **texts)
