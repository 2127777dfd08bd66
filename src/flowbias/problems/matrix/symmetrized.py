"""Measurements of the symmetric part of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix._base import MatrixProblem


@dataclass(frozen=True, eq=False, repr=False)
class SymmetrizedProblem(MatrixProblem):
    """The same measurements of the symmetric part (M + M^T)/2: all that W W^T shows of them."""

    base: MatrixProblem
    shape: tuple[int, int] = field(init=False)
    target: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if self.base.shape[0] != self.base.shape[1]:
            raise InputError(
                f"problem: must measure square matrices to be symmetrized, got shape "
                f"{self.base.shape}. Use two different factors, U V^T."
            )
        object.__setattr__(self, "shape", self.base.shape)
        object.__setattr__(self, "target", self.base.target)

    def measure(self, M: FloatArray) -> FloatArray:
        return self.base.measure(0.5 * (M + M.T))

    def adjoint(self, r: FloatArray) -> FloatArray:
        R = self.base.adjoint(r)
        return np.asarray(0.5 * (R + R.T))
