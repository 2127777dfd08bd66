"""Completion of a planted matrix by U V^T: what the figures on it measure of one flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from flowbias.datasets.planted import low_rank_completion
from flowbias.experiments._base import Check, Task
from flowbias.experiments.check import at_most
from flowbias.experiments.table import Columns, Table
from flowbias.flows import flow
from flowbias.ground.typing import FloatArray, Mask
from flowbias.models.lifted import LiftedModel
from flowbias.problems.matrix import MatrixCompletion

# Relative residual to which flows are followed: a thousandth of the smallest effect judged.
RESIDUAL = 1e-6


class Planted(NamedTuple):
    """A completion problem, the matrix behind it, and the entries that are not seen."""

    problem: MatrixCompletion
    truth: FloatArray
    unseen: Mask

    @property
    def zero_filled(self) -> FloatArray:
        """Seen entries as they are, zero elsewhere: least Frobenius norm."""
        return np.where(self.unseen, 0.0, self.truth)

    def spread(self, M: FloatArray) -> float:
        """Root mean square of the entries that are not seen."""
        return float(np.sqrt(np.mean(M[self.unseen] ** 2)))


def planted(task: Task) -> Planted:
    """The problem of a replicate: the same one in every task with that replicate and size."""
    size, seed = task.integer("d"), task.integer("replicate")
    data = low_rank_completion((size, size), 1, task.integer("observed"), rng=seed)
    problem = MatrixCompletion(data.rows, data.cols, data.values, (size, size))
    return Planted(problem, data.truth, ~problem.mask)


def nuclear(M: FloatArray) -> float:
    return float(np.linalg.norm(M, "nuc"))


class Ending(NamedTuple):
    """Where a flow started and ended, and how well it was followed."""

    start: FloatArray
    M: FloatArray
    residual: float
    drift: float


def ending(model: LiftedModel, problem: MatrixCompletion, *, residual: float = RESIDUAL) -> Ending:
    """The flow from `model` until the seen entries fit."""
    path = flow(model, problem, residual=residual)
    return Ending(path.M[0], path.M[-1], float(path.residual[-1]), path.imbalance_drift)


def endings(
    starts: Iterable[LiftedModel],
    problem: MatrixCompletion,
    *,
    residual: float = RESIDUAL,
    **measures: Callable[[Ending], float],
) -> Columns:
    """One row a start: what is measured of where its flow ends, and how well it was followed."""
    ends = [ending(start, problem, residual=residual) for start in starts]
    measured = {name: [of(end) for end in ends] for name, of in measures.items()}
    followed = {"residual": [end.residual for end in ends], "drift": [end.drift for end in ends]}
    return {**measured, **followed}


def check_followed(rows: Table, *, to: float = RESIDUAL) -> Check:
    residual, drift = float(np.max(rows["residual"])), float(np.max(rows["drift"]))
    return Check(
        "flows-followed",
        "every flow fits the seen entries and conserves the imbalance UᵀU − VᵀV",
        f"relative residual at most {residual:.1e}, drift at most {drift:.1e}",
        at_most(residual, to),
        # What the integrator may lose of what the flow conserves.
        at_most(drift, 1e-8),
    )


def name_of(width: float, widths: FloatArray) -> str:
    """A width as the name of its line; the widest says what the numbers are."""
    return f"k = {in_powers(width)}" if width == widths[-1] else in_powers(width)


def in_powers(width: float) -> str:
    """A width as the name of a line: 10⁶ where it is a power of ten from 100 on, else as it is."""
    power = float(np.log10(width))
    if power < 2.0 or not power.is_integer():
        return f"{width:g}"
    return "10" + f"{power:.0f}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
