"""Pages to host: opened from a disk, with the network off and no Python behind them."""

import json
import re

import numpy as np
import pytest

from flowbias.apps.explorer import export, views
from flowbias.apps.explorer.page import prose
from flowbias.apps.explorer.view import Slider, settings_of
from flowbias.ground.arguments import InputError
from tests.apps.cli.program import invoke
from tests.apps.explorer.test_in_browser import drawn, pixels, violations, wait_until_drawn

pytest.importorskip("bokeh", reason="the extra `explore` is not installed")

# Few of them, the defaults among them: the pages are the same with more.
FEW = {
    "geometry": {"log_scale": (-20.3, -3.2, -0.5), "depth": (2, 3)},
    "sparse-regression": {"log_scale": (-4.0, -2.0, 2.0), "depth": (2,)},
    "time": {"moment": (0, 50, 100), "log_scale": (-4.0, 0.0)},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosted") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "POSITIONS", FEW)
        said = invoke("explore", "--export", str(folder))
    assert said.exit_code == 0, said.output
    return folder


@pytest.fixture
def visit(browser, site):
    """Opens pages from the disk and demands that nothing else was asked for, nor went wrong."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    tab, wrong = context.new_page(), []
    tab.on("console", lambda message: wrong.append(f"{message.type} {message.text}"))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("requestfailed", lambda request: wrong.append(f"failed {request.url}"))
    ours = (site.as_uri(), "data:", "blob:")
    tab.on(
        "request", lambda asked: asked.url.startswith(ours) or wrong.append(f"asked {asked.url}")
    )

    def open_page(name, query=""):
        tab.goto(f"{(site / export.FILES[name]).as_uri()}?{query}")
        wait_until_drawn(tab, 1)
        return tab

    yield open_page
    context.close()
    assert [text for text in wrong if not text.startswith(("info", "log"))] == []


def plain(markdown):
    """What a reader sees of it, without the spaces between its parts."""
    return re.sub(r"<[^>]*>|\s", "", prose(markdown))


@pytest.mark.parametrize("name", FEW)
def test_a_page_shows_what_the_server_would(visit, name):
    tab, view = visit(name), views.view(name)
    scene = view.scene(settings_of(view.controls, {}))
    seen = tab.inner_text("#text") + tab.inner_text("#more")
    assert re.sub(r"\s", "", seen) == plain(view.text(scene))
    assert tab.text_content("#code") == view.code(settings_of(view.controls, {}))
    for place in range(tab.locator(".canvas").count()):
        assert np.ptp(pixels(tab.locator(".canvas").nth(place))) > 0.3


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, site, name, scheme):
    """Without the fixture that forbids requests: axe reads the style sheet once more."""
    tab = browser.new_page(color_scheme=scheme)
    tab.goto((site / export.FILES[name]).as_uri())
    wait_until_drawn(tab, 1)
    assert tab.get_attribute("html", "data-theme") == scheme
    assert violations(tab) == []
    tab.close()


def test_its_sliders_move_its_picture_and_its_address(visit):
    tab = visit("geometry")
    before, count = pixels(tab.locator(".canvas")), drawn(tab)
    tab.locator("#control-log_scale").press("ArrowLeft")
    wait_until_drawn(tab, count + 1)
    assert np.abs(pixels(tab.locator(".canvas")) - before).max() > 0.3
    assert "From scale 6.3e-4" in tab.inner_text("#text")
    tab.wait_for_url(re.compile("log_scale=-3.2&depth=2"))
    again = visit("geometry", "log_scale=-20.3&depth=3&shape=0.5")
    assert again.inner_text("#word-log_scale") == "5e-21"
    assert "At depth 3" in again.inner_text("#text")
    again.locator("nav a", has_text="Time").press("Enter")
    wait_until_drawn(again, 1)
    assert again.inner_text("h1") == "Time"
    assert "Noise (standard deviation) 0.1" in again.inner_text(".fixed")


def test_it_can_be_presented(visit):
    tab = visit("geometry", "present=1")
    tab.keyboard.press("PageDown")
    tab.wait_for_url(re.compile(r"sparse-regression\.html\?present=1"))
    wait_until_drawn(tab, 1)
    assert tab.locator("figure:visible").count() == 1


@pytest.mark.parametrize("name", FEW)
def test_its_numbers_are_those_of_the_view_to_four_digits(site, name):
    page = (site / export.FILES[name]).read_text(encoding="utf-8")
    (held,) = re.findall(r'id="page-data">(.*?)</script>', page, re.DOTALL)
    answers = json.loads(held)["answers"]
    view = views.view(name)
    for key, answer in answers["by_key"].items():
        texts = dict(zip(FEW[name], key.split(","), strict=True))
        expected = view.data(view.scene(settings_of(view.controls, texts)))
        assert answer["data"].keys() == expected.keys()
        for mark, columns in expected.items():
            kept = (answers["pool"][place] for place in answer["data"][mark])
            for found, column in zip(kept, columns, strict=True):
                if len(column) and isinstance(column[0], str):
                    assert found == list(column)
                    continue
                # Polylines are lists of curves.
                rows = column if len(column) and np.ndim(column[0]) else [column]
                for one, row in zip(found if rows is column else [found], rows, strict=True):
                    np.testing.assert_allclose(np.array(one, float), row, rtol=5.1e-4)


@pytest.mark.parametrize("name", export.POSITIONS)
def test_positions_are_those_of_live_sliders_and_hold_the_defaults(name):
    sliders = {one.name: one for one in views.view(name).controls if isinstance(one, Slider)}
    for control, values in export.POSITIONS[name].items():
        assert set(values) <= set(sliders[control].grid)
        assert sliders[control].default in values


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "site").write_text("mine")
    with pytest.raises(InputError, match=r"--export: must be a folder, got the file .*site"):
        export.write_site(tmp_path / "site", print)
