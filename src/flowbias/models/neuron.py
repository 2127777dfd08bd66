"""One neuron a sigma(<w, x>): linear (slope 1), or a leaky ReLU.  [azulay2021, sections 6-8]

Linear: the predictor is v = a w, and gradient flow reads a' = <w, G>, w' = a G with G = -c X^T r.
It conserves delta = a^2 - ||w||^2, and v follows mirror flow in `NeuronPotential(delta)` on a clock
that runs at speed |a|, as long as a keeps its sign.

Leaky: sigma(x) = x for x > 0 and slope * x otherwise, the meaning of [azulay2021, appendix G].

And many linear neurons, sum_i a_i <w_i, x>: a two-layer linear network of one output. Gradient flow
conserves the matrix Delta = a a^T - W W^T, W = [w_1, w_2, ...]^T, and the part of each w_i outside
the row space of X.  [azulay2021, section 6] Where [a, W] has rank one the neurons are copies of one
another, a = b u and W = u w^T, and by the rotation of the hidden units that takes u to the first of
them, their sum is the one neuron (b, w). Strictly balanced neurons, Delta = 0, are of this kind
with b = ||w|| [azulay2021, Proposition 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from flowbias.ground import extended
from flowbias.ground.arguments import InputError, shown
from flowbias.ground.tolerances import DEFAULT
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import Model, Parameters, _features
from flowbias.models.linear_net import LinearNet
from flowbias.potentials import Provides
from flowbias.potentials.neuron import BalancedNeuronPotential, NeuronPotential
from flowbias.problems.regression import checked_array

# Weights whose cubes, of which the potential is made, are ordinary doubles.
LEAST_SIZE, MOST_SIZE = 1e-100, 1e100
# How far below that of the zero predictor a loss must be, as a share of ||f|| ||y||, for a to keep
# its sign: at the start, where only rounding blurs it, and along a flow, where its errors do.
AT_START, ALONG = 1e-12, 1e-6


class NeuronWeights(NamedTuple):
    """a as an array of shape (1,), and w (d,)."""

    a: FloatArray
    w: FloatArray


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Neuron(Model):
    """A neuron at its start.

    Parameters
    ----------
    a : outer weight
    w : (d,), inner weights
    slope : of the activation below 0: 1 is linear, less is a leaky ReLU

    >>> neuron = fb.Neuron(a=0.5, w=[0.1, 0.0])
    >>> fb.limit(neuron, [[1.0, 2.0]], [1.0]).w.round(3)
    array([0.261, 0.369])
    """

    a: float
    w: FloatArray
    slope: float

    def __init__(self, a: float, w: ArrayLike, slope: float = 1.0) -> None:
        outer = real_number("a", a, "the outer weight is one number; for several pass NeuronSum")
        inner = np.array(checked_array("w", w, 1))
        inner.setflags(write=False)
        _check_size(outer, extended.length(inner))
        object.__setattr__(self, "a", outer)
        object.__setattr__(self, "w", inner)
        object.__setattr__(self, "slope", _read_slope(slope))

    @classmethod
    def from_scale_shape(
        cls, scale: float, shape: float, direction: ArrayLike, *, sign: int = 1, slope: float = 1.0
    ) -> Neuron:
        """|a| = scale sqrt((1+s)/(1-s)), w = scale sqrt((1-s)/(1+s)) direction/||direction||.

        shape s = (|a| - ||w||)/(|a| + ||w||), and scale = sqrt(|a| ||w||), the square root of the
        alpha of [azulay2021, section 7.2]: delta = 4 scale^2 s/(1 - s^2). `sign` is that of a.
        """
        size = real_number("scale", scale, "it is sqrt(|a| ||w||)")
        if not size > 0.0:
            raise InputError(f"scale: must be > 0, got {scale!r}. It is sqrt(|a| ||w||).")
        s = real_number("shape", shape, "it is (|a| - ||w||)/(|a| + ||w||)")
        if not -1.0 < s < 1.0:
            raise InputError(
                f"shape: must lie strictly between -1 and 1, got {shape!r}. At the ends one of the "
                "weights vanishes: pass Neuron(a, w) instead."
            )
        if sign not in (-1, 1):
            raise InputError(
                f"sign: must be 1 or -1, the sign of a, got {sign!r}. Pass one of them."
            )
        way = checked_array("direction", direction, 1)
        length = extended.length(way)
        if length == 0.0:
            raise InputError(
                "direction: must not be zero, got a vector of zeros. Only its direction counts: "
                "pass w/||w||."
            )
        tilt = float(np.sqrt((1.0 + s) / (1.0 - s)))
        return cls(sign * size * tilt, (size / tilt) * (way / length), slope)

    # --- the start -------------------------------------------------------------------------------

    @property
    def delta(self) -> float:
        """a^2 - ||w||^2, conserved by the flow (for any slope).  [azulay2021, section 6]"""
        return conserved_difference(self.a, self.w)

    @property
    def scale(self) -> float:
        """sqrt(|a| ||w||)."""
        return float(np.sqrt(abs(self.a)) * np.sqrt(extended.length(self.w)))

    @property
    def shape(self) -> float:
        """(|a| - ||w||)/(|a| + ||w||), between -1 and 1."""
        a, m = abs(self.a), extended.length(self.w)
        return (a - m) / (a + m)

    @property
    def initial(self) -> FloatArray:
        """The predictor at the start, a w."""
        return self.a * self.w

    @property
    def provides(self) -> frozenset[Provides]:
        if self.slope == 1.0:
            return frozenset({Provides.NEURON, Provides.PARAMETERS})
        # No linear predictor carries the flow: it depends on which samples are active.
        return frozenset({Provides.ACTIVATED_NEURON})

    # --- the flow in parameters ------------------------------------------------------------------

    def initial_parameters(self) -> Parameters:
        return NeuronWeights(np.array([self.a]), self.w)

    def predictor(self, parameters: Parameters) -> FloatArray:
        a, w = parameters
        return np.asarray(a * w)

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        a, w = parameters
        return NeuronWeights(np.array([w @ g]), a * g)

    def conserved(self, parameters: Parameters) -> FloatArray:
        """delta = a^2 - ||w||^2."""
        a, w = parameters
        return np.array([conserved_difference(float(a[0]), w)])

    # --- the flow of the predictor ---------------------------------------------------------------

    @property
    def potential(self) -> NeuronPotential:
        """What the limit minimizes, if delta >= 0 or a keeps its sign.  [azulay2021, Theorem 2]"""
        return NeuronPotential(self.delta)

    @property
    def shift(self) -> FloatArray:
        """grad q(a w) = 3/2 sign(a) w: minus the paper's z."""
        if self.a == 0.0:
            raise InputError(
                "a: must not be 0 for the start to have a dual point, got 0. The predictor is then "
                "0, at the kink of the potential, and a moves off it at once: fb.limit follows it."
            )
        return self.shift_on(float(np.sign(self.a)))

    def shift_on(self, sign: float) -> FloatArray:
        """3/2 sign w: the same on the branch where a has that sign."""
        return 1.5 * sign * self.w

    def tangent_kernel(self, X1: ArrayLike, X2: ArrayLike | None = None) -> FloatArray:
        """X1 (a^2 I + w w^T) X2^T at the start.  [azulay2021, section 7.2, with its factor a^2]"""
        if self.slope != 1.0:
            raise InputError(
                f"slope: must be 1 for the kernel of a linear neuron, got {self.slope!r}. "
                "Build it from the Jacobian of the activated network instead."
            )
        first = _features("X1", X1)
        second = first if X2 is None else _features("X2", X2)
        for name, data in (("X1", first), ("X2", second)):
            if data.shape[1] != self.w.size:
                raise InputError(
                    f"{name}: must have one column per weight ({self.w.size}), "
                    f"got {data.shape[1]}. Pass samples x features."
                )
        linear = self.a**2 * (first @ second.T)
        return np.asarray(linear + np.outer(first @ self.w, second @ self.w))

    def __repr__(self) -> str:
        slope = "" if self.slope == 1.0 else f", slope={self.slope:g}"
        return (
            f"Neuron(a={self.a:.6g}, ||w||={extended.length(self.w):.6g}, d={self.w.size}, "
            f"delta={self.delta:.6g}, shape={self.shape:.4g}{slope})"
        )


