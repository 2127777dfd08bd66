"""How far a candidate is from the limit, in doubles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowbias.certificates.error_bound import error_bound
from flowbias.designs.dense import ArrayDesign
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential

EPS = float(np.finfo(float).eps)


def declares_growth(potential: Potential) -> bool:
    """Whether anything about the curvature is known, without which no error can be bounded."""
    return bool(np.isfinite(potential.hess_growth(np.zeros(1), 0.0)).all())


def _largest(values: FloatArray) -> float:
    """The largest size of an entry, without a copy of its array."""
    return max(float(values.max()), -float(values.min()))


@dataclass(frozen=True)
class Candidate:
    """w and nu, said to be the limit on (X, y), of which X w can fit `fit` up to `noise`."""

    X: FloatArray
    y: FloatArray
    fit: FloatArray
    w: FloatArray
    nu: FloatArray
    potential: Potential
    shift: FloatArray | float
    noise: float

    @cached_property
    def start(self) -> FloatArray:
        """w(0)."""
        return self.potential.grad_dual(np.broadcast_to(self.shift, self.w.shape))

    def _start_rounding(self) -> FloatArray:
        """Of each coordinate of w(0)."""
        at = np.broadcast_to(self.shift, self.w.shape)
        tilt = self.potential.shift_rounding(at) + self.potential.law_rounding(at)
        moved = self.potential.hess_dual(at) * tilt
        return np.asarray(self.potential.evaluation_rounding * np.abs(self.start) + moved)

    @cached_property
    def _fixed_size(self) -> float:
        """Of what does not depend on w: of w(0), and of what one entry of X makes of y."""
        start = extended.length(self.start)
        asked = np.where(self.X.any(axis=1), self.y, 0.0)
        fitted = _largest(asked) / (_largest(self.X) or np.inf)
        return max(start if np.isfinite(start) else 0.0, fitted)

    @property
    def blur(self) -> float:
        """The rounding of X w, of a w that is next to nothing."""
        return EPS * self._fixed_size * _largest(self.X)

    @cached_property
    def size(self) -> float:
        """||w||; where it is next to nothing, w is known to half of the digits of what is not."""
        return max(extended.length(self.w), float(np.sqrt(EPS)) * self._fixed_size)

    def bound(self, driven: Mask) -> float:
        """An upper bound of the distance, in doubles.

        `driven` coordinates are pulled against the end of their range, and vanish in the limit.
        Along the flow the dual runs off in the direction of y - P y, which the other columns do not
        see: it is taken out of nu.
        """
        outside = self.y - self.fit
        if not driven.any() or not outside.any():
            return self._bound()
        gone = extended.length(self.w[driven])
        if driven.all():
            return gone
        outside = outside / extended.length(outside)
        kept = Coordinates(self.potential, self.shift, len(self.w)).on(~driven)
        rest = replace(
            self,
            X=self.X[:, ~driven],
            w=self.w[~driven],
            nu=self.nu - float(self.nu @ outside) * outside,
            potential=kept.potential,
            shift=kept.shift,
        )
        return float(np.hypot(rest._bound(), gone))

    def _bound(self) -> float:
        X, w, potential = self.X, self.w, self.potential
        upward, downward = potential.open_sides(len(w), 1.0)
        frozen = ~(upward | downward)
        rests = not self.start.any() and not self.fit.any()
        seen = (X[:, ~frozen] if frozen.any() else X).any()
        if rests or not seen:
            # The start fits what can be fitted already, or the data see nothing that can move.
            return extended.length(np.abs(w - self.start) + self._start_rounding())
        return error_bound(ArrayDesign(X), self.fit, w, self.nu, potential, self.shift, self.noise)
