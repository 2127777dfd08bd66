"""Data as an estimator gets them, and the problem that is solved: a frame.

Data are checked by scikit-learn's rules, weights read once. `sample_weight` is the weight of a
sample in the loss, (c/2) sum weight_i (<x_i, w> - y_i)^2, which is the loss of rows
sqrt(weight_i) (x_i, y_i): an interpolator does not change with it, a least-squares limit and the
centre of the data do. A sample of weight 0 is not there.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_X_y, validate_data

from flowbias.certificates.certificate import certify
from flowbias.designs import DENSE_UP_TO, design_of
from flowbias.ground.arguments import InputError, depth_inside
from flowbias.ground.typing import FloatArray
from flowbias.limits.routes import only_predictor
from flowbias.limits.scale_path import limit_path
from flowbias.limits.solve import limit, limit_from_dual, limit_with_state
from flowbias.models import MirrorModel
from flowbias.potentials import L2, Potential
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution, Stats, Status, status_of


def is_sparse(X: Any) -> bool:
    """Whether X is in one of SciPy's sparse formats."""
    return bool(scipy.sparse.issparse(X))


# Of scikit-learn, for X and y.
_RULES: dict[str, Any] = {
    "accept_sparse": "csr",
    "dtype": np.float64,
    "multi_output": True,
    "y_numeric": True,
}


@contextmanager
def doubles_alone() -> Iterator[None]:
    """In place of Python's words, which name no argument, for numbers that are no doubles."""
    try:
        yield
    except OverflowError:
        raise InputError(
            "X, y: must hold numbers that are doubles, got an integer or a fraction beyond them. "
            "Measure in larger units."
        ) from None


def checked_data(X: Any, y: Any) -> tuple[Any, FloatArray]:
    """X (dense or CSR) and y, checked by scikit-learn's rules."""
    with doubles_alone():
        return check_X_y(X, y, **_RULES)  # type: ignore[no-any-return]


def read_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool = True
) -> tuple[Any, FloatArray, FloatArray | None]:
    """X (dense or CSR), y and weights as `fit` was given them, checked by scikit-learn's rules.

    Sets n_features_in_ and feature_names_in_ of the estimator, or (without `reset`) compares.
    """
    with doubles_alone():
        X, y = validate_data(estimator, X, y, reset=reset, **_RULES)
    for name, values in (("X", X), ("y", y)):
        _check_size(name, float(abs(values).max()))
    return X, y, None if sample_weight is None else _weights(sample_weight, X)


def _check_size(name: str, largest: float) -> None:
    """Refuse numbers whose sum over samples, of which the means are made, is no double."""
    most = 1e300
    if largest > most:
        raise InputError(
            f"{name}: must have entries of at most {most:.0e} in size, got {largest:.1e}. "
            "Measure it in a larger unit."
        )


def _weights(sample_weight: Any, X: Any) -> FloatArray:
    """One weight per sample, by scikit-learn's rules, whose words do not say what they got."""
    try:
        checked: FloatArray = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    except ValueError as refusal:
        raise InputError(
            f"sample_weight: must be one finite weight >= 0 per sample ({X.shape[0]}), not all of "
            f"them 0, got {reprlib.repr(sample_weight)}, of which scikit-learn says: {refusal} "
            "Leave it out to count samples alike."
        ) from refusal
    return checked


@dataclass(frozen=True)
class Samples:
    """Samples of positive weight: X (n, d), dense or CSR, and y (n, k)."""

    X: Any
    y: FloatArray
    #: whether y was given without the dimension of its outputs
    single: bool
    #: roots of the weights, or None where all samples count alike
    root_weight: FloatArray | None
    #: which of the samples given these are; None: all
    kept: NDArray[np.intp] | None
    given: int

    @classmethod
    def of(cls, X: Any, y: FloatArray, weight: FloatArray | None = None) -> Samples:
        """Those of checked data whose weight is not 0."""
        n, single = X.shape[0], y.ndim == 1
        y = np.asarray(y, dtype=np.float64).reshape(n, -1)
        if weight is None:
            return cls(X, y, single, None, None, n)
        kept = np.flatnonzero(weight > 0.0)
        if len(kept) == 0:
            raise InputError(
                f"sample_weight: must be positive for at least one sample, got {n} zeros. "
                "In cross-validation every training part needs one."
            )
        return cls(X[kept], y[kept], single, np.sqrt(weight[kept]), kept, n)

    @property
    def root(self) -> FloatArray:
        """Square roots of the weights: ones where there are none."""
        return np.ones(len(self.y)) if self.root_weight is None else self.root_weight

    @property
    def total_weight(self) -> float:
        """The sum of the weights: n where samples count alike."""
        return float(self.root @ self.root)

    @property
    def weight(self) -> FloatArray | None:
        return None if self.root_weight is None else self.root_weight**2

    def rows_of(self, given: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows here of samples as they were given, less those that are not there."""
        if self.kept is None:
            return given
        return np.searchsorted(self.kept, given[np.isin(given, self.kept)])

    def shaped(self, outputs: Any) -> Any:
        """One value or row per output, or the only one where y had one dimension."""
        return outputs[0] if self.single else outputs

    def weighted(self, rows: Any) -> Any:
        """Rows of this sample, each times the root of its weight."""
        if self.root_weight is None:
            return rows
        if is_sparse(rows):
            return (scipy.sparse.diags_array(self.root_weight) @ rows).tocsr()
        return rows * self.root_weight[:, None]

    def dual_of_given(self, dual: FloatArray) -> FloatArray:
        """Duals (k, n) of the weighted rows as duals of the samples given; 0 for those dropped."""
        if self.root_weight is None:
            return dual
        full = np.zeros((len(dual), self.given))
        full[:, self.kept] = dual * self.root_weight
        return full


#: The limit on one column of y.
Solve = Callable[[FloatArray], Solution]


@dataclass(frozen=True)
class OutputFits:
    """One limit per output, as coefficients of the data given."""

    coef: FloatArray
    intercept: FloatArray
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
            if found.status is Status.CERTIFIED and found.certificate.is_in_doubles:
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

    @property
    def shared_rows(self) -> tuple[FloatArray, FloatArray | None] | None:
        """X of which a fold takes rows, with the e that centres it; None where it has its own."""
        return None if design_of(self.X) is not None else (as_array(self.X), self.free)

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
