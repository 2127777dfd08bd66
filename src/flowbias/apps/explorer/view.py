"""What a view is: controls, the numbers they lead to, charts, words, and code.

A view holds no state. `scene` is a pure function of the settings and may take its time: the page
calls it in a thread and drops what is out of date. `data` says where a scene puts the marks of the
charts, which each browser tab draws for itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from flowbias.apps.explorer.controls import Control
from flowbias.apps.explorer.drawing import Chart, Data

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
