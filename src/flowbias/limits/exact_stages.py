"""The stages in rational numbers, where rounding hides them: the last resort for a small X.

Where columns are nearly dependent, what is left of y is small and pulls for long: zeta, of order
one, is a sum of large parts that cancel, and doubles know neither when a coordinate meets its bound
nor whether it has. Every number of the walk (`inverse_scale_space.py`) is rational, though: times,
weights, what is left. Here they are computed as such, so that ties are ties, and an end is an end.
What is returned are the nearest doubles.

Not where rounding alone tells rows of X apart: such a path would fit the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import arb, fmpq, fmpq_mat

from flowbias.certificates.exact_problem import CONE_ENTRIES, Cone
from flowbias.certificates.exact_simplex import OutOfPivotsError, rational_matrix
from flowbias.certificates.rows import hidden_by_rounding
from flowbias.certificates.stage_certificate import (
    ExactStage,
    StageCertificate,
    certify_exact_stages,
)
from flowbias.ground.balls import precision, to_doubles
from flowbias.ground.typing import FloatArray
from flowbias.limits.inverse_scale_space import Stage


def exact_stages(
    X: FloatArray,
    y: FloatArray,
    upper: FloatArray,
    lower: FloatArray,
    most: int | None,
    tol: float,
) -> tuple[tuple[Stage, ...], StageCertificate] | None:
    """The stages and their proof, which says whether they are all.

    None where that takes too long, where rounding decides on rows, and where columns leave a
    choice, which is for the flow to make.
    """
    if X.size > CONE_ENTRIES or hidden_by_rounding(X) > 0.0:
        return None
    walk = _ExactWalk(X, y, upper, lower)
    found: list[ExactStage] = []
    whole = True
    try:
        for stage in walk.stages():
            if most is not None and len(found) == most:
                whole = False
                break
            if stage is None:
                return None
            found.append(stage)
    except OutOfPivotsError:
        return None
    certificate = certify_exact_stages(X, y, upper, lower, found, tol=tol, whole=whole)
    if certificate is None:
        return None
    with precision(128):
        rounded = tuple(map(_rounded, found))
    finite = all(
        np.isfinite(stage.time) and np.isfinite(stage.coefficients).all() for stage in rounded
    )
    begun = all(stage.time > 0.0 for stage in rounded[1:])
    return (rounded, certificate) if finite and begun else None


def _rounded(stage: ExactStage) -> Stage:
    return Stage(
        time=float(arb(stage.time)),
        support=tuple(stage.weights),
        coefficients=to_doubles([arb(weight) for weight in stage.weights.values()]),
        residual=to_doubles([arb(part) for part in stage.residual.entries()]),
        tied=(),
    )


class _ExactWalk:
    """zeta, and which coordinates are at their bounds."""

    def __init__(self, X: FloatArray, y: FloatArray, upper: FloatArray, lower: FloatArray) -> None:
        self.X, self.y = rational_matrix(X), rational_matrix(y[:, None])
        # None: a side that is closed.
        self.bounds = {
            sign: [fmpq(*bound.as_integer_ratio()) if bound < np.inf else None for bound in side]
            for sign, side in ((1, upper.tolist()), (-1, lower.tolist()))
        }
        self.time, self.zeta = fmpq(0), [fmpq(0)] * X.shape[1]
        self.sides: dict[int, int] = {}
        # Of the projections of all stages: each takes about one for a coordinate that turns.
        self.pivots = 20 * sum(X.shape)

    def stages(self) -> Iterator[ExactStage | None]:
        """One after the other; None at the first that leaves a choice."""
        weights: dict[int, fmpq] = {}
        residual = self.y
        yield ExactStage(self.time, weights, residual)
        while True:
            pull = (self.X.transpose() * residual).entries()
            wait = self._wait(pull)
            if wait is None:
                return
            self.time += wait
            self.zeta = [at + wait * p for at, p in zip(self.zeta, pull, strict=True)]
            self._meet(pull)
            weights, residual, is_choice = self._settled(list(weights))
            yield None if is_choice else ExactStage(self.time, weights, residual)

    def _wait(self, pull: list[fmpq]) -> fmpq | None:
        """Until the next coordinate meets a bound; None if none ever will."""
        waits = []
        for i, p in enumerate(pull):
            sign = 1 if p > 0 else -1
            bound = self.bounds[sign][i]
            if p != 0 and bound is not None:
                waits.append((sign * bound - self.zeta[i]) / p)
        return min(waits, default=None)

    def _meet(self, pull: list[fmpq]) -> None:
        for i, p in enumerate(pull):
            sign = 1 if p > 0 else -1
            bound = self.bounds[sign][i]
            if p != 0 and bound is not None and self.zeta[i] == sign * bound:
                self.sides[i] = sign

    def _settled(self, guess: list[int]) -> tuple[dict[int, fmpq], fmpq_mat, bool]:
        """Least squares over the coordinates at bounds, with the signs of these."""
        here = list(self.sides)
        turned = [[self.sides[i] * row[i] for i in here] for row in self.X.tolist()]
        cone, places = Cone(fmpq_mat(turned), []), range(len(here))
        known = [place for place in places if here[place] in guess]
        found, residual = cone.projected(self.y, list(places), known, self.pivots)
        self.pivots -= 1
        if self.pivots <= 0:
            raise OutOfPivotsError
        slopes = {place: cone.along(place, residual) for place in places if place not in found}
        waiting = [place for place, slope in slopes.items() if slope == 0]
        used = [*found, *waiting]
        is_choice = bool(waiting) and cone.rank(used) < len(used)
        for place, slope in slopes.items():
            if slope < 0:
                del self.sides[here[place]]
        weights = {here[place]: self.sides[here[place]] * at for place, at in found.items()}
        return weights, residual, is_choice
