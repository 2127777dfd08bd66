"""What the server refuses, whoever asks: other host names, other people's pages, other paths.

A page on the web cannot read from 127.0.0.1, but it can let its own name point there (DNS
rebinding). Its requests then carry that name in `Host`: they are refused before anything is looked
at, static files and websockets included. It can also ask for a picture or a script here by our own
name; browsers then say so in `Sec-Fetch-Site`.

Only what our page needs is served. Bokeh would answer for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tornado.httputil import HTTPHeaders, HTTPServerRequest
    from tornado.web import Application

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
