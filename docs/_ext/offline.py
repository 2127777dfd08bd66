"""The built pages ask no other host for anything: no script, style, font or picture from elsewhere.

Links that a reader may follow are none of this; what a browser fetches by itself is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|icon|preconnect|dns-prefetch))"""
    r"""[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:@import|url)\s*\(?["']?((?:https?:)?//[^"'\s)]+)"""
)


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True}


def _check(app: Any, exception: Exception | None) -> None:
    from sphinx.util import logging  # `fetched` is of use, and tested, without Sphinx

    if exception is not None or app.builder.format != "html":
        return
    for file in Path(app.outdir).rglob("*"):
        if file.suffix in {".html", ".css"}:
            for address in fetched(file.read_text(encoding="utf-8")):
                logging.getLogger(__name__).warning(
                    "%s fetches %s", file.relative_to(app.outdir), address
                )


def fetched(text: str) -> list[str]:
    """Addresses on other hosts that a browser would load with this page or style sheet."""
    return [next(filter(None, found)) for found in FETCHED.findall(text)]
