"""One tab: what it hears, what it says, and that it goes on whatever happens."""

import base64
import json
import logging
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowbias.apps.explorer import views
from flowbias.apps.explorer.page import HEAD_START, Newest, Tab, Wish, explore, one_message, prose
from flowbias.apps.explorer.view import Choice, Slider, Text, last_texts, settings_of
from tests.apps.explorer.toy import ToyView

pytest.importorskip("bokeh", reason="the extra `explore` is not installed")


# --- addresses ---------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(["slope", "colour", "word", "file", "x"]), st.text()))
def test_any_address_gives_legal_settings(texts):
    settings = settings_of(ToyView.controls, texts)
    assert settings.keys() == {"slope", "colour", "word", "file"}
    assert settings["slope"] in (0.0, 0.5, 1.0, 1.5, 2.0)
    assert settings["colour"] in ("red", "blue")
    assert len(settings["word"]) <= 20
    assert settings["file"] == b""


@given(st.floats(-10, 10))
def test_a_slider_takes_the_nearest_of_its_values(number):
    control = Slider("a", "A", -1.0, 2.0, 0.3, 0.0)
    got = control.parse(repr(number))
    assert got in control.grid
    assert all(abs(got - number) <= abs(other - number) for other in control.grid)


@pytest.mark.parametrize("text", ["nan", "inf", "-1e999", "", "0x10", "__import__('os')"])
def test_what_is_no_number_is_the_default(text):
    assert Slider("a", "A", 0.0, 1.0, 0.1, 0.3).parse(text) == 0.3


def test_a_slider_has_no_noise_in_its_digits():
    assert Slider("a", "A", -0.9, 0.9, 0.1, 0.0).grid[3:6] == (-0.6, -0.5, -0.4)


def test_settings_go_into_an_address_and_come_back():
    shown = {one["name"]: one for one in (c.widget(c.default) for c in ToyView.controls[:2])}
    for place, value in enumerate(shown["slope"]["values"]):
        settings = settings_of(ToyView.controls, {"slope": value})
        assert settings["slope"] == ToyView.controls[0].grid[place]


def test_the_last_of_two_arguments_counts():
    assert last_texts({"a": [b"1", b"2"], "b": [b"\xff"]}) == {
        "a": "2",
        "b": "\N{REPLACEMENT CHARACTER}",
    }


@pytest.mark.parametrize("name", views.NAMES)
def test_every_view_can_be_shown_from_its_defaults(name):
    view = views.view(name)
    assert view.name == name
    assert view.title
    names = [control.name for control in view.controls]
    assert len(set(names)) == len(names)
    assert "view" not in names
    settings = settings_of(view.controls, {})
    for control in view.controls:
        assert control.widget(settings[control.name])["label"]
        if isinstance(control, Slider):
            assert control.parse(str(control.default)) == control.default
            assert tuple(sorted(control.grid)) == control.grid
        if isinstance(control, Choice):
            assert control.default in dict(control.options)
        if isinstance(control, Text):
            assert len(control.default) <= control.longest


def test_a_view_that_is_not_there_is_the_first_one():
    assert views.view("../../etc/passwd").name == "geometry"


# --- the newest wish ---------------------------------------------------------------------------


def test_what_is_overtaken_is_never_computed():
    go, computed, delivered, done = Event(), [], [], Event()

    def compute(wish):
        go.wait(10)
        computed.append(wish)
        yield wish

    def deliver(found):
        delivered.append(found)
        if found == 9:
            done.set()

    with ThreadPoolExecutor(2) as pool:
        newest = Newest(pool, compute, deliver)
        for wish in range(10):
            newest.ask(wish)
        go.set()
        assert done.wait(10)
    # The first was under way, if its thread was quick enough; of the others only the last.
    assert computed == delivered
    assert computed in ([0, 9], [9])


def test_a_failure_does_not_block_what_comes_after():
    delivered = []

    def compute(wish):
        if wish == "bad":
            raise RuntimeError("boom")
        yield wish

    with ThreadPoolExecutor(1) as pool:
        newest = Newest(pool, compute, delivered.append)
        newest.ask("bad")
        pool.submit(lambda: None).result()
        newest.ask("good")
        pool.submit(lambda: None).result()
    assert delivered == ["good"]


