"""Some entries of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.problems.matrix.reading import checked_tensor, no_measurement, read_shape, shape_of


@dataclass(frozen=True, eq=False, repr=False)
class MatrixCompletion(MatrixProblem):
    """M[rows, cols] = values: some entries of a matrix of `shape`.

    Each entry counts once: repeated observations must agree and are merged. Entries are kept in
    the order of the matrix, row by row.

    >>> problem = fb.MatrixCompletion(rows=[0, 1], cols=[0, 1], values=[1.0, 2.0], shape=(2, 2))
    >>> fb.frobenius_norm(problem).M
    array([[1., 0.],
           [0., 2.]])
    """

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    target: FloatArray
    shape: tuple[int, int]

    def __init__(self, rows: Any, cols: Any, values: Any, shape: tuple[int, int]) -> None:
        size = read_shape("shape", shape)
        places = [_indices("rows", rows, size[0]), _indices("cols", cols, size[1])]
        target = checked_tensor("values", values, ("entries",))
        if not len(places[0]) == len(places[1]) == len(target):
            raise InputError(
                f"rows, cols, values: must have the same length, got {len(places[0])}, "
                f"{len(places[1])} and {len(target)}. Pass one of each per observed entry."
            )
        flat = places[0] * size[1] + places[1]
        entries, first, which = np.unique(flat, return_index=True, return_inverse=True)
        disagree = target != target[first][which]
        if disagree.any():
            later = int(np.flatnonzero(disagree)[0])
            place = int(places[0][later]), int(places[1][later])
            raise InputError(
                f"values: must agree where an entry is observed twice, got "
                f"{target[first][which][later]:.6g} and {target[later]:.6g} for entry {place}. "
                "Keep one of them, or their mean."
            )
        object.__setattr__(self, "rows", _frozen(entries // size[1]))
        object.__setattr__(self, "cols", _frozen(entries % size[1]))
        merged = target[first]
        merged.setflags(write=False)
        object.__setattr__(self, "target", merged)
        object.__setattr__(self, "shape", size)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which entries are observed."""
        observed = np.zeros(self.shape, dtype=bool)
        observed[self.rows, self.cols] = True
        return observed

    @cached_property
    def range_basis(self) -> None:
        """None: different entries can take any values."""
        return

    def measure(self, M: FloatArray) -> FloatArray:
        return np.asarray(M)[self.rows, self.cols]

    def adjoint(self, r: FloatArray) -> FloatArray:
        total = np.zeros(self.shape)
        total[self.rows, self.cols] = r  # each entry once, so nothing is overwritten
        return total


def _indices(name: str, values: Any, size: int) -> NDArray[np.intp]:
    shape = shape_of(values)
    if shape is not None and 0 in shape:
        raise no_measurement(name, f"shape {shape}")
    if shape is None or len(shape) != 1 or np.asarray(values).dtype.kind not in "iu":
        raise InputError(
            f"{name}: must be a vector of integers, got {values!r}. "
            "Pass one index per observed entry, counted from 0."
        )
    places = np.asarray(values).astype(np.intp)
    outside = (places < 0) | (places >= size)
    if outside.any():
        where = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{name}: must lie in 0 .. {size - 1}, got {int(places[where])} at index {where}. "
            "Indices count from 0; check the shape."
        )
    return places


def _frozen(places: NDArray[np.intp]) -> NDArray[np.intp]:
    places.setflags(write=False)
    return places
