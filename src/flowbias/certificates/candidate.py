"""How far a candidate is from the limit: in doubles where that is enough, in balls where not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowbias import _extended as extended
from flowbias._typing import FloatArray, Mask
from flowbias.certificates.error_bound import PROVED, error_bound
from flowbias.certificates.exact_limit import ExactLimit, exact_limit
from flowbias.designs.coordinates import Coordinates
from flowbias.potentials import Potential


def declares_growth(potential: Potential) -> bool:
    """Whether anything about the curvature is known, without which no error can be bounded."""
    return bool(np.isfinite(potential.hess_growth(np.zeros(1), 0.0)).all())


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
        moved = self.potential.hess_dual(at) * self.potential.shift_rounding(at)
        return np.asarray(self.potential.evaluation_rounding * np.abs(self.start) + moved)

    @cached_property
    def least_size(self) -> float:
        """Below it w is nothing: the rounding of the start, and of what one entry of X fits."""
        start = extended.length(self.start)
        entry = max(float(self.X.max()), -float(self.X.min()))
        fitted = float(np.abs(self.y).max()) / entry if entry else 0.0
        return float(np.finfo(float).eps) * max(start if np.isfinite(start) else 0.0, fitted)

    @cached_property
    def size(self) -> float:
        return max(extended.length(self.w), self.least_size)

    def distance(self, driven: Mask, *, doubtful: bool) -> tuple[float, ExactLimit | None]:
        """An upper bound, and the limit itself where it took balls to tell.

        They are asked also where other measures cast doubt on w or on nu. `driven` coordinates are
        pulled against the end of their range, and vanish in the limit. Along the flow the dual runs
        off in the direction of y - P y, which the other columns do not see: it is taken out of nu.
        """
        if not driven.any():
            return self._distance(doubtful)
        gone = extended.length(self.w[driven])
        if driven.all():
            return gone, None
        outside = (self.y - self.fit) / extended.length(self.y - self.fit)
        kept = Coordinates(self.potential, self.shift, len(self.w)).on(~driven)
        rest = replace(
            self,
            X=self.X[:, ~driven],
            w=self.w[~driven],
            nu=self.nu - float(self.nu @ outside) * outside,
            potential=kept.potential,
            shift=kept.shift,
        )
        bound, _ = rest._distance(doubtful=False)
        return float(np.hypot(bound, gone)), None

    def _distance(self, doubtful: bool) -> tuple[float, ExactLimit | None]:
        X, w, nu, potential, shift = self.X, self.w, self.nu, self.potential, self.shift
        upward, downward = potential.open_sides(len(w), 1.0)
        frozen = ~(upward | downward)
        rests = not self.start.any() and not self.fit.any()
        seen = (X[:, ~frozen] if frozen.any() else X).any()
        if rests or not seen:
            # The start fits what can be fitted already, or the data see nothing that can move.
            return extended.length(np.abs(w - self.start) + self._start_rounding()), None
        bound = error_bound(X, self.fit, w, nu, potential, shift, self.noise)
        if bound <= PROVED * self.size and not doubtful:
            return bound, None
        exact = exact_limit(X, self.y, potential, shift, nu, w)
        return (bound, None) if exact is None else (min(bound, exact.error_of(w)), exact)
