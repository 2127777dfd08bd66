"""Steps of gradient descent: what is asked for, what chance decides, how they end, and their loop.

    v <- momentum v + gradient of (the loss of the step's samples + weight_decay ||theta||^2 / 2)
    theta <- theta - step_size schedule(k) v

as torch.optim.SGD takes them. The samples of a step and the noise on their labels are functions of
the seed and of the number of the step alone, block by block. So a run is the same alone and beside
others, and any part of it can be taken again. Every sample is seen once in an epoch, in a new order
each time; where the batches do not divide the samples, those left over at the end of an epoch wait
for the next. A batch is then a uniform subset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.destination import LimitT, TowardsLimit
from flowbias.flows.request import check_tolerance
from flowbias.ground.arguments import InputError, as_float, read_rng, shown, takes
from flowbias.ground.drawing import course
from flowbias.ground.typing import FloatArray, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Samples and noise of some steps; None for all samples, and for no noise.
Drawn = tuple[NDArray[np.intp] | None, FloatArray | None]


@dataclass(frozen=True)
class Draws:
    """Batches of n samples and the noise on their labels, for the steps of one seed."""

    n: int
    batch_size: int | None  # None: all samples
    label_noise: float  # standard deviation
    outputs: int = 1  # labels of a sample
    least: int = 256  # steps to a block, or the rest of an epoch more

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size > self.n:
            raise InputError(
                f"batch_size: must be at most the number of samples, {self.n}, "
                f"got {shown(self.batch_size)}. Leave it out for full batches."
            )

    @property
    def is_random(self) -> bool:
        return self.batch_size is not None or self.label_noise > 0.0

    @property
    def per_step(self) -> int:
        """How many samples a step sees."""
        return self.n if self.batch_size is None else self.batch_size

    @property
    def epoch(self) -> int:
        """Steps in which every sample is seen, but for a rest that makes no batch."""
        return self.n // self.per_step

    @property
    def steps(self) -> int:
        """Steps to a block: whole epochs."""
        return -(-self.least // self.epoch) * self.epoch

    def block(self, seed: int, number: int) -> Drawn:
        """Samples and noise of the steps of a block: (steps, per_step), of noise times outputs."""
        rng = np.random.default_rng([seed, number])
        samples = None
        if self.batch_size is not None:
            orders = np.arange(self.n)[None].repeat(self.steps // self.epoch, axis=0)
            seen = rng.permuted(orders, axis=1, out=orders)[:, : self.epoch * self.batch_size]
            samples = seen.reshape(self.steps, self.batch_size)
        noise = None
        if self.label_noise > 0.0:
            noise = self.label_noise * rng.standard_normal(
                (self.steps, self.per_step * self.outputs)
            )
        return samples, noise


# Growth of the residual from which gradient descent does not come back.
_HOPELESS = 1e6

#: The numbers that a descent carries from step to step, one row per run in each array.
State = tuple[FloatArray, ...]


class DescentStatus(Enum):
    """How a descent ended."""

    CONVERGED = "converged: relative residual {residual:.1e} after {steps} steps"
    RESTED = (
        "at rest after {steps} steps: weight decay of {weight_decay:g} balances the loss, relative "
        "residual {residual:.1e}"
    )
    STOPPED = (
        "relative residual {residual:.1e} after {steps} steps: raise max_steps or step_size, or "
        "take limit(model, X, y), which does not iterate"
    )
    NOISY = (
        "relative residual {residual:.1e} after the {steps} steps asked for: noise of "
        "{label_noise:g} on the labels lets no descent rest; lower label_noise or step_size"
    )
    DIVERGED = (
        "diverged after {steps} steps, of which the last finite one is kept: lower "
        "step_size = {step_size:g}; at the start it is stable below {stable:.2g}, and less where "
        "the weights grow"
    )

    @property
    def ok(self) -> bool:
        return self is not DescentStatus.DIVERGED


@dataclass(frozen=True)
class DescentRequest:
    """The arguments of `gradient_descent`, checked."""

    step_size: float
    max_steps: int = 100_000
    loss: str | float = "half"
    residual: float = 1e-8
    batch_size: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    label_noise: float = 0.0
    schedule: Callable[[int], float] | None = None
    rng: Any = None
    record_every: int | None = None

    def __post_init__(self) -> None:
        read: dict[str, Any] = {
            "step_size": _range("step_size", self.step_size, "> 0 and finite", "1e-3", above=True),
            "max_steps": _count("max_steps", self.max_steps, "max_steps=100_000"),
            "residual": check_tolerance("residual", self.residual),
        }
        for name, value in (("batch_size", self.batch_size), ("record_every", self.record_every)):
            read[name] = None if value is None else _count(name, value, f"{name}=1")
        read["momentum"] = _range("momentum", self.momentum, "in [0, 1)", "0.9", end=1.0)
        read["weight_decay"] = _range("weight_decay", self.weight_decay, ">= 0 and finite", "1e-3")
        read["label_noise"] = _range("label_noise", self.label_noise, ">= 0 and finite", "0.1")
        # Counts of eight bits and fractions of integers would be computed with as they are.
        self.__dict__.update(read)
        if self.schedule is not None and not takes(self.schedule, 1):
            raise InputError(
                f"schedule: must be a function of the step's number, got {shown(self.schedule)}. "
                "Pass for instance lambda k: 1 / (1 + k / 1000); it multiplies step_size."
            )

    def size(self, step: int) -> float:
        """The length of a step."""
        if self.schedule is None:
            return self.step_size
        try:
            returned = self.schedule(step)
        except Exception as error:
            raise InputError(
                f"schedule: must return a finite number >= 0, got {error!r} at step {step}. It "
                "multiplies step_size."
            ) from error
        factor = as_float(returned)
        if factor is None or not 0.0 <= factor < np.inf:
            raise InputError(
                f"schedule: must return a finite number >= 0, got {shown(returned)} at step "
                f"{step}. It multiplies step_size."
            )
        return self.step_size * factor

    def shares(self, first: int, last: int) -> FloatArray:
        """The lengths of the steps from `first` up to `last`, relative to step_size."""
        if self.schedule is None:
            return np.ones(last - first)
        return np.array([self.size(step) for step in range(first, last)]) / self.step_size

    @property
    def is_several(self) -> bool:
        """Whether more than one seed was given."""
        if isinstance(self.rng, np.ndarray):
            return self.rng.ndim > 0
        return isinstance(self.rng, Sequence) and not isinstance(self.rng, str)

    @property
    def seeds(self) -> list[int]:
        """One per run."""
        if self.is_several:
            if not len(self.rng):
                raise InputError("rng: must hold a seed at least, got none. Pass range(32).")
            return [_seed(each) for each in self.rng]
        return [_seed(np.random.default_rng() if self.rng is None else self.rng)]

    def draws(self, n: int, outputs: int = 1) -> Draws:
        """What chance decides, for n samples of so many outputs."""
        return Draws(n, self.batch_size, self.label_noise, outputs)

    def interval(self, draws: Draws) -> int:
        """Steps from one residual of all samples to the next: it costs as much as an epoch."""
        every = 1 if self.batch_size is None else 10 * draws.epoch
        return every if self.record_every is None else self.record_every


def _range(
    name: str, value: object, must: str, fix: str, *, above: bool = False, end: float = np.inf
) -> float:
    number = as_float(value)
    if number is None or not 0.0 <= number < end or (above and number == 0.0):
        raise InputError(f"{name}: must be {must}, got {shown(value)}. Try {fix}.")
    return number


def _count(name: str, value: object, fix: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}: must be an integer >= 1, got {shown(value)}. Try {fix}.")
    return int(value)


def _seed(rng: Any) -> int:
    """The seed itself, or one drawn from a generator."""
    generator = read_rng(rng)
    return int(rng) if isinstance(rng, Integral) else int(generator.integers(2**63))


@dataclass(frozen=True, eq=False, repr=False)
class BaseDescent(TowardsLimit[LimitT]):
    """Where gradient descent ended; residual[i] is the relative residual after recorded[i] steps.

    `seed` is what `rng` was or stood for: the same seed takes the same steps.
    """

    status: DescentStatus
    steps: int
    seconds: float
    residual: FloatArray
    recorded: Indices
    request: DescentRequest
    seed: int
    model: Any
    problem: Any

    @property
    def step_size(self) -> float:
        return self.request.step_size

    @property
    @abstractmethod
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        return self.status.value.format(
            residual=self.residual[-1],
            steps=self.steps,
            step_size=self.step_size,
            stable=self.stable_step_size,
            weight_decay=self.request.weight_decay,
            label_noise=self.request.label_noise,
        )

    def _residuals(self, axes: Axes) -> None:
        """The residual after each step that was recorded."""
        course(axes, self.recorded.astype(float), self.residual, label="relative residual")
        axes.set_xlabel("steps")
        axes.set_title(f"{self.status.name}, step size {self.step_size:.4g}")

    @abstractmethod
    def _looks(self) -> Mapping[str, str | float]:
        """What the end looks like."""

    def _facts(self) -> Mapping[str, str | float | None]:
        return {
            "steps": f"{self.steps}",
            "step size": self.step_size,
            **self._others,
            "relative residual": float(self.residual[-1]),
            **self._looks(),
            "seconds": f"{self.seconds:.3g}",
        }

    @property
    def _others(self) -> dict[str, float]:
        """What else was asked of the steps."""
        request = self.request
        asked = {
            "batch size": request.batch_size or 0.0,
            "momentum": request.momentum,
            "weight decay": request.weight_decay,
            "label noise": request.label_noise,
        }
        return {name: value for name, value in asked.items() if value}

    def _about(self) -> str:
        """What only this kind of descent has, in a line."""
        return ""

    def _lines(self) -> tuple[str, ...]:
        others = "".join(f"{name}={value:g}, " for name, value in self._others.items())
        return (f"{self._about()}{others}seconds={self.seconds:.3g}",)


class Process(ABC):
    """Descents side by side, one per seed; all arrays of the state have a row for each."""

    seeds: list[int]
    state: State

    @abstractmethod
    def residuals(self) -> FloatArray:
        """The relative residual of each, on all samples and their true labels."""

    @abstractmethod
    def predictors(self) -> FloatArray:
        """What weight decay brings to rest, one row each."""

    @abstractmethod
    def advance(self, first: int, last: int) -> None:
        """Take the steps from `first` up to `last`, in place."""

    def select(self, places: Sequence[int], state: State) -> None:
        """Go on with these of the descents, from this state of all."""
        self.seeds = [self.seeds[place] for place in places]
        self.state = tuple(part[list(places)] for part in state)

    def copy(self) -> State:
        """The state as it is now."""
        return tuple(part.copy() for part in self.state)


class Ended(NamedTuple):
    """How one descent ended, the residuals on the way, and its last state."""

    status: DescentStatus
    steps: int
    recorded: list[int]
    residuals: list[float]
    state: State


def take_steps(process: Process, request: DescentRequest, interval: int) -> list[Ended]:
    """Advance each descent until its residual is small; of each how it ended.

    A step from which there is no coming back is not taken: the last state is finite.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        return _Loop(process, request, interval).run()