def test_a_closed_tab_gets_nothing_more():
    started, go, computed, delivered = Event(), Event(), [], []

    def compute(wish):
        computed.append(wish)
        started.set()
        go.wait(10)
        yield wish

    with ThreadPoolExecutor(1) as pool:
        newest = Newest(pool, compute, delivered.append)
        newest.ask(1)
        started.wait(10)
        newest.close()
        newest.ask(2)
        go.set()
        # Behind the work that is under way, and behind what it may have left to do.
        for _ in range(2):
            pool.submit(lambda: None).result()
    assert (computed, delivered) == ([1], [])


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (lambda newest: None, ["1 first", "1 whole"]),
        (lambda newest: newest.ask(2), ["1 first", "2 first", "2 whole"]),
        (lambda newest: newest.close(), ["1 first"]),
    ],
)
def test_a_newer_wish_ends_what_is_left_of_an_older_one(then, expected):
    computed, delivered = [], []

    def compute(wish):
        for part in ("first", "whole"):
            computed.append(f"{wish} {part}")
            yield f"{wish} {part}"

    def deliver(found):
        delivered.append(found)
        if found == "1 first":
            then(newest)

    with ThreadPoolExecutor(1) as pool:
        newest = Newest(pool, compute, deliver)
        newest.ask(1)
        for _ in range(2):
            pool.submit(lambda: None).result()
    assert computed == delivered == expected


# --- a tab -----------------------------------------------------------------------------------


class AtOnce(Executor):
    """A pool without threads."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Page:
    """The browser's side of a tab."""

    def __init__(self):
        from bokeh.document import Document

        self.document = Document()
        # Bokeh's server runs them in this order; a document alone keeps them in none.
        self.due = []
        self.document.add_next_tick_callback = self.due.append
        # Without a session there is nobody to send to.
        self.tab = Tab(self.document, ToyView(), AtOnce(), nullcontext)
        self.serial = 0

    def send(self, kind="show", texts=None, **more):
        self.serial += 1
        message = {"kind": kind, "serial": self.serial, "texts": texts or {}, **more}
        asked = self.document.get_model_by_name("asked")
        asked.data = {"json": [json.dumps(message)]}
        while self.due:
            self.due.pop(0)()
        return self.answer

    @property
    def answer(self):
        return json.loads(self.document.get_model_by_name("answer").data["json"][0])

    @property
    def drawn(self):
        return self.tab.pictures[0].figure.renderers[0].data_source.data["y"][-1:]


@pytest.fixture
def page():
    return Page()


def test_a_wish_is_drawn_and_told(page):
    answer = page.send(texts={"slope": "1.6", "word": "up"})
    assert page.drawn == [1.5]
    assert answer["serial"] == 1
    assert answer["error"] == ""
    assert answer["text"] == "<p>The slope is <strong>1.5</strong>, the word up.</p>\n"
    assert answer["code"] == "slope = 1.5"
    assert answer["downloads"] == [{"name": "slope.txt", "label": "The slope"}]


def test_a_first_scene_is_shown_and_then_the_whole_one(page, monkeypatch):
    told = []
    monkeypatch.setattr(page.tab, "_tell", lambda answer: told.append((page.drawn, answer)))
    page.document.get_model_by_name("answer").data = {"json": ["{}"]}
    page.send(texts={"slope": "2", "word": "slow"})
    assert [drawn for drawn, _ in told] == [[0.0], [2.0]]
    assert [answer["serial"] for _, answer in told] == [1, 1]
    slopes = ("<strong>0</strong>", "<strong>2</strong>")
    assert all(slope in answer["text"] for slope, (_, answer) in zip(slopes, told, strict=True))
    page.send(texts={"slope": "2"})
    assert len(told) == 3


