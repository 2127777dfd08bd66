"""Drawings on one page: ids of their own, the colours of the page, a title each."""

import re

import numpy as np
import pytest

from flowbias.experiments.report import dark_colours, inlined
from flowbias.ground.drawing import DEPTH_COLOURS, INK
from tests.experiments.sample_pages import (
    BARS,
    CURVES,
    Parsed,
    complete,
    drawing_of,
    every_kind_of_record,
    experiment,
    page_of,
    parsed,
)


def test_ids_are_unique_and_references_lead_somewhere():
    html = page_of(*every_kind_of_record())
    reader = Parsed(html)
    ids = [a["id"] for _, _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    named = {a[key] for _, _, a in reader.elements for key in ("aria-labelledby",) if key in a}
    linked = {a["href"][1:] for _, _, a in reader.elements if a.get("href", "").startswith("#")}
    painted = set(re.findall(r"url\(#([^)]*)\)", html))
    assert painted  # the bands are clipped: there is something to test
    assert named | linked | painted <= set(ids)


def test_panels_use_their_own_glyphs_and_clip_paths():
    html = page_of(complete(experiment("one", CURVES, BARS)), complete(experiment("two", BARS)))
    for svg in re.findall(r"<svg (?:(?!</svg>).)*role=\"img\".*?</svg>", html, flags=re.DOTALL):
        own = set(re.findall(r' id="([^"]*)"', svg))
        assert set(re.findall(r'href="#([^"]*)"', svg)) <= own
        assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= own


def test_every_drawing_has_a_name():
    reader = parsed(complete(experiment("one", CURVES, BARS)))
    drawings = [a for a in reader.tags("svg") if a.get("role") == "img"]
    titles = {a["id"] for a in reader.tags("title") if "id" in a}
    assert len(drawings) == 2
    assert {a["aria-labelledby"] for a in drawings} == titles
    assert all("width" not in a for a in drawings)


def test_drawings_take_the_colours_of_the_page():
    (panel,) = drawing_of((CURVES,)).panels
    svg = inlined(panel.svg, "p-", panel.title)
    assert INK in panel.svg
    assert INK not in svg
    assert svg.count("currentColor") == panel.svg.count(INK)
    colour = DEPTH_COLOURS[2]
    assert svg.count(f"var(--line-{colour[1:]}, {colour})") == panel.svg.count(colour)


def test_a_foreign_colour_and_an_image_stay_as_they_are():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="0 0 1 1" width="9pt"><image id="i" xlink:href="data:image/png;base64,AA#1b1f24"/>'
        '<path style="fill: #123456; stroke: #1B1F24" clip-path="url(&quot;#c&quot;)"/></svg>'
    )
    assert inlined(svg, "p-", "a < b") == (
        '<svg viewBox="0 0 1 1" role="img" aria-labelledby="p-title">'
        '<title id="p-title">a &lt; b</title>'
        '<image id="p-i" href="data:image/png;base64,AA#1b1f24" />'
        '<path style="fill: #123456; stroke: currentColor" clip-path="url(&quot;#p-c&quot;)" />'
        "</svg>"
    )


def test_the_style_sheet_that_is_left_out_is_the_one_that_the_page_has():
    (panel,) = drawing_of((CURVES,)).panels
    rule = "*{stroke-linejoin: round; stroke-linecap: butt}"
    assert re.findall(r"<style[^>]*>(.*?)</style>", panel.svg, flags=re.DOTALL) == [rule]
    html = page_of(complete(experiment()))
    assert re.search(r"\.panel svg {[^}]*stroke-linejoin: round; stroke-linecap: butt", html)
    assert html.count("<style") == 1


def test_a_drawing_that_cannot_be_scaled_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        inlined('<svg xmlns="http://www.w3.org/2000/svg" width="9"/>', "p-", "")


def luminance(colour):
    """Relative luminance.  [WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance]"""
    channels = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_names_of_lines_can_be_read_on_dark_paper():
    html = page_of(complete(experiment()))
    dark = html[html.index("prefers-color-scheme: dark") :]
    paper = luminance(re.search(r"--paper: (#\w{6})", dark).group(1))
    assert dark_colours()
    for name, colour in dark_colours().items():
        assert f"{name}: {colour};" in dark
        assert (luminance(colour) + 0.05) / (paper + 0.05) >= 4.5
