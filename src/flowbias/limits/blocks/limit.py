"""The limit on an X that is too big for the dense solver: sparse, mapped, matrix-free, spread.

How its dual follows the scale of the start: where a coordinate carries the fit, its dual point is
about

    unit = (Q'(w) - Q'(-w)) / 2    for w as large as the least-norm solution:

w / (2 scale^2) in the kernel regime, log(w / scale^2) at depth 2 and scale^(2 - depth) beyond, for
small scales. Along the scales the dual is nearly a + b unit: in the kernel regime b belongs to the
least-norm solution and a is 0; towards the rich limit b solves the dual of its linear program.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from flowbias.certificates.certificate import measured
from flowbias.designs import Design
from flowbias.designs.tasks import Coordinates
from flowbias.ground.arguments import InputError
from flowbias.ground.progress import shown
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.newton import BlockNewton, Watch
from flowbias.limits.continuation import Continuation, Found, History, Scaled, total
from flowbias.limits.normal_equations import Effort
from flowbias.models._base import HasPotential
from flowbias.potentials import Potential
from flowbias.problems.regression import RowBasis, checked_outputs, row_basis_of
from flowbias.results.solution import Sensitivity, Solution, Stats, status_of

# What to do where no start helps.
TOO_SMALL = (
    "at this scale rounding of the dual hides the limit: pass X as an array of doubles, for which "
    "the dense solver has no such end, or take a larger scale"
)


@dataclass(frozen=True)
class Reached:
    """The dual (of the independent rows) at one scale, and the potential there."""

    m: FloatArray
    potential: Potential


#: what was reached at the last scales, oldest first
Past: TypeAlias = Sequence[Reached]


class BlockLimits:
    """The limits of separable potentials on one design: its rows are made independent once."""

    def __init__(self, design: Design, y: Any, *, tol: float, progress: bool) -> None:
        self.design, self.outputs = design, checked_outputs(y, design.n)
        self.tol, self.progress = tol, progress
        self.rows: RowBasis | None = None
        self.size = 1.0
        # A way down ends with the first scale that is not certified: that bounds what it costs.
        self.continuation: Continuation[Reached, Past] = Continuation(
            _last_two,
            self._attempt,
            self._ladders,
            worth_trying=np.inf,
            # Of FEW_DIGITS there are no more in doubles, from wherever one comes.
            accepts=lambda solution: solution.status.ok,
        )

    def limit(self, model: HasPotential, past: Past | None = None) -> Found[Reached]:
        """The limit, and what a nearby scale can start from; from larger scales if need be."""
        solution, state = found = self._attempt(model, past)
        if not solution.status.ok and is_hidden(model.potential, self.size):
            return replace(solution, route=f"{solution.route}; {TOO_SMALL}"), state
        if not solution.status.ok and past:
            cold, state = self._attempt(model, None)
            found = replace(cold, stats=total([solution.stats, cold.stats])), state
        return self.continuation.rescued(model, found)

    def _ladders(self, model: Scaled, here: float) -> Iterator[list[float]]:
        return ladders(model, here, self.size)

    def _rows(self, coordinates: Coordinates, effort: Effort) -> RowBasis:
        if self.rows is None:
            self._check_sides(coordinates)
            self.rows = row_basis_of(self.design, self.outputs)
            self.size = least_norm(self.rows)
            effort.factorizations += 1
        return self.rows

    def _check_sides(self, coordinates: Coordinates) -> None:
        """Refuse a start closed to one sign, told from one that is merely small by trying 1."""
        one = coordinates.on(slice(0, 1))
        # Where all coordinates are alike, one of them tells.
        width = 1 if one is coordinates else self.design.d
        upward, downward = coordinates.potential.open_sides(width, 1.0)
        closed = int(np.count_nonzero(~(upward & downward)))
        if closed:
            raise InputError(
                f"model: must leave both signs open to every coordinate on a {self.design.kind} X, "
                f"got {closed if width > 1 else self.design.d} coordinates closed on one side. "
                "Start no weight at zero, or pass X as an array of doubles: the dense solver takes "
                "one-sided starts."
            )

    def _attempt(self, model: HasPotential, past: Past | None) -> Found[Reached]:
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
            point = newton.solve(predicted(past, potential, self.size) if past else None)
            w, dual = newton.predictor(point), rows.dual_of_data(point.dual)
            seconds = time.perf_counter() - started
            certificate, _ = measured(design, self.outputs, w, dual, potential, shift, tol=self.tol)
        distance = rows.distance or certificate.distance
        status = status_of(certificate, distance)
        solution = Solution(
            w=w,
            dual=dual,
            status=status,
            route=f"dual Newton over blocks ({design.kind})",
            certificate=certificate,
            stats=Stats(effort.factorizations, effort.steps, seconds),
            potential=potential,
            shift=shift,
            distance=distance,
            _sensitivity=_no_sensitivity,
        )
        return solution, Reached(point.dual, potential) if status.ok else None


def _last_two(history: History[Reached], log_scale: float) -> Past:
    return [reached for _, reached in history]


def _no_sensitivity() -> Sensitivity:
    raise InputError(
        "sensitivity: needs d x n numbers and X as an array, got a solution on a big X. "
        "Pass X as an array of doubles, or take differences of two limits."
    )


def least_norm(rows: RowBasis) -> float:
    """The length of the shortest w with A w = target; 1 where that is 0."""
    largest = float(np.abs(rows.target).max())
    if largest == 0.0:
        return 1.0
    target = rows.target / largest
    return largest * float(np.sqrt(target @ rows.inverse_gram(target)))


def predicted(past: Past, potential: Potential, size: float) -> FloatArray:
    """The dual at another scale: along the secant in the unit; from one scale, in proportion."""
    last, before = past[-1], past[0]
    m = last.m / _unit(last.potential, size)
    here, there = _log_unit(last.potential, size), _log_unit(before.potential, size)
    if there != here:
        # The secant of m / unit in 1 / unit.
        ahead = -np.expm1(here - _log_unit(potential, size)) / np.expm1(here - there)
        m = m + ahead * (m - before.m / _unit(before.potential, size))
    return np.asarray(_unit(potential, size) * m)


def is_hidden(potential: Potential, size: float) -> bool:
    """Whether the rounding of the dual hides the limit.

    Where an ulp of the dual is 1e-4 of w, what is left of y stays at a tenth of that, and w(z)
    cannot be corrected any more: no start helps.
    """
    return _elasticity(potential, size) > 1e-4 / float(np.finfo(float).eps)


def ladders(model: Scaled, here: float, size: float) -> Iterator[list[float]]:
    """Log-scales from where a cold start is easy, in steps that grow with the unit.

    It takes some twenty steps up to d log w / d log z = 20: that is 1 in the kernel regime, and the
    unit at depth 2.
    """
    easy = 20.0

    def is_easy(log_scale: float) -> bool:
        return not _elasticity(model.at_log_scale(log_scale).potential, size) > easy

    if is_easy(here):
        return
    tops = here + 16.0 * np.exp2(np.arange(64))
    top = next((float(log_scale) for log_scale in tops if is_easy(log_scale)), here)
    hard = here
    while top - hard > 1.0:  # a factor of e in the scale
        middle = 0.5 * (hard + top)
        hard, top = (hard, middle) if is_easy(middle) else (middle, top)
    # The unit at depth 2 grows by 2 for each e in the scale: on the way down by these factors, the
    # second where the first fails.
    first = easy / 2.0
    for factor in (2.0, 1.25) if top > here else ():
        steps = int(np.ceil(np.log1p((top - here) / first) / np.log(factor)))
        yield [top - first * (factor**step - 1.0) for step in range(steps)]


def _unit(potential: Potential, size: float) -> float:
    """In the potential's own units, which keep it an ordinary number."""
    up, down = potential.grad(np.array([size])), potential.grad(np.array([-size]))
    return float(0.5 * np.median(up - down))


def _log_unit(potential: Potential, size: float) -> float:
    return float(np.log(_unit(potential, size))) + potential.log_unit


def _elasticity(potential: Potential, size: float) -> float:
    """d log w / d log z where a coordinate carries the fit, z counted from the start."""
    slope = float(np.median(potential.hess_dual(potential.grad(np.array([size])))))
    return slope * _unit(potential, size) / size


@contextmanager
def watching(wanted: bool, tol: float) -> Iterator[Watch]:
    """A bar on standard error, in decades of the gap; silent where not wanted or no terminal."""
    first: list[float] = []
    with shown("limit", 1.0, wanted=wanted, counted=False) as show:

        def report(step: int, gap: float) -> None:
            if 0.0 < gap < np.inf:
                first.append(gap)
            # The gap is 0 at the start and after the last step; decades are counted in between.
            begin = max(first, default=1.0)
            total = max(float(np.log10(begin / tol)), 1.0)
            done = total if gap <= tol else min(total, float(np.log10(begin / gap)))
            show(max(done, 0.0), f"step {step}, gap {gap:.1e}", total)

        yield report
