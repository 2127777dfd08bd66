"""The dual map of an F that separates: every predictor follows a flow of its own, in its own z.

Where each parameter moves one predictor only, gradient flow is, block by block,

    dtheta_i/dz_i = grad F_i(theta_i),    dw_i/dz_i = |grad F_i|^2,    z = X^T nu

and w_i depends on z_i alone. Both ways from the start these d equations are followed at once, each
with steps of its own (one backward pass of F serves them all), and remembered at the ends of the
steps: any z is then one step away from a point that is known. Beside theta three sums of terms of
one sign are carried along, so that nothing cancels however small or large the start is:

    w - w(0) = int w' dz,    Q(w(z)) = int z w' dz,    Q*(z) - w(0) z = int (w - w(0)) dz.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import DOP853

from flowbias.derive.parametrization import Parametrization, reachable_points
from flowbias.derive.unit_time import MOST_STEPS, RTOL
from flowbias.derive.unit_time_flow import remember
from flowbias.ground.typing import FloatArray, Mask

#: for each parameter the predictor that it moves
Owners: TypeAlias = NDArray[np.intp]

_TINY = float(np.finfo(float).tiny)


class CoordinateStates(NamedTuple):
    """Where each coordinate is at its own z; NaN where its flow does not get there."""

    theta: FloatArray  # (p,)
    rise: FloatArray  # w - w(0)
    value: FloatArray  # Q(w(z))
    area: FloatArray  # Q*(z) - w(0) z
    slope: FloatArray  # w'(z) = |grad F_i|^2
    #: how far z can move before the slope changes by a factor, roughly
    unit: FloatArray


class CoordinateFlows:
    """theta(z), w(z), Q and Q* of an F whose parameter j moves predictor `owner[j]` alone."""

    # No __dict__: what cuts potentials down to some coordinates is not to look inside.
    __slots__ = ("_field", "_known", "_sides", "d", "initial", "model")

    def __init__(self, model: Parametrization, owner: Owners) -> None:
        self.model, self.d, self.initial = model, model.d, model.initial
        self._field = _Field(model, owner)
        self._sides = _Side(self._field, 1.0), _Side(self._field, -1.0)
        self._known: OrderedDict[bytes, CoordinateStates] = OrderedDict()

    def at(self, z: FloatArray) -> CoordinateStates:
        """All that is known of the point whose dual is z, (d,)."""
        key = z.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._one_step_to(z)
            remember(self._known, key, found)
        return found

    def dual(self, w: FloatArray) -> FloatArray:
        """z with w(z) = w, coordinate by coordinate; NaN where the flow never has this w."""
        rise = np.asarray(w - self.initial)
        z = np.where(rise == 0.0, 0.0, np.nan)
        low, high = np.zeros(self.d), np.zeros(self.d)
        for side in self._sides:
            cell = side.cell(self._field.rise, rise)
            z = np.where(cell.inside, cell.guess(self._field.rise, rise), z)
            low, high = np.where(cell.inside, cell.span, (low, high))
        for _ in range(8):  # from two digits of one number: three steps do
            here = self.at(z)
            step = np.where(rise == 0.0, 0.0, (rise - here.rise) / here.slope)
            z = np.clip(z + step, low, high)
            if not (np.abs(step) > np.spacing(np.abs(z))).any():
                break
        return z

    def block_sums(self, of_parameters: FloatArray) -> FloatArray:
        """One number per parameter, summed over each coordinate's own."""
        return _sums(self._field.blocks, of_parameters, self.d)

    def _one_step_to(self, z: FloatArray) -> CoordinateStates:
        field = self._field
        begin, first = np.zeros(self.d), field.start()
        inside, unit = z == 0.0, np.ones(self.d)
        for side in self._sides:
            cell = side.cell(lambda node: node.z, z)
            begin = np.where(cell.inside, cell.before.z, begin)
            first = np.where(cell.inside[field.owner], cell.before.unknowns, first)
            # w'(z) changes about e-fold in four steps: of order eight, each is exact over a part.
            unit = np.where(cell.inside | (z == 0.0), 4.0 * np.ptp(cell.span, 0), unit)
            inside |= cell.inside
        with np.errstate(all="ignore"):
            unknowns, stages = field.step(first, begin, np.where(inside, z, begin))
        theta, *rest = field.read(unknowns, stages[-1])
        theta = np.where(inside[field.blocks], theta, np.nan)
        return CoordinateStates(theta, *(np.where(inside, part, np.nan) for part in (*rest, unit)))


