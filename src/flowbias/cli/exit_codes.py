"""How the program ends, for scripts that call it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of `flowbias` means."""

    ALL_WELL = 0
    DOUBTFUL = 1
    BAD_INPUT = 2
    TASKS_FAILED = 3
    NOT_WRITTEN = 4
    NO_CLUSTER = 5
    BUG = 70
    INTERRUPTED = 130
    READER_GONE = 141


MEANING = {
    ExitCode.ALL_WELL: "all well",
    ExitCode.DOUBTFUL: "it ran, but a check failed or a limit is not certified",
    ExitCode.BAD_INPUT: "bad input or usage",
    ExitCode.TASKS_FAILED: "some tasks of an experiment failed",
    ExitCode.NOT_WRITTEN: "output could not be written",
    ExitCode.NO_CLUSTER: "the cluster cannot be reached or used",
    ExitCode.BUG: "a bug in flowbias",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.READER_GONE: "whoever read the output stopped reading",
}


def explanation() -> str:
    """One line per code, as the help shows it."""
    lines = [f"{code.value:>5}  {meaning}" for code, meaning in MEANING.items()]
    return "\n".join(["Exit codes:", *lines])
