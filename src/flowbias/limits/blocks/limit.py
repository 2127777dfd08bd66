"""The limit on an X that is too big for the dense solver: sparse, mapped, matrix-free, spread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from flowbias.certificates.certificate import measured
from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground.arguments import InputError
from flowbias.ground.threads import threads_for
from flowbias.limits.blocks.newton import BlockNewton
from flowbias.limits.blocks.progress import watching
from flowbias.limits.blocks.rows import Rows, rows_of
from flowbias.limits.blocks.scales import Past, Reached, is_hidden, least_norm, predicted, ways_down
from flowbias.limits.normal_equations import Effort
from flowbias.limits.scale_descent import FoundOf, Guide, History, Scaled, or_last_resort, total
from flowbias.models._base import HasPotential
from flowbias.problems.regression import checked_outputs
from flowbias.results.solution import Sensitivity, Solution, Stats, status_of

# What to do where no start helps.
TOO_SMALL = (
    "at this scale rounding of the dual hides the limit: pass X as an array of doubles, for which "
    "the dense solver has no such end, or take a larger scale"
)

BlockFound: TypeAlias = FoundOf[Reached]


class BlockLimits:
    """The limits of separable potentials on one design: its rows are made independent once."""

    def __init__(self, design: Design, y: Any, *, tol: float, progress: bool) -> None:
        self.design, self.outputs = design, checked_outputs(y, design.n)
        self.tol, self.progress = tol, progress
        self.rows: Rows | None = None
        self.size = 1.0
        # A way down ends with the first scale that is not certified: that bounds what it costs.
        self.guide = Guide(_last_two, self._ways_down, worth_trying=np.inf)

    def limit(self, model: HasPotential, past: Past | None = None) -> BlockFound:
        """The limit, and what a nearby scale can start from; from larger scales if need be."""
        solution, state = found = self._attempt(model, past)
        if not solution.status.ok and is_hidden(model.potential, self.size):
            return replace(solution, route=f"{solution.route}; {TOO_SMALL}"), state
        if not solution.status.ok and past:
            cold, state = self._attempt(model, None)
            found = replace(cold, stats=total([solution.stats, cold.stats])), state
        return or_last_resort(model, found, self._attempt, 0, self.guide)

    def _ways_down(self, model: Scaled, here: float) -> Iterator[list[float]]:
        return ways_down(model, here, self.size)

    def _rows(self, coordinates: Coordinates, effort: Effort) -> Rows:
        if self.rows is None:
            self.rows = rows_of(self.design, self.outputs, coordinates)
            self.size = least_norm(self.rows)
            effort.factorizations += 1
        return self.rows

    def _attempt(self, model: HasPotential, past: Past | None) -> BlockFound:
        design, potential, shift = self.design, model.potential, model.shift
        coordinates = Coordinates(potential, shift, design.d)
        started = time.perf_counter()
        effort = Effort()
        with (
            threads_for(np.broadcast_to(0.0, design.dense_shape)),
            watching(self.progress, self.tol) as watch,
            np.errstate(all="ignore"),
        ):
            rows = self._rows(coordinates, effort)
            newton = BlockNewton(design, coordinates, rows, effort, watch)
            point = newton.run(predicted(past, potential, self.size) if past else None)
            w, dual = newton.predictor(point), rows.dual(point.m)
            seconds = time.perf_counter() - started
            certificate, _ = measured(design, self.outputs, w, dual, potential, shift, tol=self.tol)
        status = status_of(certificate, rows.distance)
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
        return solution, Reached(point.m, potential) if status.ok else None


def _last_two(history: History[Reached], log_scale: float) -> Past:
    return [reached for _, reached in history]


def _no_sensitivity() -> Sensitivity:
    raise InputError(
        "sensitivity: needs d x n numbers and X as an array, got a solution on a big X. "
        "Pass X as an array of doubles, or take differences of two limits."
    )
