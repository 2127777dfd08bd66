"""Gradient descent as people run it: steps on all samples or on batches, from a model's weights.

    theta <- theta - step_size * c (dF/dtheta)^T X^T (X F(theta) - y)

with momentum, weight decay, noise on the labels and a schedule of the step, where asked for. Finite
steps are kept beside the flow: `effective_start` says from which start the flow ends where the
descent did, and `explained` how far that is from it (docs/theory/descent.md). Products of two
factors step in `lifted/descent.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from flowbias.flows.coordinates import ParameterCoordinates
from flowbias.flows.destination import destination, relative_distance
from flowbias.flows.effective import EffectiveStart, Explained, LassoEnd, lasso_end
from flowbias.flows.integrate import fit_model
from flowbias.flows.lifted.descent import LiftedDescent, descend_lifted
from flowbias.flows.request import loss_constant
from flowbias.flows.samples import SampleProcess, SquareSteps, WeightSteps
from flowbias.flows.steps import (
    BaseDescent,
    DescentRequest,
    DescentStatus,
    State,
    take_steps,
)
from flowbias.ground.drawing import Panel, stems
from flowbias.ground.html import coefficients
from flowbias.ground.routing import first_fitting, unfitting
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import Axes, FloatArray
from flowbias.models._base import Parameters
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.regression import as_regression
from flowbias.results.solution import Solution

__all__ = ["FAMILIES", "Descent", "DescentFamily", "DescentStatus", "Explained", "gradient_descent"]


@dataclass(frozen=True, eq=False, repr=False)
class Descent(BaseDescent[Solution]):
    """Where gradient descent ended; residual[i] is the relative residual after recorded[i] steps.

    `seed` is what `rng` was or stood for: the same seed takes the same steps.
    """

    w: FloatArray
    parameters: Parameters
    _coordinates: ParameterCoordinates
    _process: SampleProcess
    _state: State

    @property
    def _end(self) -> FloatArray:
        return self.w

    @property
    def effective_start(self) -> Any:
        """The model from whose start the flow ends where the descent did, if that fits the data.

        Exact for diagonal networks, tied or untied, of any depth, whatever the steps, the batches,
        the momentum and the noise: see `explained.is_identity` for what is not.
        """
        return self._start.model

    @cached_property
    def effective_limit(self) -> Solution:
        """The limit of the flow from the effective start, certified."""
        solution: Solution = destination(self.effective_start, self.problem)
        return solution

    @cached_property
    def explained(self) -> Explained:
        """How far the descent ended from the effective limit, beside the nominal one."""
        return Explained(
            relative_distance(self.w, self.effective_limit.w),
            self.distance_to_limit,
            self._start.is_identity,
        )

    @property
    def gain(self) -> FloatArray:
        """log of the nominal start over the effective one, summed over both sides of w.

        At depth 2 the sum of -log|1 - x_k^2| over the steps, x_k a step times its gradient
        [Even et al. 2023]: the scale of each coordinate is smaller by exp(-gain).
        """
        return self._start.gain

    @cached_property
    def _start(self) -> EffectiveStart:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            start = self._process.effective(self._state)
        if start is None:
            raise unfitting(
                self.model,
                "be a diagonal network for its descent to be a flow from another start",
                "Use distance_to_limit, the distance from the limit of the start as it was given.",
            )
        return start

    @cached_property
    def lasso(self) -> LassoEnd:
        """What weight decay minimizes at depth 2, and how far the end is from it, certified.

        ||X w - y||^2 / 2 + penalty ||w||_1 with penalty = weight_decay / (rate c), rate 2 for tied
        weights and 1 for untied ones, whatever the step: at rest the decay of each weight balances
        its gradient. scikit-learn's alpha is penalty / n.
        """
        if Provides.SQUARES not in self.model.provides or not self.request.weight_decay:
            raise unfitting(
                self.model,
                "be a diagonal network of depth 2 with weight_decay > 0 to end at a lasso",
                "Pass weight_decay=0.1 to gradient_descent.",
            )
        c = self._coordinates.time_rate
        penalty = self.request.weight_decay / (self.model.step_rate * c)
        return lasso_end(self.problem.X, self.problem.y, self.w, penalty)

    @cached_property
    # A start that no step moves is stable with all of them.
    @np.errstate(divide="ignore", over="ignore", under="ignore")
    def stable_step_size(self) -> float:
        """2 / (largest eigenvalue of the loss's Gauss-Newton matrix) at the start."""
        jacobian = self._coordinates.feature_jacobian(self._coordinates.start)
        root = np.sqrt(self._coordinates.time_rate) * np.linalg.norm(jacobian, 2)
        # One after the other: the square may leave the range where the step does not.
        return float(2.0 / root / root)

    def _panels(self) -> tuple[Panel, ...]:
        """The residual over steps, and the coefficients at the end."""

        def ended(axes: Axes) -> None:
            stems(axes, self.w)

        return self._residuals, ended

    def _looks(self) -> Mapping[str, str | float]:
        return coefficients(self.w)


@overload
def gradient_descent(
    model: LiftedModel,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    label_noise: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    rng: int | np.random.Generator | None = None,
    record_every: int | None = None,
) -> LiftedDescent: ...


@overload
def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    label_noise: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    rng: Sequence[int],
    record_every: int | None = None,
) -> list[Descent]: ...


