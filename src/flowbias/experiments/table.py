"""Results in long form: named columns of equal length, numbers or words, nothing else.

A row is one result with the settings of the task that gave it. Parts of an experiment may have
different columns: what a row does not have is NaN, or an empty word.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray

#: What a computation returns: columns of equal length, or single values, which are repeated.
Columns = Mapping[str, ArrayLike | str]


class Summary(NamedTuple):
    """A value over replicates at each x: its median, and the band that holds the middle half."""

    x: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name: float64 or words.

    >>> table = fb.experiments.Table.of({"scale": [0.1, 0.1, 1.0], "error": [1.0, 3.0, 2.0]})
    >>> table.levels("scale"), table.where(scale=0.1)["error"]
    (array([0.1, 1. ]), array([1., 3.]))
    """

    columns: Mapping[str, np.ndarray[Any, Any]]

    @classmethod
    def of(cls, columns: Columns) -> Table:
        """A table from columns of equal length; single values are repeated."""
        arrays = {str(name): _as_column(name, values) for name, values in columns.items()}
        lengths = {len(array) for array in arrays.values() if array.ndim == 1}
        if len(lengths) > 1:
            sizes = {name: array.size for name, array in arrays.items() if array.ndim == 1}
            raise ValueError(f"columns: must have one length, got {sizes}. Repeat or split them.")
        length = lengths.pop() if lengths else 1
        return cls({name: np.broadcast_to(array, length) for name, array in arrays.items()})

    @classmethod
    def stack(cls, tables: Iterable[Table]) -> Table:
        """One below the other; a column that a table lacks is NaN, or empty, there."""
        parts = [table for table in tables if len(table)]
        names = list(dict.fromkeys(name for table in parts for name in table.columns))
        blank = {name: _blank(parts, name) for name in names}
        return cls(
            {
                name: np.concatenate(
                    [table.columns.get(name, np.full(len(table), blank[name])) for table in parts]
                )
                for name in names
            }
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}") from None

    def rows(self, chosen: np.ndarray[Any, Any]) -> Table:
        """The rows of a mask or of indices."""
        return Table({name: column[chosen] for name, column in self.columns.items()})

    def where(self, **values: float | str) -> Table:
        """The rows with these values, without the columns that are blank in all of them."""
        chosen = np.full(len(self), True)
        for name, value in values.items():
            chosen &= self[name] == value
        kept = self.rows(chosen)
        return Table(
            {name: column for name, column in kept.columns.items() if not _all_blank(column)}
        )

    def part(self, name: str) -> Table:
        """The rows that tasks of one part gave."""
        return self.where(part=name)

    def replaced(self, **columns: ArrayLike) -> Table:
        """The same table with some columns exchanged or added."""
        return Table.of({**self.columns, **columns})

    def levels(self, name: str) -> FloatArray:
        """The values that a column takes, increasing, each once."""
        return np.unique(self[name])

    def summary(self, value: str, *, by: str) -> Summary:
        """Median and middle half of `value` at each level of `by`.

        Quantiles are values that occurred, so that -inf (never) is as good a value as any: the
        median of two is the smaller one.
        """
        levels = self.levels(by)
        groups = [self[value][self[by] == level] for level in levels]
        low, median, high = np.array(
            [np.quantile(group, (0.25, 0.5, 0.75), method="inverted_cdf") for group in groups]
        ).T
        return Summary(levels, median, low, high)

    def csv(self) -> str:
        """Comma-separated, every number to the last digit; a blank is an empty field."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        fields = [[_field(value) for value in column] for column in self.columns.values()]
        writer.writerows(zip(*fields, strict=True))
        return text.getvalue()

    @property
    def digest(self) -> str:
        """Changes with any bit of any value."""
        state = hashlib.sha256()
        for name, column in self.columns.items():
            state.update(f"{name} {column.dtype.str} {column.shape}".encode())
            state.update(np.ascontiguousarray(column).tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"


def _as_column(name: str, values: ArrayLike | str) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    if array.ndim > 1 or array.dtype.kind not in "biufU":
        raise TypeError(
            f"column {name!r}: must be numbers or words in one dimension, got {array.dtype} of "
            f"shape {array.shape}. Make one column of each coordinate."
        )
    if np.ma.is_masked(values):
        raise TypeError(f"column {name!r}: must have no masked values. Fill them, with NaN say.")
    if array.dtype.kind == "U":
        return array
    numbers = array.astype(np.float64)
    if array.dtype.kind in "iu" and (numbers.astype(array.dtype) != array).any():
        raise TypeError(f"column {name!r}: has integers beyond 2^53. Write them as words.")
    return numbers


def _blank(tables: list[Table], name: str) -> float | str:
    words = {t.columns[name].dtype.kind == "U" for t in tables if name in t.columns}
    if len(words) > 1:
        raise TypeError(f"column {name!r}: is numbers in one task and words in another")
    return "" if words.pop() else np.nan


def _all_blank(column: np.ndarray[Any, Any]) -> bool:
    blank = column == "" if column.dtype.kind == "U" else np.isnan(column)
    return bool(blank.size and blank.all())


def _field(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    return "" if np.isnan(value) else f"{float(value):.17g}"
