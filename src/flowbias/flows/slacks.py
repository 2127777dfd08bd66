"""The flow of deep networks from tiny starts: coordinates that sleep, and wake one by one.

    w = p^-k - q^-k,    p = a+^(2-D) - z,   q = a-^(2-D) + z,   z = X^T nu,   dnu/dtau = y - X w

with k = D/(D-2), tau = g c t. [woodworth2020, Theorem 3] From a start of scale a the slacks p and q
fall from a^(2-D) to about 1 before their coordinate is seen, so that a state nu, or a time, that is
known to 1e-16 of itself knows nothing of w once a^(D-2) is below that. So slacks are what is
followed here, each to its own digits, on a clock that is set to 0 again and again:

* asleep, a coordinate adds nothing to X w, and its slack moves by X^T of what nu has moved by;
* awake, its smaller slack is an unknown of the integrator's, next to the n of nu since the epoch
  began. An epoch ends where a coordinate wakes, where a slack has lost nine tenths of itself, and
  where the time since it began is so long that its digits would tell steps apart no more.

Internal time counts steps. What they last is summed in two doubles, of which `Trajectory.t` shows
the first: jumps that take less time than its rounding happen at one t.  [docs/solver.md]
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.integrate import LSODA, DenseOutput, OdeSolver, Radau
from scipy.optimize import brentq, nnls

from flowbias.flows.coordinates import BEYOND, FOREVER, FlowCoordinates, HasClock, mirror_time_rate
from flowbias.flows.fit import ReachableFit, equal_columns
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray, Mask
from flowbias.models._base import Parameters

# Share of what the data ask for below which a coordinate sleeps: X w does not see it.
_ASLEEP = 1e-15
# Digits of the dual that must be left where slacks are what the data ask for: with fewer, slacks
# are followed in place of it.
_RESOLVED = 1e-12
# What is left of a slack at the end of an epoch: one digit of it is lost, none of the next. As much
# of it, as long as its velocity is no rounding, the first step of an epoch takes.
_DIGIT = 0.1
# Longest time since an epoch began, in steps: their digits are ten below those of the time.
_STEPS_TOLD_APART = 1e5
# Speed relative to its terms at which what is awake has come to rest: some thousand roundings.
_AT_REST = 1e-12
# Steps of one epoch after which the next begins with implicit ones: where coordinates fall asleep
# again, like a power of time, LSODA may go on in steps as short as what is at rest by then allows.
_PATIENCE = 400
# Share of the largest below which a coordinate that shrinks fades, and rounding of its velocity, in
# units of rtol, from which on it is not waited for: tied with others it shrinks like a power of
# time, over as many decades as the start has, and steps that follow rounding do not grow with time.
_FADED, _FOLLOWED = 1e-5, 1e3
# Share of its first slack to which a sleeping one is known: that to which what is awake is at rest,
# a hundred times; what that may be of its last one; and from which share of what the data ask for
# on a coordinate counts.
_BLUR, _TOLD, _COUNTS = 100.0 * _AT_REST, 1e-4, 1e-6


def needs_slacks(model: Any, fit: ReachableFit) -> bool:
    """Whether a dual in doubles would not tell w: eps a^(2-D) beyond its slacks at the end."""
    potential = model.potential
    typical = _typical(fit)
    logs = np.concatenate([np.ravel(potential.log_plus), np.ravel(potential.log_minus)])
    logs = logs[np.isfinite(logs)]
    if typical == 0.0 or not logs.size:
        return False
    widest = (2.0 - potential.depth) * float(logs.min())
    return bool(widest + np.log(typical) / potential.exponent > np.log(_RESOLVED / EPS))


def _typical(fit: ReachableFit) -> float:
    """A size of w that the data ask for."""
    return fit.size / float(fit.column_lengths.max())


class SlackCoordinates(FlowCoordinates):
    """p, q and nu, one after the other, in units of exp(log_unit) like all duals."""

    name = "dual"

    def __init__(self, model: HasClock, fit: ReachableFit, c: float) -> None:
        potential: Any = model.potential
        self.model, self.fit, self.time_rate = model, fit, mirror_time_rate(model, c)
        self.d, self.unit = fit.rows.shape[1], float(potential.log_unit)
        self.depth, self.exponent = float(potential.depth), float(potential.exponent)
        shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), (self.d,))
        with np.errstate(over="ignore"):
            plus, minus = (
                np.exp((2.0 - self.depth) * np.broadcast_to(log, (self.d,)) - self.unit)
                for log in (potential.log_plus, potential.log_minus)
            )
        self.start = np.concatenate([plus - shift, minus + shift, np.zeros(len(fit.rows))])
        #: slack above which a coordinate sleeps
        self.threshold = self._slack_of(_ASLEEP)
        #: slack of a predictor far above all that the flow visits
        shortest = float(np.linalg.norm(np.linalg.lstsq(fit.rows, fit.target)[0]))
        largest = BEYOND * (shortest + float(np.abs(self.predictor(self.start)).max()))
        self.least = float(np.exp(-np.log(largest or 1.0) / self.exponent - self.unit))
        self.clock = StepClock()
        #: columns that are equal up to sign, from equal starts, have equal slacks
        starts = np.array([plus - shift, minus + shift])
        self._first, self._copies, self._signs = equal_columns(fit.rows, starts)
        self._columns = fit.rows[:, self._first]

    def _slack_of(self, share: float) -> float:
        """The slack of a coordinate that is this share of what the data ask for."""
        size = np.log(share * _typical(self.fit))
        return float(np.exp(-size / self.exponent - self.unit))

    def moved(self, risen: FloatArray) -> FloatArray:
        """X^T of what nu has risen by, the same to the last bit for equal columns."""
        if len(self._first) == self.d:
            return np.asarray(risen @ self.fit.rows)
        return np.asarray(self._signs * (risen @ self._columns)[self._copies])

    def sizes(self, slacks: FloatArray) -> FloatArray:
        """p^-k."""
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return np.asarray(np.exp(-self.exponent * (self.unit + np.log(slacks))))

    def parts(self, states: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """p, q and nu of one state, or of each row."""
        d = self.d
        return states[..., :d], states[..., d : 2 * d], states[..., 2 * d :]

    def predictor(self, states: FloatArray) -> FloatArray:
        p, q, _ = self.parts(states)
        return np.asarray(self.sizes(p) - self.sizes(q))

    def dual(self, states: FloatArray) -> FloatArray:
        return self.fit.dual_of_data(self.parts(states)[2])

    def parameters(self, state: FloatArray) -> Parameters:
        model: Any = self.model
        p, q, _ = self.parts(state)
        start = model.parameters(np.zeros(self.d))
        up, down = (np.exp(-(self.unit + np.log(slack)) / (self.depth - 2.0)) for slack in (p, q))
        # At odd depth a pair of negative weights trades places.
        swapped = (self.depth % 2.0 == 1.0) & ((start[0] < 0.0) | (start[1] < 0.0))
        sizes = np.where(swapped, down, up), np.where(swapped, up, down)
        weights: Parameters = type(start)(
            *(np.copysign(s, w) for s, w in zip(sizes, start, strict=True))
        )
        return weights

    def rounding(self, state: FloatArray) -> FloatArray:
        rows, p, q = np.abs(self.fit.rows), *self.parts(state)[:2]
        terms = self.exponent * (self.sizes(p) + self.sizes(q))
        return np.asarray(sum(rows.shape) * EPS * (rows @ terms))

    def ahead(self, state: FloatArray) -> FloatArray:
        """Slacks of those that are to wake, and of those that fall asleep what is left of them."""
        p, q, _ = self.parts(state)
        share = np.minimum(p, q) / self.threshold
        return np.concatenate([share, 1.0 / np.minimum(share, 1.0)])

    def stage(self, state: FloatArray) -> bytes:
        """Which coordinates are awake."""
        return bytes(np.minimum(*self.parts(state)[:2]) <= 2.0 * self.threshold)

    def undecided(self, states: list[FloatArray]) -> tuple[int, ...]:
        """Coordinates whose share in the fit is below the rounding of slacks: they woke together.

        Asked wherever the flow was at rest, before one more woke and at the end: whether one that
        cannot be told from waking may grow while others make up for it, X w being the same.
        """
        p, q, _ = self.parts(np.array(states))
        nearer, blur = np.minimum(p, q), _BLUR * np.where(p <= q, p[0], q[0])
        awake = nearer <= 2.0 * self.threshold
        woken = np.flatnonzero((awake[1:] & ~awake[:-1]).any(axis=1))
        least = self._slack_of(_COUNTS)
        for k in (*woken, len(states) - 1):
            # Where the start is not so small, slacks of what counts are known better than that.
            near = (nearer[k] <= least + blur[k]) & (blur[k] > _TOLD * nearer.min())
            counts, sides = nearer[k] <= least, np.where(p[k] <= q[k], 1.0, -1.0)
            tied = [int(i) for i in np.flatnonzero(near) if self._may_move(i, near, counts, sides)]
            if tied:
                return tuple(tied)
        return ()

    def _may_move(self, i: np.intp, near: Mask, counts: Mask, sides: FloatArray) -> bool:
        """Whether X v = 0 for some v with v_i = 1 (or -1) that keeps to its side where w is 0."""
        firsts = np.intersect1d(np.flatnonzero(near | counts), self._first)
        others = firsts[firsts != i]
        if i not in firsts or not len(others):
            return False
        free, bound = (self.fit.rows[:, others[c]] for c in (counts[others], ~counts[others]))
        columns = np.hstack([free, -free, sides[others[~counts[others]]] * bound])
        missed = [nnls(columns, sign * self.fit.rows[:, i])[1] for sign in (-sides[i], sides[i])]
        left = min(missed) if counts[i] else missed[0]
        return bool(left <= _COUNTS * self.fit.column_lengths[i])

    def natural_scales(self) -> tuple[float, float]:
        return 1.0, 1.0

    def times(self, readings: FloatArray) -> FloatArray:
        return self.clock.times(readings) / self.time_rate

    def readings(self, times: FloatArray) -> FloatArray:
        return self.clock.readings(times * self.time_rate)

    def durations(self, readings: FloatArray) -> FloatArray:
        return self.clock.durations(readings) / self.time_rate

    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        self.clock.turn_back(time)
        share = options["first_step"] if 0.0 < options["first_step"] < 1.0 else 1.0
        length = share * self.clock.last
        solver: Any = SlackSolver(self, time, state, end, length, options["rtol"])
        stepper: OdeSolver = solver
        return stepper


class StepClock:
    """Counts steps, and sums what they last in two doubles.

    Reading k is the end of the k-th step; between two of them time runs evenly.
    """

    def __init__(self) -> None:
        self._high, self._low, self._lengths = [0.0], [0.0], [0.0]

    @property
    def end(self) -> float:
        """The time at the last reading."""
        return self._high[-1]

    @property
    def last(self) -> float:
        """How long the last step lasted; for ever where there was none."""
        return self._lengths[-1] if len(self._lengths) > 1 else np.inf

    def tick(self, length: float) -> None:
        """One more step."""
        high, low = self._high[-1], self._low[-1] + length
        total = high + low
        self._high.append(total)
        self._low.append(low - (total - high) if low <= high else high - (total - low))
        self._lengths.append(length)

    def turn_back(self, reading: float) -> None:
        """Forget the steps after a reading: they were not accepted."""
        kept = int(reading) + 1
        del self._high[kept:], self._low[kept:], self._lengths[kept:]

    def times(self, readings: FloatArray) -> FloatArray:
        """Rounded to one double each."""
        step = np.minimum(np.ceil(readings).astype(int), len(self._high) - 1)
        before = (step - readings) * np.take(self._lengths, step)
        return np.asarray(np.take(self._high, step) + (np.take(self._low, step) - before))

    def durations(self, readings: FloatArray) -> FloatArray:
        """From one reading, a whole number like all of them, to the next."""
        return np.take(self._lengths, readings.astype(int))

    def readings(self, times: FloatArray) -> FloatArray:
        """The last reading at each of the times, as far as doubles tell times apart."""
        rounded = times * (1.0 + 4.0 * float(np.finfo(float).eps))
        step = np.searchsorted(self._high, rounded, side="right") - 1
        after = np.minimum(step + 1, len(self._high) - 1)
        lengths = np.take(self._lengths, after)
        passed = (times - np.take(self._high, step)) - np.take(self._low, step)
        share = np.divide(passed, lengths, out=np.zeros_like(passed), where=lengths > 0.0)
        return np.where(after > step, step + np.clip(share, 0.0, 1.0), step)


class SlackSolver:
    """Steps of the flow of slacks, as the driver knows integrators; `end` is a time, not a step."""

    def __init__(
        self,
        coordinates: SlackCoordinates,
        reading: float,
        state: FloatArray,
        end: float,
        length: float,
        rtol: float,
    ) -> None:
        self.coordinates, self.t, self.y, self.end = coordinates, reading, state, end
        self.length, self.rtol = length, rtol
        self.status, self.nfev, self.njev = "running", 0, 0
        self._epoch: Epoch | None = None
        self._is_stiff = False
        self._piece: DenseOutput | None = None

    def step(self) -> str | None:
        for _ in range(12):
            if self._epoch is None:
                if self.length == 0.0:  # tenths of tenths, at the end of the double range
                    break
                left = self.end - self.coordinates.clock.end
                kind = Radau if self._is_stiff else LSODA
                self._epoch = Epoch(self.coordinates, self.y, left, self.length, self.rtol, kind)
            epoch = self._epoch
            found = epoch.advance()
            self.nfev, self.njev = self.nfev + epoch.evaluations, self.njev + epoch.jacobians
            if found is None:  # no step is short enough for the digits of this epoch's time
                self._epoch, self.length = None, 0.1 * epoch.length
                continue
            begin, last = found
            self._piece = _Piece(epoch, begin, last, self.t)
            self.t, self.y, self.length = self.t + 1.0, epoch.state(last), epoch.length
            self.coordinates.clock.tick(last - begin)
            if epoch.is_over(last):
                self._epoch, self._is_stiff = None, epoch.steps >= _PATIENCE
            if self.coordinates.clock.end < self.end:
                return None
            if self.end < FOREVER:
                self.status = "finished"
                return None
            self.status = "failed"
            return "what is left of the velocity is rounding, next to rows in larger units"
        self.status = "failed"
        return "the step is below the spacing of numbers at that time"

    def dense_output(self) -> DenseOutput | None:
        return self._piece


class Epoch:
    """Some steps from one state on, in the slacks of those awake and in nu since it began."""

    def __init__(
        self,
        coordinates: SlackCoordinates,
        state: FloatArray,
        left: float,
        length: float,
        rtol: float,
        kind: type[LSODA | Radau],
    ) -> None:
        self.coordinates, self.rows, self.steps = coordinates, coordinates.fit.rows, 0
        self.p, self.q, self.nu = coordinates.parts(state)
        self.side = np.where(self.p <= self.q, 1.0, -1.0)
        nearer, self.total = np.minimum(self.p, self.q), self.p + self.q
        self.awake = np.flatnonzero(nearer <= 2.0 * coordinates.threshold)
        self.asleep = np.flatnonzero(nearer > 2.0 * coordinates.threshold)
        #: where a sleeping slack ends the epoch
        self._levels = np.maximum(coordinates.threshold, _DIGIT * nearer[self.asleep])
        self._columns = self.rows[:, self.awake]
        self._signs, self._total = self.side[self.awake], self.total[self.awake]
        self.start = np.concatenate([nearer[self.awake], np.zeros(len(self.rows))])
        self.evaluations = self.jacobians = 0
        self._crossed = False
        self._rounding = max(EPS / (_FOLLOWED * rtol), _AT_REST)
        self._first_pull = self._pull(self.start[: len(self.awake)])
        shortest = self._first_step(self.start, self._first_pull)
        # Where nothing that is awake moves, all else moves evenly until the next one wakes.
        self.is_even = shortest == np.inf
        self.horizon = min(self._horizon(), left)
        self.length = min(length, shortest, self.horizon)
        self._solver = None if self.is_even else self._integrator(kind, rtol)

    def _integrator(self, kind: type[LSODA | Radau], rtol: float) -> OdeSolver:
        widest = float(self.coordinates.fit.column_lengths.max())
        atol = np.zeros(len(self.start))
        atol[len(self.awake) :] = rtol * self.coordinates.threshold / widest
        options: dict[str, Any] = {"first_step": self.length, "rtol": rtol, "atol": atol}
        return kind(self.velocity, 0.0, self.start, self.horizon, jac=self.jacobian, **options)

    def __getstate__(self) -> dict[str, Any]:
        # Curves travel between processes; the integrator, which holds functions, is done.
        return {**self.__dict__, "_solver": None}

    # --- the field -----------------------------------------------------------------------------

    def _pull(self, slacks: FloatArray) -> FloatArray:
        sizes = self.coordinates.sizes
        w = self._signs * (sizes(slacks) - sizes(self._total - slacks))
        return np.asarray(self.coordinates.fit.target - self._columns @ w)

    def velocity(self, _: float, unknowns: FloatArray) -> FloatArray:
        # Trial points beyond the end of a slack: far above anything the flow visits, a step that
        # goes there fails and is retried shorter.
        pull = self._pull(np.maximum(unknowns[: len(self.awake)], self.coordinates.least))
        return np.concatenate([-self._signs * (pull @ self._columns), pull])

    def jacobian(self, _: float, unknowns: FloatArray) -> FloatArray:
        self.jacobians += 1
        count = len(self.awake)
        slacks, k = unknowns[:count], self.coordinates.exponent
        other = self._total - slacks
        sizes = self.coordinates.sizes
        slope = -k * (sizes(slacks) / slacks + sizes(other) / other)
        slope = np.where(slacks > self.coordinates.least, slope, 0.0)
        matrix = np.zeros((len(unknowns), len(unknowns)))
        moved = self._columns * (self._signs * slope)
        matrix[count:, :count] = -moved
        matrix[:count, :count] = self._signs[:, None] * (self._columns.T @ moved)
        return matrix

    # --- how far ---------------------------------------------------------------------------------

    def _horizon(self) -> float:
        """When, at this speed, the first of the sleeping ones wakes, or has a tenth left."""
        drift = self._first_pull @ self.rows[:, self.asleep]
        slacks = np.where(drift > 0.0, self.p[self.asleep], self.q[self.asleep])
        way = slacks - self.coordinates.threshold
        if not self.is_even:
            way = np.minimum(way, (1.0 - _DIGIT) * slacks)
        with np.errstate(divide="ignore"):
            times = way / np.abs(drift)
        return float(np.min(times, initial=np.inf))

    def _first_step(self, unknowns: FloatArray, pull: FloatArray) -> float:
        """A part of what is awake, as long as it moves; inf where all of it is at rest."""
        slacks = unknowns[: len(self.awake)]
        sizes = self.coordinates.sizes(slacks)
        terms = np.abs(self.coordinates.fit.target) + np.abs(self._columns) @ sizes
        rise, unit = -self._signs * (pull @ self._columns), terms @ np.abs(self._columns)
        fades = (sizes < _FADED * sizes.max(initial=0.0)) & (rise > _AT_REST * unit)
        slow = self._rounding if (fades & (rise <= self._rounding * unit)).any() else _AT_REST
        moves = np.abs(rise) > slow * unit
        return float(np.min(_DIGIT * slacks[moves] / np.abs(rise[moves]), initial=np.inf))

    # --- steps -----------------------------------------------------------------------------------

    def advance(self) -> tuple[float, float] | None:
        """One step: from which local time to which; None where there is none."""
        if self._solver is None:
            self.length = self.horizon
            return 0.0, self.horizon
        self.steps += 1
        begin, before = float(self._solver.t), self._solver.nfev
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="lsoda:|Diagonal number")
            self._solver.step()
        self.evaluations = self._solver.nfev - before
        last = float(self._solver.t)
        if self._solver.status == "failed" or last == begin:
            return None
        self._dense = self._solver.dense_output()
        self.length = last - begin
        crossing = self._crossing(begin, last)
        if crossing is not None:
            self._crossed, last = True, crossing
            self.length = last - begin
        return (begin, last) if last > begin else None

    def _sleeping(self, local: float) -> FloatArray:
        """The nearer slacks of those asleep."""
        moved = self.coordinates.moved(self._unknowns(local)[len(self.awake) :])
        return np.asarray(np.minimum(self.p - moved, self.q + moved)[self.asleep])

    def _crossing(self, begin: float, last: float) -> float | None:
        """When the first of the sleeping ones woke, or had a tenth left, if one did."""
        beyond = np.flatnonzero(self._sleeping(last) < self._levels)

        def left(local: float, which: int) -> float:
            return float(self._sleeping(local)[which] - self._levels[which])

        times = [
            brentq(left, begin, last, args=(int(which),), xtol=4.0 * EPS * last)
            for which in beyond
            if left(begin, int(which)) > 0.0
        ]
        return min(times, default=None)

    def is_over(self, last: float) -> bool:
        """Whether another epoch has to begin at the end of this step."""
        if self._solver is None or self._crossed or self._solver.status != "running":
            return True
        unknowns = self._unknowns(last)
        pull = self._pull(unknowns[: len(self.awake)])
        at_rest = self._first_step(unknowns, pull) == np.inf
        too_long = last > _STEPS_TOLD_APART * self.length
        return at_rest or too_long or self.steps == _PATIENCE

    def _unknowns(self, local: float) -> FloatArray:
        if self.is_even:
            slacks = self.start[: len(self.awake)]
            return np.concatenate([slacks, self._first_pull * local])
        return np.asarray(self._dense(local))

    def state(self, local: float, unknowns: FloatArray | None = None) -> FloatArray:
        """p, q and nu at a time since the epoch began."""
        unknowns = self._unknowns(local) if unknowns is None else unknowns
        slacks, risen = unknowns[: len(self.awake)], unknowns[len(self.awake) :]
        moved = self.coordinates.moved(risen)
        # What wakes at the end of an even stretch is at the threshold, whatever rounding says.
        least = self.coordinates.threshold if self.is_even else -np.inf
        p, q = np.maximum(self.p - moved, least), np.maximum(self.q + moved, least)
        up = self.awake[self._signs > 0.0]
        down = self.awake[self._signs < 0.0]
        p[up] = slacks[self._signs > 0.0]
        q[up] = self.total[up] - p[up]
        q[down] = slacks[self._signs < 0.0]
        p[down] = self.total[down] - q[down]
        return np.concatenate([p, q, self.nu + risen])


class _Piece(DenseOutput):
    """The states of one step, over its reading."""

    def __init__(self, epoch: Epoch, begin: float, last: float, reading: float) -> None:
        super().__init__(reading, reading + 1.0)
        self._epoch, self._begin, self._length = epoch, begin, last - begin
        self._inner: Any = None if epoch.is_even else epoch._dense

    def _call_impl(self, t: FloatArray) -> FloatArray:
        if t.ndim == 0:
            return self._at(float(t))
        return np.stack([self._at(float(reading)) for reading in t], axis=1)

    def _at(self, reading: float) -> FloatArray:
        local = self._begin + (reading - self.t_old) * self._length
        inner = None if self._inner is None else np.asarray(self._inner(local))
        return self._epoch.state(local, inner)
