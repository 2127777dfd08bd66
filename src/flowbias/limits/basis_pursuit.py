"""The rich extreme: the interpolator of least (weighted) l1 norm, with its dual.

    min sum weights |w|  s.t.  X w = y        dual: max <nu, y>  s.t.  |X^T nu| <= weights

The path of a vanishing start ends at a vertex (`inverse_scale_space.py`), and the integral of its
residual is a dual of it. Where that is not enough, HiGHS finds a vertex to about nine digits. Its
support is then solved exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from flowbias.certificates.certificate import Certificate, certify, certify_beside
from flowbias.certificates.exact_vertex import ExactVertex, exact_vertex
from flowbias.certificates.rows import cut_by_rounding
from flowbias.ground import extended
from flowbias.ground.arguments import InputError, read_tolerance
from flowbias.ground.typing import ArrayLike, FloatArray, Mask
from flowbias.limits.inverse_scale_space import Columns, Walk
from flowbias.limits.routes import dual_of, only_predictor
from flowbias.models.reachable import Reachable, reachable
from flowbias.potentials import L1
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, Stats, Status, status_of

# Ways to a vertex.
WALK, HIGHS = "path of a vanishing start", "linear program (HiGHS)"
# Relative to the largest entry, and to the weights: what HiGHS' own tolerance (1e-9) may hide.
ON_SUPPORT = 1e-8
TIGHT = 1e-7
# Stages per row of X, after which a path is too long; of random data it has about two.
MOST_STAGES = 30


def basis_pursuit(
    X: Any, y: Any = None, *, weights: ArrayLike = 1.0, tol: float = 1e-10, throw: bool = True
) -> Solution:
    """argmin sum weights |w|  s.t.  X w = P y, certified; NOT_UNIQUE where there are others.

    Parameters
    ----------
    X, y : the data, or a `Regression` in place of X
    weights : one number, or one per feature
    tol, throw : as for `limit`

    Returns
    -------
    Solution; `details["dual_margin"]` says how far the inactive |X^T nu| / weights stay below 1

    Raises
    ------
    SolveError where it cannot be certified

    >>> fb.basis_pursuit([[1.0, 2.0]], [1.0]).w
    array([0. , 0.5])
    """
    read_tolerance("tol", tol)
    problem, potential = as_regression(X, y), L1(weights)
    solution = pursue(problem, potential, tol=tol)
    in_use = int(np.count_nonzero(solution.w))
    if solution.status.ok and solution.certificate.vertex is None and in_use < min(problem.X.shape):
        # What rounding has left of y takes further columns, of which several may tie.
        found = solution.w, solution.dual
        # As many products of rational numbers take about as long as HiGHS.
        vertex = exact_vertex(problem.X, problem.y, potential, *found, most=3e4)
        if vertex is not None and not vertex.is_only:
            sides = Sides.of(potential, problem.X.shape[1])
            solution = _at_vertex(problem, solution, sides, vertex, tol)
    return solution.checked(throw)


def pursue(
    problem: Regression, potential: L1, *, tol: float, ways: tuple[str, ...] = (WALK, HIGHS)
) -> Solution:
    """`basis_pursuit` on a checked problem, for weights that may differ between the signs.

    By the first of `ways` to a vertex of which the certificate is satisfied.
    """
    started = time.perf_counter()
    sides = Sides.of(potential, problem.X.shape[1])
    for found in _candidates(problem, sides, ways):
        solution = _certified(problem, potential, sides, found, tol, started)
        if solution.status.ok:
            break
    return solution


def _certified(
    problem: Regression, potential: L1, sides: Sides, found: _Found, tol: float, started: float
) -> Solution:
    w, reach = found.w, found.reach
    dual = _inside_box(problem.X, sides, found.dual)
    pull = sides.pull(problem.X.T @ dual)
    support = np.abs(w) > ON_SUPPORT * np.abs(w).max(initial=0.0)
    certificate = certify(problem.X, problem.y, w, dual, potential, tol=tol)
    distance = reach.distance or cut_by_rounding(
        problem.X if reach.kept is None else problem.X[:, reach.kept], len(reach.constraint.target)
    )
    proof = _of_one_minimizer(certificate, w)
    status, proved = Status.STALLED, status_of(proof, distance)
    if proved.ok or (certificate.ok and is_only_minimizer(problem, pull, support)):
        certificate, status = proof, proved
    elif certificate.ok:
        status = Status.NOT_UNIQUE
    route = found.route
    if not status.ok:
        route += ": doubles cannot tell, and it takes too long in rational numbers"
    solution = Solution(
        w=w,
        dual=dual,
        status=status,
        route=route,
        certificate=certificate,
        stats=Stats(0, found.steps, time.perf_counter() - started),
        potential=potential,
        distance=distance,
        details={"dual_margin": 1.0 - float(np.abs(pull[~support]).max(initial=0.0))},
    )
    if certificate.vertex is None:
        return solution
    solution = replace(solution, route=found.route)
    return _at_vertex(problem, solution, sides, certificate.vertex, tol)


def _of_one_minimizer(certificate: Certificate, w: FloatArray) -> Certificate:
    """Where there is one minimizer only, w is either near it or not. Zero is it."""
    return replace(certificate, size=extended.length(w)) if w.any() else certificate


def _at_vertex(
    problem: Regression, solution: Solution, sides: Sides, vertex: ExactVertex, tol: float
) -> Solution:
    """The minimizer that the certificate has found on its way, as doubles could not tell."""
    started = time.perf_counter()
    X, y, w, dual = problem.X, problem.y, vertex.w, _inside_box(problem.X, sides, vertex.dual)
    if not vertex.agrees(X, w, dual, tol):
        dual = vertex.dual  # no double is inside the box and near it
    certificate = certify_beside(X, y, w, dual, solution.potential, vertex, tol=tol)
    status = Status.NOT_UNIQUE if certificate.ok else Status.STALLED
    if vertex.is_only:
        certificate = _of_one_minimizer(certificate, w)
        status = status_of(certificate, vertex.distance)
    route = f"{solution.route}, then simplex in rational numbers"
    if not status.ok:
        route += f": known to {vertex.radius:.0e}, its dual to fewer digits than tol asks for"
    return replace(
        solution,
        w=w,
        dual=dual,
        status=status,
        certificate=certificate,
        route=route,
        stats=replace(
            solution.stats, seconds=solution.stats.seconds + time.perf_counter() - started
        ),
        distance=vertex.distance,
        details={"dual_margin": vertex.margin},
    )


@dataclass(frozen=True)
class Sides:
    """What a positive and a negative entry cost, per coordinate; infinite where closed."""

    positive: FloatArray
    negative: FloatArray

    @classmethod
    def of(cls, potential: L1, d: int) -> Sides:
        shape = np.broadcast_shapes(potential.weights.shape, potential.negative_weights.shape)
        if shape not in ((), (1,), (d,)):
            raise InputError(
                f"weights: must be one number or one per column of X ({d}), got shape {shape}. "
                "Check that they belong to these features."
            )
        weights, negative = potential.weights, potential.negative_weights
        return cls(np.broadcast_to(weights, (d,)), np.broadcast_to(negative, (d,)))

    def towards(self, direction: FloatArray) -> FloatArray:
        """The cost of the side that `direction` points to."""
        return np.where(direction > 0.0, self.positive, self.negative)

    def pull(self, z: FloatArray) -> FloatArray:
        """z in units of the cost it pays for: +-1 where an entry is free to grow."""
        return z / self.towards(z)


class _Found(NamedTuple):
    """A minimizer, its dual, and how they were found."""

    w: FloatArray
    dual: FloatArray
    reach: Reachable
    steps: int
    route: str


def _only_choice(problem: Regression, sides: Sides) -> _Found | None:
    """The one predictor that the data leave, where they leave no more and its sides are open."""
    constraint = only_predictor(problem)
    if constraint is None:
        return None
    w = constraint.target
    cost = np.where(w == 0.0, 0.0, sides.towards(w))
    if not np.isfinite(cost).all():
        return None
    dual = dual_of(constraint, problem.X, cost * np.sign(w))
    reach = Reachable(constraint, None, constraint.distance)
    return _Found(w, dual, reach, 0, "the only predictor")


def _candidates(problem: Regression, sides: Sides, ways: tuple[str, ...]) -> Iterator[_Found]:
    """Minimizers to be taken until one is proved, the fastest first."""
    only = _only_choice(problem, sides)
    if only is not None:
        yield only
    reach = reachable(problem, np.isfinite(sides.positive), np.isfinite(sides.negative))
    nothing = _Found(np.zeros(problem.X.shape[1]), np.zeros_like(problem.y), reach, 0, "")
    if reach.kept is not None and not reach.kept.any():
        yield nothing._replace(route="all coordinates driven to zero")
        return
    for way in ways:
        vertex = _VERTICES[way](reach, sides)
        if vertex is not None:
            w, dual, steps = vertex
            yield _Found(*_sharpened(problem, reach, sides, w, dual), reach, steps, way)
    if vertex is None:
        yield nothing._replace(route=f"{way}, given up")


def _end_of_path(reach: Reachable, sides: Sides) -> tuple[FloatArray, FloatArray, int] | None:
    """The end of the path of a vanishing start; None where that is too far."""
    constraint = reach.constraint
    rows = constraint.row_scale[:, None] * constraint.rows
    size = extended.length(constraint.target) or 1.0
    costs = reach.restrict(sides.positive), reach.restrict(sides.negative)
    # In units of the largest: the sum of two costs is a double as well.
    unit = max(float(cost.max(where=np.isfinite(cost), initial=0.0)) for cost in costs) or 1.0
    walk = Walk(Columns.of_array(rows), constraint.target / size, *(cost / unit for cost in costs))
    for steps, _ in enumerate(walk.stages()):
        if steps > MOST_STAGES * len(rows):
            return None
    moving = np.zeros(rows.shape[1])
    moving[walk.active] = size * walk.w
    return reach.embed(moving), constraint.dual_of_data(walk.nu), steps


def _optimal_basis(reach: Reachable, sides: Sides) -> tuple[FloatArray, FloatArray, int] | None:
    """An optimal vertex and its dual, from the equilibrated problem; None where HiGHS has none."""
    constraint = reach.constraint
    rows = constraint.row_scale[:, None] * constraint.rows
    positive, negative = reach.restrict(sides.positive), reach.restrict(sides.negative)
    up, down = np.flatnonzero(np.isfinite(positive)), np.flatnonzero(np.isfinite(negative))
    costs = np.concatenate([positive[up], negative[down]])
    size = extended.length(constraint.target) or 1.0
    typical = float(np.median(costs))
    result = scipy.optimize.linprog(
        costs / typical,
        A_eq=np.hstack([rows[:, up], -rows[:, down]]),
        b_eq=constraint.target / size,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if result.x is None:
        return None
    moving = np.zeros(rows.shape[1])
    moving[up] = result.x[: len(up)]
    moving[down] -= result.x[len(up) :]
    dual = typical * constraint.dual_of_data(result.eqlin.marginals)
    return reach.embed(size * moving), dual, int(result.nit)


_VERTICES: dict[str, Callable[[Reachable, Sides], tuple[FloatArray, FloatArray, int] | None]] = {
    WALK: _end_of_path,
    HIGHS: _optimal_basis,
}


def _sharpened(
    problem: Regression, reach: Reachable, sides: Sides, w: FloatArray, dual: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve the support exactly: X_S w_S = P y and X_S^T nu = weights sign(w_S)."""
    constraint = reach.constraint
    on_support = np.abs(w) > ON_SUPPORT * np.abs(w).max(initial=0.0)
    if not on_support.any():
        return np.zeros_like(w), np.zeros_like(dual)
    columns = constraint.row_scale[:, None] * constraint.rows[:, reach.restrict(on_support)]
    sharp = np.zeros_like(w)
    sharp[on_support] = scipy.linalg.lstsq(columns, constraint.target, lapack_driver="gelsy")[0]
    signs = np.sign(w[on_support])
    wanted = sides.towards(w)[on_support] * signs - problem.X[:, on_support].T @ dual
    correction = scipy.linalg.lstsq(columns.T, wanted, lapack_driver="gelsy")[0]
    return sharp, dual + constraint.dual_of_data(correction)


