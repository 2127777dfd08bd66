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
from collections.abc import Iterator
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
    chosen: NDArray[np.intp] | None
    targets: FloatArray


@dataclass(eq=False)
class StepSamples:
    """The data of a descent, as its steps see them, in units in which gradients need no factor.

    Full batches see the rows of the fit, at most rank(X); batches the samples themselves. Half of
    the factor, the length of a step and c among others, is on either side of X^T X.
    """

    draws: Draws
    request: DescentRequest
    root: float  # of the factor
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
        root = float(np.sqrt(factor * draws.n / draws.per_step))
        if request.batch_size is None:
            return cls(draws, request, root, root * fit.rows, root * fit.target, fit.lift)
        return cls(draws, request, root, root * problem.X, root * problem.y, None)

    def gradients(
        self,
        seeds: list[int],
        steps: tuple[int, FloatArray],
        w: FloatArray,
        gradient: FloatArray,
        spent: FloatArray,
    ) -> Iterator[None]:
        """Step by step the gradient at `w`, which the caller moves in between; (runs, d) both.

        `steps` are the number of the first and their lengths, relative to step_size; `spent` is
        where the multipliers of the samples are summed up: (runs, 1, rows), or with momentum
        (runs, 2, rows) and their velocity second.
        """
        (step, shares), length = steps, self.draws.steps
        last = step + len(shares)
        while step < last:
            number, place = divmod(step, length)
            stop = min(place + last - step, length)
            block = self._loaded(number, seeds)
            targets = block.targets[place:stop]
            # Zeros: a BLAS may multiply what it writes over by 0, and NaN times 0 is NaN.
            multipliers = np.zeros(targets.shape)
            now, shares = np.split(shares, [stop - place])
            # With momentum the length of a step multiplies what is carried, not what is added.
            scaled = now if self.request.momentum == 0.0 and np.any(now != 1.0) else None
            if block.chosen is None:
                yield from self._on_all(w, gradient, targets, multipliers, scaled)
            else:
                chosen = block.chosen[place:stop]
                yield from self._on_batches(w, gradient, chosen, targets, multipliers, scaled)
            self._add_up(spent, block, (place, stop), multipliers, now)
            step += stop - place

    def _on_all(
        self,
        w: FloatArray,
        gradient: FloatArray,
        targets: FloatArray,
        multipliers: FloatArray,
        scaled: FloatArray | None,
    ) -> Iterator[None]:
        rows = self.rows
        for step, (target, e) in enumerate(zip(targets, multipliers, strict=True)):
            np.matmul(w, rows.T, e)
            np.subtract(e, target, e)
            if scaled is not None:
                e *= scaled[step]
            np.matmul(e, rows, gradient)
            yield

    def _on_batches(
        self,
        w: FloatArray,
        gradient: FloatArray,
        chosen: NDArray[np.intp],
        targets: FloatArray,
        multipliers: FloatArray,
        scaled: FloatArray | None,
    ) -> Iterator[None]:
        """One run after the other: its rows stay in the cache between the two products.

        `take` and `dot` rather than X[batch] and @, which take half as long again at d = 1000.
        """
        batch = aligned((chosen.shape[2], w.shape[1]))
        take, fitted, subtract = self.rows.take, batch.dot, np.subtract
        # Of each run its steps one by one: what is looked up in the loop costs as much as products.
        drawn = (np.swapaxes(part, 0, 1) for part in (chosen, targets, multipliers))
        runs = [
            (at, pull, zip(*each, strict=True).__next__)
            for at, pull, *each in zip(w, gradient, *drawn, strict=True)
        ]
        for step in range(len(chosen)):
            for at, pull, following in runs:
                samples, target, e = following()
                take(samples, 0, batch, "clip")
                fitted(at, e)
                subtract(e, target, e)
                if scaled is not None:
                    e *= scaled[step]
                e.dot(batch, pull)
            yield

    def _add_up(
        self,
        spent: FloatArray,
        block: _Block,
        places: tuple[int, int],
        multipliers: FloatArray,
        shares: FloatArray,
    ) -> None:
        """Add what the steps have multiplied the samples by."""
        runs, n = len(block.seeds), len(self.target)
        momentum = self.request.momentum
        if block.chosen is None and not momentum:
            spent[:, 0] += multipliers.sum(axis=0)
            return
        if block.chosen is None:
            by_sample = multipliers
        else:
            chosen = block.chosen[slice(*places)]
            if not momentum:
                flat = chosen + n * np.arange(runs)[:, None]
                sums = np.bincount(flat.ravel(), multipliers.ravel(), minlength=runs * n)
                spent[:, 0] += sums.reshape(runs, n)
                return
            by_sample = np.zeros((len(chosen), runs, n))
            np.put_along_axis(by_sample, chosen, multipliers, axis=2)
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
        length, runs = self.draws.steps, len(seeds)
        if not self.draws.is_random:
            shape = (length, runs, len(self.target))
            return _Block(number, seeds, None, np.broadcast_to(self.target, shape))
        drawn = [self.draws.block(seed, number) for seed in seeds]
        samples = [samples for samples, _ in drawn if samples is not None]
        noise = [noise for _, noise in drawn if noise is not None]
        chosen = np.stack(samples, axis=1) if samples else None
        if chosen is None:
            targets = np.broadcast_to(self.target, (length, runs, len(self.target)))
        else:
            targets = self.target[chosen]
        if noise:
            # In the units of the rows; full batches see as many as the rank of X.
            added = self.root * np.stack(noise, axis=1)
            targets = targets + (added if self.lift is None else added @ self.lift)
        return _Block(number, seeds, chosen, targets)


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
        self.start = self.first(problem.X.shape[1])
        layers = 1 + (request.momentum > 0.0)
        moving = np.stack([self.start] * len(self.seeds))
        spent = np.zeros((len(self.seeds), layers, len(self.samples.rows)))
        self.state = (moving, spent, np.zeros_like(moving))[: 1 + layers]

    @property
    def rate(self) -> float:
        """Gradients in w come multiplied by it."""
        return 1.0

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
_SMALLEST, _LARGEST = 1e-150, 1e150


