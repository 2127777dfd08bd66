"""What every call returns: how it ended, in words, and how that is shown, drawn and insisted on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from flowbias.ground.drawing import Panel, picture
from flowbias.ground.html import facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ResultStatus(Protocol):
    """A status: a member of an enumeration whose failures carry their remedy."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...


class SolveError(RuntimeError):
    """A solve that could not be certified; `solution` holds what was reached, of whatever kind.

    >>> try:
    ...     fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0], tol=1e-30)
    ... except fb.SolveError as error:
    ...     print(error.solution.status.name)
    STALLED
    """

    def __init__(self, message: str, solution: Any) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made anew from `args` alone, which is the message.
        return type(self), (str(self), self.solution)


class Result(ABC):
    """A status in words, the error where it is a failure, a picture, a line and a table."""

    status: ResultStatus
    #: what `checked` raises
    raises: ClassVar[type[SolveError]] = SolveError

    @property
    @abstractmethod
    def message(self) -> str:
        """The status in words, with its numbers."""

    @abstractmethod
    def _panels(self) -> Sequence[Panel]:
        """What is drawn."""

    @abstractmethod
    def _facts(self) -> Mapping[str, str | float | None]:
        """What the table of a notebook says, by name."""

    @abstractmethod
    def _lines(self) -> Sequence[str]:
        """What is printed after the message."""

    def checked(self, throw: bool) -> Self:
        """Itself, or its error where it failed and `throw` is set."""
        if throw and not self.status.ok:
            raise self.raises(self.message, self)
        return self

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Its panels side by side, or the first alone on `ax`; written to `path` if given."""
        return picture(*self._panels(), path=path, ax=ax)

    def _repr_html_(self) -> str:
        caption = f"{type(self).__name__}: {self.status.name}"
        return facts(caption, self._facts(), note=self.message)

    def __repr__(self) -> str:
        name = type(self).__name__
        indented = "\n" + " " * (len(name) + 1)
        return f"{name}({indented.join([self.message, *self._lines()])})"
