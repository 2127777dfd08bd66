"""Gradient descent of a product U V^T, step by step as on the weights, at the cost of no width.

    Z = [U; V],  Z <- (I - h c A) Z,  A = [[0, R], [R^T, 0]],  R = adjoint(measure(U V^T) - target)

A step acts from the left and R depends on U V^T alone. With Z = L Q^T, Q^T Q = I, it is therefore
the same step on the compressed root L, and the row span Q never changes: this is the descent on the
weights itself, not an approximation of it. (The flow is the limit of small h: `gram`.)

What the flow conserves, descent does not. D = U^T U - V^T V changes in every step by
h^2 c^2 (V^T R^T R V - U^T R R^T U): of second order a step, of first order over a given time h k.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from flowbias.flows.lifted.compression import (
    Compression,
    LiftedFit,
    ReducedProblem,
    reduced_problem,
)
from flowbias.flows.lifted.flow import samples
from flowbias.flows.request import loss_constant
from flowbias.flows.steps import BaseDescent, DescentRequest, Draws, Process, take_steps
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix import MatrixProblem, as_matrix_problem
from flowbias.results.matrix_solution import LiftedSolution, matrix_facts, matrix_panels

# Numbers kept of the states on the way (64 MB); others are stepped to again from the one before.
_KEPT_NUMBERS = 8_000_000


@dataclass(frozen=True, eq=False)
class _Steps:
    """One step, on the rows that move. `rate` is c, times the rate of the model.

    `lift` maps what the fit compares to what the samples measure, where those are not the same.
    """

    compression: Compression
    fit: LiftedFit
    request: DescentRequest
    rate: float
    draws: Draws
    seed: int
    target: FloatArray  # of the samples
    lift: FloatArray | None

    def fitted(self, moving: FloatArray) -> FloatArray:
        """What the weights, the first layer of `moving`, fit."""
        return self.fit.measure(self.compression.moving_product(moving[0]))

    def advance(self, moving: FloatArray, fitted: FloatArray, step: int) -> FloatArray:
        """Weights, and velocity below them if there is momentum, after one more step."""
        request, rows = self.request, self.compression.rows
        weights = self.compression.paired(moving[0])
        pull = self.rate * self.fit.adjoint(self._misfit(fitted, step))
        push = np.vstack([pull @ weights[rows:], pull.T @ weights[:rows]])
        if request.weight_decay:
            push -= request.weight_decay * weights
        if request.momentum == 0.0:
            return np.asarray((weights + request.size(step) * push)[None])
        velocity = request.momentum * moving[1] + push
        return np.stack([weights + request.size(step) * velocity, velocity])

    def _misfit(self, fitted: FloatArray, step: int) -> FloatArray:
        """target - fitted; of the step's samples alone and with noise, where that was asked for."""
        if not self.draws.is_random:
            return self.fit.target - fitted
        number, place = divmod(step, self.draws.steps)
        samples, noise = self._block(number)
        seen = fitted if self.lift is None else self.lift @ fitted
        left = (self.target - seen).reshape(self.draws.n, -1)
        chosen = slice(None) if samples is None else samples[place]
        masked: FloatArray = np.zeros_like(left)
        added = 0.0 if noise is None else noise[place].reshape(-1, self.draws.outputs)
        masked[chosen] = (left[chosen] + added) * (self.draws.n / self.draws.per_step)
        in_form = masked.reshape(self.target.shape)
        return in_form if self.lift is None else np.asarray(self.lift.T @ in_form)

    def _block(self, number: int) -> tuple[NDArray[np.intp] | None, FloatArray | None]:
        """The last block drawn is kept: steps follow one another."""
        if self._drawn.get("number") != number:
            self._drawn.update(number=number, block=self.draws.block(self.seed, number))
        block: tuple[NDArray[np.intp] | None, FloatArray | None] = self._drawn["block"]
        return block

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        return {}


@dataclass(eq=False)
class _Checkpoints:
    """Weights after every `stride`-th step; the stride doubles where they become too many."""

    room: int
    stride: int = 1
    kept: list[FloatArray] = field(default_factory=list)

    def visit(self, step: int, moving: FloatArray) -> None:
        # A step that is taken again, on the way back from one that was lost, is there already.
        if step == len(self.kept) * self.stride:
            self.kept.append(moving)
        if len(self.kept) > self.room:
            self.kept = self.kept[::2]
            self.stride *= 2


