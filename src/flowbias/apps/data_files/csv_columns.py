"""What the columns of a table hold, and the features that they become.

A column of numbers is one feature. A column of words is one feature per word (1 where it stands, 0
elsewhere), or one for both words where there are two, since each says what the other does. What
names rows rather than describing them (ids, row numbers, dates) is refused with the option that
leaves it out: as a feature it would fit anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.apps.data_files.csv_table import CsvTable, is_number, listed
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask

_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "?"})
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})")
_MARKED = re.compile(r"[+-]?[$€£¥]?\s*\d[\d.,'’\s]*[%$€£¥]?")  # 1.234,5 or 1 000 or $5 or 5%
_NAMES_ROWS = re.compile(r"(.*[\W_])?(id|uid|uuid|guid|index|idx)|.*[a-z](Id|ID)|Unnamed: \d+")


@dataclass(frozen=True)
class Numbers:
    """A column that is a feature as it is."""

    name: str | None
    #: in place of empty cells
    mean: float

    @property
    def features(self) -> list[str | None]:
        return [self.name]

    @property
    def means(self) -> list[float]:
        return [self.mean]

    def encode(self, table: CsvTable, at: int, *, impute: bool) -> FloatArray:
        """One column; empty cells are refused, or filled."""
        values = [_number(text, table, row, at) for row, text in _cells(table, at, impute)]
        return np.array([[self.mean if value is None else value] for value in values])

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "mean": self.mean}


@dataclass(frozen=True)
class Words:
    """A column of a few words, each a feature."""

    name: str
    words: tuple[str, ...]
    #: how often each stands there, in place of empty cells
    shares: tuple[float, ...]

    @property
    def features(self) -> list[str | None]:
        return [f"{self.name}={word}" for word in self._told]

    @property
    def means(self) -> list[float]:
        return list(self.shares[-len(self._told) :]) if self._told else []

    @property
    def _told(self) -> tuple[str, ...]:
        """Of one word nothing is told, of two words each tells of the other."""
        return self.words if len(self.words) > 2 else self.words[1:]

    def encode(self, table: CsvTable, at: int, *, impute: bool) -> FloatArray:
        """One column of zeros and ones per word; words that were not there before are refused."""
        rows = np.zeros((len(table.lines), len(self._told)))
        for row, text in _cells(table, at, impute):
            if text is None:
                rows[row] = self.means
            elif text not in self.words:
                raise InputError(
                    f"{table.where(row, at)}: must be one of {listed(self.words)}, got {text!r}. "
                    "Nothing is known of other values: leave such lines out, or fit with some."
                )
            else:
                rows[row] = [word == text for word in self._told]
        return rows

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "words": self.words, "shares": self.shares}


Column = Numbers | Words


def column_from(document: Any) -> Column:
    """A column as its document says."""
    if "words" in document:
        words, shares = document["words"], document["shares"]
        return Words(document["name"], tuple(map(str, words)), tuple(map(float, shares)))
    return Numbers(document["name"], float(document["mean"]))


class NoFeatureError(InputError):
    """A column that names rows rather than describing them."""

    def __init__(self, table: CsvTable, at: int, why: str, *, can_be_kept: bool = True) -> None:
        self.why, self.option = f"{table.named(at)} {why}", table.option(at)
        self.can_be_kept = can_be_kept
        super().__init__(self.why)


def columns_of(
    table: CsvTable, places: Sequence[int], *, impute: bool, keep: Sequence[str]
) -> list[Column]:
    """What the columns at these places hold; all that are no features are named in one error."""
    refused: list[NoFeatureError] = []
    bad_cell: InputError | None = None
    columns = []
    for at in places:
        name = str(table.places[at]) if table.names is None else table.names[at]
        try:
            columns.append(_column(table, at, impute=impute, keep=name in keep))
        except NoFeatureError as error:
            refused.append(error)
        except InputError as error:
            bad_cell = bad_cell or error
    if refused:
        raise InputError(
            f"{'; '.join(error.why for error in refused)}. Leave out what is no feature: "
            f"{' '.join(f'--drop {error.option}' for error in refused)}"
            f"{' (--keep takes a column as it is)' * any(e.can_be_kept for e in refused)}."
        )
    if bad_cell is not None:
        raise bad_cell
    return columns


def _column(table: CsvTable, at: int, *, impute: bool, keep: bool) -> Column:
    texts = [text for text in table.column(at) if not is_empty(text)]
    if not texts:
        raise NoFeatureError(table, at, "has no entries", can_be_kept=False)
    name = None if table.names is None else table.names[at]
    if name is not None and not any(map(is_number, texts)) and not _are_marked(texts):
        if not keep:
            _refuse_names_of_rows(table, at, texts)
        return _words(name, texts)
    numbers = [_number(text, table, row, at) for row, text in _cells(table, at, impute)]
    known = np.array([number for number in numbers if number is not None])
    if not keep:
        _refuse_row_numbers(table, at, known)
    with np.errstate(over="ignore"):
        return Numbers(name, float(known.mean()))


def is_empty(text: str) -> bool:
    """Whether a cell holds nothing, in one of the ways in which files write that."""
    return text.lower() in _EMPTY


def labelled(table: CsvTable, at: int) -> Mask:
    """Which lines have an output."""
    return np.array([not is_empty(text) for text in table.column(at)], dtype=bool)


def numbers_of(table: CsvTable, at: int) -> FloatArray:
    """The outputs: finite numbers, without exception."""
    texts = enumerate(table.column(at))
    return np.array([_number(text, table, row, at, _WITHOUT_Y) for row, text in texts], np.float64)


def said_of(columns: Sequence[Column]) -> list[str]:
    """How words were turned into features."""
    words = [column for column in columns if isinstance(column, Words)]
    alone = [repr(column.name) for column in words if not column.features]
    told = [
        f"{column.name!r} is 1 for {column.words[1]!r}, 0 for {column.words[0]!r}"
        if len(column.words) == 2
        else f"{column.name!r} is a 0-1 column for each of {listed(column.words)}"
        for column in words
        if column.features
    ]
    return told + [f"{', '.join(alone)}: one word only, left out"] * bool(alone)


def _words(name: str, texts: list[str]) -> Words:
    words = tuple(sorted(set(texts)))
    return Words(name, words, tuple(texts.count(word) / len(texts) for word in words))


def _cells(table: CsvTable, at: int, impute: bool) -> list[tuple[int, str | None]]:
    """Each row with what its cell holds: None where that is nothing and may be filled."""
    texts = enumerate(table.column(at))
    return [(row, None if impute and is_empty(text) else text) for row, text in texts]


_FILLED = "fill empty cells of X with the mean of their column (--impute mean)"
_WITHOUT_Y = "leave the line out, which has no y (--labelled)"


def _number(
    text: str | None, table: CsvTable, row: int, at: int, advice: str = _FILLED
) -> float | None:
    if text is None:
        return None
    value = float(text) if is_number(text) else math.nan
    if not math.isfinite(value):
        got = repr(text) if text else "nothing"
        if _MARKED.fullmatch(text):
            advice = "Write plain numbers, without units and without marks between thousands"
        elif is_empty(text):
            advice = f"Mend it, or {advice}"
        elif advice is _FILLED:
            advice = (
                f"Write a number or nothing, or leave the column out (--drop {table.option(at)})"
            )
        else:
            advice = "Outputs are numbers: of two classes call one 0 and the other 1"
        raise InputError(f"{table.where(row, at)}: must be a finite number, got {got}. {advice}.")
    return value


def _are_marked(texts: list[str]) -> bool:
    """Whether they are numbers with a unit or with marks between thousands, and no dates."""
    return all(_MARKED.fullmatch(text) and not _DATE.fullmatch(text) for text in texts)


def _refuse_names_of_rows(table: CsvTable, at: int, texts: list[str]) -> None:
    if all(_DATE.fullmatch(text) for text in texts):
        raise NoFeatureError(table, at, f"holds dates such as {texts[0]!r}")
    different = len(set(texts))
    # Every word stands there about once: they name rows, or are free text.
    if different > max(2, len(texts) / 2):
        held = f"has {different} different words in {len(texts)} rows, such as {texts[0]!r}"
        raise NoFeatureError(table, at, held)


def _refuse_row_numbers(table: CsvTable, at: int, numbers: FloatArray, enough: int = 5) -> None:
    """`enough` rows for counting to be no accident."""
    whole = np.array_equal(numbers, np.round(numbers))
    if not whole or len(np.unique(numbers)) < len(numbers) or len(numbers) < 2:
        return
    counted = len(numbers) >= enough and set(np.diff(numbers).tolist()) <= {1.0}
    named = table.names is not None and bool(_NAMES_ROWS.fullmatch(table.names[at]))
    if counted or named:
        raise NoFeatureError(table, at, "numbers the rows, and would fit anything")
