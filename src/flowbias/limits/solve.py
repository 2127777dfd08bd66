"""The front door: the limit of gradient flow, by the cheapest route that the model allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import numpy as np

from flowbias.certificates.certificate import Certificate, beside, certify, measured
from flowbias.certificates.exact_limit import exact_limit
from flowbias.certificates.rank import cut_by_rounding
from flowbias.designs import design_of
from flowbias.ground.arguments import InputError
from flowbias.ground.routing import first_fitting, provided_by
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import FloatArray
from flowbias.limits.blocks.limit import BlockLimits
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import WarmStart
from flowbias.limits.routes import ROUTES, Point, Route, without_choice
from flowbias.limits.scale_descent import IN_MEMORY, Found, or_last_resort
from flowbias.limits.sensitivity import at_limit
from flowbias.models._base import HasPotential
from flowbias.models.lifted import LiftedModel
from flowbias.potentials import Provides
from flowbias.problems.matrix.regression import as_matrix_problem
from flowbias.problems.range_fit import IN_RANGE
from flowbias.problems.regression import Regression, as_regression, check_dual
from flowbias.results.lifted_solution import LiftedSolution
from flowbias.results.solution import Solution, Stats, status_of


@overload
def limit(
    model: LiftedModel,
    X: Any,
    y: Any = None,
    *,
    tol: float = 1e-10,
    throw: bool = True,
    progress: bool = False,
) -> LiftedSolution: ...


@overload
def limit(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    tol: float = 1e-10,
    throw: bool = True,
    progress: bool = False,
) -> Solution: ...


def limit(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    tol: float = 1e-10,
    throw: bool = True,
    progress: bool = False,
) -> Solution | LiftedSolution:
    """The predictor that gradient flow from `model` converges to on (X, y), with its certificate.

    X may be a `Regression` instead, with y left out. A model is anything with `provides`,
    `potential` and `shift`; a potential is one too (started at its own zero). Where the result
    cannot be certified to `tol`, SolveError is raised, or with throw=False returned in the status.

    Products of two factors (`LinearNet`, `MatrixFactorization`) take outputs Y (n, m) or a matrix
    problem in place of X, and return a `LiftedSolution`: certified where the limit has a closed
    form, otherwise integrated, with an estimate of the error.

    X may also be big: a scipy.sparse matrix, a LinearOperator, a memory map, a float32 array or a
    dask array (docs/big_problems.md). Then `progress` shows a bar with the gap on a terminal.

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.w.round(3), solution.certificate.ok
    (array([0.067, 0.467]), True)
    """
    family = first_fitting(model, FAMILIES)
    design = design_of(X) if family.takes_designs else None
    if design is None:
        return family.solve(model, X, y, tol).checked(throw)
    check_size(model, design.d, tol)
    solver = BlockLimits(design, y, tol=tol, progress=progress)
    return solver.limit(model)[0].checked(throw)


def _potential_limit(model: HasPotential, X: Any, y: Any, tol: float) -> Solution:
    return limit_with_state(model, as_regression(X, y), tol=tol, warm=None)[0]


def _lifted_limit(model: LiftedModel, X: Any, y: Any, tol: float) -> LiftedSolution:
    # Flows stand beside limits and build on them: loaded here, so that neither has to come first.
    from flowbias.limits.lifted.limit import lifted_limit

    check_tol(tol)
    return lifted_limit(model, as_matrix_problem(X, y), tol)


def _leaky_limit(model: Any, X: Any, y: Any, tol: float) -> Solution:
    from flowbias.limits.neurons.leaky import leaky_limit  # follows the flow, as above

    check_tol(tol)
    return leaky_limit(model, X, y, tol)


def _neuron_limit(model: Any, X: Any, y: Any, tol: float) -> Solution:
    check_tol(tol)
    return neuron_limit(model, X, y, tol)


def _neuron_sum_limit(model: Any, X: Any, y: Any, tol: float) -> Solution | LiftedSolution:
    from flowbias.limits.neurons.sum_of_neurons import (
        neuron_sum_limit,  # follows the flow, as above
    )

    check_tol(tol)
    return neuron_sum_limit(model, X, y, tol)


def _own_limit(model: Any, X: Any, y: Any, tol: float) -> Solution:
    check_tol(tol)
    solution: Solution = model.limit(X, y, tol=tol, throw=False)
    return solution


@dataclass(frozen=True)
class Family:
    """Models whose limits are found in the same kind of unknowns."""

    needs: frozenset[Provides]
    solve: Callable[[Any, Any, Any, float], Solution | LiftedSolution]
    #: whether X may be visited block by block, which takes a potential that separates
    takes_designs: bool = False


FAMILIES = (
    Family(frozenset({Provides.OWN_LIMIT}), _own_limit),
    Family(frozenset({Provides.GRAM}), _lifted_limit),
    Family(frozenset({Provides.NEURON}), _neuron_limit),
    Family(frozenset({Provides.NEURON_SUM}), _neuron_sum_limit),
    Family(frozenset({Provides.ACTIVATED_NEURON}), _leaky_limit),
    Family(frozenset({Provides.JOINT_POTENTIAL}), _potential_limit),
    Family(frozenset({Provides.POTENTIAL}), _potential_limit, takes_designs=True),
)


def limit_with_state(
    model: HasPotential, problem: Regression, *, tol: float, warm: WarmStart | None
) -> Found:
    """`limit`, and the state from which a nearby scale can start."""
    check_model(model, problem, tol)
    if (only := _without_choice(model, problem, tol)) is not None:
        return only, None

    def attempt(start: HasPotential, warm: WarmStart | None) -> Found:
        return _attempted(start, problem, tol, warm)

    found = attempt(model, warm)
    if found[0].certificate.ok:
        return found
    exact = _in_balls(model, problem, found[0], tol)
    if exact.certificate.ok:
        return exact, found[1]
    last = or_last_resort(model, found, attempt, problem.constraint.factorizations, IN_MEMORY)
    return last if last[0].certificate.ok or not exact.status.ok else (exact, last[1])


def _in_balls(model: HasPotential, problem: Regression, solution: Solution, tol: float) -> Solution:
    """The limit in balls, where a certificate in doubles refuses the one that was found."""
    started = time.perf_counter()
    potential, shift, w, dual = model.potential, model.shift, solution.w, solution.dual
    if Provides.POTENTIAL not in potential.provides:
        return solution
    exact = exact_limit(problem.X, problem.y, potential, shift, dual, w)
    if exact is None:
        return solution

    def proof_of(w: FloatArray, dual: FloatArray) -> Certificate:
        measures, candidate = measured(
            problem.design, problem.y, w, dual, potential, shift, tol=tol
        )
        return measures if candidate is None else beside(exact, measures, candidate)

    proof = proof_of(w, dual)
    if proof.ok:
        return replace(solution, certificate=proof, status=status_of(proof, solution.distance))
    proof = proof_of(exact.w, exact.dual)
    distance = exact.distance
    if distance <= IN_RANGE:
        distance = cut_by_rounding(problem.X[:, ~exact.still], exact.rank)
    seconds = solution.stats.seconds + time.perf_counter() - started
    return replace(
        solution,
        w=exact.w,
        dual=exact.dual,
        status=status_of(proof, distance),
        certificate=proof,
        route=f"{solution.route}, then Newton in balls",
        stats=replace(solution.stats, seconds=seconds),
        distance=distance,
        _sensitivity=solution.derivatives_at(exact.dual),
    )


def _without_choice(model: HasPotential, problem: Regression, tol: float) -> Solution | None:
    """The certified limit where the data leave one predictor only, and it can be proved."""
    started = time.perf_counter()
    effort = Effort(factorizations=problem.constraint.factorizations + 1)
    with threads_for(problem.X), np.errstate(all="ignore"):
        point = without_choice(model, problem)
        if point is None:
            return None
        route, seconds = first_fitting(model, ROUTES), time.perf_counter() - started
        solution = _certified(model, problem, route, point, effort, seconds, tol)
    if not solution.certificate.ok:
        proof = certify(
            problem.X, problem.y, solution.w, solution.dual, model.potential, model.shift, tol=tol
        )
        status = status_of(proof, solution.distance)
        solution = replace(solution, certificate=proof, status=status)
    return solution if solution.certificate.ok else None


def _attempted(
    model: HasPotential, problem: Regression, tol: float, warm: WarmStart | None
) -> Found:
    route = first_fitting(model, ROUTES)
    started = time.perf_counter()
    effort = Effort(factorizations=problem.constraint.factorizations)
    with threads_for(problem.X):
        # Trial points may overflow; each of them is judged by its residual before it is kept.
        with np.errstate(all="ignore"):
            point = route.solve(model, problem, effort, warm)
        seconds = time.perf_counter() - started
        solution = _certified(model, problem, route, point, effort, seconds, tol)
        if not solution.certificate.ok and route.repair is not None:
            with np.errstate(all="ignore"):
                repaired = route.repair(model, problem, effort, point)
            seconds = time.perf_counter() - started
            second = _certified(model, problem, route, repaired, effort, seconds, tol)
            solution = second if second.certificate.ok else replace(solution, stats=second.stats)
        return solution, point.state


def check_tol(tol: float) -> None:
    """A tolerance is a positive number."""
    try:
        positive = 0.0 < float(tol) < np.inf
    except (TypeError, ValueError):
        positive = False
    if not positive:
        raise InputError(
            f"tol: must be a positive number, got {tol!r}. Leave it out for the default."
        )


def check_model(model: HasPotential, problem: Regression, tol: float) -> None:
    """Refuse a tolerance that is none, a model of another size than the data, and y too small."""
    check_size(model, problem.X.shape[1], tol)
    check_dual(problem)


def check_size(model: HasPotential, d: int, tol: float) -> None:
    """Refuse a tolerance that is none, and a model of another size than the d features."""
    check_tol(tol)
    shape = _shape_of(model)
    if shape not in ((), (1,), (d,)):
        raise InputError(
            f"X: must have one column per coordinate of the model ({shape[-1]}), got {d}. "
            "Use a model of the right size, or a scalar scale that fits any."
        )


def _shape_of(model: Any) -> tuple[int, ...]:
    """Of the predictor; () or (1,) where any number of coordinates will do."""
    declared = provided_by(model)
    if Provides.JOINT_POTENTIAL in declared:
        dimension = model.potential.dimension
        return np.shape(model.shift) if dimension is None else (dimension,)
    if Provides.POTENTIAL in declared:
        one = np.shape(model.potential.grad_dual(np.zeros(1)))
        return np.broadcast_shapes(one, np.shape(model.shift))
    return ()


def _certified(
    model: HasPotential,
    problem: Regression,
    route: Route,
    point: Point,
    effort: Effort,
    seconds: float,
    tol: float,
) -> Solution:
    """The solution with its certificate recomputed from the data."""
    potential, shift, reach = model.potential, model.shift, point.reach
    dual = point.dual
    certificate, _ = measured(problem.design, problem.y, point.w, dual, potential, shift, tol=tol)
    X = problem.X if reach.kept is None else problem.X[:, reach.kept]
    distance = reach.distance or cut_by_rounding(X, len(reach.constraint.target))
    return Solution(
        w=point.w,
        dual=dual,
        status=status_of(certificate, distance),
        route=point.route,
        certificate=certificate,
        stats=Stats(effort.factorizations, effort.steps, seconds),
        potential=potential,
        shift=shift,
        distance=distance,
        # Not a closure: solutions travel between processes.
        _sensitivity=partial(at_limit, route.derivatives, reach, model, problem, dual),
    )
