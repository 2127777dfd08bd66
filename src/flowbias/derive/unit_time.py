"""Following a field for unit time, as far as it goes: the integrator of every flow in this room.

A step of order eight (DOP853) has the local error asked for. Flows that blow up before unit time,
or run into a kink of F where no flow goes on, show in their steps: these get shorter and shorter,
or keep a length of which no affordable number reaches the end. Such a flow is given up early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy.integrate import DOP853

from flowbias.ground.typing import FloatArray

Field: TypeAlias = Callable[[float, FloatArray], FloatArray]

# Local error of a step, relative; a hundred steps add up to less than 1e-10.
RTOL = 1e-12
# By how much a number exceeds its tolerance, or one singular value the next, to decide anything.
CLEARLY = 1e3
# Growth by a factor 1e300 takes about 300 steps.
MOST_STEPS = 600


class Evaluations:
    """How often a solve may still evaluate its field; flows end, short of their goal, at 0."""

    def __init__(self, left: float = np.inf) -> None:
        self.left = left

    @property
    def spent(self) -> bool:
        return self.left <= 0


def integrate(
    field: Field, first: FloatArray, rtol: float, evaluations: Evaluations | None = None
) -> FloatArray | None:
    """The unknowns at time 1; None where they do not get there."""
    for solver in steps(field, first, rtol, evaluations or Evaluations()):
        if solver.status == "finished" and np.isfinite(solver.y).all():
            return np.asarray(solver.y)
    return None


def sampled(field: Field, first: FloatArray, rtol: float, shares: FloatArray) -> FloatArray:
    """The unknowns at increasing times in [0, 1], one row each; NaN where they do not get there."""
    values = np.full((len(shares), len(first)), np.nan)
    values[shares == 0.0] = first
    for solver in steps(field, first, rtol, Evaluations()):
        passed = (shares > solver.t_old) & (shares <= solver.t)
        if passed.any():
            values[passed] = solver.dense_output()(shares[passed]).T
    return values


def steps(
    field: Field, first: FloatArray, rtol: float, evaluations: Evaluations, shortest: float = 1e-10
) -> Iterator[Any]:
    """The integrator after each step to time 1, as far as it gets.

    A step as short as `shortest` means that the flow does not get there: its point is outside the
    domain, or so near the end of it that w is beyond use. Every 16 steps the rest is estimated, and
    given up if it does not fit into the steps left, where steps keep their length within a factor
    of 2 (a fast start that settles makes them longer, a singularity that is passed by shorter for a
    while) or are below 1e-6.
    """
    if evaluations.spent:
        return
    size = float(np.abs(first).max()) or 1.0
    # A trial step beyond the domain may overflow; it is retried shorter.
    with np.errstate(all="ignore"):
        solver = DOP853(field, 0.0, first, 1.0, rtol=rtol, atol=1e-3 * rtol * size)
        counted, length_before = 0, 0.0
        for taken in range(1, MOST_STEPS + 1):
            solver.step()
            evaluations.left -= solver.nfev - counted
            counted = solver.nfev
            if solver.status == "failed" or solver.h_abs < shortest or evaluations.spent:
                return
            yield solver
            if solver.status == "finished":
                return
            if taken % 16 == 0:
                length, steps_left = solver.h_abs, MOST_STEPS - taken
                grows = length > 2.0 * length_before
                shrinks = length < length_before / 2.0 and length > 1e-6
                if 1.0 - solver.t > steps_left * length and not (grows or shrinks):
                    return
                length_before = length
