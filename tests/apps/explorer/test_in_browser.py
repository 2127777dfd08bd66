"""The explorer as a reader meets it: in Chromium, with a real server, offline."""

import io
import re
import signal

import numpy as np
import pytest

from flowbias.apps.explorer import views
from flowbias.apps.explorer.views.own_data import LARGEST_FILE
from tests.apps.explorer.running import running
from tests.conftest import NO_TORCH, WITHOUT_TORCH

pytest.importorskip("bokeh", reason="the extra `explore` is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

WIDE, PHONE = (1440, 900), (390, 844)
# A view that loads torch on a busy machine takes its time.
PATIENCE = 60_000

# A place where other extras are not installed.
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "cvxpy", "clarabel"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def visit(browser, server):
    """Opens views and, when the test is over, demands that nothing went wrong on any page."""
    contexts, complaints, requests = [], [], []

    def open_view(query, size=WIDE, scheme="light"):
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda message: complaints.append(f"{message.type} {message.text}"))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        tab.on("requestfailed", lambda request: complaints.append(f"failed {request.url}"))
        tab.goto(f"{server.address}?{query}")
        wait_until_drawn(tab, 1)
        return tab

    yield open_view
    for context in contexts:
        context.close()
    # Bokeh says in one line how little it will say.
    assert [text for text in complaints if not text.startswith(("info", "log"))] == []
    ours = (server.address, "data:", "blob:" + server.address, server.address.replace("http", "ws"))
    assert [url for url in requests if not url.startswith(ours)] == []


def wait_until_drawn(tab, serial):
    """Until the picture of that request, or of a later one, has been painted."""
    earlier = "".join(f":not([data-drawn='{number}'])" for number in range(serial))
    tab.wait_for_selector(f"body{earlier}")


def drawn(tab):
    return int(tab.get_attribute("body", "data-drawn"))


