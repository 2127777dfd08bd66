"""The flow that gradient descent follows up to the square of its step.

    Z' = -grad (L + (h/4) ||grad L||^2) = f - (h/2) f'(Z) f,    f = -grad L

One step Z + h f of descent agrees with a time h of this flow up to O(h^3), so that after a given
time they are O(h^2) apart, where the flow of L itself is O(h) away. [Barrett and Dherin 2021,
Implicit Gradient Regularization; Hairer, Lubich and Wanner, Geometric Numerical Integration, IX]

For L = (1/2) ||measure(U V^T) - target||^2 both terms act on Z = [U; V] from the left, by U V^T
and its parts: a root of the Gram matrix serves at any width, as for descent itself. Unlike
L, ||grad L||^2 changes when U grows and V shrinks by the same factor: the imbalance moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from flowbias.ground.typing import FloatArray
from flowbias.problems.matrix._base import MatrixProblem

# Far below the squares of the steps that are compared with it.
_RTOL, _ATOL = 1e-11, 1e-13


@dataclass(frozen=True, eq=False)
class ModifiedFlow:
    """Roots [U; V] of the Gram matrix over time, from `root` on."""

    root: FloatArray
    problem: MatrixProblem
    step_size: float

    def roots_at(self, times: FloatArray) -> FloatArray:
        """One root per time, from 0 on, in the columns of the first."""
        root = self.root
        solution = solve_ivp(
            lambda _, flat: self._velocity(flat.reshape(root.shape)).reshape(-1),
            (0.0, float(times[-1])),
            root.reshape(-1),
            method="DOP853",
            t_eval=times,
            rtol=_RTOL,
            atol=_ATOL * float(np.abs(root).max()),
        )
        if not solution.success:
            raise ArithmeticError(f"modified flow: {solution.message}")
        return np.asarray(solution.y.T.reshape(-1, *root.shape))

    def _velocity(self, root: FloatArray) -> FloatArray:
        d = self.problem.shape[0]
        U, V = root[:d], root[d:]
        pull = self.problem.adjoint(self.problem.target - self.problem.measure(U @ V.T))
        first = np.vstack([pull @ V, pull.T @ U])
        # f' f: the pull of the moved weights, and the moved pull of the weights.
        moved = -self.problem.adjoint(self.problem.measure(first[:d] @ V.T + U @ first[d:].T))
        second = np.vstack([pull @ first[d:] + moved @ V, pull.T @ first[:d] + moved.T @ U])
        return np.asarray(first - 0.5 * self.step_size * second)