def real_number(name: str, value: Any, meaning: str) -> float:
    """The value as a finite float, or an error that says what it means."""
    try:
        number = np.asarray(value)
        entry: Any = number.item() if number.ndim == 0 else None
        found = float(entry) if isinstance(entry, Real) else np.nan
    except (ValueError, OverflowError):  # rows of different lengths; integers beyond the doubles
        found = np.nan
    if not np.isfinite(found):
        raise InputError(
            f"{name}: must be one finite real number, got {shown(value)}. In words: {meaning}."
        )
    return found


def conserved_difference(a: float, w: FloatArray) -> float:
    """a^2 - ||w||^2 as a product: squares of nearly balanced weights would cancel."""
    length = extended.length(w)
    return float((abs(a) - length) * (abs(a) + length))


def _check_size(a: float, length: float) -> None:
    largest = max(abs(a), length)
    if largest == 0.0:
        raise InputError(
            "a, w: must not both be zero, got a start of zeros. It is a saddle: every gradient "
            "vanishes there and the flow never leaves. Start small instead, for instance "
            "Neuron.from_scale_shape(1e-3, 0.0, direction)."
        )
    if not LEAST_SIZE <= largest <= MOST_SIZE:
        raise InputError(
            f"a, w: must have a larger one between {LEAST_SIZE:g} and {MOST_SIZE:g} in size, "
            f"got {largest:.6g}: their cubes leave the double range. Rescale the start by a "
            "factor and y by its square: the predictor is rescaled by that square as well."
        )


