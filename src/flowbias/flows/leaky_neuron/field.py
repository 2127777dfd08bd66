"""The flow of a leaky ReLU neuron on one side of every kink, and along the kinks that hold it.

    f(x) = a sigma(<w, x>),   sigma(s) = s for s >= 0, slope s for s < 0    [azulay2021, appendix G]
    da/dtau = -sum r_n sigma(s_n),   dw/dtau = -a sum r_n c_n x_n,   c_n in Clarke's d sigma(s_n),

with s_n = <w, x_n>, r_n = a sigma(s_n) - y_n and tau = c t. All of w that moves lies in the row
space of X: with an orthonormal basis V of it, w = w(0) + V p, and (a, p) are rank + 1 unknowns.
Where each s_n has a side the field is a polynomial. A kink s_n = 0 that both sides point to is
slid along (Filippov): c_n takes the one value between slope and 1 that keeps s_n at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.ground.extended import row_lengths
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray

#: numbers of samples
Indices = NDArray[np.integer[Any]]
#: +1 and -1: the side of the kink that <w, x_n> is on; 0: it slides along the kink
Sides = NDArray[np.int8]

# Of a unit vector's entries what may be their rounding: nearer than this two of them are one, and
# one whose product with another is less is orthogonal to it.
OF_UNIT_VECTORS = 8.0 * EPS


@dataclass(frozen=True, eq=False)
class LeakyStart:
    """A neuron at its start on data: what every pattern of activations shares."""

    a: float
    w: FloatArray
    slope: float
    X: FloatArray
    y: FloatArray
    #: where parallel samples were merged: the misfit that no weights remove, for each sample of the
    #: data the row of X that stands for it, and its length relative to that row's
    lost: float = 0.0
    group: Indices | None = None
    share: FloatArray | None = None

    @cached_property
    def _decomposition(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        left, values, right = scipy.linalg.svd(self.X, full_matrices=False)
        rank = int((values > max(self.X.shape) * EPS * values[0]).sum())
        return left[:, :rank], values[:rank], np.ascontiguousarray(right[:rank].T)

    @property
    def singular_values(self) -> FloatArray:
        """Those of X that are not zero, largest first."""
        return self._decomposition[1]

    @property
    def basis(self) -> FloatArray:
        """V, (d, rank): orthonormal in the row space of X."""
        return self._decomposition[2]

    @cached_property
    def rows(self) -> FloatArray:
        """X V, (n, rank)."""
        left, values, _ = self._decomposition
        return np.asarray(left * values)

    @cached_property
    def lengths(self) -> FloatArray:
        """||x_n||, with 1 for a row of zeros, which no margin divides by."""
        lengths = row_lengths(self.X)
        return np.where(lengths > 0.0, lengths, 1.0)

    @cached_property
    def bends(self) -> NDArray[np.bool_]:
        """Samples at whose kink the velocity jumps: elsewhere it does not matter which side."""
        return np.asarray((self.y != 0.0) & self.bending_rows)

    @cached_property
    def bending_rows(self) -> NDArray[np.bool_]:
        """Samples that have a kink."""
        return np.asarray((row_lengths(self.X) > 0.0) & (self.slope != 1.0))

    @cached_property
    def preactivations(self) -> FloatArray:
        """X w(0)."""
        return np.asarray(self.X @ self.w)

    @cached_property
    def resting(self) -> FloatArray:
        """The part of w(0) outside the row space of X, which the flow never moves."""
        return np.asarray(self.w - self.basis @ (self.basis.T @ self.w))

    @property
    def has_independent_rows(self) -> bool:
        """Whether rows are, but for those of zeros that ask for nothing."""
        seen = row_lengths(self.X) > 0.0
        return len(self.singular_values) == int(seen.sum()) and not self.y[~seen].any()

    @cached_property
    def misfit_scale(self) -> float:
        """What residuals are relative to: ||y||, or where y = 0 the first residual."""
        first = self.a * activation(self.preactivations, self.slope) - self.y
        y = float(np.hypot(np.linalg.norm(self.y), self.lost))
        return y or float(np.linalg.norm(first)) or 1.0

    @property
    def delta(self) -> float:
        """a^2 - ||w||^2, conserved."""
        size = float(np.linalg.norm(self.w))
        return (abs(self.a) - size) * (abs(self.a) + size)

    @property
    def state(self) -> FloatArray:
        """(a, p) at the start."""
        return np.concatenate([[self.a], np.zeros(len(self.singular_values))])

    def weights(self, states: FloatArray) -> FloatArray:
        """w of one state, or of each row."""
        return np.asarray(self.w + states[..., 1:] @ self.basis.T)

    def sums(self, states: FloatArray) -> FloatArray:
        """s = X w of one state, or of each row."""
        return np.asarray(self.preactivations + states[..., 1:] @ self.rows.T)

    def sides_of_data(self, sides: Sides) -> Sides:
        """Of every sample of the data."""
        return sides if self.group is None else np.asarray(sides[self.group])

    def dual_of_data(self, dual: FloatArray) -> FloatArray:
        """nu of the data's own rows with the same sum nu_n x_n."""
        if self.group is None or self.share is None:
            return dual
        return np.asarray(self.share * dual[self.group])


