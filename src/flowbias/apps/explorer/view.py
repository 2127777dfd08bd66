"""What a view is: controls, the numbers they lead to, charts, words, and code.

A view holds no state. `scene` is a pure function of the settings and may take its time: the page
calls it in a thread and drops what is out of date. `data` says where a scene puts the marks of the
charts, which each browser tab draws for itself.

A value of a control arrives as text, from the page or from its address
(/?view=geometry&log_scale=-3), which anybody can type: `parse` gives a legal value for every text.
The page draws controls as native elements: an <input type=range> has a name, answers to all keys
and says its value in words, which the sliders of frameworks do not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from flowbias.apps.explorer.drawing import Chart, Data
from flowbias.ground.html import power_of_ten


@dataclass(frozen=True)
class Control(ABC):
    """One setting: its name in the address, and what the reader sees beside it."""

    name: str
    label: str

    @abstractmethod
    def parse(self, text: str | None) -> Any:
        """A legal value, whatever the text; the default where there is none."""

    @abstractmethod
    def element(self, value: Any) -> dict[str, Any]:
        """What the template and the script need beyond name and label, set to `value`."""

    def widget(self, value: Any) -> dict[str, Any]:
        """All that the template and the script need to draw it."""
        return {"name": self.name, "label": self.label, **self.element(value)}


@dataclass(frozen=True)
class Slider(Control):
    """A number on a grid from `low` to `high`, an integer where these are."""

    low: float
    high: float
    step: float
    default: float
    # In words where the number alone would not do, e.g. `power_of_ten`.
    shown: Callable[[float], str] = "{:g}".format
    # Whether a play button moves it, round and round: 1 upwards, -1 downwards.
    plays: int = 0
    # In place of equal steps, where some stretches matter more than others; in rising order.
    stops: tuple[float, ...] = ()

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """All values, in rising order."""
        if self.stops:
            return self.stops
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        values = (self.low + k * self.step for k in range(count))
        # Sums of decimal steps carry noise in the last digits; the address should not.
        return tuple(v if isinstance(v, int) else float(f"{v:.10g}") for v in values)

    def parse(self, text: str | None) -> float:
        """The nearest value on the grid; the default where `text` is no number."""
        try:
            number = float(text or "")
        except ValueError:
            return self.default
        if not math.isfinite(number):
            return self.default
        return min(self.grid, key=lambda value: abs(value - number))

    def element(self, value: float) -> dict[str, Any]:
        return {
            "kind": "slider",
            "plays": self.plays,
            "values": [f"{number:g}" for number in self.grid],
            "words": [self.shown(number) for number in self.grid],
            "index": self.grid.index(value),
        }


def scale_slider(
    low: float,
    high: float,
    step: float,
    default: float,
    stops: tuple[float, ...] = (),
    *,
    name: str = "log_scale",
    label: str = "Scale α of the start",
    plays: bool = False,
) -> Slider:
    """A size by its base-10 logarithm, by default that of the start; plays from kernel to rich."""
    return Slider(name, label, low, high, step, default, power_of_ten, -int(plays), stops)


#: Places of a cursor in time, besides its beginning.
MOMENTS = 100


def moment_slider(label: str) -> Slider:
    """A place on an axis of time, which plays from its beginning to its end."""
    return Slider("moment", label, 0, MOMENTS, 1, MOMENTS // 2, "{:g}%".format, plays=1)


@dataclass(frozen=True)
class Choice(Control):
    """One of a few words: pairs of the value and what the reader sees."""

    options: tuple[tuple[str, str], ...]
    default: str

    def parse(self, text: str | None) -> str:
        """`text` where it is one of the values, else the default."""
        return text if text is not None and text in dict(self.options) else self.default

    def element(self, value: str) -> dict[str, Any]:
        options = [{"value": option, "word": word} for option, word in self.options]
        return {"kind": "choice", "options": options, "value": value}


@dataclass(frozen=True)
class Text(Control):
    """A line that the reader types."""

    default: str
    longest: int

    def parse(self, text: str | None) -> str:
        """`text`, cut at its longest."""
        return self.default if text is None else text[: self.longest]

    def element(self, value: str) -> dict[str, Any]:
        return {"kind": "text", "longest": self.longest, "value": value}


@dataclass(frozen=True)
class Upload(Control):
    """A file from the reader's disk: settings hold its bytes, and b"" before one is chosen."""

    endings: tuple[str, ...]
    largest: int
    # Raises InputError for bytes that the view cannot use; such a file is not kept.
    check: Callable[[bytes], object] = len

    def parse(self, text: str | None) -> bytes:
        """A file is never part of an address."""
        return b""

    def element(self, value: bytes) -> dict[str, Any]:
        return {"kind": "upload", "endings": list(self.endings), "largest": self.largest}


def settings_of(controls: Sequence[Control], texts: Mapping[str, str]) -> dict[str, Any]:
    """Legal settings for whatever an address or a page says."""
    return {control.name: control.parse(texts.get(control.name)) for control in controls}


def last_texts(arguments: Mapping[str, Sequence[bytes]]) -> dict[str, str]:
    """The arguments of a request; the last one counts where one is given twice."""
    return {name: values[-1].decode("utf-8", "replace") for name, values in arguments.items()}


Settings = Mapping[str, Any]
Scene = TypeVar("Scene")
Made = TypeVar("Made")


def chosen(kind: type[Made], settings: Settings) -> Made:
    """A dataclass whose fields have the names of the controls that set them."""
    named: Any = kind
    return kind(**{one.name: settings[one.name] for one in fields(named)})


@dataclass(frozen=True)
class Download:
    """A file that the reader may take along."""

    name: str
    label: str
    content: bytes


class View(ABC, Generic[Scene]):
    """One page of the explorer."""

    name: ClassVar[str]
    title: ClassVar[str]
    # What the reader will have understood afterwards, in one sentence.
    question: ClassVar[str]
    controls: ClassVar[tuple[Control, ...]]
    charts: ClassVar[tuple[Chart, ...]]

    @abstractmethod
    def scene(self, settings: Settings) -> Scene:
        """All numbers of the view. Raises InputError or SolveError, whose text the page shows."""

    def first_scene(self, settings: Settings) -> Scene | None:
        """What can be shown while `scene` is computed; None where nothing is quicker than that.

        Data, text and downloads take it like any other and have to say what is missing in it.
        """
        return None

    @abstractmethod
    def data(self, scene: Scene) -> Data:
        """The columns of every mark; marks that are left out stay as they are, faint."""

    @abstractmethod
    def text(self, scene: Scene) -> str:
        """Two to four sentences (Markdown) on what is seen right now, with its numbers."""

    @abstractmethod
    def code(self, settings: Settings) -> str:
        """A script that runs as it stands and makes this picture with flowbias and matplotlib."""

    def script(self, body: str, *imports: str) -> str:
        """`body` with what every such script begins and ends with."""
        packages = sorted(("import matplotlib.pyplot as plt", "import numpy as np", *imports))
        about = f'"""{self.title}: a picture of `flowbias explore`."""'
        head = "\n".join([about, *packages, "", "import flowbias as fb"])
        return f"{head}\n\n{body}plt.show()\n"

    def warm_up(self) -> None:
        """What takes long once, like an import; called in a thread when a page is opened."""
        return

    def downloads(self, scene: Scene) -> tuple[Download, ...]:
        """Files made of the scene; none unless a view says otherwise."""
        return ()
