"""The server behind `flowbias explore`: on this machine only, until it is told to stop."""

from __future__ import annotations

import errno
import importlib.util
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from flowbias.apps.explorer.host_check import guard, own_hosts
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import one_thread

if TYPE_CHECKING:
    from bokeh.server.server import Server

ADDRESS = "127.0.0.1"
# How many ports in a row are tried before any free one is taken.
NEIGHBOURS = 20
RESOURCES = Path(__file__).parent / "resources"
# A file travels as text, four letters for three bytes, inside one message.
LARGEST_MESSAGE = 16 * 2**20
# Nothing is posted to this server.
LARGEST_BODY = 2**16
# A connection may be silent for this long before and between its requests, or within one. Browsers
# open a new one when they need it; a websocket, once open, may be silent as long as it likes.
IDLE_SECONDS = 20.0
# A tab that is closed or reloaded is forgotten after this long.
UNUSED_MILLISECONDS = 3_000


def require_extra() -> None:
    """Say which extra is missing, before anything else is looked at."""
    if importlib.util.find_spec("bokeh") is None:
        raise InputError(
            "explore: must have bokeh to draw with, which is not installed. "
            'Install the extra `explore`: pip install "flowbias[explore]"'
        )


def free_port(wanted: int) -> int:
    """`wanted`, or the next one that nobody listens on; any free one for 0."""
    if not 0 <= wanted < 2**16:
        raise InputError(f"--port: must lie in 0..65535, got {wanted}. Leave it out.")
    for port in (wanted, *range(wanted + 1, min(wanted + NEIGHBOURS, 2**16)), 0):
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


def make_server(port: int, pool: Executor) -> Server:
    """A server that listens on `port` and is not started yet; scenes are computed in `pool`."""
    from bokeh.application import Application
    from bokeh.application.handlers import FunctionHandler
    from bokeh.server.server import Server
    from tornado.web import StaticFileHandler

    from flowbias.apps.explorer.page import Explorer

    hosts = own_hosts(port)
    server = Server(
        {"/": Application(FunctionHandler(Explorer(hosts, pool).open))},
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
        unused_session_lifetime_milliseconds=UNUSED_MILLISECONDS,
        websocket_max_message_size=LARGEST_MESSAGE,
        http_server_kwargs={
            "max_body_size": LARGEST_BODY,
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
