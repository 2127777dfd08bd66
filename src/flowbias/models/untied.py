"""Untied diagonal networks of depth 2: w = u+ v+ - u- v-.  [azulay2021, Theorem 1 and appendix A]

With z = int G, G = -c X^T r, sums and differences of a branch's two weights are exponentials:

    u+ + v+  and  u- - v-   grow like  e^z,       u+ - v+  and  u- + v-  like  e^-z
    w(z) = (P e^{2z} - M e^{-2z}) / 4
    P = (u+ + v+)^2 + (u- - v-)^2,    M = (u+ - v+)^2 + (u- + v-)^2

P and M at the start; k = P M and grad Q(w(0)) = log(P/M)/4, free of cancellation. P or M zero: the
coordinate keeps one sign; both zero: it is frozen at 0.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models._base import MirrorModel, Parameters
from flowbias.models.diagonal import DiagonalNet
from flowbias.potentials import HyperbolicPotential, Potential, Provides, UntiedPotential
from flowbias.potentials.scale import (
    Scale,
    ScaledStart,
    describe,
    frozen_array,
    read_real,
    read_weights,
    require,
    require_broadcast,
)

_SHAPE_FIX = "shape = (|v|-|u|)/(|v|+|u|); for u = 0 or v = 0 use UntiedDiagonalNet.from_weights."


class UntiedWeights(NamedTuple):
    """The weights of w = u_plus v_plus - u_minus v_minus."""

    u_plus: FloatArray
    u_minus: FloatArray
    v_plus: FloatArray
    v_minus: FloatArray


class UntiedDiagonalNet(MirrorModel):
    """Depth-2 network with separate layers from an unbiased start, u+ = u- = u and v+ = v- = v.

    Parameters
    ----------
    scale : sqrt(|u||v|), one number or one per feature (azulay2021's alpha is its square)
    log_scale : its natural logarithm instead, where the scale itself leaves the double range
    shape : (|v| - |u|) / (|v| + |u|) in (-1, 1), one number or one per feature

    >>> fb.limit(fb.UntiedDiagonalNet(scale=0.1, shape=0.9), [[1.0, 2.0]], [1.0]).w.round(3)
    array([0.161, 0.42 ])
    """

    depth = 2.0

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        log_scale: ArrayLike | None = None,
        shape: ArrayLike = 0.0,
    ) -> None:
        size = Scale.read(scale, log_scale)
        self._shape = read_real("shape", shape, _SHAPE_FIX)
        require("shape", self._shape, np.abs(self._shape) < 1.0, "must lie in (-1, 1)", _SHAPE_FIX)
        require_broadcast("shape", self._shape, "scale", size.log)
        v = np.sqrt((1.0 + self._shape) / (1.0 - self._shape))
        u = np.sqrt((1.0 - self._shape) / (1.0 + self._shape))
        self._install((u, u, v, v), size, from_weights=False)

    @classmethod
    def from_weights(
        cls, u_plus: ArrayLike, u_minus: ArrayLike, v_plus: ArrayLike, v_minus: ArrayLike
    ) -> UntiedDiagonalNet:
        """Start at any weights, biased or not, zeros included."""
        named = {"u_plus": u_plus, "u_minus": u_minus, "v_plus": v_plus, "v_minus": v_minus}
        weights = {name: read_weights(name, values) for name, values in named.items()}
        longest = max(weights, key=lambda name: weights[name].size)
        for name, values in weights.items():
            require_broadcast(name, values, longest, weights[longest])
        net = cls.__new__(cls)
        net._install(tuple(weights.values()), Scale.read(1.0, None), from_weights=True)
        return net

    def _install(
        self,
        base: Parameters,
        scale: Scale,
        from_weights: bool,
        sides: tuple[Parameters, Parameters] | None = None,
    ) -> None:
        u_plus, u_minus, v_plus, v_minus = base
        self._from_weights = from_weights
        self._starts = tuple(ScaledStart(frozen_array(part), scale) for part in base)
        self._scale = scale
        # What grows like e^z and what like e^-z, plus branch first.
        self._growing, self._shrinking = sides or (
            (u_plus + v_plus, u_minus - v_minus),
            (u_plus - v_plus, u_minus + v_minus),
        )
        # sqrt(P)/2 and sqrt(M)/2: w(0) is the difference of their squares.
        self._plus = ScaledStart(frozen_array(0.5 * np.hypot(*self._growing)), scale)
        self._minus = ScaledStart(frozen_array(0.5 * np.hypot(*self._shrinking)), scale)

    # --- the start -----------------------------------------------------------------------------

    @property
    def scale(self) -> FloatArray:
        """The scale of the start; 0 or inf where only its logarithm is a double."""
        return self._scale.value

    @property
    def log_scale(self) -> FloatArray:
        """log of the scale, one number or one per feature; 0 for weights as given."""
        return self._scale.log

    @cached_property
    def initial(self) -> FloatArray | float:
        if not self._from_weights:
            return np.zeros(self._plus.value.shape) if self._plus.value.ndim else 0.0
        u_plus, u_minus, v_plus, v_minus = self.initial_parameters()
        w = np.asarray(u_plus * v_plus - u_minus * v_minus)
        return w if w.ndim else float(w)

    def initial_parameters(self) -> UntiedWeights:
        return UntiedWeights(*(start.value for start in self._starts))

    def at_log_scale(self, log_scale: float) -> UntiedDiagonalNet:
        """The same start rescaled: per-feature scales keep their ratios and get this log mean."""
        middle, log = Scale.read(None, log_scale), self._scale.log
        scale = Scale(None, frozen_array(middle.log + (log - log.mean()))) if log.ndim else middle
        net = UntiedDiagonalNet.__new__(UntiedDiagonalNet)
        if not self._from_weights:
            net._shape = self._shape
        sides = self._growing, self._shrinking
        net._install(tuple(s.base for s in self._starts), scale, self._from_weights, sides)
        return net

    @property
    def provides(self) -> frozenset[Provides]:
        return super().provides | {Provides.SQUARES, Provides.RESTART}

    def restarted(self, parameters: Parameters) -> UntiedDiagonalNet:
        """The same parametrization from other weights."""
        u_plus, u_minus, v_plus, v_minus = parameters
        return UntiedDiagonalNet.from_weights(u_plus, u_minus, v_plus, v_minus)

    @property
    def squares(self) -> tuple[ScaledStart, ScaledStart]:
        """p and m of w = p^2 - m^2: sqrt(P)/2 and sqrt(M)/2."""
        return self._plus, self._minus

    #: A step h multiplies p and m by 1 -+ step_rate h g, g the gradient in w.
    step_rate = 1.0

    def with_squares(self, p: FloatArray, m: FloatArray) -> UntiedDiagonalNet:
        """From other p and m: what grows with p and what shrinks with m keep their ratios."""
        up, down = (
            np.divide(moved, side.value, out=np.ones_like(moved), where=side.sign != 0.0)
            for moved, side in zip((p, m), self.squares, strict=True)
        )
        growing = tuple(part * up for part in self._growing)
        shrinking = tuple(part * down for part in self._shrinking)
        (grow_plus, grow_minus), (shrink_plus, shrink_minus) = growing, shrinking
        base = (
            0.5 * (grow_plus + shrink_plus),
            0.5 * (shrink_minus + grow_minus),
            0.5 * (grow_plus - shrink_plus),
            0.5 * (shrink_minus - grow_minus),
        )
        net = UntiedDiagonalNet.__new__(UntiedDiagonalNet)
        # Sides further apart than digits are lost in the weights, but not to the flow.
        net._install(base, self._scale, True, (growing, shrinking))
        return net

    # --- the mirror flow -----------------------------------------------------------------------

    @cached_property
    def potential(self) -> Potential:
        if not self._from_weights:
            if self._scale.direct is not None:
                return UntiedPotential(self._scale.direct, shape=self._shape)
            return UntiedPotential(log_scale=self._scale.log, shape=self._shape)
        return HyperbolicPotential.centred((2.0 * side.log for side in self.squares), rate=2.0)

    @cached_property
    def shift(self) -> FloatArray | float:
        if not self._from_weights:
            return 0.0
        half = 0.5 * self._plus.log_ratio(self._minus)  # log(P/M)/4
        return np.asarray(half * np.exp(-self.potential.log_unit))

    @cached_property
    def mirror_rate(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(-self.potential.log_unit))

    @np.errstate(all="ignore")
    def parameters(self, z: FloatArray) -> UntiedWeights:
        half_unit = np.exp(0.5 * self.potential.log_unit)
        move = np.asarray(z, dtype=np.float64) * half_unit * half_unit
        u_plus, u_minus, v_plus, v_minus = self._starts
        grow, shrink = self._growing, self._shrinking
        return UntiedWeights(
            self._rotated(u_plus, v_plus, move, grow[0], shrink[0]),
            self._rotated(u_minus, v_minus, -move, shrink[1], grow[1]),
            self._rotated(v_plus, u_plus, move, grow[0], -shrink[0]),
            self._rotated(v_minus, u_minus, -move, shrink[1], -grow[1]),
        )

    def _rotated(
        self,
        own: ScaledStart,
        other: ScaledStart,
        move: FloatArray,
        total: FloatArray,
        rest: FloatArray,
    ) -> FloatArray:
        """own cosh + other sinh = (total e^move + rest e^-move)/2, total = own + other.

        Both are exact; each coordinate takes the form in which less cancels.
        """
        scale = self._scale
        up = ScaledStart(0.5 * total, scale).times_exp(move)
        down = ScaledStart(0.5 * rest, scale).times_exp(-move)
        by_layers = own.value * np.cosh(move), other.value * np.sinh(move)
        size = np.abs(by_layers[0]) + np.abs(by_layers[1])
        use_layers = size < np.abs(up) + np.abs(down)
        return np.where(use_layers, by_layers[0] + by_layers[1], up + down)

    # --- the parametrization -------------------------------------------------------------------

    def predictor(self, parameters: Parameters) -> FloatArray:
        u_plus, u_minus, v_plus, v_minus = parameters
        return np.asarray(u_plus * v_plus - u_minus * v_minus)

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> UntiedWeights:
        u_plus, u_minus, v_plus, v_minus = parameters
        return UntiedWeights(v_plus * g, -v_minus * g, u_plus * g, -u_minus * g)

    def metric(self, parameters: Parameters) -> FloatArray:
        """u+^2 + v+^2 + u-^2 + v-^2."""
        return np.asarray(sum(np.square(part) for part in parameters))

    def conserved(self, parameters: Parameters) -> FloatArray:
        """v+^2 - u+^2, v-^2 - u-^2, (u+ + v+)(u- + v-), (u+ - v+)(u- - v-), one per row."""
        u_plus, u_minus, v_plus, v_minus = parameters
        return np.stack(
            [
                (v_plus - u_plus) * (v_plus + u_plus),
                (v_minus - u_minus) * (v_minus + u_minus),
                (u_plus + v_plus) * (u_minus + v_minus),
                (u_plus - v_plus) * (u_minus - v_minus),
            ]
        )

    def __repr__(self) -> str:
        if not self._from_weights:
            return f"UntiedDiagonalNet({self._scale!r}, shape={describe(self._shape)})"
        names = UntiedWeights._fields
        weights = ", ".join(f"{n}={s!r}" for n, s in zip(names, self._starts, strict=True))
        rescaled = f".at_log_scale({self.log_scale:g})" if self.log_scale else ""
        return f"UntiedDiagonalNet.from_weights({weights}){rescaled}"


def with_shape(
    tied: DiagonalNet, shape: float, refusal: str, **size: float | None
) -> UntiedDiagonalNet:
    """The network of a shape in place of a tied one, from the same scale or log_scale.

    `refusal` is what to say, with {shape} and {depth}, of another depth than 2: callers name their
    own argument.
    """
    if tied.depth != 2.0:
        raise InputError(refusal.format(shape=shape, depth=tied.depth))
    return UntiedDiagonalNet(**size, shape=shape)