def _read_slope(slope: Any) -> float:
    value = real_number("slope", slope, "what the activation multiplies negative inputs by")
    if not value > 0.0:
        raise InputError(
            f"slope: must be > 0, got {slope!r}. At slope 0 (ReLU) no function of the weights is "
            "what gradient flow minimizes; pass a small positive slope."
        )
    return value


def is_below_zero(sign: float, a: float, f: FloatArray, target: FloatArray, margin: float) -> bool:
    """Whether a f fits the target better than 0 does, by that share; at the limit it is by a half.

    sign(a) <f, y> > |a| ||f||^2 / 2, f = sigma(X w): then a never changes its sign again, since the
    loss falls and at a = 0 is that of the zero predictor.  (docs/theory/neurons.md)
    """
    left = sign * float(f @ target)
    right = 0.5 * abs(a) * float(f @ f)
    return left - right > margin * float(np.linalg.norm(f) * np.linalg.norm(target))


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
        _check_entries(outer, inner)
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
        if len(values) > 1 and values[1] > DEFAULT.residual * values[0]:
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
    if abs(size - length) <= DEFAULT.residual * length:
        return BalancedNeuron(a, w * (size / length))
    return Neuron(a, w)


def _check_entries(a: FloatArray, W: FloatArray) -> None:
    largest: Any = max(float(np.abs(a).max()), float(np.abs(W).max()))
    if largest == 0.0:
        raise InputError(
            "a, W: must not both be zero, got a start of zeros. It is a saddle: every gradient "
            "vanishes there and the flow never leaves. Start small instead."
        )
    if not LEAST_SIZE <= largest <= MOST_SIZE:
        raise InputError(
            f"a, W: must have a largest entry between {LEAST_SIZE:g} and {MOST_SIZE:g}, "
            f"got {largest:.6g}: products of weights leave the double range. Rescale the start by "
            "a factor and y by its square."
        )
