"""The flow on planted data over logarithmic time: from small scales coefficients come in stages.

Starting from a scale alpha, a coefficient stays near zero for a time of about log(1 / alpha) at
depth 2, alpha^(2 - D) beyond, and then rises quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from flowbias._typing import FloatArray, Mask
from flowbias.explorer.view import Settings
from flowbias.explorer.views.planted_data import Planted, population_error
from flowbias.flows.integrate import flow
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.problem import InputError, Regression
from flowbias.solution import Solution

# Places of the cursor, and sampled times between two of them.
CURSOR_STEPS, FINER = 100, 2
# Followed until the residual is RESIDUAL, with a local error that no picture shows.
RESIDUAL, RTOL = 1e-4, 1e-5
# Times alpha^(2 - D) beyond this many decades leave the last digits of the dual too few.
_MOST_DECADES = 4.0
# Coefficients above this share of the largest are counted.
_LARGE = 0.1


@dataclass(frozen=True)
class Passage:
    """The flow at times t, evenly spaced in log t; w has one row per time."""

    t: FloatArray
    w: FloatArray
    loss: FloatArray
    w_true: FloatArray
    limit: Solution
    message: str

    @cached_property
    def error(self) -> FloatArray:
        return population_error(self.w, self.w_true)

    @property
    def distance_to_limit(self) -> float:
        """At the last time, relative to the limit."""
        away = np.linalg.norm(self.w[-1] - self.limit.w)
        return float(away / np.linalg.norm(self.limit.w))

    @cached_property
    def large(self) -> NDArray[np.intp]:
        """The coefficients whose limit is at least a tenth of the largest."""
        size = np.abs(self.limit.w)
        return np.flatnonzero(size >= _LARGE * size.max())

    def share(self) -> FloatArray:
        """The large coefficients in units of their limits, one row per time."""
        return np.asarray(self.w[:, self.large] / self.limit.w[self.large])

    @cached_property
    def half_way(self) -> NDArray[np.intp]:
        """Position in t at which each large coefficient first has half of its limit."""
        reached = self.share() >= 0.5
        return np.where(reached.any(axis=0), reached.argmax(axis=0), len(self.t))

    def follow_separately(self) -> Mask:
        """Of each large coefficient that rises, but the first: whether it follows the one before.

        It is below a tenth of its limit, that is, when the one before is at half.
        """
        order = np.argsort(self.half_way, kind="stable")
        # One that never rises follows nobody.
        order = order[self.half_way[order] < len(self.t)]
        before, after = order[:-1], order[1:]
        return np.asarray(self.share()[self.half_way[before], after] < 0.1)


@dataclass(frozen=True)
class TimeScene:
    """A passage and the position in it at which the cursor stands."""

    passage: Passage
    exponent: float
    at: int


def scene_of(settings: Settings) -> TimeScene:
    depth, exponent = int(settings["depth"]), float(settings["log_scale"])
    passage = _passage(Planted.of(settings), depth, exponent)
    return TimeScene(passage, exponent, FINER * int(settings["moment"]))


# Up to 200 kilobytes each: as many as ten readers look at.
@lru_cache(maxsize=32)
def _passage(planted: Planted, depth: int, exponent: float) -> Passage:
    if (depth - 2) * -exponent > _MOST_DECADES:
        raise InputError(
            f"log_scale: must be >= {-_MOST_DECADES / (depth - 2):g} at depth {depth}, got "
            f"{exponent:g}. Times grow as the power {2 - depth} of the scale, beyond what doubles "
            "resolve. Take a larger scale or a smaller depth."
        )
    data = planted.draw()
    problem = Regression(data.X, data.y)
    model = DiagonalNet(depth, log_scale=exponent * math.log(10.0))
    followed = flow(model, problem, loss="half_mean", residual=RESIDUAL, rtol=RTOL)
    falls = followed.loss < 0.99 * followed.loss[0]
    # A little before anything happens.
    first = followed.t[np.argmax(falls)] / 3.0
    t = np.geomspace(first, followed.t[-1], FINER * CURSOR_STEPS + 1)
    w = followed.at(t)
    misfit = np.square(w @ data.X.T - data.y)
    return Passage(
        t=t,
        w=w,
        loss=0.5 * misfit.mean(axis=1),
        w_true=data.w_true,
        limit=limit(model, problem, throw=False),
        message=followed.message,
    )
