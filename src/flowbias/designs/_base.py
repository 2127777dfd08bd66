"""What a solver may ask of a big X: sums over blocks of columns, and nothing else.

A limit of a separable potential is known by its dual nu, n numbers; everything of length d is a
function of one column of X and of nu. So X stays where it is, in blocks of columns. A `BlockTask`
(a small picklable object that carries nu) visits each block and comes back with `Totals` of size n
or n x n, which are added up. A task is a pure function of its block: run twice, or again after a
worker has died, it gives the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flowbias.ground.arguments import InputError, refuse_masked
from flowbias.ground.typing import FloatArray


class Block(ABC):
    """Some columns of X; products in double precision whatever the precision of the entries."""

    #: which columns of X these are
    columns: slice
    n: int

    @property
    def width(self) -> int:
        return int(self.columns.stop - self.columns.start)

    @abstractmethod
    def apply(self, w: FloatArray) -> FloatArray:
        """X w over these columns; w is (width,) or (width, k)."""

    @abstractmethod
    def adjoint(self, dual: FloatArray) -> FloatArray:
        """X^T dual for these columns; dual is (n,) or (n, k)."""

    @abstractmethod
    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        """diag(r) X diag(weights) X^T diag(r) over these columns, (n, n), both triangles."""

    @abstractmethod
    def largest_entries(self) -> FloatArray:
        """Largest |entry| of each row; InputError at one that is not finite."""


class EntriesBlock(Block):
    """Columns whose entries can be looked at; products from pieces of them, each of doubles.

    float32 entries are exact doubles, so X in float32 is solved as the X in float64 that it equals,
    and no converted copy of a whole block exists.
    """

    @abstractmethod
    def pieces(self) -> Iterator[tuple[slice, Any]]:
        """(part of this block's columns, their entries as a matrix of doubles, dense or sparse).

        To be used before the next is asked for, which may be written over it.
        """

    def absolute_of(self) -> Callable[[Any], Any]:
        """piece -> |piece|, likewise."""
        return abs

    def extended_of(self) -> Callable[[Any], Any]:
        """piece -> the same in extended precision, likewise."""
        return lambda piece: piece.astype(np.longdouble)

    def apply(self, w: FloatArray) -> FloatArray:
        return np.asarray(self._summed(w, lambda piece: piece))

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return np.asarray(self._across(dual, lambda piece: piece))

    def absolute_apply(self, w: FloatArray) -> FloatArray:
        """|X| |w|."""
        return np.asarray(self._summed(np.abs(w), self.absolute_of()))

    def absolute_adjoint(self, dual: FloatArray) -> FloatArray:
        """|X|^T |dual|."""
        return np.asarray(self._across(np.abs(dual), self.absolute_of()))

    def extended_apply(self, w: Any) -> Any:
        """X w in extended precision."""
        return self._summed(w.astype(np.longdouble), self.extended_of())

    def extended_adjoint(self, dual: Any) -> Any:
        """X^T dual in extended precision."""
        return self._across(dual.astype(np.longdouble), self.extended_of())

    def _summed(self, w: Any, seen: Callable[[Any], Any]) -> Any:
        total = np.zeros((self.n, *w.shape[1:]), dtype=w.dtype)
        for part, piece in self.pieces():
            total += seen(piece) @ w[part]
        return total

    def _across(self, dual: Any, seen: Callable[[Any], Any]) -> Any:
        out = np.empty((self.width, *dual.shape[1:]), dtype=dual.dtype)
        for part, piece in self.pieces():
            out[part] = seen(piece).T @ dual
        return out

    def quadratic(self, factor: FloatArray) -> FloatArray:
        """||factor x_j||^2 for each column x_j."""
        out = np.empty(self.width)
        for part, piece in self.pieces():
            lifted = factor @ piece
            out[part] = np.einsum("ij,ij->j", lifted, lifted)
        return out


@dataclass(frozen=True)
class Totals:
    """What blocks add up to: some results by their sum, others by their maximum."""

    sums: tuple[Any, ...] = ()
    largest: tuple[Any, ...] = ()

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple(np.maximum(a, b) for a, b in zip(self.largest, other.largest, strict=True)),
        )


class BlockTask(Protocol):
    """Something to do on every block."""

    def on(self, columns: slice) -> BlockTask:
        """The same task with what it knows per coordinate cut down to these columns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """task(block, *parts): `Totals` (for `reduce`) or (width,) numbers (for `gather`).

        `parts` are the block's own parts of what was handed over per coordinate.
        """


class Design(ABC):
    """X by blocks of columns. `kind` names it in messages and routes."""

    kind: str
    n: int
    d: int
    #: whether X diag(c) X^T costs about as much as a pass over X, and entries can be looked at.
    #: Otherwise only products with X are to be had.
    has_entries: bool = True
    #: X itself, where it is an array of doubles in memory: a design of one block
    in_memory: FloatArray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.d

    @property
    def entries(self) -> int:
        """How many numbers X consists of."""
        return self.n * self.d

    @property
    def dense_shape(self) -> tuple[int, int]:
        """Of the dense product in A diag(c) A^T: says whether threads pay."""
        return self.shape

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The blocks in the order of their columns, one at a time in memory."""

    def reduce(self, task: BlockTask, *columns: Any) -> Totals:
        """The sum over blocks of task(block, ...), in the order of the columns.

        `columns` are arrays of length d as `gather` returns them: each block sees its own part.
        """
        total: Totals | None = None
        for block in self.blocks():
            part = task.on(block.columns)(block, *(array[block.columns] for array in columns))
            total = part if total is None else total + part
        if total is None:
            raise InputError(f"X: must have columns, got shape {self.shape}. Pass some data.")
        return total

    def column(self, values: Any) -> Any:
        """One number per column of X, given from outside, as `reduce` takes it."""
        refuse_masked("w", values)
        array = np.asarray(values)
        check_dtype(array.dtype, "w")
        return array.astype(np.float64, copy=False)

    def gather(self, task: BlockTask, *columns: Any) -> FloatArray:
        """One number per column, from task(block, ...) on every block."""
        out = np.empty(self.d)
        for block in self.blocks():
            parts = (array[block.columns] for array in columns)
            out[block.columns] = task.on(block.columns)(block, *parts)
        return out


def not_finite(value: float, place: tuple[int, int]) -> InputError:
    """The error for an entry that is no number."""
    return InputError(
        f"X: must be finite, got {value} at index {place}. Drop or impute such entries."
    )


def check_dtype(dtype: np.dtype[Any], name: str = "X") -> None:
    """Real numbers; what has more digits than a double is rounded to one, as in a dense X."""
    if dtype.kind not in "buif":
        raise InputError(
            f"{name}: must hold real numbers, got dtype {dtype}. "
            f"Convert it first, for example {name}.astype(float)."
        )
