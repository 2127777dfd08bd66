"""From an exception to an exit code and a line: the one place where that is decided."""

from __future__ import annotations

import traceback
from typing import NamedTuple

import typer

from flowbias.cli.console import complain
from flowbias.cli.exit_codes import ExitCode


class InterruptedRunError(Exception):
    """Ctrl-C during a run of experiments, where what is finished has been kept."""


class Verdict(NamedTuple):
    """How the program ends, and what it says."""

    code: ExitCode
    message: str


def report(error: Exception, *, debug: bool) -> ExitCode:
    """Say on standard error what went wrong; the code to end with."""
    code, message = judge(error)
    if debug:
        complain("".join(traceback.format_exception(error)).rstrip("\n"))
    if code is ExitCode.INTERRUPTED:
        complain(message)
    else:
        complain(f"error: {message}", style="red")
    return code


def judge(error: Exception) -> Verdict:
    """The exit code of an exception, and its message in one line."""
    for kind, code in _codes().items():
        if isinstance(error, kind):
            return Verdict(code, _one_line(_message(error)))
    found = _one_line(f"{type(error).__name__}: {error}")
    advice = "Please report it with what `flowbias --debug ...` prints for the same command."
    return Verdict(ExitCode.BUG, f"this is a bug in flowbias ({found}). {advice}")


def _codes() -> dict[type[Exception], ExitCode]:
    """The first kind that fits decides. Imported late: nothing here is needed until it happens."""
    from flowbias.designs.dask_cluster import ClusterError
    from flowbias.problem import InputError
    from flowbias.solution import SolveError

    return {
        typer.TyperException: ExitCode.BAD_INPUT,
        InputError: ExitCode.BAD_INPUT,
        SolveError: ExitCode.DOUBTFUL,
        ClusterError: ExitCode.NO_CLUSTER,
        InterruptedRunError: ExitCode.INTERRUPTED,
        # Files that are read turn their troubles into InputError: what is left was to be written.
        OSError: ExitCode.NOT_WRITTEN,
    }


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        # Without the number that str() puts in front.
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if not isinstance(error, typer.TyperException):
        return str(error) or type(error).__name__
    message = error.format_message()
    context = getattr(error, "ctx", None)  # only the errors of a known command carry one
    if context is None:
        return message
    return f"{message.rstrip('. ')}. Try: {context.command_path} --help"


def _one_line(text: str) -> str:
    return " ".join(text.split())
