"""What the server refuses, whoever asks: other host names, other origins, other people's frames.

A page on the web cannot read from 127.0.0.1, but it can let its own name point there (DNS
rebinding). Its requests then carry that name in `Host`: they are refused before anything is looked
at, static files and websockets included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tornado.httputil import HTTPHeaders, HTTPServerRequest
    from tornado.web import Application

NAMES = ("127.0.0.1", "localhost")
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
REFUSAL = b"Refused: flowbias explore answers on this machine only, under 127.0.0.1 or localhost.\n"


def page_policy(nonce: str, hosts: tuple[str, ...]) -> str:
    """All that the page may load or run: its own files, scripts with the nonce, its websocket.

    Styles are inline because Bokeh places figures by style attributes. Nothing is evaluated.
    """
    sockets = " ".join(f"ws://{host}" for host in hosts)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            "style-src 'self' 'unsafe-inline'",
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
    """A rule of Tornado's router that matches what was not sent to us, or not from our page."""

    hosts: tuple[str, ...]

    def match(self, request: HTTPServerRequest) -> Mapping[str, Any] | None:
        """The arguments of the target, none; or None where the request is ours."""
        return None if self.is_ours(request.host, request.headers) else {}

    def reverse(self, *args: Any) -> None:
        """No address leads here."""

    def is_ours(self, host: str, headers: HTTPHeaders) -> bool:
        """Whether the request names us and comes from our own page, where it says from which."""
        origin = headers.get("Origin")
        here = origin is None or (
            urlsplit(origin).scheme == "http" and urlsplit(origin).netloc.lower() in self.hosts
        )
        return host.lower() in self.hosts and here


def refuse(request: HTTPServerRequest) -> None:
    """Answer 403, and nothing of what was asked for."""
    from tornado.httputil import HTTPHeaders, ResponseStartLine

    connection = request.connection
    headers = HTTPHeaders({"Content-Type": "text/plain", "Content-Length": str(len(REFUSAL))})
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