class SquareSteps(SampleProcess):
    """What moves is p and m, (runs, 2, d)."""

    @property
    def rate(self) -> float:
        return float(self.model.step_rate)

    def first(self, d: int) -> FloatArray:
        return _start(self.model, d)

    def predictor(self, moving: FloatArray) -> FloatArray:
        return np.asarray(np.square(moving[..., 0, :]) - np.square(moving[..., 1, :]))

    def advance(self, first: int, last: int) -> None:
        request, momentum = self.request, self.request.momentum
        shares = request.shares(first, last)
        # Both sides of all runs together, and no temporaries: calls are what a step costs.
        moving, *velocities = (np.swapaxes(part, 0, 1) for part in self.state[::2])
        Z, factors, work = aligned((3, *moving.shape))
        w = aligned(moving.shape[1:])
        Z[...], w[...] = moving, self.predictors()
        (f, g), (up, down) = factors, work
        decay = request.step_size * request.weight_decay
        # Momentum carries the change of a step, which is what it multiplies by, less 1.
        levels = [-decay] * len(shares) if momentum else (1.0 - decay * shares).tolist()
        # Arrays: a call would convert a number first, which takes as long as it takes itself.
        arrays = {level: (np.array(level), np.array(2.0 * level)) for level in set(levels)}
        gradients = self.samples.gradients(self.seeds, (first, shares), w, f, self.state[1])
        for level, share, _ in zip(levels, shares, gradients, strict=True):
            once, twice = arrays[level]
            np.subtract(once, f, f)
            np.subtract(twice, f, g)
            if momentum:
                (velocity,) = velocities
                np.multiply(Z, factors, work)
                velocity *= momentum
                velocity += work
                Z += share * velocity
            else:
                np.multiply(Z, factors, Z)
            np.multiply(Z, Z, work)
            np.subtract(up, down, w)
        moving[...] = Z

    def parameters(self, state: State) -> Parameters:
        weights: Parameters = self.model.with_squares(*state[0]).initial_parameters()
        return weights

    def effective(self, state: State) -> EffectiveStart:
        pull = self.pull(state)
        p, m = state[0] * np.exp([-pull, pull])
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


def _start(model: Any, d: int) -> FloatArray:
    """p and m as doubles, (2, d)."""
    sides = model.squares
    start = np.stack([np.broadcast_to(side.value, (d,)) for side in sides])
    sizes = np.abs(start[np.stack([np.broadcast_to(side.sign, (d,)) for side in sides]) != 0.0])
    bad = ~((sizes > _SMALLEST) & (sizes < _LARGEST))
    if bad.any():
        raise InputError(
            f"model: must start at weights between {_SMALLEST:g} and {_LARGEST:g} in size to be "
            f"stepped, got {sizes[bad][0]:.1e}. fb.limit, fb.flow and fb.stages take any scale."
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
        w, shares = self.predictors(), self.request.shares(first, last)
        gradient = np.zeros_like(w)
        gradients = self.samples.gradients(self.seeds, (first, shares), w, gradient, spent)
        for share, _ in zip(shares, gradients, strict=True):
            for run, (weights, g) in enumerate(zip(moving, gradient, strict=True)):
                self._move(run, weights, g, share)
                w[run] = self.predictor(weights)

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
