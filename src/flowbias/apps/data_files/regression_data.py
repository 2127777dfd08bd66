"""Samples X and outputs y from the bytes of a .npz or .csv file, and the problem that is solved.

Nothing is ever unpickled. With an intercept X and y are taken less their means, and one row less
says the same: the intercept is a bias that costs nothing, as for the estimators. Standardized,
columns are measured in their standard deviations (without an intercept in their root mean squares).
Implicit bias is a matter of units: a small coefficient of a large column is cheap, and of two
columns that say the same the larger is taken. Where nobody chose the units on purpose that names
false features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from flowbias.apps.data_files.csv_columns import (
    Column,
    Numbers,
    Words,
    columns_of,
    is_empty,
    labelled,
    numbers_of,
    said_of,
)
from flowbias.apps.data_files.csv_table import TARGET, CsvTable, read_table, unknown_column
from flowbias.estimators.intercepts.frames import Contrasts
from flowbias.estimators.intercepts.samples import centred
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask
from flowbias.problems.regression import Regression


@dataclass(frozen=True)
class FileReading:
    """How a file is to be read, as options say it; None leaves it to the data."""

    #: the column of a .csv that is y: the one of that name, else the last
    target: str | None = None
    #: columns to leave out, and columns to take though they look like names of rows
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    #: whether empty cells become the mean of their column
    impute: bool = False
    #: whether lines without y are left out
    labelled: bool = False
    standardize: bool | None = False
    intercept: bool | None = False


AS_IT_IS = FileReading()


# Columns in units further apart than this are standardized unless one says what to do.
FACTOR = 10.0


@dataclass(frozen=True, eq=False)
class Units:
    """Numbers as a file has them, checked; what is solved; and coefficients as said of the file."""

    given: Regression
    #: standard deviations, or root mean squares; None: as they are
    unit: FloatArray | None = None
    intercept: bool = False
    #: how far the units of the columns are apart
    factor: float = 1.0

    @classmethod
    def of(
        cls,
        given: Regression,
        *,
        standardize: bool | None,
        intercept: bool | None,
        words: Mask,
    ) -> Units:
        """None is for this to decide: standardized where units differ, and then an intercept.

        `words` says which columns are zeros and ones that stand for words, and have no unit.
        """
        factor = _apart(given.X[:, ~words])
        if standardize is None:
            standardize = factor > FACTOR
        intercept = standardize if intercept is None else intercept
        if intercept and len(given.y) < 2:
            raise InputError(
                "--intercept: must have at least 2 samples, got 1, which the intercept alone "
                "fits. Pass --no-intercept, or more samples."
            )
        unit = None
        if standardize:
            unit = _sizes(given.X, about_mean=intercept)
            unit[unit == 0.0] = 1.0  # constant, and 0 once centred
        return cls(given, unit, intercept, factor)

    @property
    def scaled(self) -> FloatArray:
        """X in the units that coefficients are compared in."""
        return self.given.X if self.unit is None else self.given.X / self.unit

    @cached_property
    def problem(self) -> Regression:
        """What is solved."""
        if not self.intercept:
            return self.given if self.unit is None else Regression(self.scaled, self.given.y)
        X, y = centred(self.scaled, None)[0], centred(self.given.y[:, None], None)[0]
        rest = self._contrasts.of(np.hstack([X, y]))
        return Regression(rest[:, :-1], rest[:, -1])

    @property
    def _contrasts(self) -> Contrasts:
        return Contrasts(np.ones(len(self.given.y)))

    def per_unit(self, w: FloatArray) -> FloatArray:
        """Coefficients of the problem, as those of the columns as they are."""
        return w if self.unit is None else w / self.unit

    def at_zero(self, w: FloatArray) -> float | None:
        """The intercept that goes with them; None where there is none."""
        if not self.intercept:
            return None
        return float(self.given.y.mean() - self.given.X.mean(axis=0) @ self.per_unit(w))

    def dual_of_given(self, dual: FloatArray) -> FloatArray:
        """One entry per sample of the file."""
        return self._contrasts.adjoint(dual) if self.intercept else dual

    @property
    def constant(self) -> list[int]:
        """Columns of which an intercept leaves nothing."""
        same = np.ptp(self.given.X, axis=0) == 0.0
        return [int(i) for i in np.flatnonzero(same)] if self.intercept else []

    @property
    def remarks(self) -> list[str]:
        """What was done, and how to have it otherwise."""
        said = []
        if self.unit is not None:
            less = (
                "less its mean, over its standard deviation"
                if self.intercept
                else ("over its root mean square")
            )
            apart = f" (units differ by a factor of {self.factor:.2g})" * (self.factor > FACTOR)
            said.append(f"each column is taken {less}{apart}; --no-standardize takes it as it is")
        elif self.factor > FACTOR:
            said.append(
                f"units differ by a factor of {self.factor:.2g}, which decides what is sparse; "
                "--standardize takes that out"
            )
        return said


def _apart(X: FloatArray, enough: int = 8) -> float:
    """The largest unit over the smallest: of spreads, or of sizes where that says more.

    1 where samples are fewer than `enough` to tell: normal columns would soon seem ten times apart.
    """
    apart = 1.0
    for about_mean in (True, False) if len(X) >= enough else ():
        sizes = _sizes(X, about_mean=about_mean)
        sizes = sizes[sizes > 0.0]
        with np.errstate(over="ignore"):
            apart = max(apart, sizes.max(initial=0.0) / sizes.min(initial=np.inf))
    return float(apart)


def _sizes(X: FloatArray, *, about_mean: bool) -> FloatArray:
    """Standard deviations or root mean squares of the columns."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    shrunk = X / np.where(largest > 0.0, largest, 1.0)  # squares may leave the double range
    if about_mean:
        shrunk = centred(shrunk, None)[0]
    return np.asarray(largest * np.sqrt(np.square(shrunk).mean(axis=0)))