def test_a_first_scene_has_a_head_start(monkeypatch):
    rests, view = [], ToyView()
    monkeypatch.setattr("flowbias.apps.explorer.page.time.sleep", rests.append)
    for word in ("quick", "slow"):
        found = explore(view, Wish(1, settings_of(view.controls, {"word": word})))
        next(found)
        assert rests == []
        found = list(found)
    assert len(found) == 1
    assert rests == [HEAD_START]


def test_a_refused_setting_is_told_and_the_page_goes_on(page):
    page.send(texts={"slope": "2"})
    answer = page.send(texts={"slope": "1", "word": "refused"})
    assert answer["error"] == "word: must not be 'refused', got it. Type another."
    assert page.drawn == [2.0]
    assert page.send(texts={"slope": "1"})["error"] == ""
    assert page.drawn == [1.0]


@pytest.mark.parametrize(
    ("word", "named"), [("bug", "of a kind"), ("undrawable", "no such picture")]
)
def test_a_bug_is_logged_and_told_and_the_page_goes_on(page, caplog, word, named):
    with caplog.at_level(logging.ERROR, logger="flowbias.apps.explorer"):
        answer = page.send(texts={"word": word})
    assert named in answer["error"]
    assert "terminal" in answer["error"]
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None
    assert page.send()["error"] == ""


def test_a_file_is_kept_for_the_settings_that_follow(page):
    seen = []
    page.tab._view.scene = lambda settings: (
        seen.append(settings["file"]) or {"slope": 1.0, "word": ""}
    )
    page.send()
    for content in (b"1,2\n", b"wrong"):
        page.send("upload", name="file", base64=base64.b64encode(content).decode())
    page.send()
    # What is refused is not kept: the next move is answered with the file before.
    assert seen == [b"", b"1,2\n", b"1,2\n"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (base64.b64encode(bytes(101)).decode(), "file: must have at most 100 bytes, got 101"),
        (base64.b64encode(b"wrong").decode(), "file: must be right, got wrong."),
        ("%%%%MSwyCg==", "file: "),
        # To the view no bytes are no file: it would show its example and not say why.
        ("", "file: must hold some numbers, got an empty file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(page, content, complaint):
    answer = page.send("upload", name="file", base64=content)
    assert answer["error"].startswith(complaint)
    assert page.send()["error"] == ""


def test_a_download_is_that_of_what_is_shown(page):
    page.send(texts={"slope": "2"})
    answer = page.send("download", name="slope.txt")
    assert base64.b64decode(answer["file"]["base64"]) == b"2.0"
    assert answer["file"]["name"] == "slope.txt"


def test_what_is_not_offered_is_not_sent(page):
    page.send()
    before = page.answer
    assert page.send("download", name="../server.py") == before


def test_all_that_changes_reaches_the_page_in_one_message(monkeypatch):
    from bokeh.document import Document
    from bokeh.models import ColumnDataSource
    from bokeh.protocol import Protocol

    sent = []
    connection = SimpleNamespace(
        protocol=Protocol(), _socket=SimpleNamespace(send_message=lambda message: message)
    )
    session = SimpleNamespace(_subscribed_connections=[connection], _pending_writes=sent)
    context = SimpleNamespace(session=session)
    monkeypatch.setattr(Document, "session_context", property(lambda self: context))
    document = Document()
    sources = [ColumnDataSource({"x": [0]}) for _ in range(3)]
    for source in sources:
        document.add_root(source)
    for changed in (sources, [], sources[:2]):
        with one_message(document):
            for source in changed:
                source.data = {"x": [1]}
    assert [len(message.content["events"]) for message in sent] == [3, 2]
    assert document.callbacks.hold_value is None


def test_a_text_cannot_bring_its_own_tags():
    shown = prose(
        "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=y> "
        "![x](http://evil.example/x) [y](http://evil.example/) <http://evil.example/> [z]\n\n"
        "[z]: http://evil.example/"
    )
    assert "<script" not in shown
    assert "<img" not in shown
    assert "href" not in shown


def test_explore_never_raises():
    view = ToyView()
    settings = settings_of(view.controls, {"word": "bug"})
    (found,) = explore(view, Wish(3, settings))
    assert "ZeroDivisionError" in found.error
