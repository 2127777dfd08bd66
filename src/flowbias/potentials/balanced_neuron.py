"""What strictly balanced linear neurons minimize: ||w||^(3/2).  [azulay2021, Proposition 1]

Of sum_i a_i w_i with a_i a_j = <w_i, w_j> for all i, j: all w_i = a_i e share one direction e, and
the sum is one neuron with delta = 0, of outer weight ||a|| and inner weights ||a|| e. The balance
of each neuron alone, |a_i| = ||w_i||, is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowbias.potentials.neuron import NeuronPotential


@dataclass(frozen=True)
class BalancedNeuronPotential(NeuronPotential):
    """||w||^(3/2): `NeuronPotential` at delta = 0, under the name that the sum knows it by."""

    delta: float = field(default=0.0, init=False, repr=False)
