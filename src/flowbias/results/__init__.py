"""What a solve for a matrix returns, with its proof; `flowbias.solution` is that of a vector."""

from flowbias.results.lifted_solution import FitCertificate, LiftedSolution
from flowbias.results.matrix_solution import MatrixSolution

__all__ = ["FitCertificate", "LiftedSolution", "MatrixSolution"]
