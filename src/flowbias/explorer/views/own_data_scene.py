"""The limit on a reader's own data at one scale, and the two extremes that it lies between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from flowbias._threads import one_thread
from flowbias.data_files.measures import largest
from flowbias.data_files.regression_data import RegressionData
from flowbias.explorer.uploads import read_upload
from flowbias.explorer.views.planted_data import Planted
from flowbias.explorer.views.regime_words import Extremes
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.problem import Regression
from flowbias.solution import Solution

#: What is shown before a file is chosen; the code to copy draws the same.
EXAMPLE = Planted(n=20, d=40, sparsity=3, noise=0.1, seed=0)
# Coefficients that a picture has room for.
MOST_SHOWN = 60
# Files whose extremes are kept; each is at most 5 MB.
_KEPT = 4


class _Given(NamedTuple):
    """Data with what does not depend on the start."""

    data: RegressionData
    extremes: Extremes


@dataclass(frozen=True)
class OwnDataScene:
    """The limit beside the extremes."""

    data: RegressionData
    extremes: Extremes
    is_example: bool
    net: DiagonalNet
    solution: Solution

    @cached_property
    def shown(self) -> list[int]:
        """The coefficients that are largest in any of the three predictors, in their order."""
        each = (self.solution, self.extremes.rich, self.extremes.kernel)
        size = np.max([np.abs(one.w) for one in each], axis=0)
        return sorted(largest(size, MOST_SHOWN)) or [0]


def own_data_scene(content: bytes, log10_scale: float, depth: int) -> OwnDataScene:
    """The certified limit on the file, or on the example where there is none."""
    net = DiagonalNet(depth=depth, log_scale=log10_scale * np.log(10.0))
    data, extremes = _given(content)
    with one_thread():
        solution = limit(net, data.problem)
    return OwnDataScene(data, extremes, not content, net, solution)


@lru_cache(maxsize=_KEPT)
def _given(content: bytes) -> _Given:
    data = read_upload(content) if content else _example()
    return _Given(data, Extremes.of(data.problem))


def _example() -> RegressionData:
    drawn = EXAMPLE.draw()
    return RegressionData(Regression(drawn.X, drawn.y), None)
