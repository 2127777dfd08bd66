"""What a formula is once it has been read: a tree of frozen nodes that know their value and text.

Values are those of the names' own arithmetic: float64 tensors, which `derive` differentiates, or
jets. The functions are methods of both, so that nothing here loads torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What binds how tightly when a tree is written with as few parentheses as possible.
_SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(5)

#: Every function that a formula may call, on tensors and jets.
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
}


@dataclass(frozen=True)
class Notation:
    """How powers and functions are written: for people, or for Python."""

    power: str
    function: str


def digits(number: float) -> str:
    """All digits of a number and no more: 2, 0.1, 1e-07."""
    return repr(number).removesuffix(".0")


TYPED = Notation("^", "{name}({argument})")
PYTHON = Notation(" ** ", "torch.{name}({argument})")


class Node(ABC):
    """One operation, number or name."""

    binding: int = _ATOM

    @abstractmethod
    def value(self, names: Mapping[str, Any]) -> Any:
        """With these values of the names."""

    @abstractmethod
    def written(self, notation: Notation) -> str:
        """As text that reads back to the same tree."""

    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        return ()

    def size(self) -> int:
        """How many nodes there are, itself included: what evaluating it costs."""
        return 1 + sum(part.size() for part in self.parts())

    def names(self) -> Iterator[str]:
        """All names in it, from left to right, with repetitions."""
        for part in self.parts():
            yield from part.names()

    def __str__(self) -> str:
        return self.written(TYPED)

    def _inside(self, part: Node, notation: Notation, least: int) -> str:
        text = part.written(notation)
        return text if part.binding >= least else f"({text})"


@dataclass(frozen=True)
class Number(Node):
    """A finite constant."""

    number: float

    @property
    def binding(self) -> int:  # type: ignore[override]
        return _SIGN if self.number < 0.0 or str(self.number).startswith("-") else _ATOM

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.number

    def written(self, notation: Notation) -> str:
        return digits(self.number)


@dataclass(frozen=True)
class Name(Node):
    """A parameter: a vector with one entry per coordinate, or a scalar that all share."""

    name: str

    def value(self, names: Mapping[str, Any]) -> Any:
        return names[self.name]

    def written(self, notation: Notation) -> str:
        return self.name

    def names(self) -> Iterator[str]:
        yield self.name


@dataclass(frozen=True)
class Negative(Node):
    """-x."""

    of: Node
    binding = _SIGN

    def value(self, names: Mapping[str, Any]) -> Any:
        return -self.of.value(names)

    def written(self, notation: Notation) -> str:
        return "-" + self._inside(self.of, notation, _SIGN)

    def parts(self) -> tuple[Node, ...]:
        return (self.of,)


@dataclass(frozen=True)
class _Pair(Node):
    """Two nodes with a sign between them; what stands on the right binds more tightly."""

    left: Node
    right: Node

    sign = ""

    def written(self, notation: Notation) -> str:
        left = self._inside(self.left, notation, self.binding)
        return f"{left} {self.sign} {self._inside(self.right, notation, self.binding + 1)}"

    def parts(self) -> tuple[Node, ...]:
        return self.left, self.right


@dataclass(frozen=True)
class Sum(_Pair):
    """x + y."""

    binding = _SUM
    sign = "+"

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.left.value(names) + self.right.value(names)


@dataclass(frozen=True)
class Difference(_Pair):
    """x - y."""

    binding = _SUM
    sign = "-"

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.left.value(names) - self.right.value(names)


@dataclass(frozen=True)
class Product(_Pair):
    """x * y."""

    binding = _PRODUCT
    sign = "*"

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.left.value(names) * self.right.value(names)


@dataclass(frozen=True)
class Quotient(_Pair):
    """x / y."""

    binding = _PRODUCT
    sign = "/"

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.left.value(names) / self.right.value(names)


@dataclass(frozen=True)
class Power(Node):
    """x ^ p with a constant p."""

    base: Node
    exponent: float
    binding = _POWER

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.base.value(names) ** self.exponent

    def written(self, notation: Notation) -> str:
        base = self._inside(self.base, notation, _ATOM)
        return f"{base}{notation.power}{digits(self.exponent)}"

    def parts(self) -> tuple[Node, ...]:
        return (self.base,)


@dataclass(frozen=True)
class Call(Node):
    """One of the known functions."""

    function: str
    of: Node

    def value(self, names: Mapping[str, Any]) -> Any:
        return FUNCTIONS[self.function](self.of.value(names))

    def written(self, notation: Notation) -> str:
        return notation.function.format(name=self.function, argument=self.of.written(notation))

    def parts(self) -> tuple[Node, ...]:
        return (self.of,)
