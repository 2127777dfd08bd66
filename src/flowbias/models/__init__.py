"""Models: parametrizations of the predictor, each at its start."""

from flowbias.models._base import MirrorModel, Model
from flowbias.models.diagonal import DiagonalNet, TiedWeights
from flowbias.models.factorization import MatrixFactorization, SymmetricFactorization
from flowbias.models.imbalance import Imbalance
from flowbias.models.lifted import Factors, LiftedModel, NarrowWarning
from flowbias.models.linear_net import LinearNet
from flowbias.models.neuron import Neuron, NeuronSum, NeuronSumWeights, NeuronWeights
from flowbias.models.untied import UntiedDiagonalNet, UntiedWeights

__all__ = [
    "DiagonalNet",
    "Factors",
    "Imbalance",
    "LiftedModel",
    "LinearNet",
    "MatrixFactorization",
    "MirrorModel",
    "Model",
    "NarrowWarning",
    "Neuron",
    "NeuronSum",
    "NeuronSumWeights",
    "NeuronWeights",
    "SymmetricFactorization",
    "TiedWeights",
    "UntiedDiagonalNet",
    "UntiedWeights",
]
