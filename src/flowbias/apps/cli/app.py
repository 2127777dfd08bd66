"""The commands, put together; those of a few lines are here: `cite` and `explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flowbias._version import __version__
from flowbias.apps.cli.console import complain, results
from flowbias.apps.cli.figures import list_figures, reproduce, run
from flowbias.apps.cli.image_data import image_data
from flowbias.apps.cli.limit import limit, predict
from flowbias.apps.cli.path import path
from flowbias.apps.cli.program import DEBUG, NAME, ExitCode, Program, explanation
from flowbias.apps.cli.regime import regime
from flowbias.apps.cli.stages import stages

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


_SOFTWARE = f"""\
@software{{flowbias,
  title   = {{flowbias: the exact implicit bias of gradient flow}},
  author  = {{{{The flowbias developers}}}},
  version = {{{__version__}}},
  license = {{BSD-3-Clause}}
}}"""

_PAPERS = r"""@inproceedings{woodworth2020,
  title     = {{Kernel and Rich Regimes in Overparametrized Models}},
  author    = {Woodworth, Blake and Gunasekar, Suriya and Lee, Jason D. and Moroshko, Edward and
               Savarese, Pedro and Golan, Itay and Soudry, Daniel and Srebro, Nathan},
  booktitle = {Proceedings of the Thirty Third Conference on Learning Theory (COLT)},
  year      = {2020}
}

@inproceedings{azulay2021,
  title     = {{On the Implicit Bias of Initialization Shape: Beyond Infinitesimal Mirror Descent}},
  author    = {Azulay, Shahar and Moroshko, Edward and Nacson, Mor Shpigel and Woodworth, Blake and
               Srebro, Nathan and Globerson, Amir and Soudry, Daniel},
  booktitle = {Proceedings of the 38th International Conference on Machine Learning (ICML)},
  year      = {2021}
}

@misc{min2021,
  title         = {{Convergence and Implicit Bias of Gradient Flow on Overparametrized Linear
                   Networks}},
  author        = {Min, Hancheng and Tarmoun, Salma and Vidal, Ren{\'e} and Mallada, Enrique},
  eprint        = {2105.06351},
  archivePrefix = {arXiv},
  note          = {The longer version of a paper at ICML 2021, cited by its own numbers},
  year          = {2021}
}"""


def cite() -> None:
    """Print BibTeX for flowbias and for the papers whose theorems it computes."""
    results().print(f"{_SOFTWARE}\n\n{_PAPERS}", soft_wrap=True)


def explore(
    port: Annotated[
        int, typer.Option(help="Where to listen; the next free one if it is busy, any for 0.")
    ] = 5210,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Say the address and open nothing.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write pages to host there, and serve nothing."),
    ] = None,
) -> ExitCode:
    """Explore the theory in a browser: pictures that answer while a slider moves.

    Served on 127.0.0.1 only, without anything from the network. Stop it
    with Ctrl-C. Needs the extra `explore`.

    With --export the main views become pages without Python behind them, some
    positions of their sliders computed beforehand: they open from a disk and
    from any web server.
    """
    from flowbias.apps.explorer.export import write_site
    from flowbias.apps.explorer.server import serve

    if export is not None:
        write_site(export, say=complain)
    else:
        serve(port, open_browser=not no_browser, say=complain)
    return ExitCode.ALL_WELL


app.command("list")(list_figures)
for command in (run, reproduce, limit, predict, path, stages, regime, explore, cite):
    app.command()(command)
app.add_typer(image_data)


def main() -> None:
    """Run the program on the words of the command line, and exit."""
    app()
