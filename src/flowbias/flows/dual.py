"""The flow of any model with a potential, in n unknowns.

    d nu/dt = g c (P y - X w(nu)),    w(nu) = grad_dual(shift + X^T nu)

It is gradient ascent on a concave function, with Jacobian -g c X diag(w'(z)) X^T: however many
features or parameters there are, n (or rank X) unknowns and a symmetric Jacobian.
[woodworth2020, proof of Theorem 1; azulay2021, Theorem 1]
"""

from __future__ import annotations

import bisect
from typing import Any, Protocol

import numpy as np
from scipy.integrate import OdeSolver

from flowbias.flows.coordinates import FlowCoordinates, stiff_solver
from flowbias.flows.fit import ReachableFit
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models._base import HasPotential, Parameters

# Trial points of an implicit step may leave the dual domain (depth > 2) or overflow (depth 2). A
# predictor this far above anything the flow visits makes the step fail and be retried shorter.
_BEYOND = 1e3
# Rates whose inverses, times the square root of the tightest tolerance, are normal doubles.
_FASTEST = 1e300
# Change of w'(z) that counts as one natural length of the dual.
_GROWTH = 2.0


class HasClock(HasPotential, Protocol):
    """What the dual flow needs of a model: its potential, and how fast its dual moves."""

    @property
    def mirror_rate(self) -> float: ...


def mirror_time_rate(model: HasClock, c: float) -> float:
    """g c: how much faster than t the dual's time runs."""
    rate = float(model.mirror_rate) * c
    if not 0.0 < rate < np.inf:
        raise InputError(
            f"scale: must give times within the double range, got a mirror rate of {rate:g}. "
            "Take limit(model, X, y), which needs no time, or a scale nearer to 1."
        )
    return rate


class DualCoordinates(FlowCoordinates):
    """nu, counted from the start, on the time tau = g c t."""

    name = "dual"

    def __init__(self, model: HasClock, fit: ReachableFit, c: float) -> None:
        self.model, self.fit, self.time_rate = model, fit, mirror_time_rate(model, c)
        self.potential = model.potential
        d = fit.rows.shape[1]
        self.shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), (d,))
        self.start = np.zeros(fit.rows.shape[0])
        initial = self.potential.grad_dual(self.shift)
        lengths = fit.column_lengths
        typical = fit.size / np.min(lengths[lengths > 0.0], initial=np.inf)
        self._largest = _BEYOND * (float(np.abs(initial).max()) + typical)

    # Trial points may overflow; what comes of them is taken back.
    @np.errstate(over="ignore", invalid="ignore")
    def predictor(self, states: FloatArray) -> FloatArray:
        w = self.potential.grad_dual(self.shift + states @ self.fit.rows)
        return np.clip(w, -self._largest, self._largest)

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        return self.fit.pull(self.predictor(state))

    @np.errstate(over="ignore", invalid="ignore")
    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        rows = self.fit.rows
        return np.asarray(-(rows * self._slope(state)) @ rows.T)

    def _slope(self, state: FloatArray) -> FloatArray:
        """w'(z) of the clipped map: a steep one would let a corrector accept a point beyond."""
        z = self.shift + state @ self.fit.rows
        inside = np.abs(self.potential.grad_dual(z)) < self._largest
        return np.where(inside, self.potential.hess_dual(z), 0.0)

    def solver(
        self,
        time: float,
        state: FloatArray,
        end: float,
        first_step: float,
        rtol: float,
        atol: float,
    ) -> OdeSolver:
        return stiff_solver(time)(
            self.velocity,
            time,
            state,
            end,
            first_step=first_step,
            rtol=rtol,
            atol=atol,
            jac=self.jacobian,
        )

    def natural_scales(self) -> tuple[float, float]:
        """Sizes of nu and tau at which something happens, whatever the scale of the start.

        Either the tangent kernel explains the data, or some coordinate of z moves so far that
        w'(z) changes by a factor: whichever comes first.
        """
        pull = self.velocity(0.0, self.start)
        with np.errstate(over="ignore", invalid="ignore"):
            stiffness = float(np.abs(self.jacobian(0.0, self.start)).sum(axis=1).max())
            drift = float(np.abs(pull @ self.fit.rows).max())
        _check_rate(max(stiffness, drift))
        length = self._natural_length()
        size = length / float(self.fit.column_lengths.max())
        duration = length / drift if drift > 0.0 else np.inf
        if stiffness > 0.0:
            with np.errstate(over="ignore"):
                size = np.fmin(size, np.linalg.norm(pull) / np.float64(stiffness))
                duration = np.fmin(duration, 1.0 / np.float64(stiffness))
        # Nothing happens where nothing can move; any ordinary number will do.
        return _ordinary(size), _ordinary(duration)

    def _natural_length(self) -> float:
        """Largest change of z (within a factor 2) that keeps w' within a factor; inf if unknown."""
        moving = self.potential.hess_dual(self.shift) > 0.0

        def is_short(radius: float) -> bool:
            growth = self.potential.hess_growth(self.shift, radius)
            return bool(np.max(growth, initial=0.0, where=moving) <= _GROWTH)

        exponents = range(-1000, 1001)
        first_long = bisect.bisect_left(exponents, True, key=lambda e: not is_short(2.0**e))
        if first_long in (0, len(exponents)):
            return np.inf
        return float(2.0 ** exponents[first_long - 1])

    def rounding(self, state: FloatArray) -> FloatArray:
        # nu's slow directions may be large where its stiff ones would need more digits. z is a sum
        # of n terms and a row of X w one of d, and each addition rounds once.
        rows = np.abs(self.fit.rows)
        terms = np.abs(self.shift) + np.abs(state) @ rows
        once = np.finfo(float).eps * (rows @ (self._slope(state) * terms))
        return np.asarray(sum(rows.shape) * once)

    def dual(self, states: FloatArray) -> FloatArray:
        return self.fit.dual_of_data(states)

    def parameters(self, state: FloatArray) -> Parameters:
        model: Any = self.model
        weights: Parameters = model.parameters(state @ self.fit.rows)
        return weights


def _check_rate(rate: float) -> None:
    if not rate < _FASTEST:
        raise InputError(
            f"X: must leave the rates of the flow, of the order of X^2 w', below {_FASTEST:g}, got "
            f"{rate:.1e}. Divide X and y by a common factor u: the same flow, u^2 times slower."
        )


def _ordinary(value: float) -> float:
    return float(value) if 0.0 < value < np.inf else 1.0
