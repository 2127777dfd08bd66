"""Limits of products U V^T, by the cheapest exact route; by integration where there is none.

    U V^T(inf) = Theta + P2 U2(0) V(inf)^T,    Theta = X^+ Y    [min2021, section 4]

for Y ~ X U V^T. What is conserved and zero error do not determine V(inf): many share both. It is
known in closed form where the flow is in time, and not needed where U2 V^T stays zero (X of full
column rank; starts with V U2^T = 0 and U1 U2^T = 0 [min2021, Proposition 10]), if the flow is known
to converge [min2021, Theorem 3]. Measurements that are diagonal together have an exact
limit at any width, and one hidden unit with one output is a neuron [azulay2021, Theorem 2]:

    [U1; V] = [p; a b] q^T,    U1 = P1^T U

with unit vectors q and b. Gradient flow commutes with rotations of the hidden units, so that all
other units rest, and V keeps the direction b if W^T Y = t b^T has no part across it: always, where
there is one output. Then U V^T = a (U q) b^T is at all times the predictor of the neuron (a, U q)
on the targets Y b. The part of U that the data does not see may have any rank. Networks of width
one are of this kind, copies of one hidden unit, and starts of one output that are balanced on the
data: U1^T U1 = V^T V has rank one.  (docs/theory/neurons.md, Many neurons)

These are certified. Everything else is integrated, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flowbias.certificates.certificate import Certificate
from flowbias.flows.integrate import flow
from flowbias.flows.lifted.compression import ReducedProblem, reduced_problem
from flowbias.flows.lifted.flow import closed_form_of
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.diagonal_measurements import common_basis, diagonal_limit
from flowbias.limits.lifted.integration import IntegratedWeights, integrated_weights
from flowbias.limits.lifted.stable_manifold import out_of_reach
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.imbalance import Imbalance
from flowbias.models.lifted import LiftedModel
from flowbias.models.neuron import one_neuron
from flowbias.problems.matrix import MatrixProblem, MatrixRegression
from flowbias.results.matrix_solution import FitCertificate, LiftedSolution
from flowbias.results.solution import Stats, Status

# Rounding errors that may add up in a product of weights, relative to the product of their sizes.
_ADDED_UP = 8.0
# Rounding of a residual beyond which nothing is certified, however large the weights.
WORST_ROUNDING = 1e-6
# Residual at which a flow that is not yet known to converge is judged again.
_NEAR = 1e-8


@dataclass(frozen=True, eq=False)
class RouteEnd:
    """Where a route ends: the limit itself, or weights of the moving rows at the limit."""

    route: str
    M: FloatArray
    weights: FloatArray | None
    error: float
    status: Status = Status.CERTIFIED
    steps: int = 0
    #: where the route knows them better than they can be had from M and the weights
    gram: FloatArray | None = None
    feasibility: float | None = None
    distance: float | None = None
    #: whether an error is left at the limit
    is_rest: bool = False
    minimizer: Certificate | None = None


def lifted_limit(model: LiftedModel, problem: MatrixProblem, tol: float) -> LiftedSolution:
    """The limit of U V^T from `model`, by the first route that knows it."""
    started = time.perf_counter()
    setting = reduced_problem(model, problem)
    for route in EXACT_ROUTES:
        ending = route(setting, tol)
        if ending is not None:
            break
    else:
        # Steps too long overflow, and kernels that see nothing divide by zero: both are seen.
        quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with threads_for(setting.compression.weights), quiet:
            found = integrated_weights(setting, tol)
        ending = _integrated(setting, found)
    return _solution(setting, ending, tol, time.perf_counter() - started)


def _solution(
    setting: ReducedProblem, ending: RouteEnd, tol: float, seconds: float
) -> LiftedSolution:
    M, status, gram = ending.M, ending.status, ending.gram
    residual = setting.residual(M) if ending.feasibility is None else ending.feasibility
    feasibility = setting.feasibility(M) if ending.feasibility is None else ending.feasibility
    undecided, unique = setting.rounding(M), setting.is_unique and not ending.is_rest
    if gram is None and ending.weights is not None:
        gram = setting.compression.gram(ending.weights)
    distance = setting.distance if ending.distance is None else ending.distance
    if status is not Status.INTEGRATED:
        undecided = min(undecided, WORST_ROUNDING)
    certificate = FitCertificate(
        residual, feasibility, ending.error, max(tol, undecided), ending.minimizer
    )
    is_end = ending.is_rest or certificate.ok
    if not (is_end and np.isfinite(M).all()):
        status = Status.STALLED
    elif status is Status.CERTIFIED and distance > 0.0:
        status = Status.PROJECTED
    return LiftedSolution(
        M=M,
        status=status,
        route=ending.route,
        certificate=certificate,
        stats=Stats(0, ending.steps, seconds),
        distance=distance,
        unique=unique,
        is_rest=ending.is_rest,
        gram=gram,
    )


# --- exact routes ------------------------------------------------------------------------------


def _data_alone(setting: ReducedProblem, tol: float) -> RouteEnd | None:
    """Theta, where nothing of U that rests meets V, once the flow is known to converge."""
    problem, compression = setting.problem, setting.compression
    if not isinstance(problem, MatrixRegression) or not compression.rests_apart:
        return None
    weights, steps = compression.weights, 0
    rate = guaranteed_rate(setting, weights)
    if not rate > 0.0:
        trajectory = flow(setting.model, problem, residual=_NEAR, throw=False)
        if not trajectory.status.ok:
            return None
        weights, steps = trajectory._states[-1], trajectory.stats.steps
        rate = guaranteed_rate(setting, weights)
    if not rate > 0.0:
        return None
    full = len(problem.spectrum.root) == problem.shape[0]
    reason = "X has full column rank" if full else "V U2^T = 0 and U1 U2^T = 0"
    condition = float(problem.spectrum.root[0] / problem.spectrum.root[-1])
    error = _ADDED_UP * EPS * condition * float(np.linalg.norm(problem.min_norm))
    return RouteEnd(f"least norm fit: {reason}", problem.min_norm, None, error, steps=steps)


def guaranteed_rate(setting: ReducedProblem, weights: FloatArray) -> float:
    """lr(S) c: the loss falls at least like e^{-lr(S) c t} from these weights on; 0 if unknown."""
    if setting.root is None:
        return 0.0
    target, root = setting.fit.target, setting.root
    product = setting.compression.moving_product(weights)
    error = float(np.linalg.norm(target - setting.fit.measure(product)))
    imbalance = Imbalance.of_root(weights, len(target))
    c = imbalance.guaranteed_factor(target, float(root[0]), error)
    # The imbalance is a difference: what its digits leave undecided guarantees nothing.
    noise = 16.0 * len(weights) * EPS * float(np.sum(np.square(weights)))
    return float(root[-1] ** 2 * c) if c > noise else 0.0


def _closed_form(setting: ReducedProblem, tol: float) -> RouteEnd | None:
    found = closed_form_of(setting)
    if found is None:
        return None
    weights = found[0].at(np.inf)
    M = setting.compression.product(weights)
    route = "closed form in time, at t = infinity"
    if not setting.residual(M) <= max(tol, min(setting.rounding(M), WORST_ROUNDING)):
        # Next to it, however close, the flow leaves: an integration would, by its rounding.
        route += ", a saddle: up to rounding the start has no part in some direction of the target"
        return RouteEnd(route, M, None, np.inf, Status.STALLED)
    kept = weights if found[0].has_weights else None
    return RouteEnd(route, M, kept, _product_rounding(setting, weights))


def _diagonal(setting: ReducedProblem, tol: float) -> RouteEnd | None:
    problem = setting.problem
    numbers = float(len(problem.target)) * problem.shape[0] * problem.shape[1]
    # Numbers up to which all measurements are stacked to see whether they are diagonal together.
    stacked = 2e7
    if setting.root is not None or numbers > stacked:
        return None
    basis = common_basis(problem)
    # What is left off the diagonal is magnified where measurements are nearly the same.
    if basis is None or basis.defect * float(np.linalg.cond(basis.values)) > tol:
        return None
    solution = diagonal_limit(setting.model, problem, basis=basis, tol=tol, throw=False)
    if not solution.status.ok:
        return None
    off_diagonal = basis.defect * float(np.linalg.cond(basis.values))
    magnified = off_diagonal * float(np.linalg.norm(solution.M))
    rounding = _product_rounding(setting, setting.compression.weights)
    error = max(rounding, solution.certificate.gap) + magnified
    # A one-sided start reaches less than the matrices can: the certificate of the diagonal is
    # about what it reaches.
    return RouteEnd(
        solution.route,
        solution.M,
        None,
        error,
        solution.status,
        gram=solution.gram,
        feasibility=solution.certificate.feasibility,
        distance=max(solution.distance, setting.distance),
    )


def one_neuron_limit(setting: ReducedProblem, tol: float) -> RouteEnd | None:
    """The limit where all that moves is one neuron and its limit is certified; else None."""
    problem, compression = setting.problem, setting.compression
    rows, basis, span = compression.rows, compression.basis, compression.span
    is_one = compression.weights.shape[1] == 1
    if not (is_one and isinstance(problem, MatrixRegression)) or basis is None or span is None:
        return None
    outer = compression.weights[rows:, 0]
    b = _direction(outer, setting.fit.target, len(problem.X))
    if b is None:
        return None
    inner = (compression.start[: problem.shape[0]] @ span)[:, 0]
    neuron = one_neuron(float(outer @ b), inner)
    found = neuron_limit(neuron, problem.X, problem.Y @ b, tol)
    if not found.status.ok:
        return None
    a, w = found.details["a"], found.w
    # y = 0: where w ends is not known, and the product is 0 wherever that is.
    weights = None if a == 0.0 else np.concatenate([basis.T @ (w / a), a * b])[:, None]
    error = found.certificate.error_bound
    if not np.isfinite(error):
        # At the kink of the potential, a predictor of 0: nothing but rounding is off.
        error = _product_rounding(setting, compression.weights)
    route, proof = f"one neuron: {found.route}", found.certificate
    end = np.outer(w, b), weights, error
    return RouteEnd(route, *end, steps=found.stats.steps, minimizer=proof)


def _direction(outer: FloatArray, target: FloatArray, samples: int) -> FloatArray | None:
    """b, if V and the rows of W^T Y are multiples of it; None if they are not."""
    if len(outer) == 1:
        return np.ones(1)
    length = float(np.linalg.norm(outer))
    if length > 0.0:
        b = outer / length
    elif target.any():
        b = np.linalg.svd(target, full_matrices=False)[2][0]
    else:
        return None
    across = float(np.linalg.norm(target - np.outer(target @ b, b)))
    return b if across <= 8.0 * samples * EPS * float(np.linalg.norm(target)) else None


def _stable_manifold(setting: ReducedProblem, tol: float) -> RouteEnd | None:
    missed = out_of_reach(setting)
    if missed == 0.0:
        return None
    route = (
        f"starts on the stable manifold of a saddle, up to rounding: {missed:.1e} of the target "
        "lies in directions of which U and V have no part, nor are led to any"
    )
    return RouteEnd(route, setting.model.product, None, np.inf, Status.STALLED)


def _product_rounding(setting: ReducedProblem, weights: FloatArray) -> float:
    sizes = np.linalg.norm(setting.compression.product(np.abs(weights)))
    return _ADDED_UP * EPS * len(weights) * float(sizes)


# --- integration -------------------------------------------------------------------------------


def _integrated(setting: ReducedProblem, found: IntegratedWeights) -> RouteEnd:
    M = setting.compression.product(found.weights)
    names = found.integrators
    if found.failure is not None:
        route = f"integrated by {names}: {found.failure.rstrip('.')}"
        return RouteEnd(route, M, found.weights, np.inf, Status.STALLED, found.steps)
    if found.is_rest and setting.residual(M) > _NEAR:
        route = (
            f"integrated by {names}, to rest at {_kind_of_rest(setting)} that is not a fit: "
            "no result on limits of zero error applies"
        )
        end = [M, *(setting.compression.product(weights) for weights in found.others)]
        at_rest = True
    else:
        tail = "Hessian" if found.is_rest else "tangent kernel"
        route = f"integrated by {names}; tail by the {tail}"
        end = [_limit_product(setting, weights) for weights in (found.weights, *found.others)]
        at_rest = False
    error = _estimate(setting, end, found)
    return RouteEnd(
        route, end[0], found.weights, error, Status.INTEGRATED, found.steps, is_rest=at_rest
    )


def _kind_of_rest(setting: ReducedProblem) -> str:
    rank = setting.compression.weights.shape[1]
    if rank < setting.model.width:
        # A further hidden unit along the residual, however small, would grow.
        return (
            f"a saddle of the loss, a local minimum among products of rank {rank}, which is that "
            "of the start and is kept,"
        )
    return "a local minimum of the loss"


def _estimate(setting: ReducedProblem, end: list[FloatArray], found: IntegratedWeights) -> float:
    """Of ||M - limit||: how far the runs are apart, the square of the last step, and rounding."""
    spread = max(float(np.linalg.norm(other - end[0])) for other in end[1:])
    size = float(np.linalg.norm(end[0]))
    # How many times the spread of the runs, or the square of the last step, the error may be.
    # Over 57 random problems it was mostly below a tenth of the spread, the coarser run being off
    # by more than the finer, and sometimes close to it; the square of a step of 2e-6 was a third
    # of its error.
    safety = 4.0
    return safety * (spread + found.tail * size) + _product_rounding(setting, found.weights)


def _limit_product(setting: ReducedProblem, weights: FloatArray) -> FloatArray:
    """U V^T; for a regression its seen part is Theta, exactly, whatever the weights."""
    product, basis = setting.compression.product(weights), setting.compression.basis
    if setting.root is None or basis is None:
        return product
    seen = setting.fit.reachable / setting.root[:, None]
    return np.asarray(product + basis @ (seen - basis.T @ product))


#: Cheapest first; each returns None where it does not apply.
EXACT_ROUTES: tuple[Callable[[ReducedProblem, float], RouteEnd | None], ...] = (
    _diagonal,
    one_neuron_limit,
    _stable_manifold,
    _data_alone,
    _closed_form,
)
