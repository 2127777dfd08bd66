"""The front door: the limit of gradient flow, by the cheapest route that the model allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import numpy as np

from flowbias.certificates.certificate import Certificate, beside, certify, judged, measured
from flowbias.certificates.exact_limit import exact_limit
from flowbias.certificates.rows import cut_by_rounding
from flowbias.ground.arguments import InputError, read_tolerance
from flowbias.ground.routing import first_fitting, provided_by
from flowbias.ground.threads import threads_for
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.blocks.limit import BlockLimits
from flowbias.limits.continuation import Continuation, Found, even_ladders
from flowbias.limits.interior_point import State
from flowbias.limits.neurons.leaky import leaky_limit
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.limits.normal_equations import Effort
from flowbias.limits.rich_regime import WarmStart, predicted
from flowbias.limits.routes import (
    Point,
    by_dual_newton,
    by_exponentials,
    by_joint_newton,
    by_powers,
    carried_by_weights,
    from_dual,
    without_choice,
)
from flowbias.limits.sensitivity import at_limit, joint_sensitivity, sensitivity
from flowbias.models._base import HasPotential
from flowbias.models.lifted import LiftedModel
from flowbias.models.reachable import Reachable
from flowbias.potentials import L2, Provides
from flowbias.problems.matrix import as_matrix_problem
from flowbias.problems.regression import Regression, as_regression, regression_of
from flowbias.results.matrix_solution import LiftedSolution
from flowbias.results.solution import Sensitivity, Solution, Stats, status_of


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

    Parameters
    ----------
    model : the network at its start, anything with `provides`, `potential` and `shift`; or a
        potential, started at its own zero
    X : (n, d), or a `Regression` with y left out; may be big: a scipy.sparse matrix, a
        LinearOperator, a memory map, a float32 array or a dask array (docs/big_problems.md). For
        products of two factors (`LinearNet`, `MatrixFactorization`) also a matrix problem
    y : (n,) outputs; (n, m) for products of two factors
    tol : of the certificate, relative
    throw : whether a limit that cannot be certified to `tol` raises; otherwise its status says so
    progress : for big X, a bar with the gap on a terminal

    Returns
    -------
    Solution with w, dual, status, route, certificate; a `LiftedSolution` for products of two
    factors, certified where the limit has a closed form, otherwise integrated, with an estimate of
    the error

    Raises
    ------
    InputError for data or a model that cannot be used
    SolveError where the limit cannot be certified, with the solution as far as it came

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.w.round(3), solution.certificate.ok
    (array([0.067, 0.467]), True)
    """
    read_tolerance("tol", tol)
    route = first_fitting(model, ROUTES)
    return route.limit(model, X, y, tol, progress).checked(throw)


def min_norm(
    X: Any,
    y: Any = None,
    *,
    weights: ArrayLike = 1.0,
    tol: float = 1e-10,
    throw: bool = True,
    progress: bool = False,
) -> Solution:
    """argmin sum weights w^2 / 2  s.t.  X w = P y: the limit as the scale goes to infinity.

    Parameters
    ----------
    X, y : the data, or a `Regression` in place of X; X may be big, as for `limit`
    weights : one number, or one per feature; the kernel limit of a depth-D network started at w0
        has |w0|^(2 - 2 D)
    tol, throw, progress : as for `limit`

    Returns
    -------
    Solution

    Raises
    ------
    SolveError where it cannot be certified

    >>> fb.min_norm([[1.0, 2.0]], [1.0]).w.round(3)
    array([0.2, 0.4])
    """
    return limit(L2(weights), X, y, tol=tol, throw=throw, progress=progress)


def limit_with_state(
    model: HasPotential, problem: Regression, *, tol: float, warm: WarmStart | None
) -> Found[State]:
    """`limit`, and the state from which a nearby scale can start."""
    route = first_fitting(model, POTENTIAL_ROUTES)
    return InMemory(route, problem, tol).limit(model, warm)


def limit_from_dual(
    model: HasPotential, problem: Regression, dual: FloatArray, *, tol: float
) -> Solution:
    """`limit` from a dual (n,) that is near: Newton's method and the proof, which may fail."""
    route = PotentialRoute(frozenset({Provides.POTENTIAL}), partial(from_dual, dual=dual))
    return InMemory(route, problem, tol).attempt(model, None)[0]