class _ProductSteps(Process):
    """One descent of a product. State: weights, and velocity below them, (1, layers, rows, k)."""

    def __init__(self, steps: _Steps) -> None:
        self.steps, self.seeds = steps, [steps.seed]
        start = steps.compression.weights
        layers = [start, np.zeros_like(start)][: 1 + (steps.request.momentum > 0.0)]
        self.state = (np.stack(layers)[None],)
        self.checkpoints = _Checkpoints(room=max(2, _KEPT_NUMBERS // (len(layers) * start.size)))
        self.checkpoints.visit(0, self.state[0][0])
        self._seen: tuple[FloatArray, FloatArray] | None = None

    @property
    def _fitted(self) -> FloatArray:
        """What the weights fit: asked for by the residual and by the step that follows."""
        moving = self.state[0]
        if self._seen is None or self._seen[0] is not moving:
            self._seen = (
                moving,
                self.steps.fit.measure(self.steps.compression.moving_product(moving[0, 0])),
            )
        return self._seen[1]

    def residuals(self) -> FloatArray:
        fit = self.steps.fit
        # A BLAS may make 0 of products with NaN.
        if not np.isfinite(self.state[0]).all():
            return np.array([np.nan])
        return np.array([np.linalg.norm(self._fitted - fit.reachable) / fit.size])

    def predictors(self) -> FloatArray:
        return self.steps.compression.moving_product(self.state[0][:, 0]).reshape(1, -1)

    def advance(self, first: int, last: int) -> None:
        for step in range(first, last):
            moving = self.steps.advance(self.state[0][0], self._fitted, step)
            self.state = (moving[None],)
            self.checkpoints.visit(step + 1, moving)


@dataclass(frozen=True, eq=False, repr=False)
class LiftedDescent(BaseDescent[LiftedSolution]):
    """Gradient descent of U V^T; residual[i] is the relative residual after i steps.

    `product_at`, `loss_at`, `root_at`, `gram_at` and `imbalance_drift_at` take numbers of steps, up
    to `steps`: after k of them the flow is at the time k step_size.
    """

    model: LiftedModel
    problem: MatrixProblem
    loss_constant: float
    _steps: _Steps = field(repr=False)
    _checkpoints: _Checkpoints = field(repr=False)
    _last: FloatArray = field(repr=False)

    @cached_property
    def M(self) -> FloatArray:  # noqa: N802  (the matrix, as in the papers)
        """U V^T where the descent ended, (d, m)."""
        return self._steps.compression.product(self._last[0])

    @property
    def time(self) -> float:
        """How long the flow takes for as many steps: step_size each."""
        return self.step_size * self.steps

    @cached_property
    def factors(self) -> Factors:
        """U and V where the descent ended; the model must have kept them at the start."""
        if self.model.factors is None:
            raise InputError(
                f"model: must provide FACTORS, got {self.model!r}, of which only the Gram matrix "
                "was drawn. Pass keep_weights=True where it is made, or use gram_at(steps)."
            )
        return self._steps.compression.factors(self._last[0])

    # --- on the way ----------------------------------------------------------------------------

    def product_at(self, steps: ArrayLike) -> FloatArray:
        """U V^T after so many steps: (d, m) for one number, else one matrix per number."""
        product = self._steps.compression.product
        return self._each(steps, [product(weights) for weights in self._weights_at(steps)])

    def loss_at(self, steps: ArrayLike) -> FloatArray:
        """(c/2) ||measure(M) - target||^2 after so many steps."""
        misfits = [
            self.problem.measure(M) - self.problem.target
            for M in self.product_at(np.atleast_1d(steps))
        ]
        return self._each(steps, [0.5 * self.loss_constant * float(r @ r) for r in misfits])

    def root_at(self, steps: ArrayLike) -> FloatArray:
        """L with L L^T = [U; V][U; V]^T after so many steps, in the same columns for all."""
        root = self._steps.compression.root
        return self._each(steps, [root(weights) for weights in self._weights_at(steps)])

    def gram_at(self, steps: ArrayLike) -> FloatArray:
        """[U; V][U; V]^T after so many steps, (d + m) square."""
        gram = self._steps.compression.gram
        return self._each(steps, [gram(weights) for weights in self._weights_at(steps)])

    def imbalance_drift_at(self, steps: ArrayLike) -> FloatArray:
        """Change of D = U^T U - V^T V since the start, relative to what it is a difference of.

        The flow conserves D; descent does so up to the first order of the step.
        """
        imbalance, start = self._steps.compression.imbalance, self._steps.compression.weights
        first, size = imbalance(start), float(np.sum(np.square(start)))
        drifts = [
            float(np.linalg.norm(imbalance(now) - first)) / max(size, float(np.sum(now * now)))
            for now in self._weights_at(steps)
        ]
        return self._each(steps, drifts)

    def _each(self, steps: ArrayLike, values: list[Any]) -> FloatArray:
        return np.array(values) if np.ndim(steps) else np.asarray(values[0])

    def _weights_at(self, steps: ArrayLike) -> list[FloatArray]:
        wanted = np.atleast_1d(np.asarray(steps))
        inside = (wanted >= 0) & (wanted <= self.steps)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not inside.all():
            raise InputError(
                f"steps: must be integers from 0 to {self.steps}, got {steps!r}. "
                "Raise max_steps, or lower residual, for a longer descent."
            )
        return [self._replayed(int(k)) for k in wanted]

    def _replayed(self, steps: int) -> FloatArray:
        """From the last state kept before, by the steps that were taken: the same to the bit."""
        if steps == self.steps:
            return np.asarray(self._last[0])
        number = steps // self._checkpoints.stride
        moving = self._checkpoints.kept[number]
        for step in range(number * self._checkpoints.stride, steps):
            moving = self._steps.advance(moving, self._steps.fitted(moving), step)
        return np.asarray(moving[0])

    # --- beside the flow -----------------------------------------------------------------------

    @property
    def _end(self) -> FloatArray:
        return self.M

    @cached_property
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        largest = _gauss_newton_norm(self._steps.compression, self._steps.fit)
        return float(2.0 / (self._steps.rate * largest))

    def _panels(self) -> tuple[Panel, ...]:
        """The residual over steps, and U V^T at the end with its singular values."""
        return self._residuals, *matrix_panels(self.M, f"after {self.steps} steps")

    def _looks(self) -> Mapping[str, str | float]:
        return {"width": f"{self.model.width}", **matrix_facts(self.M)}

    def _about(self) -> str:
        unknowns = self._steps.compression.weights.size
        return f"shape={self.model.shape}, width={self.model.width}, unknowns={unknowns}, "


def _gauss_newton_norm(compression: Compression, fit: LiftedFit) -> float:
    """Largest eigenvalue of J^T J, J dZ = measure(dU V^T + U dV^T), at the start."""
    weights, rows = compression.weights, compression.rows
    U, V = weights[:rows], weights[rows:]

    def applied(flat: FloatArray) -> FloatArray:
        change = flat.reshape(weights.shape)
        seen = fit.adjoint(fit.measure(change[:rows] @ V.T + U @ change[rows:].T))
        return np.vstack([seen @ V, seen.T @ U]).reshape(-1)

    operator = LinearOperator((weights.size, weights.size), matvec=applied, dtype=np.float64)
    # A fixed first vector: the same step every time.
    first = np.cos(np.arange(weights.size, dtype=float))
    return float(eigsh(operator, k=1, which="LA", v0=first, return_eigenvectors=False)[0])


def descend_lifted(model: Any, X: Any, y: Any, request: DescentRequest) -> list[LiftedDescent]:
    """Gradient descent of a product, in its compressed root; one seed after the other."""
    problem = as_matrix_problem(X, y)
    # Decay moves the rows, too, that the data does not see.
    setting = reduced_problem(model, problem, all_rows=request.weight_decay > 0.0)
    return [_descended(model, setting, request, seed) for seed in request.seeds]


def _descended(
    model: LiftedModel, setting: ReducedProblem, request: DescentRequest, seed: int
) -> LiftedDescent:
    started = time.perf_counter()
    problem, n = setting.problem, samples(setting.problem)
    c = loss_constant(request.loss, n)
    draws = request.draws(n, problem.target.size // n)
    lift = setting.lift
    target = problem.target.reshape(n, -1) if setting.root is not None else problem.target
    steps = _Steps(
        setting.compression, setting.fit, request, c * model.rate, draws, seed, target, lift
    )
    process = _ProductSteps(steps)
    with threads_for(setting.compression.weights):
        ended = take_steps(process, request, request.record_every or 1)[0]
    return LiftedDescent(
        status=ended.status,
        steps=ended.steps,
        seconds=time.perf_counter() - started,
        residual=np.array(ended.residuals),
        recorded=np.array(ended.recorded),
        request=request,
        seed=seed,
        model=model,
        problem=problem,
        loss_constant=c,
        _steps=steps,
        _checkpoints=process.checkpoints,
        _last=ended.state[0],
    )
