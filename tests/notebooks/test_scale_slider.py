"""The slider over the scale: its state in Python, and its picture in a real browser."""

import base64
import json
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import flowbias as fb
from flowbias.ground.arguments import InputError
from flowbias.notebooks import _SCRIPT, MOST_SHOWN, _widget_class, scale_slider
from tests.notebooks.results import data

pytest.importorskip("anywidget", reason="the extra `notebook` is not installed")
# What anywidget hands to the script, with all that a kernel would do left out.
PAGE = """<!doctype html><html lang="en"><head><title>t</title></head><body><main id="el"></main>
<script type="module">
import widget from "data:text/javascript;base64,%s";
const state = %s, heard = {};
window.saved = 0;
window.model = {
  get: name => state[name],
  set: (name, value) => { state[name] = value; },
  save_changes: () => { window.saved += 1; },
  on: (name, f) => { heard[name] = f; },
  off: name => { delete heard[name]; },
};
window.fromKernel = index => { state.index = index; heard["change:index"](); };
window.heard = heard;
window.done = widget.render({ model: window.model, el: document.getElementById("el") });
</script></body></html>"""


@pytest.fixture(scope="module")
def path():
    X, y, _ = data()
    model = fb.DiagonalNet(depth=2, scale=1.0)
    return fb.limit_path(model, X, y, log_scales=np.linspace(2.0, -20.0, 12))


def test_positions_go_from_the_smallest_scale_to_the_largest(path):
    slider = scale_slider(path)
    assert slider.solution is path[0]
    slider.index = 0
    assert slider.solution is path[11]
    assert slider.scales[::11] == ["2.1e-9", "7.4e0"]
    assert_array_equal(slider.coefficients, path.w[::-1])
    assert slider.notes[0].startswith(f"l1 norm {np.abs(path[11].w).sum():.6g}, l2 norm ")
    assert slider.notes[0].endswith(", CERTIFIED")


@pytest.mark.parametrize(("sent", "kept"), [(-3, 0), (99, 11), (4, 4)])
def test_a_front_end_cannot_leave_the_path(path, sent, kept):
    slider = scale_slider(path)
    slider.index = sent
    assert slider.index == kept


def test_of_many_features_the_largest_are_shown():
    X, y, _ = fb.datasets.sparse_regression(n=5, d=300, sparsity=2, noise_var=0.0, rng=0)
    path = fb.limit_path(fb.DiagonalNet(depth=2, scale=1.0), X, y, log_scales=[0.0, -3.0])
    slider = scale_slider(path)
    assert len(slider.features) == MOST_SHOWN
    assert slider.features == sorted(slider.features)
    left_out = np.setdiff1d(np.arange(300), slider.features)
    sizes = np.abs(path.w).max(axis=0)
    assert sizes[left_out].max() <= sizes[slider.features].min()
    assert_array_equal(slider.coefficients, path.w[::-1][:, slider.features])


def test_anything_but_a_path_is_refused():
    with pytest.raises(InputError, match=r"path: must be a LimitPath, got list\. Pass fb\.limit_p"):
        scale_slider([])


def test_without_the_extra_it_says_which(path, monkeypatch):
    _widget_class.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"Install the extra `notebook`"):
        scale_slider(path)


def test_the_script_fetches_nothing():
    text = _SCRIPT.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")
    assert "http" not in text
    assert "import" not in text
    assert "fetch(" not in text


@pytest.fixture
def page(browser, path):
    slider = scale_slider(path)
    names = ("index", "features", "dimension", "scales", "coefficients", "notes")
    state = json.dumps({name: getattr(slider, name) for name in names})
    script = base64.b64encode(_SCRIPT.read_bytes()).decode()
    opened = browser.new_page(viewport={"width": 390, "height": 600})
    complaints = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "request", lambda asked: asked.url.startswith("data:") or complaints.append(asked.url)
    )
    opened.set_content(PAGE % (script, state))
    opened.wait_for_function("window.done !== undefined")
    yield opened
    opened.close()
    assert complaints == []


def heights(page):
    return np.array(
        page.eval_on_selector_all("circle", "all => all.map(c => +c.getAttribute('cy'))")
    )


def as_drawn(path, at):
    """Where circles belong: linear in w, the largest on top, from 12 to 226 of 260."""
    w = path.w[::-1]
    low, high = min(0.0, w.min()), max(0.0, w.max())
    return 12.0 + (high - w[at]) / (high - low) * (260.0 - 12.0 - 34.0)


def test_the_picture_follows_the_keyboard(page, path):
    assert_allclose(heights(page), as_drawn(path, 11), atol=1e-9)
    page.get_by_label("scale of the start").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("[model.get('index'), saved]") == [10, 1]
    assert_allclose(heights(page), as_drawn(path, 10), atol=1e-9)
    assert path[1].status.name in page.locator("output").inner_text()
    assert f"{np.abs(path[1].w).sum():.6g}" in page.locator("output").inner_text()


def test_the_picture_follows_the_kernel(page, path):
    page.evaluate("fromKernel(0)")
    assert_allclose(heights(page), as_drawn(path, 0), atol=1e-9)
    assert page.get_by_label("scale of the start").input_value() == "0"
    assert page.get_by_label("scale of the start").get_attribute("aria-valuetext") == "2.1e-9"
    assert page.locator("output").inner_text().startswith("scale 2.1e-9: l1 norm")
    page.evaluate("done()")
    assert page.evaluate("Object.keys(heard)") == []


def test_it_fits_a_phone_and_reads_on_both_grounds(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inks = page.eval_on_selector_all("svg text", "all => all.map(e => e.getAttribute('fill'))")
    assert set(inks) == {"currentColor"}


def test_axe_finds_nothing_serious(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in {"serious", "critical"}] == []