def _inside_box(X: FloatArray, sides: Sides, dual: FloatArray) -> FloatArray:
    """Shrink the dual until X^T nu is within its box as it is evaluated, rounding included."""
    # Shrinking by the excess puts it inside at once, but for the rounding of its products: by twice
    # as much each time.
    for more in range(12):
        z = X.T @ dual
        if not (np.abs(z) > sides.towards(z)).any():
            break
        excess = float(np.abs(sides.pull(z)).max())
        dual = dual * ((1.0 - np.finfo(float).eps * 2.0 ** (2 + more)) / excess)
    return dual


def is_only_minimizer(problem: Regression, pull: FloatArray, support: Mask) -> bool:
    """Whether no other minimizer shares the dual with pull = X^T nu / weights.

    Every minimizer lives where |pull| = 1, with the sign of the pull. So the one on `support` is
    alone unless some h != 0 there has X h = 0 and keeps those signs where the support has none.
    """
    rows = problem.constraint.row_scale[:, None] * problem.constraint.rows
    active = np.flatnonzero(support)
    if len(active) and np.linalg.matrix_rank(rows[:, active]) < len(active):
        return False
    idle = np.flatnonzero((np.abs(pull) > 1.0 - TIGHT) & ~support)
    if len(idle) == 0:
        return True
    columns = np.hstack([rows[:, active], rows[:, idle] * np.sign(pull[idle])])
    lengths = np.linalg.norm(columns, axis=0)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(len(active)), -np.ones(len(idle))]),
        A_eq=columns / np.where(lengths > 0, lengths, 1.0),
        b_eq=np.zeros(len(rows)),
        bounds=[(None, None)] * len(active) + [(0.0, 1.0)] * len(idle),
        method="highs",
    )
    return result.fun is not None and -result.fun < 1e-6


