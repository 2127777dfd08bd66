"""Potentials: which function of the predictor a parametrization implicitly minimizes."""

from flowbias.ground.routing import Provides
from flowbias.potentials._base import SEEN, ConvexPotential, Potential
from flowbias.potentials.biased_depth import BiasedDepthPotential
from flowbias.potentials.checks import check_potential, potential_checks
from flowbias.potentials.depth import DepthPotential
from flowbias.potentials.distance import DistancePotential
from flowbias.potentials.hypentropy import Hypentropy
from flowbias.potentials.hyperbolic import HyperbolicPotential
from flowbias.potentials.joint import JointPotential
from flowbias.potentials.neuron import NeuronPotential
from flowbias.potentials.norms import L1, L2
from flowbias.potentials.untied import UntiedPotential

__all__ = [
    "L1",
    "L2",
    "SEEN",
    "BiasedDepthPotential",
    "ConvexPotential",
    "DepthPotential",
    "DistancePotential",
    "Hypentropy",
    "HyperbolicPotential",
    "JointPotential",
    "NeuronPotential",
    "Potential",
    "Provides",
    "UntiedPotential",
    "check_potential",
    "potential_checks",
]