def activation(s: FloatArray, slope: float) -> FloatArray:
    """sigma(s)."""
    return np.where(s >= 0.0, s, slope * s)


class LeastSquares(NamedTuple):
    """What the flow of one pattern goes to: residuals of the free samples, and how they get there.

    `slowest` is the least singular value of the free rows along the kinks that hold, infinite where
    nothing moves.
    """

    residuals: FloatArray
    slowest: float


class PatternField:
    """The velocity, its Jacobian and the margins to the end of one pattern of sides."""

    def __init__(self, start: LeakyStart, sides: Sides) -> None:
        self.start, self.sides = start, sides
        free = sides != 0
        self.free, self.held = free, np.flatnonzero(~free)
        slopes = np.where(sides[free] > 0, 1.0, start.slope)
        self.slope_rows = slopes[:, None] * start.rows[free]
        self._offset = slopes * start.preactivations[free]
        self._y = start.y[free]
        held = start.rows[self.held]
        # pinv, not inv: rows that meet in one kink may be dependent.
        self._to_multipliers = scipy.linalg.pinv(held.T) if len(held) else held
        self._along_normals = held.T @ self._to_multipliers if len(held) else None
        self.range = min(1.0, start.slope), max(1.0, start.slope)

    def outputs(self, state: FloatArray) -> FloatArray:
        """f_n / a = sigma(s_n) of the samples that do not slide."""
        return np.asarray(self._offset + self.slope_rows @ state[1:])

    def residuals(self, state: FloatArray) -> FloatArray:
        """r_n of all samples; -y_n where s_n = 0."""
        residuals = -self.start.y
        residuals[self.free] += state[0] * self.outputs(state)
        return residuals

    @cached_property
    def least_squares(self) -> LeastSquares:
        """Of the free samples, over all w on the kinks that hold."""
        if not self.free.any():
            return LeastSquares(-self._y, np.inf)
        rows, held = self._tangent(self.slope_rows.T).T, self.start.rows[self.held]
        left, values, _ = scipy.linalg.svd(rows, full_matrices=False)
        # What the kinks leave of the rank of X: singular values beyond it are rounding.
        rank = rows.shape[1] - (int(np.linalg.matrix_rank(held)) if len(held) else 0)
        left, slowest = left[:, :rank], float(values[:rank].min(initial=np.inf))
        return LeastSquares(left @ (left.T @ self._y) - self._y, slowest)

    @cached_property
    def multiplier_rates(self) -> FloatArray:
        """By how much at most c_n changes per length of the change of the free residuals."""
        rates = row_lengths(self._to_multipliers @ self.slope_rows.T)
        return np.asarray(rates / np.abs(self.start.y[self.held]))

    def distances(self, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """|s_n| / ||x_n|| of all samples, and how far inside its interval each c_n is that slides.

        Negative where the pattern does not hold.
        """
        margins, n, held = self.margins(state[None, :])[0], len(self.start.y), len(self.held)
        return margins[:n], np.minimum(margins[n : n + held], margins[n + held :])

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        fitted = self.outputs(state)
        misfit = state[0] * fitted - self._y
        pull = self._tangent(-state[0] * (misfit @ self.slope_rows))
        return np.concatenate([[-(misfit @ fitted)], pull])

    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        a, fitted = state[0], self.outputs(state)
        misfit = a * fitted - self._y
        matrix = np.empty((len(state), len(state)))
        matrix[0, 0] = -(fitted @ fitted)
        matrix[0, 1:] = -((a * fitted + misfit) @ self.slope_rows)
        matrix[1:, 0] = self._tangent(-((misfit + a * fitted) @ self.slope_rows))
        matrix[1:, 1:] = self._tangent(-(a * a) * (self.slope_rows.T @ self.slope_rows))
        return matrix

    def _tangent(self, direction: FloatArray) -> FloatArray:
        """What is left of a direction along the kinks that are slid along."""
        if self._along_normals is None:
            return direction
        return np.asarray(direction - self._along_normals @ direction)

    def multipliers(self, state: FloatArray) -> FloatArray:
        """c_n of the samples that slide: X_A^T (c y)_A = the pull of all others across the kinks.

        The factor a has cancelled: when a changes its sign, c stays, but the kink begins to repel.
        Of dependent kinks many c do: here those around the middle of the interval.
        """
        misfit = state[0] * self.outputs(state) - self._y
        y, middle = self.start.y[self.held], 0.5 * sum(self.range)
        pull = misfit @ self.slope_rows - middle * (y @ self.start.rows[self.held])
        return np.asarray(middle + self._to_multipliers @ pull / y)

    def margins(self, states: FloatArray) -> FloatArray:
        """One row per state: what must stay >= 0 for the pattern to hold.

        First distances |s_n| / ||x_n|| on the sample's side (1 where it slides), then c - slope and
        1 - c (or the other way round, for slope > 1) of those that slide.
        """
        sums = self.start.sums(states) / self.start.lengths
        distances = np.where(self.free, self.sides * sums, 1.0)
        if not len(self.held):
            return distances
        multipliers = np.stack([self.multipliers(state) for state in states])
        low, high = self.range
        return np.hstack([distances, multipliers - low, high - multipliers])


def merged_start(a: float, w: FloatArray, slope: float, X: FloatArray, y: FloatArray) -> LeakyStart:
    """The neuron on the data with parallel samples merged; the data themselves where none are.

    sigma(k s) = k sigma(s) for k > 0, so that samples (k_i u, y_i) with one unit vector u add

        sum (a k_i sigma(<w, u>) - y_i)^2 = (a L sigma(<w, u>) - <k, y>/L)^2 + lost^2,   L = ||k||,

    whatever the weights. Left apart, their subgradients at the common kink could differ, which
    Clarke's do not: all of them are on one side of it, or none is.
    """
    lengths = row_lengths(X)
    group = _groups(X / np.where(lengths > 0.0, lengths, 1.0)[:, None], lengths > 0.0)
    count = int(group.max()) + 1
    if count == len(y):
        return LeakyStart(a, w, slope, X, y)
    totals = np.sqrt(np.bincount(group, weights=lengths**2))
    share = np.divide(lengths, totals[group], out=np.ones_like(lengths), where=lengths > 0.0)
    _, first = np.unique(group, return_index=True)
    rows = X[first] / share[first][:, None]
    targets: FloatArray = np.asarray(np.bincount(group, weights=share * y), dtype=np.float64)
    lost = float(np.linalg.norm(y - share * targets[group]))
    # Roundings of consistent data are no misfit.
    lost = lost if lost > 64.0 * EPS * float(np.linalg.norm(y)) else 0.0
    return LeakyStart(a, w, slope, rows, targets, lost, group, share)


def _groups(directions: FloatArray, is_row: NDArray[np.bool_]) -> Indices:
    """For each row the number of its direction, in the order in which they first occur."""
    group = np.full(len(directions), -1)
    nearly = directions @ directions.T > 1.0 - 1e-12
    count = 0
    for i in range(len(directions)):
        if group[i] >= 0:
            continue
        group[i] = count
        if is_row[i]:
            later = i + 1 + np.flatnonzero(nearly[i, i + 1 :])
            apart = np.abs(directions[later] - directions[i]).max(axis=1, initial=0.0)
            group[later[(apart <= OF_UNIT_VECTORS) & (group[later] < 0)]] = count
        count += 1
    return group
