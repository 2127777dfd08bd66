"""An array of any real type, in memory or mapped from a file: as a whole, or in column blocks.

A mapped file is charged to the process page by page, and the kernel maps far more pages than are
asked for where a few columns of every row are wanted. Plain reads cost the block and nothing else.
A `MappedFile` is also what may be sent to another process: a memmap would be sent with all of its
entries, a `MappedFile` is a path.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.designs._base import (
    BlockTask,
    Design,
    EntriesBlock,
    Totals,
    check_dtype,
    not_finite,
)
from flowbias.ground import extended
from flowbias.ground.arguments import InputError, refuse_masked
from flowbias.ground.extended import column_parts
from flowbias.ground.typing import FloatArray

# Columns of a block: about this many numbers, so that the vectors that go with them stay small.
BLOCK_NUMBERS = 2**22
# Numbers of a piece, the most that is copied at a time: a few megabytes, so that it stays in the
# caches of a processor.
PIECE_NUMBERS = 2**19


class Scratch:
    """Memory that one piece after another is written to.

    Where memory that is given back goes to the system at once, as it does below Dask's nannies
    (MALLOC_TRIM_THRESHOLD_), to fetch it again for every piece takes several times as long as a
    product of the piece with a vector.
    """

    def __init__(self, dtype: Any = np.float64) -> None:
        self._numbers: NDArray[Any] = np.empty(0, dtype)

    def of(self, rows: int, columns: int, order: Literal["C", "F"] = "C") -> NDArray[Any]:
        """A matrix of which nothing is known yet; the last one is gone."""
        if rows * columns > self._numbers.size:
            self._numbers = np.empty(rows * columns, self._numbers.dtype)
        return self._numbers[: rows * columns].reshape((rows, columns), order=order)

    def like(self, piece: NDArray[Any]) -> NDArray[Any]:
        """The same, with entries that follow each other as in `piece`."""
        rows, columns = piece.shape
        return self.of(rows, columns, "C" if piece.strides[0] >= piece.strides[1] else "F")


class DenseBlock(EntriesBlock):
    """Columns of an array of any real type, converted piece by piece."""

    def __init__(self, values: Any, columns: slice) -> None:
        self.values, self.columns, self.n = values, columns, len(values)

    def pieces(self) -> Iterator[tuple[slice, FloatArray]]:
        scratch = Scratch()
        # A quarter, so that the innermost cache but one holds it beside what it is converted from.
        for part in column_parts(self.width, max(1, PIECE_NUMBERS // 4 // self.n)):
            entries = self.values[:, part]
            if entries.dtype != np.float64:
                converted = scratch.like(entries)
                np.copyto(converted, entries)
                entries = converted
            yield part, entries

    def absolute_of(self) -> Callable[[FloatArray], FloatArray]:
        scratch = Scratch()
        return lambda piece: np.abs(piece, out=scratch.like(piece))

    def extended_of(self) -> Callable[[FloatArray], Any]:
        scratch = Scratch(np.longdouble)

        def extended_piece(piece: FloatArray) -> Any:
            converted = scratch.like(piece)
            np.copyto(converted, piece)
            return converted

        return extended_piece

    def quadratic(self, factor: FloatArray) -> FloatArray:
        # Rows of a triangular factor end before their last column: four groups of them, each
        # without the columns that it does not use, take five eighths of the multiplications.
        groups = []
        for some in np.array_split(factor, min(4, len(factor))):
            used = np.flatnonzero(some.any(axis=0))
            groups.append(some[:, : used[-1] + 1 if len(used) else 0])
        out, scratch = np.zeros(self.width), Scratch()
        for part, piece in self.pieces():
            for some in groups:
                lifted = scratch.of(len(some), piece.shape[1])
                np.matmul(some, piece[: some.shape[1]], out=lifted)
                out[part] += np.einsum("ij,ij->j", lifted, lifted)
        return out

    def gram(self, weights: FloatArray, row_scale: FloatArray) -> FloatArray:
        return both_triangles(gram(self.values, weights, row_scale))

    def largest_entries(self) -> FloatArray:
        largest = np.zeros(self.n)
        for part, piece in self.pieces():
            sizes = np.maximum(piece.max(axis=1), -piece.min(axis=1))
            if not np.isfinite(sizes).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(piece))[0])
                place = (row, column + part.start + self.columns.start)
                raise not_finite(piece[row, column], place)
            np.maximum(largest, sizes, out=largest)
        return largest


class ArrayBlock(DenseBlock):
    """An array of doubles: nothing is converted, and products skip what w does not use."""

    def largest_entries(self) -> FloatArray:
        # What is not finite was refused where the array was read, or is for a certificate to fail.
        return np.asarray(np.maximum(self.values.max(axis=1), -self.values.min(axis=1)))

    def apply(self, w: FloatArray) -> FloatArray:
        return np.asarray(self.values @ w)

    def adjoint(self, dual: FloatArray) -> FloatArray:
        return np.asarray(self.values.T @ dual)

    def absolute_apply(self, w: FloatArray) -> FloatArray:
        return extended.absolute_apply(self.values, w)

    def absolute_adjoint(self, dual: FloatArray) -> FloatArray:
        return extended.absolute_adjoint(self.values, dual)

    def quadratic(self, factor: FloatArray) -> FloatArray:
        if self.values.size > PIECE_NUMBERS:
            return super().quadratic(factor)
        lifted = factor @ self.values
        return np.asarray(np.einsum("ij,ij->j", lifted, lifted))

    def extended_apply(self, w: Any) -> Any:
        return extended.apply(self.values, w)

    def extended_adjoint(self, dual: Any) -> Any:
        return extended.adjoint(self.values, dual)


class DenseDesign(Design):
    """X as a NumPy array of any real type, block by block."""

    kind = "dense"

    def __init__(self, X: Any) -> None:
        check_dtype(X.dtype)
        refuse_masked("X", X)
        self.values = X
        self.n, self.d = X.shape

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(self.values[:, part], part)


class ArrayDesign(Design):
    """X as an array of doubles in memory: one block."""

    kind = "array"
    in_memory: FloatArray

    def __init__(self, X: FloatArray) -> None:
        self.in_memory = X
        self.n, self.d = X.shape
        self.block = ArrayBlock(X, slice(0, self.d))
        #: as X was when a certificate was last made of it
        self.kept: ArrayDesign | None = None

    def blocks(self) -> Iterator[ArrayBlock]:
        yield self.block

    def reduce(self, task: BlockTask, *columns: Any) -> Totals:
        totals: Totals = task(self.block, *columns)
        return totals

    def gather(self, task: BlockTask, *columns: Any) -> FloatArray:
        return np.asarray(task(self.block, *columns))


class MemoryMappedDesign(DenseDesign):
    """X as np.memmap; read from its file where the map says which part of it X is."""

    kind = "memory-mapped"

    def __init__(self, X: np.memmap) -> None:
        super().__init__(X)
        self.values = MappedFile.of(X) or X

    def blocks(self) -> Iterator[DenseBlock]:
        for part in column_parts(self.d, max(1, BLOCK_NUMBERS // self.n)):
            yield DenseBlock(np.array(self.values[:, part]), part)


def gram(rows: Any, weights: FloatArray | None, row_scale: FloatArray) -> FloatArray:
    """Lower triangle of diag(r) rows diag(weights) rows^T diag(r), in column blocks.

    No weights are weights of one.
    """
    if not can_wait(row_scale):
        return gram_of_rows(rows, weights, row_scale)
    total = gram_of_rows(rows, weights)
    total *= (row_scale[:, None] * row_scale).T  # ordered like the total
    return total


def gram_of_rows(
    rows: Any, weights: FloatArray | None, row_scale: FloatArray | None = None
) -> FloatArray:
    """The same, with rows scaled piece by piece: wherever products of theirs leave the doubles."""
    root = None if weights is None else np.sqrt(weights)

    def scaled(part: slice, out: FloatArray) -> FloatArray:
        entries = rows[:, part]
        if root is None and row_scale is None and entries.flags.c_contiguous:
            return np.asarray(entries, dtype=np.float64)  # which BLAS takes as it is
        if root is None:
            np.copyto(out, entries)
        else:
            np.multiply(entries, root[part], out=out, dtype=np.float64)
        if row_scale is not None:
            out *= row_scale[:, None]
        return out

    return summed_squares(rows.shape, scaled)


def can_wait(row_scale: FloatArray, ordinary: float = 1e50) -> bool:
    """Whether rows can be scaled at the end, on n^2 entries instead of n d.

    As far as their squares are safely inside the double range, weights included.
    """
    return extended.largest(row_scale) < ordinary and extended.least(row_scale) > 1.0 / ordinary


def summed_squares(
    shape: tuple[int, int], piece: Callable[[slice, FloatArray], FloatArray]
) -> FloatArray:
    """Lower triangle of the sum of P P^T over pieces P of some columns.

    One symmetric rank-k update per piece: half the work of a general product, and memory beyond
    the result is one piece, never a second X. `piece` is given that memory, to write to it.
    """
    n, d = shape
    # A thousand columns make the most of an update; with fewer, a total that no cache holds is read
    # for too little work.
    width = max(min(PIECE_NUMBERS // n, 1024), PIECE_NUMBERS // 4 // n) + 1
    if d <= width:
        whole = piece(slice(0, d), np.empty((n, d)))
        return np.asarray(scipy.linalg.blas.dsyrk(1.0, whole.T, trans=1, lower=1))
    total: FloatArray = np.zeros((n, n), order="F")
    scratch = Scratch()
    for part in column_parts(d, width):
        some = piece(part, scratch.of(n, part.stop - part.start))
        total = scipy.linalg.blas.dsyrk(
            1.0, some.T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1
        )
    return total


def both_triangles(lower: FloatArray) -> FloatArray:
    """A symmetric matrix from its lower triangle, where the upper one is zero."""
    whole = lower + lower.T
    whole.flat[:: len(lower) + 1] *= 0.5
    return whole


@dataclass(frozen=True)
class MappedFile:
    """A matrix in a file, at `offset`; indexed like the array that it holds."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, int]
    offset: int = 0
    order: Literal["C", "F"] = "C"
    ndim: int = 2

    @classmethod
    def of(cls, mapped: NDArray[Any]) -> MappedFile | None:
        """The file behind `mapped`; None where it does not say what `mapped` holds.

        A view does not say its place, and what was written to a map of mode "c" is not in the file.
        InputError where the file under that path is another one by now.
        """
        base: Any = mapped.base
        if not (isinstance(mapped, np.memmap) and isinstance(base, mmap.mmap)):
            return None
        if not mapped.filename or mapped.ndim != 2 or mapped.mode == "c":
            return None
        order: Literal["C", "F"] = "C" if mapped.flags.c_contiguous else "F"
        rows, columns = mapped.shape
        file = cls(str(mapped.filename), mapped.dtype, (rows, columns), mapped.offset, order)
        file._require_same(mapped)
        return file

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """A part of the matrix, as an array of its own."""
        wanted = index if isinstance(index, tuple) else (index,)
        plain = [part for part in wanted if isinstance(part, slice) and part.step in (None, 1)]
        if not len(plain) == len(wanted) <= 2:
            # Every other index means what it means for the mapped array.
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
            return np.array(mapped[index])
        rows, columns = (*plain, slice(None), slice(None))[:2]
        first = range(*rows.indices(self.shape[0]))
        second = range(*columns.indices(self.shape[1]))
        if self.order == "F":
            return self._read(second, first, self.shape[0]).T
        return self._read(first, second, self.shape[1])

    def _require_same(self, mapped: NDArray[Any], rows: int = 8, columns: int = 256) -> None:
        """InputError unless the first entries of some rows are those of the file, to the bit."""
        with self._opened() as file:
            # Not beyond the end of the file: to touch a map there ends the process.
            whole = file.seek(0, io.SEEK_END) >= self.offset + mapped.nbytes
        for i in np.linspace(0, self.shape[0] - 1, rows, dtype=int) if whole else ():
            some = slice(i, i + 1), slice(0, columns)
            if self[some].tobytes() != mapped[some].tobytes():
                whole = False
        if not whole:
            raise InputError(
                f"X: {self.path} must be the file that was mapped, got other entries or fewer. It "
                "was written anew since: map it again, np.load(file, mmap_mode='r')."
            )

    def _read(self, lines: range, inside: range, length: int) -> NDArray[Any]:
        """Some entries of some lines; entries of a line, `length` in all, follow each other."""
        out = np.empty((len(lines), len(inside)), dtype=self.dtype)
        with self._opened() as file:
            for line, values in zip(lines, out, strict=True):
                file.seek(self.offset + (line * length + inside.start) * self.dtype.itemsize)
                if file.readinto(values.data) != values.nbytes:
                    raise InputError(
                        f"X: {self.path} must hold {self.shape[0]} x {self.shape[1]} entries of "
                        f"{self.dtype}, but it ends before. It was cut short after it was mapped."
                    )
        return out

    def _opened(self) -> io.FileIO:
        try:
            return io.FileIO(self.path)
        except OSError as error:
            raise InputError(
                f"X: {self.path} must be readable for as long as it is in use, got "
                f"{type(error).__name__}: {error.strerror}. Keep the file where it was mapped."
            ) from error
