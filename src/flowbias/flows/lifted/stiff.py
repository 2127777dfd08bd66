"""Explicit steps until they are held back by stability alone, implicit ones from there on.

A flow from a small start grows some directions to size one and leaves others at the size of the
start, so that its rates lie as far apart as the two. Where that is known only on the way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import DenseOutput, OdeSolver

from flowbias.ground.typing import FloatArray

# Steps after which, and every so often, explicit steps are looked at: fewer are soon done.
_PATIENCE = 300


class StiffAware:
    """An integrator that hands over to another; otherwise like one of SciPy's."""

    def __init__(
        self,
        explicit: OdeSolver,
        implicit: Callable[[float, FloatArray, float], OdeSolver],
        is_held_back: Callable[[FloatArray, float], bool],
    ) -> None:
        self._solver, self._implicit, self._is_held_back = explicit, implicit, is_held_back
        self._steps, self._evaluations = 0, 0
        self._has_switched = self._is_due = False

    def step(self) -> str | None:
        if self._is_due:
            # Only now: until here the last step could be asked for its interpolant.
            before, self._is_due, self._has_switched = self._solver, False, True
            self._evaluations = int(before.nfev)
            self._solver = self._implicit(self.t, self.y, float(before.step_size or 0.0))
        message = self._solver.step()
        self._steps += 1
        if not self._has_switched and self._steps % _PATIENCE == 0 and self.status == "running":
            self._is_due = self._is_held_back(self.y, float(self._solver.step_size or 0.0))
        return message

    def dense_output(self) -> DenseOutput:
        return self._solver.dense_output()

    @property
    def t(self) -> float:
        return float(self._solver.t)

    @property
    def y(self) -> FloatArray:
        return np.asarray(self._solver.y)

    @property
    def status(self) -> str:
        return str(self._solver.status)

    @property
    def nfev(self) -> int:
        return self._evaluations + int(self._solver.nfev)

    @property
    def njev(self) -> int:
        return int(self._solver.njev)


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
