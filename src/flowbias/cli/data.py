"""Reading DATA: samples X and outputs y from a .npz or .csv file. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flowbias.cli.csv_data import read_csv
from flowbias.problem import InputError, Regression


@dataclass(frozen=True)
class Data:
    """A regression problem, with the names of its features where the file gives them."""

    file: Path
    problem: Regression
    names: Sequence[str] | None

    def name(self, feature: int) -> str:
        """What to call a feature: its name, or w[3]."""
        return f"w[{feature}]" if self.names is None else self.names[feature]

    def __str__(self) -> str:
        samples, features = self.problem.X.shape
        return f"{self.file}: {samples} samples, {features} features"


def read_data(file: Path) -> Data:
    """The data of a file, or an InputError that says where in the file the trouble is."""
    try:
        read = _READERS[file.suffix.lower()]
    except KeyError:
        kinds = " or ".join(_READERS)
        raise InputError(
            f"DATA: must end in {kinds}, got {str(file)!r}. {_conversion(file)}"
        ) from None
    try:
        if file.is_dir():
            raise InputError(f"DATA: must be a file, got the folder {str(file)!r}.")
        return read(file)
    except FileNotFoundError:
        raise InputError(
            f"DATA: must be a file, but {str(file)!r} does not exist. Check the path."
        ) from None
    except OSError as error:
        raise InputError(f"DATA: cannot read {str(file)!r}: {error.strerror}.") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _conversion(file: Path) -> str:
    if file.suffix.lower() == ".npy":
        return "Put both arrays into one file: np.savez('data.npz', X=X, y=y)."
    return "In Python: np.savez('data.npz', X=X, y=y)."


def _from_csv(file: Path) -> Data:
    numbers, names = read_csv(file)
    target = len(numbers[0]) - 1 if names is None or "y" not in names else names.index("y")
    rest = None if names is None else [*names[:target], *names[target + 1 :]]
    return Data(file, Regression(np.delete(numbers, target, axis=1), numbers[:, target]), rest)


def _from_npz(file: Path) -> Data:
    try:
        return Data(file, Regression(*_members(file)), None)
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(
            f"cannot be read as a NumPy archive of numbers: {_without_advice(error)}. "
            "Write it with np.savez(file, X=X, y=y), from arrays of numbers."
        ) from error


def _without_advice(error: Exception) -> str:
    # NumPy goes on to say how to unpickle; here nothing ever is.
    return str(error).split(". If you trust")[0].rstrip(".")


def _members(file: Path) -> tuple[np.ndarray, np.ndarray]:
    # allow_pickle=False: a pickle is a program, and data must not be able to run one.
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError("must be an archive with X and y, got a single array. Use np.savez.")
    with archive:
        missing = [name for name in ("X", "y") if name not in archive.files]
        if missing:
            there = ", ".join(archive.files) or "nothing"
            raise InputError(
                f"must hold arrays X and y, but there is no {' and no '.join(missing)}; there is: "
                f"{there}. Write it with np.savez(file, X=X, y=y)."
            )
        return archive["X"], archive["y"]


# What NumPy and zipfile raise for objects, other formats, damaged, encrypted, unheard-of and
# impossibly large archives.
_UNREADABLE = (
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
_READERS: dict[str, Callable[[Path], Data]] = {".npz": _from_npz, ".csv": _from_csv}
