"""The settings of a figure: its presets, what may be changed in them, and how that is written.

Settings are data: numbers, words, and lists of these written with blanks ('40 60 80'), because
they stand in the names of tasks. What a setting may be is read off the presets: a change must be of
the same kind, a count where all of them are counts, and below 0 only where one of them is.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError

Setting = int | float | str
Settings = Mapping[str, Setting]


class Preset(StrEnum):
    """How much an experiment computes; `flowbias list` shows what each costs.

    >>> [preset.value for preset in fb.experiments.Preset]
    ['smoke', 'laptop', 'paper', 'full']
    """

    SMOKE = "smoke"  # seconds
    LAPTOP = "laptop"  # minutes on two cores
    PAPER = "paper"  # at most hours on two cores
    FULL = "full"  # the paper's own settings, whatever they cost


def all_presets(given: Mapping[Preset, Settings]) -> dict[Preset, Settings]:
    """The settings of every preset: what one does not give is as in the one before it."""
    if Preset.SMOKE not in given:
        raise InputError(
            "settings: must hold the preset smoke, got "
            f"{', '.join(given) or 'none'}. What a larger preset does not give is as in the one "
            "before it."
        )
    filled: dict[Preset, Settings] = {}
    settings: Settings = {}
    for preset in Preset:
        settings = {**settings, **given.get(preset, {})}
        if odd := settings.keys() - given[Preset.SMOKE].keys():
            raise InputError(
                f"settings: must all have a value in the preset smoke, got none for {min(odd)!r} "
                f"of {preset}. Give it one there."
            )
        filled[preset] = settings
    return filled


@dataclass(frozen=True)
class AllowedValues:
    """What a setting may be."""

    #: of each of its numbers; words have neither
    integer: bool
    number: bool
    many: bool
    #: the least that any preset has
    least: float
    choices: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[Setting], choices: Collection[str] = ()) -> AllowedValues:
        """The kind that all of these values are of."""
        given = list(values)
        words = [word for value in given for word in _words(value)]
        numbers = [number for word in words if (number := _number(word)) is not None]
        number = bool(words) and len(numbers) == len(words)
        return cls(
            integer=number and all(re.fullmatch(r"[+-]?\d+", word) for word in words),
            number=number,
            many=any(isinstance(value, str) for value in given),
            least=min(numbers, default=math.nan),
            choices=tuple(choices),
        )

    @property
    def words(self) -> str:
        """For people: `an integer >= 1`, `numbers >= 0`, `words among ...`."""
        if not self.number:
            return f"words among {', '.join(self.choices)}" if self.choices else "words"
        one, more = ("an integer", "integers") if self.integer else ("a number", "numbers")
        limit = f" >= {self._lowest:g}" if self.least >= 0.0 else ""
        return f"{more if self.many else one}{limit}"

    @property
    def _lowest(self) -> float:
        """A count is at least 1 and nothing else below 0, unless a preset has less."""
        if self.least < 0.0:
            return -math.inf
        return 1.0 if self.integer and self.least > 0.0 else 0.0

    def read(self, name: str, value: Any) -> Setting:
        """A change of the setting, as the presets would have written it."""
        given = _words(value)
        if not given or not all(map(self._takes, given if self.number else [" ".join(given)])):
            raise self._refusal(name, value)
        if self.many:
            return " ".join(given)
        if len(given) > 1:
            raise self._refusal(name, value)
        return int(given[0]) if self.integer else float(given[0])

    def _takes(self, word: str) -> bool:
        if not self.number:
            every = word in self.choices or all(part in self.choices for part in word.split())
            return every or not self.choices
        number = _number(word)
        if number is None or (self.integer and not re.fullmatch(r"[+-]?\d+", word)):
            return False
        return number >= self._lowest

    def _refusal(self, name: str, value: Any) -> InputError:
        several = " Separate several by blanks." if self.many else ""
        return InputError(f"settings: {name} must be {self.words}, got {value!r}.{several}")


def allowed_in(
    presets: Mapping[Preset, Settings], choices: Mapping[str, Collection[str]]
) -> dict[str, AllowedValues]:
    """What each setting of a figure may be."""
    names = presets[Preset.SMOKE]
    return {
        name: AllowedValues.of((presets[preset][name] for preset in presets), choices.get(name, ()))
        for name in names
    }


def read_changes(
    allowed: Mapping[str, AllowedValues], changes: Mapping[str, Any]
) -> dict[str, Setting]:
    """Changes as settings; InputError for a name that there is not, or a value of another kind."""
    for name in changes:
        if name not in allowed:
            near = difflib.get_close_matches(str(name), allowed, n=1, cutoff=0.5)
            advice = f"Did you mean {near[0]!r}?" if near else "Change one of those."
            raise InputError(
                f"settings: must be among {', '.join(allowed) or 'none'}; got {name!r}. {advice}"
            )
    return {name: allowed[name].read(name, value) for name, value in changes.items()}


def picked(settings: Settings, *names: str) -> Settings:
    """Some of the settings."""
    return {name: settings[name] for name in names}


def numbers(settings: Settings, name: str) -> list[float]:
    """A list of numbers that is written as words."""
    return [float(word) for word in str(settings[name]).split()]


def read_assignments(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words of a command line."""
    changes: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"set: must be NAME=VALUE, such as sparsity=10, got {word!r}. "
                "`flowbias list NAME` shows the settings of a figure."
            )
        if name.strip() in changes:
            raise InputError(f"set: must name each setting once, got {name.strip()!r} twice.")
        changes[name.strip()] = value
    return changes


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, Sequence | np.ndarray):
        return [word for each in value for word in _words(each)]
    plain = value.item() if isinstance(value, np.generic) else value
    return str(plain).split()


def _number(word: str) -> float | None:
    """None for what is no finite number."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
