"""The program around the commands: where it starts, and where every exception ends."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typer.core import TyperGroup

from flowbias.cli.console import allow_any_text, complain
from flowbias.cli.errors import report
from flowbias.cli.exit_codes import ExitCode

NAME = "flowbias"
DEBUG = "--debug"


@dataclass(frozen=True)
class Invocation:
    """What was typed; commands find it as `context.obj`."""

    command: str
    debug: bool


class Program(TyperGroup):
    """A group of commands that ends with an `ExitCode`, never with a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` name, and exit."""
        typed = list(sys.argv[1:] if args is None else args)
        # Read here, not as an option of the group: so it may stand anywhere, and it works also
        # where the options themselves are wrong.
        debug = DEBUG in typed
        allow_any_text()
        try:
            ended = super().main(
                [word for word in typed if word != DEBUG],
                prog_name=NAME,
                complete_var=complete_var,
                standalone_mode=False,
                obj=Invocation(shlex.join([NAME, *typed]), debug),
                **extra,
            )
        except BrokenPipeError:
            # The reader, `head` say, has seen enough. Python would complain once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitCode.READER_GONE)
        except Exception as error:
            sys.exit(report(error, debug=debug))
        if ended == ExitCode.INTERRUPTED:
            complain("interrupted")
        sys.exit(ended or ExitCode.ALL_WELL)
