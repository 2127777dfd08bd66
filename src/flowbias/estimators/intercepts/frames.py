"""What `fit_intercept` means: which problem is solved, and the way back to coefficients.

False        X w = y.
"centered"   (also True) X and y less their (weighted) means; the intercept is what makes the
             residuals average to zero. A convention of statistics, not a gradient flow: it is the
             limit with a bias that costs nothing.
"trained"    a bias parameter that starts at 0 and is trained with the rest: see `trained_bias.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from flowbias.designs import DENSE_UP_TO, design_of
from flowbias.estimators.intercepts.centring import (
    CANCELLED,
    CentredSparseDesign,
    Contrasts,
    about_the_mean,
)
from flowbias.estimators.intercepts.centring import centred as less_mean
from flowbias.estimators.intercepts.trained_bias import TrainedBias, bias_weight
from flowbias.estimators.samples import Samples, is_sparse
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import Provides
from flowbias.ground.tolerances import IN_RANGE
from flowbias.ground.typing import FloatArray
from flowbias.limits.routes import only_predictor
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit, limit_with_state
from flowbias.models import MirrorModel
from flowbias.potentials import Potential
from flowbias.potentials.with_bias import WithBias
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Status


@dataclass(frozen=True)
class WithBiasModel:
    """A network and a bias that starts at 0, on the network's clock."""

    potential: Potential
    mirror_rate: float
    shift: float = 0.0

    @property
    def provides(self) -> frozenset[Provides]:
        return self.potential.provides


@dataclass(frozen=True, eq=False)
class MirrorFrame:
    """A model with a potential, the rows it is fitted to, and a column that costs nothing."""

    model: Any
    X: FloatArray
    free: FloatArray | None
    has_bias_column: bool = False


