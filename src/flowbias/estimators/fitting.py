"""From limits to the attributes of a fitted estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from flowbias.certificates.certificate import certify
from flowbias.estimators.intercepts.frames import Frame
from flowbias.estimators.scale_walk import Step
from flowbias.ground.callers import depth_inside
from flowbias.ground.typing import FloatArray
from flowbias.potentials import L2
from flowbias.results.solution import Solution, Stats, status_of

#: The limit on one X and one column of y.
Solve = Callable[[Any, FloatArray], Solution]


@dataclass(frozen=True)
class OutputFits:
    """One limit per output."""

    coef: FloatArray
    intercept: FloatArray
    dual: FloatArray
    solutions: tuple[Solution, ...]

    @property
    def failure(self) -> str | None:
        """What the first output that is not certified says about it."""
        return next((s.message for s in self.solutions if not s.status.ok), None)


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


def fit_outputs(frame: Frame, solve: Solve, tol: float, *, throw: bool = True) -> OutputFits:
    """The limit for each column of y; with `throw` SolveError where one is not certified.

    `solve` itself must not throw: what a solver could not certify in the frame, the frame may.
    """
    if not frame.moves:
        solve = _start(tol)
    fit = _assembled(frame, [solve(frame.X, column) for column in frame.y.T])
    for solution in fit.solutions:
        solution.checked(throw)
    return fit


def fit_scales(frame: Frame, network: Any, log_scales: FloatArray, tol: float) -> list[OutputFits]:
    """The limits for each column of y at every log-scale, each with a warm start from the last."""
    if not frame.moves:
        return [fit_outputs(frame, _start(tol), tol)] * len(log_scales)
    paths = [frame.along(network, log_scales, column, tol) for column in frame.y.T]
    return [_assembled(frame, solutions) for solutions in zip(*paths, strict=True)]


def outputs_at_scales(
    frame: Frame, network: Any, log_scales: FloatArray, tol: float
) -> list[tuple[Step, ...]]:
    """The limit for each column of y, at every log-scale."""
    if not frame.moves:
        still = Step(np.zeros(frame.X.shape[1]), None)
        return [(still,) * frame.y.shape[1]] * len(log_scales)
    walks = [frame.walk(network, log_scales, column, tol) for column in frame.y.T]
    return list(zip(*walks, strict=True))


def _assembled(frame: Frame, solutions: Sequence[Solution]) -> OutputFits:
    """Limits in the frame as coefficients of the data given."""
    outputs = zip(solutions, frame.samples.y.T, strict=True)
    solutions = [frame.said(solution, column) for solution, column in outputs]
    coef, intercept = frame.coefficients(np.stack([solution.w for solution in solutions]))
    dual = frame.samples.dual_of_given(np.stack([solution.dual for solution in solutions]))
    return OutputFits(coef, intercept, dual, tuple(solutions))


def _start(tol: float) -> Solve:
    """Where X is 0 no predictor changes the loss, and gradient flow stays at its start, w = 0."""

    def solve(X: Any, y: FloatArray) -> Solution:
        w, dual = np.zeros(X.shape[1]), np.zeros(X.shape[0])
        # What centring leaves of a constant column is rounding, and stands for the zeros proved of.
        certificate = certify(scipy.sparse.csr_array(X.shape), y, w, dual, L2(), tol=tol)
        distance = float(y.any())
        return Solution(
            w=w,
            dual=dual,
            status=status_of(certificate, distance),
            route="nothing to learn: X is zero",
            certificate=certificate,
            stats=Stats(0, 0, 0.0),
            potential=L2(),
            distance=distance,
        )

    return solve
