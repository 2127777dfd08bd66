"""Many linear neurons, sum_i a_i <w_i, x>: a two-layer linear network of one output.

Gradient flow conserves the matrix Delta = a a^T - W W^T, W = [w_1, w_2, ...]^T, and the part of
each w_i outside the row space of X.  [azulay2021, section 6]

Where [a, W] has rank one the neurons are copies of one another, a = b u and W = u w^T, and by the
rotation of the hidden units that takes u to the first of them, their sum is the one neuron (b, w).
Strictly balanced neurons, Delta = 0, are of this kind with b = ||w|| [azulay2021, Proposition 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from flowbias.ground import extended
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import Model, Parameters
from flowbias.models.linear_net import LinearNet
from flowbias.models.neuron import LARGEST, SMALLEST, Neuron
from flowbias.potentials import Provides
from flowbias.potentials.neuron import BalancedNeuronPotential
from flowbias.problems.regression import checked_array

# What rounding of the weights may leave of a second direction, or of the balance, relative to them.
ROUNDING = 1e-13


class NeuronSumWeights(NamedTuple):
    """a (neurons,) and W (neurons, d)."""

    a: FloatArray
    W: FloatArray


class BalancedNeuron(Neuron):
    """One neuron with |a| = ||w||, whose delta is 0 and not what rounding makes of it."""

    @property
    def delta(self) -> float:
        return 0.0

    @property
    def potential(self) -> BalancedNeuronPotential:
        return BalancedNeuronPotential()


@dataclass(frozen=True, init=False, eq=False, repr=False)
class NeuronSum(Model):
    """Linear neurons at their start.

    Parameters
    ----------
    a : (neurons,), outer weights
    W : (neurons, d), inner weights

    >>> model = fb.NeuronSum(a=[0.3, 0.3], W=[[0.3, 0.0], [0.0, 0.3]])
    >>> fb.limit(model, [[1.0, 2.0]], [1.0]).M.round(3)
    array([[0.243],
           [0.378]])
    """

    a: FloatArray
    W: FloatArray

    def __init__(self, a: ArrayLike, W: ArrayLike) -> None:
        outer, inner = np.array(checked_array("a", a, 1)), np.array(checked_array("W", W, 2))
        if len(outer) != len(inner):
            turned = " Pass W.T: neurons are rows." if inner.shape[1] == len(outer) else ""
            raise InputError(
                f"W: must have one row per neuron ({len(outer)}), got shape {inner.shape}."
                f"{turned or ' Its columns are features.'}"
            )
        _check_size(outer, inner)
        for name, array in (("a", outer), ("W", inner)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def provides(self) -> frozenset[Provides]:
        return frozenset({Provides.NEURON_SUM, Provides.PARAMETERS})

    @property
    def initial(self) -> FloatArray:
        """The predictor at the start, sum_i a_i w_i."""
        return np.asarray(self.a @ self.W)

    @property
    def balance(self) -> FloatArray:
        """Delta = a a^T - W W^T, (neurons, neurons)."""
        return np.asarray(np.outer(self.a, self.a) - self.W @ self.W.T)

    @property
    def is_strictly_balanced(self) -> bool:
        """Whether all of Delta vanishes to rounding, the directions of the neurons included.

        In Delta a neuron that turns away by an angle t shows as t^2, which rounding hides from
        t = 1e-8 on; in the singular values of [a, W] it shows as t.
        """
        one = self.as_one_neuron
        return one is not None and one.delta == 0.0

    @cached_property
    def as_one_neuron(self) -> Neuron | None:
        """The neuron that the sum is equal to at all times, if it is one."""
        left, values, _ = np.linalg.svd(np.column_stack([self.a, self.W]), full_matrices=False)
        if len(values) > 1 and values[1] > ROUNDING * values[0]:
            return None
        u = left[:, 0] if self.a @ left[:, 0] >= 0.0 else -left[:, 0]
        return one_neuron(float(u @ self.a), u @ self.W)

    @cached_property
    def network(self) -> LinearNet:
        """The same as a network: U = W^T, V = a^T."""
        return LinearNet(self.W.T, self.a[None, :])

    def initial_parameters(self) -> Parameters:
        return NeuronSumWeights(self.a, self.W)

    def predictor(self, parameters: Parameters) -> FloatArray:
        a, W = parameters
        return np.asarray(a @ W)

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        a, W = parameters
        return NeuronSumWeights(W @ g, np.outer(a, g))

    def conserved(self, parameters: Parameters) -> FloatArray:
        """a a^T - W W^T, entry by entry."""
        a, W = parameters
        return np.ravel(np.outer(a, a) - W @ W.T)

    def __repr__(self) -> str:
        kind = "strictly balanced" if self.is_strictly_balanced else "not balanced"
        if self.as_one_neuron is not None:
            kind += ", all copies of one"
        neurons, d = self.W.shape
        return f"NeuronSum(neurons={neurons}, d={d}, {kind})"


def one_neuron(a: float, w: FloatArray) -> Neuron:
    """The neuron (a, w), balanced where |a| = ||w|| up to rounding."""
    size, length = abs(a), extended.length(w)
    if abs(size - length) <= ROUNDING * length:
        return BalancedNeuron(a, w * (size / length))
    return Neuron(a, w)


def _check_size(a: FloatArray, W: FloatArray) -> None:
    largest: Any = max(float(np.abs(a).max()), float(np.abs(W).max()))
    if largest == 0.0:
        raise InputError(
            "a, W: must not both be zero, got a start of zeros. It is a saddle: every gradient "
            "vanishes there and the flow never leaves. Start small instead."
        )
    if not SMALLEST <= largest <= LARGEST:
        raise InputError(
            f"a, W: must have a largest entry between {SMALLEST:g} and {LARGEST:g}, "
            f"got {largest:.6g}: products of weights leave the double range. Rescale the start by "
            "a factor and y by its square."
        )