class _Loop:
    """The descents that still run, and what they have recorded."""

    def __init__(self, process: Process, request: DescentRequest, interval: int) -> None:
        self.process, self.request, self.interval = process, request, interval
        self.running = list(range(len(process.seeds)))
        self.recorded: list[list[int]] = [[] for _ in self.running]
        self.residuals: list[list[float]] = [[] for _ in self.running]
        self.ended: dict[int, Ended] = {}
        self.rests = request.weight_decay > 0.0 and request.label_noise == 0.0
        self.rests = self.rests and request.batch_size is None
        self.largest = 0.0  # of all predictors so far

    def run(self) -> list[Ended]:
        process, step = self.process, 0
        kept = process.copy()
        before = process.predictors() if self.rests else None
        self._record(0, kept, None)
        while self.running:
            last = min(step + self.interval, self.request.max_steps)
            process.advance(step, last)
            moved = None
            if before is not None:
                after = process.predictors()
                moved = self._moved(before, after, step, last)
                before = after
            places = self._record(last, kept, moved, step)
            if before is not None:
                before = before[places]
            step, kept = last, process.copy()
        return [self.ended[replicate] for replicate in sorted(self.ended)]

    def _moved(self, before: FloatArray, after: FloatArray, step: int, last: int) -> FloatArray:
        """How far each predictor goes, relative to its size, in the time of the weight decay."""
        request = self.request
        time = request.weight_decay * request.step_size * request.shares(step, last).sum()
        # In more than that time what is at rest has not moved at all; nor does a decay that
        # multiplies weights by -1e3 come to rest.
        time = min(time, 1.0)
        if time == 0.0:
            # A schedule that begins or pauses at 0 says nothing of rest.
            return np.full(len(after), np.inf)
        # Decay may end at 0, which nothing is relative to.
        self.largest = max(self.largest, float(np.max(np.linalg.norm(after, axis=-1))))
        return np.asarray(np.linalg.norm(after - before, axis=-1) / (time * self.largest))

    def _record(
        self, step: int, kept: State, moved: FloatArray | None, before: int = 0
    ) -> list[int]:
        """Note the residuals, end what has ended; the places of those that go on."""
        residuals, now = self.process.residuals(), self.process.state
        going_on = []
        for place, replicate in enumerate(self.running):
            residual = float(residuals[place])
            if self._is_lost(replicate, residual):
                self._end_before(replicate, place, kept, (before, step))
                continue
            self.recorded[replicate].append(step)
            self.residuals[replicate].append(residual)
            status = self._status(step, residual, None if moved is None else float(moved[place]))
            if status is None:
                going_on.append(place)
            else:
                self._end(replicate, status, step, tuple(part[place].copy() for part in now))
        if len(going_on) < len(self.running):
            self.running = [self.running[place] for place in going_on]
            self.process.select(going_on, now)
        return going_on

    def _status(self, step: int, residual: float, moved: float | None) -> DescentStatus | None:
        if residual <= self.request.residual:
            return DescentStatus.CONVERGED
        if moved is not None and not moved > self.request.residual:
            return DescentStatus.RESTED
        if step < self.request.max_steps:
            return None
        return DescentStatus.NOISY if self.request.label_noise else DescentStatus.STOPPED

    def _is_lost(self, replicate: int, residual: float) -> bool:
        earlier = self.residuals[replicate]
        return bool(earlier) and not residual < _HOPELESS * max(earlier[0], 1.0)

    def _end(self, replicate: int, status: DescentStatus, steps: int, state: State) -> None:
        self.ended[replicate] = Ended(
            status, steps, self.recorded[replicate], self.residuals[replicate], state
        )

    def _end_before(
        self, replicate: int, place: int, kept: State, between: tuple[int, int]
    ) -> None:
        """Take the steps since the last record again, one by one, up to the one that is lost."""
        process, (step, last) = self.process, between
        seeds, together = process.seeds, process.state
        process.select([place], kept)
        finite = process.copy()
        while step + 1 < last:
            process.advance(step, step + 1)
            residual = float(process.residuals()[0])
            if self._is_lost(replicate, residual):
                break
            step, finite = step + 1, process.copy()
            self.recorded[replicate].append(step)
            self.residuals[replicate].append(residual)
        self._end(replicate, DescentStatus.DIVERGED, step, tuple(part[0] for part in finite))
        process.seeds = seeds
        process.select(range(len(seeds)), together)
