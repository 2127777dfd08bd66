"""Which weights gradient flow gives to columns that could do each other's work.

Its w is at every time the rich limit of its own predictions X w. So where columns at their bounds
depend on each other, the weights of a stage are those of `rich_limit` on these columns, for what
they fit together. The choice scales with the weights, as the entropy |w| log|w| and the power
|w|^(2/D) do on a face of equal cost: columns that are all parallel are asked once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from flowbias.designs.tasks import Coordinates
from flowbias.ground.extended import row_lengths
from flowbias.ground.typing import FloatArray, Indices
from flowbias.limits.inverse_scale_space import EPS, Columns, Stage
from flowbias.limits.rich_limit import rich_limit
from flowbias.results.solution import Status


class Sharing:
    """The choices of one model on one X, remembered where they come again."""

    def __init__(self, model: Any, columns: Columns) -> None:
        self.columns = columns
        self.coordinates = Coordinates(model.potential, model.shift, columns.shape[1])
        #: by columns and their sign: shares of the weight that one of them would have alone
        self.known: dict[tuple[tuple[int, ...], bool], FloatArray] = {}
        #: whether every choice so far is proved
        self.proved = True

    def settled(self, stage: Stage) -> Stage:
        """The stage with the weights that gradient flow selects."""
        if not stage.tied:
            return stage
        face = np.array([*stage.support, *stage.tied])
        weights = np.concatenate([stage.coefficients, np.zeros(len(stage.tied))])
        X = np.column_stack([self.columns.column(j) for j in face])
        sharing = _sharing(X / row_lengths(X.T))
        if sharing.any():
            weights[sharing] = self._shared(X[:, sharing], face[sharing], weights[sharing])
        used = np.flatnonzero(weights)
        return replace(stage, support=tuple(face[used].tolist()), coefficients=weights[used])

    def _shared(self, X: FloatArray, which: Indices, weights: FloatArray) -> FloatArray:
        lengths = row_lengths(X.T)
        directions = X / lengths
        tol = _rounding(X) * float(np.sqrt(len(lengths)))
        parallel = np.linalg.matrix_rank(directions, tol=tol) == 1
        # All that they fit together, as a multiple of the first of them; the other sign has
        # another start, and other shares.
        total = float(directions[:, 0] @ (X @ weights) / lengths[0])
        key = tuple(which.tolist()), total > 0.0
        if parallel and key in self.known:
            return total * self.known[key]
        order = np.argsort(which)
        mask = np.zeros(self.columns.shape[1], dtype=bool)
        mask[which] = True
        limit = rich_limit(self.coordinates.on(mask), X[:, order], X @ weights, throw=False)
        self.proved &= limit.status in (Status.CERTIFIED, Status.PROJECTED)
        if not limit.status.ok:
            return weights
        chosen = np.empty_like(weights)
        chosen[order] = limit.w
        if parallel and total != 0.0:
            self.known[key] = chosen / total
        return chosen


def _rounding(X: FloatArray) -> float:
    return float(max(X.shape)) * EPS


def _sharing(X: FloatArray) -> Any:
    """Which of these columns of length one depend on others: what a null vector uses."""
    null = scipy.linalg.null_space(X, rcond=8.0 * _rounding(X))
    # Half of the digits: an entry of a null vector is of order one, or rounding.
    return np.abs(null).max(axis=1, initial=0.0) > np.sqrt(EPS)
