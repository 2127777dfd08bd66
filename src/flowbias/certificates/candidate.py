"""How far a candidate is from the limit, in doubles: whether it is proved at first sight, or how.

At first sight by a few products with X and one factor. The argument is that of `error_bound`, with
cruder constants. With z = shift + X^T nu, W = w'(z), H = X diag(W) X^T and
e >= ||H^-1/2 (y - X w(z))||, rounding included, let S_i = 2 e K_i, where K_i^2 = x_i^T H^-1 x_i is
at most 1 / W_i, and at most |u x_i|^2 / least eigenvalue of diag(u) H diag(u). If w' changes by no
more than a factor 1 + g within S, g <= 1/2, then

    ||w(z*) - w(z)|| <= 3 sqrt(max W) e.

The eigenvalue comes from a factor of diag(u) X diag(c) X^T diag(u) for any c near a multiple of W,
whoever has computed it: that it is one is checked on a vector that nobody knows before
[Freivalds 1977]. What is not proved here is not refused: `measured` looks closer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg

from flowbias.certificates.error_bound import PROVED, error_bound
from flowbias.designs.dense import ArrayDesign
from flowbias.designs.tasks import Coordinates
from flowbias.ground import extended
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential

EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
# Half of the digits.
HALF = math.sqrt(EPS)
_RANDOM = np.random.default_rng()


class Factor(NamedTuple):
    """Lower L, zero above, with L L^T = diag(unit) X diag(weights) X^T diag(unit), diagonal one."""

    lower: FloatArray
    unit: FloatArray
    weights: FloatArray

    def is_one_of(self, X: FloatArray) -> bool:
        """Whether it agrees with X on a random vector, to rounding."""
        n, d = X.shape
        v = np.asarray(_RANDOM.standard_normal(n))
        wanted = self.unit * X.dot(self.weights * (self.unit * v).dot(X))
        off = self.lower.dot(self.lower.T.dot(v)) - wanted
        return bool(extended.length(off) <= 8.0 * (n + d) * EPS * extended.length(v))

    def least_eigenvalues(self, weights: FloatArray, largest: float) -> Iterator[float]:
        """Lower bounds of that of diag(unit) X diag(weights) X^T diag(unit), entries up to largest.

        The first is had for next to nothing, and means something of a few rows: all eigenvalues but
        the least have a product of at most the power of their mean. Weights that count for nothing
        here may be anything: what they lack is taken off.
        """
        ratios, lacking = weights / self.weights, 0.0
        ratio = extended.least(ratios)
        # Where all have stayed about what they were, as in the last steps, there is none to take.
        if not ratio > 0.5:
            counted = self.weights > 1e-12 * self.weights.max()
            ratio = float(ratios[counted].min())
            lacks = np.maximum(self.weights - weights / ratio, 0.0)[~counted].sum()
            lacking = float(lacks) * (largest * extended.length(self.unit)) ** 2
        rest, trace = len(self.unit) - 1, float(np.vdot(self.lower.T, self.lower.T))
        least = math.prod(self.lower.diagonal().tolist()) ** 2 * (rest / trace) ** rest
        # Far above the rounding of the factor.
        if least > HALF:
            yield ratio * (least - lacking)
        rcond, _ = scipy.linalg.lapack.dpocon(self.lower, 1.0, uplo="L")
        # As in `error_bound`: the condition number is estimated from below.
        yield ratio * (0.1 * float(rcond) - lacking)

    def spread(self, w: FloatArray) -> float:
        """Length of w in units of the roots of the weights."""
        roots = np.sqrt(self.weights)
        sums = extended.length(w / roots)
        if math.isnan(sums):  # neither w nor its weight is a double: 0 / 0 counts for nothing
            sums = extended.length(np.divide(w, roots, out=np.zeros(len(w)), where=w != 0.0))
        return sums


@np.errstate(all="ignore")
def is_proved(
    X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    nu: FloatArray,
    potential: Potential,
    shift: FloatArray | float,
    factor: Factor,
    *,
    tol: float,
) -> bool:
    """Whether w and nu are the limit to tol, and to PROVED of w; comparisons with NaN are false."""
    n, d = X.shape
    z = shift + nu.dot(X)
    near, slope = potential.grad_dual(z), potential.hess_dual(z)
    # What underflows moves no w, and H is no larger for it.
    root = np.sqrt(np.maximum(slope, TINY))
    away, points, sizes = np.abs(w - near), np.abs(z), np.abs(nu)
    # How far w is from w(z), in the norm of H: twice as far, in case that w' is only about so, and
    # as far as the digits of w tell. As a change of z once more divided by the root: where w hardly
    # moves with z its digits do not tell z.
    # (And |w(z)| is at most |w| and the distance of the two.)
    told_to, weight = potential.evaluation_rounding + 8.0 * EPS, np.abs(w)
    off = ((2.0 + told_to) * away + told_to * weight) / root
    told, off_size = extended.largest(off / root), extended.length(off)
    # A row of |X| |w| is at most the second divided by its unit [Cauchy-Schwarz].
    misfit = np.abs(X.dot(w) - y) + (d + 2) * EPS * factor.spread(w) / factor.unit
    gap = 0.5 * off_size * off_size + float(sizes.dot(misfit))
    pairing, largest_point = float(points.dot(weight)), extended.largest(points)
    is_optimal = (
        # Where products underflow nothing is told: neither are these the sizes of Q and Q*.
        pairing > TINY / EPS
        and extended.length(misfit) <= 0.5 * tol * extended.length(y)
        and told <= 0.5 * tol * largest_point
        and gap <= 0.5 * tol * pairing
    )
    if not is_optimal:
        return False
    largest = _largest(X)
    if not factor.is_one_of(X):
        return False
    # Rounding of any coordinate of z: of a sum of n products, of the shift, which is no larger than
    # z and the sum together, and of constants.
    tilt = EPS * ((n + 8) * largest * scipy.linalg.blas.dasum(nu) + 8.0 * largest_point)
    tilt += potential.tilt_rounding(z, shift)
    missed, known = extended.length(factor.unit * misfit), off_size + tilt * extended.length(root)
    widest, longest = extended.largest(root), largest * extended.length(factor.unit)
    for eigenvalue in factor.least_eigenvalues(slope, largest):
        if not eigenvalue > 0.0:
            continue
        narrowest = math.sqrt(eigenvalue)
        distance = missed / narrowest + known
        # ||w - w(z)|| is at most half of the off-size, and that is part of the distance.
        if not 3.5 * widest * distance <= 0.1 * PROVED * extended.length(w):
            continue
        reach = np.minimum(1.0 / root, longest / narrowest)
        # Growth of w' within which nothing bends: far below the factor that the argument allows, so
        # that what is proved here is proved by `error_bound` too, whose box has room for as much.
        if potential.growth_along(z, 2.0 * distance * reach + (tilt + told))(1.0) <= 1.001:
            return True
    return False


def as_it_is(design: ArrayDesign) -> ArrayDesign:
    """A copy that stays as X is now: the last one, where X has not changed since."""
    if design.kept is None or not np.array_equal(design.kept.in_memory, design.in_memory):
        design.kept = ArrayDesign(design.in_memory.copy())
    return design.kept


def declares_growth(potential: Potential) -> bool:
    """Whether anything about the curvature is known, without which no error can be bounded."""
    return bool(np.isfinite(potential.hess_growth(np.zeros(1), 0.0)).all())


def _largest(values: FloatArray) -> float:
    """The largest size of an entry, without a copy of its array."""
    return max(extended.largest(values), -extended.least(values))


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
        return max(extended.length(self.w), HALF * self._fixed_size)

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
