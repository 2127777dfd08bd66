"""The problem that is solved of samples, as they are or less their means: a frame."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from flowbias.certificates.certificate import beside, certify, measured
from flowbias.certificates.exact_limit import exact_limit
from flowbias.designs.dense import ArrayDesign
from flowbias.estimators.intercepts.centred_sparse import CentredSparseDesign, varying
from flowbias.estimators.intercepts.samples import (
    Samples,
    as_array,
    centred,
    centred_outputs,
    is_large,
    is_sparse,
    refuse_large,
)
from flowbias.ground.arguments import depth_inside
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.limits.routes import only_predictor
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit, limit_from_dual, limit_with_state
from flowbias.models import MirrorModel
from flowbias.potentials import L2, Potential, Provides
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Stats, Status, status_of

#: The limit on one column of y.
Solve = Callable[[FloatArray], Solution]


@dataclass(frozen=True)
class OutputFits:
    """One limit per output, as coefficients of the data given."""

    coef: FloatArray
    intercept: FloatArray
    #: of the shape that y was given in
    dual: FloatArray
    solutions: tuple[Solution, ...]

    @property
    def failure(self) -> str | None:
        """What the first output that is not certified says about it."""
        return next((s.message for s in self.solutions if not s.status.ok), None)


@dataclass(frozen=True)
class Frame:
    """The problem that is solved, one column of y at a time, and where its origin lies.

    As it stands, X w = y; other intercepts have frames of their own.
    """

    samples: Samples
    X: Any
    y: FloatArray
    X_mean: FloatArray
    y_mean: FloatArray
    #: the column e that costs nothing, and is projected out of X and y; None: there is none
    free: FloatArray | None = None
    #: whether the last entry of a limit is its bias
    has_bias: ClassVar[bool] = False

    @classmethod
    def at_origin(cls, samples: Samples, X: Any) -> Self:
        """Of data as they are, times the roots of their weights."""
        d, k = X.shape[1], samples.y.shape[1]
        y = samples.weighted(samples.y)
        return cls(samples, samples.weighted(X), y, np.zeros(d), np.zeros(k))

    @property
    def moves(self) -> bool:
        """Whether gradient flow leaves its start: X has a nonzero entry."""
        return bool(np.any(self.X.data if is_sparse(self.X) else self.X))

    @property
    def rounding(self) -> float:
        """How far, relatively, X and y may be from what they stand for."""
        return 0.0

    def model(self, network: Any) -> Any:
        """What goes to the limit in place of the network."""
        return network

    def mirror(self, network: MirrorModel) -> tuple[Any, FloatArray]:
        """A model with a potential and the rows it is fitted to, for flows and derivatives."""
        refuse_large(self.samples.X, "flows and derivatives")
        return network, as_array(self.X)

    # --- limits --------------------------------------------------------------------------------

    def limit(
        self, model: Any, y: FloatArray, tol: float, near: FloatArray | None = None
    ) -> Solution:
        """The limit of a model on one output, certified or not; from a dual near it, if given."""
        if near is not None:
            problem = self.problem(y)
            found = limit_from_dual(model, problem, self.reduced(near), tol=tol)
            if found.status is Status.CERTIFIED:
                return self.restored(found)
        return self._from_scratch(model, y, tol)

    def _from_scratch(self, model: Any, y: FloatArray, tol: float) -> Solution:
        solution: Solution = limit(model, self.X, y, tol=tol, throw=False)
        return solution

    def along(
        self, network: Any, log_scales: FloatArray, y: FloatArray, tol: float
    ) -> tuple[Solution, ...]:
        """The limits on one output at each log-scale, certified or not."""
        return limit_path(network, self.X, y, log_scales=log_scales, tol=tol, throw=False).solutions

    def problem(self, y: FloatArray) -> Regression:
        """One output, in rows that are independent where those of the data are."""
        return Regression(self.reduced(self.X), self.reduced(y))

    def reduced(self, values: Any) -> Any:
        """X, y or a dual in the rows of `problem`."""
        return values

    def restored(self, solution: Solution) -> Solution:
        """A limit on `problem`, with the dual of the data's own rows."""
        return solution

    def alone(self, network: Any, problem: Regression, tol: float) -> Callable[[float], Solution]:
        """The limit on `problem` at any log-scale, each solved for from scratch.

        One, once it is certified, for all scales where the data leave one predictor only. None
        after `patience` failures from the beginning: on such data every scale takes long, and the
        first are the easiest.
        """
        found: list[Solution] = []
        patience = 3

        def solved(log_scale: float) -> Solution:
            certified = [solution.status.ok for solution in found]
            if any(certified) and only_predictor(problem) is not None:
                return found[certified.index(True)]
            if len(found) < patience or any(certified):
                model = network.at_log_scale(log_scale)
                found.append(limit_with_state(model, problem, tol=tol, warm=None)[0])
            return found[-1]

        return solved

    # --- back to the data ----------------------------------------------------------------------

    def fitted(self, solve: Solve, tol: float, *, throw: bool = True) -> OutputFits:
        """The limit for each column of y; with `throw` SolveError where one is not certified.

        `solve` itself must not throw: what a solver could not certify in the frame, the frame may.
        """
        if not self.moves:
            solve = self._resting(tol)
        fit = self._assembled([solve(column) for column in self.y.T])
        for solution in fit.solutions:
            solution.checked(throw)
        return fit

    def limits(
        self, model: Any, tol: float, *, near: FloatArray | None = None, throw: bool = True
    ) -> OutputFits:
        """Those of a model, as `fitted`; from duals (k, n) near them, where these are numbers."""
        starts = iter([None] * self.y.shape[1] if near is None or np.isnan(near).any() else near)
        return self.fitted(lambda y: self.limit(model, y, tol, next(starts)), tol, throw=throw)

    def fitted_along(self, network: Any, log_scales: FloatArray, tol: float) -> list[OutputFits]:
        """The limits for each column of y at every log-scale, each warm-started from the last."""
        if not self.moves:
            return [self.fitted(self._resting(tol), tol)] * len(log_scales)
        paths = [self.along(network, log_scales, column, tol) for column in self.y.T]
        return [self._assembled(solutions) for solutions in zip(*paths, strict=True)]

    def _assembled(self, solutions: Sequence[Solution]) -> OutputFits:
        """Limits in the frame as coefficients of the data given."""
        outputs = zip(solutions, self.samples.y.T, strict=True)
        solutions = [self.said(solution, column) for solution, column in outputs]
        coef, intercept = self.coefficients(np.stack([solution.w for solution in solutions]))
        dual = self.samples.dual_of_given(np.stack([solution.dual for solution in solutions]))
        return OutputFits(coef, intercept, dual, tuple(solutions))

    def _resting(self, tol: float) -> Solve:
        return lambda y: at_rest(self.X.shape, y, L2(), tol=tol, distance=float(y.any()))

    def coefficients(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """coef (k, d) and intercept (k,) of limits w, one per row."""
        return w, self.y_mean - w @ self.X_mean

    def said(self, solution: Solution, y: FloatArray) -> Solution:
        """The limit for one output in this frame, as it is said of the data given."""
        return solution


def at_rest(
    shape: tuple[int, int],
    y: FloatArray,
    potential: Potential,
    shift: FloatArray | float = 0.0,
    *,
    tol: float,
    distance: float,
) -> Solution:
    """Where X is 0 no predictor changes the loss, and gradient flow stays at its start."""
    n, d = shape
    w, dual = potential.grad_dual(np.zeros(d) + shift), np.zeros(n)
    # What centring leaves of a constant column is rounding, and stands for the zeros proved of.
    certificate = certify(scipy.sparse.csr_array(shape), y, w, dual, potential, shift, tol=tol)
    return Solution(
        w=w,
        dual=dual,
        status=status_of(certificate, distance),
        route="nothing to learn: X is zero",
        certificate=certificate,
        stats=Stats(0, 0, 0.0),
        potential=potential,
        shift=shift,
        distance=distance,
    )


def warn_of(
    failures: Sequence[tuple[float, str | None]], where: str, name: str = "log_scale"
) -> None:
    """One ConvergenceWarning that says for which log-scales (or times) limits are not certified."""
    failed = [(value, message) for value, message in failures if message is not None]
    if failed:
        values = ", ".join(f"{value:.6g}" for value in sorted({value for value, _ in failed}))
        warnings.warn(
            f"{where}: {len(failed)} of {len(failures)} limits are not certified, at {name} "
            f"{values}. The first: {failed[0][1]}",
            ConvergenceWarning,
            stacklevel=depth_inside(),
        )


def plain(samples: Samples) -> Frame:
    """Data as they are."""
    return Frame.at_origin(samples, samples.X)


class Contrasts:
    """n - 1 orthonormal combinations of n rows that see no multiple of e: a reflection less a row.

    Of rows less their mean they say all there is, and are independent where those are not.
    """

    def __init__(self, e: FloatArray) -> None:
        self._axis = e / np.linalg.norm(e)
        self._axis[0] += 1.0

    def of(self, rows: FloatArray) -> FloatArray:
        """(n - 1, k) of rows (n, k)."""
        return self._reflected(rows)[1:]

    def adjoint(self, dual: FloatArray) -> FloatArray:
        """The dual (n,) of the rows, from that of their contrasts."""
        return self._reflected(np.append(0.0, dual))

    def _reflected(self, rows: FloatArray) -> FloatArray:
        axis = self._axis
        return np.asarray(rows - np.multiply.outer(axis, (axis @ rows) / axis[0]))


def about_the_mean(
    solution: Solution, X: FloatArray, y: FloatArray, given: tuple[FloatArray, FloatArray]
) -> Solution:
    """The limit on the data given less their exact means, near that on (X, y), their doubles.

    Itself where that cannot be had.
    """
    potential, shift, tol = solution.potential, solution.shift, solution.certificate.tol
    if Provides.POTENTIAL not in potential.provides:
        return solution
    exact = exact_limit(X, y, cast(Potential, potential), shift, solution.dual, solution.w, given)
    if exact is None:
        return solution
    measures, candidate = measured(
        ArrayDesign(X), y, exact.w, exact.dual, potential, shift, tol=tol
    )
    proof = measures if candidate is None else beside(exact, measures, candidate)
    if not proof.ok:
        return solution
    return replace(
        solution,
        w=exact.w,
        dual=exact.dual,
        certificate=proof,
        status=status_of(proof, solution.distance),
        _sensitivity=solution.derivatives_at(exact.dual),
    )


# --- the frame of centred data -------------------------------------------------------------------


@dataclass(frozen=True)
class CentredFrame(Frame):
    """The rows of X, times the roots of the weights, add up to zero."""

    @property
    def rounding(self) -> float:
        """That of the means tells columns apart that tie; IN_RANGE is well above it."""
        return IN_RANGE

    def _from_scratch(self, model: Any, y: FloatArray, tol: float) -> Solution:
        """On one row less, which says the same; on all where that is not certified."""
        if 1 < len(y) <= self.X.shape[1]:
            X, rest = self.reduced(self.X), self.reduced(y)
            if X.any():
                solution = self.restored(limit(model, X, rest, tol=tol, throw=False))
                if solution.status is Status.CERTIFIED:
                    return solution
        return super()._from_scratch(model, y, tol)

    def reduced(self, values: Any) -> Any:
        return self._contrasts.of(values)

    def restored(self, solution: Solution) -> Solution:
        return replace(solution, dual=self._contrasts.adjoint(solution.dual))

    @property
    def _contrasts(self) -> Contrasts:
        """One row less says the same, and independent rows need no singular values."""
        return Contrasts(self.samples.root)

    def said(self, solution: Solution, y: FloatArray) -> Solution:
        """Centring leaves rows that rounding alone tells apart: that is no projection of y.

        And it breaks ties: where doubles could not tell what the limit is, that of the data less
        their exact means is taken.
        """
        if Provides.COSTS in solution.potential.provides and self._loses_rows():
            why = "centring loses rows in units far below the mean of a column"
            return replace(solution, status=Status.STALLED, route=f"{solution.route}: {why}")
        # In doubles it took no balls to tell how far the limit is.
        in_doubles = solution.certificate.exact is None and solution.status is not Status.STALLED
        if self.samples.root_weight is None and not in_doubles:
            given = as_array(self.samples.X), y
            solution = about_the_mean(solution, self.X, y - np.mean(y), given)
        if not 0.0 < solution.distance <= IN_RANGE:
            return solution
        projected = solution.status is Status.PROJECTED
        status = Status.CERTIFIED if projected else solution.status
        proof = replace(solution.certificate, distance=0.0)
        return replace(solution, status=status, distance=0.0, certificate=proof)

    def _loses_rows(self) -> bool:
        """Whether what tells two rows apart is, beside the means, near the last digit."""
        sizes = np.abs(as_array(self.samples.X)).max(axis=1)
        small = IN_RANGE * float(np.abs(self.X_mean).max())
        return bool(np.count_nonzero((sizes > 0.0) & (sizes < small)) > 1)


@dataclass(frozen=True)
class LargeFrame(Frame):
    """X is a design, centred without being filled."""

    varies: bool = True

    @property
    def moves(self) -> bool:
        return self.varies


def centred_frame(samples: Samples) -> Frame:
    """Data less their means."""
    if is_large(samples.X):
        return _centred_large(samples)
    X, X_mean = centred(as_array(samples.X), samples.weight)
    y, y_mean = centred_outputs(samples)
    return CentredFrame(samples, samples.weighted(X), y, X_mean, y_mean, samples.root)


def _centred_large(samples: Samples) -> Frame:
    e = samples.root
    varies = varying(samples.X)
    # Constant columns are left out, not turned into rounding.
    kept = samples.weighted(samples.X) @ scipy.sparse.diags_array(varies.astype(np.float64))
    mean = np.where(varies, np.asarray(e**2 @ samples.X) / samples.total_weight, 0.0)
    y, y_mean = centred_outputs(samples)
    X = CentredSparseDesign(kept, e, mean)
    return LargeFrame(samples, X, y, mean, y_mean, varies=bool(varies.any()))
