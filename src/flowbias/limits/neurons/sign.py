"""With which sign the outer weight of a linear neuron ends.

The flow of a and of the inputs f = X w is one of its own, in rank(X) + 1 unknowns:

    a' = <f, y - a f>,    f' = a X X^T (y - a f).

Where a = 0 the predictor fits nothing, and the loss is that of the zero predictor. The loss falls,
so a changes its sign at most once, and never again from a state on whose loss is below that:

    sign(a) <f, y> > |a| ||f||^2 / 2.                                        (*)

It never does if |a| > ||P w|| at the start, P w the part of w in the row space; and a start a = 0
leaves it with the sign of <f, y>, after which (*) holds. Otherwise (*) is tried at the start and
then along the flow, which is followed until it holds with a margin far above the integrator's
error; two more runs, at a tighter tolerance and from starts moved by 1e-8 of their size to either
side, have to agree.  (docs/theory/neurons.md)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum

import numpy as np
import scipy.linalg
from scipy.integrate import LSODA

from flowbias.ground import extended
from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.parts import NeuronParts
from flowbias.models.neuron import ALONG, AT_START, is_below_zero

# Differences of lengths count beyond this share of them: some thousand roundings.
_POSITIVE = 1e-12
# A start that ends differently if moved by this share of its size is too close to call.
NUDGE = 1e-8


class Reason(Enum):
    """Why the sign is known, or that it is not."""

    KEPT = "closed form; a cannot reach 0"
    BELOW = "closed form; the loss starts below that of the zero predictor, so a keeps its sign"
    LEFT_ZERO = "closed form; a leaves 0 at once, with the sign of <w, X^T y>"
    FOLLOWED_KEPT = "closed form; a keeps its sign, as the flow in rank + 1 unknowns shows"
    FOLLOWED_CHANGED = "closed form; a changes its sign, as the flow in rank + 1 unknowns shows"
    NO_PULL = "closed form; P y = 0: a keeps its sign, and the flow ends at zero error"
    SADDLE = "the start is a saddle on these data: a = 0 and <w, X^T y> = 0"
    TRAPPED = "the flow ends in the saddle a = 0, P w = 0"
    UNDECIDED = (
        "closed form on one branch; whether a changes its sign is too close to call: the start "
        "leads within rounding of a saddle"
    )

    @property
    def decided(self) -> bool:
        return not self.is_saddle and self is not Reason.UNDECIDED

    @property
    def is_saddle(self) -> bool:
        """Whether the flow ends at a = 0 with an error left."""
        return self in (Reason.SADDLE, Reason.TRAPPED)


@dataclass(frozen=True)
class Branch:
    """The sign of a at the limit, why, and the steps it took to tell."""

    sign: float
    reason: Reason
    steps: int = 0


def settle(parts: NeuronParts) -> Branch:
    """Which sign a has at the limit."""
    kept, inner = float(np.sign(parts.a)), extended.length(parts.moving)
    if abs(parts.a) - inner > _POSITIVE * abs(parts.a):
        return Branch(kept, Reason.KEPT)
    if parts.fit_length == 0.0:
        # No loss is below that of the zero predictor, and where it is reached the flow is at rest.
        return Branch(kept or 1.0, Reason.NO_PULL)
    flow = InputFlow.of(parts)
    if kept == 0.0:
        is_moving = inner > _POSITIVE * extended.length(parts.w) and flow.slope() != 0.0
        reason = Reason.LEFT_ZERO if is_moving else Reason.SADDLE
        return Branch(float(np.sign(flow.slope())) if is_moving else 1.0, reason)
    if flow.is_settled(flow.start, AT_START):
        return Branch(kept, Reason.BELOW)
    if flow.is_trapped():
        return Branch(kept, Reason.TRAPPED)
    return _followed(flow, kept)


def _followed(flow: InputFlow, kept: float) -> Branch:
    first, steps = flow.sign_at_the_end(flow.start, rtol=1e-9)
    nudged = [flow.nudged(share) for share in (NUDGE, -NUDGE)]
    others = [flow.sign_at_the_end(start, rtol=1e-10) for start in nudged]
    steps += sum(more for _, more in others)
    if first == 0.0 or any(sign != first for sign, _ in others):
        return Branch(first or kept, Reason.UNDECIDED, steps)
    same = first == kept
    return Branch(first, Reason.FOLLOWED_KEPT if same else Reason.FOLLOWED_CHANGED, steps)


@dataclass(frozen=True, eq=False)
class InputFlow:
    """(a, f) in units in which X and the larger of the weights and of sqrt(||m||) are at most 1."""

    start: FloatArray  # a, then f
    target: FloatArray
    gram: FloatArray  # X X^T
    size: float  # the larger of |a| and ||P w|| at the start
    fit_length: float  # ||m||, m = X^+ y

    @classmethod
    def of(cls, parts: NeuronParts) -> InputFlow:
        X = parts.problem.X
        rows = X / max(float(X.max()), -float(X.min()))
        basis = parts.constraint.rows
        if parts.constraint.to_data is not None:
            # Dependent rows: R w with X V^T = Q R stands for X w, V an orthonormal basis of them.
            rows = scipy.linalg.qr(rows @ basis.T, mode="r")[0][: len(basis)] @ basis
        inner = extended.length(parts.moving)
        unit = max(abs(parts.a), inner, float(np.sqrt(parts.fit_length)))
        start = np.concatenate([[parts.a / unit], rows @ (parts.moving / unit)])
        target = rows @ (parts.fit / unit / unit)
        size, fit = max(abs(parts.a), inner) / unit, parts.fit_length / unit / unit
        return cls(start, target, rows @ rows.T, size, fit)

    def slope(self) -> float:
        """<f, y> at the start: what a moves by where it is 0."""
        f = self.start[1:]
        slope = float(f @ self.target)
        rounding = np.finfo(float).eps * f.size * float(np.abs(f) @ np.abs(self.target))
        return slope if abs(slope) > rounding else 0.0

    def is_settled(self, state: FloatArray, margin: float) -> bool:
        a = float(state[0])
        return is_below_zero(float(np.sign(a)), a, state[1:], self.target, margin)

    def is_trapped(self) -> bool:
        """One dimension, |a| = |P w|, a f against y: both fall to 0 and never get there."""
        if len(self.target) != 1:
            return False
        a, f = (float(value) for value in self.start)
        balanced = abs(abs(a) - abs(f) / float(np.sqrt(self.gram[0, 0]))) <= _POSITIVE * abs(a)
        return balanced and a * f * float(self.target[0]) < 0.0

    def nudged(self, share: float) -> FloatArray:
        """The start with a moved by that share of the start's size."""
        start = self.start.copy()
        start[0] += share * self.size
        return start

    def sign_at_the_end(self, start: FloatArray, rtol: float) -> tuple[float, int]:
        """The sign of a once it is settled, or 0 where that is not reached; and the steps taken."""
        atol = rtol * self._sizes()
        max_steps, forever = 50_000, 1e300
        solver = LSODA(self.velocity, 0.0, start, forever, rtol=rtol, atol=atol, jac=self.jacobian)
        for step in range(max_steps):
            if self.is_settled(np.asarray(solver.y), ALONG):
                return float(np.sign(solver.y[0])), step
            if not _advance(solver):
                return 0.0, step
        return 0.0, max_steps

    def _sizes(self) -> FloatArray:
        """The least size that a, and that f, may have where they matter."""
        # From large starts a falls to where it balances the pull of the data.
        least = min(self.size, self.fit_length / self.size)
        reach = self.size * float(np.sqrt(self.gram.diagonal().max()))
        return np.concatenate([[least], np.full(len(self.target), reach)])

    def velocity(self, _: float, state: FloatArray) -> FloatArray:
        a, f = state[0], state[1:]
        pull = self.target - a * f
        return np.concatenate([[f @ pull], a * (self.gram @ pull)])

    def jacobian(self, _: float, state: FloatArray) -> FloatArray:
        a, f = state[0], state[1:]
        matrix = np.empty((state.size, state.size))
        slack = self.target - 2.0 * a * f
        matrix[0, 0] = -float(f @ f)
        matrix[0, 1:] = slack
        matrix[1:, 0] = self.gram @ slack
        matrix[1:, 1:] = -(a**2) * self.gram
        return matrix


def _advance(solver: LSODA) -> bool:
    """One step, if the integrator manages one."""
    with warnings.catch_warnings():
        # That it failed is seen from its status.
        warnings.filterwarnings("ignore", message="lsoda:")
        solver.step()
    return bool(solver.status == "running")
