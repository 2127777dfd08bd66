"""The potential of a parametrization whose predictors do not share parameters.

Every predictor follows a flow of its own, in its own z. Gradient flow is, block by block,

    dtheta_i/dz_i = grad F_i(theta_i),    dw_i/dz_i = |grad F_i|^2,    z = X^T nu

and w_i depends on z_i alone. Both ways from the start these d equations are followed at once, each
with steps of its own (one backward pass of F serves them all), and remembered at the ends of the
steps: any z is then one step away from a point that is known. Beside theta three sums of terms of
one sign are carried along, so that nothing cancels however small or large the start is:

    w - w(0) = int w' dz,    Q(w(z)) = int z w' dz,    Q*(z) - w(0) z = int (w - w(0)) dz.

grad is the inverse of w(z). Duals are counted from the start: grad Q(w(0)) = 0 and Q(w(0)) = 0, so
no shift is needed and the mirror rate is 1.

What a unit of w costs as the start vanishes is known where F(c theta) = c^D F(theta), block by
block. From c theta0 the flow is that from theta0 in other units, w = c^D w_1(c^(D-2) z). Its
direction settles at a critical point of F on the sphere, where F is f say, so that with
r = |theta|, F = f r^D and theta . grad F = D F (Euler)

    D = 2    r r' = 2 f r^2:     w_1 grows like e^(4 f z);    w = 1 at z = log(1/c^2) / (4 f)
    D > 2    r' = D f r^(D-1):   w_1 blows up at T = z + r^2 / (D (D-2) F);   w = 1 at c^(2-D) T

up to terms that vanish beside these. So Q in units of log(1/c^2) or c^(2-D) tends to a weighted l1
norm with weights 1/(4 f) or T, one for each sign; a sign that w never takes costs infinitely much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import DOP853

from flowbias.derive.derived_potential import NoWarp, potential_along_predictor, remember
from flowbias.derive.parametrization import Parametrization, generic_point, reachable_points
from flowbias.derive.unit_time import MOST_STEPS, RTOL
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import Potential
from flowbias.potentials.scale import double_array

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


@dataclass(frozen=True, eq=False)
class SeparablePotential(Potential):
    """What gradient flow of F(theta) from theta0 minimizes where each parameter moves one w_i.

    Points outside the domain, primal or dual, give NaN (the potential: infinity).

    >>> report = fb.derive.implicit_bias(lambda theta: theta**3, [0.5, 0.2])
    >>> report.potential.grad_dual(np.array([0.1, 0.0])).round(4)
    array([0.2035, 0.008 ])
    """

    flows: CoordinateFlows
    #: which of the flows' coordinates these are
    columns: NDArray[np.intp] = field(repr=False)

    @classmethod
    def of(cls, flows: CoordinateFlows) -> SeparablePotential:
        """Of all coordinates."""
        return cls(flows, np.arange(flows.d))

    @property
    def model(self) -> Parametrization:
        return self.flows.model

    @property
    def dimension(self) -> int:
        return len(self.columns)

    @property
    def rounding(self) -> float:
        """Relative accuracy of all of these: 1e-12 a step, and hundreds of steps at most."""
        return 1e-10

    @property
    def evaluation_rounding(self) -> float:
        return self.rounding

    def grad_dual(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.initial + self.flows.at(row).rise)

    def hess_dual(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.at(row).slope)

    def conjugate_terms(self, z: FloatArray) -> FloatArray:
        def terms(row: FloatArray) -> FloatArray:
            area = self.flows.at(row).area
            return np.where(np.isnan(area), np.inf, self.flows.initial * row + area)

        return self._by_rows("z", z, terms)

    def grad(self, w: FloatArray) -> FloatArray:
        return self._by_rows("w", w, self.flows.dual)

    def value_terms(self, w: FloatArray) -> FloatArray:
        def terms(row: FloatArray) -> FloatArray:
            z = self.flows.dual(row)
            here = self.flows.at(z)
            # w(z) is a rounding error away from w: z (w - w(z)) is what that is worth.
            value = here.value + z * (row - self.flows.initial - here.rise)
            return np.where(np.isnan(value), np.inf, value)

        return self._by_rows("w", w, terms)

    def dual_unit(self, z: FloatArray) -> FloatArray:
        return self._by_rows("z", z, lambda row: self.flows.at(row).unit)

    def along(self, dw: FloatArray, shares: FloatArray) -> FloatArray:
        """Q(w(0) + share dw) for increasing shares in (0, 1], to drawing accuracy; NaN outside."""
        return potential_along_predictor(self.model, NoWarp(), dw, shares)

    def _by_rows(
        self, name: str, given: FloatArray, of: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """One vector of all coordinates after the other; what is not asked for is at its start."""
        points = double_array(given, name)
        try:
            points = np.broadcast_to(points, np.broadcast_shapes(points.shape, self.columns.shape))
        except ValueError as error:
            raise InputError(
                f"{name}: must have one entry per coordinate ({len(self.columns)}), got shape "
                f"{points.shape}. Pass vectors of that length, one per row."
            ) from error
        rest = self.flows.initial if name == "w" else np.zeros(self.flows.d)
        out = np.empty(points.shape)
        for index in np.ndindex(points.shape[:-1]):
            row = rest.copy()
            row[self.columns] = points[index]
            out[index] = of(row)[self.columns]
        return out


class RichCosts(NamedTuple):
    """Of a positive and of a negative unit of each coordinate, and the degree of F."""

    positive: FloatArray
    negative: FloatArray
    degree: float


def degree_of(model: Parametrization) -> float | None:
    """D with F(c theta) = c^D F(theta), by Euler's identity; None where F is not homogeneous."""
    rng = np.random.default_rng(0)
    points = [generic_point(model, rng) for _ in range(3)]
    J = [model.jacobian(point) for point in points]
    along = np.array([rows @ point for rows, point in zip(J, points, strict=True)])
    terms = np.array([np.abs(rows) @ np.abs(at) for rows, at in zip(J, points, strict=True)])
    F = np.array([model.predictor_at(point) for point in points])
    with np.errstate(all="ignore"):
        F, along = F / terms, along / terms
        degree = float(np.sum(F * along) / np.sum(F * F))
        # Relative to its terms: derivatives are exact up to rounding.
        exact = np.abs(along - degree * F).max() <= 1e-10 * max(1.0, abs(degree))
    return float(np.round(degree, 9)) if exact else None


