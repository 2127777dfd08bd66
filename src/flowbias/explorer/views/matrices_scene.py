"""Completion of a planted matrix by gradient flow on U V^T.  [woodworth2020, section 6, Figure 5]

The flow is followed in the Gram matrix of the rows: width 10^6 costs what width 10 costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from flowbias._threads import one_thread
from flowbias._typing import FloatArray, Mask
from flowbias.datasets.low_rank import LowRankCompletion, low_rank_completion
from flowbias.experiments.woodworth.completion import RESIDUAL, Ending, ending, nuclear
from flowbias.limits.nuclear_norm import nuclear_norm
from flowbias.matrix_problems.completion import MatrixCompletion
from flowbias.models.factorization import MatrixFactorization

SIDE = 10
# Data sets whose least nuclear norm is kept.
_KEPT = 64


@dataclass(frozen=True)
class Seen:
    """Which data are drawn."""

    rank: int
    observed: int
    seed: int

    @cached_property
    def data(self) -> LowRankCompletion:
        return low_rank_completion((SIDE, SIDE), self.rank, self.observed, self.seed)

    @cached_property
    def problem(self) -> MatrixCompletion:
        data = self.data
        return MatrixCompletion(data.rows, data.cols, data.values, (SIDE, SIDE))

    @property
    def zero_filled(self) -> FloatArray:
        """Seen entries as they are, zero elsewhere: least Frobenius norm."""
        return np.where(self.problem.mask, self.data.truth, 0.0)


@dataclass(frozen=True)
class MatricesScene:
    """Truth, start and end of the flow."""

    seen: Seen
    scale: float
    width: int
    end: Ending
    # Least nuclear norm with its matrix, or why there is none.
    least_nuclear: FloatArray | None
    missing: str

    @property
    def level(self) -> float:
        """alpha^2 k, which decides the regime."""
        return self.scale**2 * self.width

    @property
    def truth(self) -> FloatArray:
        return self.seen.data.truth

    @property
    def mask(self) -> Mask:
        """True where an entry is seen."""
        return self.seen.problem.mask

    @property
    def moved(self) -> float:
        """How far unseen entries have moved, over their size in the truth."""
        return self._unseen(self.end.M - self.end.start)

    @property
    def off(self) -> float:
        """How far unseen entries are from the truth, over their size there."""
        return self._unseen(self.end.M - self.truth)

    @property
    def excess(self) -> float | None:
        """Nuclear norm from the least possible (0) to that of the least Frobenius norm (1)."""
        if self.least_nuclear is None:
            return None
        least, most = nuclear(self.least_nuclear), nuclear(self.seen.zero_filled)
        return (nuclear(self.end.M) - least) / (most - least)

    def _unseen(self, M: FloatArray) -> float:
        unseen = ~self.mask
        return float(np.linalg.norm(M[unseen]) / np.linalg.norm(self.truth[unseen]))


def matrices_scene(seen: Seen, scale: float, width: int) -> MatricesScene:
    """The flow until the seen entries fit; FlowError where it cannot be followed so far."""
    start = MatrixFactorization.gaussian((SIDE, SIDE), width=width, scale=scale, rng=seen.seed)
    with one_thread():
        end = ending(start, seen.problem, residual=RESIDUAL)
        least, missing = _least_nuclear(seen)
    return MatricesScene(seen, scale, width, end, least, missing)


@lru_cache(maxsize=_KEPT)
def _least_nuclear(seen: Seen) -> tuple[FloatArray | None, str]:
    """The rich extreme, certified; without its solver the reason, for the page to show."""
    try:
        return nuclear_norm(seen.problem).M, ""
    except ImportError as error:
        return None, str(error)


@cache
def load_solver() -> None:
    """Import what solves for least nuclear norms, and let it solve once."""
    _least_nuclear(Seen(1, 95, 0))
