"""The limit along many scales, each started from the one before.

Towards the rich limit the normalized dual is nearly linear in 1 / log(1 / scale^2), so two states
predict the next one well enough that Newton's method finishes it in a step or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from flowbias._typing import ArrayLike, FloatArray
from flowbias.designs import Design, design_of
from flowbias.limits.block_limit import Warm, block_limit
from flowbias.limits.interior_point import State
from flowbias.limits.rich_regime import WarmStart
from flowbias.limits.routes import HasPotential
from flowbias.limits.solve import check_size, limit_with_state
from flowbias.potentials.scale import read_real
from flowbias.problem import InputError, Regression, as_regression
from flowbias.routing import unfitting
from flowbias.solution import Solution, Stats


class Rescalable(HasPotential, Protocol):
    """A model that knows the same start at another scale."""

    def at_log_scale(self, log_scale: float) -> HasPotential: ...


@dataclass(frozen=True)
class LimitPath:
    """Limits at each of `log_scales`, in the order given."""

    log_scales: FloatArray
    solutions: tuple[Solution, ...]

    @property
    def w(self) -> FloatArray:
        """One limit per row."""
        return np.stack([solution.w for solution in self.solutions])

    @property
    def dual(self) -> FloatArray:
        return np.stack([solution.dual for solution in self.solutions])

    @property
    def certified(self) -> bool:
        """Whether every point is."""
        return all(solution.certificate.ok for solution in self.solutions)

    @property
    def stats(self) -> Stats:
        """The cost of the whole path."""
        parts = [solution.stats for solution in self.solutions]
        return Stats(
            sum(part.factorizations for part in parts),
            sum(part.steps for part in parts),
            sum(part.seconds for part in parts),
        )

    def __len__(self) -> int:
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def __getitem__(self, index: int) -> Solution:
        return self.solutions[index]

    def __repr__(self) -> str:
        done = sum(solution.certificate.ok for solution in self.solutions)
        return (
            f"LimitPath({len(self)} scales, log_scale {self.log_scales[0]:.4g} to "
            f"{self.log_scales[-1]:.4g}, {done} certified, "
            f"{self.stats.factorizations} factorizations)"
        )


def limit_path(
    model: Rescalable,
    X: Any,
    y: Any = None,
    *,
    log_scales: ArrayLike,
    tol: float = 1e-10,
    throw: bool = True,
) -> LimitPath:
    """`limit` at each log-scale (natural logarithm) of the model's start, with warm starts.

    Scales in decreasing order make the best use of them; any order gives the same limits.
    """
    try:
        rescaled = model.at_log_scale
    except AttributeError:
        raise unfitting(
            model,
            "offer at_log_scale(log_scale)",
            "Take fb.limit of one model per scale, or pass a model such as "
            "fb.DiagonalNet(depth=2, scale=1.0).",
        ) from None
    scales = read_real("log_scales", log_scales, "Pass natural logarithms.")
    if scales.ndim != 1 or scales.size == 0 or not np.isfinite(scales).all():
        raise InputError(
            f"log_scales: must be a non-empty list of finite numbers, got shape {scales.shape}. "
            "Pass natural logarithms, for example np.linspace(7, -690, 100)."
        )
    design = design_of(X)
    solved = (
        _in_memory(rescaled, as_regression(X, y), scales, tol)
        if design is None
        else _over_blocks(rescaled, design, y, scales, tol)
    )
    return LimitPath(scales, tuple(solution.checked(throw) for solution in solved))


def _in_memory(
    rescaled: Callable[[float], HasPotential], problem: Regression, scales: FloatArray, tol: float
) -> Iterator[Solution]:
    """The limits one after the other, each from a prediction of its normalized state."""
    history: list[tuple[float, State]] = []
    for position, log_scale in enumerate(scales):
        warm = _predicted(history, float(log_scale))
        solution, state = limit_with_state(rescaled(float(log_scale)), problem, tol=tol, warm=warm)
        # The data were factored once, for all scales.
        spared = problem.constraint.factorizations if position else 0
        cost = solution.stats
        spent = Stats(cost.factorizations - spared, cost.steps, cost.seconds)
        yield replace(solution, stats=spent)
        history = [*history[-1:], (float(log_scale), state)] if state is not None else []


def _over_blocks(
    rescaled: Callable[[float], HasPotential],
    design: Design,
    y: Any,
    scales: FloatArray,
    tol: float,
) -> Iterator[Solution]:
    """The limits one after the other, each from the dual along the secant in log_scale."""
    history: list[tuple[float, Warm]] = []
    for log_scale in map(float, scales):
        model = rescaled(log_scale)
        check_size(model, design.d, tol)
        warm = None
        if history:
            (before_scale, before), (last_scale, warm) = history[0], history[-1]
            if last_scale != before_scale:
                ahead = (log_scale - last_scale) / (last_scale - before_scale)
                unit = np.exp(before.log_unit - warm.log_unit)
                warm = replace(warm, m=warm.m + ahead * (warm.m - unit * before.m))
        solution, state = block_limit(model, design, y, tol=tol, progress=False, warm=warm)
        yield solution
        history = [*history[-1:], (log_scale, state)]


def _predicted(history: list[tuple[float, State]], log_scale: float) -> WarmStart | None:
    """The last state, with its dual moved along the secant in 1 / log_scale."""
    if not history:
        return None
    last_scale, last = history[-1]
    before_scale, before = history[0]
    if not 0 > before_scale > last_scale > log_scale:
        return WarmStart(last, last.dual)
    ahead = (1.0 / log_scale - 1.0 / last_scale) / (1.0 / last_scale - 1.0 / before_scale)
    return WarmStart(last, last.dual + ahead * (last.dual - before.dual))
