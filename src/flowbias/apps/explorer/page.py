"""One browser tab: a view, what its reader has set, and what the page is told to show."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flowbias._version import __version__
from flowbias.apps.explorer import views
from flowbias.apps.explorer.drawing import Data, Picture
from flowbias.apps.explorer.view import (
    Control,
    Download,
    Upload,
    View,
    last_texts,
    settings_of,
)
from flowbias.ground.arguments import InputError
from flowbias.results.solution import SolveError

if TYPE_CHECKING:
    from bokeh.document import Document
    from jinja2 import Template

# Errors that carry their remedy: the page shows their text as it is.
EXPECTED = (InputError, SolveError)
BUG = (
    "Something unexpected went wrong ({error}). It is written to the terminal that runs "
    "`flowbias explore`; move a control to go on."
)
# Seconds in which a first scene is sent and mostly drawn: solving at the same time takes the
# processor from that, and the first picture comes later.
HEAD_START = 0.12
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
_log = logging.getLogger("flowbias.apps.explorer")


class Newest(Generic[Asked, Answer]):
    """Computes one wish at a time; of those that come meanwhile, the last one is next.

    A wish may be answered more than once, each time better: what is found is delivered as soon as
    it is there, and a newer wish ends what is left of an older one.
    """

    def __init__(
        self,
        pool: Executor,
        compute: Callable[[Asked], Iterable[Answer]],
        deliver: Callable[[Answer], None],
    ) -> None:
        self._pool, self._compute, self._deliver = pool, compute, deliver
        self._lock = Lock()
        self._busy = False
        self._waiting: list[Asked] = []
        self._closed = False

    def ask(self, wish: Asked) -> None:
        """Compute this as soon as the one under way is done, unless another one is asked first."""
        with self._lock:
            if self._closed:
                return
            self._waiting = [wish]
            if self._busy:
                return
            self._busy = True
        self._pool.submit(self._work)

    def close(self) -> None:
        """Compute and deliver nothing more."""
        with self._lock:
            self._closed, self._waiting = True, []

    def _work(self) -> None:
        # One wish per turn in the pool, so that no tab keeps the others waiting.
        with self._lock:
            wish, self._waiting = self._waiting, []
        try:
            for one in wish:
                for found in self._compute(one):
                    if not self._closed:
                        self._deliver(found)
                    if self._closed or self._waiting:
                        break
        finally:
            with self._lock:
                self._busy = bool(self._waiting)
                more = self._busy
            if more:
                self._pool.submit(self._work)


@dataclass(frozen=True)
class Wish:
    """What a reader asked for: settings, and the number under which they asked."""

    serial: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """What came of it: where the marks are, with words, or why there is nothing to show."""

    serial: int
    data: Data = field(default_factory=dict)
    text: str = ""
    code: str = ""
    downloads: tuple[Download, ...] = ()
    error: str = ""


def explore(view: View[Any], wish: Wish) -> Iterator[Found]:
    """The first scene if there is one, then the whole. Never raises: the page has to go on."""
    try:
        first = view.first_scene(wish.settings)
        if first is not None:
            yield presented(view, wish, first)
            time.sleep(HEAD_START)
        yield presented(view, wish, view.scene(wish.settings))
    except EXPECTED as error:
        yield Found(wish.serial, error=str(error))
    except Exception as error:
        _log.exception("view %s failed for %s", view.name, shortened(wish.settings))
        yield Found(wish.serial, error=BUG.format(error=f"{type(error).__name__}: {error}"))


def presented(view: View[Any], wish: Wish, scene: Any) -> Found:
    """A scene with all that the page shows beside it."""
    words, code = prose(view.text(scene)), view.code(wish.settings)
    return Found(wish.serial, view.data(scene), words, code, view.downloads(scene))


def shortened(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings for a log: files may be large."""
    return {name: repr(value)[:80] for name, value in settings.items()}


def prose(markdown: str) -> str:
    """Markdown as HTML. Tags in it are shown, not obeyed: a text may quote what a reader typed."""
    rendered: str = _markdown().render(markdown)
    return rendered


@cache
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    # No text of ours has a link, and one in what a reader typed would lead elsewhere.
    return made.disable(["link", "image", "autolink"])


