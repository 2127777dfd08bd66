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
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from flowbias.flows.lifted.compression import Compression, LiftedFit
from flowbias.flows.lifted.flow import ReducedProblem, reduced_problem, samples
from flowbias.flows.loss import loss_constant
from flowbias.flows.steps import BaseDescent, DescentRequest, take_steps
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.lifted import Factors, LiftedModel
from flowbias.problems.matrix import MatrixProblem, as_matrix_problem
from flowbias.results.lifted_solution import LiftedSolution
from flowbias.results.matrix_solution import matrix_facts, matrix_panels

# Numbers kept of the states on the way (64 MB); others are stepped to again from the one before.
_KEPT_NUMBERS = 8_000_000


class _Point(NamedTuple):
    """Compressed weights, and what they fit."""

    weights: FloatArray
    fitted: FloatArray


@dataclass(frozen=True, eq=False)
class _Steps:
    """One step, on the rows that move. `length` is h c, times the rate of the model."""

    compression: Compression
    fit: LiftedFit
    length: float

    def point(self, weights: FloatArray) -> _Point:
        return _Point(weights, self.fit.measure(self.compression.moving_product(weights)))

    def advance(self, point: _Point) -> _Point:
        rows, weights = self.compression.rows, point.weights
        pull = self.length * self.fit.adjoint(self.fit.target - point.fitted)
        moved = np.empty_like(weights)
        moved[:rows] = weights[:rows] + pull @ weights[rows:]
        moved[rows:] = weights[rows:] + pull.T @ weights[:rows]
        return self.point(moved)

    def residual(self, point: _Point) -> float:
        return float(np.linalg.norm(point.fitted - self.fit.reachable)) / self.fit.size


@dataclass(eq=False)
class _Checkpoints:
    """Weights after every `stride`-th step; the stride doubles where they become too many."""

    room: int
    stride: int = 1
    passed: int = 0
    kept: list[FloatArray] = field(default_factory=list)
    last: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    def visit(self, point: _Point) -> None:
        self.last = point.weights
        if self.passed % self.stride == 0:
            self.kept.append(point.weights)
        self.passed += 1
        if len(self.kept) > self.room:
            self.kept = self.kept[::2]
            self.stride *= 2


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

    @cached_property
    def M(self) -> FloatArray:  # noqa: N802  (the matrix, as in the papers)
        """U V^T where the descent ended, (d, m)."""
        return self._steps.compression.product(self._checkpoints.last)

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
        return self._steps.compression.factors(self._checkpoints.last)

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
            return self._checkpoints.last
        kept, rest = divmod(steps, self._checkpoints.stride)
        point = self._steps.point(self._checkpoints.kept[kept])
        for _ in range(rest):
            point = self._steps.advance(point)
        return point.weights

    # --- beside the flow -----------------------------------------------------------------------

    @property
    def _end(self) -> FloatArray:
        return self.M

    @cached_property
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        largest = _gauss_newton_norm(self._steps.compression, self._steps.fit)
        return float(2.0 * self.step_size / (self._steps.length * largest))

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


def descend_lifted(model: Any, X: Any, y: Any, request: DescentRequest) -> LiftedDescent:
    """Gradient descent of a product, in its compressed root."""
    problem = as_matrix_problem(X, y)
    c = loss_constant(request.loss, samples(problem))
    started = time.perf_counter()
    setting: ReducedProblem = reduced_problem(model, problem)
    compression = setting.compression
    steps = _Steps(compression, setting.fit, request.step_size * c * model.rate)
    kept = _Checkpoints(room=max(2, _KEPT_NUMBERS // compression.weights.size))
    with threads_for(compression.weights):
        start = steps.point(compression.weights)
        taken = take_steps(start, steps.advance, steps.residual, kept.visit, request)
    return LiftedDescent(
        status=taken.status,
        steps=len(taken.residuals) - 1,
        seconds=time.perf_counter() - started,
        residual=np.array(taken.residuals),
        step_size=request.step_size,
        model=model,
        problem=setting.problem,
        loss_constant=c,
        _steps=steps,
        _checkpoints=kept,
    )
