"""Tied diagonal networks: w = w+^D - w-^D.  [woodworth2020, Theorems 1 and 3]

Each branch moves on its own along the common direction G = -c X^T r, d w+-/dt = +-D w+-^(D-1) G:

    D = 2:   w+- = w+-(0) exp(+-z/2),                       z = 4 int G,        w = w+^2 - w-^2
    D > 2:   |w+-|^(2-D) = |w+-(0)|^(2-D) -+ z,             z = D(D-2) int G    (weights > 0)

A weight that is zero stays zero. Negative weights: at even depth only |w| counts. At odd depth a
negative w+ contributes -|w+|^D and obeys the law of w-, and the other way round, so the branches
swap roles.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import MirrorModel, Parameters
from flowbias.potentials import (
    BiasedDepthPotential,
    DepthPotential,
    Hypentropy,
    HyperbolicPotential,
    Potential,
    Provides,
)
from flowbias.potentials.biased_depth import SideWeights
from flowbias.potentials.scale import (
    ONE,
    Scale,
    ScaledStart,
    describe,
    frozen_array,
    read_real,
    read_weights,
    require,
    require_broadcast,
)

#: Beside what its potential provides.
_OF_POWERS = frozenset({Provides.PARAMETERS, Provides.SCALE, Provides.RESTART})
_OF_SQUARES = _OF_POWERS | {Provides.SQUARES}


class TiedWeights(NamedTuple):
    """The weights of w = w_plus^D - w_minus^D."""

    w_plus: FloatArray
    w_minus: FloatArray


class DiagonalNet(MirrorModel):
    """Diagonal network of any depth >= 2 from w+(0) = w-(0) = scale * w0.

    Parameters
    ----------
    depth : D >= 2, not only integers
    scale : size of the weights at the start (alpha of the papers)
    log_scale : its natural logarithm instead, where the scale itself leaves the double range
    w0 : shape of the start, one entry per feature, none zero; by default ones

    >>> fb.limit(fb.DiagonalNet(depth=2, scale=1e-3), [[1.0, 2.0]], [1.0]).w.round(4)
    array([0.0007, 0.4996])
    >>> fb.limit(fb.DiagonalNet(depth=2, log_scale=-23025.85), [[1.0, 2.0]], [1.0]).w.round(4)
    array([0. , 0.5])
    """

    def __init__(
        self,
        depth: float = 2,
        scale: float | None = None,
        *,
        log_scale: float | None = None,
        w0: ArrayLike | None = None,
    ) -> None:
        self.depth = _read_depth(depth)
        size = Scale.read(scale, log_scale)
        if size.log.ndim:
            raise InputError(
                f"scale: must be a single number, got shape {size.log.shape}. "
                "Pass the shape of the start as w0, for instance scale=1.0, w0=scales."
            )
        base = ONE
        if w0 is not None:
            base = read_weights("w0", w0)
            nonzero = "Use DiagonalNet.from_weights for weights that start at zero."
            require("w0", base, base != 0.0, "must have no zero entries", nonzero)
            _check_signs(self.depth, base, base)
        self._plus = self._minus = ScaledStart(base, size)
        self._tied = True

    @classmethod
    def from_weights(cls, w_plus: ArrayLike, w_minus: ArrayLike, depth: float = 2) -> DiagonalNet:
        """Start at any weights: biased where |w_plus| != |w_minus|, zeros stay zero."""
        plus, minus = read_weights("w_plus", w_plus), read_weights("w_minus", w_minus)
        require_broadcast("w_minus", minus, "w_plus", plus)
        unit = Scale.read(1.0, None)
        net = cls.__new__(cls)
        net.depth = _read_depth(depth)
        _check_signs(net.depth, plus, minus)
        net._plus, net._minus = ScaledStart(plus, unit), ScaledStart(minus, unit)
        net._tied = False
        return net

    @cached_property
    def _role(self) -> FloatArray:
        """-1 where the branches swap roles in the predictor."""
        is_odd = float(self.depth).is_integer() and self.depth % 2 == 1
        swapped = is_odd & ((self._plus.sign < 0) | (self._minus.sign < 0))
        return frozen_array(np.where(swapped, -1.0, 1.0))

    # --- the start -----------------------------------------------------------------------------

    @property
    def scale(self) -> FloatArray:
        """The common scale of all weights; 0 or inf where only its logarithm is a double."""
        return self._plus.scale.value

    @property
    def log_scale(self) -> FloatArray:
        """log of the common scale of all weights."""
        return self._plus.scale.log

    @property
    def is_biased(self) -> bool:
        """Whether |w+(0)| and |w-(0)| differ, or some weight is zero."""
        return not self._tied and self._differs

    @cached_property
    def _differs(self) -> bool:
        plus, minus = np.abs(self._plus.base), np.abs(self._minus.base)
        return not bool(np.all((plus == minus) & (plus > 0.0)))

    @cached_property
    def _branches(self) -> tuple[ScaledStart, ScaledStart]:
        """The weights that push w up, and those that push it down."""
        plus, minus = self._plus, self._minus
        upward = np.where(self._role > 0, plus.base, minus.base)
        downward = np.where(self._role > 0, minus.base, plus.base)
        return ScaledStart(upward, plus.scale), ScaledStart(downward, plus.scale)

    @cached_property
    def initial(self) -> FloatArray | float:
        # Through expm1: for a nearly unbiased start the difference of powers cancels.
        with np.errstate(all="ignore"):
            plus, minus = self._plus.value, self._minus.value
            excess = np.expm1(self.depth * self._plus.log_ratio(self._minus))
            near = np.abs(minus) ** self.depth * excess
            far = np.abs(plus) ** self.depth - np.abs(minus) ** self.depth
            two_sided = (self._plus.sign != 0) & (self._minus.sign != 0)
            w = self._role * np.where(two_sided & (np.abs(excess) < 1.0), near, far)
            w = np.where(two_sided & (excess == 0.0), 0.0, w)  # also for a scale beyond double
        return w if w.ndim else float(w)

    def initial_parameters(self) -> TiedWeights:
        return TiedWeights(self._plus.value, self._minus.value)

    def at_log_scale(self, log_scale: float) -> DiagonalNet:
        """The same start rescaled: weights w0, or those given, times exp(log_scale)."""
        scale = Scale.read(None, log_scale)
        net = DiagonalNet.__new__(DiagonalNet)
        net.depth, net._tied = self.depth, self._tied
        net._plus = ScaledStart(self._plus.base, scale)
        net._minus = net._plus if self._tied else ScaledStart(self._minus.base, scale)
        return net

    def restarted(self, parameters: Parameters) -> DiagonalNet:
        """The same parametrization from other weights."""
        w_plus, w_minus = parameters
        return DiagonalNet.from_weights(w_plus, w_minus, depth=self.depth)

    @property
    def provides(self) -> frozenset[Provides]:
        declared = _OF_SQUARES if self.depth == 2 else _OF_POWERS
        return self.potential.provides | declared

    @property
    def squares(self) -> tuple[ScaledStart, ScaledStart]:
        """p and m of w = p^2 - m^2 at depth 2."""
        return self._plus, self._minus

    #: A step h multiplies p and m by 1 -+ step_rate h g, g the gradient in w.
    step_rate = 2.0

    def with_squares(self, p: FloatArray, m: FloatArray) -> DiagonalNet:
        """From other p and m."""
        return DiagonalNet.from_weights(p, m)

    # --- the mirror flow -----------------------------------------------------------------------

    @cached_property
    def potential(self) -> Potential:
        if self.is_biased:
            return self._biased_potential()
        if self.depth == 2:
            return Hypentropy.from_start(self._plus.size)
        return DepthPotential.from_start(self.depth, self._plus.size)

    def _biased_potential(self) -> Potential:
        if self.depth > 2:
            sides = (SideWeights(side.size, side.base != 0.0) for side in self._branches)
            return BiasedDepthPotential.from_weights(self.depth, *sides)
        return HyperbolicPotential.centred(2.0 * branch.log for branch in self._branches)

    @property
    def shift(self) -> FloatArray | float:
        if self.depth > 2 or not self.is_biased:
            return 0.0  # the biased potential of depth D > 2 counts its dual from the start
        return self._bias

    @cached_property
    def _bias(self) -> FloatArray:
        return np.asarray(self._plus.log_ratio(self._minus) * np.exp(-self.potential.log_unit))

    @cached_property
    def mirror_rate(self) -> float:
        rate = 4.0 if self.depth == 2 else self.depth * (self.depth - 2.0)
        with np.errstate(over="ignore"):
            return float(rate * np.exp(-self.potential.log_unit))

    def parameters(self, z: FloatArray) -> TiedWeights:
        move = self._role * np.asarray(z, dtype=np.float64)
        return TiedWeights(self._moved(self._plus, move), self._moved(self._minus, -move))

    @np.errstate(all="ignore")
    def _moved(self, start: ScaledStart, move: FloatArray) -> FloatArray:
        unit = self.potential.log_unit
        if self.depth == 2:
            # In halves, because the unit itself may underflow.
            return start.times_exp(0.5 * (move * np.exp(0.5 * unit) * np.exp(0.5 * unit)))
        reach = start.size.power(2.0 - self.depth, -unit)
        rest = np.maximum(1.0 - move / reach, 0.0)
        small = np.abs(move) < 0.1 * reach
        log_rest = np.where(small, np.log1p(-np.where(small, move / reach, 0.0)), np.log(rest))
        return start.times_exp(-log_rest / (self.depth - 2.0))

    # --- the parametrization -------------------------------------------------------------------

    def predictor(self, parameters: Parameters) -> FloatArray:
        w_plus, w_minus = parameters
        return np.asarray(w_plus**self.depth - w_minus**self.depth)

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> TiedWeights:
        w_plus, w_minus = parameters
        order = self.depth - 1.0
        return TiedWeights(self.depth * w_plus**order * g, -self.depth * w_minus**order * g)

    def metric(self, parameters: Parameters) -> FloatArray:
        """D^2 (w+^(2D-2) + w-^(2D-2)): 8 scale^2 at an unbiased depth-2 start."""
        w_plus, w_minus = (np.abs(part) for part in parameters)
        order = 2.0 * self.depth - 2.0
        return np.asarray(self.depth**2 * (w_plus**order + w_minus**order))

    def conserved(self, parameters: Parameters) -> FloatArray:
        """w+ w- at depth 2, |w+|^(2-D) + |w-|^(2-D) beyond; 0 where a weight is zero for good."""
        w_plus, w_minus = parameters
        if self.depth == 2:
            return np.asarray(w_plus * w_minus)
        order = 2.0 - self.depth
        with np.errstate(divide="ignore", over="ignore"):
            total = np.abs(w_plus) ** order + np.abs(w_minus) ** order
        absent = (self._plus.sign == 0) | (self._minus.sign == 0)
        return np.where(absent, 0.0, total)

    def __repr__(self) -> str:
        depth = f"{self.depth:g}"
        if not self._tied:
            weights = f"w_plus={self._plus!r}, w_minus={self._minus!r}, depth={depth}"
            rescaled = f".at_log_scale({self.log_scale:g})" if self.log_scale else ""
            return f"DiagonalNet.from_weights({weights}){rescaled}"
        base = self._plus.base
        shape = "" if base.ndim == 0 and base == 1.0 else f", w0={describe(base)}"
        return f"DiagonalNet(depth={depth}, {self._plus.scale!r}{shape})"


def _read_depth(depth: float) -> float:
    if type(depth) in (int, float) and 2 <= depth <= sys.float_info.max:
        return float(depth)
    value = read_real("depth", depth, "Pass one number, for instance depth=3.")
    if value.ndim:
        raise InputError(f"depth: must be a single number, got {depth!r}. Pass depth=3.")
    if not 2.0 <= (number := value.item()) < np.inf:
        fix = "Depth 1 is linear regression: fb.min_norm(X, y) is its limit."
        raise InputError(f"depth: must be >= 2 and finite, got {number:.6g}. {fix}")
    return number


def _check_signs(depth: float, plus: FloatArray, minus: FloatArray) -> None:
    if not depth.is_integer():
        fix = "Powers of negative numbers need an integer depth; flip the sign, or round the depth."
        for weights in (plus, minus):
            require("weights", weights, weights >= 0.0, f"must be >= 0 at depth {depth:g}", fix)
    elif depth % 2 == 1 and np.any(plus * minus < 0.0):
        where = int(np.flatnonzero(np.atleast_1d(plus * minus < 0.0))[0])
        raise InputError(
            f"w_plus, w_minus: must have the same sign per coordinate at odd depth {depth:g}, "
            f"got opposite signs at index {where}. There w = +-(|w+|^D + |w-|^D): both branches "
            "push the same way, and w never changes sign; flip the sign of one of them."
        )
