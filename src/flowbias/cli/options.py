"""Options that several commands share, with the words that their help uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# What the help of every command says that takes DATA.
_DATA_HELP = (
    "A .npz file with arrays X (samples x features) and y (samples); or a .csv file of numbers, "
    "one sample per line. In a .csv the first line may name the columns; y is the column of that "
    "name, or else the last one. Commas, semicolons or tabs separate columns."
)

DataFile = Annotated[Path, typer.Argument(help=_DATA_HELP, metavar="DATA", show_default=False)]
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
