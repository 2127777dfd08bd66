"""How fast the loss falls along the whole flow.  [min2021, Theorem 3, Corollaries 4-6]

    c(t) = -D+ + sqrt((D+ + Dl)^2 + 4 [sm(Yt) - ||E(t)||_F]+^2/l1(S))
           -D- + sqrt((D- + Dl)^2 + 4 [sr(Yt) - ||E(t)||_F]+^2/l1(S))                        (21)

Imbalance is conserved and the error falls, so c grows and lr(S) c(t0) is a rate from t0 on. Each
claim measures the least mean rate ln(L~(t0)/L~(t))/(t - t0) over the times given, L~ = L - L*. The
flow is followed in the weights, unless a trajectory (`t` and products `M`) is passed. The loss is
(c/2) ||X U V^T - Y||^2; all rates carry its constant c.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from flowbias.flows.request import loss_constant
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.imbalance import gain
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.arguments import OutsideHypothesis, checked
from flowbias.theory.claim import MIN, Claim, Reference, Statement
from flowbias.theory.imbalance_bounds import ROUNDING
from flowbias.theory.measured_flow import (
    ERROR_RESOLVED,
    RATE,
    MeasuredRate,
    ProductPath,
    follow_weights,
    measured_rate,
)
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    at,
    reduced_weights,
    regression,
    singular_values,
    weights_of,
)

P = ParamSpec("P")
C = TypeVar("C")


@dataclass(frozen=True)
class ErrorPath:
    """The start as the data sees it, and ||E(t)||_F at the times that are still resolved."""

    start: ReducedNet
    t: FloatArray
    errors: FloatArray
    loss_constant: float

    @property
    def size(self) -> float:
        """What the errors are known relative to: that of the targets, or the first of them."""
        return max(float(np.linalg.norm(self.start.target)), float(self.errors[0]))

    def mean_rate(self, first: int = 0) -> MeasuredRate:
        """Least of ln(L~(t0)/L~(t))/(t - t0) over later times, t0 = t[first]."""
        return self._twice(slice(first, None))

    def rate_after(self, index: int) -> MeasuredRate:
        """The same between t[index] and the next time."""
        return self._twice(slice(index, index + 2))

    def _twice(self, times: slice) -> MeasuredRate:
        """L~ falls at twice the rate of ||E||."""
        rate = measured_rate(self.t[times], self.errors[times], self.size)
        return MeasuredRate(2.0 * rate.value, 2.0 * rate.atol)

    def guaranteed_rate(self, index: int = 0) -> float:
        """c lr(S) c(t[index])."""
        return self.loss_constant * self.start.guaranteed_rate(float(self.errors[index]))

    @property
    def rounding(self) -> float:
        """What an imbalance that is 0 may seem to promise."""
        return self.loss_constant * ROUNDING.size * self.start.size

    def falls(self, stated: Statement, name: str, measured: MeasuredRate, promised: float) -> Claim:
        """measured >= promised, where that is more than the rounding of an imbalance that is 0."""
        silence = measured.silence(promised if promised > self.rounding else min(promised, 0.0))
        atol = measured.atol + self.rounding
        return stated.at_least(name, measured.value, promised, atol=atol, silence=silence)


def error_path(
    net: LinearStart,
    X: Any,
    Y: Any,
    t: ArrayLike | None = None,
    *,
    trajectory: ProductPath | None = None,
    loss: Any = "half",
) -> ErrorPath:
    """||E|| at t = 0 and at the times of the trajectory, from its products alone."""
    problem = regression(net, X, Y)
    start = reduced_weights(*weights_of(net), problem)
    c = loss_constant(loss, len(problem.X))
    if trajectory is None:
        trajectory = follow_weights(net, problem, t, loss)
    times = np.asarray(trajectory.t, dtype=np.float64)
    errors = np.array([_error_norm(problem, M) for M in trajectory.M])
    if times[0] > 0.0:
        times = np.concatenate([[0.0], times])
        errors = np.concatenate([[float(np.linalg.norm(start.error))], errors])
    path = ErrorPath(start, times, errors, c)
    # Once it is lost in the integrator's errors, an error that comes back is no measurement.
    lost = np.flatnonzero(errors <= ERROR_RESOLVED * path.size)
    if lost.size and lost[0] == 0:
        raise OutsideHypothesis(
            f"net: must start with an error above {ERROR_RESOLVED:g} of the targets, got "
            f"{errors[0] / (path.size or 1.0):.2g} of them. No rate can be told from so little."
        )
    seen = slice(None, int(lost[0]) if lost.size else None)
    return ErrorPath(start, times[seen], errors[seen], c)


def _error_norm(problem: MatrixRegression, M: FloatArray) -> float:
    return float(np.linalg.norm(problem.spectrum.W.T @ (problem.Y - problem.X @ M)))


def along(path_of: Callable[P, ErrorPath]) -> Callable[[Callable[[ErrorPath], C]], Callable[P, C]]:
    """What is said about a path becomes a claim about what the path is made of."""
    signature = inspect.signature(path_of)

    def made(guarantee: Callable[[ErrorPath], C]) -> Callable[P, C]:
        def claim(*args: P.args, **kwargs: P.kwargs) -> C:
            return guarantee(path_of(*args, **kwargs))

        functools.update_wrapper(claim, guarantee)
        returned = guarantee.__annotations__["return"]
        claim.__annotations__ = {**path_of.__annotations__, "return": returned}
        vars(claim)["__signature__"] = signature.replace(return_annotation=returned)
        return checked(claim)

    return made


@along(error_path)
def exponential_guarantee(path: ErrorPath) -> Claim:
    """L~(t) <= exp(-lr(S) c(0) t) L~(0) for all t.  [min2021, Theorem 3]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.exponential_guarantee(net, X, [[1.0], [-1.0]], t=[0.5, 1.0]).holds
    True
    """
    stated = _stated(
        MIN("Theorem 3", "(21)"), "imbalance and margin at the start bound the rate for ever"
    )
    return path.falls(stated, "exponential convergence", path.mean_rate(), path.guaranteed_rate())


@along(error_path)
def imbalance_guarantee(path: ErrorPath) -> Claim:
    """L~(t) <= exp(-2 lr(S) Dl t) L~(0), Dl the level of imbalance.  [min2021, Corollary 4]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.imbalance_guarantee(net, X, [[1.0], [-1.0]], t=[0.5, 1.0]).holds
    True
    """
    rate = 2.0 * path.start.conditioning[1] * path.start.imbalance.level
    stated = _stated(MIN("Corollary 4"), "the level of imbalance alone bounds the rate")
    promised = path.loss_constant * rate
    return path.falls(stated, "convergence from imbalance", path.mean_rate(), promised)


@along(error_path)
def margin_guarantee(path: ErrorPath) -> tuple[Claim, Claim]:
    """Where smin(Yt) > ||E(0)||_F: c(0) > 0 and the rate is at least lr(S) c(0).

    [min2021, Corollary 5], which prints twice that rate; it fails (docs/errata.md, M1).

    >>> net = fb.LinearNet.balanced([[1.0], [-0.9], [0.0]], np.eye(2, 3))
    >>> claims = fb.theory.margin_guarantee(net, np.eye(2, 3), [[1.0], [-1.0]], t=[0.1, 0.5])
    >>> all(claim.holds for claim in claims)
    True
    """
    margin = float(singular_values(path.start.target)[-1] - path.errors[0])
    if not margin > 0.0:
        raise OutsideHypothesis(
            f"net: must start with a margin, smin(Yt) > ||E(0)||, got a margin of {margin:.3g}. "
            "Start closer to the targets, or use exponential_guarantee."
        )
    stated = _stated(
        MIN("Corollary 5"),
        "a margin at the start makes the guaranteed rate positive, whatever the imbalance, and so "
        "suffices for exponential convergence",
    )
    rate = path.guaranteed_rate()
    # c(0) >= gain(a, s) for the larger a of the two terms: positive, whatever the imbalance.
    least = path.start.conditioning[1] * path.loss_constant * _margin_gain(path, margin)
    return (
        stated.at_least("the margin makes c(0) positive", rate, least, atol=path.rounding),
        path.falls(stated, "convergence from the margin", path.mean_rate(), rate),
    )


def _margin_gain(path: ErrorPath, margin: float) -> float:
    """sqrt(a^2 + 4 s^2) - a for the margin s and the larger of both a's: positive."""
    imbalance = path.start.imbalance
    a = max(imbalance.spread_plus, imbalance.spread_minus) + imbalance.level
    return gain(a, margin / float(np.sqrt(path.start.conditioning[0])))


