"""Compressed weights as the integrator sees them: an initial value problem.

Explicit steps of order 8 by default. Their length is bounded by the fastest rate, so that where
rates are far apart the slow ones take many; implicit steps are taken there if the unknowns are few.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.integrate import LSODA, OdeSolver

from flowbias.flows.coordinates import STIFF, FlowCoordinates
from flowbias.flows.driver import Dop853Replayed, FlowIntegration, StiffAware
from flowbias.flows.lifted.compression import ReducedProblem
from flowbias.ground.linear_algebra import EPS
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Parameters

# Entries of adjoint(measure(.)) as a matrix up to which the Jacobian is formed, not estimated.
_LARGEST_NORMAL = 4e6
# Sizes below this share of the largest count as that: local errors stay ordinary doubles.
_LEAST_SHARE = 1e-120

# Unknowns up to which implicit steps pay: the factors of their Jacobian take a third of the cube.
FEW_UNKNOWNS = 1600
# Step times rate at which DOP853 damps by a good part; beyond about 6 it does not at all.
STABLE, _HELD_BACK = 3.0, 2.5


class LiftedCoordinates(FlowCoordinates):
    """The entries of L, row by row, on the time tau = c t."""

    name = "gram"

    def __init__(self, setting: ReducedProblem, time_rate: float) -> None:
        start, root = setting.compression, setting.root
        self.compression, self.fit, self.time_rate = start, setting.fit, time_rate
        self.start = np.ravel(start.weights)
        #: whether the unknowns are few enough for implicit steps
        self.may_be_implicit = self.start.size <= FEW_UNKNOWNS
        # Of the fastest to the slowest rate, as far as the data alone decides it.
        is_stiff = root is not None and float((root[0] / root[-1]) ** 2) > STIFF
        #: whether steps are implicit, from the start or from where explicit ones were held back
        self.is_implicit = is_stiff and self.may_be_implicit
        #: the time from which on they are
        self.implicit_from: float | None = 0.0 if self.is_implicit else None
        #: whether steps keep well inside the region of stability
        self.is_careful = False
        self._shape, self._rows = start.weights.shape, start.rows

    def shaped(self, states: FloatArray) -> FloatArray:
        """One state as weights (p, k), or each row of states."""
        return states.reshape(*states.shape[:-1], *self._shape)

    def predictor(self, states: FloatArray) -> FloatArray:
        return self.compression.moving_product(self.shaped(states))

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        upper, lower = self._factors(state)
        velocity = np.empty(self._shape)
        pull = self.fit.pull(upper @ lower.T)
        np.matmul(pull, lower, out=velocity[: self._rows])
        np.matmul(pull.T, upper, out=velocity[self._rows :])
        return velocity.reshape(-1)

    def solver(self, time: float, state: FloatArray, end: float, **options: Any) -> OdeSolver:
        def implicit(time: float, state: FloatArray, first_step: float) -> OdeSolver:
            if not self.is_implicit:
                self.is_implicit, self.implicit_from = True, time
            more = {"first_step": min(first_step, end - time), "jac": self.jacobian}
            return LSODA(self.velocity, time, state, end, **(options | more))

        first_step: float = options["first_step"]
        if self.is_implicit:
            return implicit(time, state, first_step)
        longest = STABLE / self.fastest_rate(state) if self.is_careful else np.inf
        steps = {"first_step": min(first_step, longest), "max_step": longest}
        velocity: Any = self.velocity
        explicit = Dop853Replayed(velocity, time, state, end, **(options | steps))
        if not self.may_be_implicit:
            return explicit
        aware: Any = StiffAware(explicit, implicit, self._is_held_back)
        solver: OdeSolver = aware
        return solver

    def _is_held_back(self, state: FloatArray, step: float) -> bool:
        """Whether stability, not accuracy, keeps explicit steps this short."""
        return step * self.fastest_rate(state) >= _HELD_BACK

    @cached_property
    def jacobian(self) -> Callable[[float, FloatArray], FloatArray] | None:
        """Of the velocity; None where the matrix of the measurements would be too large for it."""
        r, m = self.fit.shape
        if (r * m) ** 2 > _LARGEST_NORMAL:
            return None
        units = np.eye(r * m).reshape(-1, r, m)
        columns = [self.fit.adjoint(self.fit.measure(unit)) for unit in units]
        normal = np.array(columns).reshape(r, m, r, m)

        def jacobian(_: float, state: FloatArray) -> FloatArray:
            upper, lower = self._factors(state)
            matrix = product_jacobian(upper, lower, self.fit.pull(upper @ lower.T), normal)
            return _of_pairs(matrix) if self.compression.model.is_tied else matrix

        return jacobian

    def _factors(self, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = self.compression.paired(state.reshape(self._shape))
        return weights[: self._rows], weights[self._rows :]

    def fastest_rate(self, state: FloatArray) -> float:
        """Norm of the tangent kernel, by power iteration: how fast a residual can fall."""
        upper, lower = self.shaped(state)[: self._rows], self.shaped(state)[self._rows :]
        left, right, rate = upper @ upper.T, lower @ lower.T, 1.0
        matrix = self.fit.pull(upper @ lower.T)
        for _ in range(20):
            matrix = matrix / (np.linalg.norm(matrix) or 1.0)
            moved = self.fit.adjoint(self.fit.measure(left @ matrix + matrix @ right))
            rate, matrix = float(np.linalg.norm(moved)), moved
        return rate or 1.0

    def relative_speed(self, state: FloatArray) -> float:
        """||Z'|| relative to the sizes of pull and weights that it is a product of: at most 1.

        It falls to 0 towards a state of rest with an error left, and towards none without.
        """
        weights = state.reshape(self._shape)
        pull = self.fit.pull(weights[: self._rows] @ weights[self._rows :].T)
        terms = float(np.linalg.norm(pull)) * float(np.linalg.norm(weights))
        return float(np.linalg.norm(self.velocity(0.0, state))) / terms if terms > 0.0 else 0.0

    def natural_scales(self) -> tuple[float, float]:
        return float(self.entry_sizes.min()), self._natural_time()

    @cached_property
    def entry_sizes(self) -> FloatArray:
        """What errors in each entry count against: r_i c_j, the root mean square of its row times
        that of its column once rows have one size.

        A row, or a hidden unit, may be decades smaller than the others and yet be the one that
        grows. L' = A L moves all columns by one operator, so that an error relative to a column
        stays one; rows that the data do not couple keep theirs apart as well.
        """
        weights = self.compression.weights
        rows = np.sqrt(np.mean(np.square(weights), axis=1))
        # A row of zeros is moved by the others; its errors count as those of the smallest do.
        rows[rows == 0.0] = rows[rows > 0.0].min()
        columns = np.sqrt(np.mean(np.square(weights / rows[:, None]), axis=0))
        columns[columns == 0.0] = 1.0
        sizes = np.outer(rows, columns)
        return np.ravel(np.maximum(sizes, _LEAST_SHARE * sizes.max()))

    def _natural_time(self) -> float:
        """Time in which either the weights or their velocity change by about their own size."""
        speed = self.velocity(0.0, self.start)
        size, pace = float(np.linalg.norm(self.start)), float(np.linalg.norm(speed))
        if pace == 0.0:
            return 1.0
        probe = 1e-6 * size / pace
        ahead = self.velocity(0.0, self.start + probe * speed)
        change = float(np.linalg.norm(ahead - speed)) / probe
        return size / pace if change == 0.0 else min(size / pace, pace / change)

    def rounding(self, state: FloatArray) -> FloatArray:
        # Entries of the product are sums of k terms that may cancel.
        sizes = self.compression.moving_product(np.abs(self.shaped(state)))
        return np.array([EPS * self.fit.norm * float(np.linalg.norm(sizes))])

    def parameters(self, state: FloatArray) -> Parameters:
        return tuple(self.compression.factors(self.shaped(state)))


class LiftedIntegration(FlowIntegration):
    """A flow whose residual may be asked to fall far below the error of a step.

    Steps as long as stability allows neither damp nor amplify: the residual then stays at their
    error. Shorter ones, once it no longer falls, damp that too.
    """

    coordinates: LiftedCoordinates

    @property
    def atol(self) -> float | FloatArray:
        """What was asked for, or for each entry what it and its neighbours are at the start."""
        sizes = self.coordinates.entry_sizes if self.asked_atol is None else self.size
        return self.rtol * sizes

    def tighten(self) -> bool:
        if self.coordinates.is_careful or self.coordinates.is_implicit:
            return super().tighten()
        self.coordinates.is_careful = True
        return True


def _of_pairs(jacobian: FloatArray) -> FloatArray:
    """S J S, S the mean of both factors: that of a velocity which only the mean decides."""
    half = len(jacobian) // 2
    mean = 0.25 * jacobian.reshape(2, half, 2, half).sum(axis=(0, 2))
    return np.tile(mean, (2, 2))


def product_jacobian(
    upper: FloatArray, lower: FloatArray, pull: FloatArray, normal: FloatArray
) -> FloatArray:
    """Derivative of (P V, P^T U) in (U, V), P = adjoint(target - measure(U V^T)) = pull.

    `normal` is adjoint(measure(.)) as an array (r, m, r, m). The result is symmetric: minus the
    Hessian of the loss.
    """
    (r, k), m = upper.shape, len(lower)
    by_upper = np.tensordot(normal, lower, axes=([3], [0]))  # (r, m, r, k)
    by_lower = np.tensordot(normal, upper, axes=([2], [0]))  # (r, m, m, k)
    jacobian = np.empty(((r + m) * k, (r + m) * k))
    first, second = slice(0, r * k), slice(r * k, None)
    # Axes of the results: (b, c, i, a), that is, transposed; blocks are symmetric together.
    upper_block = np.tensordot(by_upper, lower, axes=([1], [0])).transpose(1, 2, 0, 3)
    lower_block = np.tensordot(by_lower, upper, axes=([0], [0])).transpose(1, 2, 0, 3)
    mixed = np.tensordot(by_lower, lower, axes=([1], [0])).transpose(1, 2, 0, 3)
    jacobian[first, first] = -upper_block.reshape(r * k, r * k)
    jacobian[second, second] = -lower_block.reshape(m * k, m * k)
    coupling = np.kron(pull.T, np.eye(k)) - mixed.reshape(m * k, r * k)
    jacobian[second, first], jacobian[first, second] = coupling, coupling.T
    return jacobian