def face_in_doubles(
    problem: Regression, sides: Sides, vertex: Solution
) -> tuple[FloatArray, float]:
    """The signs of coordinates that some minimizer uses, 0 elsewhere; how far others are from it.

    One with all of them at once: max sum t s.t. X (signs v) = P y, v >= t, 0 <= t <= 1e-4, in
    units of the least norm, where the vertex's dual pays for v.
    """
    constraint, size = problem.constraint, float(np.abs(vertex.w).sum())
    pull = sides.pull(problem.X.T @ vertex.dual)
    tight = np.abs(pull) > 1.0 - TIGHT
    on_face, signs = np.flatnonzero(tight), np.where(tight, np.sign(pull), 0.0)
    rows = constraint.row_scale[:, None] * constraint.rows[:, on_face] * signs[on_face]
    count, room = len(on_face), np.eye(len(on_face))
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(count), -np.ones(count)]),
        A_eq=np.hstack([rows, np.zeros_like(rows)]),
        b_eq=constraint.target / (size or 1.0),
        A_ub=np.hstack([-room, room]),
        b_ub=np.zeros(count),
        bounds=[(0.0, None)] * count + [(0.0, 1e-4)] * count,  # little, so that all can have it
        method="highs",
    )
    if result.x is not None:
        signs[on_face] *= result.x[count:] > ON_SUPPORT
    return signs, 1.0 - float(np.abs(pull[~tight]).max(initial=0.0))