@dataclass(frozen=True)
class Frame:
    """The problem that is solved, one column of y at a time, and where its origin lies."""

    samples: Samples
    X: Any
    y: FloatArray
    X_mean: FloatArray
    y_mean: FloatArray

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

    def limit(self, model: Any, y: FloatArray, tol: float) -> Solution:
        """The limit of a model on one output, certified or not."""
        solution: Solution = limit(model, self.X, y, tol=tol, throw=False)
        return solution

    def along(
        self, network: Any, log_scales: FloatArray, y: FloatArray, tol: float
    ) -> tuple[Solution, ...]:
        """The limits on one output at each log-scale, certified or not."""
        return limit_path(network, self.X, y, log_scales=log_scales, tol=tol, throw=False).solutions

    @property
    def shared_rows(self) -> tuple[FloatArray, FloatArray | None] | None:
        """X of which a fold takes rows, with the e that centres it; None where it has its own."""
        return None if design_of(self.X) is not None else (as_array(self.X), None)

    def problem(self, y: FloatArray) -> Regression:
        """One output, in rows that are independent where those of the data are."""
        return Regression(self.X, y)

    def alone(self, network: Any, y: FloatArray, tol: float) -> Callable[[float], Solution]:
        """The limit on one output at any log-scale, each solved for from scratch."""
        return _alone(network, self.problem(y), tol)

    def mirror(self, network: MirrorModel) -> MirrorFrame:
        """For those who need the potential of what is fitted: flows and derivatives."""
        refuse_large(self.samples.X, "flows and derivatives")
        return self._mirror(network)

    def _mirror(self, network: MirrorModel) -> MirrorFrame:
        return MirrorFrame(network, as_array(self.X), None)

    def coefficients(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """coef (k, d) and intercept (k,) of limits w, one per row."""
        return w, self.y_mean - w @ self.X_mean

    def said(self, solution: Solution, y: FloatArray) -> Solution:
        """The limit for one output in this frame, as it is said of the data given."""
        return solution


def _alone(network: Any, problem: Regression, tol: float) -> Callable[[float], Solution]:
    """One limit, once it is certified, for all scales where the data leave one predictor only.

    None after `patience` failures from the beginning: on such data every scale takes long, and the
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


@dataclass(frozen=True)
class CentredFrame(Frame):
    """The rows of X, times the roots of the weights, add up to zero."""

    @property
    def rounding(self) -> float:
        """That of the means tells columns apart that tie; IN_RANGE is well above it."""
        return IN_RANGE

    def said(self, solution: Solution, y: FloatArray) -> Solution:
        """Centring leaves rows that rounding alone tells apart: that is no projection of y.

        And it breaks ties: where doubles could not tell what the limit is, that of the data less
        their exact means is taken.
        """
        if Provides.COSTS in solution.potential.provides and self._loses_rows():
            why = "centring loses rows in units far below the mean of a column"
            return replace(solution, status=Status.STALLED, route=f"{solution.route}: {why}")
        in_doubles = solution.status.ok and solution.certificate.is_in_doubles
        if self.samples.root_weight is None and not in_doubles:
            given = as_array(self.samples.X), y
            solution = about_the_mean(solution, self.X, y - np.mean(y), given)
        if not 0.0 < solution.distance <= IN_RANGE:
            return solution
        projected = solution.status is Status.PROJECTED
        status = Status.CERTIFIED if projected else solution.status
        proof = replace(solution.certificate, distance=0.0)
        return replace(solution, status=status, distance=0.0, certificate=proof)

    def _mirror(self, network: MirrorModel) -> MirrorFrame:
        return MirrorFrame(network, np.asarray(self.X), self.samples.root)

    def _loses_rows(self) -> bool:
        """Whether what tells two rows apart is, beside the means, near the last digit."""
        sizes = np.abs(as_array(self.samples.X)).max(axis=1)
        small = IN_RANGE * float(np.abs(self.X_mean).max())
        return bool(np.count_nonzero((sizes > 0.0) & (sizes < small)) > 1)

    @property
    def shared_rows(self) -> tuple[FloatArray, FloatArray | None] | None:
        return self.X, self.samples.root

    def limit(self, model: Any, y: FloatArray, tol: float) -> Solution:
        if 1 < len(y) <= self.X.shape[1]:
            X, rest = self._contrasts.of(self.X), self._contrasts.of(y)
            if X.any():
                solution = self._of_rows(limit(model, X, rest, tol=tol, throw=False))
                if solution.status is Status.CERTIFIED:
                    return solution
        return super().limit(model, y, tol)

    def problem(self, y: FloatArray) -> Regression:
        return Regression(self._contrasts.of(self.X), self._contrasts.of(y))

    def alone(self, network: Any, y: FloatArray, tol: float) -> Callable[[float], Solution]:
        solve = super().alone(network, y, tol)
        return lambda log_scale: self._of_rows(solve(log_scale))

    @property
    def _contrasts(self) -> Contrasts:
        """One row less says the same, and independent rows need no singular values."""
        return Contrasts(self.samples.root)

    def _of_rows(self, solution: Solution) -> Solution:
        return replace(solution, dual=self._contrasts.adjoint(solution.dual))


@dataclass(frozen=True)
class LargeFrame(Frame):
    """X is a design, centred without being filled."""

    varies: bool = True

    @property
    def moves(self) -> bool:
        return self.varies


@dataclass(frozen=True)
class TrainedFrame(Frame):
    """The last entry of a limit is its bias."""

    @property
    def moves(self) -> bool:
        return True  # the bias does

    def model(self, network: Any) -> TrainedBias:
        return TrainedBias(network, self.samples.root_weight)

    def _mirror(self, network: MirrorModel) -> MirrorFrame:
        """A limit is solved in a way of its own; followed or differentiated, [X, e] is the data."""
        rate = bias_weight(network)
        potential = WithBias(network.potential, rate, self.X.shape[1])
        X = np.column_stack([self.X, self.samples.root])
        return MirrorFrame(WithBiasModel(potential, rate), X, None, has_bias_column=True)

    def along(
        self, network: Any, log_scales: FloatArray, y: FloatArray, tol: float
    ) -> tuple[Solution, ...]:
        models = (self.model(network.at_log_scale(float(log_scale))) for log_scale in log_scales)
        return tuple(limit(model, self.X, y, tol=tol, throw=False) for model in models)

    @property
    def shared_rows(self) -> None:
        return None

    def coefficients(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        return w[:, :-1], w[:, -1]


def plain(samples: Samples) -> Frame:
    """Data as they are."""
    return _at_origin(Frame, samples, samples.X)


def trained(samples: Samples) -> Frame:
    """Data as they are, for a model that has its own bias."""
    refuse_large(samples.X, 'fit_intercept="trained"')
    return _at_origin(TrainedFrame, samples, as_array(samples.X))


def _at_origin(kind: type[Frame], samples: Samples, X: Any) -> Frame:
    d, k = X.shape[1], samples.y.shape[1]
    y = samples.weighted(samples.y)
    return kind(samples, samples.weighted(X), y, np.zeros(d), np.zeros(k))


def centred(samples: Samples) -> Frame:
    """Data less their means."""
    if is_large(samples.X):
        return _centred_large(samples)
    X, X_mean = less_mean(as_array(samples.X), samples.weight)
    y, y_mean = _centred_outputs(samples)
    return CentredFrame(samples, samples.weighted(X), y, X_mean, y_mean)


def _centred_large(samples: Samples) -> Frame:
    e = samples.root
    varies = _varying(samples.X)
    # Constant columns are left out, not turned into rounding.
    kept = samples.weighted(samples.X) @ scipy.sparse.diags_array(varies.astype(np.float64))
    mean = np.where(varies, np.asarray(e**2 @ samples.X) / samples.total_weight, 0.0)
    y, y_mean = _centred_outputs(samples)
    X = CentredSparseDesign(kept, e, mean)
    return LargeFrame(samples, X, y, mean, y_mean, bool(varies.any()))


def _varying(X: Any) -> NDArray[np.bool_]:
    """Which columns of a sparse X differ between samples by more than rounding."""
    highest, lowest = (extreme.toarray().ravel() for extreme in (X.max(axis=0), X.min(axis=0)))
    size = np.maximum(np.abs(highest), np.abs(lowest))
    return np.asarray(highest - lowest > CANCELLED * size)


def _centred_outputs(samples: Samples) -> tuple[FloatArray, FloatArray]:
    """y, and its means, one output at a time: what is rounding in one need not be in another."""
    columns = (np.ascontiguousarray(column)[:, None] for column in samples.y.T)
    parts = [less_mean(column, samples.weight) for column in columns]
    rest, means = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return samples.weighted(rest), means


def is_large(X: Any) -> bool:
    """Whether X is sparse and has too many entries, zeros counted, to be made dense."""
    return is_sparse(X) and X.shape[0] * X.shape[1] > DENSE_UP_TO


def as_array(X: Any) -> FloatArray:
    """X as a dense array."""
    return np.asarray(X.toarray() if is_sparse(X) else X)


def refuse_large(X: Any, purpose: str) -> None:
    """InputError where X would have to be made dense and is too large for it."""
    if is_large(X):
        raise InputError(
            f"X: must have at most {DENSE_UP_TO} entries, zeros counted, for {purpose}, which "
            f"makes it dense; got shape {X.shape}. ImplicitBiasRegressor and MinNormRegressor with "
            "fit_intercept=True or False keep it sparse."
        )


FRAMES: dict[Hashable, Callable[[Samples], Frame]] = {
    False: plain,
    True: centred,
    "centered": centred,
    "trained": trained,
}


def frame_of(
    samples: Samples, fit_intercept: Any, offered: tuple[Any, ...] = tuple(FRAMES)
) -> Frame:
    """The frame that `fit_intercept` asks for, among those offered."""
    frames = {choice: FRAMES[choice] for choice in offered}
    try:
        frame = frames.get(fit_intercept)
    except TypeError:  # an array or a list, which is no key
        frame = None
    if frame is None:
        names = ", ".join(repr(choice) for choice in offered)
        raise InputError(
            f"fit_intercept: must be one of {names}, got {fit_intercept!r}. "
            'True is "centered"; docs/estimators.md says what each of them means.'
        )
    return frame(samples)
