"""The stages of a vanishing start: the inverse scale space of a weighted l1 norm, step by step.

    d zeta / d tau = X^T (y - X w),    -b- <= zeta <= b+,    w > 0 only at b+,  w < 0 only at -b-

[Burger, Moeller, Benning, Osher 2013; Pesme and Flammarion 2023]. On a stage w is the least-squares
fit on the active set, the coordinates at their bounds, each with the sign of its bound, and the
residual is constant: zeta moves on a straight line until another coordinate meets its bound. So a
stage costs one product with X^T and one update of a QR factor, as a step of least angle regression
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtrs

from flowbias.designs import Design
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray, Indices

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Columns:
    """What the walk asks of X: products with its transpose, and single columns."""

    shape: tuple[int, int]
    adjoint: Callable[[FloatArray], FloatArray]
    column: Callable[[int], FloatArray]
    #: of the columns; or sums of |entries|, which are no less
    lengths: FloatArray

    @classmethod
    def of_array(cls, X: FloatArray) -> Columns:
        lengths = row_lengths(X.T)
        return cls((X.shape[0], X.shape[1]), X.T.__matmul__, lambda j: X[:, j], lengths)

    def of_ordinary_size(self) -> tuple[Columns, FloatArray]:
        """Columns whose squares are doubles, and by which powers of two they were divided."""
        seen = self.lengths > 0.0
        sizes = np.log10(self.lengths, out=np.zeros(self.shape[1]), where=seen)
        if (np.abs(sizes) < 50.0).all():
            return self, np.ones(self.shape[1])
        unit = np.exp2(np.floor(np.log2(np.where(seen, self.lengths, 1.0))))
        adjoint, column = self.adjoint, self.column
        scaled = Columns(
            self.shape,
            lambda r: adjoint(r) / unit,
            lambda j: column(j) / unit[j],
            self.lengths / unit,
        )
        return scaled, unit

    @classmethod
    def of_design(cls, design: Design) -> Columns:
        """Block by block."""

        def column(j: int) -> FloatArray:
            block = next(b for b in design.blocks() if b.columns.start <= j < b.columns.stop)
            alone = np.zeros(block.width)
            alone[j - block.columns.start] = 1.0
            return block.apply(alone)

        lengths = design.gather(Across(np.ones(design.n), absolute=True))
        return cls(design.shape, lambda r: design.gather(Across(r)), column, lengths)


@dataclass(frozen=True)
class Across:
    """X^T dual for a block of columns, or |X|^T |dual|."""

    dual: FloatArray
    absolute: bool = False

    def on(self, columns: slice) -> Across:
        return self

    def __call__(self, block: Any) -> FloatArray:
        product: FloatArray = (block.absolute_adjoint if self.absolute else block.adjoint)(
            self.dual
        )
        return product


@dataclass(frozen=True)
class Stage:
    """w from `time` on, until the next stage begins."""

    time: float
    support: tuple[int, ...]
    coefficients: FloatArray
    residual: FloatArray
    #: coordinates at their bounds without a weight, where they could share those of others
    tied: tuple[int, ...]


class Walk:
    """The state between two stages: zeta, who waits at a bound, the factor of those in use."""

    def __init__(self, X: Columns, y: FloatArray, upper: FloatArray, lower: FloatArray) -> None:
        n, d = X.shape
        # A unit per column changes nothing but those of its bounds and of its weight.
        X, self._unit = X.of_ordinary_size()
        upper, lower = upper / self._unit, lower / self._unit
        self.X, self.y, self.upper, self.lower = X, y, upper, lower
        # zeta = X^T nu
        self.time, self.nu, self.zeta = 0.0, np.zeros(n), np.zeros(d)
        # +-1 at a bound.
        self.side = np.zeros(d)
        #: at a bound without a weight, since others fit what they could fit
        self.waiting: list[int] = []
        self._w = np.zeros(0)
        room = min(n, d)
        self._order, self._in_use = np.zeros(room, dtype=np.intp), 0
        self._Q, self._R = np.zeros((n, room), order="F"), np.zeros((room, room), order="F")
        #: what the columns in use fit of y, in their orthonormal basis Q
        self._head = np.zeros(room)
        self.residual = y
        self.pull = X.adjoint(y)
        # What rounding makes of a column of length one that should vanish, and of x_i^T r.
        self._rounding = (n + 8) * EPS
        self.noise = self._rounding * float(np.linalg.norm(y)) * X.lengths
        self._most_noise, self._width = float(self.noise.max()), _largest(upper, lower)

    @property
    def active(self) -> Indices:
        """The coordinates in use, in the order of `w`."""
        return self._order[: self._in_use]

    @property
    def w(self) -> FloatArray:
        """The weights of the columns as they were given."""
        return np.asarray(self._w / self._unit[self.active])

    def stages(self) -> Iterator[Stage]:
        """From w = 0 on; the last one is the limit.

        What is left of y falls from stage to stage, but where a coordinate meets its bound and has
        nothing to add. Where it has stopped falling for longer than there are such, rounding leads
        the way in circles: there it ends, and its certificate says how good that is.
        """
        yield self._stage()
        least, idle = self._left(), 0
        while idle <= 2 * len(self._order) and self._advance():
            self._settle()
            yield self._stage()
            left = self._left()
            idle = 0 if left < (1.0 - self._rounding) * least else idle + 1
            least = min(left, least)

    def _left(self) -> float:
        return float(np.linalg.norm(self.residual))

    def _stage(self) -> Stage:
        tied = tuple(self.waiting) if self.waiting and self._is_dependent(self.waiting) else ()
        return Stage(self.time, tuple(self.active.tolist()), self.w, self.residual, tied)

    # --- from one stage to the next --------------------------------------------------------------

    @np.errstate(divide="ignore", invalid="ignore")
    def _advance(self) -> bool:
        """Move zeta until another coordinate meets its bound; False where none ever will."""
        pull = self.pull
        speed = np.abs(pull)
        speed *= speed > self.noise
        gap = np.where(pull > 0.0, self.upper - self.zeta, self.lower + self.zeta)
        # Infinite where nothing pulls, and no number where it rests at its bound.
        waits = gap / speed
        wait = float(np.fmin.reduce(waits))
        if not wait < np.inf:
            return False
        wait = max(wait, 0.0)
        self.time += wait
        self.nu += wait * self.residual
        self.zeta += wait * pull
        # Those that meet their bounds at the same time, up to the rounding of zeta: looked at one
        # by one where the largest rounding leaves it open.
        left = gap - wait * speed
        most = (2.0 * self.time) * self._most_noise + (4.0 * EPS) * self._width
        for i in ((left <= most) & (speed > 0.0)).nonzero()[0].tolist():
            rounding = (2.0 * self.time) * self.noise[i] + (4.0 * EPS) * abs(self.zeta[i])
            if left[i] <= rounding or waits[i] <= wait:
                rises = pull[i] > 0.0
                self.side[i] = 1.0 if rises else -1.0
                self.zeta[i] = self.upper[i] if rises else -self.lower[i]
                self.waiting.append(i)
        return True

    def _settle(self) -> None:
        """Least squares over the coordinates at bounds, signs kept: Lawson and Hanson, warm."""
        refused: set[int] = set()
        least = self._left()
        while len(chosen := np.array([i for i in self.waiting if i not in refused], dtype=np.intp)):
            outward = self.side[chosen] * self.pull[chosen]
            outward[outward <= self.noise[chosen]] = 0.0
            steepness = outward / self.X.lengths[chosen]
            steepest = steepness.argmax()
            if steepness[steepest] == 0.0:
                break
            best = int(chosen[steepest])
            # What leaves as much of y as before was taken for its rounding, and would be again.
            if not self._take(best) or not self._left() < least:
                refused.add(best)
            least = min(least, self._left())
        for i in [i for i in self.waiting if self.side[i] * self.pull[i] < -self.noise[i]]:
            self.waiting.remove(i)
            self.side[i] = 0.0
        if self.waiting:
            self.pull[self.waiting] = 0.0

    def _take(self, best: int) -> bool:
        """Bring a coordinate into use; False where rounding alone says that it belongs there."""
        if not self._insert(best):
            return False
        w = np.zeros(self._in_use)
        w[:-1] = self._w
        fit = self._fitted()
        if fit[-1] * self.side[best] <= 0.0:
            self._delete(len(w) - 1)
            return False
        while len(wrong := (self.side[self.active] * fit <= 0.0).nonzero()[0]):
            # Back to where the first of them vanishes; at once if it is nothing and stays so.
            way = w[wrong] - fit[wrong]
            shares = np.divide(w[wrong], way, out=np.zeros_like(way), where=way != 0.0)
            share = float(shares.min())
            w += share * (fit - w)
            gone = wrong[shares == share]
            for k in gone[::-1].tolist():
                self._delete(k)
            w = np.delete(w, gone)
            fit = self._fitted()
        self._w = fit
        self.pull = self.X.adjoint(self.residual)
        self.pull[self.active] = 0.0
        return True

    # --- the factor of the columns in use --------------------------------------------------------

    @property
    def _factor(self) -> tuple[FloatArray, FloatArray]:
        k = self._in_use
        return self._Q[:, :k], self._R[:k, :k]

    def _beyond(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Q^T x and what Q does not span of it, orthogonal to working precision."""
        Q, _ = self._factor
        head = x @ Q
        rest = x - Q @ head
        again = rest @ Q  # twice is enough
        return head + again, rest - Q @ again

    def _is_dependent(self, columns: list[int]) -> bool:
        """Whether some of these can do without the others, given those in use: to rounding."""
        rests = [self._beyond(self.X.column(i))[1] / self.X.lengths[i] for i in columns]
        rank = np.linalg.matrix_rank(np.array(rests), tol=self._rounding)
        return int(rank) < len(columns)

    def _insert(self, j: int) -> bool:
        head, rest = self._beyond(self.X.column(j))
        k = self._in_use
        size = math.sqrt(rest @ rest)
        if size <= self._rounding * self.X.lengths[j] or k == self._Q.shape[1]:
            return False  # in the span of those in use
        new = rest / size
        self._Q[:, k], self._R[:k, k], self._R[k, k] = new, head, size
        self._head[k] = new @ self.residual
        self.residual = self.residual - self._head[k] * new
        self._order[k], self._in_use = j, k + 1
        self.waiting.remove(j)
        return True

    def _delete(self, k: int) -> None:
        # In place: both are views of Fortran order.
        scipy.linalg.qr_delete(*self._factor, k, which="col", overwrite_qr=True, check_finite=False)
        self.waiting.append(int(self._order[k]))
        left = self._in_use = self._in_use - 1
        self._order[k:left] = self._order[k + 1 : left + 1]
        self._head[:left], self.residual = self._beyond(self.y)

    def _fitted(self) -> FloatArray:
        fit: FloatArray = dtrtrs(self._factor[1], self._head[: self._in_use])[0]
        return fit


def _largest(upper: FloatArray, lower: FloatArray) -> float:
    """Of the bounds that can be met."""
    return max(float(np.max(b, where=np.isfinite(b), initial=0.0)) for b in (upper, lower))
