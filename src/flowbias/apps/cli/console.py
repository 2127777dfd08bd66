"""What the program writes: results on standard output, everything else on standard error.

On a terminal both are coloured and as wide as it is. Elsewhere they are plain text, and no line is
broken.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from flowbias.apps.data_files import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from flowbias.apps.data_files.regression_data import RegressionData


def results() -> Console:
    """Standard output."""
    return _console(sys.stdout)


def remarks() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def complain(text: str, style: str = "") -> None:
    """Text on standard error as it is: no markup, no line broken."""
    remarks().print(text, style=style, soft_wrap=True)


def columns(*names: str, right: tuple[str, ...] = ()) -> Table:
    """A table with a heading and no frame: readable, and easy to cut with other programs."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        # What comes first is what one copies: it is never cut.
        table.add_column(
            name, justify="right" if name in right else "left", no_wrap=name == names[0]
        )
    return table


def show(table: Table) -> None:
    """A table on standard output, without the blanks that would fill its last column."""
    console = results()
    if console.quiet:
        return
    with console.capture() as rendered:
        console.print(table)
    lines = rendered.get().splitlines()
    console.file.write("".join(f"{line.rstrip(' ')}\n" for line in lines))
    console.file.flush()


def show_data(data: RegressionData) -> None:
    """What was read, and what was done to it."""
    for text in (str(data), *data.remarks):
        results().print(text, soft_wrap=True)


def write_json(document: Mapping[str, Any]) -> None:
    """The document on standard output, one line for each of its entries."""
    sys.stdout.write(json_text(document))
    sys.stdout.flush()


def allow_any_text() -> None:
    """A letter that the terminal's encoding lacks becomes a question mark, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # absent where a stream was replaced
        if reconfigure is not None:
            reconfigure(errors="replace")


def _console(stream: TextIO | None) -> Console:
    from rich.console import Console

    if stream is None:  # the program was started without it
        return Console(quiet=True)
    # Wider than any line: a pipe has no width to fit into.
    width = None if stream.isatty() else 100_000
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