def rich_costs(flows: CoordinateFlows, degree: float, grown: float = 1e20) -> RichCosts:
    """Costs of both sides, in units of their median.

    Read off where w has grown by `grown` over the size of F at the start, and once more at the
    root of that: what a direction has not settled to by then would show.
    """
    late, early = (_costs(flows, degree, growth) for growth in (grown, grown**0.5))
    open_sides = np.isfinite(late)
    with np.errstate(invalid="ignore"):
        unsettled = open_sides & ~(np.abs(late - early) <= 1e-6 * late)
    if unsettled.any():
        raise InputError(
            "model: must have flows whose direction settles to have a known rich limit, got "
            f"w{int(np.argmax(unsettled.any(axis=0))) + 1}, whose growth still changes after a "
            f"factor {grown:.0e}. Take fb.limit_path towards small scales."
        )
    unit = float(np.median(late[open_sides])) if open_sides.any() else 1.0
    return RichCosts(late[0] / unit, late[1] / unit, degree)


def _costs(flows: CoordinateFlows, degree: float, grown: float) -> FloatArray:
    """(2, d): read off where w has grown so much; infinite on sides where it does not."""
    model = flows.model
    size = np.sqrt(flows.block_sums(model.start**2))
    found = []
    for sign in (1.0, -1.0):
        z = flows.dual(flows.initial + sign * grown * size**degree)
        here = flows.at(z)
        square = flows.block_sums(here.theta**2)
        w = sign * (flows.initial + here.rise)
        if degree == 2.0:
            cost = square / (4.0 * w)
        else:
            cost = sign * z + square / (degree * (degree - 2.0) * w)
        found.append(np.where(np.isfinite(cost), cost, np.inf))
    return np.array(found)