@dataclass(frozen=True)
class Route:
    """A way to the limit of its own: what it needs of a model, and how it is taken."""

    needs: frozenset[Provides]
    solve: Callable[[Any, Any, Any, float], Solution | LiftedSolution]

    def limit(
        self, model: Any, X: Any, y: Any, tol: float, progress: bool
    ) -> Solution | LiftedSolution:
        """The limit on data as they were given."""
        return self.solve(model, X, y, tol)


@dataclass(frozen=True)
class PotentialRoute:
    """A way to the minimizer of a potential, which a certificate judges."""

    needs: frozenset[Provides]
    solve: Callable[[HasPotential, Regression, Effort, WarmStart | None], Point]
    derivatives: Callable[[Reachable, Any, FloatArray], Sensitivity] = sensitivity
    #: what may still make a point pass that the certificate does not
    repair: Callable[[HasPotential, Regression, Effort, Point], Point] | None = None

    def limit(self, model: HasPotential, X: Any, y: Any, tol: float, progress: bool) -> Solution:
        """The limit on data as they were given; block by block where X is big, if Q separates."""
        separates = Provides.POTENTIAL in self.needs
        problem = regression_of(X, y) if separates else as_regression(X, y)
        if isinstance(problem, Regression):
            return InMemory(self, problem, tol).limit(model, None)[0]
        check_size(model, problem.design.d, tol)
        return BlockLimits(*problem, tol=tol, progress=progress).limit(model)[0]


@dataclass(frozen=True)
class InMemory:
    """Limits on one array, by one route."""

    route: PotentialRoute
    problem: Regression
    tol: float

    @property
    def continuation(self) -> Continuation[State, WarmStart]:
        """From scale to scale. An interior point starts well anywhere: the ladders are even."""
        of_data = self.problem.constraint.factorizations
        return Continuation(predicted, self.attempt, even_ladders, of_data)

    def limit(self, model: HasPotential, warm: WarmStart | None) -> Found[State]:
        """The limit, and the state from which a nearby scale can start."""
        check_model(model, self.problem, self.tol)
        n, d = self.problem.X.shape
        # Fewer samples than features always leave a choice.
        if n >= d and (only := self._without_choice(model)) is not None:
            return only, None
        found = self.attempt(model, warm)
        if found[0].certificate.ok:
            return found
        exact = self._in_balls(model, found[0])
        if exact.certificate.ok:
            return exact, found[1]
        last = self.continuation.rescued(model, found)
        return last if last[0].certificate.ok or not exact.status.ok else (exact, last[1])

    def attempt(self, model: HasPotential, warm: WarmStart | None) -> Found[State]:
        """The route taken once, and repaired where that helps."""
        started, problem, repair = time.perf_counter(), self.problem, self.route.repair
        effort = Effort(factorizations=problem.constraint.factorizations)
        with threads_for(problem.X):
            # Trial points may overflow; each of them is judged by its residual before it is kept.
            with np.errstate(all="ignore"):
                point = self.route.solve(model, problem, effort, warm)
            solution = self._judged(model, point, effort, time.perf_counter() - started)
            if not solution.certificate.ok and repair is not None:
                with np.errstate(all="ignore"):
                    repaired = repair(model, problem, effort, point)
                second = self._judged(model, repaired, effort, time.perf_counter() - started)
                if second.certificate.ok:
                    return second, repaired.state
                solution = replace(solution, stats=second.stats)
        return solution, point.state

    def _without_choice(self, model: HasPotential) -> Solution | None:
        """The certified limit where the data leave one predictor only, and it can be proved."""
        problem, started = self.problem, time.perf_counter()
        effort = Effort(factorizations=problem.constraint.factorizations + 1)
        with threads_for(problem.X), np.errstate(all="ignore"):
            point = without_choice(model, problem)
            if point is None:
                return None
            seconds = time.perf_counter() - started
            solution = self._judged(model, point, effort, seconds, in_balls=True)
        return solution if solution.certificate.ok else None

    def _in_balls(self, model: HasPotential, solution: Solution) -> Solution:
        """The limit in balls, where a certificate in doubles refuses the one that was found."""
        started, problem = time.perf_counter(), self.problem
        potential, shift = model.potential, model.shift
        if Provides.POTENTIAL not in potential.provides:
            return solution
        exact = exact_limit(problem.X, problem.y, potential, shift, solution.dual, solution.w)
        if exact is None:
            return solution

        def proof_of(w: FloatArray, dual: FloatArray) -> Certificate:
            found = problem.design, problem.y, w, dual, potential, shift
            measures, candidate = measured(*found, tol=self.tol)
            return measures if candidate is None else beside(exact, measures, candidate)

        proof = proof_of(solution.w, solution.dual)
        if proof.ok:
            return replace(solution, certificate=proof, status=status_of(proof, solution.distance))
        proof = proof_of(exact.w, exact.dual)
        seconds = solution.stats.seconds + time.perf_counter() - started
        return replace(
            solution,
            w=exact.w,
            dual=exact.dual,
            status=status_of(proof, exact.distance),
            certificate=proof,
            route=f"{solution.route}, then Newton in balls",
            stats=replace(solution.stats, seconds=seconds),
            distance=exact.distance,
            _sensitivity=solution.derivatives_at(exact.dual),
        )

    def _judged(
        self,
        model: HasPotential,
        point: Point,
        effort: Effort,
        seconds: float,
        *,
        in_balls: bool = False,
    ) -> Solution:
        """With its certificate, recomputed from the data, which takes its own time."""
        problem, potential, shift = self.problem, model.potential, model.shift
        found = point.w, point.dual, potential, shift
        certificate = judged(problem.design, problem.y, *found, point.factor, tol=self.tol)
        if not certificate.ok and in_balls:
            certificate = certify(problem.X, problem.y, *found, tol=self.tol)
        reach, dual = point.reach, point.dual
        distance = reach.distance
        if not distance and len(dual) > len(reach.constraint.target):
            X = problem.X if reach.kept is None else problem.X[:, reach.kept]
            distance = cut_by_rounding(X, len(reach.constraint.target))
        # What nothing can move towards is out of reach as well.
        distance = distance or certificate.distance
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
            _sensitivity=partial(at_limit, self.route.derivatives, reach, model, problem, dual),
        )


