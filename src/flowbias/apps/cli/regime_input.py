"""What `flowbias regime` is given: a factory of modules, data, and scales."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from flowbias.apps.cli.files import read_file
from flowbias.apps.data_files.regression_data import arrays_of
from flowbias.ground.arguments import InputError


def require_extra() -> None:
    # Looked for, not loaded: bad words on the command line are complained about at once.
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "regime: must have torch to differentiate modules with, which is not installed. "
            "Install the extra `nets`: pip install 'flowbias[nets]'."
        )


def read_scales(text: str) -> list[float]:
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


def read_module(place: str) -> Any:
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
    except (Exception, SystemExit) as error:
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
    except (Exception, SystemExit) as error:
        raise InputError(
            f"FACTORY: must return a module when called without arguments, got "
            f"{type(error).__name__} from {place}: {error}. Wrap it in a function that takes none."
        ) from error


def read_arrays(file: Path) -> tuple[Any, Any]:
    """X and y of a .npz file; X may have any number of dimensions."""
    return read_file("--data", file, arrays_of)
