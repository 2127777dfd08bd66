"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from flowbias._version import __version__
from flowbias.cli.cite import cite
from flowbias.cli.console import results
from flowbias.cli.exit_codes import explanation
from flowbias.cli.experiment_list import list_experiments
from flowbias.cli.explore import explore
from flowbias.cli.image_data import image_data
from flowbias.cli.limit import limit
from flowbias.cli.path import path
from flowbias.cli.program import DEBUG, NAME, Program
from flowbias.cli.regime import regime
from flowbias.cli.run import reproduce, run

app = typer.Typer(
    name=NAME,
    cls=Program,
    epilog=explanation(),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def flowbias(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    """Which of the many zero-error solutions does gradient flow pick?

    Solved exactly, and returned with a certificate.
    """
    if version:
        results().print(f"{NAME} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        results().print(context.get_help())


app.command("list")(list_experiments)
for command in (run, reproduce, limit, path, regime, explore, cite):
    app.command()(command)
app.add_typer(image_data)


def main() -> None:
    """Run the program on the words of the command line, and exit."""
    app()
