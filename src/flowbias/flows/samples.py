"""Descents whose predictors see samples: the gradient of a step, and what it moves.

    g = c (n / b) X_b^T (X_b w - y_b - noise)

which is that of the loss (c/2) ||X w - y||^2 in the mean. What the samples were multiplied by is
summed up on the way, as a momentum would carry it: n numbers, with the sum of all steps times
their gradients in the span of the samples.

Of depth-2 diagonal networks, tied or not, steps multiply, whatever they see:

    w = p^2 - m^2,    p <- p (1 - x_k),    m <- m (1 + x_k),    x_k = rate * step * gradient in w

rate 2 for tied weights, p = w+ and m = w-; 1 for untied ones, where p^2 and m^2 are sums of squares
of u+ + v+, u- - v- and of u+ - v+, u- + v-, each of which every step multiplies by the same factor.
Flow would multiply by exp(-x_k) and exp(x_k). So the end of a descent is where the flow from

    p_eff = p exp(sum x_k),    m_eff = m exp(-sum x_k)

passes after the same sum of gradients; and as that lies in the span of the samples, a descent that
fits ends exactly at the limit of that flow (docs/theory/descent.md). The weights of other models
move as their `parameter_gradient` says.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.coordinates import ParameterLayout
from flowbias.flows.effective import EffectiveStart, taken_back
from flowbias.flows.fit import ReachableFit
from flowbias.flows.steps import DescentRequest, Draws, Process, State
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression


def aligned(shape: tuple[int, ...]) -> FloatArray:
    """Zeros that begin at a line of the cache, from where a BLAS takes a fifth less time."""
    line = 8  # doubles
    flat = np.zeros(int(np.prod(shape)) + line)
    first = -(flat.ctypes.data // flat.itemsize) % line
    return flat[first : first + flat.size - line].reshape(shape)


@dataclass(eq=False)
class _Block:
    """What chance has decided for the steps of a block, (steps, runs, batch) each."""

    number: int
    seeds: tuple[int, ...]
    chosen: NDArray[np.intp] | None  # None: all samples
    noise: FloatArray | None  # in the units of the targets


@dataclass(eq=False)
class Bench:
    """Where the steps of several runs are taken, made once, as are the views of every step.

    To look a step up in its arrays would cost as much as a product.
    """

    w: FloatArray  # (runs, d), in the units of the targets
    factors: FloatArray  # (2, runs, d): the gradient, and beside it room for what is made of it
    batch: FloatArray  # the rows of a step
    chosen: NDArray[np.intp]  # (steps, runs, batch), as all below
    targets: FloatArray
    multipliers: FloatArray

    @classmethod
    def of(cls, runs: int, per_step: int, d: int) -> Bench:
        # Steps laid out at a time: enough for what is done once to cost nothing, few enough to be
        # kept.
        shape = 128, runs, per_step
        arrays = np.zeros(shape, np.intp), np.zeros(shape), np.zeros(shape)
        return cls(aligned((runs, d)), aligned((2, runs, d)), aligned((per_step, d)), *arrays)

    @property
    def gradient(self) -> FloatArray:
        first: FloatArray = self.factors[0]
        return first

    @cached_property
    def steps(self) -> list[list[tuple[Any, ...]]]:
        """Of each step, run by run: w, gradient, samples, targets and what multiplies them."""
        drawn = zip(self.chosen, self.targets, self.multipliers, strict=True)
        return [list(zip(self.w, self.gradient, *step, strict=True)) for step in drawn]

    def lay_out(
        self, chosen: NDArray[np.intp], target: FloatArray, noise: FloatArray | None
    ) -> None:
        count = len(chosen)
        self.chosen[:count] = chosen
        target.take(chosen, out=self.targets[:count], mode="clip")
        if noise is not None:
            self.targets[:count] += noise
        # A BLAS may multiply what it writes over by 0, and NaN times 0 is NaN.
        self.multipliers[:count] = 0.0


@dataclass(eq=False)
class StepSamples:
    """The data of a descent, as its steps see them, in units in which gradients need no factor.

    Full batches see the rows of the fit, at most rank(X); batches the samples themselves. The
    factor, of the length of a step and c among others, multiplies predictors and labels: X stays as
    it is, once in the cache for the steps and for the residuals between them.
    """

    draws: Draws
    request: DescentRequest
    unit: float  # of predictors
    label_unit: float
    rows: FloatArray
    target: FloatArray
    lift: FloatArray | None
    _block: _Block | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, problem: Regression, fit: ReachableFit, request: DescentRequest, factor: float
    ) -> StepSamples:
        """Gradients of the loss ||X w - y||^2 / 2 come out multiplied by `factor`."""
        draws = request.draws(len(problem.y))
        rows, target, lift = fit.rows, fit.target, fit.lift
        if request.batch_size is not None:
            rows, target, lift = np.ascontiguousarray(problem.X), problem.y, None
        power = _power(rows)
        unit = factor / power / power * draws.n / draws.per_step
        with np.errstate(over="ignore", invalid="ignore"):
            targets = power * unit * target
        if not (unit > 0.0 and np.isfinite(targets).all()):
            raise InputError(
                f"step_size: must leave a step times X times the outputs a double, got "
                f"{request.step_size:g}. Lower it, or rescale X and y."
            )
        if power != 1.0:
            rows = power * rows
        return cls(draws, request, unit, power * unit, rows, targets, lift)

    def bench(self, runs: int) -> Bench:
        """For so many runs; full batches are seen where they are."""
        per_step = 0 if self.request.batch_size is None else self.draws.per_step
        return Bench.of(runs, per_step, self.rows.shape[1])

    def gradients(
        self, bench: Bench, seeds: list[int], steps: tuple[int, FloatArray], spent: FloatArray
    ) -> Iterator[None]:
        """Step by step the gradient at `bench.w`, which the caller moves in between.

        `steps` are the number of the first and their lengths, relative to step_size; `spent` is
        where the multipliers of the samples are summed up: (runs, 1, rows), or with momentum
        (runs, 2, rows) and their velocity second.
        """
        (step, shares), length = steps, self.draws.steps
        # With momentum the length of a step multiplies what is carried, not what is added.
        is_scaled = self.request.momentum == 0.0 and self.request.schedule is not None
        bench.factors[...] = 0.0  # as the multipliers are
        while len(shares):
            number, place = divmod(step, length)
            count = min(len(shares), len(bench.chosen), length - place)
            stop = place + count
            now, shares = shares[:count], shares[count:]
            block, scaled = self._loaded(number, seeds), now if is_scaled else None
            noise = None if block.noise is None else block.noise[place:stop]
            if block.chosen is None:
                chosen, multipliers = None, np.zeros((count, len(seeds), len(self.target)))
                yield from self._on_all(bench, noise, multipliers, scaled)
            else:
                chosen, multipliers = block.chosen[place:stop], bench.multipliers[:count]
                bench.lay_out(chosen, self.target, noise)
                yield from self._on_batches(bench, count, scaled)
            self._add_up(spent, chosen, multipliers, now)
            step += count

    def _on_all(
        self,
        bench: Bench,
        noise: FloatArray | None,
        multipliers: FloatArray,
        scaled: FloatArray | None,
    ) -> Iterator[None]:
        rows, w, gradient = self.rows, bench.w, bench.gradient
        for step, e in enumerate(multipliers):
            np.matmul(w, rows.T, e)
            e -= self.target
            if noise is not None:
                e -= noise[step]
            if scaled is not None:
                e *= scaled[step]
            np.matmul(e, rows, gradient)
            yield

    def _on_batches(self, bench: Bench, count: int, scaled: FloatArray | None) -> Iterator[None]:
        """One run after the other: its rows stay in the cache between the two products.

        `take` and `dot` rather than X[batch] and @, which take half as long again at d = 1000.
        """
        batch, subtract = bench.batch, np.subtract
        take, fitted = self.rows.take, batch.dot
        for step, runs in enumerate(bench.steps[:count]):
            for w, gradient, samples, target, e in runs:
                take(samples, 0, batch, "clip")
                fitted(w, e)
                subtract(e, target, e)
                if scaled is not None:
                    e *= scaled[step]
                e.dot(batch, gradient)
            yield

    def _add_up(
        self,
        spent: FloatArray,
        chosen: NDArray[np.intp] | None,
        multipliers: FloatArray,
        shares: FloatArray,
    ) -> None:
        """Add what the steps have multiplied the samples by."""
        runs, n = len(spent), len(self.target)
        momentum = self.request.momentum
        if chosen is None and not momentum:
            spent[:, 0] += multipliers.sum(axis=0)
            return
        if chosen is None:
            by_sample = multipliers
        elif momentum:
            by_sample = np.zeros((len(chosen), runs, n))
            np.put_along_axis(by_sample, chosen, multipliers, axis=2)
        else:
            flat = chosen + n * np.arange(runs)[:, None]
            sums = np.bincount(flat.ravel(), multipliers.ravel(), minlength=runs * n)
            spent[:, 0] += sums.reshape(runs, n)
            return
        for e, share in zip(by_sample, shares, strict=True):
            spent[:, 1] *= momentum
            spent[:, 1] += e
            spent[:, 0] += share * spent[:, 1]

    def _loaded(self, number: int, seeds: list[int]) -> _Block:
        """The draws of one block for all runs."""
        key = tuple(seeds)
        if self._block is None or (self._block.number, self._block.seeds) != (number, key):
            self._block = self._drawn(number, key)
        return self._block

    def _drawn(self, number: int, seeds: tuple[int, ...]) -> _Block:
        if not self.draws.is_random:
            return _Block(number, seeds, None, None)
        samples, noise = zip(*[self.draws.block(seed, number) for seed in seeds], strict=True)
        block = _Block(number, seeds, None, None)
        if self.request.batch_size is not None:
            block.chosen = np.stack(samples, axis=1)
        if self.request.label_noise:
            added = self.label_unit * np.stack(noise, axis=1)
            # Full batches see as many rows as the rank of X.
            block.noise = added if self.lift is None else added @ self.lift
        return block


def _power(rows: FloatArray) -> float:
    """A power of 2 to multiply rows by, without rounding, if their squares are not doubles."""
    largest = max(rows.max(initial=0.0), -rows.min(initial=0.0))
    if largest == 0.0 or 1e-100 < largest < 1e100:
        return 1.0
    return float(np.ldexp(1.0, 1 - np.frexp(largest)[1]))


class SampleProcess(Process):
    """Descents whose predictors see samples.

    State: what a subclass moves, what the samples were multiplied by, and with momentum the
    velocity of the first.
    """

    def __init__(
        self, model: Any, problem: Regression, fit: ReachableFit, request: DescentRequest, c: float
    ) -> None:
        self.model, self.fit, self.request, self.seeds = model, fit, request, request.seeds
        factor = self.rate * c * request.step_size
        self.samples = StepSamples.of(problem, fit, request, factor)
        self._bench: Bench | None = None
        self.start = self.first(problem.X.shape[1])
        layers = 1 + (request.momentum > 0.0)
        moving = np.stack([self.start] * len(self.seeds))
        spent = np.zeros((len(self.seeds), layers, len(self.samples.rows)))
        self.state = (moving, spent, np.zeros_like(moving))[: 1 + layers]

    @property
    def rate(self) -> float:
        """Gradients in w come multiplied by it."""
        return 1.0

    @property
    def bench(self) -> Bench:
        """For as many runs as there are."""
        if self._bench is None:
            self._bench = self.samples.bench(len(self.seeds))
        return self._bench

    def select(self, places: Sequence[int], state: State) -> None:
        super().select(places, state)
        self._bench = None

    @abstractmethod
    def first(self, d: int) -> FloatArray:
        """What moves, at the start."""

    @abstractmethod
    def predictor(self, moving: FloatArray) -> FloatArray:
        """w of one state, or of each."""

    @abstractmethod
    def parameters(self, state: State) -> Parameters:
        """The weights of one run."""

    @abstractmethod
    def effective(self, state: State) -> EffectiveStart | None:
        """The start from which the flow passes at this state, where there is one."""

    def residuals(self) -> FloatArray:
        w = self.predictors()
        if np.isfinite(w).all():
            return self.fit.residual(w)
        # A BLAS may make 0 of products with NaN.
        finite = np.asarray(np.isfinite(w).all(axis=-1))
        return np.where(finite, self.fit.residual(np.where(finite[:, None], w, 0.0)), np.nan)

    def predictors(self) -> FloatArray:
        return self.predictor(self.state[0])

    def pull(self, state: State) -> FloatArray:
        """rate times the sum of all steps times their gradients in w, with the other sign."""
        return np.asarray(-state[1][0] @ self.samples.rows)


# --- depth-2 diagonal networks -------------------------------------------------------------------


# Sizes whose squares and ratios are doubles.
_SMALLEST = 1e-150


class SquareSteps(SampleProcess):
    """What moves is p and m, (runs, 2, d), in units in which p^2 - m^2 is w in those of samples."""

    @property
    def rate(self) -> float:
        return float(self.model.step_rate)

    @cached_property
    def _unit(self) -> float:
        return float(np.sqrt(self.samples.unit))

    def first(self, d: int) -> FloatArray:
        return self._unit * _start(self.model, d)

    def predictor(self, moving: FloatArray) -> FloatArray:
        sides = moving / self._unit
        return _difference_of_squares(sides[..., 0, :], sides[..., 1, :])

    def advance(self, first: int, last: int) -> None:
        bench, shares = self.bench, self.request.shares(first, last)
        moving, *velocities = (part.swapaxes(0, 1) for part in self.state[::2])
        Z = np.ascontiguousarray(moving)
        bench.w[...] = _difference_of_squares(*Z)
        gradients = self.samples.gradients(bench, self.seeds, (first, shares), self.state[1])
        if self.request.momentum:
            self._carry(Z, velocities[0], shares, gradients)
        else:
            self._multiply(Z, shares, gradients)
        moving[...] = Z

    def _multiply(self, Z: FloatArray, shares: FloatArray, gradients: Iterator[None]) -> None:
        """Both sides of all runs together, and no temporaries: calls are what a step costs."""
        factors, w = self.bench.factors, self.bench.w
        f, g = factors
        add, subtract, multiply = np.add, np.subtract, np.multiply
        for left, _ in zip(self._left(shares), gradients, strict=True):
            add(left, f, g)
            subtract(left, f, f)
            multiply(Z, factors, Z)
            multiply(Z, Z, factors)
            subtract(f, g, w)

    def _left(self, shares: FloatArray) -> list[FloatArray]:
        """What decay leaves of the weights in each step.

        As arrays: a call would convert a number first, which takes as long as it takes itself.
        """
        decay = self.request.step_size * self.request.weight_decay
        if self.request.schedule is None:
            return [np.array(1.0 - decay)] * len(shares)
        return [np.array(left) for left in 1.0 - decay * shares]

    def _carry(
        self, Z: FloatArray, velocity: FloatArray, shares: FloatArray, gradients: Iterator[None]
    ) -> None:
        """With momentum, which carries the change of a step: what it multiplies by, less 1."""
        bench, request = self.bench, self.request
        decay = request.step_size * request.weight_decay
        for share, _ in zip(shares, gradients, strict=True):
            x = bench.gradient
            velocity *= request.momentum
            velocity += Z * np.stack([-decay - x, x - decay])
            Z += share * velocity
            bench.w[...] = _difference_of_squares(*Z)

    def parameters(self, state: State) -> Parameters:
        p, m = state[0] / self._unit
        weights: Parameters = self.model.with_squares(p, m).initial_parameters()
        return weights

    def effective(self, state: State) -> EffectiveStart:
        pull = self.pull(state)
        p, m = state[0] / self._unit * np.exp([-pull, pull])
        if not np.isfinite([p, m]).all():
            raise InputError(
                "step_size: must let gradients add up to less than 700 for the effective start to "
                f"be a double, got {np.abs(pull).max():.1e} with steps of "
                f"{self.request.step_size:g}. Lower it where the descent diverges; weight decay "
                "balances gradients that never vanish, and ends at run.lasso instead."
            )
        absent = self.start == 0.0
        ratios = np.divide(self.start, state[0], out=np.ones_like(self.start), where=~absent)
        gain = np.sum(np.log(np.abs(ratios)), axis=0)
        return EffectiveStart(self.model.with_squares(p, m), gain, True)


def _difference_of_squares(p: FloatArray, m: FloatArray) -> FloatArray:
    return p * p - m * m


def _start(model: Any, d: int) -> FloatArray:
    """p and m as doubles, (2, d)."""
    sides = model.squares
    start = np.stack([np.broadcast_to(side.value, (d,)) for side in sides])
    sizes = np.abs(start[np.stack([np.broadcast_to(side.sign, (d,)) for side in sides]) != 0.0])
    bad = ~((sizes > _SMALLEST) & (sizes < 1.0 / _SMALLEST))
    if bad.any():
        raise InputError(
            f"model: must start at weights between {_SMALLEST:g} and {1.0 / _SMALLEST:g} in size "
            f"to be stepped, got {sizes[bad][0]:.1e}. fb.limit, fb.flow and fb.stages take any "
            "scale."
        )
    return start


# --- any model -----------------------------------------------------------------------------------


class WeightSteps(SampleProcess):
    """What moves is all weights in one vector, (runs, weights).

    Runs are taken one after the other: only the model knows what its weights do.
    """

    @cached_property
    def _layout(self) -> ParameterLayout:
        return ParameterLayout(self.model.initial_parameters(), self.fit.rows.shape[1])

    def first(self, d: int) -> FloatArray:
        return self._layout.start

    def predictor(self, moving: FloatArray) -> FloatArray:
        if moving.ndim == 1:
            return np.asarray(self.model.predictor(self._layout.unflat(moving)))
        return np.stack([self.predictor(weights) for weights in moving])

    def advance(self, first: int, last: int) -> None:
        moving, spent = self.state[:2]
        bench, shares, unit = self.bench, self.request.shares(first, last), self.samples.unit
        bench.w[...] = unit * self.predictors()
        gradients = self.samples.gradients(bench, self.seeds, (first, shares), spent)
        for share, _ in zip(shares, gradients, strict=True):
            for run, (weights, g) in enumerate(zip(moving, bench.gradient, strict=True)):
                self._move(run, weights, g, share)
                bench.w[run] = unit * self.predictor(weights)

    def _move(self, run: int, weights: FloatArray, g: FloatArray, share: float) -> None:
        """One step of one run, in place; g comes multiplied by the step unless it is carried."""
        request = self.request
        change = self._layout.flat(self.model.parameter_gradient(self._layout.unflat(weights), g))
        decay = request.step_size * request.weight_decay * weights
        if request.momentum == 0.0:
            weights -= change + share * decay
            return
        velocity = self.state[2][run]
        velocity *= request.momentum
        velocity += change + decay
        weights -= share * velocity

    def parameters(self, state: State) -> Parameters:
        return self._layout.unflat(state[0])

    def effective(self, state: State) -> EffectiveStart | None:
        if Provides.RESTART not in self.model.provides:
            return None
        return taken_back(self.model, self.parameters(state), self.pull(state))
