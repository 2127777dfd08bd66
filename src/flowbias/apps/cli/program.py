"""The program around the commands: how it ends, the options they share, where exceptions end."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from flowbias.apps.cli.console import allow_any_text, complain

if TYPE_CHECKING:
    from flowbias.apps.data_files.regression_data import RegressionData

T = TypeVar("T")


class ExitCode(IntEnum):
    """What the exit code of `flowbias` means."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    ALL_WELL = 0, "all well"
    DOUBTFUL = 1, "it ran, but a check failed or a limit is not certified"
    BAD_INPUT = 2, "bad input or usage"
    TASKS_FAILED = 3, "some tasks of an experiment failed"
    NOT_WRITTEN = 4, "output could not be written"
    NO_CLUSTER = 5, "the cluster cannot be reached or used"
    BUG = 70, "a bug in flowbias"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    READER_GONE = 141, "whoever read the output stopped reading"


def explanation() -> str:
    """One line per code, as the help shows it."""
    lines = [f"{code.value:>5}  {code.meaning}" for code in ExitCode]
    return "\n".join(["Exit codes:", *lines])


class Imputation(StrEnum):
    """What may stand in for an empty cell."""

    MEAN = "mean"


Impute = Annotated[
    Imputation | None,
    typer.Option(help="Fill empty cells of X with the mean of their column.", show_default=False),
]
Depth = Annotated[
    float, typer.Option(help="Depth of the diagonal network: 2 or more, not only integers.")
]
Shape = Annotated[
    float | None,
    typer.Option(
        help="Untied network of depth 2, with this (|v|-|u|)/(|v|+|u|) between -1 and 1.",
        show_default=False,
    ),
]
Tolerance = Annotated[float, typer.Option(help="Relative tolerance of the certificate.")]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help='One JSON document on standard output; infinities are "Infinity", NaN is null.',
    ),
]
_COLUMN: dict[str, Any] = {"metavar": "COLUMN", "show_default": False}
#: An option for a file to write, which is written only where it is given.
FILE: dict[str, Any] = {"metavar": "FILE", "show_default": False}


def known_names(text: str, metavar: str, known: Callable[[], Iterable[str]]) -> Any:
    """An argument of names, which the shell completes."""
    return typer.Argument(
        help=text,
        metavar=metavar,
        show_default=False,
        autocompletion=lambda incomplete: [n for n in known() if n.startswith(incomplete)],
    )


@dataclass(frozen=True)
class DataOptions:
    """DATA, and how it is read."""

    data: Annotated[
        Path,
        typer.Argument(
            help="A .npz file with arrays X (samples x features) and y (samples); or a .csv file, "
            "one sample per line; or - for standard input. In a .csv the first line may name the "
            "columns; y is the column of that name or of --target, or else the last one. Commas, "
            "semicolons or tabs separate columns. Columns of a few words become one column of "
            "zeros and ones per word.",
            metavar="DATA",
            show_default=False,
        ),
    ]
    target: Annotated[
        str | None,
        typer.Option(help="Column of a .csv that is y, by name or number.", **_COLUMN),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out this column of a .csv, by name or number; may be repeated.", **_COLUMN
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Take this column though it looks like an id; may be repeated.", **_COLUMN
        ),
    ] = None
    impute: Impute = None
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Leave out lines of a .csv that have no y.")
    ] = False
    standardize: Annotated[
        bool | None,
        typer.Option(
            "--standardize/--no-standardize",
            help="Measure columns in their standard deviations.",
            show_default="where their units differ by a factor of 10",
        ),
    ] = None
    intercept: Annotated[
        bool | None,
        typer.Option(
            "--intercept/--no-intercept",
            help="Fit X and y less their means.",
            show_default="where columns are standardized",
        ),
    ] = None

    def read(self) -> RegressionData:
        """The data, as these options say."""
        from flowbias.apps.cli.files import read_data
        from flowbias.apps.data_files.regression_data import FileReading

        reading = FileReading(
            self.target,
            tuple(self.drop or ()),
            tuple(self.keep or ()),
            self.impute is not None,
            self.labelled,
            self.standardize,
            self.intercept,
        )
        return read_data(self.data, reading)


def with_options(command: Callable[..., T]) -> Callable[..., T]:
    """The command with the fields of a dataclass as options, where a parameter asks for one.

    typer reads options off a signature: what commands share would stand in each of them.
    """
    hints = get_type_hints(command, include_extras=True)
    shared: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group = shared.get(name)
        types = hints if group is None else get_type_hints(group, include_extras=True)
        for each in [parameter] if group is None else inspect.signature(group).parameters.values():
            options[each.name] = each.replace(annotation=types[each.name], kind=each.KEYWORD_ONLY)

    def run(**given: Any) -> T:
        for name, group in shared.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    functools.update_wrapper(run, command)
    run.__annotations__ = {name: each.annotation for name, each in options.items()}
    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    return run


class InterruptedRunError(Exception):
    """Ctrl-C during a run of experiments, where what is finished has been kept."""


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


def judge(error: Exception) -> tuple[ExitCode, str]:
    """The exit code of an exception, and its message in one line."""
    for kind, code in _codes().items():
        if isinstance(error, kind):
            return code, _one_line(_message(error))
    found = _one_line(f"{type(error).__name__}: {error}")
    advice = "Please report it with what `flowbias --debug ...` prints for the same command."
    return ExitCode.BUG, f"this is a bug in flowbias ({found}). {advice}"


def _codes() -> dict[type[Exception], ExitCode]:
    """The first kind that fits decides. Imported late: nothing here is needed until it happens."""
    from flowbias.designs.dask_cluster import ClusterError
    from flowbias.ground.arguments import InputError
    from flowbias.results.solution import SolveError

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
    ended = message if message.endswith("?") else f"{message.rstrip('. ')}."
    return f"{ended} Try: {context.command_path} --help"


def _one_line(text: str) -> str:
    return " ".join(text.split())


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
