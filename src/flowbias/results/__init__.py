"""What a solve returns, with its proof: for a vector in `solution`, for matrices beside it."""

from flowbias.results.lifted_solution import FitCertificate, LiftedSolution
from flowbias.results.matrix_solution import MatrixSolution

__all__ = ["FitCertificate", "LiftedSolution", "MatrixSolution"]
