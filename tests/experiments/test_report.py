"""The page as text: it says everything, escapes everything, and asks for nothing."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.experiments.record import Counts, Failure
from flowbias.experiments.report import PAPERS, duration, page, paragraphs
from flowbias.ground.arguments import InputError
from flowbias.theory import Reference
from tests.experiments.sample_pages import (
    BARS,
    CURVES,
    FAILS,
    HOLDS,
    PROVENANCE,
    SCRIPT,
    TRACEBACK,
    Parsed,
    complete,
    every_kind_of_record,
    experiment,
    hostile_provenance,
    hostile_records,
    incomplete,
    page_of,
    parsed,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_section_says_all_there_is_to_say():
    reader = parsed(complete(experiment("woodworth-fig1", CURVES, BARS), HOLDS, FAILS))
    words = reader.words("woodworth-fig1")
    for text in (
        "what woodworth-fig1 is about",
        "Woodworth et al. (2020), Figure 1",
        "(a) error against the scale",
        "(b) error against the number of samples, a title of two lines",
        "A network learns. Its start decides.",
        "Small starts generalize.",
        "holds the error falls with the scale 0.886 to 0.0094",
        "fails every limit is certified 319 of 320",
        "1 of 2 checks hold",
        "noise_var 0.01",
        "4 computed, 2 cached",
        "1 min 21 s",
        "flowbias run woodworth-fig1 --preset smoke",
    ):
        assert text in words
    assert len(reader.tags("figure", "woodworth-fig1")) == 2
    files = [a["href"] for a in reader.tags("a", "woodworth-fig1")]
    assert files == [f"woodworth-fig1.{kind}" for kind in ("png", "svg", "csv")]


@pytest.mark.parametrize(
    ("paper", "source", "heading"),
    [
        ("azulay2021", "Azulay et al. (2021), Figure 9", "What the paper says"),
        ("flowbias", "Beyond the papers, Figure 9", "What theory says"),
        ("somebody1999", "somebody1999, Figure 9", "What the paper says"),
    ],
)
def test_a_section_says_who_said_it(paper, source, heading):
    made = experiment("fig", reference=Reference(paper, "Figure 9"))
    words = parsed(complete(made)).words("fig")
    assert source in words
    assert heading in words


def test_the_head_counts_and_names_what_does_not_hold():
    reader = parsed(*every_kind_of_record())
    words = reader.words()
    assert "2 of 3 checks hold, 1 figure incomplete" in words
    assert "3 of 4 drawn" in words
    assert "14 computed, 6 cached, 3 stale, 3 failed" in words
    assert "Fails: every limit is certified (woodworth-fig2)" in words
    assert "Incomplete: what lost is about (3 tasks failed, no figure)" in words


@pytest.mark.parametrize(
    ("records", "worst"),
    [
        ([complete(experiment("one"), HOLDS), complete(experiment("two"), HOLDS)], "holds"),
        ([complete(experiment("one"), HOLDS), complete(experiment("two"))], "unchecked"),
        ([complete(experiment("one"), HOLDS), incomplete(experiment("two"))], "incomplete"),
        ([complete(experiment("one"), FAILS), incomplete(experiment("two"))], "fails"),
        ([dataclasses.replace(incomplete(experiment()), checks=(HOLDS,))], "incomplete"),
    ],
)
def test_the_whole_is_as_bad_as_its_worst_part(records, worst):
    first = next(a for a in parsed(*records).tags("p") if "verdict" in a.get("class", ""))
    assert first["class"].split() == ["verdict", worst]


def test_the_contents_link_to_every_section_with_its_verdict():
    reader = parsed(*every_kind_of_record())
    sections = [a["id"] for a in reader.tags("section") if "id" in a]
    assert sections == [record.experiment.name for record in every_kind_of_record()]
    assert {f"#{name}" for name in sections} <= {a.get("href") for a in reader.tags("a")}
    for verdict in ("1 of 1 check holds", "1 of 2 checks hold", "nothing checked"):
        assert verdict in reader.words()


def test_the_contents_show_each_figure_small_under_the_name_of_its_paper():
    made = [
        complete(experiment("first", reference=Reference("woodworth2020", "Figure 1"))),
        complete(experiment("earlier", reference=Reference("woodworth2019", "Figure 3"))),
        complete(experiment("ours", reference=Reference("flowbias", "docs"))),
    ]
    reader = parsed(*made)
    names = [" ".join(text.split()) for text in re.findall(r"<h2>(.*?)</h2>", page_of(*made))]
    title = PAPERS["woodworth2020"].title
    assert names[:3] == [
        f"Woodworth et al. (2020): {title}",
        f"Woodworth et al. (2019, an earlier version): {title}",
        "Beyond the papers",
    ]
    small = {a["href"] for a in reader.tags("use") if a["href"].startswith("#panel-")}
    drawn = {f"#{a['id']}" for a in reader.tags("g") if a.get("id", "").endswith("-figure_1")}
    assert {f"#panel-{number}-1-figure_1" for number in (1, 2, 3)} <= small & drawn


def test_nothing_checked_is_not_called_a_success():
    words = parsed(complete(experiment())).words()
    assert "nothing checked" in words
    assert "0 of 0" not in words


def test_without_all_tasks_there_are_causes_instead_of_a_figure():
    reader = parsed(incomplete(experiment("lost")))
    words = reader.words("lost")
    assert reader.tags("figure") == []
    assert all(".png" not in a["href"] for a in reader.tags("a"))
    assert "3 tasks of 8 could not be computed" in words
    assert "SolveError: gap 1e-3 lost/path depth=3" in words
    assert " ".join(TRACEBACK.split()) in words
    # one cause, two tasks, and the traceback of the first
    assert words.count("ImportError: no torch") == 1
    assert "2 tasks lost/path depth=4 lost/path depth=5" in words
    assert "first of two" in words
    assert "second of two" not in words
    # folded
    assert len(reader.tags("details")) == 3
    assert all("open" not in a for a in reader.tags("details"))


def test_a_figure_whose_checks_broke_is_shown_but_not_judged():
    failure = Failure("fig: its checks", "KeyError: no column", "the way there")
    reader = parsed(dataclasses.replace(complete(experiment("fig")), failures=(failure,)))
    assert len(reader.tags("figure", "fig")) == 1
    for text in ("nothing checked, 1 error", "What went wrong", "KeyError: no column fig: its"):
        assert text in reader.words("fig")
    assert "could not be computed" not in reader.words("fig")
    assert "nothing checked, 1 figure incomplete" in reader.words()


def test_a_table_that_cannot_be_drawn_is_still_judged():
    failure = Failure("fig: its drawing", "ValueError: no axes", "the way there")
    record = dataclasses.replace(complete(experiment("fig"), HOLDS), failures=(failure,))
    reader = Parsed(page([record], {}, PROVENANCE))
    assert reader.tags("figure") == []
    assert reader.tags("a", "fig") == []
    for text in ("1 of 1 check holds, 1 error, no figure", "Why there is no figure", HOLDS.claim):
        assert text in reader.words("fig")
    assert "0 of 1 drawn" in reader.words()


def test_stale_results_are_announced_where_they_were_used():
    fresh, stale = experiment("fresh"), experiment("stale-one")
    reader = parsed(complete(fresh, HOLDS), complete(stale, HOLDS, counts=Counts(1, 2, 3)))
    assert "3 of 12 results were computed by other sources or versions" in reader.words()
    assert "3 of 6 results of this figure were computed by other" in reader.words("stale-one")
    assert "tale results" not in reader.words("fresh")


def test_without_stale_results_there_is_no_banner():
    reader = parsed(complete(experiment(), HOLDS))
    assert not [a for _, _, a in reader.elements if "banner" in a.get("class", "").split()]


def test_the_foot_says_where_the_page_comes_from():
    words = parsed(*every_kind_of_record()).words()
    for text in (
        PROVENANCE.command,
        PROVENANCE.sources,
        "numpy 2.0.0",
        "torch not installed",
        "Linux x86_64, 2 cores",
        "2 jobs at once",
        "2026-03-14 15:09 UTC",
        "1 min 35 s",
        PAPERS["woodworth2020"].title,
        PAPERS["azulay2021"].title,
    ):
        assert text in words
    assert PAPERS["min2021"].title not in words


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"jobs": 1}, "1 job at once"),
        ({"cluster": "tcp://head:8786"}, "cluster tcp://head:8786"),
        ({"keep_stale": True}, "Stale results kept"),
    ],
)
def test_the_foot_says_how_it_was_run(changes, text):
    provenance = dataclasses.replace(PROVENANCE, **changes)
    assert text in parsed(complete(experiment()), provenance=provenance).words()


def test_everything_is_escaped():
    html = page_of(*hostile_records(), provenance=hostile_provenance())
    reader = Parsed(html)
    assert "<script" not in html.lower()
    assert reader.tags("script") == []
    # Every attribute is one that the template writes: none broke out of its quotes.
    assert not {name for _, _, a in reader.elements for name in a if name.startswith("on")}
    assert reader.words("lost").count(SCRIPT) >= 9
    assert reader.words("hostile").count(SCRIPT) >= 12


@given(text=st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1))
def test_any_text_is_shown_as_it_is(text):
    assert text in parsed(incomplete(experiment("any", title=text))).text["any"]


def test_text_that_is_no_unicode_does_not_cost_the_page():
    failure = Failure("lost/path", "OSError: no file \udcff.npz", "")
    assert r"no file \udcff.npz" in page_of(incomplete(experiment("lost"), (failure,))).encode(
        "utf-8"
    ).decode("utf-8")


def test_the_page_asks_for_nothing():
    html = page_of(*every_kind_of_record())
    reader = Parsed(html)
    policy = next(a["content"] for a in reader.tags("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert not {tag for _, tag, _ in reader.elements} & {"script", "iframe", "object", "img"}
    for _, tag, attributes in reader.elements:
        assert not {"src", "srcset", "action"} & attributes.keys()
        target = attributes.get("href", "#")
        assert re.match(r"#|data:|[\w-]+\.(png|svg|csv)$", target), (tag, target)
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*(.)", html))


def test_the_same_run_gives_the_same_page():
    assert page_of(*every_kind_of_record()) == page_of(*every_kind_of_record())


def test_a_record_without_failures_needs_its_drawing():
    with pytest.raises(InputError, match=r"drawings: .* 'woodworth-fig1'"):
        page([complete(experiment())], {}, PROVENANCE)


@pytest.mark.parametrize(
    ("count", "message"), [(0, "got none"), (2, r"\['woodworth-fig1'\] repeated")]
)
def test_records_must_be_different_experiments(count, message):
    with pytest.raises(InputError, match=f"records: .*{message}"):
        page_of(*[complete(experiment())] * count)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7505.0, "2 h 05 min"),
    ],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


def test_paragraphs_are_parted_by_empty_lines():
    assert paragraphs("\none\nline\n \n\n two \n") == ["one\nline", "two"]


def test_papers_are_those_of_the_citation_file():
    citations = (ROOT / "CITATION.cff").read_text(encoding="utf-8").split("  - type:")[1:]
    entries = {re.search(r"cited in the code as (\w+)", text).group(1): text for text in citations}
    assert PAPERS.keys() == entries.keys()
    for key, paper in PAPERS.items():
        assert f'title: "{paper.title}"' in entries[key]
        assert f"year: {paper.year}" in entries[key]
        assert f': "{paper.venue}"' in entries[key]
        first = re.search(r"family-names: (\w+)", entries[key]).group(1)
        assert paper.authors == f"{first} et al."
