"""What the library answers to a problem, through the front door that the problem names."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

import flowbias as fb
from tests.fuzz.problems import Problem, Start


@dataclass(frozen=True)
class Answer:
    """One predictor with what the library says of it."""

    status: str
    good: bool
    w: np.ndarray
    error_bound: float
    message: str = ""
    #: that the status states, where it states any
    digits: int | None = None
    #: of y from what is fitted of it, as far as it is said
    distance: float = 0.0
    #: of a path: the log-scale that it belongs to
    log_scale: float | None = None
    #: of a certificate alone: it is about a w that is known to be wrong
    deliberate: bool = False
    #: of processor time, where the front door was one of several calls
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """All that came out of a front door: answers, or the error that left it."""

    answers: tuple[Answer, ...]
    seconds: float
    error: str = ""
    #: the error is one of the library's own
    explained: bool = True


def ask(problem: Problem) -> Outcome:
    """The library's answers, timed on the processor's clock: others may share the machine."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = DOORS[problem.entry](problem)
    except Exception as error:  # whatever leaves a front door is what is judged here
        own = isinstance(error, (fb.InputError, fb.SolveError))
        words = f"{type(error).__name__}: {error}"
        return Outcome((), time.process_time() - began, words, own)
    alone = [answer.seconds for answer in answers if answer.seconds is not None]
    return Outcome(answers, max(alone, default=time.process_time() - began))


def model_of(start: Start) -> Any:
    size = {"scale": start.scale} if start.scale is not None else {"log_scale": start.log_scale}
    if start.kind == "tied":
        w0 = start.weights[0] if start.weights else None
        return fb.DiagonalNet(start.depth, **size, w0=w0)
    if start.kind == "tied_weights":
        return fb.DiagonalNet.from_weights(*start.weights, depth=start.depth)
    if start.kind == "untied":
        return fb.UntiedDiagonalNet(**size, shape=start.shape)
    return fb.UntiedDiagonalNet.from_weights(*start.weights)


def answer_of(solution: Any, log_scale: float | None = None) -> Answer:
    return Answer(
        solution.status.name,
        bool(solution.status.ok),
        np.asarray(solution.w, dtype=float),
        float(solution.certificate.error_bound),
        str(solution.message),
        _digits(solution.status, solution.certificate),
        float(solution.distance),
        log_scale,
    )


def _digits(status: Any, certificate: Any) -> int | None:
    return int(certificate.digits) if status.name == "FEW_DIGITS" else None


def _limit(problem: Problem) -> tuple[Answer, ...]:
    return (answer_of(fb.limit(model_of(problem.start), problem.X, problem.y, throw=False)),)


def _sparse_limit(problem: Problem) -> tuple[Answer, ...]:
    X = scipy.sparse.csr_array(problem.X)
    return (answer_of(fb.limit(model_of(problem.start), X, problem.y, throw=False)),)


def _limit_path(problem: Problem) -> tuple[Answer, ...]:
    log_scales = problem.options["log_scales"]
    path = fb.limit_path(
        model_of(problem.start), problem.X, problem.y, log_scales=log_scales, throw=False
    )
    return tuple(answer_of(one, scale) for one, scale in zip(path, log_scales, strict=True))


def _rich_limit(problem: Problem) -> tuple[Answer, ...]:
    return (answer_of(fb.rich_limit(model_of(problem.start), problem.X, problem.y, throw=False)),)


def _norm(solve: Callable[..., Any]) -> Callable[[Problem], tuple[Answer, ...]]:
    def door(problem: Problem) -> tuple[Answer, ...]:
        weights = problem.options["weights"]
        return (answer_of(solve(problem.X, problem.y, weights=weights, throw=False)),)

    return door


def _estimator(problem: Problem) -> tuple[Answer, ...]:
    start, intercept = problem.start, problem.options["fit_intercept"]
    kind = getattr(fb.estimators, problem.entry)
    if problem.entry == "ImplicitBiasRegressor":
        size = {"log_scale": start.log_scale} if start.scale is None else {"scale": start.scale}
        estimator = kind(start.depth, **size, shape=start.shape, fit_intercept=intercept)
    elif problem.entry == "RichRegressor":
        estimator = kind(start.depth, fit_intercept=intercept)
    else:
        estimator = kind(fit_intercept=intercept)
    fitted = estimator.fit(problem.X, problem.y)
    w = np.asarray(fitted.coef_, dtype=float)
    bound = float(fitted.certificate_.error_bound)
    status = fb.Status[fitted.status_]
    digits = _digits(status, fitted.certificate_)
    distance = float(fitted.certificate_.distance)
    return (Answer(status.name, status.ok, w, bound, digits=digits, distance=distance),)


def _certify(problem: Problem) -> tuple[Answer, ...]:
    """Certificates of points that are not the limit, with its dual and with the closest one."""
    model = model_of(problem.start)
    solution = fb.limit(model, problem.X, problem.y, throw=False)
    answers = []
    for w in wrong_points(problem, np.asarray(solution.w, dtype=float)):
        for dual in (np.asarray(solution.dual), _closest_dual(problem.X, model, w)):
            began = time.process_time()
            proof = fb.certify(problem.X, problem.y, w, dual, model.potential, model.shift)
            seconds, bound = time.process_time() - began, float(proof.error_bound)
            said = {"distance": float(proof.distance), "seconds": seconds}
            answers.append(Answer("CERTIFICATE", bool(proof.ok), w, bound, deliberate=True, **said))
    return tuple(answers)


def _closest_dual(X: np.ndarray, model: Any, w: np.ndarray) -> np.ndarray:
    """Least squares for X^T nu = grad Q(w) - shift; where the gradient is not finite, for zero."""
    with np.errstate(all="ignore"):
        gradient = np.broadcast_to(model.potential.grad(w) - model.shift, w.shape)
    finite = np.where(np.isfinite(gradient), gradient, 0.0)
    return np.asarray(np.linalg.lstsq(X.T, finite, rcond=None)[0])


def wrong_points(problem: Problem, w: np.ndarray) -> list[np.ndarray]:
    """Points beside w: anywhere, along the null space of X, and an l1 minimizer at a vertex."""
    X, away = problem.X, problem.options["away"]
    direction = problem.options["direction"]
    size = np.abs(w).max() or 1.0
    _, values, basis = np.linalg.svd(X / np.abs(X).max())
    null = basis[int((values > 1e-12 * values[0]).sum()) :]
    points = [w + away * size * direction / np.linalg.norm(direction)]
    if len(null):
        along = null.T @ (null @ direction)
        points.append(w + away * size * along / (np.abs(along).max() or 1.0))
    points += _vertex(X, problem.y)
    return [point for point in points if np.isfinite(point).all()]


def _vertex(X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """One of the l1 minimizers, which is the limit only where it is the only one."""
    d = X.shape[1]
    found = scipy.optimize.linprog(np.ones(2 * d), A_eq=np.hstack([X, -X]), b_eq=y)
    return [] if found.x is None else [found.x[:d] - found.x[d:]]


DOORS: dict[str, Callable[[Problem], tuple[Answer, ...]]] = {
    "limit": _limit,
    "sparse limit": _sparse_limit,
    "limit_path": _limit_path,
    "rich_limit": _rich_limit,
    "basis_pursuit": _norm(fb.basis_pursuit),
    "min_norm": _norm(fb.min_norm),
    "ImplicitBiasRegressor": _estimator,
    "RichRegressor": _estimator,
    "MinNormRegressor": _estimator,
    "certify": _certify,
}
