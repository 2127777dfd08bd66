"""The limit along many scales, each started from the ones before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flowbias.designs import Design
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import curves, picture
from flowbias.ground.html import coefficients, shown, some, table
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import ArrayLike, Axes, Figure, FloatArray
from flowbias.limits.blocks.limit import BlockLimits, Past, Reached
from flowbias.limits.continuation import Continuation, Found, Rescalable, even_ladders, total
from flowbias.limits.interior_point import State
from flowbias.limits.rich_regime import WarmStart, predicted
from flowbias.limits.solve import check_size, limit_with_state
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.potentials.scale import read_real
from flowbias.problems.regression import Regression, regression_of
from flowbias.results.solution import Solution, Stats


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
        return total(solution.stats for solution in self.solutions)

    def __len__(self) -> int:
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def __getitem__(self, index: int) -> Solution:
        return self.solutions[index]

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Coefficients against the scale; on `ax` if given, written to `path` if given."""

        def panel(axes: Axes) -> None:
            # Rising scales, whatever the order in which they were solved.
            order = np.argsort(self.log_scales, kind="stable")
            curves(axes, self.log_scales[order] / np.log(10.0), self.w[order])
            axes.set_xlabel(r"scale of the start, $\log_{10} \alpha$")
            axes.set_ylabel("coefficient of the limit  w")
            axes.locator_params(axis="x", nbins=6)

        return picture(panel, path=path, ax=ax)

    def _repr_html_(self) -> str:
        rows = [_table_row(self.log_scales[i], self[i]) for i in some(len(self))]
        head = ("log scale", "l1 norm", "l2 norm", "error bound", "status")
        left_out = f"; {len(rows)} of {len(self)} shown" if len(rows) < len(self) else ""
        return table(f"LimitPath: {len(self)} scales{left_out}", rows, head=head)

    def __repr__(self) -> str:
        done = sum(solution.certificate.ok for solution in self.solutions)
        return (
            f"LimitPath({len(self)} scales, log_scale {self.log_scales[0]:.4g} to "
            f"{self.log_scales[-1]:.4g}, {done} certified, "
            f"{self.stats.factorizations} factorizations)"
        )


def _table_row(log_scale: float, solution: Solution) -> tuple[str, ...]:
    seen = coefficients(solution.w)
    norms = (shown(seen.get(name, "not computed yet")) for name in ("l1 norm", "l2 norm"))
    proof = f"{solution.certificate.error_bound:.1e}", solution.status.name
    return f"{log_scale:.4g}", *norms, *proof


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

    Parameters
    ----------
    model : the network; only the shape of its start matters
    X, y : the data, or a `Regression` in place of X
    log_scales : natural logarithms of the scales, best in decreasing order; any gives the same
        limits
    tol, throw : as for `limit`

    Returns
    -------
    LimitPath, a sequence of Solutions; `path.w` is (len(log_scales), d)

    Raises
    ------
    SolveError where a limit cannot be certified

    >>> model = fb.DiagonalNet(depth=2, scale=1.0)
    >>> fb.limit_path(model, [[1.0, 2.0]], [1.0], log_scales=[2.0, -2.0, -20.0]).w.round(3)
    array([[0.2  , 0.4  ],
           [0.088, 0.456],
           [0.   , 0.5  ]])
    """
    if Provides.SCALE not in provided_by(model):
        raise unfitting(
            model,
            "offer at_log_scale(log_scale) and declare SCALE",
            "Take fb.limit of one model per scale, or pass a model such as "
            "fb.DiagonalNet(depth=2, scale=1.0).",
        )
    scales = read_real("log_scales", log_scales, "Pass natural logarithms.")
    if scales.ndim != 1 or scales.size == 0 or not np.isfinite(scales).all():
        raise InputError(
            f"log_scales: must be a non-empty list of finite numbers, got shape {scales.shape}. "
            "Pass natural logarithms, for example np.linspace(7, -690, 100)."
        )
    problem = regression_of(X, y)
    if isinstance(problem, Regression):
        path = _in_memory(problem, tol)
    else:
        path = _over_blocks(*problem, tol)
    starts = ((log_scale, model.at_log_scale(log_scale)) for log_scale in map(float, scales))
    solved = path.follow(starts)
    return LimitPath(scales, tuple(solution.checked(throw) for solution, _ in solved))


def _in_memory(problem: Regression, tol: float) -> Continuation[Any, Any]:
    def correct(model: HasPotential, warm: WarmStart | None) -> Found[State]:
        return limit_with_state(model, problem, tol=tol, warm=warm)

    return Continuation(predicted, correct, even_ladders, problem.constraint.factorizations)


def _over_blocks(design: Design, y: Any, tol: float) -> Continuation[Any, Any]:
    solver = BlockLimits(design, y, tol=tol, progress=False)

    def correct(model: HasPotential, past: Past | None) -> Found[Reached]:
        check_size(model, design.d, tol)
        return solver.limit(model, past)

    return replace(solver.continuation, correct=correct)