def received(control: Upload, text: str) -> bytes:
    """The bytes of a file that came as text; InputError where the view has no use for them."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InputError(f"{control.name}: {error}. Try again.") from error
    if not content:
        raise InputError(f"{control.name}: must hold some numbers, got an empty file.")
    if len(content) > control.largest:
        raise InputError(
            f"{control.name}: must have at most {control.largest} bytes, got {len(content)}. "
            "Use flowbias limit on the command line for larger files."
        )
    control.check(content)
    return content


@contextmanager
def one_message(document: Document) -> Iterator[None]:
    """What changes inside reaches the page at once: Bokeh would send, and lay out, each alone.

    It has no public way to do so. Called with the document locked, as callbacks are.
    """
    document.hold("collect")
    try:
        yield
    finally:
        callbacks, session = document.callbacks, document.session_context.session
        changes, callbacks._held_events = callbacks._held_events, []
        document.unhold()
        for connection in session._subscribed_connections if changes else ():
            message = connection.protocol.create("PATCH-DOC", changes)
            session._pending_writes.append(connection._socket.send_message(message))


class Tab:
    """Listens to one page and answers it.

    The page and the server talk through two Bokeh sources: the page replaces the data of `asked`,
    the server those of the figures and then of `answer`.
    """

    def __init__(
        self,
        document: Document,
        view: View[Any],
        pool: Executor,
        at_once: Callable[[Document], AbstractContextManager[None]] = one_message,
    ) -> None:
        from bokeh.models import ColumnDataSource

        self._document, self._view, self._at_once = document, view, at_once
        self.pictures = [Picture(chart) for chart in view.charts]
        self._files: dict[str, bytes] = {}
        self._downloads: dict[str, Download] = {}
        self._newest = Newest(pool, partial(explore, view), self._hand_over)
        self._asked = ColumnDataSource(name="asked", data={"json": [""]})
        self._answer = ColumnDataSource(name="answer", data={"json": [""]})
        self._asked.on_change(
            "data", lambda _name, _old, new: self._hear(json.loads(new["json"][0]))
        )
        for source in (self._asked, self._answer):
            document.add_root(source)
        for picture in self.pictures:
            document.add_root(picture.figure)
        document.on_session_destroyed(lambda _session: self._newest.close())

    def _hear(self, message: Mapping[str, Any]) -> None:
        handlers = {"show": self._show, "upload": self._upload, "download": self._send}
        handlers[message["kind"]](message)

    def _show(self, message: Mapping[str, Any]) -> None:
        settings = settings_of(self._view.controls, message["texts"]) | self._files
        self._newest.ask(Wish(message["serial"], settings))

    def _upload(self, message: Mapping[str, Any]) -> None:
        """Keep a file that can be used, then show the view with it; else the last one stays."""
        name = message["name"]
        control = next(
            one for one in self._view.controls if isinstance(one, Upload) and one.name == name
        )
        try:
            self._files[name] = received(control, message["base64"])
        except InputError as error:
            return self._say(Found(message["serial"], error=str(error)))
        return self._show(message)

    def _send(self, message: Mapping[str, Any]) -> None:
        """A file of the scene that is shown, as the page asked for it by its name."""
        wanted = self._downloads.get(message["name"])
        if wanted is not None:
            content = base64.b64encode(wanted.content).decode("ascii")
            self._tell(
                {"file": {"name": wanted.name, "base64": content}, "serial": message["serial"]}
            )

    def _hand_over(self, found: Found) -> None:
        """From the thread that computed to the one that may touch the document."""

        def say() -> None:
            with self._at_once(self._document):
                self._say(found)

        self._document.add_next_tick_callback(say)

    def _say(self, found: Found) -> None:
        if not found.error:
            for picture in self.pictures:
                picture.show(found.data)
            self._downloads = {one.name: one for one in found.downloads}
        return self._tell(
            {
                "serial": found.serial,
                "error": found.error,
                "text": found.text,
                "code": found.code,
                "downloads": [{"name": one.name, "label": one.label} for one in found.downloads],
            }
        )

    def _tell(self, answer: Mapping[str, Any]) -> None:
        self._answer.data = {"json": [json.dumps(answer)]}


@dataclass(frozen=True)
class Explorer:
    """Opens a tab for every page that is asked for."""

    hosts: tuple[str, ...]
    pool: Executor

    def open(self, document: Document) -> None:
        """Fill the document of a new session with the view that its address names."""
        texts = last_texts(document.session_context.request.arguments)
        view = views.view(texts.get("view", ""))
        # While the browser is still drawing the page around the figures.
        self.pool.submit(view.warm_up)
        settings = settings_of(view.controls, texts)
        tab = Tab(document, view, self.pool)
        document.title = f"{view.title} - flowbias explore"
        # The page has its own way to say that the server is gone, and to come back.
        document.config.reconnect_session = False
        document.config.notify_connection_status = False
        document.template = template()
        links = {name: f"?view={name}" for name in views.NAMES}
        document.template_variables.update(
            page_variables(view, view.controls, settings, tab.pictures, links, self.hosts)
        )


def page_policy(nonce: str, hosts: tuple[str, ...]) -> str:
    """All that the page may load or run: its own files, scripts with the nonce, its websocket.

    Styles are inline because Bokeh places figures by style attributes. Nothing is evaluated. A page
    without hosts may lie on a disk, where not every browser takes the files beside it for its own.
    """
    own = "'self'" if hosts else "'self' file:"
    sockets = " ".join(f"ws://{host}" for host in hosts)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {own} 'nonce-{nonce}'",
            f"style-src {own} 'unsafe-inline'",
            "img-src 'self' data: blob:",
            f"connect-src 'self' {sockets}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def page_variables(
    view: View[Any],
    controls: Sequence[Control],
    settings: Mapping[str, Any],
    pictures: Sequence[Picture],
    links: Mapping[str, str],
    hosts: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What the template needs, besides what Bokeh gives it; `links` lead to the views by name."""
    nonce = secrets.token_urlsafe(16)
    return {
        "nonce": nonce,
        "policy": page_policy(nonce, hosts),
        "version": __version__,
        "view": view,
        "links": [(views.TITLES[name], href, name == view.name) for name, href in links.items()],
        "widgets": [control.widget(settings[control.name]) for control in controls],
        "figures": pictures,
    }


@cache
def template() -> Template:
    """The page. Every value is escaped, except what Bokeh renders itself."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("flowbias.apps.explorer", "resources"),
        autoescape=True,
        trim_blocks=True,
    )
    return environment.get_template("page.html.jinja")
