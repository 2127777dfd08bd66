"""Inner products of a matrix with any others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix._base import MatrixProblem
from flowbias.problems.matrix.reading import checked_tensor, no_measurement, shape_of


@dataclass(frozen=True, eq=False, repr=False)
class MatrixSensing(MatrixProblem):
    """<X_n, M> = values_n for any matrices X_n, stacked to (N, d1, d2).

    >>> problem = fb.MatrixSensing([np.eye(2)], [1.0])
    >>> problem.measure(np.array([[0.25, 5.0], [7.0, 0.75]]))
    array([1.])
    """

    stack: FloatArray
    target: FloatArray = field(init=False)
    shape: tuple[int, int] = field(init=False)

    def __init__(self, matrices: Any, values: Any) -> None:
        given = shape_of(matrices)
        if given is not None and given[:1] == (0,):
            raise no_measurement("matrices", f"shape {given}")
        stack = checked_tensor("matrices", matrices, ("measurements", "d1", "d2"))
        target = checked_tensor("values", values, ("measurements",))
        if len(stack) != len(target):
            raise InputError(
                f"values: must have one entry per measurement ({len(stack)}), got {len(target)}. "
                "Stack the matrices along the first axis."
            )
        if not stack.any():
            raise InputError(
                f"matrices: must have a nonzero entry, got all zeros of shape {stack.shape}. "
                "No matrix changes the loss; check how the measurements were built."
            )
        object.__setattr__(self, "stack", stack)
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "shape", (stack.shape[1], stack.shape[2]))

    @cached_property
    def matrices(self) -> FloatArray:
        """All X_n, as given."""
        return self.stack

    def measure(self, M: FloatArray) -> FloatArray:
        return np.asarray(self.stack.reshape(len(self.target), -1) @ np.ravel(M))

    def adjoint(self, r: FloatArray) -> FloatArray:
        return np.asarray(r @ self.stack.reshape(len(self.target), -1)).reshape(self.shape)
