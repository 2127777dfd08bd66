"""How the dual of a big problem follows the scale of the start.

Where a coordinate carries the fit, its dual point is about

    unit = (Q'(w) - Q'(-w)) / 2    for w as large as the least-norm solution:

w / (2 scale^2) in the kernel regime, log(w / scale^2) at depth 2 and scale^(2 - depth) beyond, for
small scales. Along the scales the dual is nearly a + b unit: in the kernel regime b belongs to the
least-norm solution and a is 0; towards the rich limit b solves the dual of its linear program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.rows import Rows
from flowbias.limits.blocks.systems import factored
from flowbias.limits.scale_descent import Scaled
from flowbias.potentials import Potential

# d log w / d log z beyond which an ulp of the dual moves w so much that no start helps: where it is
# 1e-4 of w, what is left of y stays at a tenth of that, and w(z) cannot be corrected any more.
HIDDEN = 1e-4 / float(np.finfo(float).eps)
# d log w / d log z up to which a cold start takes some twenty steps: 1 in the kernel regime, the
# unit at depth 2.
EASY = 20.0
# Rises of the log-scale looked at: by factors of two, and then to within a factor of e in scale.
FIRST_RISE, RISES, NEAR = 16.0, 64, 1.0
# The factors by which the unit at depth 2 grows on the way down; the second is for where the first
# fails. It grows by 2 for each e in the scale.
FACTORS = (2.0, 1.25)
UNIT_PER_LOG_SCALE = 2.0


@dataclass(frozen=True)
class Reached:
    """The dual (of the independent rows) at one scale, and the potential there."""

    m: FloatArray
    potential: Potential


#: what was reached at the last scales, oldest first
Past: TypeAlias = Sequence[Reached]


def least_norm(rows: Rows) -> float:
    """The length of the shortest w with A w = target; 1 where that is 0."""
    largest = float(np.abs(rows.target).max())
    if largest == 0.0:
        return 1.0
    target = rows.target / largest
    return largest * float(np.sqrt(target @ factored(rows.gram)(target)))


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
    """Whether the rounding of the dual hides the limit."""
    return _elasticity(potential, size) > HIDDEN


def ways_down(model: Scaled, here: float, size: float) -> Iterator[list[float]]:
    """Log-scales from where a cold start is easy, in steps that grow with the unit."""

    def is_easy(log_scale: float) -> bool:
        return not _elasticity(model.at_log_scale(log_scale).potential, size) > EASY

    if is_easy(here):
        return
    tops = here + FIRST_RISE * np.exp2(np.arange(RISES))
    top = next((float(log_scale) for log_scale in tops if is_easy(log_scale)), here)
    hard = here
    while top - hard > NEAR:
        middle = 0.5 * (hard + top)
        hard, top = (hard, middle) if is_easy(middle) else (middle, top)
    first = EASY / UNIT_PER_LOG_SCALE
    for factor in FACTORS if top > here else ():
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
