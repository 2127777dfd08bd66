"""Y ~ X M: a matrix of coefficients, seen through its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.spectrum import Spectrum
from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix._base import MatrixProblem, projected
from flowbias.problems.matrix.reading import checked_tensor, shape_of
from flowbias.problems.regression import Regression


@dataclass(frozen=True, eq=False, repr=False)
class MatrixRegression(MatrixProblem):
    """Y ~ X M: n samples in the rows of X (n, d), m outputs in those of Y (n, m).

    A vector Y stands for one output. Measurements are the entries of X M, row by row.

    >>> problem = fb.MatrixRegression([[1.0, 2.0]], [[1.0, 3.0]])
    >>> problem.min_norm.round(2)
    array([[0.2, 0.6],
           [0.4, 1.2]])
    """

    X: FloatArray
    Y: FloatArray
    shape: tuple[int, int] = field(init=False)
    target: FloatArray = field(init=False)

    def __init__(self, X: Any, Y: Any) -> None:
        inputs = checked_tensor("X", X, ("samples", "features"))
        outputs = Y
        if len(shape_of(Y) or ()) == 1:
            outputs = checked_tensor("Y", Y, ("samples",))[:, None]
        outputs = checked_tensor("Y", outputs, ("samples", "outputs"))
        if len(inputs) != len(outputs):
            raise InputError(
                f"Y: must have one row per row of X ({len(inputs)}), got {len(outputs)}. "
                "Check that X is samples x features and Y samples x outputs."
            )
        if not inputs.any():
            raise InputError(
                f"X: must have a nonzero entry, got all zeros of shape {inputs.shape}. "
                "No predictor changes the loss; check how X was built."
            )
        object.__setattr__(self, "X", inputs)
        object.__setattr__(self, "Y", outputs)
        object.__setattr__(self, "shape", (inputs.shape[1], outputs.shape[1]))
        object.__setattr__(self, "target", outputs.reshape(-1))

    def measure(self, M: FloatArray) -> FloatArray:
        """X M, row by row."""
        return np.asarray(self.X @ M).reshape(-1)

    def adjoint(self, r: FloatArray) -> FloatArray:
        """X^T R, r being the rows of R."""
        return np.asarray(self.X.T @ r.reshape(self.Y.shape))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The singular value decomposition of X."""
        return Spectrum.of(self.X)

    @cached_property
    def reachable(self) -> FloatArray:
        """W W^T Y, row by row: Y projected on the range of X."""
        W = self.spectrum.W
        return projected(self.target, np.asarray(W @ (W.T @ self.Y)).reshape(-1))

    @cached_property
    def min_norm(self) -> FloatArray:
        """Theta = X^+ Y: the fit of least Frobenius norm, (d, m)."""
        spectrum = self.spectrum
        scores = spectrum.W.T @ self.Y / spectrum.root[:, None]
        return np.asarray(spectrum.P1 @ scores)


def as_matrix_problem(X: Any, Y: Any = None) -> MatrixProblem:
    """The problem given either as such, or as data (X, Y) of a regression."""
    if Y is not None:
        return MatrixRegression(X, Y)
    if isinstance(X, Regression):
        return MatrixRegression(X.X, X.y)
    if not isinstance(X, MatrixProblem):
        raise InputError(
            f"Y: must be given with X, got None and X of type {type(X).__name__}. "
            "Pass X and Y, or a matrix problem such as MatrixCompletion in place of X."
        )
    return X
