"""Gradient flow on U and V themselves, sharing nothing with the Gram matrix or closed forms.

    V' = c (Y - X U V^T)^T X U,   U' = c X^T (Y - X U V^T) V                     [min2021 (3)]

int ||E||_F dt is carried along: the distance from the invariant set grows at most by its
exponential [min2021, (E.11)].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate

from flowbias._typing import ArrayLike, FloatArray
from flowbias.flows.loss import loss_constant
from flowbias.matrix_problem import MatrixRegression
from flowbias.problem import InputError
from flowbias.theory.reduced_net import LinearStart, ReducedNet, reduced_weights, weights_of

# Local error per step: close to the least that double precision resolves.
RTOL = 1e-12
# An error below this fraction of the targets is no longer resolved to the digits claimed here.
RESOLVED = 1e-5
# Local errors of some hundred steps, 1e-10, over the smallest resolved error.
WEIGHTS_TOLERANCE = 1e-5
WEIGHTS_ORIGIN = "weights followed at rtol 1e-12; errors below 1e-5 of the targets are not used"
# A flow counts as ended where ||E|| is below this fraction of the targets.
ENDED = 1e-9
# Longest flow, in units of 1/(c l1(S) ||weights||^2): beyond it the start is at a saddle.
LONGEST = 3e4


@dataclass(frozen=True)
class MeasuredWeights:
    """Weights at increasing times; U is (len(t), d, k), V is (len(t), m, k)."""

    t: FloatArray
    U: FloatArray
    V: FloatArray
    #: int_0^t ||E||_F at each time
    error_integral: FloatArray
    loss_constant: float = 1.0

    @property
    def M(self) -> FloatArray:  # noqa: N802  (the name that every trajectory of products has)
        """Products U V^T, (len(t), d, m)."""
        return np.asarray(self.U @ self.V.transpose(0, 2, 1))

    def reduced(self, problem: MatrixRegression) -> Iterator[ReducedNet]:
        """What the data sees, at each time."""
        return (reduced_weights(U, V, problem) for U, V in zip(self.U, self.V, strict=True))


def follow(
    net: LinearStart, problem: MatrixRegression, t: ArrayLike | None = None, loss: Any = "half"
) -> MeasuredWeights:
    """The flow at t = 0 and the times t, or at every step to its end where none are given."""
    c = loss_constant(loss, len(problem.X))
    start = _Layout(*weights_of(net), problem, c)
    if t is None:
        return start.to_the_end()
    times = np.unique(np.concatenate([[0.0], np.atleast_1d(np.asarray(t, dtype=np.float64))]))
    if not (times[0] >= 0.0 and np.isfinite(times[-1]) and len(times) > 1):
        raise InputError(
            f"t: must hold finite times > 0, got {t!r}. Leave it out to follow to the end."
        )
    return start.measured(start.integrate(times[-1], times))


class _Layout:
    """U, V and int ||E|| in one vector, and the right-hand side on it."""

    def __init__(self, U: FloatArray, V: FloatArray, problem: MatrixRegression, c: float) -> None:
        self.split, self.cut, self.k = U.size, U.size + V.size, U.shape[1]
        self.problem, self.c = problem, c
        self.y0 = np.concatenate([U.ravel(), V.ravel(), [0.0]])
        self.W = problem.spectrum.W

    def parts(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return y[: self.split].reshape(-1, self.k), y[self.split : self.cut].reshape(-1, self.k)

    def error_norm(self, y: FloatArray) -> float:
        U, V = self.parts(y)
        return float(np.linalg.norm(self.W.T @ (self.problem.Y - (self.problem.X @ U) @ V.T)))

    def derivative(self, _t: float, y: FloatArray) -> FloatArray:
        U, V = self.parts(y)
        XU = self.problem.X @ U
        R = self.c * (self.problem.Y - XU @ V.T)
        dU, dV = self.problem.X.T @ (R @ V), R.T @ XU
        return np.concatenate([dU.ravel(), dV.ravel(), [self.error_norm(y)]])

    def integrate(self, end: float, times: FloatArray | None = None, events: Any = None) -> Any:
        atol = RTOL * 1e-2 * float(np.abs(self.y0).max())
        solved = scipy.integrate.solve_ivp(
            self.derivative,
            (0.0, end),
            self.y0,
            method="DOP853",
            t_eval=times,
            rtol=RTOL,
            atol=atol,
            events=events,
        )
        if not solved.success:
            raise InputError(f"t: could not be reached ({solved.message}). Pass shorter times.")
        return solved

    def to_the_end(self) -> MeasuredWeights:
        goal = ENDED * float(np.linalg.norm(self.W.T @ self.problem.Y))

        def done(_t: float, y: FloatArray) -> float:
            return self.error_norm(y) - goal

        done.terminal = True  # type: ignore[attr-defined]
        top = float(self.problem.spectrum.root[0])
        clock = self.c * top * (top * float(np.sum(self.y0**2)) + self.error_norm(self.y0))
        solved = self.integrate(LONGEST / clock, events=done)
        if solved.status != 1:
            raise InputError(
                f"net: must start where the flow reaches zero error, got ||E|| = "
                f"{self.error_norm(solved.y[:, -1]):.3g} at t = {solved.t[-1]:.3g}. "
                "The start is at or near a saddle; enlarge it, or widen the network."
            )
        return self.measured(solved)

    def measured(self, solved: Any) -> MeasuredWeights:
        pairs = [self.parts(column) for column in solved.y.T]
        U, V = (np.stack(side) for side in zip(*pairs, strict=True))
        return MeasuredWeights(solved.t, U, V, solved.y[-1], self.c)
