"""The file behind np.memmap, read without mapping it.

A mapped file is charged to the process page by page, and the kernel maps far more pages than are
asked for where a few columns of every row are wanted. Plain reads cost the block and nothing else.
A `MappedFile` is also what may be sent to another process: a memmap would be sent with all of its
entries, a `MappedFile` is a path.
"""

from __future__ import annotations

import io
import mmap
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError


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
