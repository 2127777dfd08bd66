"""Weights at the limit of a flow by integration, twice by one integrator and once by another.

The last part of the way is not integrated. Near the limit the residual obeys r' = -c K r with the
tangent kernel K, so that int c r dt = K^{-1} r =: q and

    U(inf) = U - R_q V,   V(inf) = V - R_q^T U,   R_q = adjoint(q)

up to a relative error of the square of that step. Directions in which the flow is slow, which cost
an explicit integrator most of its steps, then need not be waited for.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.integrate import ode
from scipy.sparse.linalg import LinearOperator, cg

from flowbias._threads import threads_for
from flowbias._typing import FloatArray
from flowbias.flows.journey import TIGHTEST
from flowbias.flows.lifted import Setting
from flowbias.flows.lifted_coordinates import LiftedCoordinates, LiftedJourney
from flowbias.flows.march import Curve, Progress, march

# Length of the last step relative to the weights: its square is below the rounding of a product.
_LAST_STEP = 1e-7
# Residual from which on the last step is tried.
_TRIED_FROM = 1e-3
# How far the residual has to fall before it is tried again.
_AGAIN = 0.3
# Solution of K q = r to this: times the last step, far below its square.
_SOLVED = 1e-9
# Factor between the two tolerances.
_COARSER = 100.0
# Where stability limits the other integrator to more steps than this, it gives up.
_STEPS_OF_OTHER = 50_000


@dataclass(frozen=True, eq=False)
class IntegratedWeights:
    """Weights at the limit, those of the other runs, and the square of the last step."""

    weights: FloatArray
    others: list[FloatArray]
    tail: float
    integrators: list[str]
    steps: int


def integrated_weights(setting: Setting, tol: float) -> IntegratedWeights:
    """To the limit at two tolerances, and once more by another integrator to the same time."""
    fine = min(max(1e-2 * tol, TIGHTEST), 1e-8)
    coordinates = LiftedCoordinates(setting.compression, setting.fit, 1.0, setting.stiffness)
    with threads_for(setting.compression.weights), np.errstate(over="ignore", invalid="ignore"):
        journey, curve = _journey(setting, coordinates, fine)
        weights, step = last_step(setting, coordinates.shaped(curve.states[-1]))
        _, coarse = _journey(setting, coordinates, min(_COARSER * fine, 1e-6))
        others = [last_step(setting, coordinates.shaped(coarse.states[-1]))[0]]
        other = _by_another(coordinates, curve, fine, journey.size)
        if other is not None:
            others.append(last_step(setting, coordinates.shaped(other))[0])
    name = "DOP853 and LSODA" if coordinates.is_implicit else "DOP853"
    steps = len(curve.pieces) + len(coarse.pieces)
    names = [name, "VODE"] if other is not None else [name]
    return IntegratedWeights(weights, others, step * step, names, steps)


class _LimitJourney(LiftedJourney):
    """A flow that is over when what is left is one small step."""

    def __init__(self, setting: Setting, coordinates: LiftedCoordinates, rtol: float) -> None:
        super().__init__(coordinates, setting.fit, rtol, None, None, 1e-13)
        self._setting, self._lifted = setting, coordinates
        self._tried = _TRIED_FROM / _AGAIN
        # With an error left at the limit its curvature counts as well as the kernel.
        self._is_narrow = is_narrow(setting)

    def progress(self, state: FloatArray) -> Progress:
        reached = super().progress(state)
        if reached.is_over() or self._is_narrow or reached.residual > _AGAIN * self._tried:
            return reached
        self._tried = reached.residual
        _, step = last_step(self._setting, self._lifted.shaped(state))
        return reached._replace(is_done=step <= _LAST_STEP)


def is_narrow(setting: Setting) -> bool:
    """Whether the width keeps U V^T from fitting what the data would allow."""
    return setting.root is not None and setting.fit.reachable is not setting.fit.target


def _journey(
    setting: Setting, coordinates: LiftedCoordinates, rtol: float
) -> tuple[LiftedJourney, Curve]:
    coordinates.is_careful = False
    journey = _LimitJourney(setting, coordinates, rtol)
    return journey, march(journey, coordinates.start)


def _by_another(
    coordinates: LiftedCoordinates, curve: Curve, rtol: float, size: float
) -> FloatArray | None:
    """VODE with Adams' formulas, of order up to 12, to where the curve ends; None if too far.

    Without a Jacobian they are iterated, not solved: no matrix of the square of the unknowns.
    """
    solver = ode(coordinates.velocity).set_integrator(
        "vode",
        method="adams",
        with_jacobian=False,
        rtol=rtol,
        atol=rtol * size,
        nsteps=_STEPS_OF_OTHER,
    )
    solver.set_initial_value(coordinates.start, 0.0)
    with warnings.catch_warnings():
        # That it gave up is seen from what it returns.
        warnings.simplefilter("ignore", UserWarning)
        state = np.asarray(solver.integrate(curve.end))
    return state if solver.successful() else None


def last_step(setting: Setting, weights: FloatArray) -> tuple[FloatArray, float]:
    """Weights at the limit of the linearized flow, and how far that is relative to them."""
    fit, rows = setting.fit, setting.compression.rows
    if is_narrow(setting):
        return weights, 0.0
    upper, lower = weights[:rows], weights[rows:]
    left, right = upper @ upper.T, lower @ lower.T
    residual = fit.measure(upper @ lower.T) - fit.reachable

    def kernel(q: FloatArray) -> FloatArray:
        R = fit.adjoint(q.reshape(residual.shape))
        return np.ravel(fit.measure(left @ R + R @ right))

    size = residual.size
    operator = LinearOperator((size, size), matvec=kernel, dtype=np.float64)
    q, _ = cg(operator, np.ravel(residual), rtol=_SOLVED, atol=0.0, maxiter=10 * size)
    R = fit.adjoint(q.reshape(residual.shape))
    moved = np.vstack([upper - R @ lower, lower - R.T @ upper])
    step = float(np.linalg.norm(moved - weights)) / float(np.linalg.norm(weights))
    return moved, step
