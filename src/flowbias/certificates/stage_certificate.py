"""Proof of a path of stages, recomputed from X, y, the times and the weights alone.

With nu(tau) the integral of y - X w and zeta = X^T nu, a piecewise constant w(tau) is the path of
a vanishing start if and only if

    -b- <= zeta <= b+                     at the beginning and at the end of every stage
    w_i > 0 only where zeta_i = b+_i,     w_i < 0 only where zeta_i = -b-_i, all through its stage

for zeta is linear in between; and the fit X w(tau) is the only one with that property: of two such
paths, d/dtau ||nu - nu'||^2 / 2 = -||X (w - w')||^2 - <zeta - zeta', w - w'>' <= 0, since w is a
normal of the box at zeta. The path is whole where, at its end, no coordinate is pulled any more
towards a bound that it can meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flowbias._measures import Measure, Measured
from flowbias._typing import FloatArray
from flowbias.potentials import L1


class Weights(Protocol):
    """w on one stage, by its support."""

    @property
    def time(self) -> float: ...
    @property
    def support(self) -> Any: ...
    @property
    def coefficients(self) -> FloatArray: ...


@dataclass(frozen=True)
class StageCertificate(Measured):
    """How far a path of stages is from satisfying what defines it.

    excess    by how much zeta leaves its bounds, relative to them
    support   how far zeta is from the bound of a coordinate that has a weight, relative to it
    disorder  by how much a stage ends before it begins, relative to the last time
    rest      what still pulls on a coordinate at the end, relative to its column and to y; not
              judged where the path was cut short
    """

    excess: float
    support: float
    disorder: float
    rest: float
    tol: float
    whole: bool = True

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (
            Measure("zeta beyond its bounds", self.excess, self.tol),
            Measure("zeta off the bound of a weight", self.support, self.tol),
            Measure("stages out of order", self.disorder, self.tol),
            Measure("pull at the end", self.rest, self.tol if self.whole else None),
        )


def certify_stages(
    X: FloatArray, y: FloatArray, stages: Sequence[Weights], bounds: L1, *, tol: float, whole: bool
) -> StageCertificate:
    """The certificate of a path on an array X; the costs of the l1 norm bound zeta."""
    d = X.shape[1]
    upper, lower = (np.broadcast_to(b, (d,)) for b in (bounds.weights, bounds.negative_weights))
    times = np.array([stage.time for stage in stages])
    W = np.zeros((len(stages), d))
    for row, stage in zip(W, stages, strict=True):
        row[list(stage.support)] = stage.coefficients
    residuals = y - W @ X.T
    lasting = np.diff(times)
    nu = np.vstack([np.zeros_like(y), np.cumsum(lasting[:, None] * residuals[:-1], axis=0)])
    # In units of the bounds: beyond 1 is outside, and a weight needs 1 at both ends of its stage.
    up, down = (nu @ X) / upper, -(nu @ X) / lower
    pushed, pulled = W > 0.0, W < 0.0
    off = max(
        float(np.max(np.abs(share[k:] - 1.0), where=held, initial=0.0))
        for share, weighed in ((up, pushed), (down, pulled))
        for k, held in ((0, weighed), (1, weighed[:-1]))
    )
    # A weight on a closed side has no bound to be at: its share is 0, and its distance 1.
    return StageCertificate(
        excess=max(float(up.max()), float(down.max()), 1.0) - 1.0,
        support=off,
        disorder=float(np.max(-lasting, initial=0.0) / (times[-1] or 1.0)),
        rest=_rest(X, y, residuals[-1], upper, lower),
        tol=tol,
        whole=whole,
    )


def _rest(
    X: FloatArray, y: FloatArray, residual: FloatArray, upper: FloatArray, lower: FloatArray
) -> float:
    """The largest pull on a coordinate that may still answer to it.

    Relative to y, not to the residual, which is rounding where all of y is fitted.
    """
    pull = residual @ X
    lengths = np.sqrt(np.einsum("ij,ij->j", X, X)) * np.linalg.norm(y)
    answers = (np.where(pull > 0.0, upper, lower) < np.inf) & (lengths > 0.0)
    return float(np.max(np.abs(pull[answers]) / lengths[answers], initial=0.0))
