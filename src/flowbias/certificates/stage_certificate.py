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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from flint import fmpq, fmpq_mat

from flowbias.certificates.certificate import ratio
from flowbias.certificates.exact_simplex import rational_matrix
from flowbias.certificates.measures import Measure, Measured
from flowbias.designs import Block, Design
from flowbias.ground.typing import FloatArray, Mask
from flowbias.potentials import L1


class StageWeights(Protocol):
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
    rest      what still pulls at the end on a coordinate that may answer, relative to its column
              and to y (not to the residual, which is rounding where all of y is fitted); not
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


@np.errstate(all="ignore")  # what is no number fails
def certify_stages(
    design: Design,
    y: FloatArray,
    stages: Sequence[StageWeights],
    bounds: L1,
    *,
    tol: float,
    whole: bool,
) -> StageCertificate:
    """The certificate of a path on X; the costs of the l1 norm bound zeta."""
    times = np.array([stage.time for stage in stages])
    lasting = np.diff(times)
    weights = weights_of(stages, design.d)
    residuals = y - sum(block.apply(_on(weights, block).T).T for block in design.blocks())
    nu = np.vstack([np.zeros_like(y), np.cumsum(lasting[:, None] * residuals[:-1], axis=0)])
    upper, lower = (
        np.broadcast_to(b, (design.d,)) for b in (bounds.weights, bounds.negative_weights)
    )
    found = [
        _on_block(block, _on(weights, block), nu, residuals[-1], upper, lower)
        for block in design.blocks()
    ]
    excess, off, pull = np.max(found, axis=0)
    unit = np.abs(y).max() or 1.0  # squares of y may leave the double range
    return StageCertificate(
        excess=float(excess),
        support=float(off),
        disorder=float(np.max(-lasting, initial=0.0) / (times[-1] or 1.0)),
        rest=ratio(float(pull / unit), float(np.linalg.norm(y / unit))),
        tol=tol,
        whole=whole,
    )


@dataclass(frozen=True)
class ExactStage:
    """w from `time` on, and what it leaves of y, in rational numbers."""

    time: fmpq
    weights: dict[int, fmpq]
    residual: fmpq_mat


def certify_exact_stages(
    X: FloatArray,
    y: FloatArray,
    upper: FloatArray,
    lower: FloatArray,
    stages: Sequence[ExactStage],
    *,
    tol: float,
    whole: bool,
) -> StageCertificate | None:
    """Proof that times and weights are those of a path, from these and the data alone.

    Every measure is compared with nothing, in rational numbers: all are 0, or there is no proof.
    """
    proved = _are_stages(X, y, upper, lower, stages, whole=whole)
    return StageCertificate(0.0, 0.0, 0.0, 0.0, tol, whole) if proved else None


def _are_stages(
    X: FloatArray,
    y: FloatArray,
    upper: FloatArray,
    lower: FloatArray,
    stages: Sequence[ExactStage],
    *,
    whole: bool,
) -> bool:
    matrix, outputs = rational_matrix(X), rational_matrix(y[:, None])
    turned, zeta = matrix.transpose(), fmpq_mat(X.shape[1], 1)
    above, below = (
        [fmpq(*bound.as_integer_ratio()) if bound < np.inf else None for bound in side.tolist()]
        for side in (upper, lower)
    )

    def is_held(w: fmpq_mat) -> bool:
        """Whether zeta is within its bounds, and at that of each weight."""
        for at, weight, most, least in zip(zeta.entries(), w.entries(), above, below, strict=True):
            if not ((most is None or at <= most) and (least is None or at >= -least)):
                return False
            met = most if weight > 0 else least
            if weight != 0 and (met is None or at != (met if weight > 0 else -met)):
                return False
        return True

    ends = [stage.time for stage in stages[1:]]
    for stage, end in zip(stages, [*ends, stages[-1].time], strict=True):
        w = fmpq_mat(X.shape[1], 1)
        for i, weight in stage.weights.items():
            w[i, 0] = weight
        pull = turned * (outputs - matrix * w)
        if not (end >= stage.time and is_held(w)):
            return False
        zeta += pull * (end - stage.time)
        if not is_held(w):
            return False
    answers = [
        p
        for p, most, least in zip(pull.entries(), above, below, strict=True)
        if p != 0 and (most if p > 0 else least) is not None
    ]
    return stages[0].time == 0 and not (whole and answers)


def weights_of(stages: Sequence[StageWeights], d: int) -> Any:
    """w on each stage, one per row of a sparse matrix of doubles."""
    counts = [len(stage.support) for stage in stages]
    entries = np.concatenate([stage.coefficients for stage in stages])
    columns = np.concatenate([np.asarray(stage.support, dtype=np.intp) for stage in stages])
    rows = np.repeat(np.arange(len(stages)), counts)
    return scipy.sparse.csc_array((entries, (rows, columns)), shape=(len(stages), d))


def _on(weights: Any, block: Block) -> FloatArray:
    return np.asarray(weights[:, block.columns].toarray())


def _on_block(
    block: Any,
    W: FloatArray,
    nu: FloatArray,
    residual: FloatArray,
    upper: FloatArray,
    lower: FloatArray,
) -> tuple[float, float, float]:
    """Excess, distance from the bounds of weights, and pull at the end, over some columns."""
    upper, lower = upper[block.columns], lower[block.columns]
    # In units of the bounds: beyond 1 is outside, and a weight needs 1 at both ends of its stage.
    # One on a closed side has no bound to be at: its share is 0, and its distance 1.
    zeta = block.adjoint(nu.T).T
    excess, off = [0.0], [0.0]
    for share, weighed in _sides(zeta, W, upper, lower):
        share -= 1.0
        excess.append(float(share.max()))
        np.abs(share, out=share)
        for k, held in ((0, weighed), (1, weighed[:-1])):
            off.append(float(np.max(share[k:], where=held, initial=0.0)))
    pull = block.adjoint(residual)
    # Means: a sum of entries that are doubles may be none.
    lengths = block.absolute_adjoint(np.full_like(residual, 1.0 / len(residual)))
    answers = (np.where(pull > 0.0, upper, lower) < np.inf) & (lengths > 0.0)
    rest = np.max(np.abs(pull[answers]) / lengths[answers], initial=0.0) / len(residual)
    return float(np.max(excess)), float(np.max(off)), float(rest)


def _sides(
    zeta: FloatArray, W: FloatArray, upper: FloatArray, lower: FloatArray
) -> Iterator[tuple[FloatArray, Mask]]:
    """zeta in units of a bound, and the weights there: one side at a time, as these are large."""
    yield zeta / upper, W > 0.0
    yield zeta / -lower, W < 0.0
