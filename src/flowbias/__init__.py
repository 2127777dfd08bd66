"""flowbias: which of the many zero-error solutions gradient flow picks, exactly, with proof."""

from flowbias import datasets, derive, experiments, kernels, nets, regime, theory
from flowbias._version import __version__ as __version__
from flowbias.certificates import Certificate, certify
from flowbias.flows import Trajectory, flow, gradient_descent
from flowbias.limits import (
    basis_pursuit,
    frobenius_norm,
    limit,
    limit_path,
    min_norm,
    nuclear_norm,
    rich_limit,
)
from flowbias.matrix_problem import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.models import (
    DiagonalNet,
    LinearNet,
    MatrixFactorization,
    Neuron,
    NeuronSum,
    UntiedDiagonalNet,
)
from flowbias.potentials import (
    L1,
    L2,
    DepthPotential,
    DistancePotential,
    Hypentropy,
    UntiedPotential,
)
from flowbias.problem import InputError, Regression
from flowbias.solution import Solution, SolveError, Status

__all__ = [
    "L1",
    "L2",
    "Certificate",
    "DepthPotential",
    "DiagonalNet",
    "DistancePotential",
    "Hypentropy",
    "InputError",
    "LinearNet",
    "MatrixCompletion",
    "MatrixFactorization",
    "MatrixRegression",
    "MatrixSensing",
    "Neuron",
    "NeuronSum",
    "Regression",
    "Solution",
    "SolveError",
    "Status",
    "Trajectory",
    "UntiedDiagonalNet",
    "UntiedPotential",
    "basis_pursuit",
    "certify",
    "datasets",
    "derive",
    "experiments",
    "flow",
    "frobenius_norm",
    "gradient_descent",
    "kernels",
    "limit",
    "limit_path",
    "min_norm",
    "nets",
    "nuclear_norm",
    "regime",
    "rich_limit",
    "theory",
]
