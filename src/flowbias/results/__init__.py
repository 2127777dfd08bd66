"""What a solve returns, with its proof: `solution` for a vector, the others for a matrix."""

from flowbias.results.matrix_solution import FitCertificate, LiftedSolution, MatrixSolution

__all__ = ["FitCertificate", "LiftedSolution", "MatrixSolution"]
