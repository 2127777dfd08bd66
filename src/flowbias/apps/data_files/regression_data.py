"""Samples X and outputs y from the bytes of a .npz or .csv file. Nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from flowbias.apps.data_files.csv_numbers import TARGET, read_csv
from flowbias.ground.arguments import InputError
from flowbias.problems.regression import Regression


class RegressionData(NamedTuple):
    """A regression problem, with the names of its features where the file gives them."""

    problem: Regression
    names: Sequence[str] | None
    #: where it is from
    source: str = ""

    def __str__(self) -> str:
        samples, features = self.problem.X.shape
        return f"{self.source}: {samples} samples, {features} features"

    def document(self, **result: Any) -> dict[str, Any]:
        """What is found on the data, with what every document says of them, for `json_text`."""
        samples, features = self.problem.X.shape
        about = {"data": self.source, "samples": samples, "features": features}
        return {**about, "names": self.names, **result}

    def name(self, feature: int) -> str:
        """What to call a feature: its name, or w[3]."""
        return f"w[{feature}]" if self.names is None else self.names[feature]


def from_csv(content: BinaryIO, target: str | None = None) -> RegressionData:
    """Columns of features and one of outputs: `target`, or the one named y, else the last."""
    wanted = TARGET if target is None else target
    numbers, names = read_csv(content, wanted)
    if names is not None and wanted in names:
        at = names.index(wanted)
    elif target is None:
        at = len(numbers[0]) - 1
    else:
        near = get_close_matches(target, names or (), n=1)
        advice = f"Did you mean {near[0]!r}?" if near else "The first line names the columns."
        raise InputError(f"target: must be the name of a column, got {target!r}. {advice}")
    rest = None if names is None else [*names[:at], *names[at + 1 :]]
    return RegressionData(Regression(np.delete(numbers, at, axis=1), numbers[:, at]), rest)


def from_npz(content: BinaryIO, target: str | None = None) -> RegressionData:
    """The arrays X and y of a NumPy archive, as a regression problem."""
    if target is not None:
        raise InputError(
            f"target: must come with a .csv file, got {target!r}. In an archive y has that name."
        )
    return RegressionData(Regression(*arrays_of(content)), None)


def arrays_of(content: BinaryIO) -> tuple[np.ndarray, np.ndarray]:
    """The arrays X and y of a NumPy archive, whatever they hold."""
    with reading_an_archive():
        return _members(content)


@contextmanager
def reading_an_archive() -> Iterator[None]:
    """What NumPy, zipfile and the unpackers raise, as an InputError that says what to write.

    All of it: for damaged bytes alone that is a dozen kinds, from TokenError to LZMAError.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # NumPy goes on to say how to unpickle; here nothing ever is.
        told = " ".join(str(error).split()).split(". If you trust")[0].rstrip(".")
        raise InputError(
            f"cannot be read as a NumPy archive of numbers: {told or type(error).__name__}. "
            "Write it with np.savez(file, X=X, y=y), from arrays of numbers."
        ) from error


def _members(content: BinaryIO) -> tuple[np.ndarray, np.ndarray]:
    # allow_pickle=False: a pickle is a program, and data must not be able to run one.
    archive = np.load(content, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError("must be an archive with X and y, got a single array. Use np.savez.")
    with archive:
        missing = [name for name in ("X", "y") if name not in archive.files]
        if missing:
            there = ", ".join(map(repr, archive.files)) or "nothing"
            raise InputError(
                f"must hold arrays X and y, but there is no {' and no '.join(missing)}; there is: "
                f"{there}. Write it with np.savez(file, X=X, y=y)."
            )
        return archive["X"], archive["y"]


READERS: dict[str, Callable[[BinaryIO, str | None], RegressionData]] = {
    ".npz": from_npz,
    ".csv": from_csv,
}
