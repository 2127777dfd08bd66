"""Numbers from a .csv file; whatever is no number is named with its line and column.

The first line is a header if none of its fields is a number, or if one of them names the outputs:
`y`, or what the caller takes for them. What only
looks like a header or like data is refused rather than guessed: a line that is silently dropped,
or an index that silently becomes a feature, changes the result and nobody notices.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray

_SEPARATORS = (";", "\t", ",")
TARGET = "y"


class Line(NamedTuple):
    """The fields of a line, and its number in the file, counted from one."""

    number: int
    fields: list[str]


def read_csv(content: BinaryIO, target: str = TARGET) -> tuple[FloatArray, list[str] | None]:
    """The numbers, one row per line, and the names of the columns if there is a header."""
    lines = _lines(content)
    if not lines:
        raise InputError("must hold some numbers, got an empty file.")
    names = _header(lines[0], target)
    rows = lines if names is None else lines[1:]
    if not rows:
        raise InputError("must hold some numbers, got a header and nothing below it.")
    width = len(lines[0].fields)
    if width < 2:
        raise InputError(
            f"must have a column for y and at least one for X, got {width} in line "
            f"{lines[0].number}. Separate columns by commas, semicolons or tabs."
        )
    numbers = np.empty((len(rows), width))
    for row, line in zip(numbers, rows, strict=True):
        _require_width(line, lines[0])
        row[:] = [_number(line.number, i, text, names) for i, text in enumerate(line.fields)]
    return numbers, names


def _lines(content: BinaryIO) -> list[Line]:
    """The lines that are not blank."""
    try:
        # utf-8-sig: spreadsheets put a mark at the start of what they export. Any kind of line end.
        text = io.TextIOWrapper(content, encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise InputError(
            f"must be text, got the byte 0x{error.object[error.start]:02x} at position "
            f"{error.start}. Save it as CSV in UTF-8."
        ) from error
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    first = re.sub(r'"[^"]*"', "", first)  # a name may hold what separates names
    separator = next((mark for mark in _SEPARATORS if mark in first), ",")
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        return [Line(reader.line_num, fields) for fields in reader if any(map(str.strip, fields))]
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: cannot be read as CSV: {error}.") from error


def _header(first: Line, target: str) -> list[str] | None:
    """The names in the first line, or None where it holds data."""
    names = [field.strip() for field in first.fields]
    numeric = [_is_number(name) for name in names]
    if all(numeric):
        _refuse_column_numbers(first)
        return None
    # np.savetxt marks its header as a comment.
    names[0] = names[0].removeprefix("#").strip()
    if any(numeric) and target not in names:
        column, word = next((i, n) for i, n in enumerate(names) if not numeric[i])
        raise InputError(
            f"line {first.number}: must be a header or numbers, got both: column {column + 1} is "
            f"{word!r}. Name every column, or mend the number."
        )
    if "" in names:
        raise InputError(
            f"line {first.number}, column {names.index('') + 1}: has no name. If it is an index, "
            "leave it out (in pandas: to_csv(file, index=False))."
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(
            f"line {first.number}: must name every column differently, got {repeated[0]!r} twice."
        )
    if target == TARGET and TARGET not in names and TARGET.upper() in names:
        raise InputError(f"line {first.number}: has a column Y but none y. Write y for the target.")
    if any(re.fullmatch(r"[+-]?\d*,\d+", name) for name in names):
        raise InputError(
            f"line {first.number}: looks like numbers with a decimal comma. Write decimal points."
        )
    return names


def _refuse_column_numbers(first: Line) -> None:
    """0, 1, 2, ... is what pandas writes above columns that have no names."""
    counted = [str(i) for i in range(len(first.fields))]
    if len(counted) > 2 and [field.strip() for field in first.fields] == counted:
        raise InputError(
            f"line {first.number}: 0,1,2,... looks like column numbers, not like data. Name the "
            "columns, or leave the line out (in pandas: to_csv(file, header=False, index=False)); "
            "if it is data, write 0.0 instead of 0."
        )


def _require_width(line: Line, first: Line) -> None:
    if len(line.fields) != len(first.fields):
        raise InputError(
            f"line {line.number}: must have {len(first.fields)} columns like line {first.number}, "
            f"got {len(line.fields)}. Every sample needs the same features."
        )


def _number(line: int, column: int, text: str, names: Sequence[str] | None) -> float:
    value = float(text) if _is_number(text) else math.nan
    if not math.isfinite(value):
        # A name in quotes may have several lines, a message has one.
        name = "" if names is None else f" ({' '.join(names[column].split())})"
        got = repr(text.strip()) if text.strip() else "nothing"
        raise InputError(
            f"line {line}, column {column + 1}{name}: must be a finite number, got {got}. "
            "Mend it, or drop or impute such entries."
        )
    return value


def _is_number(text: str) -> bool:
    # Python would read 1_000 and digits of other alphabets, too; a slip is more likely.
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
