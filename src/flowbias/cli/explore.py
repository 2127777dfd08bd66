"""`flowbias explore`: the pictures that move, in a browser, from this machine alone."""

from __future__ import annotations

from typing import Annotated

import typer

from flowbias.cli.console import complain
from flowbias.cli.exit_codes import ExitCode

DEFAULT_PORT = 5210


def explore(
    port: Annotated[
        int, typer.Option(help="Where to listen; the next free one if it is busy, any for 0.")
    ] = DEFAULT_PORT,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Say the address and open nothing.")
    ] = False,
) -> ExitCode:
    """Explore the theory in a browser: pictures that answer while a slider moves.

    Served on 127.0.0.1 only, without anything from the network. Stop it
    with Ctrl-C. Needs the extra `explore`.
    """
    from flowbias.explorer.server import serve

    serve(port, open_browser=not no_browser, say=complain)
    return ExitCode.ALL_WELL
