"""What a reader can set: declared here without any framework, drawn by `widgets`.

A value arrives as text, from a widget or from the address of the page, which anybody can type:
`parse` gives a legal value for every text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


def power_of_ten(exponent: float) -> str:
    """1e-3 for -3 and 3.2e-3 for -2.5: how a logarithmic slider shows its value."""
    whole = math.floor(exponent)
    return f"{10.0 ** (exponent - whole):.2g}e{whole}"


@dataclass(frozen=True)
class Slider:
    """A number on a grid from `low` to `high`."""

    name: str
    label: str
    low: float
    high: float
    step: float
    default: float
    # In words where the number alone would not do, e.g. `power_of_ten`.
    shown: Callable[[float], str] = "{:g}".format
    # Whether a play button moves it.
    plays: bool = False
    # In place of equal steps, where some stretches matter more than others; in rising order.
    stops: tuple[float, ...] = ()

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """All values, in rising order."""
        if self.stops:
            return self.stops
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        # Sums of decimal steps carry noise in the last digits; the address should not.
        return tuple(float(f"{self.low + k * self.step:.10g}") for k in range(count))

    def parse(self, text: str) -> float:
        """The nearest value on the grid; the default where `text` is no number."""
        try:
            number = float(text)
        except ValueError:
            return self.default
        if not math.isfinite(number):
            return self.default
        return min(self.grid, key=lambda value: abs(value - number))


@dataclass(frozen=True)
class Choice:
    """One of a few words: pairs of the value and what the reader sees."""

    name: str
    label: str
    options: tuple[tuple[str, str], ...]
    default: str

    def parse(self, text: str) -> str:
        """`text` where it is one of the values, else the default."""
        return text if text in dict(self.options) else self.default


@dataclass(frozen=True)
class Text:
    """A line that the reader types."""

    name: str
    label: str
    default: str
    longest: int

    def parse(self, text: str) -> str:
        """`text`, cut at its longest."""
        return text[: self.longest]


@dataclass(frozen=True)
class Upload:
    """A file from the reader's disk; it is not part of the address.

    Settings hold its bytes, and b"" before one is chosen.
    """

    name: str
    label: str
    endings: tuple[str, ...]
    largest: int
    # Raises InputError for bytes that the view cannot use; such a file is not kept.
    check: Callable[[bytes], object] = len


Control = Slider | Choice | Text | Upload