def _lifted_limit(model: LiftedModel, X: Any, y: Any, tol: float) -> LiftedSolution:
    from flowbias.limits.lifted.limit import lifted_limit  # takes limits of potentials itself

    return lifted_limit(model, as_matrix_problem(X, y), tol)


def _neuron_sum_limit(model: Any, X: Any, y: Any, tol: float) -> Solution | LiftedSolution:
    from flowbias.limits.neurons.sum_of_neurons import neuron_sum_limit  # as above

    return neuron_sum_limit(model, X, y, tol)


def _own_limit(model: Any, X: Any, y: Any, tol: float) -> Solution:
    solution: Solution = model.limit(X, y, tol=tol, throw=False)
    return solution


#: Cheapest first: a route that knows the form of the dual map before the one that knows none.
POTENTIAL_ROUTES = (
    PotentialRoute(frozenset({Provides.POTENTIAL, Provides.EXPONENTIAL_DUAL}), by_exponentials),
    PotentialRoute(frozenset({Provides.JOINT_POTENTIAL}), by_joint_newton, joint_sensitivity),
    PotentialRoute(
        frozenset({Provides.POTENTIAL, Provides.POWER_DUAL}), by_powers, repair=carried_by_weights
    ),
    PotentialRoute(frozenset({Provides.POTENTIAL}), by_dual_newton),
)
#: Every way to a limit; the first whose needs a model declares is taken.
ROUTES: tuple[Route | PotentialRoute, ...] = (
    Route(frozenset({Provides.OWN_LIMIT}), _own_limit),
    Route(frozenset({Provides.GRAM}), _lifted_limit),
    Route(frozenset({Provides.NEURON}), neuron_limit),
    Route(frozenset({Provides.NEURON_SUM}), _neuron_sum_limit),
    Route(frozenset({Provides.ACTIVATED_NEURON}), leaky_limit),
    *POTENTIAL_ROUTES,
)


def check_model(model: HasPotential, problem: Regression, tol: float) -> None:
    """Refuse a tolerance that is none, a model of another size than the data, and y too small."""
    check_size(model, problem.X.shape[1], tol)
    if not problem.is_ordinary:
        problem.check_dual()


def check_size(model: HasPotential, d: int, tol: float) -> None:
    """Refuse a tolerance that is none, and a model of another size than the d features."""
    read_tolerance("tol", tol)
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
        one, shift = model.potential.shape_of_w, np.shape(model.shift)
        return np.broadcast_shapes(one, shift) if shift else one
    return ()