def violations(tab):
    """What axe-core finds serious or critical."""
    found = axe.Axe().run(tab).response["violations"]
    return [
        (one["id"], [node["target"] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def pixels(locator):
    from matplotlib.image import imread

    return imread(io.BytesIO(locator.screenshot()), format="png")[..., :3]


def sticking_out(tab):
    return tab.evaluate("document.scrollingElement.scrollWidth - innerWidth")


@pytest.mark.parametrize("name", views.NAMES)
def test_every_view_is_drawn_readable_and_reachable(visit, name, tmp_path):
    if name == "your-formula" and WITHOUT_TORCH:
        pytest.skip(NO_TORCH)
    tab = visit(f"view={name}")
    assert tab.locator("#error").is_hidden()
    assert tab.inner_text("h1") == views.view(name).title
    assert len(tab.inner_text("#text")) > 80
    pictures = tab.locator(".canvas")
    assert pictures.count() >= 1
    for place in range(pictures.count()):
        # Frames and curves: a blank rectangle has one colour.
        assert np.ptp(pixels(pictures.nth(place))) > 0.3
    assert violations(tab) == []
    # For a person to look at: it stays in pytest's folder.
    tab.screenshot(path=tmp_path / "light.png", full_page=True)
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_selector("html[data-theme=dark]")
    assert violations(tab) == []
    tab.screenshot(path=tmp_path / "dark.png", full_page=True)
    tab.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert sticking_out(tab) == 0
    tab.screenshot(path=tmp_path / "phone.png", full_page=True)


@pytest.mark.parametrize("name", views.NAMES)
def test_a_picture_and_its_slider_are_seen_together(visit, name):
    tab = visit(f"view={name}")
    picture, slider = tab.locator(".canvas").first, tab.locator("input[type=range]").first
    for width, height in ((1024, 768), (1280, 800), PHONE):
        tab.set_viewport_size({"width": width, "height": height})
        tab.wait_for_timeout(100)
        for part in (picture, slider):
            box = part.bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= height, (name, width)
    # On a phone the picture stays while the page is scrolled to what else can be set.
    last = tab.locator(".control").last
    last.evaluate("one => one.scrollIntoView({block: 'end'})")
    assert picture.bounding_box()["y"] >= 0
    bottom = tab.locator(".screen").bounding_box()
    assert bottom["y"] + bottom["height"] <= last.bounding_box()["y"] < PHONE[1]


def test_a_slider_moves_the_picture_by_key_and_by_mouse(visit):
    tab = visit("view=geometry")
    picture = tab.locator(".canvas").first
    before, words, said = (
        pixels(picture),
        tab.inner_text("#text"),
        tab.inner_text("#word-log_scale"),
    )
    slider = tab.locator("#control-log_scale")
    slider.focus()
    for _ in range(5):
        count = drawn(tab)
        tab.keyboard.press("ArrowLeft")
        wait_until_drawn(tab, count + 1)
    by_key = pixels(picture)
    assert np.abs(by_key - before).max() > 0.3
    assert tab.inner_text("#text") != words
    assert tab.inner_text("#word-log_scale") != said
    assert slider.get_attribute("aria-valuetext") == tab.inner_text("#word-log_scale")
    box = slider.bounding_box()
    count = drawn(tab)
    tab.mouse.click(box["x"] + 0.1 * box["width"], box["y"] + 0.5 * box["height"])
    wait_until_drawn(tab, count + 1)
    assert np.abs(pixels(picture) - by_key).max() > 0.3


def test_a_fast_slider_ends_at_its_last_value(visit):
    tab = visit("view=geometry")
    tab.evaluate("""() => {
      const slider = document.getElementById("control-angle");
      for (let value = 0; value <= 90; value += 1) {
        slider.value = value;
        slider.dispatchEvent(new Event("input", {bubbles: true}));
      }
    }""")
    tab.wait_for_selector("#text:has-text('two extremes agree')")
    # Not one picture per value: those in between were never asked for.
    assert drawn(tab) < 20


def test_the_address_holds_the_state_and_gives_it_back(visit):
    tab = visit("view=geometry&log_scale=-3&depth=3&angle=nonsense&y=99&stray=1")
    assert tab.inner_text("#word-log_scale") == "1e-3"
    assert tab.inner_text("#word-depth") == "3"
    assert tab.inner_text("#word-angle") == "60°"
    assert tab.inner_text("#word-y") == "2"
    count = drawn(tab)
    tab.locator("#control-depth").press("ArrowRight")
    wait_until_drawn(tab, count + 1)
    tab.wait_for_url(re.compile(r"depth=4"))
    assert "log_scale=-3&" in tab.url
    words = tab.inner_text("#text")
    assert words == visit(tab.url.partition("?")[2]).inner_text("#text")


def test_what_is_typed_into_the_address_is_not_run(visit):
    tab = visit("view=your-formula&formula=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert tab.locator("#error").is_visible()
    assert "script" in tab.input_value("#control-formula")
    run = (
        "[...document.querySelectorAll('script:not([type*=json])')].map(s => s.textContent).join()"
    )
    assert "alert(1)" not in tab.evaluate(run)


def test_the_code_can_be_copied(visit):
    tab = visit("view=geometry&log_scale=-3")
    tab.click("#copy")
    tab.wait_for_selector("#copied:has-text('Copied')")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied == tab.text_content("#code")
    assert "scale, start = 0.001" in copied


def test_play_moves_a_slider_until_it_is_stopped(visit):
    tab = visit("view=geometry-3d")
    before = tab.inner_text("#word-azimuth")
    button = tab.locator("[data-plays=azimuth]")
    button.press("Enter")
    wait_until_drawn(tab, drawn(tab) + 3)
    button.press("Enter")
    stopped = tab.inner_text("#word-azimuth")
    assert stopped != before
    assert button.get_attribute("aria-pressed") == "false"
    tab.wait_for_timeout(400)
    assert tab.inner_text("#word-azimuth") == stopped


def test_a_scale_plays_from_kernel_to_rich_and_begins_again(visit):
    tab = visit("view=matrices&log_alpha=-2.9")
    # A word that is passed stands for a moment only: it is written down, not looked for.
    tab.evaluate("""() => {
        const word = document.getElementById("word-log_alpha")
        document.body.dataset.passed = ""
        new MutationObserver(() => document.body.dataset.passed += word.textContent + " ")
            .observe(word, {childList: true, characterData: true, subtree: true})
    }""")
    button = tab.locator("[data-plays=log_alpha]")
    button.press("Enter")
    # Beyond the richest start comes the other end.
    tab.wait_for_selector("body[data-passed~='3.2e0']")
    button.press("Enter")
    passed = tab.get_attribute("body", "data-passed").split()
    assert passed.index("1e-3") < passed.index("3.2e0")


def test_presenting_has_large_type_one_picture_and_keys(visit):
    tab = visit("view=sparse-regression", (1280, 800))
    small = tab.evaluate("getComputedStyle(document.getElementById('text')).fontSize")
    tab.click("#present")
    assert tab.evaluate("getComputedStyle(document.getElementById('text')).fontSize") > small
    shown = tab.locator("figure:visible h2")
    assert shown.all_inner_texts() == ["Coefficients against the scale"]
    for part in (".canvas:visible", ".control.current input"):
        box = tab.locator(part).bounding_box()
        assert box["y"] + box["height"] <= 800
    assert violations(tab) == []
    count, before = drawn(tab), tab.inner_text("#word-log_scale")
    tab.keyboard.press("ArrowLeft")
    wait_until_drawn(tab, count + 1)
    assert tab.inner_text("#word-log_scale") != before
    tab.keyboard.press("ArrowDown")
    count = drawn(tab)
    tab.keyboard.press("ArrowRight")
    wait_until_drawn(tab, count + 1)
    assert tab.inner_text("#word-n") == "42"
    tab.keyboard.press("2")
    assert shown.all_inner_texts() == ["Population error"]
    assert np.ptp(pixels(tab.locator(".canvas:visible"))) > 0.3
    # As a clicker turns the page; the next view is presented as well.
    tab.keyboard.press("PageDown")
    tab.wait_for_url(re.compile("view=time.*present=1"))
    wait_until_drawn(tab, 1)
    assert tab.locator("body.presenting").count() == 1
    before = tab.inner_text("#word-moment")
    tab.keyboard.press("Space")
    wait_until_drawn(tab, drawn(tab) + 2)
    tab.keyboard.press("Space")
    assert tab.inner_text("#word-moment") != before
    tab.keyboard.press("Escape")
    assert tab.locator("nav").is_visible()
    tab.wait_for_url(re.compile("view=time&(?!.*present)"))


def test_a_text_that_is_typed_keeps_its_keys_while_presenting(visit):
    tab = visit("view=your-formula&solve=follow&present=1", (1280, 800))
    tab.locator("#control-equations").focus()
    tab.keyboard.press("End")
    for key in ("ArrowLeft", "1", " "):
        tab.keyboard.press(key)
    assert tab.input_value("#control-equations") == "1, 2 = 1 1"


def test_without_other_extras_a_view_says_at_once_what_it_lacks(browser, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    with running(before=[tmp_path]) as bare:
        tab.goto(f"{bare.address}?view=your-formula")
        tab.wait_for_selector("#error:not([hidden])")
        assert "Install the extra `nets`" in tab.inner_text("#error")
        assert tab.inner_text("#text") == ""
        tab.goto(f"{bare.address}?view=matrices")
        wait_until_drawn(tab, 1)
        assert tab.locator("#error").is_hidden()
        assert "extra sdp" in tab.inner_text("#more")
    tab.close()


def test_what_cannot_be_shown_is_not_said_to_be_computed(visit):
    tab = visit("view=time&depth=4&log_scale=-10")
    assert "scale: must be >= 1e-2 at depth 4, got 1e-10" in tab.inner_text("#error")
    assert tab.inner_text("#text") == ""


def test_all_of_it_can_be_reached_by_keys(visit):
    tab = visit("view=geometry")
    reached = []
    for _ in range(30):
        tab.keyboard.press("Tab")
        reached.append(
            tab.evaluate("document.activeElement.id || document.activeElement.textContent")
        )
    names = {f"control-{control.name}" for control in views.view("geometry").controls}
    assert {*views.TITLES.values(), *names, "theme", "reset", "copy"} <= set(reached)
    tab.locator("nav a", has_text="Geometry in 3D").press("Enter")
    tab.wait_for_url(re.compile("view=geometry-3d"))
    wait_until_drawn(tab, 1)
    tab.go_back()
    wait_until_drawn(tab, 1)
    assert tab.inner_text("h1") == "Geometry"


def test_a_chosen_theme_is_kept(visit):
    tab = visit("view=geometry")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.click("#theme")
    assert tab.get_attribute("html", "data-theme") == "dark"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    assert tab.get_attribute("#theme", "aria-pressed") == "true"
    tab.reload()
    assert tab.get_attribute("html", "data-theme") == "dark"


def test_nothing_sticks_out_at_any_width(visit):
    tab = visit("view=geometry", PHONE)
    tab.evaluate("document.querySelector('details').open = true")
    for width in (320, 390, 820, 1440, 2560):
        tab.set_viewport_size({"width": width, "height": 900})
        assert (width, sticking_out(tab)) == (width, 0)
        box = tab.locator(".canvas").first.bounding_box()
        assert box["x"] + box["width"] <= width
        assert box["width"] >= 270
        slider = tab.locator("#control-log_scale").bounding_box()
        assert slider["x"] >= 0
        assert slider["width"] >= 100


def test_a_wrong_file_is_explained_and_the_page_goes_on(visit):
    tab = visit("view=your-data")
    example = tab.inner_text("#text")
    upload = tab.locator("input[type=file]").first
    rows = b"".join(b"%d,%d,%d\n" % (k * k % 11, k * k % 7, k % 3) for k in range(1, 9))
    wrong = {
        "nan.csv": b"1,2,nan\n3,4,5\n",
        "text.csv": b"once upon a time\n",
        "large.csv": bytes(LARGEST_FILE + 1),
        "pickled.npz": b"\x80\x04\x95\x0b\x00\x00\x00",
        "empty.csv": b"",
        "tags.csv": b"<img src=x onerror=alert(1)>,![i](http://evil.example/i.png),y\n1,2,nan\n",
    }
    upload.set_input_files({"name": "right.csv", "mimeType": "text/csv", "buffer": rows})
    tab.wait_for_selector("#text:has-text('Your file')")
    for name, content in wrong.items():
        upload.set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
        tab.wait_for_selector("#error:not([hidden])")
        assert tab.inner_text("#error").startswith("file: ")
        # Its name is gone, so that the mended one can be chosen, and the file before it is kept.
        assert upload.input_value() == ""
        tab.locator("#control-log_scale").press("ArrowLeft")
        tab.wait_for_selector("#error", state="hidden")
        assert tab.inner_text("#text").startswith("Your file: samples 8, features 2.")
    assert tab.inner_text("#text") != example


def test_a_stopped_server_is_said_and_the_page_comes_back(browser):
    """Without the fixture that forbids complaints: the browser itself reports lost connections."""
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    with running() as first:
        port = first.port
        tab.goto(f"{first.address}?view=geometry&log_scale=-3")
        wait_until_drawn(tab, 1)
        tab.evaluate("window.before = true")
        assert tab.locator("#gone").is_hidden()
        first.process.send_signal(signal.SIGKILL)
        tab.wait_for_selector("#gone:not([hidden])")
        assert "this page reconnects by itself" in tab.inner_text("#gone")
    with running(port=port) as second:
        assert second.port == port
        tab.wait_for_selector("#gone", state="hidden")
        wait_until_drawn(tab, 1)
        assert tab.evaluate("window.before") is None
        assert tab.inner_text("#word-log_scale") == "1e-3"
    tab.close()