class RegressionData(NamedTuple):
    """A regression problem, with the names of its features where the file gives them."""

    #: between the file and the problem
    units: Units
    names: Sequence[str] | None
    #: where it is from
    source: str = ""
    #: of a .csv: the column that is y, and what the others hold
    target: str | None = None
    columns: tuple[Column, ...] = ()
    #: what was done to the file that its owner should know
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        samples, features = self.shape
        return f"{self.source}: {samples} samples, {features} features"

    @property
    def problem(self) -> Regression:
        """What is solved."""
        return self.units.problem

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and features of the file."""
        samples, features = self.units.given.X.shape
        return samples, features

    @property
    def is_standardized(self) -> bool:
        return self.units.unit is not None

    def document(self, **result: Any) -> dict[str, Any]:
        """What is found on the data, with what every document says of them, for `json_text`."""
        samples, features = self.shape
        about = {"data": self.source, "samples": samples, "features": features}
        done = {"standardized": self.is_standardized, "remarks": self.remarks}
        return {**about, "names": self.names, **done, **result}

    def name(self, feature: int) -> str:
        """What to call a feature: its name, or w[3]."""
        return f"w[{feature}]" if self.names is None else self.names[feature]


def from_csv(content: BinaryIO, reading: FileReading = AS_IT_IS) -> RegressionData:
    """Columns of features and one of outputs: `target`, or the one named y, else the last."""
    wanted = TARGET if reading.target is None else reading.target
    for option, taken in (("--target", (reading.target,)), ("--keep", reading.keep)):
        left_out = next((word for word in taken if word in reading.drop), None)
        if left_out is not None:
            raise InputError(
                f"{option}: must not be left out, got {left_out!r}, which --drop leaves out. "
                "Give one of the two."
            )
    table = read_table(content, wanted, reading.drop)
    at = _place_of_outputs(table, reading.target)
    places = [i for i in range(len(table.places)) if i != at]
    has_y = labelled(table, at) if reading.labelled else np.ones(len(table.lines), dtype=bool)
    if not has_y.any():
        raise InputError(f"--labelled: must leave a line, but {table.named(at)} is empty in all.")
    table = table.of_lines(has_y)
    for word in reading.keep:
        if word not in (table.names or map(str, table.places)):
            raise unknown_column("--keep", word, table.names or ())
    y = numbers_of(table, at)
    impute = reading.impute
    columns = columns_of(table, places, impute=impute, keep=reading.keep)
    encoded = zip(columns, places, strict=True)
    X = np.hstack([column.encode(table, i, impute=impute) for column, i in encoded])
    names = [feature for column in columns for feature in column.features]
    remarks = _said_of_table(table, at, reading, places) + said_of(columns)
    if not has_y.all():
        remarks.insert(0, f"left out: {np.count_nonzero(~has_y)} lines without y")
    words = np.array([isinstance(c, Words) for c in columns for _ in c.features], dtype=bool)
    return _prepared(
        Regression(X, y),
        reading,
        words=words,
        names=None if table.names is None else [str(name) for name in names],
        target=None if table.names is None else table.names[at],
        columns=tuple(columns),
        remarks=remarks,
    )


def _place_of_outputs(table: CsvTable, target: str | None) -> int:
    names = table.names or []
    wanted = TARGET if target is None else target
    if wanted in names:
        return names.index(wanted)
    if target is not None and target.isdecimal() and int(target) in table.places:
        return table.places.index(int(target))
    if target is not None:
        raise unknown_column("--target", target, names)
    return len(table.places) - 1


def _said_of_table(table: CsvTable, at: int, reading: FileReading, places: list[int]) -> list[str]:
    said = []
    if table.names is not None and reading.target is None and table.names[at] != TARGET:
        said.append(f"y is {table.names[at]!r}, the last column; --target takes another")
    if table.comma:
        said.append(f"decimal commas: {table.comma!r} is {table.comma.replace(',', '.')}")
    if reading.drop:
        said.append(f"left out: {', '.join(map(repr, reading.drop))}")
    empty = {table.named(i): sum(map(is_empty, table.column(i))) for i in places}
    filled = {name: count for name, count in empty.items() if count}
    if filled:
        cells = sum(filled.values())
        said.append(f"filled with the mean: {cells} empty cells of {', '.join(filled)}")
    return said


def _prepared(
    given: Regression,
    reading: FileReading,
    *,
    words: Any,
    remarks: Sequence[str] = (),
    **about: Any,
) -> RegressionData:
    """The problem in the units asked for; what changed nothing leaves no trace."""
    units = Units.of(
        given, standardize=reading.standardize, intercept=reading.intercept, words=words
    )
    # Made here: what is wrong with it is said with the name of the file.
    _ = units.problem
    data = RegressionData(units, **about)
    constant = [data.name(i) for i in units.constant]
    if constant:
        remarks = [*remarks, f"constant, so beside an intercept 0: {', '.join(constant)}"]
    if reading.intercept is None and not units.intercept and _is_off_centre(given.y):
        mean = f"y has mean {given.y.mean():.3g}"
        remarks = [*remarks, f"{mean}, and no intercept is fitted; --intercept fits one"]
    said = (*remarks, *(units.remarks if reading.standardize is not False else ()))
    return data._replace(remarks=said)


def _is_off_centre(y: FloatArray, enough: int = 8, errors: float = 3.0) -> bool:
    """Whether the mean of outputs is not 0 by more than its standard error, three times."""
    return len(y) >= enough and abs(y.mean()) > errors * y.std() / len(y) ** 0.5


def from_npz(content: BinaryIO, reading: FileReading = AS_IT_IS) -> RegressionData:
    """The arrays X and y of a NumPy archive, as a regression problem."""
    for option, words in (("--target", (reading.target,)), ("--drop", reading.drop)):
        if any(words):
            raise InputError(
                f"{option}: must come with a .csv file, got {words[0]!r}. In an archive y has that "
                "name, and all of X is taken."
            )
    X, y = arrays_of(content)
    remarks = []
    if reading.impute and X.ndim == 2 and X.dtype.kind == "f" and np.isnan(X).any():
        X, count = _filled(X)
        remarks = [f"filled with the mean: {count} NaN"]
    given = Regression(X, y)
    numbers = np.zeros(given.X.shape[1], dtype=bool)
    columns = tuple(Numbers(None, float(mean)) for mean in given.X.mean(axis=0))
    return _prepared(given, reading, words=numbers, names=None, columns=columns, remarks=remarks)


def _filled(X: FloatArray) -> tuple[FloatArray, int]:
    missing = np.isnan(X)
    if missing.all(axis=0).any():
        at = int(missing.all(axis=0).argmax())
        raise InputError(f"X: must have a number in every column, got only NaN in X[:, {at}].")
    return np.where(missing, np.nanmean(X, axis=0), X), int(missing.sum())


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
