"""A .csv file as a table of text: which line names columns, what separates them, which decimals.

The first line is a header if none of its fields is a number, or if one of them names the outputs:
`y`, or what the caller takes for them. What only
looks like a header or like data is refused rather than guessed: a line that is silently dropped,
or an index that silently becomes a feature, changes the result and nobody notices.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import compress
from typing import BinaryIO, NamedTuple

from flowbias.ground.arguments import InputError

TARGET = "y"
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")


class Line(NamedTuple):
    """The fields of a line, and its number in the file, counted from one."""

    number: int
    fields: list[str]


class CsvTable(NamedTuple):
    """The lines below the header, and what the columns are called."""

    lines: list[Line]
    names: list[str] | None
    #: of each column that was not dropped, its place in the file, counted from one
    places: list[int]
    #: a number of the file that has a decimal comma; "" where they have points
    comma: str = ""

    def of_lines(self, chosen: Iterable[bool]) -> CsvTable:
        """The table with some of its lines."""
        return self._replace(lines=list(compress(self.lines, chosen)))

    def column(self, at: int) -> list[str]:
        """The fields of a column, without the blanks around them."""
        return [line.fields[at].strip() for line in self.lines]

    def where(self, row: int, at: int) -> str:
        """A field, for a complaint."""
        # A name in quotes may have several lines, a message has one.
        name = "" if self.names is None else f" ({' '.join(self.names[at].split())})"
        return f"line {self.lines[row].number}, column {self.places[at]}{name}"

    def named(self, at: int) -> str:
        """A column, for a complaint: its name in quotes, or its place."""
        return f"column {self.places[at]}" if self.names is None else repr(self.names[at])

    def option(self, at: int) -> str:
        """A column as a shell takes it: its name, or its place."""
        return shlex.quote(self.names[at]) if self.names else str(self.places[at])


def read_table(
    content: BinaryIO, target: str = TARGET, drop: Sequence[str] = (), least_columns: int = 2
) -> CsvTable:
    """The table in a file, without the columns to `drop`: names, or places counted from one."""
    lines, comma = _lines(content)
    if not lines:
        raise InputError("must hold some numbers, got an empty file.")
    names = _header(lines[0], target)
    rows = lines if names is None else lines[1:]
    if not rows:
        raise InputError("must hold some numbers, got a header and nothing below it.")
    width = len(lines[0].fields)
    if width < least_columns:
        raise InputError(
            f"must have a column for y and at least one for X, got {width} in line "
            f"{lines[0].number}. {_beginning(lines)}"
        )
    for line in rows:
        _require_width(line, lines[0])
    dropped = {_place(word, names, width) for word in drop}
    kept = [at for at in range(width) if at not in dropped]
    if len(kept) < least_columns:
        raise InputError(
            f"--drop: must leave a column for y and at least one for X, got {len(kept)} left of "
            f"{width}. Drop fewer."
        )
    rows = [Line(line.number, [line.fields[at] for at in kept]) for line in rows]
    if names is not None:
        names = [names[at] for at in kept]
        _require_names(lines[0].number, names, kept, target)
    return CsvTable(rows, names, [at + 1 for at in kept], comma)


def _lines(content: BinaryIO) -> tuple[list[Line], str]:
    """The lines that are not blank, with decimal points; and a number that had a comma."""
    # utf-8-sig: spreadsheets put a mark at the start of what they export. Any kind of line end.
    reading = io.TextIOWrapper(content, encoding="utf-8-sig")
    try:
        text = reading.read()
    except UnicodeDecodeError as error:
        raise InputError(
            f"must be text, got the byte 0x{error.object[error.start]:02x} at position "
            f"{error.start}. Save it as CSV in UTF-8."
        ) from error
    finally:
        reading.detach()  # the file is closed by who opened it
    # What spreadsheets write to be told by.
    told, skipped = re.match(r"\s*sep=(.)\r?\n", text), 0
    if told:
        separator, text, skipped = told[1], text[told.end() :], told[0].count("\n")
    else:
        first = next((line for line in io.StringIO(text) if line.strip()), "")
        first = re.sub(r'"[^"]*"', "", first)  # a name may hold what separates names
        separator = next((mark for mark in (";", "\t", ",") if mark in first), ",")
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        lines = [
            Line(reader.line_num + skipped, fields)
            for fields in reader
            if any(map(str.strip, fields))
        ]
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: cannot be read as CSV: {error}.") from error
    return _with_points(lines, separator)


def _with_points(lines: list[Line], separator: str) -> tuple[list[Line], str]:
    """Decimal commas turned into points, where the file has them and no points."""
    commas = _first(lines, lambda field: bool(_DECIMAL_COMMA.fullmatch(field)))
    if commas is None:
        return lines, ""
    line, field = commas
    if separator == ",":
        raise InputError(
            f"line {line}: {field!r} may have a decimal comma or thousands. Write decimal points, "
            "and no marks between thousands."
        )
    points = _first(lines, lambda field: "." in field and is_number(field))
    if points is not None:
        raise InputError(
            f"must write decimals in one way, got {field!r} with a decimal comma in line {line} "
            f"and {points[1]!r} with a point in line {points[0]}. Write decimal points, and no "
            "marks between thousands."
        )
    mended = [
        Line(number, [f.replace(",", ".") if _DECIMAL_COMMA.fullmatch(f) else f for f in fields])
        for number, fields in lines
    ]
    return mended, field


def _first(lines: list[Line], is_wanted: Callable[[str], bool]) -> tuple[int, str] | None:
    wanted = ((line.number, f.strip()) for line in lines for f in line.fields if is_wanted(f))
    return next(wanted, None)


def _header(first: Line, target: str) -> list[str] | None:
    """The names in the first line, or None where it holds data."""
    names = [field.strip() for field in first.fields]
    numeric = [is_number(name) for name in names]
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
    return names


def _require_names(line: int, names: list[str], kept: list[int], target: str) -> None:
    """Of the columns that are kept, each has a name of its own."""
    if "" in names:
        place = kept[names.index("")] + 1
        raise InputError(
            f"line {line}, column {place}: has no name. If it is an index, leave it out: "
            f"--drop {place} (in pandas: to_csv(file, index=False))."
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        again = kept[len(names) - 1 - names[::-1].index(repeated[0])] + 1
        raise InputError(
            f"line {line}: must name every column differently, got {repeated[0]!r} twice. Rename "
            f"one, or leave it out: --drop {again}."
        )
    if target == TARGET and TARGET not in names and TARGET.upper() in names:
        raise InputError(f"line {line}: has a column Y but none y. Write y for the target.")


def _place(word: str, names: Sequence[str] | None, width: int) -> int:
    """Where the column is that a name, or a place counted from one, stands for."""
    if names is not None and word in names:
        return names.index(word)
    if word.isdecimal() and 1 <= int(word) <= width:
        return int(word) - 1
    raise unknown_column("--drop", word, names or ())


def unknown_column(option: str, word: str, names: Sequence[str]) -> InputError:
    """What to say of a name that no column has."""
    if not names:
        advice = "The first line names none: count them from 1."
    else:
        folded = {name.casefold(): name for name in names}
        near = get_close_matches(word.casefold(), folded, n=1)
        advice = f"Did you mean {folded[near[0]]!r}?" if near else f"There are {listed(names)}."
    return InputError(f"{option}: must be the name of a column, got {word!r}. {advice}")


def listed(words: Sequence[str], most: int = 8) -> str:
    """Words in quotes; of very many the first."""
    shown = ", ".join(map(repr, words[:most]))
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


def _beginning(lines: list[Line]) -> str:
    """What may be wrong with a file whose first line has a single field."""
    wider = next((line for line in lines if len(line.fields) > len(lines[0].fields)), None)
    if wider is None:
        return "Separate columns by commas, semicolons or tabs."
    return f"Leave out what stands above line {wider.number}, which has {len(wider.fields)}."


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
        advice = "Every sample needs the same features."
        if line.number == first.number + 1 and len(line.fields) == len(first.fields) + 1:
            advice += " Row numbers need a name, too (in R: write.csv(..., row.names = FALSE))."
        raise InputError(
            f"line {line.number}: must have {len(first.fields)} columns like line {first.number}, "
            f"got {len(line.fields)}. {advice}"
        )


def is_number(text: str) -> bool:
    """Whether it is one as files write them, infinities and NaN counted."""
    # Python would read 1_000 and digits of other alphabets, too; a slip is more likely.
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