@along(error_path)
def local_guarantee(path: ErrorPath) -> tuple[Claim, ...]:
    """L~(t) <= exp(-lr(S) c(t0) (t - t0)) L~(t0) for t >= t0: one claim per time t0 but the last.

    [min2021, Corollary 6], which prints t for t - t0 and, in words, twice the rate; both fail
    (docs/errata.md, M2).

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(c.holds for c in fb.theory.local_guarantee(net, X, [[1.0], [-1.0]], t=[0.5, 1.0]))
    True
    """
    if len(path.t) < 3:
        raise OutsideHypothesis(
            f"t: must hold two times at which the error is above {ERROR_RESOLVED:g} of the "
            f"targets, got {len(path.t) - 1}. Pass earlier times."
        )
    stated = _stated(
        MIN("Corollary 6"),
        "what holds at the start holds from any later time on, with the margin reached",
    )

    def after(index: int) -> Claim:
        name = f"convergence after t0 = {path.t[index]:.6g}"
        return path.falls(stated, name, path.mean_rate(index), path.guaranteed_rate(index))

    return tuple(after(index) for index in range(1, len(path.t) - 1))


@along(error_path)
def asymptotic_rate(path: ErrorPath) -> Claim:
    """From t0 to the next time the rate is at least lr(S) ((22) - 4 ||E(t0)||/l1(S)^(1/2)).

    [min2021, Corollary 6, (22)], the value of c at E = 0, which is never above it; the distance is
    ours, since sqrt(a^2 + 4 s^2) moves by at most 2 |ds|, twice for r = m and once otherwise. So
    the rate of a flow that converges ends above lr(S) times (22). Claimed of the time t0 at which
    it is closest, among those late enough for a promise.

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.asymptotic_rate(net, X, [[1.0], [-1.0]], t=[0.5, 1.0, 1.5]).holds
    True
    """
    start = path.start
    (r, m), (top, bottom) = start.target.shape, start.conditioning
    values = singular_values(start.target) / np.sqrt(top)
    limit = start.imbalance.rate_factor(at(values, m), at(values, r))
    away = (4.0 if r == m else 2.0) * path.errors[:-1] / np.sqrt(top)
    promises = path.loss_constant * bottom * (limit - away)
    late = np.flatnonzero(promises > path.rounding)
    if not late.size:
        raise OutsideHypothesis(
            f"t: must reach errors ||E|| below {limit * np.sqrt(top) / (4 if r == m else 2):.3g}, "
            f"got {path.errors[-1]:.3g}. (22) promises nothing before: pass later times."
        )
    rates = [path.rate_after(int(index)) for index in late]
    worst = int(np.argmin([rate.value + rate.atol for rate in rates] - promises[late]))
    stated = _stated(
        MIN("Corollary 6", "(22)"),
        "the rate of the flow comes as close to what (22) promises as the error to 0",
    )
    return path.falls(stated, "rate at the end", rates[worst], float(promises[late[worst]]))


def _stated(reference: Reference, words: str) -> Statement:
    return Statement(reference, words, *RATE)
