"""`flowbias predict`: what a saved model says of new samples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowbias.apps.cli.console import complain, results, write_json
from flowbias.apps.cli.program import ExitCode, Impute, Json

if TYPE_CHECKING:
    from flowbias.apps.data_files.model_file import Predictions


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="What `flowbias limit DATA --save model.json` wrote.",
            metavar="MODEL",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="A .csv file with the columns of the model's data, in any order and with others "
            "beside them; or a .npz file with an array X; or - for standard input.",
            metavar="DATA",
            show_default=False,
        ),
    ],
    impute: Impute = None,
    json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the predictions to FILE.csv.", metavar="FILE", show_default=False),
    ] = None,
) -> ExitCode:
    """Predict y for the samples of DATA, one number a line.

    Columns are found by their names. Where DATA has y as well, the error is
    said on standard error.
    """
    from flowbias.apps.cli.files import check_output, read_file, read_kind, write_file
    from flowbias.apps.data_files.contents import csv_bytes
    from flowbias.apps.data_files.model_file import read_model

    check_output(out, (".csv",), data)
    saved = read_file("MODEL", model, read_model)
    filled = impute is not None
    found = read_kind(
        data,
        {
            ".npz": lambda content: saved.predict_npz(content, impute=filled),
            ".csv": lambda content: saved.predict_csv(content, impute=filled),
        },
    )
    table = csv_bytes(("prediction",), ([float(value)] for value in found.values))
    if out is not None:
        write_file(out, table)
    if json:
        write_json({"predictions": found.values.tolist(), "error": found.error})
    elif out is not None:
        results().print(f"{len(found.values)} predictions written to {out}", soft_wrap=True)
    else:
        sys.stdout.write(table.decode())
    _remark(found, saved.certified)
    return ExitCode.ALL_WELL


def _remark(found: Predictions, certified: bool) -> None:
    if not certified:
        complain("the limit that this model is was not certified")
    if found.error is not None:
        complain(
            f"root mean square error {found.error:.6g} over {len(found.values)} samples "
            f"(y itself varies by {found.spread:.6g})"
        )
