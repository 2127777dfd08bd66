"""The gradient of a step: on all samples or on the batch of each run, with noise on their labels.

    g = c (n / b) X_b^T (X_b w - y_b - noise)

which is that of the loss (c/2) ||X w - y||^2 in the mean. What the samples were multiplied by is
summed up on the way, as a momentum would carry it: n numbers, with the sum of all steps times
their gradients in the span of the samples.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowbias.flows.draws import Draws
from flowbias.flows.effective import EffectiveStart
from flowbias.flows.fit import ReachableFit
from flowbias.flows.steps import DescentRequest, Process, State
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters
from flowbias.problems.regression import Regression


@dataclass(eq=False)
class _Block:
    """What chance has decided for the steps of a block, (steps, runs, batch) each."""

    number: int
    seeds: tuple[int, ...]
    chosen: NDArray[np.intp] | None
    targets: FloatArray


@dataclass(eq=False)
class Samples:
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
    ) -> Samples:
        """Gradients of the loss ||X w - y||^2 / 2 come out multiplied by `factor`."""
        draws = request.draws(len(problem.y))
        root = float(np.sqrt(factor * draws.n / draws.per_step))
        if request.batch_size is None:
            return cls(draws, request, root, root * fit.rows, root * fit.target, fit.lift)
        return cls(draws, request, root, root * problem.X, root * problem.y, None)

    def gradients(
        self, seeds: list[int], first: int, last: int, w: FloatArray, spent: FloatArray
    ) -> Iterator[FloatArray]:
        """For each step the gradient at `w`, (runs, d), which the caller moves in between.

        `spent` is where the multipliers of the samples are summed up: (runs, 1, rows), or with
        momentum (runs, 2, rows) and their velocity second.
        """
        length, step = self.draws.steps, first
        while step < last:
            number, place = divmod(step, length)
            stop = min(place + last - step, length)
            block = self._loaded(number, seeds)
            targets = block.targets[place:stop]
            # Zeros: a BLAS may multiply what it writes over by 0, and NaN times 0 is NaN.
            multipliers = np.zeros(targets.shape)
            shares = [self._share(number * length + j) for j in range(place, stop)]
            if block.chosen is None:
                yield from self._on_all(w, targets, multipliers, shares)
            else:
                chosen = block.chosen[place:stop]
                yield from self._on_batches(w, chosen, targets, multipliers, shares)
            self._add_up(spent, block, (place, stop), multipliers, shares)
            step += stop - place

    def _share(self, step: int) -> float:
        """The length of a step, relative to step_size."""
        return self.request.size(step) / self.request.step_size

    def _on_all(
        self, w: FloatArray, targets: FloatArray, multipliers: FloatArray, shares: list[float]
    ) -> Iterator[FloatArray]:
        rows, gradient = self.rows, np.zeros_like(w)
        carried = self.request.momentum > 0.0
        for target, e, share in zip(targets, multipliers, shares, strict=True):
            np.matmul(w, rows.T, e)
            np.subtract(e, target, e)
            if share != 1.0 and not carried:
                e *= share
            yield np.matmul(e, rows, gradient)

    def _on_batches(
        self,
        w: FloatArray,
        chosen: NDArray[np.intp],
        targets: FloatArray,
        multipliers: FloatArray,
        shares: list[float],
    ) -> Iterator[FloatArray]:
        (runs, d), rows = w.shape, self.rows
        gathered = np.empty((chosen.shape[1], d))
        batches = gathered.reshape(runs, -1, d)
        column, gradient = w[:, :, None], np.zeros((runs, 1, d))
        flat = gradient[:, 0]
        carried = self.request.momentum > 0.0
        each = zip(
            chosen,
            targets,
            multipliers,
            multipliers[..., None],
            multipliers[:, :, None],
            shares,
            strict=True,
        )
        for samples, target, e, upright, lying, share in each:
            rows.take(samples, 0, gathered, "clip")
            np.matmul(batches, column, upright)
            np.subtract(e, target, e)
            if share != 1.0 and not carried:
                e *= share
            np.matmul(lying, batches, gradient)
            yield flat

    def _add_up(
        self,
        spent: FloatArray,
        block: _Block,
        places: tuple[int, int],
        multipliers: FloatArray,
        shares: list[float],
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
            # Runs one after the other, samples within.
            offsets = n * np.repeat(np.arange(runs), multipliers.shape[2])
            flat = block.chosen[slice(*places)] + offsets
            if not momentum:
                sums = np.bincount(flat.ravel(), multipliers.ravel(), minlength=runs * n)
                spent[:, 0] += sums.reshape(runs, n)
                return
            by_sample = np.zeros((len(multipliers), runs * n))
            np.put_along_axis(by_sample, flat, multipliers.reshape(len(flat), -1), axis=1)
            by_sample = by_sample.reshape(-1, runs, n)
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
        chosen = np.stack(samples, axis=1).reshape(length, -1) if samples else None
        if chosen is None:
            targets = np.broadcast_to(self.target, (length, runs, len(self.target)))
        else:
            targets = self.target[chosen].reshape(length, runs, -1)
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
        self.samples = Samples.of(problem, fit, request, factor)
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
        # A BLAS may make 0 of products with NaN.
        finite = np.asarray(np.isfinite(w).all(axis=-1))
        return np.where(finite, self.fit.residual(np.where(finite[:, None], w, 0.0)), np.nan)

    def predictors(self) -> FloatArray:
        return self.predictor(self.state[0])

    def pull(self, state: State) -> FloatArray:
        """rate times the sum of all steps times their gradients in w, with the other sign."""
        return np.asarray(-state[1][0] @ self.samples.rows)
