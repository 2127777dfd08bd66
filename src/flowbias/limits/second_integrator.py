"""The same flow by another integrator: VODE while explicit steps will do, Radau from there on.

VODE's Adams formulas, of order up to 12, are multistep where DOP853 is not; Radau IIA is a
Runge-Kutta method where LSODA is not. So neither shares the error of the one that it is held
against. Adams formulas are iterated, not solved: no matrix of the square of the unknowns. Radau
steps are implicit, of order 5, with the exact Jacobian. Their tolerance is the finest of a few at
which they need no more factorizations than they may (a start of size 1e-4, 400 unknowns: 1.2 s at
1e-8, but 100 s at 1e-10, where the digits of the velocity are not enough; VODE's own implicit
formulas took 100 s at either). It is coarser than the first integrator's: the two differ by
Radau's error then, which makes for a larger estimate, not for a smaller one.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import Radau, ode

from flowbias._typing import FloatArray
from flowbias.flows.lifted_coordinates import LiftedCoordinates
from flowbias.flows.march import Curve

# Steps of Adams' formulas per step of DOP853, which are longer and of twelve evaluations each.
_ADAMS_STEPS, _AT_LEAST = 30, 20_000
# Tolerances of Radau relative to that of the first integrator, the finest first.
_COARSER = (1e2, 1e4, 1e6)
# Factorizations that Radau may make at one of them: work for seconds, however many unknowns.
_LEAST_EFFORT, _MOST_EFFORT, _ENTRIES = 250, 1_500, 4e7


class SecondRun(NamedTuple):
    """Where another integrator came, and its name; no state where it gave up."""

    state: FloatArray | None
    name: str


def by_another(coordinates: LiftedCoordinates, curve: Curve, rtol: float) -> SecondRun:
    """To where the curve ends, which the first integrator has followed in these coordinates."""
    change, explicit = coordinates.implicit_from, len(curve.pieces)
    time, state, names = 0.0, coordinates.start, []
    until = curve.end if change is None else min(change, curve.end)
    if until > 0.0:
        steps = max(_ADAMS_STEPS * explicit, _AT_LEAST)
        ahead = _adams(coordinates, until, rtol, steps)
        if ahead is not None:
            time, state, names = until, ahead, ["VODE"]
    if time < curve.end:
        names.append("Radau")
        late = _radau(coordinates, time, state, curve.end, rtol)
        return SecondRun(late, " and ".join(names))
    return SecondRun(state, "VODE")


def _adams(
    coordinates: LiftedCoordinates, end: float, rtol: float, steps: int
) -> FloatArray | None:
    sizes: Any = coordinates.entry_sizes
    solver = ode(coordinates.velocity).set_integrator(
        "vode",
        method="adams",
        with_jacobian=False,
        rtol=rtol,
        atol=rtol * sizes,
        nsteps=steps,
    )
    solver.set_initial_value(coordinates.start, 0.0)
    with warnings.catch_warnings():
        # That it gave up is seen from what it returns.
        warnings.simplefilter("ignore", UserWarning)
        state = np.asarray(solver.integrate(end))
    return state if solver.successful() and np.isfinite(state).all() else None


def _radau(
    coordinates: LiftedCoordinates, time: float, state: FloatArray, end: float, rtol: float
) -> FloatArray | None:
    if not coordinates.may_be_implicit:
        return None
    sizes: Any = coordinates.entry_sizes
    effort = min(max(int(_ENTRIES / state.size**2), _LEAST_EFFORT), _MOST_EFFORT)
    tries = (
        Radau(
            coordinates.velocity,
            time,
            state,
            end,
            rtol=factor * rtol,
            atol=factor * rtol * sizes,
            # Without an exact Jacobian SciPy estimates one by differences.
            jac=coordinates.jacobian,
        )
        for factor in _COARSER
    )
    for solver in tries:
        while solver.status == "running" and solver.nlu <= effort:
            solver.step()
        if solver.status == "finished":
            return np.asarray(solver.y)
    return None
