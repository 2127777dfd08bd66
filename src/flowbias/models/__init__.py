"""Models: parametrizations of the predictor, each at its start."""

from flowbias.models._base import MirrorModel, Model
from flowbias.models.diagonal import DiagonalNet, TiedWeights
from flowbias.models.untied import UntiedDiagonalNet, UntiedWeights

__all__ = [
    "DiagonalNet",
    "MirrorModel",
    "Model",
    "TiedWeights",
    "UntiedDiagonalNet",
    "UntiedWeights",
]
