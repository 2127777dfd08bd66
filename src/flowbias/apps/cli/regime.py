"""`flowbias regime`: is somebody's network a kernel method on their data, or does it learn?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flowbias.apps.cli.console import results, write_json
from flowbias.apps.cli.program import ExitCode, Json


def regime(
    factory: Annotated[
        str,
        typer.Argument(
            help="Where the network comes from: a function without arguments that returns a torch "
            "module, as package.module:function. Looked for in the current folder as well.",
            metavar="MODULE:FACTORY",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="A .npz file with arrays X (samples first) and y (one number per sample and "
            "output).",
            metavar="FILE.npz",
            show_default=False,
        ),
    ],
    scales: Annotated[
        str | None,
        typer.Option(
            help="Factors on all parameters, as 0.1,1,10: train and diagnose at each.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Train a copy on the data, and diagnose it.")
    ] = False,
    max_epochs: Annotated[int, typer.Option(help="Epochs of training, at most.")] = 20_000,
    json: Json = False,
) -> ExitCode:
    """Say whether a network trains as a kernel method or learns features.

    Before training, from its first and second derivatives; with --train or
    --scales also after it (full-batch descent on the squared loss).
    Exit code 1 says that a training did not fit the data.
    """
    from flowbias.apps.cli.files import read_arrays, read_module, read_scales, require_extra
    from flowbias.ground.arguments import InputError

    require_extra()
    factors = None if scales is None else read_scales(scales)
    if max_epochs < 1:
        raise InputError(f"--max-epochs: must be >= 1, got {max_epochs}. Leave it out for 20000.")
    module = read_module(factory)
    x, y = read_arrays(data)
    parts, fitted = _found(module, x, y, factors, train, max_epochs)
    trained = parts["diagnosis"] is not None or parts["sweep"] is not None
    if json:
        documents = {
            name: None if part is None else part.document() for name, part in parts.items()
        }
        write_json({**documents, "fitted": fitted if trained else None})
    else:
        _show(parts, fitted)
    return ExitCode.ALL_WELL if fitted else ExitCode.DOUBTFUL


def _found(
    module: Any, x: Any, y: Any, factors: list[float] | None, train: bool, epochs: int
) -> tuple[dict[str, Any], bool]:
    """What was asked for, by its name in the document, None for the rest; whether all fitted."""
    from functools import partial

    from flowbias.nets.unbiased import scaled
    from flowbias.regime import diagnose, fit, predict, sweep
    from flowbias.regime.data import tensors_for

    # In the module's precision, integers in X as they are.
    x, y = tensors_for(module, x, y)
    fitting = partial(fit, max_epochs=epochs)
    parts: dict[str, Any] = {"prediction": predict(module, x, y), "diagnosis": None, "sweep": None}
    fitted = True
    if factors is not None:
        course = sweep(lambda factor: scaled(module, factor), (x, y), factors, train=fitting)
        parts["sweep"], fitted = course, all(point.fitted for point in course)
    elif train:
        end = fitting(module, x, y)
        parts["diagnosis"], fitted = diagnose(module, end.after, x, y), end.fitted
    return parts, fitted


def _show(parts: dict[str, Any], fitted: bool) -> None:
    console = results()
    for part in parts.values():
        if part is not None:
            console.print(repr(part), soft_wrap=True)
    if not fitted:
        console.print(
            "training did not fit the data; raise --max-epochs", style="bold red", soft_wrap=True
        )
