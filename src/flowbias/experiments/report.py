"""The page: figures, verdicts and failures of a run as one HTML file that asks for no other file.

The text is a pure function of its arguments. Everything that comes from outside is escaped by the
template, and a drawing is parsed and written anew, so that what stands on the page is well-formed.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from flowbias import theory
from flowbias.experiments._base import Check
from flowbias.experiments.drawing import Drawing
from flowbias.experiments.record import Counts, Failure, Provenance, Record, command_for, tally
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import BLUE, DEPTH_COLOURS, INK, RED
from flowbias.theory import Reference

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "page.html.jinja"


class Standing(Enum):
    """What a reader learns first; the worst one comes last."""

    HOLDS = "holds"
    UNCHECKED = "says nothing here"
    SKIPPED = "skipped"
    INCOMPLETE = "incomplete"
    FAILS = "fails"

    @property
    def style(self) -> str:
        """Its class in the style sheet and its icon."""
        return self.name.lower()


_MARKS = {
    theory.Verdict.HOLDS: Standing.HOLDS,
    theory.Verdict.FAILS: Standing.FAILS,
    theory.Verdict.SILENT: Standing.UNCHECKED,
}


class Paper(NamedTuple):
    """How the page cites a paper that CITATION.cff lists."""

    authors: str
    year: int
    title: str
    venue: str


PAPERS = {
    "woodworth2020": Paper(
        "Woodworth et al.",
        2020,
        "Kernel and Rich Regimes in Overparametrized Models",
        "COLT 2020",
    ),
    "min2021": Paper(
        "Min et al.",
        2021,
        "Convergence and Implicit Bias of Gradient Flow on Overparametrized Linear Networks",
        "arXiv:2105.06351",
    ),
    "azulay2021": Paper(
        "Azulay et al.",
        2021,
        "On the Implicit Bias of Initialization Shape: Beyond Infinitesimal Mirror Descent",
        "ICML 2021",
    ),
}
OURSELVES = "flowbias"  # the paper of a Reference that no paper prints
#: Versions of a paper that print other figures, by the year in their key.
EARLIER = {"woodworth2019": "woodworth2020"}


class InlinePanel(NamedTuple):
    """A panel whose SVG can stand in the page beside all others."""

    title: str
    svg: str
    #: what its ids begin with
    prefix: str

    @property
    def thumbnail(self) -> str:
        """The panel once more, small: a reference to what is on the page already."""
        view = re.search(r'viewBox="([-\d. ]+)"', self.svg)
        drawn = re.search(rf'id="({re.escape(self.prefix)}figure_\d+)"', self.svg)
        if view is None or drawn is None:
            return ""
        return f'<svg viewBox="{view[1]}" aria-hidden="true"><use href="#{drawn[1]}"/></svg>'


class Cause(NamedTuple):
    """Why tasks failed, once for all tasks that failed for the same reason."""

    text: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Section:
    """One experiment as the template sees it; without panels, it could not be drawn."""

    record: Record
    panels: tuple[InlinePanel, ...]

    @property
    def name(self) -> str:
        return self.record.experiment.name

    @property
    def complete(self) -> bool:
        """Whether everything that was tried was computed, judged and drawn."""
        return bool(self.record.lacks) or (self.record.complete and not self.record.failures)

    @property
    def verdict(self) -> Standing:
        if self.record.lacks:
            return Standing.SKIPPED
        checks = [mark_of(check) for check in self.record.checks]
        return worst(checks if self.complete else [*checks, Standing.INCOMPLETE])

    @property
    def tally(self) -> str:
        return tally([self.record])

    @property
    def command(self) -> str:
        """What draws this figure again."""
        changes = self.record.experiment.changes.items()
        changed = [word for name, value in changes for word in ("--set", f"{name}={value}")]
        return shlex.join(["flowbias", "run", self.name, "--preset", self.record.preset, *changed])

    @property
    def causes(self) -> list[Cause]:
        """Failures by cause: a missing package fails a hundred tasks for one reason."""
        failures = self.record.failures
        return [
            Cause(text, tuple(failure for failure in failures if failure.cause == text))
            for text in dict.fromkeys(failure.cause for failure in failures)
        ]


@dataclass(frozen=True)
class Overview:
    """The whole run at a glance."""

    sections: tuple[Section, ...]

    @property
    def verdict(self) -> Standing:
        """Of what was not skipped."""
        return worst([section.verdict for section in self.sections if not section.record.lacks])

    @property
    def tally(self) -> str:
        return tally([section.record for section in self.sections])

    @property
    def drawn(self) -> int:
        return sum(bool(section.panels) for section in self.sections)

    @property
    def failing(self) -> list[tuple[Section, Check]]:
        checks = [(s, check) for s in self.sections for check in s.record.checks]
        return [(s, check) for s, check in checks if mark_of(check) is Standing.FAILS]

    @property
    def skipped(self) -> list[Section]:
        return [section for section in self.sections if section.record.lacks]

    @property
    def incomplete(self) -> list[Section]:
        return [section for section in self.sections if not section.complete]

    @property
    def counts(self) -> Counts:
        """Where all results came from."""
        each = [vars(section.record.counts) for section in self.sections]
        return Counts(**{name: sum(counts[name] for counts in each) for name in each[0]})

    @property
    def compute_seconds(self) -> float:
        return sum(section.record.compute_seconds for section in self.sections)

    @property
    def by_paper(self) -> list[tuple[Reference, list[Section]]]:
        """What follows each other from one paper, with a reference to it."""
        groups: list[tuple[Reference, list[Section]]] = []
        for section in self.sections:
            reference = section.record.experiment.reference
            if not groups or groups[-1][0].paper != reference.paper:
                groups.append((reference, []))
            groups[-1][1].append(section)
        return groups

    @property
    def papers(self) -> list[Paper]:
        """What to cite beside the software, each once, in the order of the page."""
        keys = dict.fromkeys(s.record.experiment.reference.paper for s in self.sections)
        return [PAPERS[key] for key in keys if key in PAPERS]


def page(records: Sequence[Record], drawings: Mapping[str, Drawing], provenance: Provenance) -> str:
    """The run as one HTML text, which works from a folder, offline.

    `drawings` maps the name of each experiment to its figure; only one with failures may lack it.
    The page links to the files NAME.png, NAME.svg and NAME.csv beside it.
    """
    _require_one_of_each(records)
    panels = _numbered_panels(records, drawings)
    overview = Overview(
        tuple(Section(record, panels[record.experiment.name]) for record in records)
    )
    text = _template().render(overview=overview, provenance=provenance, dark_colours=dark_colours())
    # A failure may quote a file name that is no Unicode; that must not cost the page.
    return text.encode("utf-8", "backslashreplace").decode()


def mark_of(check: Check) -> Standing:
    """A check holds, fails, or says nothing, which is none."""
    return _MARKS[check.verdict]


def worst(verdicts: Sequence[Standing]) -> Standing:
    """The verdict over many things; over nothing, nothing was checked."""
    return max(verdicts, key=list(Standing).index, default=Standing.UNCHECKED)


def duration(seconds: float) -> str:
    """For people: `0.4 s`, `12 s`, `3 min 20 s`, `1 h 05 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest} s"


def paragraphs(text: str) -> list[str]:
    """Parts between empty lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def source_of(reference: Reference) -> str:
    """Where the figure is printed: `Woodworth et al. (2020), Figure 1`."""
    parts = _authors(reference.paper), reference.place, reference.equation
    return ", ".join(part for part in parts if part)


def paper_of(reference: Reference) -> str:
    """The paper by its name, for a heading."""
    paper, authors = _printed(reference.paper), _authors(reference.paper)
    return authors if paper is None else f"{authors}: {paper.title}"


def _authors(key: str) -> str:
    paper = _printed(key)
    if paper is None:
        return "Beyond the papers" if key == OURSELVES else key
    year = f"{key[-4:]}, an earlier version" if key in EARLIER else paper.year
    return f"{paper.authors} ({year})"


def _printed(key: str) -> Paper | None:
    return PAPERS.get(EARLIER.get(key, key))


def _numbered_panels(
    records: Sequence[Record], drawings: Mapping[str, Drawing]
) -> dict[str, tuple[InlinePanel, ...]]:
    """The panels of each experiment. A number in the prefix keeps ids apart for sure."""
    panels: dict[str, tuple[InlinePanel, ...]] = {}
    for number, record in enumerate(records, start=1):
        name = record.experiment.name
        if name not in drawings and not record.failures and not record.lacks:
            raise InputError(
                f"drawings: must hold a figure for every experiment without failures, got none "
                f"for {name!r}. Pass draw(experiment.panels, record.table) under that name."
            )
        drawn = drawings[name].panels if name in drawings else ()
        panels[name] = tuple(
            InlinePanel(heading, inlined(panel.svg, prefix, heading), prefix)
            for index, panel in enumerate(drawn, start=1)
            for prefix in [f"panel-{number}-{index}-"]
            for heading in [panel.title if len(drawn) == 1 else f"({panel.name}) {panel.title}"]
        )
    return panels


def _require_one_of_each(records: Sequence[Record]) -> None:
    names = Counter(record.experiment.name for record in records)
    repeated = [name for name, count in names.items() if count > 1]
    if not records or repeated:
        raise InputError(
            f"records: must be one or more different experiments, got {list(names) or 'none'}"
            f"{f' with {repeated} repeated' if repeated else ''}. Make one page per preset."
        )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "duration": duration,
        "paragraphs": paragraphs,
        "source": source_of,
        "paper": paper_of,
        "verdict": mark_of,
        "command": command_for,
    }
    text = resources.files("flowbias.experiments").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(text)


# --- a drawing inside the page: its own ids, the page's colours, a title, no size of its own ------


# Matplotlib gives the same ids to every figure (`axes_1`, `DejaVuSans-41`, clip paths): on one page
# the second figure would be drawn with the glyphs and clip paths of the first.

#: Colours of lines and of their names, which near-black paper needs lighter.
LINE_COLOURS = tuple(dict.fromkeys((*DEPTH_COLOURS.values(), BLUE, RED)))


def inlined(svg: str, prefix: str, title: str) -> str:
    """The SVG, parsed and written anew, for a page where `prefix` begins no other id."""
    root = ElementTree.fromstring(svg)
    _remove_what_concerns_the_page(root)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        element.attrib = {
            name: _own_references(name, value, prefix) for name, value in attributes.items()
        }
    _remove_size(root)
    _set_title(root, title, f"{prefix}title")
    return ElementTree.tostring(root, encoding="unicode")


def dark_colours() -> dict[str, str]:
    """The custom property of each line colour, and its value on dark paper."""
    return {_property(colour): _lighter(colour) for colour in LINE_COLOURS}


def _remove_what_concerns_the_page(root: ElementTree.Element) -> None:
    """A style sheet inside the drawing would style all of the page, which has the same rule."""
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in {"metadata", "style"}:
                parent.remove(child)


def _remove_size(root: ElementTree.Element) -> None:
    if "viewBox" not in root.attrib:
        raise ValueError("svg: must have a viewBox, or it cannot be scaled; got none. Add one.")
    for name in ("width", "height"):
        root.attrib.pop(name, None)


def _set_title(root: ElementTree.Element, title: str, key: str) -> None:
    heading = ElementTree.Element("title", id=key)
    heading.text = title
    root.insert(0, heading)
    root.attrib |= {"role": "img", "aria-labelledby": key}


def _local(name: str) -> str:
    """Without the namespace: an HTML parser knows that `svg` and `href` are SVG's."""
    return name.rpartition("}")[2]


def _own_references(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href":
        return f"#{prefix}{value[1:]}" if value.startswith("#") else value
    value = re.sub(r"url\(\s*([\"']?)#", rf"url(\1#{prefix}", value)
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: _page_colour(match.group()), value)


def _page_colour(colour: str) -> str:
    return PAGE_COLOURS.get(colour.lower(), colour)


def _property(colour: str) -> str:
    return f"--line-{colour[1:]}"


def _lighter(colour: str) -> str:
    # A fifth of the way to white: the names of lines then have the contrast of text, 4.5 and more.
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(c + 0.2 * (255 - c)):02x}" for c in channels)


PAGE_COLOURS: Mapping[str, str] = {
    INK: "currentColor",
    **{colour: f"var({_property(colour)}, {colour})" for colour in LINE_COLOURS},
}