class _Node(NamedTuple):
    """All coordinates, each at a z of its own; or many of these, one per row."""

    z: FloatArray
    unknowns: FloatArray
    rates: FloatArray


class _Cell(NamedTuple):
    """The step of each coordinate on which a number wanted of it lies, if it is on this side."""

    inside: Mask
    before: _Node
    after: _Node

    @property
    def span(self) -> FloatArray:
        """The least and the largest z, (2, d)."""
        return np.sort([self.before.z, self.after.z], axis=0)

    def guess(self, of: Callable[[_Node], FloatArray], wanted: FloatArray) -> FloatArray:
        """z where a straight line has the number wanted."""
        first, last = of(self.before), of(self.after)
        share = np.divide(wanted - first, last - first, out=np.zeros_like(first), where=self.inside)
        return np.asarray(self.before.z + share * (self.after.z - self.before.z))


class _Field:
    """The d equations, and one step of them: of a length of its own for each."""

    def __init__(self, model: Parametrization, owner: Owners) -> None:
        self.model, self.blocks = model, owner
        #: of every unknown: theta, rise, value and area
        self.owner = np.concatenate([owner, *[np.arange(model.d)] * 3])

    def start(self) -> FloatArray:
        return np.concatenate([self.model.start, np.zeros(3 * self.model.d)])

    def rise(self, node: _Node) -> FloatArray:
        p = self.model.p
        return node.unknowns[..., p : p + self.model.d]

    def rates(self, unknowns: FloatArray, z: FloatArray) -> FloatArray:
        """d/dz of all unknowns."""
        d, p = self.model.d, self.model.p
        pull = self.model.pulled_back(unknowns[:p], np.ones(d))
        slope = _sums(self.blocks, pull * pull, d)
        return np.concatenate([pull, slope, z * slope, unknowns[p : p + d]])

    def read(self, unknowns: FloatArray, rates: FloatArray) -> tuple[FloatArray, ...]:
        """theta, rise, value, area and slope."""
        d, p = self.model.d, self.model.p
        return (unknowns[:p], *unknowns[p:].reshape(3, d), rates[p : p + d])

    def step(
        self, unknowns: FloatArray, z: FloatArray, to: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The unknowns at `to`, and the rates on the way there, the last ones at `to` itself."""
        length = to - z
        each = length[self.owner]
        stages = np.empty((DOP853.n_stages + 1, len(unknowns)))
        for s in range(DOP853.n_stages):
            between = unknowns + each * (DOP853.A[s, :s] @ stages[:s])
            stages[s] = self.rates(between, z + DOP853.C[s] * length)
        after = unknowns + each * (DOP853.B @ stages[:-1])
        stages[-1] = self.rates(after, to)
        return after, stages

    def error(
        self, before: FloatArray, length: FloatArray, after: FloatArray, stages: FloatArray
    ) -> FloatArray:
        """Of a step, in units of what is allowed; infinite or NaN where it left the domain."""
        p = self.model.p
        fifth, third = np.abs(DOP853.E5 @ stages), np.abs(DOP853.E3 @ stages)
        estimate = fifth * fifth / (np.hypot(fifth, 0.1 * third) + _TINY)
        size = np.abs(after)
        # Of theta the largest in its block: the others may pass through zero.
        size[:p] = self.block_sizes(np.maximum(size[:p], np.abs(before[:p])))[self.blocks]
        relative = np.abs(length[self.owner]) * estimate / (RTOL * size + _TINY)
        return _largest(self.owner, relative, self.model.d)

    def block_sizes(self, theta: FloatArray) -> FloatArray:
        """The largest parameter of each block, (d,)."""
        return _largest(self.blocks, np.abs(theta), self.model.d)


class _Side:
    """The flows to one side of z = 0, as far as they were asked for."""

    def __init__(self, field: _Field, sign: float) -> None:
        self.field, self.sign = field, sign
        d, p = field.model.d, field.model.p
        first = field.start()
        rates = field.rates(first, np.zeros(d))
        size, speed = field.block_sizes(first[:p]), np.sqrt(rates[p : p + d])
        size[size == 0.0] = 1.0
        # On this length theta changes by its own size: too long a step, and cut at once.
        self._length = np.divide(size, speed, out=np.ones(d), where=speed > 0.0)
        self._goes_on = speed > 0.0
        self._nodes = [_Node(np.zeros(d), first, rates)]
        self._table = _Node(*(part[None] for part in self._nodes[0]))
        self._lock = Lock()

    def cell(self, of: Callable[[_Node], FloatArray], wanted: FloatArray) -> _Cell:
        """The steps on which `of` comes to what is wanted; flows are followed until they do."""
        mine = (self.sign * wanted > 0.0) & np.isfinite(wanted)
        far = np.where(mine, np.abs(wanted), 0.0)
        table = self._until(lambda node: np.abs(of(node)) >= far)
        passed = np.abs(of(table))
        last = np.maximum(np.sum(passed <= far, axis=0) - 1, 0)
        last = np.minimum(last, len(passed) - 2)
        return _Cell(
            mine & (passed[-1] >= far), self._picked(table, last), self._picked(table, last + 1)
        )

    def _picked(self, table: _Node, row: NDArray[np.intp]) -> _Node:
        """Of each coordinate, the row asked for."""
        each = row[self.field.owner], np.arange(len(self.field.owner))
        return _Node(table.z[row, np.arange(len(row))], table.unknowns[each], table.rates[each])

    def _until(self, beyond: Callable[[_Node], Mask]) -> _Node:
        """The points passed until each coordinate is beyond, or its flow has ended."""
        with self._lock, np.errstate(all="ignore"):
            known = len(self._nodes)
            while len(self._nodes) <= MOST_STEPS and (
                len(self._nodes) == 1 or (self._goes_on & ~beyond(self._nodes[-1])).any()
            ):
                self._nodes.append(self._next())
            if len(self._nodes) > known:
                self._table = _Node(*map(np.array, zip(*self._nodes, strict=True)))
            return self._table

    def _next(self) -> _Node:
        """One step more of each coordinate whose flow goes on."""
        z, unknowns, rates = self._nodes[-1]
        waits = self._goes_on.copy()
        while waits.any():
            to = np.where(waits, z + self.sign * self._length, z)
            after, stages = self.field.step(unknowns, z, to)
            error = self.field.error(unknowns, to - z, after, stages)
            taken = waits & (error <= 1.0)
            moved = taken[self.field.owner]
            unknowns, rates = np.where(moved, after, unknowns), np.where(moved, stages[-1], rates)
            z = np.where(taken, to, z)
            # At most five times as long as the last, and at least a tenth of it.
            factor = np.clip(0.9 * error ** (-1.0 / 8.0), 0.1, 5.0)
            factor[~np.isfinite(error)] = 0.1
            self._length = np.where(waits, factor, 1.0) * self._length
            # A flow ends where it blows up, its steps down to the spacing of numbers at that z, or
            # where it has come to rest and no z is too far.
            too_short = self._length <= np.spacing(np.abs(z))
            ended = waits & ~taken & (too_short | ~np.isfinite(to))
            self._goes_on = self._goes_on & ~ended
            waits = waits & ~taken & ~ended
        return _Node(z, unknowns, rates)


def _sums(owner: Owners, values: FloatArray, d: int) -> FloatArray:
    """The sum of each owner's values."""
    return np.asarray(np.bincount(owner, values, d), dtype=np.float64)


def _largest(owner: Owners, values: FloatArray, d: int) -> FloatArray:
    """The largest value of each owner; NaN where one is."""
    largest = np.zeros(d)
    np.maximum.at(largest, owner, values)
    return largest


def owners(model: Parametrization, rng: int = 0) -> NDArray[np.intp] | None:
    """For each parameter the one predictor that it moves; None where some parameter moves two.

    Judged by zeros of dF/dtheta, which are exact where F does not mix coordinates, at theta0 and at
    points along random flows: an entry of an analytic J that is zero there is zero on the orbit.
    """
    points = reachable_points(model, 3, np.random.default_rng(rng))
    moves = np.any([model.jacobian(point) != 0.0 for point in points], axis=0)
    if (moves.sum(axis=0) > 1).any():
        return None
    # A parameter that moves nothing does not move itself, whichever block it is counted to.
    return np.asarray(moves.argmax(axis=0))
