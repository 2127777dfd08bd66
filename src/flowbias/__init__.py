"""flowbias: which of the many zero-error solutions gradient flow picks, exactly, with proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flowbias import datasets
from flowbias._version import __version__ as __version__
from flowbias.certificates.certificate import Certificate, certify
from flowbias.flows import Trajectory, flow, gradient_descent, predicted_start
from flowbias.flows.destination import destination
from flowbias.ground.arguments import InputError
from flowbias.limits import (
    basis_pursuit,
    frobenius_norm,
    limit,
    limit_path,
    min_norm,
    nuclear_norm,
    rich_limit,
    stages,
)
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
from flowbias.problems.matrix import MatrixCompletion, MatrixRegression, MatrixSensing
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, SolveError, Status

if TYPE_CHECKING:
    from flowbias import derive, estimators, experiments, kernels, nets, regime, theory

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
    "estimators",
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
    "predicted_start",
    "regime",
    "rich_limit",
    "stages",
    "theory",
]


# What trajectories and descents say of their limit: flows lie below limits and import none.
destination.limit = limit

# Each takes longer to load than all that a limit or a flow needs: only for those who use it.
_LOADED_WHEN_USED = frozenset(
    {"derive", "estimators", "experiments", "kernels", "nets", "regime", "theory"}
)


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_USED:
        return import_module(f"flowbias.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
