"""The server behind `flowbias explore`: on this machine only, until it is told to stop.

It refuses, whoever asks, other host names, other people's pages and other paths. A page on the web
cannot read from 127.0.0.1, but it can let its own name point there (DNS rebinding). Its requests
then carry that name in `Host`: they are refused before anything is looked at, static files and
websockets included. It can also ask for a picture or a script here by our own name; browsers then
say so in `Sec-Fetch-Site`.

Only what our page needs is served. Bokeh would answer for more.
"""

from __future__ import annotations

import errno
import importlib.util
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowbias.ground.arguments import InputError
from flowbias.ground.threads import one_thread

if TYPE_CHECKING:
    from bokeh.server.server import Server
    from tornado.httputil import HTTPHeaders, HTTPServerRequest
    from tornado.web import Application

ADDRESS = "127.0.0.1"
RESOURCES = Path(__file__).parent / "resources"
# A file travels as text, four letters for three bytes, inside one message.
LARGEST_MESSAGE = 16 * 2**20
# A connection may be silent for this long before and between its requests, or within one. Browsers
# open a new one when they need it; a websocket, once open, may be silent as long as it likes.
IDLE_SECONDS = 20.0

NAMES = ("127.0.0.1", "localhost")
PATHS = (
    "/",
    "/ws",
    "/static/js/bokeh.min.js",
    "/explorer/explorer.css",
    "/explorer/explorer.js",
    "/explorer/theme.js",
)
# What the page itself may load is in the page (`page_policy`): it knows its nonce.
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A shared address is read again, so that a new server never meets an old page.
    "Cache-Control": "no-store",
}
REFUSAL = b"Refused: flowbias explore answers its own page on this machine, and nobody else.\n"


def require_extra() -> None:
    """Say which extra is missing, before anything else is looked at."""
    if importlib.util.find_spec("bokeh") is None:
        raise InputError(
            "explore: must have bokeh to draw with, which is not installed. "
            'Install the extra `explore`: pip install "flowbias[explore]"'
        )


def free_port(wanted: int, neighbours: int = 20) -> int:
    """`wanted`, or one of its next `neighbours` that nobody listens on; any free one for 0."""
    if not 0 <= wanted < 2**16:
        raise InputError(f"--port: must lie in 0..65535, got {wanted}. Leave it out.")
    for port in (wanted, *range(wanted + 1, min(wanted + neighbours, 2**16)), 0):
        with socket.socket() as trial:
            # As the server itself will: a port that was closed a moment ago is free.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((ADDRESS, port))
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
            return int(trial.getsockname()[1])
    raise InputError(f"--port: must be free, got {wanted}, and no other port is free either.")


def own_hosts(port: int) -> tuple[str, ...]:
    """What a `Host` header may say."""
    return tuple(f"{name}:{port}" for name in NAMES)


@dataclass(frozen=True)
class Stranger:
    """A rule of Tornado's router that matches all that our own page would not ask."""

    hosts: tuple[str, ...]

    def match(self, request: HTTPServerRequest) -> Mapping[str, Any] | None:
        """The arguments of the target, none; or None where the request is ours."""
        ours = (
            request.host.lower() in self.hosts
            and request.path in PATHS
            and self.is_from_our_page(request.headers)
        )
        return None if ours else {}

    def reverse(self, *args: Any) -> None:
        """No address leads here."""

    def is_from_our_page(self, headers: HTTPHeaders) -> bool:
        """Whether the request is from us as far as it says, or somebody follows a link to us."""
        origins = [None, *(f"http://{host}" for host in self.hosts)]
        sites = [None, "same-origin", "none"]
        followed = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest"))
        return headers.get("Origin") in origins and (
            headers.get("Sec-Fetch-Site") in sites or followed == ("navigate", "document")
        )


def refuse(request: HTTPServerRequest) -> None:
    """Answer 403, and nothing of what was asked for."""
    from tornado.httputil import HTTPHeaders, ResponseStartLine

    connection = request.connection
    about = {"Content-Type": "text/plain", "Content-Length": str(len(REFUSAL))}
    headers = HTTPHeaders(about | HEADERS)
    connection.write_headers(ResponseStartLine("HTTP/1.1", 403, "Forbidden"), headers, REFUSAL)
    connection.finish()


class SafeHeaders:
    """What Tornado runs over every answer of the application: it adds the headers."""

    def __init__(self, request: HTTPServerRequest) -> None:
        pass

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        for name, value in HEADERS.items():
            headers[name] = value
        return status_code, headers, chunk

    def transform_chunk(self, chunk: bytes, finishing: bool) -> bytes:
        return chunk


def guard(application: Application, port: int) -> None:
    """Refuse strangers before any other rule is looked at, and send the headers with all else."""
    from tornado.routing import Rule

    application.default_router.rules.insert(0, Rule(Stranger(own_hosts(port)), refuse))
    application.add_transform(SafeHeaders)


def make_server(port: int, pool: Executor) -> Server:
    """A server that listens on `port` and is not started yet; scenes are computed in `pool`."""
    from bokeh.application import Application as BokehApplication
    from bokeh.application.handlers import FunctionHandler
    from bokeh.server.server import Server
    from tornado.web import StaticFileHandler

    from flowbias.apps.explorer.page import Explorer

    hosts = own_hosts(port)
    server = Server(
        {"/": BokehApplication(FunctionHandler(Explorer(hosts, pool).open))},
        port=port,
        address=ADDRESS,
        allow_websocket_origin=list(hosts),
        use_index=False,
        extra_patterns=[(r"/explorer/(.*)", StaticFileHandler, {"path": str(RESOURCES)})],
        secret_key=secrets.token_bytes(32),
        sign_sessions=True,
        generate_session_ids=True,
        include_headers=[],
        include_cookies=[],
        check_unused_sessions_milliseconds=1_000,
        # A tab that is closed or reloaded is forgotten after this long.
        unused_session_lifetime_milliseconds=3_000,
        websocket_max_message_size=LARGEST_MESSAGE,
        http_server_kwargs={
            # Nothing is posted to this server.
            "max_body_size": 2**16,
            "max_header_size": 2**15,
            # Tornado's own hour, and no end for a body, would let half a request stay.
            "idle_connection_timeout": IDLE_SECONDS,
            "body_timeout": IDLE_SECONDS,
        },
    )
    guard(server._tornado, port)
    return server


def serve(port: int, *, open_browser: bool = True, say: Callable[[str], None]) -> None:
    """Serve the explorer until Ctrl-C. `say` gets what a person should know."""
    require_extra()
    chosen = free_port(port)
    if port and chosen != port:
        say(f"port {port} is busy or not allowed: taking {chosen}")
    # Two: a long scene of one tab does not stop the others, and NumPy lets go of the lock.
    pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="scene")
    server = make_server(chosen, pool)
    address = f"http://{ADDRESS}:{chosen}/"
    say(f"flowbias explore: {address} (stop with Ctrl-C)")
    server.start()
    if open_browser:
        server.io_loop.add_callback(lambda: _open(address, say))
    # The problems are small, and two tabs at once are the rule: more threads only wait.
    with one_thread():
        # Ends by Ctrl-C, or when the system asks.
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(
                one, lambda *_: server.io_loop.add_callback_from_signal(server.io_loop.stop)
            )
        server.io_loop.start()
    server.stop()
    pool.shutdown(wait=False, cancel_futures=True)
    say("stopped")


def _open(address: str, say: Callable[[str], None]) -> None:
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        say(f"no browser was found: open {address} yourself")
