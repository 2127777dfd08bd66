"""`flowbias limit` and `predict`: the limit of gradient flow, certified, and what it predicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flowbias.apps.cli.console import columns, complain, results, show, write_json
from flowbias.apps.cli.program import (
    FILE,
    DataOptions,
    Depth,
    ExitCode,
    Impute,
    Json,
    Shape,
    Tolerance,
    with_options,
)

if TYPE_CHECKING:
    from flowbias.apps.data_files.limit_files import ModelPredictions, Network
    from flowbias.apps.data_files.regression_data import RegressionData
    from flowbias.results.solution import Solution


@with_options
def limit(
    data: DataOptions,
    depth: Depth = 2.0,
    scale: Annotated[
        str | None,
        typer.Option(help="Size of every weight at the start: 0.1, 1e-400.", show_default=False),
    ] = None,
    log_scale: Annotated[
        float | None,
        typer.Option(help="Natural logarithm of the scale, instead of it.", show_default=False),
    ] = None,
    cv: Annotated[
        bool, typer.Option("--cv", help="Take the scale that 5-fold cross-validation prefers.")
    ] = False,
    shape: Shape = None,
    tol: Tolerance = 1e-10,
    json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write w to FILE.csv; or w, dual and certificate to FILE.npz.", **FILE),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the model to FILE.json, for `flowbias predict`.", **FILE),
    ] = None,
) -> ExitCode:
    """Solve for the limit of gradient flow on DATA, and prove it.

    Nothing is integrated. The certificate says how exact the answer is;
    exit code 1 says that it could not be proved.
    """
    from flowbias.apps.cli.files import check_output, deliver, write_file
    from flowbias.apps.cli.scales import cross_validated, start_of
    from flowbias.apps.data_files import json_text
    from flowbias.apps.data_files.limit_files import (
        limit_csv,
        limit_document,
        limit_npz,
        model_document,
    )
    from flowbias.limits import limit as solve

    network = start_of(depth, shape, scale=scale, log_scale=log_scale, cv=cv)
    check_output(out, (".npz", ".csv"), data.data)
    check_output(save, (".json",), data.data, "--save")
    read = data.read()
    if cv:
        network, said = cross_validated(network, shape, read)
        read = read._replace(remarks=(*read.remarks, said))
    solution = solve(network, read.problem, tol=tol, throw=False)

    def content(ending: str) -> bytes:
        return limit_csv(read, solution) if ending == ".csv" else limit_npz(network, solution)

    if save is not None:
        write_file(save, json_text(model_document(read, network, solution)).encode(), "--save")
    document = (lambda: limit_document(read, network, solution)) if json else None
    deliver(out, content, document, lambda: _show(read, network, solution))
    if save is not None and not json:
        results().print(f"model written to {save}", soft_wrap=True)
    return ExitCode.ALL_WELL if solution.status.ok else ExitCode.DOUBTFUL


def _show(
    data: RegressionData, network: Network, solution: Solution, coefficients: int = 10
) -> None:
    from flowbias.apps.data_files.limit_files import count_above_negligible, largest, norms

    console = results()
    certificate, stats = solution.certificate, solution.stats
    l1, l2 = norms(solution.w)
    lines = [
        ("data", str(data)),
        *(("", remark) for remark in data.remarks),
        ("start", repr(network)),
        ("status", _status(solution)),
        ("route", solution.route),
        ("feasibility", f"{certificate.feasibility:.1e}"),
        ("stationarity", f"{certificate.stationarity:.1e}"),
        ("gap", f"{certificate.gap:.1e}"),
        (
            "error bound",
            f"{certificate.error_bound:.1e} (Euclidean distance to the exact limit)",
        ),
        ("l1 norm", f"{l1:.10g}"),
        ("l2 norm", f"{l2:.10g}"),
        (
            "nonzero",
            f"{count_above_negligible(solution.w)} of {len(solution.w)}"
            " (above 1e-6 of the largest)",
        ),
        ("time", f"{1e3 * stats.seconds:.0f} ms, {stats.factorizations} factorizations"),
    ]
    intercept = data.units.at_zero(solution.w)
    if intercept is not None:
        lines.append(("intercept", f"{intercept:.8g}"))
    verdict = "bold green" if solution.status.ok else "bold red"
    for name, text in lines:
        console.print(f"{name:<13}", style="bold", end="")
        console.print(text, style=verdict if name == "status" else "", soft_wrap=not name)
    _show_coefficients(data, solution, largest(solution.w, coefficients))


def _show_coefficients(data: RegressionData, solution: Solution, features: list[int]) -> None:
    """Ranked as they are compared; where that is per standard deviation, per unit as well."""
    shown = {"coefficient": solution.w}
    if data.is_standardized:
        shown = {"per deviation": solution.w, "per unit": data.units.per_unit(solution.w)}
    table = columns("largest", *shown, right=tuple(shown))
    for feature in features:
        table.add_row(data.name(feature), *(f"{w[feature]: .8g}" for w in shown.values()))
    show(table)


def _status(solution: Solution) -> str:
    """The status, in words where it is not the plain one, whose numbers stand below it."""
    name = solution.status.name
    return name if name == "CERTIFIED" else f"{name}: {solution.message}"


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
        Path | None, typer.Option(help="Write the predictions to FILE.csv.", **FILE)
    ] = None,
) -> ExitCode:
    """Predict y for the samples of DATA, one number a line.

    Columns are found by their names. Where DATA has y as well, the error is
    said on standard error.
    """
    from flowbias.apps.cli.files import check_output, read_file, read_kind, write_file
    from flowbias.apps.data_files import csv_bytes
    from flowbias.apps.data_files.limit_files import read_model

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


def _remark(found: ModelPredictions, certified: bool) -> None:
    if not certified:
        complain("the limit that this model is was not certified")
    if found.error is not None:
        complain(
            f"root mean square error {found.error:.6g} over {found.judged} samples "
            f"(y itself varies by {found.spread:.6g})"
        )
