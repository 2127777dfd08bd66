"""The same flow by another integrator: extrapolated Euler steps, implicit if rates are far apart.

    U <- U + h P V,   V <- V + h P^T U,   P = adjoint(q),   (1 + h K) q = target - measure(U V^T)

Near a fit the residual falls like r' = -K r with the tangent kernel K, so that with K of the start
of a step, r <- (1 + h K)^{-1} r to first order: stable at any length. K is a matrix of the number
of measurements, not of the weights; for Y ~ X U V^T it falls into one block of rank(X) rows per
output. Towards rest with an error left the curvature of the product counts as well, and the
Hessian H takes the place of K: Z <- Z - h (1 + h H)^{-1} gradient. Results are smooth in h, hence
steps h/1, ..., h/8 extrapolate to order 8 [Hairer and Wanner, Solving Ordinary Differential
Equations II, IV.9]. Nothing of it is shared with the integrators that it is held against, DOP853
and LSODA, but the equation.

By hand, because SciPy's Radau factors a Jacobian in all weights where K has the size of the
measurements: it took 3 to 13 times as long on stiff flows of 36 to 400 weights, BDF 1 to 4 times,
with up to 140 times the error. RK45 takes half the time of explicit steps here, with DOP853's
control of steps, and is no method for stiff flows.

Explicit steps (K = 0) are cheaper, and as many as the fastest rate asks for. Which are taken is
decided by counting operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from flowbias.flows.lifted.compression import LiftedFit, ReducedProblem
from flowbias.flows.lifted.coordinates import STABLE, LiftedCoordinates
from flowbias.ground.typing import FloatArray

# Order: at tolerance 1e-10 orders 8 and 10 took the same time, 6 twice that.
_ORDER = 8
# Steps that damped ones, or explicit ones that are not held back, are expected to be.
_FEW_STEPS = 100
# Operations up to which the run is made: minutes.
_MOST_WORK = 2e12

#: One step from any weights; made for a length, from the weights at which a big step begins.
Step = Callable[[FloatArray], FloatArray]
Method = Callable[[FloatArray], Callable[[float], Step]]
Damping = Callable[[FloatArray], FloatArray]


class SecondRun(NamedTuple):
    """Where another integrator came, and its name; no state where it failed, and then why."""

    state: FloatArray | None
    name: str


def by_another(
    setting: ReducedProblem,
    coordinates: LiftedCoordinates,
    end: float,
    fastest: float,
    rtol: float,
    is_rest: bool,
) -> SecondRun:
    """From the start to the time at which the first integrator has ended.

    fastest is the rate there, and is_rest says whether an error is left.
    """
    jacobian = coordinates.jacobian if is_rest else None
    implicit = _by_kernel(setting) if jacobian is None else _by_hessian(coordinates, jacobian)
    count = max(_FEW_STEPS, int(min(end * fastest / STABLE, _MOST_WORK)))
    explicit_work = count * _work(setting)
    implicit_work = _FEW_STEPS * (_work(setting) + _implicit_work(setting, jacobian is not None))
    if min(explicit_work, implicit_work) > _MOST_WORK:
        work = min(explicit_work, implicit_work)
        return SecondRun(None, f"another would take {work:.0e} operations")
    if explicit_work <= implicit_work:
        name, method = "extrapolated Euler steps", _explicit(setting)
    else:
        name, method, count = "extrapolated implicit Euler steps", implicit, _FEW_STEPS
    # Its tolerance is that of the first integrator's coarser run. After each four times as many
    # steps as are expected it is raised.
    found = _Extrapolation(coordinates, method, 100.0 * rtol).run(end, 4 * count)
    if found is None:
        return SecondRun(None, f"{name} did not come to the end")
    return SecondRun(np.ravel(found), name)


def _work(setting: ReducedProblem) -> float:
    """Multiplications and additions in the products of one extrapolated step."""
    (rows, outputs), width = setting.fit.shape, int(setting.compression.weights.shape[1])
    return 3.0 * _ORDER * (_ORDER + 1) * rows * outputs * width


def _implicit_work(setting: ReducedProblem, by_hessian: bool) -> float:
    """Those in forming and factoring the matrices of one implicit step."""
    rows, outputs = setting.fit.shape
    if by_hessian:
        return _ORDER * setting.compression.weights.size**3 * (2.0 / 3.0)
    count, size = (outputs, rows) if setting.root is not None else (1, setting.fit.target.size)
    return 2.0 * size * rows * outputs * (rows + outputs) + count * _ORDER * size**3 / 3.0


# --- extrapolation -----------------------------------------------------------------------------


class _Extrapolation:
    """Steps of a length that keeps the last correction of the table below the tolerance."""

    def __init__(self, coordinates: LiftedCoordinates, method: Method, rtol: float) -> None:
        self._method, self._rtol = method, rtol
        self._start = coordinates.compression.weights
        self._sizes = coordinates.entry_sizes.reshape(self._start.shape)
        self._first = rtol ** (1.0 / _ORDER) * coordinates.natural_scales()[1]

    def run(self, end: float, patience: int) -> FloatArray | None:
        """The weights at the end; None where it is not reached at any tolerance."""
        time, length, weights, steps_of = 0.0, self._first, self._start, self._method(self._start)
        count = 0
        while time < end and self._rtol <= 1e-4:
            count += 1
            if count % patience == 0:
                # So many where few are expected correct for rounding, not for the steps' length.
                self._rtol *= 10.0
            is_last = length >= end - time
            length = min(length, end - time)
            ahead, correction = _extrapolated(weights, length, steps_of)
            error = self._error(weights, ahead, correction)
            if error <= 1.0:
                time = end if is_last else time + length
                weights, steps_of = ahead, self._method(ahead)
            # Half of the tolerance is aimed at; a step is not trusted to tell more than this.
            longer = (0.5 / error) ** (1.0 / _ORDER) if error > 0.0 else np.inf
            length *= min(max(longer, 0.1), 5.0)
        return weights if time >= end else None

    def _error(self, weights: FloatArray, ahead: FloatArray, correction: FloatArray) -> float:
        sizes = np.maximum(self._sizes, np.maximum(np.abs(weights), np.abs(ahead)))
        error = float(np.sqrt(np.mean(np.square(correction / (self._rtol * sizes)))))
        return error if np.isfinite(error) else np.inf


def _extrapolated(
    weights: FloatArray, length: float, steps_of: Callable[[float], Step]
) -> tuple[FloatArray, FloatArray]:
    """The value at step length zero, and how far it is from that of one order less.

    Aitken and Neville: T(n, k) = T(n, k - 1) + (T(n, k - 1) - T(n - 1, k - 1)) (n - k)/k
    """
    above: list[FloatArray] = []
    for n in range(1, _ORDER + 1):
        step, reached = steps_of(length / n), weights
        for _ in range(n):
            reached = step(reached)
        row = [reached]
        for k in range(1, n):
            row.append(row[-1] + (row[-1] - above[k - 1]) * ((n - k) / k))
        above = row
    return above[-1], above[-1] - above[-2]


# --- steps -------------------------------------------------------------------------------------


def _explicit(setting: ReducedProblem) -> Method:
    return lambda _: lambda length: _step(setting, length, lambda residual: residual)


def _by_kernel(setting: ReducedProblem) -> Method:
    root, rows = setting.root, setting.compression.rows
    fit = setting.fit

    def method(weights: FloatArray) -> Callable[[float], Step]:
        upper, lower = weights[:rows], weights[rows:]
        if root is None:
            blocks, turn = [_kernel(fit, upper, lower)], np.eye(1)
        else:
            blocks, turn = _regression_kernel(root, upper, lower)
        return lambda length: _step(setting, length, _damping(blocks, turn, length))

    return method


def _by_hessian(
    coordinates: LiftedCoordinates, jacobian: Callable[[float, FloatArray], FloatArray]
) -> Method:
    def method(weights: FloatArray) -> Callable[[float], Step]:
        matrix = jacobian(0.0, np.ravel(weights))

        def steps(length: float) -> Step:
            factors = scipy.linalg.lu_factor(np.eye(len(matrix)) - length * matrix)

            def step(weights: FloatArray) -> FloatArray:
                pull = length * coordinates.velocity(0.0, np.ravel(weights))
                # A step that is too long overflows; it is not taken.
                move = scipy.linalg.lu_solve(factors, pull, check_finite=False)
                return weights + move.reshape(weights.shape)

            return step

        return steps

    return method


def _step(setting: ReducedProblem, length: float, damped: Damping) -> Step:
    fit, rows = setting.fit, setting.compression.rows

    def step(weights: FloatArray) -> FloatArray:
        weights = setting.compression.paired(weights)
        upper, lower = weights[:rows], weights[rows:]
        pull = fit.adjoint(damped(fit.target - fit.measure(upper @ lower.T)))
        return weights + length * np.vstack([pull @ lower, pull.T @ upper])

    return step


def _kernel(fit: LiftedFit, upper: FloatArray, lower: FloatArray) -> FloatArray:
    """K r = measure(U U^T R + R V V^T), R = adjoint(r)."""
    left, right = upper @ upper.T, lower @ lower.T
    pulls = (fit.adjoint(unit) for unit in np.eye(fit.target.size))
    return np.array([fit.measure(left @ R + R @ right) for R in pulls])


def _regression_kernel(
    root: FloatArray, upper: FloatArray, lower: FloatArray
) -> tuple[list[FloatArray], FloatArray]:
    """D U U^T D + v_j D^2, D = root, for each of the eigenvectors of V V^T, and these."""
    values, turn = np.linalg.eigh(lower @ lower.T)
    scaled = root[:, None] * upper
    shared, weighted = scaled @ scaled.T, np.diag(root * root)
    return [shared + value * weighted for value in values], turn


def _damping(blocks: list[FloatArray], turn: FloatArray, length: float) -> Damping:
    """(1 + h K)^{-1}, K with one block for each column of a residual times `turn`."""
    factors = [
        scipy.linalg.cho_factor(np.eye(len(block)) + length * block, check_finite=False)
        for block in blocks
    ]

    def damped(residual: FloatArray) -> FloatArray:
        columns = residual.reshape(-1, len(turn)) @ turn
        solved = [
            scipy.linalg.cho_solve(factor, column, check_finite=False)
            for factor, column in zip(factors, columns.T, strict=True)
        ]
        return np.asarray((np.array(solved).T @ turn.T).reshape(residual.shape))

    return damped
