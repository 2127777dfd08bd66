"""The limit on an X that is too big for the dense solver: sparse, mapped, matrix-free, spread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias._threads import threads_for
from flowbias._typing import FloatArray
from flowbias.certificates.block_certificate import certify_design
from flowbias.designs import Design
from flowbias.designs.coordinates import Coordinates
from flowbias.limits.blocks.newton import BlockNewton
from flowbias.limits.blocks.progress import watching
from flowbias.limits.blocks.rows import Rows, rows_of
from flowbias.limits.normal_equations import Effort
from flowbias.problem import InputError, checked_outputs
from flowbias.solution import Sensitivity, Solution, Stats, Status


@dataclass(frozen=True)
class Warm:
    """What the limit at one scale knows that helps at the next."""

    rows: Rows
    m: FloatArray
    log_unit: float


def block_limit(
    model: Any, design: Design, y: Any, *, tol: float, progress: bool, warm: Warm | None = None
) -> tuple[Solution, Warm]:
    """The limit of a separable potential on a design, and what a nearby scale can start from."""
    outputs = checked_outputs(y, design.n)
    potential, shift = model.potential, model.shift
    coordinates = Coordinates(potential, shift, design.d)
    started = time.perf_counter()
    effort = Effort()
    with (
        threads_for(np.broadcast_to(0.0, design.dense_shape)),
        watching(progress, tol) as watch,
        np.errstate(all="ignore"),
    ):
        if warm is None:
            rows, start = rows_of(design, outputs, coordinates), None
            effort.factorizations += 1
        else:
            rows, start = warm.rows, np.exp(warm.log_unit - potential.log_unit) * warm.m
        newton = BlockNewton(design, coordinates, rows, effort, watch)
        point = newton.run(start)
        w, dual = newton.predictor(point), rows.dual(point.m)
        seconds = time.perf_counter() - started
        certificate = certify_design(design, outputs, w, dual, potential, shift, tol=tol)
    status = Status.STALLED
    if certificate.ok:
        status = Status.PROJECTED if rows.distance > 0 else Status.CERTIFIED
    solution = Solution(
        w=w,
        dual=dual,
        status=status,
        route=f"dual Newton over blocks ({design.kind})",
        certificate=certificate,
        stats=Stats(effort.factorizations, effort.steps, seconds),
        potential=potential,
        shift=shift,
        distance=rows.distance,
        _sensitivity=_no_sensitivity,
    )
    return solution, Warm(rows, point.m, potential.log_unit)


def _no_sensitivity() -> Sensitivity:
    raise InputError(
        "sensitivity: needs d x n numbers and X as an array, got a solution on a big X. "
        "Pass X as an array of doubles, or take differences of two limits."
    )
