"""Both ends of the range of scales, with error bounds.  [woodworth2020, Theorems 1 and 3]

Towards scale 0 the regularizer of a start a = alpha w0 is, up to a remainder between 0 and
C sum a^2 for every w,

    depth 2:   ln(1/alpha^2) sum |w|            + sum |w| ln(|w|/w0^2) - |w|,    C = 2
    depth D:   alpha^(2-D) sum w0^(2-D) |w|     - (D/2) sum |w|^(2/D),           C = (D-2)(1-2^-k)

so that a weighted l1 norm decides first and the second sum selects among its minimizers.

Features wake one after the other from a small start [docs/theory/stages.md, At a finite scale].
Where columns are orthogonal the coordinates of the flow know nothing of each other. What the times
of `StagePath.wake_times` leave out, that the pull falls while a feature wakes, is then bounded from
both sides at every scale and depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from flowbias.flows.integrate import flow
from flowbias.flows.trajectory import Trajectory
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits import basis_pursuit, limit, min_norm, rich_limit
from flowbias.limits.inverse_scale_space import EPS
from flowbias.limits.stage_path import Change
from flowbias.limits.stages import stages
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression, as_regression
from flowbias.results.solution import Solution
from flowbias.theory.arguments import (
    OutsideHypothesis,
    checked,
    something_to_fit,
    unbiased_log_start,
    unresolved,
)
from flowbias.theory.claim import (
    ONE_PRODUCT,
    WOODWORTH,
    Claim,
    Statement,
    Tolerance,
    beyond_the_papers,
)
from flowbias.theory.regimes import SOLVED, quartic_share

_SELECTION = beyond_the_papers("7 The rich limit and its selection")
_DECIDES = Statement(
    _SELECTION, "towards scale 0 a weighted l1 norm decides first, then the selecting sum", *SOLVED
)


@dataclass(frozen=True)
class RichExpansion:
    """Q(w) = l1(w)/small + selection(w) + remainder, 0 <= remainder <= `remainder`."""

    weights: FloatArray
    small: float
    selection: Callable[[FloatArray], float]
    selection_grad: Callable[[FloatArray], FloatArray]
    remainder: float

    def l1(self, w: FloatArray) -> float:
        return float(np.sum(self.weights * np.abs(w)))


def rich_expansion(model: DiagonalNet, d: int) -> RichExpansion:
    """What the regularizer of an unbiased start becomes towards scale 0."""
    logs = unbiased_log_start(model, d)
    log_alpha = float(logs.mean())
    w0, squares, depth = np.exp(logs - log_alpha), float(np.exp(2.0 * logs).sum()), model.depth
    if depth == 2:
        if not log_alpha < 0.0:
            raise OutsideHypothesis(
                f"model: must have a scale below 1, got log_scale {log_alpha:g}. "
                "The expansion is one in 1/ln(1/scale^2)."
            )
        return RichExpansion(
            weights=np.ones(d),
            small=-0.5 / log_alpha,
            selection=lambda w: float(np.sum(_x_log_x(w, w0) - np.abs(w))),
            selection_grad=lambda w: np.sign(w) * np.log(np.abs(w) / w0**2),
            remainder=2.0 * squares,
        )
    k, power = depth / (depth - 2.0), 2.0 / depth
    return RichExpansion(
        weights=w0 ** (2.0 - depth),
        small=float(np.exp((depth - 2.0) * log_alpha)),
        selection=lambda w: float(-0.5 * depth * np.sum(np.abs(w) ** power)),
        selection_grad=lambda w: -np.sign(w) * np.abs(w) ** (power - 1.0),
        remainder=(depth - 2.0) * (1.0 - 2.0**-k) * squares,
    )


def _towards_rich(
    model: DiagonalNet, X: Any, y: Any
) -> tuple[Regression, RichExpansion, FloatArray, Solution]:
    """The data, the expansion, the limit and the rich limit."""
    problem = Regression(X, y)
    expansion = rich_expansion(model, problem.X.shape[1])
    return problem, expansion, limit(model, problem).w, rich_limit(model, problem)


def _x_log_x(w: FloatArray, w0: FloatArray) -> FloatArray:
    size = np.abs(w)
    return np.where(size > 0.0, size * np.log(np.where(size > 0.0, size, 1.0) / w0**2), 0.0)


@checked
def rich_excess(model: DiagonalNet, X: Any, y: Any) -> tuple[Claim, Claim]:
    """How far the limit is from its rich limit w*, in l1 and in the function that selects.

        l1(w) - l1(w*) <= small (selection(w*) - selection(w) + remainder)
        selection(w) <= selection(w*) + remainder

    For any unbiased start, unique minimizer or not; w* = fb.rich_limit. With it
    [woodworth2020, Theorem 3] (alpha -> 0) holds with a rate, and for general w0.

    >>> model = fb.DiagonalNet(depth=2, scale=1e-3)
    >>> all(claim.holds for claim in fb.theory.rich_excess(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem, expansion, w, rich = _towards_rich(model, X, y)
    target = rich.w
    better = expansion.selection(target) - expansion.selection(w)
    size, excess = expansion.l1(target), expansion.small * (better + expansion.remainder)
    whole, among = abs(expansion.selection(target)) + size, problem.X
    return (
        _DECIDES.at_most("excess l1 norm", expansion.l1(w) - size, excess, size=size, among=among),
        _DECIDES.at_most(
            "excess of what selects", -better, expansion.remainder, size=whole, among=among
        ),
    )


@checked
def rich_distance(model: DiagonalNet, X: Any, y: Any) -> Claim:
    """||w - w*|| <= (excess l1 norm / dual margin) max_i ||(X_S^+ x_i, -1)|| / weight_i.

    Where w* is the only minimizer, on the support S, and the others' |X^T nu| stay below
    (1 - margin) weight: the margin says how small the scale must be to see the rich limit.

    >>> fb.theory.rich_distance(fb.DiagonalNet(depth=2, scale=1e-3), [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem, expansion, w, rich = _towards_rich(model, X, y)
    support = _on_support(rich.w)
    columns = problem.X[:, support]
    if _dependent(columns):
        raise OutsideHypothesis(
            "X, y: must have a unique minimizer of the l1 norm, got one with dependent columns "
            f"on its support of {support.sum()}. Use rich_excess, which needs no uniqueness."
        )
    margin = float(rich.details["dual_margin"])
    if not margin > SOLVED.size:
        raise OutsideHypothesis(
            f"X, y: must leave a dual margin, got {margin:.3g}: another column is as good as those "
            "on the support. Use rich_excess, which needs none."
        )
    better = expansion.selection(rich.w) - expansion.selection(w)
    excess = expansion.small * (better + expansion.remainder)
    others = np.linalg.lstsq(columns, problem.X[:, ~support])[0]
    reach = np.sqrt(1.0 + np.sum(np.square(others), axis=0)) / expansion.weights[~support]
    factor = float(reach.max(initial=0.0)) / margin
    # A rounding of the l1 norm, 1e-10 of it, is magnified like the excess itself.
    size = float(np.linalg.norm(rich.w)) + factor * expansion.l1(rich.w)
    name, apart = "distance to the rich limit", np.linalg.norm(w - rich.w)
    return _DECIDES.at_most(name, apart, factor * excess, size=size, among=problem.X)


@checked
def rich_selection(model: DiagonalNet, X: Any, y: Any) -> tuple[Claim, Claim]:
    """Among all minimizers of the weighted l1 norm, gradient flow picks the selected one.

    Measured at the flow's own limit. First claim: where l1 is least, the selecting function's
    gradient lies in the range of X^T, up to what the expansion leaves out, which means that the
    limit is optimal on the face of minimizers. Second: no vertex does better, up to the remainder.

    >>> model = fb.DiagonalNet(depth=2, scale=1e-3)
    >>> all(claim.holds for claim in fb.theory.rich_selection(model, [[1.0, 1.0]], [1.0]))
    True
    """
    problem, expansion, w, rich = _towards_rich(model, X, y)
    support = _on_support(rich.w)
    rows = problem.X[:, support].T
    free = _dependent(rows.T)
    selecting = expansion.selection_grad(np.where(support, w, 1.0))[support]
    leading = (np.sign(w) * expansion.weights)[support] / expansion.small
    whole = np.asarray(model.potential.grad(w))[support]
    size = float(np.linalg.norm(selecting) + np.linalg.norm(leading)) or 1.0
    left_out = float(np.linalg.norm(whole - leading - selecting))
    vertex = basis_pursuit(problem, weights=expansion.weights).w
    same = np.linalg.norm(vertex - rich.w) <= SOLVED.size * np.linalg.norm(vertex)
    stationary = Statement(
        _SELECTION,
        "the limit satisfies the optimality conditions on the face of minimizers",
        "relative accuracy 1e-9 of the entries of the limit",
        SOLVED.size,
    )
    vertex_only = "" if free else "the minimizer is a vertex: any gradient is in the range"
    found = "basis pursuit finds the selected minimizer itself: none is left to compare"
    return (
        stationary.at_most(
            "selection is stationary",
            np.linalg.norm(_off_range(rows, selecting)),
            left_out,
            size=size,
            silence=vertex_only,
        ),
        _DECIDES.at_most(
            "selection beats a vertex",
            expansion.selection(w),
            expansion.selection(vertex) + expansion.remainder,
            size=abs(expansion.selection(vertex)) + expansion.l1(vertex),
            silence=found if same else "",
        ),
    )


def _dependent(columns: FloatArray) -> int:
    """How many of the columns depend on the others."""
    # Of no columns not every NumPy knows the rank.
    return columns.shape[1] - int(np.linalg.matrix_rank(columns)) if columns.size else 0


def _on_support(w: FloatArray) -> NDArray[np.bool_]:
    """Below the share of the largest entry that the limit resolves a coordinate counts as zero."""
    return np.asarray(np.abs(w) > SOLVED.size * np.abs(w).max())


def _off_range(A: FloatArray, v: FloatArray) -> FloatArray:
    return np.asarray(v - A @ np.linalg.lstsq(A, v)[0])


@checked
def kernel_distance(model: DiagonalNet, X: Any, y: Any) -> Claim:
    """||w - w_K|| <= sqrt(eta) ||w_K|| in the norm of the tangent kernel at the start.

    w_K is the interpolator of least sum w^2 a^(2-2D), a = alpha w0, and eta the smaller root of
    eta = 4 (1+eta)^3/T^2 with T = min a^2 / (kappa ||w_K||^2), which must be >= sqrt(27).
    So the limit alpha -> infinity of [woodworth2020, Theorem 3] is reached like alpha^(-2D).

    >>> fb.theory.kernel_distance(fb.DiagonalNet(depth=2, scale=10.0), [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    something_to_fit(problem.y)
    logs = unbiased_log_start(model, problem.X.shape[1])
    weights = np.exp((2.0 - 2.0 * model.depth) * (logs - logs.min()))
    w, kernel = limit(model, problem).w, min_norm(problem, weights=weights).w
    norm = float(np.sqrt(np.sum(weights * kernel**2)))
    # min a^2 / sum w_K^2 a^(2-2D), written with weights that are ordinary numbers.
    room = np.exp(2.0 * model.depth * logs.min()) / (quartic_share(model.depth) * norm**2)
    if not room >= np.sqrt(27.0):
        raise OutsideHypothesis(
            f"model: must have a scale with T >= sqrt(27) for this problem, got T = {room:g}. "
            "Raise the scale."
        )
    eta = scipy.optimize.brentq(lambda x: x - 4.0 * (1.0 + x) ** 3 / room**2, 0.0, 0.5, xtol=1e-300)
    words = "from a large start the limit is nearly the tangent-kernel interpolator"
    stated = Statement(WOODWORTH("Theorem 3", "(66), with a rate"), words, *SOLVED)
    name, apart = "distance to the kernel limit", np.sqrt(np.sum(weights * (w - kernel) ** 2))
    return stated.at_most(name, apart / norm, np.sqrt(eta), among=problem.X)


# --- when features wake from a small start --------------------------------------------------------

# Errors of z add up over the thousand steps to the last waking, and t is proportional to z.
CLOCK = Tolerance("times of a flow followed at rtol 1e-12: a hundred local errors", 1e-10)


@checked
def waking_times(model: DiagonalNet, X: Any, y: Any, share: float = 0.01) -> tuple[Claim, Claim]:
    """Orthogonal columns: feature j has `share` of its weight w_j at T_j (1 + e_j) or a bit later.

    T_j is the time that `StagePath.wake_times` predicts, Z = grad Q_j(share w_j) the dual there:

        e_j <= t_j / T_j - 1 <= e_j / (1 - share),        e_j = Q_j*(Z) / |w_j Z|

    At depth 2 and small scales e_j is share / log(1/scale^2), beyond it is a power of the scale.
    Where columns are not orthogonal this is measured, not proved (docs/theory/stages.md).

    >>> model = fb.DiagonalNet(depth=2, scale=1e-10)
    >>> [claim.holds for claim in fb.theory.waking_times(model, [[1.0, 0], [0, 2]], [3.0, 1])]
    [True, True]
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"share: must lie in (0, 1), got {share!r}. Pass share=0.01.")
    problem = as_regression(X, y)
    something_to_fit(problem.y)
    unbiased_log_start(model, problem.X.shape[1])
    if not model.log_scale < 0.0:
        raise OutsideHypothesis(
            f"model: must have a scale below 1, got {model!r}. Stages are those of small starts: "
            "pass DiagonalNet(depth, scale=1e-3)."
        )
    unit = problem.X / np.where(problem.X.any(axis=0), np.linalg.norm(problem.X, axis=0), 1.0)
    cosines = unit.T @ unit
    if np.abs(cosines - np.diag(np.diag(cosines))).max() > ONE_PRODUCT.size:
        raise OutsideHypothesis(
            "X: must have orthogonal columns, got some that are not. Others pull at a feature "
            "while it wakes, of which nothing is claimed."
        )
    path = stages(model, problem)
    awake = [event.feature for event in path.events if event.change is Change.WAKES]
    if not awake:
        raise OutsideHypothesis("y: must not be orthogonal to X, since nothing wakes. Pass others.")
    weights = np.zeros(problem.X.shape[1])
    weights[awake] = share * path.w[-1][awake]
    potential = model.potential
    # Q* / |w Z|, by Fenchel's equality: Z itself may be a double from where Q* is infinite.
    used = np.abs(weights * potential.grad(weights))[awake]
    expected = np.maximum(share * (1.0 - potential.value_terms(weights)[awake] / used), EPS)
    tolerance = CLOCK.size / float(expected.min())
    if too_short := unresolved(tolerance):
        raise OutsideHypothesis(f"model: wakes within a time that t has no digits for: {too_short}")
    found = first_times(flow(model, problem, rtol=1e-12), awake, weights[awake])
    late = (found / path.wake_times(float(model.log_scale), share=share) - 1.0) / expected
    stated = Statement(
        beyond_the_papers("At a finite scale", "stages"),
        "orthogonal columns: T (1 + e) <= the time at which a feature has a share of its weight "
        "<= T (1 + e / (1 - share)), e = Q*(Z) / |w Z|",
        *CLOCK,
    )
    latest = 1.0 / (1.0 - share)
    return (
        stated.at_least("waking, at the earliest", late.min(), 1.0, atol=tolerance),
        stated.at_most("waking, at the latest", late.max(), latest, atol=tolerance),
    )


def first_times(followed: Trajectory, features: Any, weights: FloatArray) -> FloatArray:
    """When each of these features first has this weight; nan where it never has."""
    found = np.full(len(features), np.nan)
    for k, (j, weight) in enumerate(zip(features, weights, strict=True)):
        there = followed.w[:, j] / weight >= 1.0
        after = int(there.argmax())
        if there.any() and after:
            found[k] = _crossing(followed, j, weight, *followed.t[after - 1 : after + 1])
    return found


def _crossing(followed: Trajectory, j: int, weight: float, before: float, after: float) -> float:
    """Bisection down to neighbouring times."""
    while before < (middle := 0.5 * (before + after)) < after:
        if followed.at(middle)[j] / weight >= 1.0:
            after = middle
        else:
            before = middle
    return after
