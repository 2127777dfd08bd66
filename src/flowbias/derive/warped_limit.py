"""The limit of a flow that is mirror flow after a change of time.

    X w = P y,    grad Q(w) = X^T nu,    Hess Q = g (J J^T)^{-1},    g > 0 all the way

Time that runs at another speed leads to the same place only while it runs at all: g must not fall
to 0 before the limit. A solution of the equations cannot tell (one neuron whose outer weight
changes sign has one on the branch it left), so the flow itself is followed first. Either its end is
the point that the straight line in the predictor lifts to, or, where theta moves at fixed w as
well, J keeps its rank all along the flow, where

    share(t) = smallest / largest singular value of J(theta(t))

does not vanish: log g is the integral of a function of theta that is smooth where J has full rank,
so it stays finite, wherever the path goes at fixed w. Then Newton's method takes it to the last
digit.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar

from flowbias.certificates.certificate import Certificate
from flowbias.derive.derived_potential import FlowState, WarpedPotential, along_predictor, start_of
from flowbias.derive.parametrization import Parametrization
from flowbias.derive.unit_time import RTOL
from flowbias.flows.integrate import flow
from flowbias.flows.trajectory import Trajectory
from flowbias.ground import extended
from flowbias.ground.arguments import InputError, read_tolerance
from flowbias.ground.typing import FloatArray
from flowbias.limits.dual_newton import JointNewton
from flowbias.limits.normal_equations import Effort
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution, SolveError, Stats, Status

ROUTE = "time warp: flow, then Newton"


def warped_limit(
    potential: WarpedPotential, X: Any, y: Any = None, *, tol: float = 1e-10, throw: bool = True
) -> Solution:
    """The predictor that gradient flow of the potential's model converges to on (X, y).

    Stationarity and the gap compare the end of Newton's path with a second integration, along the
    straight line from the start: equal only if Q depends on no path. `details` has g at the limit
    and how far from the flow's own end it is. Not verified: SolveError, or STALLED.
    """
    read_tolerance("tol", tol)
    problem = as_regression(X, y)
    model = potential.model
    if problem.X.shape[1] != model.d:
        raise InputError(
            f"X: must have one column per predictor ({model.d}), got {problem.X.shape[1]}. "
            "Pass samples x features."
        )
    started = time.perf_counter()
    # Relative distance of the flow's end from the lifted line (theta) and from the limit (w) that
    # still is the same point: it is followed to about 1e-6. Another branch is away by its size.
    same_point = 1e-3
    # Near enough for Newton's method and for telling branches apart.
    trajectory = flow(model, problem, residual=1e-6, throw=False)
    ended_at = trajectory.parameters(float(trajectory.t[-1]))[0]
    lifted = _lifted(potential, model.predictor_at(ended_at))
    why = ""
    if not trajectory.status.ok:
        why = f"the flow was only followed to residual {trajectory.residual[-1]:.1e}"
    elif _apart(lifted.theta, ended_at) > same_point:
        why = _why_another_branch(potential, lifted, trajectory)
    if why:
        refused = _refused(potential, problem, trajectory.w[-1], lifted, why, tol, started)
        if throw:
            raise SolveError(
                f"not verified: {why}. The potential of the start says nothing about this limit; "
                "follow the flow with fb.flow(model, X, y).",
                refused,
            )
        return refused
    state, dual, steps = _newton(potential, problem, lifted)
    w = model.predictor_at(state.theta)
    again = _lifted(potential, w)
    certificate = _certificate(problem, w, dual, state, again, potential.rounding, tol)
    apart = _apart(w, trajectory.w[-1])
    verified = certificate.ok and apart <= same_point
    projected = problem.constraint.distance > 0.0
    solution = Solution(
        w=w,
        dual=dual,
        status=(Status.PROJECTED if projected else Status.CERTIFIED)
        if verified
        else Status.STALLED,
        route=ROUTE,
        certificate=certificate,
        stats=Stats(steps + problem.constraint.factorizations, steps, _since(started)),
        potential=potential,
        distance=problem.constraint.distance,
        details={"warp": float(np.exp(state.log_g)), "from_flow": apart},
    )
    return solution.checked(throw)


def _lifted(potential: WarpedPotential, w: FloatArray) -> FlowState:
    model = potential.model
    return along_predictor(model, potential.warp, start_of(model), w - model.initial, rtol=RTOL)


def _why_another_branch(
    potential: WarpedPotential, lifted: FlowState, trajectory: Trajectory
) -> str:
    """Why the flow's end is not on the start's branch; empty if theta only moved at fixed w."""
    if not lifted.inside:
        return "the straight line from w(0) to the flow's end leaves the domain of the potential"
    share = lowest_rank_share(potential.model, trajectory)
    # The flow is known to about 1e-7, and its minimum in time is searched to that.
    if share > 1e-4:
        return ""
    return (
        "the flow's end is not the point of the same predictor that the start's branch has, and "
        f"dF/dtheta lost its rank (singular values {share:.0e} of the largest): g fell to 0 on the "
        "way"
    )


def _newton(
    potential: WarpedPotential, problem: Regression, state: FlowState
) -> tuple[FlowState, FloatArray, int]:
    """Newton's method on the dual from a state near the limit; its end, nu of X's rows, steps."""
    constraint, effort = problem.constraint, Effort()
    # From there, because the straight line from the start may leave the domain of the dual.
    nearby = potential.begun_at(state)
    newton = JointNewton(constraint, nearby, 0.0, effort)
    rows = constraint.row_scale[:, None] * constraint.rows
    start = newton.at(np.asarray(scipy.linalg.lstsq(rows.T, state.z)[0]))
    end = newton.solve(start, max_steps=200)
    return nearby.state_at(end.z), constraint.dual_of_data(end.dual), effort.steps


def _certificate(
    problem: Regression,
    w: FloatArray,
    dual: FloatArray,
    state: FlowState,
    again: FlowState,
    rounding: float,
    tol: float,
) -> Certificate:
    """Measures from the data and from `again`, the same w reached along another path."""
    X, projected = problem.X, problem.constraint.projected
    fit = problem.y if projected is None else projected
    misfit, rise = X @ w - fit, X.T @ dual
    size = extended.length(fit) + extended.length(extended.absolute_apply(X, w))
    away = float(np.abs(again.z - rise).max())
    pairing = float(rise @ w)
    conjugate = float(state.z @ w) - state.potential
    gap = abs(again.potential + conjugate - pairing + float(dual @ misfit))
    terms = abs(again.potential) + abs(conjugate) + abs(pairing)
    length = float(np.abs(rise).max())
    return Certificate(
        feasibility=extended.length(misfit) / (size or 1.0),
        stationarity=away / max(1.0, length),
        gap=gap / (1.0 + abs(again.potential)),
        error_bound=np.inf,
        tol=tol,
        relative=(away / (length or 1.0), gap / (terms or 1.0)),
        accuracy=rounding,
    )


def _refused(
    potential: WarpedPotential,
    problem: Regression,
    w: FloatArray,
    lifted: FlowState,
    why: str,
    tol: float,
    started: float,
) -> Solution:
    """Where the flow ended: how well that fits, and nothing proved, for no nu belongs to it."""
    unknown = np.full(len(problem.y), np.nan)
    return Solution(
        w=w,
        dual=unknown,
        status=Status.STALLED,
        route=f"{ROUTE}: {why}",
        certificate=_certificate(problem, w, unknown, lifted, lifted, potential.rounding, tol),
        stats=Stats(0, 0, _since(started)),
        potential=potential,
    )


def _apart(theta: FloatArray, other: FloatArray) -> float:
    """Largest difference relative to the larger of the two; infinite for NaN."""
    apart = float(np.abs(theta - other).max() / (np.abs(other).max() or 1.0))
    return apart if np.isfinite(apart) else np.inf


def _since(started: float) -> float:
    return time.perf_counter() - started


def lowest_rank_share(
    model: Parametrization, trajectory: Trajectory, instants: int = 400, valleys: int = 3
) -> float:
    """The lowest share along the flow: on a grid of its own steps, then in the lowest valleys."""
    times = trajectory.t
    if len(times) > instants:
        times = times[np.unique(np.linspace(0, len(times) - 1, instants).astype(int))]

    def share(t: float) -> float:
        return _share(model.jacobian(trajectory.parameters(float(t))[0]))

    shares = np.array([share(t) for t in times])
    lowest = float(shares.min())
    for k in np.argsort(shares)[:valleys]:
        first, last = float(times[max(0, k - 1)]), float(times[min(len(times) - 1, k + 1)])
        # A simple zero of J is a kink of the share, which golden sections narrow down all the same.
        inside = minimize_scalar(
            share,
            bounds=(first, last),
            method="bounded",
            options={"xatol": 1e-9 * (last - first)},
        )
        lowest = min(lowest, float(inside.fun))
    return lowest


def _share(J: FloatArray) -> float:
    values = np.linalg.svd(J, compute_uv=False)
    return float(values[-1] / values[0]) if values[0] > 0.0 else 0.0
