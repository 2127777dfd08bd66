"""The last part of the way to a limit, which is not integrated but solved for.

Near a limit of zero error the residual obeys r' = -c K r with the tangent kernel K, so that
int c r dt = K^{-1} r =: q and

    U(inf) = U - R_q V,   V(inf) = V - R_q^T U,   R_q = adjoint(q)

Near a limit whose error is not zero the curvature of the product counts as well: with the gradient
g and the Hessian H of the loss, Z(inf) = Z - H^+ g. Zero eigenvalues belong to the rotations of the
hidden units, along which g vanishes. Either is right up to the square of the step relative to the
weights. Directions in which the flow is slow, which cost an explicit integrator most of its steps,
then need not be waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, cg

from flowbias.flows.lifted.compression import EPS
from flowbias.flows.lifted.coordinates import LiftedCoordinates
from flowbias.flows.lifted.flow import Setting
from flowbias.ground.typing import FloatArray

# Solution of K q = r to this: times the last step, far below its square.
_SOLVED = 1e-9
# Eigenvalues of the Hessian below this share of the largest are zero: rounding leaves 1e-15 or so.
_FLAT = 1e-10
# Share of the gradient that may lie where the Hessian is flat: of nothing but rounding.
_ASTRAY = 1e-3


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


def step_to_fit(setting: Setting, weights: FloatArray) -> LastStep:
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
    q, failed = cg(operator, np.ravel(residual), rtol=_SOLVED, atol=0.0, maxiter=10 * size)
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
    # Along an orbit of rotations the curvature is the gradient over the size of the weights.
    flat = max(_FLAT * largest, 4.0 * speed / size)
    if largest == 0.0 or values[0] < -flat:
        return LastStep.unknown(weights)
    along = vectors.T @ pull
    is_curved = values > flat
    rounding = 32.0 * EPS * float(np.sqrt(state.size)) * largest * size
    if np.linalg.norm(along[~is_curved]) > max(_ASTRAY * speed, rounding):
        return LastStep.unknown(weights)
    moved = state + vectors[:, is_curved] @ (along[is_curved] / values[is_curved])
    return LastStep.between(weights, moved.reshape(weights.shape))
