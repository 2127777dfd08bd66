"""A formula cut into tokens: numbers, names and signs of plain ASCII, each with its column."""

from __future__ import annotations

import math
import re
from enum import Enum, auto
from typing import NamedTuple

from flowbias.problem import InputError

#: Longest formula, in characters.
LONGEST = 200

_TOKEN = re.compile(
    # ASCII only: \d and \w would take digits and letters of every alphabet.
    r"[ \t]*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|[-+*/^()]))"
)
_MEANT = {"²": "^2", "³": "^3", "·": "*", "×": "*", "−": "-", "÷": "/", "[": "(", "]": ")"}


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    NAME = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """A piece of the formula; columns count from 1."""

    kind: Kind
    text: str
    column: int


def tokens_of(text: str) -> list[Token]:
    """The tokens, with one at the end that says so; what is none is refused with its column."""
    if len(text) > LONGEST:
        raise InputError(
            f"formula: must have at most {LONGEST} characters, got {len(text)}. Shorten it."
        )
    found: list[Token] = []
    place, end = 0, len(text.rstrip(" \t"))
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unknown(text, place)
        kind = Kind[str(match.lastgroup).upper()]
        word = match[match.lastgroup or 0]
        found.append(Token(kind, "^" if word == "**" else word, match.end() - len(word) + 1))
        place = match.end()
    return [*found, Token(Kind.END, "", end + 1)]


def number_of(token: Token) -> float:
    """The value of a number, if a double can hold it."""
    value = float(token.text)
    if not math.isfinite(value):
        raise refused(token.column, f"{shortened(token.text)} is too large for a number")
    return value


def refused(column: int, why: str) -> InputError:
    """An error that says where in the formula."""
    return InputError(f"formula, column {column}: {why}.")


def shortened(word: str) -> str:
    """A word of the reader's as it may be shown: escaped, and not at any length."""
    plain = ascii(word)[1:-1]
    return plain if len(plain) <= 24 else f"{plain[:20]}..."


def _unknown(text: str, place: int) -> InputError:
    while text[place] in " \t":
        place += 1
    mark = text[place]
    fix = f"Write {_MEANT[mark]}" if mark in _MEANT else "Use names, numbers, + - * / ^ and ( )"
    shown = mark if mark.isprintable() else ascii(mark)[1:-1]
    return refused(place + 1, f"`{shown}` has no meaning here. {fix}")
