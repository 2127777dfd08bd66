"""Code shown in the documentation runs, every page can be reached, every figure is shown."""

import dataclasses
import re
import sys
from pathlib import Path

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest

import flowbias as fb
from flowbias.experiments import EXPERIMENTS, Check, Preset, Record
from flowbias.experiments.record import Counts, Failure, known_costs
from flowbias.experiments.report import duration
from flowbias.ground.drawing import RED
from tests.test_guides import PAGES as RUN_WORD_FOR_WORD

DOCS = Path(__file__).resolve().parents[1] / "docs"
# What `make docs` writes, where it was run.
WRITTEN = {"_build", "auto_examples", "figure_checks.md", "papers.md"}
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not WRITTEN & set(page.parts)]
BLOCKS = [
    pytest.param(page, "\n".join(blocks), id=str(page.relative_to(DOCS)))
    for page in PAGES
    if page not in RUN_WORD_FOR_WORD
    and (blocks := re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


GALLERY = (DOCS / "gallery.md").read_text()


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_blocks_run_in_order(page, code, monkeypatch, tmp_path):
    monkeypatch.setenv("FLOWBIAS_CACHE", str(tmp_path))
    exec(compile(code, str(page), "exec"), {"__name__": "docs"})


def test_api_page_lists_every_public_name():
    page = (DOCS / "api.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    assert listed == set(fb.__all__)
    assert len(fb.__all__) <= 44


def test_every_public_name_has_its_documentation():
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    directive = r"^\.\. auto(?:function|class|exception|module):: (?:flowbias\.)?(\w+)$"
    assert sorted(re.findall(directive, text, re.MULTILINE)) == sorted(fb.__all__)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            home = page.parent / target
            written = WRITTEN & set(home.resolve().parts)
            assert written or home.exists(), f"{page.name} -> {target}"


def entries(page):
    """The pages that the tables of contents on a page name."""
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for table in tables for line in table.splitlines()]
    return {page.parent / f"{line}.md" for line in lines if line and not line.startswith(":")}


def test_every_page_is_in_a_table_of_contents():
    index = DOCS / "index.md"
    named = {index} | entries(index) | entries(DOCS / "api" / "index.md")
    assert {page for page in named if not WRITTEN & set(page.parts)} == set(PAGES)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_figure_is_in_the_gallery(experiment):
    page = " ".join(GALLERY.split())
    assert re.search(rf"flowbias run {experiment.name}\b(?!-)", page)
    assert f"](images/{experiment.name}.png)" in page
    assert (DOCS / "images" / f"{experiment.name}.png").is_file()


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_the_gallery_says_what_each_figure_took_and_showed(experiment):
    """Its table is what runs have noted; a check that fails is an erratum."""
    noted = known_costs().get(experiment.name, {})
    (row,) = re.findall(rf"^\| `{experiment.name}` \|.*$", GALLERY, re.MULTILINE)
    _, *cells, remark = (cell.strip() for cell in row.strip("|").split("|"))
    for preset, (verdict, *times) in {"laptop": cells[:3], "paper": cells[3:]}.items():
        if preset in noted:
            cost = noted[preset]
            seconds = (cost.seconds, cost.on_two_cores)
            assert verdict == cost.verdict
            assert times == ["-" if known is None else duration(known) for known in seconds]
        held, _, checks = verdict.partition(" of ")
        assert held == checks or "errata.md#" in remark


@pytest.mark.parametrize("name", ["azulay-fig7-2", "neuron-paths"])
def test_the_start_is_red_in_the_gallery(name):
    """A palette of few colours must not turn the only red dot of each panel grey."""
    pixels = matplotlib.image.imread(DOCS / "images" / f"{name}.png")[..., :3]
    red = np.abs(pixels - matplotlib.colors.to_rgb(RED)).max(axis=-1) < 0.06
    assert red.sum() >= 6 * 20  # six dots of more than 20 pixels


@pytest.fixture
def extensions(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    yield
    for name in ("figure_checks", "mathml", "offline", "papers", "plain_docstrings"):
        sys.modules.pop(name, None)


def record_of(experiment, *checks, failures=()):
    return Record(experiment, Preset.SMOKE, None, checks, failures, Counts(), ())


@pytest.mark.usefixtures("extensions")
def test_figures_are_shown_with_all_their_checks():
    from figure_checks import faults, section

    good = Check("a", "|w| grows like n_1*n_2", "1.5 <= 2", holds=True)
    bad = Check("b", "it is faster", "3 s and 2 s", holds=False)
    record = record_of(EXPERIMENTS[0], good, bad, failures=[Failure("t", "no memory", "...")])
    text = section(record, DOCS)
    assert r"| \|w\| grows like n\_1\*n\_2 | 1.5 \<= 2 | holds |" in text
    assert "| it is faster | 3 s and 2 s | FAILS |" in text
    assert "](images/woodworth-fig1.png)" in text
    assert faults(record) == ["1 tasks failed: t: no memory", str(bad)]
    skipped = dataclasses.replace(record_of(EXPERIMENTS[0]), lacks=("torch",))
    assert faults(skipped) == [skipped.skipped]


@pytest.mark.usefixtures("extensions")
def test_what_a_browser_would_fetch_is_found():
    from offline import fetched

    host = "https://cdn.example"
    foreign = [
        f'<script src="{host}/a.js"></script>',
        f'<img alt="" src="{host}/a.png">',
        f'<link rel="stylesheet" href="{host}/a.css">',
        f'<link href="{host}/a.css" rel="stylesheet">',
        f"@import url('{host}/a.css');",
        'src: url("//cdn.example/font.woff2")',
    ]
    assert [len(fetched(text)) for text in foreign] == [1] * len(foreign)
    own = ['<script src="_static/a.js"></script>', f'<a href="{host}">', "url(data:image/png)"]
    assert [fetched(text) for text in own] == [[]] * len(own)


@pytest.mark.usefixtures("extensions")
def test_docstrings_become_text_that_looks_the_same():
    from plain_docstrings import restructured

    text = """Least |w| of `w_1` and w_.

        Q(w) = |w|_1

    | a | b |
    |---|---|
    | `c` | d* |

    gap    small
    bound  smaller

    - a point
      in two lines

    Parameters
    ----------
    cv : number of folds,
        or a splitter

    >>> print("w_")
    w_"""
    lines = restructured([line.removeprefix("    ") for line in text.splitlines()])
    shown = "\n".join(lines)
    assert lines[0] == r"Least \|w\| of \ ``w_1``\  and w\_."
    assert ".. code-block:: text\n\n       Q(w) = |w|_1\n" in shown
    assert "   * - \\ ``c``\\ \n     - d\\*\n" in shown
    assert ".. code-block:: text\n\n   gap    small\n   bound  smaller\n" in shown
    assert "- a point\n  in two lines\n" in shown
    assert ".. rubric:: Parameters\n\n- cv : number of folds,\n  or a splitter\n" in shown
    assert '>>> print("w_")\nw_\n' in shown
    assert restructured(["* a point", "* another"])[:2] == ["* a point", "* another"]
    assert restructured(["a lone ` is no code_"])[0] == r"a lone \` is no code\_"
    assert restructured(["``twice``"])[0] == "twice"


def formulas(page):
    """The LaTeX of a page, code left out; displayed formulas first."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    displayed = re.findall(r"\$\$(.*?)\$\$", text, re.DOTALL)
    return displayed + re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL))


@pytest.mark.usefixtures("extensions")
def test_every_formula_can_be_typeset():
    from mathml import mathml

    found = [latex for page in PAGES for latex in formulas(page)]
    assert found
    for latex in found:
        assert mathml(latex).startswith("<math"), latex
    with pytest.raises(ValueError, match="Unknown LaTeX command"):
        mathml(r"\no_such_command")


def test_no_formula_is_left_as_indented_text():
    """Outside of code: what a browser would show in letters of one width."""
    left = {}
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        lines = re.findall(r"(?<=\n\n)    (?! )(?![-*] ).*", text)
        if lines:
            left[page.name] = lines
    assert left == {}


@pytest.mark.usefixtures("extensions")
def test_the_page_of_the_papers_has_all_their_statements():
    from papers import page

    text = page(DOCS)
    theory = "".join(file.read_text() for file in DOCS.glob("theory/*.md"))
    cited = set(re.findall(r"\[\w+2\d{3}\]\([^)]*\), ([^;|]+?)(?:;| \|)", theory))
    assert {place for place in cited if f"| {place} |" not in text} == set()
    errata = re.findall(r"^\| \[(\w+)\]", (DOCS / "errata.md").read_text(), re.MULTILINE)
    assert [entry for entry in errata if f"[{entry}](errata.md#" not in text] == []
    figures = [one for one in EXPERIMENTS if not str(one.reference).startswith("flowbias")]
    assert all(f"`flowbias run {one.name}`" in text for one in figures)


def test_links_are_named_by_what_they_lead_to():
    named = r"\[`?[\w/.]*\.md(?:#[\w-]*)?`?\]\("
    assert [page.name for page in PAGES if re.search(named, page.read_text())] == []
