"""`flowbias regime`: is somebody's network a kernel method on their data, or does it learn?"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from flowbias.cli.console import results
from flowbias.cli.exit_codes import ExitCode
from flowbias.cli.machine_readable import write_json
from flowbias.cli.options import Json
from flowbias.problem import InputError

if TYPE_CHECKING:
    from flowbias.regime import Diagnosis, Prediction, Sweep


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
    _require_extra()
    factors = None if scales is None else _read_scales(scales)
    if max_epochs < 1:
        raise InputError(f"--max-epochs: must be >= 1, got {max_epochs}. Leave it out for 20000.")
    module = _read_module(factory)
    x, y = _tensors(module, *_read_arrays(data))
    return _report(module, x, y, factors, train, max_epochs, json)


def _report(
    module: Any, x: Any, y: Any, factors: list[float] | None, train: bool, epochs: int, json: bool
) -> ExitCode:
    from functools import partial

    from flowbias.nets.layer_scales import scaled
    from flowbias.regime import diagnose, fit, predict, sweep

    fitting = partial(fit, max_epochs=epochs)
    prediction = predict(module, x, y)
    diagnosis = course = None
    fitted = True
    if factors is not None:
        course = sweep(lambda factor: scaled(module, factor), (x, y), factors, train=fitting)
        fitted = all(point.fitted for point in course)
    elif train:
        end = fitting(module, x, y)
        diagnosis, fitted = diagnose(module, end.after, x, y), end.fitted
    if json:
        write_json(_document(prediction, diagnosis, course, fitted))
    else:
        _show(prediction, diagnosis, course, fitted)
    return ExitCode.ALL_WELL if fitted else ExitCode.DOUBTFUL


def _document(
    prediction: Prediction, diagnosis: Diagnosis | None, course: Sweep | None, fitted: bool
) -> dict[str, Any]:
    trained = diagnosis is not None or course is not None
    return {
        "prediction": prediction.document(),
        "diagnosis": None if diagnosis is None else diagnosis.document(),
        "sweep": None if course is None else course.document(),
        "fitted": fitted if trained else None,
    }


def _show(
    prediction: Prediction, diagnosis: Diagnosis | None, course: Sweep | None, fitted: bool
) -> None:
    console = results()
    for part in (prediction, diagnosis, course):
        if part is not None:
            console.print(repr(part), soft_wrap=True)
    if not fitted:
        console.print(
            "training did not fit the data; raise --max-epochs", style="bold red", soft_wrap=True
        )


def _require_extra() -> None:
    # Looked for, not loaded: bad words on the command line are complained about at once.
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "regime: must have torch to differentiate modules with, which is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        )


def _read_scales(text: str) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0.0 < value < float("inf") for value in values):
        raise InputError(
            f"--scales: must be numbers > 0 with commas between them, got {text!r}. "
            "Pass for instance 0.1,1,10."
        )
    return values


def _read_module(place: str) -> Any:
    """What the factory returns; whatever the user's code raises is shown as theirs."""
    name, colon, function = place.partition(":")
    if not (name and colon and function):
        raise InputError(
            f"FACTORY: must name a module and a function in it, got {place!r}. "
            "Pass for instance my_networks:make."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(name)
    except Exception as error:
        raise InputError(
            f"FACTORY: must be a module that can be imported, got {name!r}: "
            f"{type(error).__name__}: {error}. Run from the folder that holds it, or set "
            "PYTHONPATH."
        ) from error
    make = getattr(found, function, None)
    if not callable(make):
        raise InputError(
            f"FACTORY: must name a function of {name}, got {function!r}, which "
            f"{'it does not have' if make is None else 'cannot be called'}. Check its spelling."
        )
    try:
        return make()
    except Exception as error:
        raise InputError(
            f"FACTORY: must return a module when called without arguments, got "
            f"{type(error).__name__} from {place}: {error}. Wrap it in a function that takes none."
        ) from error


def _read_arrays(file: Path) -> tuple[Any, Any]:
    try:
        # allow_pickle=False: a pickle is a program, and data must not be able to run one.
        with np.load(file, allow_pickle=False) as archive:
            return archive["X"], archive["y"]
    except FileNotFoundError:
        raise InputError(
            f"--data: must be a file, but {str(file)!r} does not exist. Check the path."
        ) from None
    except (KeyError, TypeError, AttributeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--data: must be a .npz file with arrays X and y, got {str(file)!r} ({error}). "
            "Write it with np.savez(file, X=X, y=y)."
        ) from error


def _tensors(module: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Both as tensors of the module's precision, integers in X as they are."""
    from flowbias.regime.module_data import tensors_for

    return tensors_for(module, x, y)