@overload
def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    label_noise: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    rng: int | np.random.Generator | None = None,
    record_every: int | None = None,
) -> Descent: ...


def gradient_descent(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    step_size: float,
    max_steps: int = 100_000,
    loss: str | float = "half",
    residual: float = 1e-8,
    batch_size: int | None = None,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    label_noise: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    rng: Any = None,
    record_every: int | None = None,
) -> Any:
    """Gradient descent from `model`, until the relative residual is small.

    One step of size h follows the flow for a time h; its result keeps an error of order h, which
    `distance_to_limit` measures. Of diagonal networks `effective_start` is the start from which the
    flow ends exactly where the descent did, `effective_limit` that limit, certified, and
    `explained` the distance from it.

    Parameters
    ----------
    model : the network at its start; products of two factors (`LinearNet`, `MatrixFactorization`)
        too, at a cost that does not depend on the width
    X, y : the data, or a `Regression` in place of X; outputs Y (n, m) or a matrix problem for
        products
    step_size : h
    max_steps : when to give up
    loss, residual : as for `flow`
    batch_size : samples a step, every sample once an epoch in a new order, with the gradient of all
        in the mean
    momentum, weight_decay : those of torch.optim.SGD
    label_noise : standard deviation of what is added to the labels, anew in each step
    schedule : schedule(k) multiplies the step_size of step k = 0, 1, ...
    rng : seed or generator; several seeds, such as range(32), run side by side and return a list
    record_every : steps after which the residual, of all samples, is recorded and compared: by
        default each, with batches every tenth epoch

    Returns
    -------
    Descent; a `LiftedDescent` for products; a list for several seeds

    Raises
    ------
    InputError for data or a model that cannot be used

    >>> model = fb.DiagonalNet(depth=2, scale=0.1)
    >>> fb.gradient_descent(model, [[1.0, 2.0]], [1.0], step_size=0.01).w.round(3)
    array([0.068, 0.466])
    >>> X, y = [[1.0, 2.0, 0.5], [0.0, 1.0, -1.0]], [1.0, 0.3]
    >>> run = fb.gradient_descent(
    ...     model, X, y, step_size=0.05, batch_size=1, rng=0, residual=1e-12
    ... )
    >>> run.explained.distance < 1e-9 < 1e-4 < run.explained.nominal
    True
    """
    request = DescentRequest(
        step_size,
        max_steps,
        loss,
        residual,
        batch_size,
        momentum,
        weight_decay,
        label_noise,
        schedule,
        rng,
        record_every,
    )
    runs = first_fitting(model, FAMILIES).descend(model, X, y, request)
    return list(runs) if request.is_several else runs[0]


def _descend(kind: type[SampleProcess]) -> Callable[..., list[Descent]]:
    """Descents whose steps are those of a process."""

    def descend(model: Any, X: Any, y: Any, request: DescentRequest) -> list[Descent]:
        problem = as_regression(X, y)
        c = loss_constant(request.loss, len(problem.y))
        started = time.perf_counter()
        fit = fit_model(model, problem)
        process = kind(model, problem, fit, request, c)
        seeds = process.seeds
        with threads_for(fit.rows):
            every = take_steps(process, request, request.interval(process.samples.draws))
        seconds = time.perf_counter() - started
        coordinates = ParameterCoordinates(model, fit, c)
        return [
            Descent(
                status=ended.status,
                steps=ended.steps,
                seconds=seconds,
                residual=np.array(ended.residuals),
                recorded=np.array(ended.recorded),
                request=request,
                seed=seed,
                model=model,
                problem=problem,
                w=process.predictor(ended.state[0]),
                parameters=process.parameters(ended.state),
                _coordinates=coordinates,
                _process=process,
                _state=ended.state,
            )
            for seed, ended in zip(seeds, every, strict=True)
        ]

    return descend


@dataclass(frozen=True)
class DescentFamily:
    """Models that descend in the same kind of unknowns."""

    needs: frozenset[Provides]
    descend: Callable[[Any, Any, Any, DescentRequest], Sequence[Descent | LiftedDescent]]


FAMILIES = (
    DescentFamily(frozenset({Provides.GRAM}), descend_lifted),
    DescentFamily(frozenset({Provides.SQUARES}), _descend(SquareSteps)),
    DescentFamily(frozenset({Provides.PARAMETERS}), _descend(WeightSteps)),
)
