"""Limits at many scales on the training parts of all folds at once, for cross-validation.

Folds are rows of one X. With a dual nu that is 0 outside a training part, and orthogonal to e where
data are centred, X^T nu is that of the fold, X w holds what the part left out is predicted, and
X X^T the Gram matrix of every fold: X is neither copied nor centred again, and one product serves
all folds, and many scales where these do not wait for each other.

Neighbouring scales have neighbouring duals: in units of Q'(c), c the size of the least-norm fit,
they are nearly constant in the kernel regime, and polynomials in log(scale) follow what they do. In
the rich one they are nearly linear in 1 / Q'(c): a coefficient w in use has

    z / Q'(c) = 1 + log(w / c) / Q'(c)    at depth 2,     1 + O(scale^(D - 2)) = 1 + O(1 / Q'(c))
                                                          at depth D > 2.

The walk goes down the scales in strides that extrapolation can take; scales in between are
interpolated and corrected in blocks. Corrections are quasi-Newton steps: a factor of
X diag(w'(z)) X^T is their metric for as many scales as it serves, and the secants of the steps tell
what it has become wrong by (L-BFGS [Liu and Nocedal 1989]).

As w = grad Q*(X^T nu) by construction, a limit is missed by its residual alone. It passes at

    ||y - X w|| / ||y||  <=  TO_CHOOSE min(1, e),   |<nu, y - X w>|  <=  2 TO_CHOOSE <nu, X w>,

e being the root mean square error of the part left out over that of y: about six digits of what
scales are compared by, and a duality gap of as many. One that does not is solved for alone, with
its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from flowbias.estimators.start import Grid
from flowbias.ground import extended
from flowbias.ground.linear_algebra import cholesky_with_ridge, reciprocal_condition
from flowbias.ground.tolerances import IN_RANGE, TO_CHOOSE
from flowbias.ground.typing import FloatArray, Mask
from flowbias.limits.driver import Iteration, iterate
from flowbias.limits.normal_equations import Effort
from flowbias.problems.regression import SAFE_GRAM_RCOND

Index = NDArray[np.intp]


class TrainingPart(NamedTuple):
    """A training part, as rows of X, and one output of all rows."""

    train: Index
    y: FloatArray


class Metric(NamedTuple):
    """Cholesky factor near A diag(w') A^T of a part's rows A, equilibrated, and the sum of w'."""

    lower: FloatArray
    scale: FloatArray
    mass: float

    @classmethod
    def of(cls, matrix: FloatArray, mass: float) -> Metric:
        matrix, scale = equilibrated(matrix)
        return cls(cholesky_with_ridge(np.tril(matrix)), scale, mass)


def equilibrated(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The matrix with a diagonal of ones, and what rows and columns were multiplied by."""
    diagonal = np.diagonal(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return matrix * scale * scale[:, None], scale


class SharedRows:
    """Rows X (n, d), parts of them, and the e whose multiples an intercept takes out, or None."""

    def __init__(self, X: FloatArray, e: FloatArray | None, parts: Sequence[TrainingPart]) -> None:
        n, self.d = X.shape
        self.X, self.parts, everyone = X, parts, np.arange(len(parts))
        self.mask = np.zeros((len(parts), n))
        for mask, part in zip(self.mask, parts, strict=True):
            mask[part.train] = 1.0
        self.e = None if e is None else e / np.linalg.norm(e * self.mask, axis=1)[:, None]
        self.y = np.stack([part.y for part in parts])
        self.target = self.mask * self.centred(everyone, self.y)
        products = X @ X.T
        self.grams = [
            self._completed(of, products[np.ix_(part.train, part.train)])
            for of, part in enumerate(parts)
        ]
        #: of the least-norm fits, and how well their equations are conditioned
        self.kernel = [Metric.of(gram, 1.0) for gram in self.grams]
        self.rcond = [
            reciprocal_condition(metric.lower, equilibrated(gram)[0])
            for metric, gram in zip(self.kernel, self.grams, strict=True)
        ]
        self.size = np.array([extended.length(target) or 1.0 for target in self.target])

    def centred(self, of: Index, values: FloatArray) -> FloatArray:
        """Values (k, n) less the multiples of e that centre them on the training parts `of`."""
        if self.e is None:
            return values
        e = self.e[of]
        return np.asarray(values - (e * values * self.mask[of]).sum(axis=1)[:, None] * e)

    def _completed(self, of: int, gram: FloatArray) -> FloatArray:
        """The Gram matrix of centred rows, with e, which they do not see, as one of their size."""
        if self.e is None:
            return gram
        e = self.e[of, self.parts[of].train]
        seen, size = gram @ e, float(np.trace(gram)) / len(e)
        across = np.multiply.outer(e, seen - 0.5 * (float(e @ seen) + size) * e)
        return np.asarray(gram - across - across.T)

    def is_fit(self, of: int) -> bool:
        """Whether the rows of a part are independent, and known well enough from these."""
        train, gram = self.parts[of].train, self.grams[of]
        # A row of zeros is a constraint that nothing meets: its factor has a one there.
        if len(train) > self.d or not np.diagonal(gram).min() > 0.0:
            return False
        if self.e is not None:
            # nu is orthogonal to e to rounding: so much it sees of the mean of the part.
            mean = extended.length(self.e[of, train] @ self.X[train]) / np.sqrt(len(train))
            least = np.sqrt(np.diagonal(gram).min())
            if not np.finfo(float).eps * mean < IN_RANGE * least:
                return False
        return self.rcond[of] > SAFE_GRAM_RCOND

    def metric(self, of: int, slope: FloatArray) -> Metric | None:
        """For w' = slope; None where that leaves the doubles.

        The heaviest columns count as they are, all others as their mean c: what these add is
        c A A^T less what the heavy ones have of it. Near the kernel regime all
        weights are alike, near the rich one the light ones are nothing: eigenvalues are 0.75 to 1.4
        times the true ones in between, for a fraction of the products.
        """
        train, mass = self.parts[of].train, float(slope.sum())
        if not 0.0 < mass < np.inf:
            return None
        count, mean = 2 * len(train), 0.0
        heavy = np.arange(self.d)
        if 3 * count <= self.d:
            heavy = np.argpartition(slope, self.d - count)[self.d - count :]
            mean = max((mass - float(slope[heavy].sum())) / (self.d - count), 0.0)
        excess = np.maximum(slope[heavy] - mean, 0.0)
        columns = self.X[np.ix_(train, heavy)]
        columns *= np.sqrt(excess)
        matrix = self._completed(of, columns @ columns.T)
        matrix += mean * self.grams[of]
        return Metric.of(matrix, mass)

    def solve(self, of: int, metric: Metric, gaps: FloatArray) -> FloatArray:
        """The steps for gaps (k, n) of one part."""
        train, scale = self.parts[of].train, metric.scale
        found, _ = scipy.linalg.lapack.dpotrs(metric.lower, (scale * gaps[:, train]).T, lower=1)
        steps = np.zeros_like(gaps)
        steps[:, train] = scale * found.T
        return steps

    def least_norm(self) -> FloatArray:
        """Duals of the least-norm fits."""
        targets = enumerate(zip(self.kernel, self.target, strict=True))
        return np.concatenate([self.solve(of, metric, y[None]) for of, (metric, y) in targets])

    def dual_of(self, of: int, dual: FloatArray) -> FloatArray:
        """A dual of a part's own rows as one of all rows."""
        full = np.zeros((1, len(self.mask[of])))
        full[0, self.parts[of].train] = dual
        return np.asarray(self.mask[of] * self.centred(np.array([of]), full)[0])

    def errors(self, of: Index, left: FloatArray) -> FloatArray:
        """Root mean square of what is left of y in the rows left out, over that of y."""
        trained = self.mask[of]
        tested = 1.0 - trained
        squares = np.square(tested * left / self.size[of, None]).sum(axis=1)
        return np.asarray(
            np.sqrt(squares * trained.sum(axis=1) / np.maximum(tested.sum(axis=1), 1.0))
        )


class Points(NamedTuple):
    """Duals (k, n) of parts at scales, the scales in runs, and what belongs to them."""

    of: Index
    at: Index
    dual: FloatArray
    z: FloatArray
    w: FloatArray
    #: y - X w of all rows, less what an intercept takes
    left: FloatArray
    #: of the training part
    gap: FloatArray
    residual: FloatArray

    @property
    def worst(self) -> float:
        return float(self.residual.max())

    def chosen(self, rows: Mask) -> Points:
        return Points._make(values[rows] for values in self)

    def where_better(self, others: Points) -> tuple[Points, Mask]:
        """The others where their residual is less, and where that is."""
        better = others.residual < self.residual
        if better.all():
            return others, better
        merged = self.chosen(np.ones(len(better), dtype=bool))
        for mine, theirs in zip(merged, others, strict=True):
            mine[better] = theirs[better]
        return merged, better


@dataclass(frozen=True)
class Correction:
    """Points on their way to limits, with what is known of the Hessian at each."""

    points: Points
    metrics: list[Metric | None]
    #: the sum of w' that a metric is made of over that of the point
    share: FloatArray
    #: steps (k, n), the falls of the gap that they made, and 1 / <step, fall>; 0 where of no use
    secants: list[tuple[FloatArray, FloatArray, FloatArray]]
    #: whether a new metric is due, steps with this one, and how much of a step to take
    is_slow: Mask
    used: FloatArray
    reach: FloatArray

    @property
    def residual(self) -> float:
        """Of the worst point."""
        return float(self.points.residual.max(initial=0.0))

    def chosen(self, rows: Mask) -> Correction:
        return Correction(
            self.points.chosen(rows),
            [metric for metric, is_chosen in zip(self.metrics, rows, strict=True) if is_chosen],
            self.share[rows],
            [(step[rows], fall[rows], inverse[rows]) for step, fall, inverse in self.secants],
            self.is_slow[rows],
            self.used[rows],
            self.reach[rows],
        )


#: The dual of the limit on a part at a scale, solved for alone; None where it is not certified.
Alone = Callable[[int, int], FloatArray | None]


def walked(
    X: FloatArray,
    e: FloatArray | None,
    parts: Sequence[TrainingPart],
    grid: Grid,
    tol: float,
    alone: Alone,
    *,
    keeps_w: bool = True,
) -> tuple[ScaleWalk, FloatArray]:
    """The limits on parts of the rows of X, found, and their duals (scales, parts, n).

    These are NaN where a part has left the walk.
    """
    with np.errstate(all="ignore"):
        walk = ScaleWalk(SharedRows(X, e, parts), *grid, tol, alone, keeps_w)
        walk.run()
        return walk, np.stack([walk.duals_at(at) for at in range(len(grid.log_scales))])


class ScaleWalk:
    """Limits of a network at log-scales, the largest first, on the parts of shared rows.

    A part whose limit at some scale is not certified leaves the walk there.
    """

    #: a step that leaves more than this share of the residual calls for a new metric
    slow: ClassVar[float] = 0.4
    #: and so do so many steps with one
    many: ClassVar[int] = 8
    #: limits that take more steps are solved for alone
    max_steps: ClassVar[int] = 30
    #: a prediction this far off is made for a nearer scale
    far: ClassVar[float] = 0.3
    #: after one this close the stride is doubled, which multiplies the error of a cubic by 16; not
    #: after larger ones, for which the metric of the last scale would not do
    close: ClassVar[float] = 1e-4
    #: duals that extrapolate, and that interpolate; more are wild where columns come into use
    outside: ClassVar[int] = 4
    inside: ClassVar[int] = 6

    def __init__(
        self,
        rows: SharedRows,
        network: Any,
        log_scales: FloatArray,
        tol: float,
        alone: Alone,
        keeps_w: bool,
    ) -> None:
        self.rows, self.log_scales, self.alone, self.keeps_w = rows, log_scales, alone, keeps_w
        #: of y (scales, parts, n), by w and an intercept; NaN where a limit was not walked to
        self.left: FloatArray = np.full((len(log_scales), *rows.y.shape), np.nan)
        #: by scale and part
        self.w: dict[tuple[int, int], FloatArray] = {}
        self.potentials = [network.at_log_scale(float(s)).potential for s in log_scales]
        # None has to be better than what would be certified with two digits to spare.
        self.least = min(1e-2 * tol, TO_CHOOSE)
        self.going = np.flatnonzero([rows.is_fit(of) for of in range(len(rows.parts))])
        first = rows.least_norm()
        self.size = np.array([extended.length(w) or 1.0 for w in first @ rows.X])
        self.first: FloatArray = first / self.size[:, None]
        self.units = [potential.grad(self.size)[:, None] for potential in self.potentials]
        #: log Q'(c), in duals that all scales share, and whether weights start above coefficients
        logs = [np.log(unit[:, 0]) for unit in self.units]
        self.heights = [log + p.log_unit for log, p in zip(logs, self.potentials, strict=True)]
        alike = np.log(self.size / np.sqrt(rows.d))
        self.is_lazy = [network.depth * log_scale > alike for log_scale in log_scales]
        #: duals of all parts in units of Q'(c), and their metrics, by scale
        self.duals: dict[int, FloatArray] = {}
        self.metrics: list[dict[int, Metric]] = [{} for _ in rows.parts]
        self.effort = Effort()

    def run(self) -> None:
        """Every limit."""
        self._go_down()
        # A block takes no more room than X.
        count = max(1, len(self.rows.mask[0]) // (2 * len(self.rows.parts)))
        while self.going.size and (between := self._between()):
            for begin in range(0, len(between), count):
                self._correct(self._predicted(between[begin : begin + count]))

    def duals_at(self, at: int) -> FloatArray:
        """Of all parts (k, n) at a scale; NaN where not known."""
        known = self.duals.get(at)
        return np.full_like(self.first, np.nan) if known is None else self.units[at] * known

    def _between(self) -> list[int]:
        """Scales in the middle between two that are done."""
        return [(a + b) // 2 for a, b in pairwise(sorted(self.duals)) if b - a > 1]

    def _go_down(self) -> None:
        """From the first scale to the last, in strides that extrapolation can take."""
        here, stride, last = -1, 1, len(self.log_scales) - 1
        while here < last and self.going.size:
            there = min(here + stride, last)
            points = self._predicted([there])
            while points.worst > self.far and there > here + 1:
                there = here + (there - here) // 2
                points = self._predicted([there])
            order = self.outside
            while points.worst > self.far and (order := order - 1):
                points, _ = points.where_better(self._predicted([there], order))
            stride = (there - here) * (2 if points.worst < self.close else 1)
            self._correct(points)
            here = there

    # --- predictions ---------------------------------------------------------------------------

    def _predicted(self, scales: Sequence[int], order: int = outside) -> Points:
        """The parts that are going at these scales, by polynomials in the log-scale."""
        duals = [(self.units[at] * self._interpolated(at, order))[self.going] for at in scales]
        of = np.tile(self.going, len(scales))
        return self._at(of, np.repeat(scales, len(self.going)), np.concatenate(duals))

    def _interpolated(self, at: int, order: int) -> FloatArray:
        if not self.duals:
            return self.first
        done, here = np.array(list(self.duals)), self.log_scales[at]
        done = done[np.unique(self.log_scales[done], return_index=True)[1]]
        count = self.inside if at < done.max() else order
        near = done[np.argsort(np.abs(self.log_scales[done] - here), kind="stable")[:count]]
        nodes = np.stack([self._away(other, at) for other in near])
        # Lagrange's polynomials: 1 at a node, 0 at the others.
        others = [np.delete(nodes, i, axis=0) for i in range(len(nodes))]
        shares = [np.prod(o / (o - x), axis=0) for o, x in zip(others, nodes, strict=True)]
        parts = (x[:, None] * self.duals[i] for x, i in zip(shares, near.tolist(), strict=True))
        return np.asarray(sum(parts))

    def _away(self, other: int, at: int) -> FloatArray:
        """From one scale to another, for each part, in the variable that duals are smooth in."""
        ahead = self.log_scales[other] - self.log_scales[at]
        apart = self.heights[at] - self.heights[other]
        return np.asarray(np.where(self.is_lazy[at], ahead, np.expm1(apart)))

    def _at(self, of: Index, at: Index, dual: FloatArray) -> Points:
        rows = self.rows
        z = dual @ rows.X
        w = np.empty_like(z)
        for scale, same in _runs(at):
            w[same] = self.potentials[scale].grad_dual(z[same])
        left = rows.centred(of, rows.y[of] - w @ rows.X.T)
        gap = rows.mask[of] * left
        residual = np.sqrt(np.square(gap / rows.size[of, None]).sum(axis=1))
        residual[np.isnan(residual)] = np.inf
        return Points(of, at, dual, z, w, left, gap, residual)

    # --- corrections ---------------------------------------------------------------------------

    def _correct(self, points: Points) -> None:
        """From points to limits; one that they are too far from is solved for alone."""
        for at in np.unique(points.at):
            self.duals[int(at)] = np.full_like(self.first, np.nan)
        metrics = [self._nearest(of, at) for of, at in zip(points.of, points.at, strict=True)]
        made = np.array([np.nan if metric is None else metric.mass for metric in metrics])
        for scale, same in _runs(points.at):
            made[same] /= self.potentials[scale].hess_dual(points.z[same]).sum(axis=-1)
        ones = np.ones(len(made))
        start = Correction(points, metrics, made, [], np.isnan(made), 0 * ones, ones)
        rest = iterate(
            self, self._settled(start), self.effort, max_steps=self.max_steps
        ).here.points
        for of, at in zip(rest.of, rest.at, strict=True):
            dual = self.alone(of, at)
            if dual is None:
                self.going = self.going[self.going != of]
            else:
                self.duals[int(at)][of] = self.rows.dual_of(of, dual) / self.units[at][of]

    def _nearest(self, of: int, at: int) -> Metric | None:
        known, scales = self.metrics[of], self.log_scales
        if not known:
            return None
        return known[min(known, key=lambda other: abs(scales[other] - scales[at]))]

    def _settled(self, correction: Correction) -> Correction:
        """Those that are no limits yet; what are limits is kept."""
        points = correction.points
        done = self._are_limits(points)
        for i in np.flatnonzero(done):
            of, at = int(points.of[i]), int(points.at[i])
            self.left[at, of] = points.left[i]
            if self.keeps_w:
                self.w[at, of] = points.w[i]
            self.duals[at][of] = points.dual[i] / self.units[at][of]
        return correction.chosen(~done) if done.any() else correction

    def _are_limits(self, points: Points) -> Mask:
        """Whether they pass the test of this module's head."""
        of, dual = points.of, points.dual
        near = np.clip(TO_CHOOSE * self.rows.errors(of, points.left), self.least, TO_CHOOSE)
        missing = (dual * points.gap).sum(axis=1)
        paired = (dual * self.rows.target[of]).sum(axis=1) - missing
        gap_is_small = np.abs(missing) <= 2.0 * TO_CHOOSE * np.abs(paired)
        return np.asarray((points.residual <= near) & gap_is_small)

    def terminate(self, progress: Iteration[Correction]) -> bool:
        return not progress.here.metrics

    def step(self, progress: Iteration[Correction]) -> Correction:
        """A quasi-Newton step at every point; one that does harm is not taken, and then shorter."""
        here = self._renewed(progress.here)
        points = here.points
        step = here.reach[:, None] * self._direction(here)
        ahead = self._at(points.of, points.at, points.dual + step)
        after, better = points.where_better(ahead)
        fall = points.gap - ahead.gap
        # A step that did harm may have led nowhere, where the gap is NaN.
        step[~better] = fall[~better] = 0.0
        curvature = (step * fall).sum(axis=1)
        inverse = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=curvature > 0.0)
        used = here.used + 1
        return self._settled(
            Correction(
                after,
                here.metrics,
                here.share,
                [*here.secants, (step, fall, inverse)],
                ~(ahead.residual <= self.slow * points.residual) | (used >= self.many),
                used,
                np.where(better, 1.0, 0.25 * here.reach),
            )
        )

    def _renewed(self, here: Correction) -> Correction:
        """With new metrics where they are due: not at once again after a step that did harm."""
        due = np.flatnonzero(here.is_slow & ((here.reach == 1.0) | (here.used != 1)))
        if not due.size:
            return here
        points, metrics = here.points, list(here.metrics)
        share, used = here.share.copy(), here.used.copy()
        for i in due:
            of, at = int(points.of[i]), int(points.at[i])
            slope = self.potentials[at].hess_dual(points.z[i])
            metrics[i] = self._remembered(of, at, self.rows.metric(of, slope))
            share[i], used[i] = 1.0, 0
            for _, _, inverse in here.secants:
                inverse[i] = 0.0
        self.effort.factorizations += due.size
        return replace(here, metrics=metrics, share=share, used=used)

    def _remembered(self, of: int, at: int, metric: Metric | None) -> Metric | None:
        if metric is None:
            return None
        known = self.metrics[of]
        known[at] = metric
        # All of them take no more room than X, or than is nothing.
        room = max(self.rows.X.size, 2**23) // (len(self.metrics) * metric.lower.size)
        while len(known) > max(room, 2):
            del known[next(iter(known))]
        return metric

    def _direction(self, here: Correction) -> FloatArray:
        """The two loops of L-BFGS about the metrics."""
        gap, shares = here.points.gap, []
        for step, fall, inverse in reversed(here.secants):
            shares.append((inverse * (step * gap).sum(axis=1))[:, None])
            gap = gap - shares[-1] * fall
        out = np.zeros_like(gap)
        for metric, same in _by_identity(here.metrics):
            of = int(here.points.of[same[0]])
            out[same] = here.share[same, None] * self.rows.solve(of, metric, gap[same])
        for (step, fall, inverse), share in zip(here.secants, reversed(shares), strict=True):
            out += (share - (inverse * (fall * out).sum(axis=1))[:, None]) * step
        return out


def _runs(at: Index) -> Iterator[tuple[int, slice]]:
    """The scales, and where each of them is."""
    ends = [0, *(np.flatnonzero(np.diff(at)) + 1), len(at)]
    return ((int(at[a]), slice(a, b)) for a, b in pairwise(ends) if a < b)


def _by_identity(metrics: list[Metric | None]) -> Iterator[tuple[Metric, list[int]]]:
    """Each metric once, and where it is."""
    places: dict[int, list[int]] = {}
    for i, metric in enumerate(metrics):
        places.setdefault(id(metric), []).append(i)
    return ((metric, same) for same in places.values() if (metric := metrics[same[0]]) is not None)
