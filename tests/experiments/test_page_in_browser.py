"""The page as a reader sees it, in a real browser, from a file, offline."""

import io
import itertools

import numpy as np
import pytest

from flowbias.ground.drawing import INK
from tests.experiments.sample_pages import (
    HOLDS,
    at_all_presets,
    complete,
    every_kind_of_record,
    experiment,
    hostile_provenance,
    hostile_records,
    page_of,
    svg_of,
)

WIDE, PHONE = (1440, 900), (390, 844)
# Contrast of every text with what lies behind it, as [WCAG 2.2, success criterion 1.4.3] has it.
CONTRASTS = """() => {
  const rgb = colour => {
    const parts = colour.match(/^rgba?\\((.*)\\)$/)[1].split(/[ ,/]+/).map(Number);
    return {channels: parts.slice(0, 3), alpha: parts[3] ?? 1};
  };
  const luminance = channels => channels
    .map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const {channels, alpha} = rgb(getComputedStyle(e).backgroundColor);
      if (alpha === 1) return channels;
      if (alpha !== 0) throw new Error('a half transparent ground has no contrast');
    }
    throw new Error('nothing is opaque');
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('svg')) continue;
    const ink = luminance(rgb(getComputedStyle(element).color).channels);
    const paper = luminance(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push({ratio, text: walker.currentNode.data.trim(), dark: paper < ink});
  }
  return found;
}"""


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page and, when the test is over, demands that nothing went wrong on it."""
    opened, complaints, requests = [], [], []

    def open_page(html, size=WIDE, scheme="light"):
        file = tmp_path / "index.html"
        file.write_text(html, encoding="utf-8")
        width, height = size
        tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("requestfailed", lambda request: complaints.append(f"failed {request.url}"))
        tab.goto(file.as_uri())
        opened.append(tab)
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {
        (tmp_path / "index.html").as_uri()
    }


@pytest.fixture(scope="module")
def html():
    return page_of(*every_kind_of_record())


def unfold(tab):
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def boxes(tab, selector):
    return [found.bounding_box() for found in tab.query_selector_all(selector)]


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")], ids=str
)
def test_every_figure_is_visible(show, html, size, scheme, tmp_path):
    tab = show(html, size, scheme)
    found = boxes(tab, "figure.panel svg")
    assert len(found) == 6
    for box in found:
        assert box["width"] >= 300
        assert 0.5 < box["height"] / box["width"] < 1.0
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
    # For a person to look at: it stays in pytest's folder.
    tab.screenshot(path=tmp_path / "page.png", full_page=True)


def sticking_out(tab, width):
    """By how much the page is wider than the window."""
    tab.set_viewport_size({"width": width, "height": 800})
    return tab.evaluate("document.scrollingElement.scrollWidth") - width


def test_nothing_sticks_out(show, html):
    tab = show(html)
    for _ in range(2):
        widths = (320, 390, 820, 1024, 1440, 2560)
        assert {width: sticking_out(tab, width) for width in widths} == dict.fromkeys(widths, 0)
        unfold(tab)
    # A traceback is wider than a phone and scrolls in its box.
    assert sticking_out(tab, PHONE[0]) == 0
    assert tab.evaluate("(p => p.scrollWidth > p.clientWidth)(document.querySelector('pre'))")


def test_long_words_and_settings_do_not_stick_out_on_a_phone(show):
    word = "w" * 300
    made = experiment(title=word, summary=word, settings=at_all_presets(**{word: word, "b": word}))
    assert sticking_out(show(page_of(complete(made, HOLDS))), PHONE[0]) == 0


def test_panels_stand_side_by_side_or_below_each_other(show, html):
    wide = boxes(show(html, WIDE), "#woodworth-fig1 figure.panel svg")
    assert len({round(box["y"]) for box in wide}) == 1
    phone = boxes(show(html, PHONE), "#woodworth-fig1 figure.panel svg")
    assert len({round(box["x"]) for box in phone}) == 1
    for above, below in itertools.pairwise(phone):
        assert below["y"] > above["y"] + above["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(show, html, scheme):
    tab = show(html, scheme=scheme)
    unfold(tab)
    found = tab.evaluate(CONTRASTS)
    assert len(found) > 100
    assert {text["dark"] for text in found} == {scheme == "dark"}
    assert [text for text in found if text["ratio"] < 4.5] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ink_of_drawings_is_that_of_the_text(show, html, scheme):
    tab = show(html, scheme=scheme)
    ink, strokes, fills = tab.evaluate("""() => {
      const styles = [...document.querySelectorAll('figure.panel svg *')].map(getComputedStyle);
      return [getComputedStyle(document.body).color,
              [...new Set(styles.map(s => s.stroke))], [...new Set(styles.map(s => s.fill))]];
    }""")
    assert (ink == "rgb(27, 31, 36)") == (scheme == "light")
    assert ink in strokes
    assert ink in fills
    # Neither the ink of the files nor black, which matplotlib leaves out, is there on dark paper.
    if scheme == "dark":
        assert not {"rgb(27, 31, 36)", "rgb(0, 0, 0)"} & {*strokes, *fills}


def test_paper_is_white_in_print_whatever_the_screen(show, html):
    tab = show(html, scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert {text["dark"] for text in tab.evaluate(CONTRASTS)} == {False}
    assert tab.pdf().startswith(b"%PDF")


def test_links_lead_to_the_files_beside_the_page(show, html, tmp_path):
    tab = show(html)
    links = tab.evaluate("[...document.querySelectorAll('#woodworth-fig2 a')].map(a => a.href)")
    assert links == [(tmp_path / f"woodworth-fig2.{k}").as_uri() for k in ("png", "svg", "csv")]


def test_a_failing_check_is_one_click_away(show, html):
    tab = show(html, PHONE)
    tab.emulate_media(reduced_motion="reduce")
    tab.click("text=every limit is certified >> nth=0")
    assert tab.evaluate("document.querySelector(':target').textContent").split()[0] == "fails"
    top = tab.evaluate("document.querySelector(':target').getBoundingClientRect().top")
    assert 0 <= top < PHONE[1]


def test_a_script_in_a_text_is_shown_and_not_run(show):
    tab = show(page_of(*hostile_records(), provenance=hostile_provenance()))
    assert tab.evaluate("document.scripts.length") == 0
    assert "<script>" in tab.inner_text("h2")


def pixels(png):
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")[..., :3]


@pytest.mark.parametrize("index", [1, 4])
def test_a_panel_among_others_looks_as_it_does_alone(show, browser, html, index):
    """With the glyphs, hatches and clip paths of its own, though others have ids like them."""
    panels = [panel for record in every_kind_of_record() for panel in record.experiment.panels]
    place = "position: fixed; inset: 0 auto auto 0; width: 480px; height: auto; visibility: visible"
    area = {"x": 0, "y": 0, "width": 480, "height": 378}
    tab = show(html)
    tab.evaluate(
        """([index, place]) => {
          document.body.style.visibility = 'hidden';
          document.querySelectorAll('figure.panel svg')[index].style.cssText = place;
        }""",
        [index, place],
    )
    inside = pixels(tab.screenshot(clip=area))

    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    alone = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
    svg = svg_of(panels[index].draw).replace("<svg ", f'<svg style="{place}" ', 1)
    # Black text has no fill in the file; on the page it is ink.
    alone.set_content(f"<body style='background: {paper}; fill: {INK}'>{svg}</body>")
    outside = pixels(alone.screenshot(clip=area))
    alone.close()
    assert np.ptp(outside) > 0.5  # something is drawn
    # Antialiasing may differ in the last bits of a channel, a missing glyph by all of them.
    assert np.abs(inside - outside).max() <= 0.05
