"""Weights at the limit of a flow by integration, twice by one integrator and once by another.

The last part of the way is solved for. Near a limit of zero error the residual obeys r' = -c K r
with the tangent kernel K, so that int c r dt = K^{-1} r =: q and

    U(inf) = U - R_q V,   V(inf) = V - R_q^T U,   R_q = adjoint(q)

Near a limit whose error is not zero, because the width or the start keep the flow from a fit, the
curvature of the product counts as well: with the gradient g and the Hessian H of the loss,
Z(inf) = Z - H^+ g. Zero eigenvalues belong to the rotations of the hidden units, along which g
vanishes. Either is right up to the square of the step relative to the weights. Directions in which
the flow is slow, which cost an explicit integrator most of its steps, need not be waited for.

A start on the stable manifold of a saddle ends there. An integration does not: rounding puts it
next to the manifold, and what lies next to it leaves. Neither does its result tell, which may be a
fit, nor the agreement of two runs at the end. But they leave at different times: a run from weights
that are off by 1e-12, relative to each of them, leaves before one that is off by rounding. Weights
that are exactly zero, and hidden units however small, keep their digits under such a nudge, as they
do under rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, cg

from flowbias.flows.driver import Curve, FlowProgress, integrate
from flowbias.flows.lifted.compression import ReducedProblem
from flowbias.flows.lifted.coordinates import LiftedCoordinates, LiftedIntegration
from flowbias.flows.lifted.flow import AT_REST
from flowbias.flows.request import TIGHTEST
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray
from flowbias.limits.lifted.second_integrator import by_another

# Length of the last step relative to the weights: its square is below the rounding of a product.
_LAST_STEP = 1e-7
# Residual, or speed relative to its terms, from which on the last step is tried, and how far it
# has to fall before it is tried again.
_TRIED_FROM, _AGAIN = 1e-3, 0.3


@dataclass(frozen=True, eq=False)
class IntegratedWeights:
    """Weights at the limit, those of the other runs, and the square of the last step.

    is_rest   whether they are at rest with an error left, at a local minimum of the loss
    integrators  their names; where there is only one, why
    failure   why there is no limit, where there is none; there are no other runs then
    """

    weights: FloatArray
    others: list[FloatArray]
    tail: float
    integrators: str
    steps: int
    is_rest: bool
    failure: str | None


def integrated_weights(setting: ReducedProblem, tol: float) -> IntegratedWeights:
    """To the limit at two tolerances, and once more by another integrator to the same time."""
    fine = min(max(1e-2 * tol, TIGHTEST), 1e-8)
    run = _Run.of(setting, fine)
    last, coordinates, is_rest = run.last, run.integration.coordinates, run.integration.is_rest
    names, tail = _integrators(coordinates), last.length * last.length
    coarse = _Run.of(setting, min(100.0 * fine, 1e-6), OFF_START)
    steps, end = len(run.curve.pieces) + len(coarse.curve.pieces), run.curve.states[-1]
    node = where_apart(run.curve, coarse.curve, coordinates)
    if node is not None:
        saddle = slowest_before(run.curve, coordinates, node)
        return IntegratedWeights(saddle, [], np.inf, names, steps, is_rest, LEFT_BY_ROUNDING)
    # Where the integrator gave up, a last step that is longer leads nowhere.
    if not last.length < (np.inf if run.curve.failure is None else 0.1):
        weights = coordinates.shaped(end)
        return IntegratedWeights(weights, [], np.inf, names, steps, is_rest, _why(run))
    others = [coarse.last.weights]
    fastest = coordinates.fastest_rate(end)
    second = by_another(setting, coordinates, run.curve.end, fastest, fine, is_rest)
    if second.state is None:
        names += f" alone ({second.name})"
    else:
        names += f" and {second.name}"
        others.append(run.integration.last_step(second.state).weights)
    return IntegratedWeights(last.weights, others, tail, names, steps, is_rest, None)


def _why(run: _Run) -> str:
    """Why a run has no end."""
    if run.integration.coordinates.relative_speed(run.curve.states[-1]) <= AT_REST:
        return "it comes to rest at a saddle of the loss, in a set that the flow does not leave"
    return run.curve.failure or "the flow could not be followed to its end"


def _integrators(coordinates: LiftedCoordinates) -> str:
    """Of the first run: explicit steps, implicit ones, or one after the other."""
    if coordinates.implicit_from is None:
        return "DOP853"
    return "LSODA" if coordinates.implicit_from == 0.0 else "DOP853, LSODA"


class _LimitIntegration(LiftedIntegration):
    """A flow that is over when what is left is one small step."""

    def __init__(self, setting: ReducedProblem, rtol: float) -> None:
        coordinates = LiftedCoordinates(setting, 1.0)
        super().__init__(coordinates, setting.fit, rtol, None, None, 1e-13)
        self._setting = setting
        # Whether the width keeps U V^T from fitting what the data would allow.
        reaches_all = setting.fit.reachable is setting.fit.target
        self._is_narrow = setting.root is not None and not reaches_all
        self._tried_fit = self._tried_rest = _TRIED_FROM / _AGAIN
        # A target may be tiny next to the start: relative to it nothing but rounding may be left.
        start = setting.fit.quality(coordinates.predictor(coordinates.start)).misfit
        self._share = setting.fit.size / max(setting.fit.size, start)
        #: whether what is ahead is a state of rest with an error left, not a fit
        self.is_rest = self._is_narrow

    def progress(self, state: FloatArray) -> FlowProgress:
        reached = super().progress(state)
        if reached.is_done or reached.is_settled:
            return reached
        left = self._share * float(reached.residuals.max())
        if not self.is_rest and left <= _AGAIN * self._tried_fit:
            self._tried_fit = left
            return reached._replace(is_done=self.last_step(state).length <= _LAST_STEP)
        # With an error left the residual stays while the pulls on the weights come to cancel.
        speed = self.coordinates.relative_speed(state)
        if speed <= _AGAIN * self._tried_rest:
            self._tried_rest = speed
            length = step_to_rest(self.coordinates, self.coordinates.shaped(state)).length
            # Not so near a saddle, which the flow may take long to leave.
            self.is_rest = self._is_narrow or np.isfinite(length)
            reached = reached._replace(is_done=length <= _LAST_STEP)
        if not self.is_rest:
            return reached
        return reached._replace(residuals=np.full_like(reached.residuals, speed))

    def last_step(self, state: FloatArray) -> LastStep:
        weights = self.coordinates.shaped(state)
        if self.is_rest:
            return step_to_rest(self.coordinates, weights)
        return step_to_fit(self._setting, weights)


@dataclass(frozen=True, eq=False)
class _Run:
    """One integration to the limit, and its last step."""

    integration: _LimitIntegration
    curve: Curve
    last: LastStep

    @classmethod
    def of(cls, setting: ReducedProblem, rtol: float, nudge: float = 0.0) -> _Run:
        """From the start, or from next to it: weights off by `nudge`, relative to each."""
        integration = _LimitIntegration(setting, rtol)
        start = integration.coordinates.start
        start = start * (1.0 + nudge * np.cos(np.arange(start.size)))
        curve = integrate(integration, start)
        return cls(integration, curve, integration.last_step(curve.states[-1]))


class LastStep(NamedTuple):
    """Weights at the limit, and how far that is relative to them; infinite where none is known."""

    weights: FloatArray
    length: float

    @classmethod
    def unknown(cls, weights: FloatArray) -> LastStep:
        """The weights as they are, of which nothing is known."""
        return cls(weights, np.inf)

    @classmethod
    def between(cls, weights: FloatArray, moved: FloatArray) -> LastStep:
        length = float(np.linalg.norm(moved - weights)) / float(np.linalg.norm(weights))
        return cls(moved, length) if np.isfinite(length) else cls.unknown(weights)


def step_to_fit(setting: ReducedProblem, weights: FloatArray) -> LastStep:
    """To the limit of zero error, by the tangent kernel."""
    fit, rows = setting.fit, setting.compression.rows
    upper, lower = weights[:rows], weights[rows:]
    left, right = upper @ upper.T, lower @ lower.T
    residual = fit.measure(upper @ lower.T) - fit.reachable

    def kernel(q: FloatArray) -> FloatArray:
        R = fit.adjoint(q.reshape(residual.shape))
        return np.ravel(fit.measure(left @ R + R @ right))

    size = residual.size
    operator = LinearOperator((size, size), matvec=kernel, dtype=np.float64)
    # To 1e-9: times the last step, far below its square.
    q, failed = cg(operator, np.ravel(residual), rtol=1e-9, atol=0.0, maxiter=10 * size)
    if failed:
        # The kernel does not see all of the residual: products near this one do not fit.
        return LastStep.unknown(weights)
    R = fit.adjoint(q.reshape(residual.shape))
    return LastStep.between(weights, np.vstack([upper - R @ lower, lower - R.T @ upper]))


def step_to_rest(coordinates: LiftedCoordinates, weights: FloatArray) -> LastStep:
    """To a local minimum of any error, by the Hessian; none where it has a direction of descent."""
    jacobian = coordinates.jacobian if coordinates.may_be_implicit else None
    if jacobian is None:
        return LastStep.unknown(weights)
    state = np.ravel(weights)
    pull = coordinates.velocity(0.0, state)
    values, vectors = scipy.linalg.eigh(-jacobian(0.0, state))
    size, speed = float(np.linalg.norm(state)), float(np.linalg.norm(pull))
    largest = float(np.abs(values).max())
    # Eigenvalues of the Hessian below this share of the largest are zero: rounding leaves 1e-15 or
    # so. Along an orbit of rotations the curvature is the gradient over the size of the weights.
    flat = max(1e-10 * largest, 4.0 * speed / size)
    if largest == 0.0 or values[0] < -flat:
        return LastStep.unknown(weights)
    along = vectors.T @ pull
    is_curved = values > flat
    rounding = 32.0 * EPS * float(np.sqrt(state.size)) * largest * size
    # Of the gradient no more than a thousandth may lie where the Hessian is flat, or rounding.
    if np.linalg.norm(along[~is_curved]) > max(1e-3 * speed, rounding):
        return LastStep.unknown(weights)
    moved = state + vectors[:, is_curved] @ (along[is_curved] / values[is_curved])
    return LastStep.between(weights, moved.reshape(weights.shape))


# Relative to each weight: well above what rounding adds up to on the way, well below any overlap
# with the direction in which a saddle is left that would be meant.
OFF_START = 1e-12
LEFT_BY_ROUNDING = (
    "starts on the stable manifold of a saddle, up to rounding: weights that are off by "
    f"{OFF_START:g} of themselves leave it at another time"
)


def where_apart(curve: Curve, other: Curve, coordinates: LiftedCoordinates) -> int | None:
    """The first node at which the products of two curves differ; None if they do not.

    Rounding alone has then made the flow leave a saddle.
    """
    # Beyond its end a curve that has ended stays there; one that was given up is not known.
    known = len(curve.times)
    if other.failure is not None:
        known = int(np.searchsorted(curve.times, other.end, side="right"))
    # A hundred are enough: leaving takes a tenth of the steps or more.
    nodes = np.unique(np.linspace(0, known - 1, 100).astype(int))
    products = coordinates.predictor(np.array([curve.states[i] for i in nodes]))
    others = coordinates.predictor(other(np.array([curve.times[i] for i in nodes])))
    sizes = np.linalg.norm(products, axis=(-2, -1))
    # Share of the largest product by which runs differ where rounding has decided: far above what
    # their tolerances, of 1e-6 at most, come to on flows from small starts that pass saddles
    # (below 1e-4).
    share = 1e-2
    apart = np.linalg.norm(products - others, axis=(-2, -1)) > share * sizes.max()
    return int(nodes[apart.argmax()]) if apart.any() else None


def slowest_before(curve: Curve, coordinates: LiftedCoordinates, node: int) -> FloatArray:
    """The weights at which the flow was closest to standing still."""
    speeds = [coordinates.relative_speed(state) for state in curve.states[: node + 1]]
    return coordinates.shaped(curve.states[int(np.argmin(speeds))])
