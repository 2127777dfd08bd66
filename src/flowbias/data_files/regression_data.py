"""Samples X and outputs y from the bytes of a .npz or .csv file. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from flowbias.data_files.csv_numbers import TARGET, read_csv
from flowbias.problem import InputError, Regression


class RegressionData(NamedTuple):
    """A regression problem, with the names of its features where the file gives them."""

    problem: Regression
    names: Sequence[str] | None

    def name(self, feature: int) -> str:
        """What to call a feature: its name, or w[3]."""
        return f"w[{feature}]" if self.names is None else self.names[feature]


def from_csv(content: BinaryIO) -> RegressionData:
    """Columns of features and one of outputs: the one named y, else the last."""
    numbers, names = read_csv(content)
    target = len(numbers[0]) - 1 if names is None or TARGET not in names else names.index(TARGET)
    rest = None if names is None else [*names[:target], *names[target + 1 :]]
    return RegressionData(Regression(np.delete(numbers, target, axis=1), numbers[:, target]), rest)


def from_npz(content: BinaryIO) -> RegressionData:
    """The arrays X and y of a NumPy archive."""
    try:
        return RegressionData(Regression(*_members(content)), None)
    except InputError:
        raise
    except UNREADABLE as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> InputError:
    """What NumPy or zipfile said of an archive, with what to write instead."""
    # NumPy goes on to say how to unpickle; here nothing ever is.
    told = str(error).split(". If you trust")[0].rstrip(".")
    return InputError(
        f"cannot be read as a NumPy archive of numbers: {told}. "
        "Write it with np.savez(file, X=X, y=y), from arrays of numbers."
    )


def _members(content: BinaryIO) -> tuple[np.ndarray, np.ndarray]:
    # allow_pickle=False: a pickle is a program, and data must not be able to run one.
    archive = np.load(content, allow_pickle=False)
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
UNREADABLE = (
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
READERS: dict[str, Callable[[BinaryIO], RegressionData]] = {".npz": from_npz, ".csv": from_csv}
