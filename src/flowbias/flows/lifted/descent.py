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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from flowbias.flows.lifted.compression import (
    Compression,
    LiftedFit,
    ReducedProblem,
    reduced_problem,
)
from flowbias.flows.lifted.flow import samples
from flowbias.flows.request import loss_constant
from flowbias.flows.steps import BaseDescent, DescentRequest, Drawn, Process, take_steps
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix import MatrixProblem, as_matrix_problem
from flowbias.results.matrix_solution import LiftedSolution, matrix_facts, matrix_panels

# Numbers kept of the states on the way (64 MB); others are stepped to again from the one before.
_KEPT_NUMBERS = 8_000_000


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
    """One descent of a product, on the rows that move.

    State: weights, with velocity below them if there is momentum, (1, layers, rows, k); and what
    the weights fit, which the residual asks for and the step that follows.
    """

    def __init__(
        self, setting: ReducedProblem, request: DescentRequest, seed: int, rate: float
    ) -> None:
        problem, n = setting.problem, samples(setting.problem)
        self.compression, self.fit = setting.compression, setting.fit
        self.request, self.seed, self.seeds, self.rate = request, seed, [seed], rate
        self.draws = request.draws(n, problem.target.size // n)
        self.target = problem.target if setting.root is None else problem.target.reshape(n, -1)
        # From what the fit compares to what the samples measure, where those are not the same.
        self.lift = setting.lift
        self._drawn: tuple[int, Drawn] | None = None
        start = self.compression.weights
        moving = np.stack([start, np.zeros_like(start)][: 1 + (request.momentum > 0.0)])
        self.state = moving[None], self.fitted(moving)[None]
        self.checkpoints = _Checkpoints(room=max(2, _KEPT_NUMBERS // moving.size))
        self.checkpoints.visit(0, moving)

    def residuals(self) -> FloatArray:
        moving, fitted = self.state
        # A BLAS may make 0 of products with NaN.
        if not np.isfinite(moving).all():
            return np.array([np.nan])
        return np.array([np.linalg.norm(fitted[0] - self.fit.reachable) / self.fit.size])

    def predictors(self) -> FloatArray:
        return self.compression.moving_product(self.state[0][:, 0]).reshape(1, -1)

    def advance(self, first: int, last: int) -> None:
        (moving,), (fitted,) = self.state
        for step in range(first, last):
            moving = self.stepped(moving, fitted, step)
            fitted = self.fitted(moving)
            self.checkpoints.visit(step + 1, moving)
        self.state = moving[None], fitted[None]

    def weights_after(self, steps: int) -> FloatArray:
        """From the last state kept before, by the steps that were taken: the same to the bit."""
        number = steps // self.checkpoints.stride
        moving = self.checkpoints.kept[number]
        for step in range(number * self.checkpoints.stride, steps):
            moving = self.stepped(moving, self.fitted(moving), step)
        return np.asarray(moving[0])

    def fitted(self, moving: FloatArray) -> FloatArray:
        """What the weights, the first layer of `moving`, fit."""
        return self.fit.measure(self.compression.moving_product(moving[0]))

    def stepped(self, moving: FloatArray, fitted: FloatArray, step: int) -> FloatArray:
        """`moving` after one more step."""
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

    def _block(self, number: int) -> Drawn:
        """The last block drawn is kept: steps follow one another."""
        if self._drawn is None or self._drawn[0] != number:
            self._drawn = number, self.draws.block(self.seed, number)
        return self._drawn[1]


@dataclass(frozen=True, eq=False, repr=False)
class LiftedDescent(BaseDescent[LiftedSolution]):
    """Gradient descent of U V^T; residual[i] is the relative residual after i steps.

    `product_at`, `loss_at`, `root_at`, `gram_at` and `imbalance_drift_at` take numbers of steps, up
    to `steps`: after k of them the flow is at the time k step_size.
    """

    model: LiftedModel
    problem: MatrixProblem
    loss_constant: float
    _process: _ProductSteps = field(repr=False)
    #: weights at the end
    _last: FloatArray = field(repr=False)

    @cached_property
    def M(self) -> FloatArray:  # noqa: N802  (the matrix, as in the papers)
        """U V^T where the descent ended, (d, m)."""
        return self._compression.product(self._last)

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
        return self._compression.factors(self._last)

    # --- on the way ----------------------------------------------------------------------------

    def product_at(self, steps: ArrayLike) -> FloatArray:
        """U V^T after so many steps: (d, m) for one number, else one matrix per number."""
        return self._each(steps, self._compression.product)

    def loss_at(self, steps: ArrayLike) -> FloatArray:
        """(c/2) ||measure(M) - target||^2 after so many steps."""

        def loss(weights: FloatArray) -> float:
            misfit = self.problem.measure(self._compression.product(weights)) - self.problem.target
            return 0.5 * self.loss_constant * float(misfit @ misfit)

        return self._each(steps, loss)

    def root_at(self, steps: ArrayLike) -> FloatArray:
        """L with L L^T = [U; V][U; V]^T after so many steps, in the same columns for all."""
        return self._each(steps, self._compression.root)

    def gram_at(self, steps: ArrayLike) -> FloatArray:
        """[U; V][U; V]^T after so many steps, (d + m) square."""
        return self._each(steps, self._compression.gram)

    def imbalance_drift_at(self, steps: ArrayLike) -> FloatArray:
        """Change of D = U^T U - V^T V since the start, relative to what it is a difference of.

        The flow conserves D; descent does so up to the first order of the step.
        """
        imbalance, start = self._compression.imbalance, self._compression.weights
        first, size = imbalance(start), float(np.sum(np.square(start)))

        def drift(now: FloatArray) -> float:
            largest = max(size, float(np.sum(now * now)))
            return float(np.linalg.norm(imbalance(now) - first)) / largest

        return self._each(steps, drift)

    def _each(self, steps: ArrayLike, value: Callable[[FloatArray], Any]) -> FloatArray:
        """`value` of the weights after so many steps: for one number, else one per number."""
        wanted = np.atleast_1d(np.asarray(steps))
        inside = (wanted >= 0) & (wanted <= self.steps)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not inside.all():
            raise InputError(
                f"steps: must be integers from 0 to {self.steps}, got {steps!r}. "
                "Raise max_steps, or lower residual, for a longer descent."
            )
        values = [
            value(self._last if k == self.steps else self._process.weights_after(int(k)))
            for k in wanted
        ]
        return np.array(values) if np.ndim(steps) else np.asarray(values[0])

    # --- beside the flow -----------------------------------------------------------------------

    @property
    def _end(self) -> FloatArray:
        return self.M

    @property
    def _compression(self) -> Compression:
        return self._process.compression

    @cached_property
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        largest = _gauss_newton_norm(self._compression, self._process.fit)
        return float(2.0 / (self._process.rate * largest))

    def _panels(self) -> tuple[Panel, ...]:
        """The residual over steps, and U V^T at the end with its singular values."""
        return self._residuals, *matrix_panels(self.M, f"after {self.steps} steps")

    def _looks(self) -> Mapping[str, str | float]:
        return {"width": f"{self.model.width}", **matrix_facts(self.M)}

    def _about(self) -> str:
        unknowns = self._compression.weights.size
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
    c = loss_constant(request.loss, samples(setting.problem))
    with threads_for(setting.compression.weights):
        process = _ProductSteps(setting, request, seed, c * model.rate)
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
        problem=setting.problem,
        loss_constant=c,
        _process=process,
        _last=ended.state[0][0],
    )
