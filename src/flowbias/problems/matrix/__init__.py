"""Linear measurements of a matrix: what a product of two factors is fitted to.

    loss (c/2) ||measure(M) - target||^2,   measure(M)_n = <X_n, M>,   M of a given shape

`MatrixRegression` (Y ~ X M), `MatrixSensing` (any X_n) and `MatrixCompletion` (X_n picks an entry)
check their input once. Their flows need no more than `measure` and `adjoint`. Where the target is
outside the range of `measure`, the flow fits its projection: `reachable`.
"""

from flowbias.problems.matrix._base import MatrixProblem
from flowbias.problems.matrix.completion import MatrixCompletion
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.problems.matrix.sensing import MatrixSensing

__all__ = ["MatrixCompletion", "MatrixProblem", "MatrixRegression", "MatrixSensing"]
