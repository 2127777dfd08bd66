"""Scales that guarantee a regime, and both ends of their range.  [woodworth2020, Theorems 1 to 3]

Printed and sharper conditions have the same conclusion: the flow's limit has an l1 norm (rich) or
a squared l2 norm (kernel) within a factor 1 + eps of the least possible. Scales are returned as
natural logarithms, because the rich ones underflow.

Towards scale 0 the regularizer of a start a = alpha w0 is, up to a remainder between 0 and
C sum a^2 for every w,

    depth 2:   ln(1/alpha^2) sum |w|            + sum |w| ln(|w|/w0^2) - |w|,    C = 2
    depth D:   alpha^(2-D) sum w0^(2-D) |w|     - (D/2) sum |w|^(2/D),           C = (D-2)(1-2^-k)

so that a weighted l1 norm decides first and the second sum selects among its minimizers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits import basis_pursuit, limit, min_norm, rich_limit
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import (
    OutsideHypothesis,
    at_least,
    at_most,
    checked,
    only_one_fit,
    positive,
    something_to_fit,
    unbiased_log_start,
)
from flowbias.theory.claim import (
    WOODWORTH,
    Allowed,
    Claim,
    Reference,
    Statement,
    Tolerance,
    beyond_the_papers,
)

# Limits are certified to a relative 1e-10; norms inherit that.
SOLVED = Tolerance("limits certified to 1e-10, and sums of their entries", 1e-9)
_EPS_FIX = "Pass the allowed relative excess, for instance eps=0.1."
_NORM_FIX = "Pass the norm of a solution of X w = y with y not zero."
_D_FIX = "Pass the number of features; only its size counts."
_RICH = "from a scale this small the limit has nearly the least l1 norm"
_KERNEL = "from a scale this large the limit has nearly the least l2 norm"
_PRINTED = WOODWORTH("Theorem 2")
_SHARPER = beyond_the_papers("8 Scales that guarantee a regime")


@checked
def rich_log_scale(eps: float, l1_norm: float, d: float) -> float:
    """log of min{(2(1+eps) b)^(-(2+eps)/(2 eps)), exp(-d/(eps b))}, b the least l1 norm.

    [woodworth2020, Theorem 2]

    >>> round(fb.theory.rich_log_scale(eps=0.1, l1_norm=1.0, d=1000), 3)
    -10000.0
    """
    positive("eps", eps, _EPS_FIX)
    b = positive("l1_norm", l1_norm, _NORM_FIX)
    positive("d", d, _D_FIX)
    power = -(2.0 + eps) / (2.0 * eps) * np.log(2.0 * (1.0 + eps) * b)
    return float(min(power, -d / (eps * b)))


@checked
def rich_scale(eps: float, l1_norm: float, d: float) -> float:
    """exp of `rich_log_scale`; 0.0 where it underflows.

    >>> f"{fb.theory.rich_scale(eps=0.5, l1_norm=1.0, d=10):.3g}"
    '2.06e-09'
    """
    return float(np.exp(rich_log_scale(eps, l1_norm, d)))


@checked
def kernel_log_scale(eps: float, l2_norm: float) -> float:
    """log of sqrt(2 (1+eps) (1+2/eps) ||w_l2||_2).  [woodworth2020, Theorem 2]

    >>> round(fb.theory.kernel_log_scale(eps=0.1, l2_norm=1.0), 4)
    1.9165
    """
    positive("eps", eps, _EPS_FIX)
    norm = positive("l2_norm", l2_norm, _NORM_FIX)
    return float(0.5 * np.log(2.0 * (1.0 + eps) * (1.0 + 2.0 / eps) * norm))


@checked
def kernel_scale(eps: float, l2_norm: float) -> float:
    """exp of `kernel_log_scale`.

    >>> round(fb.theory.kernel_scale(eps=0.1, l2_norm=1.0), 4)
    6.7971
    """
    return float(np.exp(kernel_log_scale(eps, l2_norm)))


@checked
def sharp_rich_log_scale(eps: float, l1_norm: float, d: float, depth: float = 2) -> float:
    """log of the largest scale that we can prove to be rich, b the least l1 norm.

        depth 2:   alpha^2 = b 2^(-1/eps) ((1+eps)/(e d))^(1 + 1/eps),     1 + eps <= e d
        depth D:   alpha^D = (b/d) (2 eps/D)^(D/(D-2)) (1+eps)^(-2/(D-2))

    Exponential in 1/eps at depth 2, polynomial from depth 3 on.

    >>> round(fb.theory.sharp_rich_log_scale(eps=0.1, l1_norm=1.0, d=1000), 3)
    -46.434
    """
    positive("eps", eps, _EPS_FIX)
    b = positive("l1_norm", l1_norm, _NORM_FIX)
    positive("d", d, _D_FIX)
    _at_least_two(depth)
    if depth > 2:
        exponent = depth / (depth - 2.0)
        log_gain = exponent * np.log(2.0 * eps / depth) - (exponent - 1.0) * np.log1p(eps)
        return float((np.log(b / d) + log_gain) / depth)
    if not 1.0 + eps <= np.e * d:
        raise OutsideHypothesis(
            f"eps: must be <= e d - 1 = {np.e * d - 1.0:g}, got {eps!r}. Lower eps: what holds "
            "for a smaller excess holds for a larger one."
        )
    log_share = np.log((1.0 + eps) / (np.e * d))
    return float(0.5 * (np.log(b) - np.log(2.0) / eps + (1.0 + 1.0 / eps) * log_share))


@checked
def sharp_kernel_log_scale(eps: float, l2_norm: float, depth: float = 2) -> float:
    """log of the least scale that we can prove to be kernel, m the least l2 norm.

        alpha^(2D) = kappa m^2 min{(1+eps)^2/eps,  2 (1+eps)^(3/2)/sqrt(eps) if eps <= 1/2}

    kappa = (2D-2)(3D-4)/(48 D^2), 1/48 at depth 2. The first compares values of Q, the second,
    better below eps = 1/3, its gradients.

    >>> round(fb.theory.sharp_kernel_log_scale(eps=0.1, l2_norm=1.0), 3)
    -0.471
    """
    positive("eps", eps, _EPS_FIX)
    norm = positive("l2_norm", l2_norm, _NORM_FIX)
    _at_least_two(depth)
    by_values = (1.0 + eps) ** 2 / eps
    by_gradients = 2.0 * (1.0 + eps) ** 1.5 / np.sqrt(eps)
    gain = min(by_values, by_gradients) if eps <= 0.5 else by_values
    return float((np.log(norm) + 0.5 * np.log(quartic_share(depth) * gain)) / depth)


def _at_least_two(depth: float) -> None:
    if not 2.0 <= depth < np.inf:
        raise InputError(f"depth: must be >= 2 and finite, got {depth!r}. Pass 2 for w+^2 - w-^2.")


def quartic_share(depth: float) -> float:
    """kappa in q_D(z) >= q (1 - kappa z^2), q the leading term (D-2) z^2/(4D); z^2/4 at depth 2."""
    return (2.0 * depth - 2.0) * (3.0 * depth - 4.0) / (48.0 * depth**2)


@checked
def rich_guarantee(X: Any, y: Any, eps: float, log_scale: float | None = None) -> Claim:
    """alpha <= rich_scale implies ||w||_1 <= (1+eps) min ||.||_1.  [woodworth2020, Theorem 2]

    At the printed scale by default. The paper's proof applies Lemma 5 outside its hypotheses; the
    statement follows from `sharp_rich_guarantee`, whose scale is never smaller (docs/errata.md,
    W8).

    >>> fb.theory.rich_guarantee([[1.0, 2.0]], [1.0], eps=0.1).holds
    True
    """
    problem, least, d = _with_least_l1(X, y)
    _in_range_of_theorem_2(eps, d)
    used = at_most(log_scale, rich_log_scale(eps, least, d))
    ratio = float(np.abs(_limit(problem, 2, used)).sum()) / least
    return _norm_claim("rich guarantee", ratio, eps, _PRINTED, _RICH, problem)


@checked
def sharp_rich_guarantee(
    X: Any, y: Any, eps: float, depth: float = 2, log_scale: float | None = None
) -> Claim:
    """||w||_1 <= (1+eps) min ||.||_1 at `sharp_rich_log_scale` and below, for any depth.

    >>> fb.theory.sharp_rich_guarantee([[1.0, 2.0]], [1.0], eps=0.1).holds
    True
    """
    problem, least, d = _with_least_l1(X, y)
    used = at_most(log_scale, sharp_rich_log_scale(eps, least, d, depth))
    ratio = float(np.abs(_limit(problem, depth, used)).sum()) / least
    return _norm_claim("rich guarantee, sharper", ratio, eps, _SHARPER, _RICH, problem)


@checked
def kernel_guarantee(X: Any, y: Any, eps: float, log_scale: float | None = None) -> Claim:
    """alpha >= kernel_scale implies ||w||_2^2 <= (1+eps) min ||.||_2^2.  [woodworth2020, Theorem 2]

    As for `rich_guarantee`: the proof has a gap, the statement is true (docs/errata.md, W8).

    >>> fb.theory.kernel_guarantee([[1.0, 2.0]], [1.0], eps=0.1).holds
    True
    """
    problem, least = _with_least_l2(X, y)
    _in_range_of_theorem_2(eps, problem.X.shape[1])
    used = at_least(log_scale, kernel_log_scale(eps, least))
    ratio = float(np.linalg.norm(_limit(problem, 2, used)) / least) ** 2
    return _norm_claim("kernel guarantee", ratio, eps, _PRINTED, _KERNEL, problem)


@checked
def sharp_kernel_guarantee(
    X: Any, y: Any, eps: float, depth: float = 2, log_scale: float | None = None
) -> Claim:
    """||w||_2^2 <= (1+eps) min ||.||_2^2 at `sharp_kernel_log_scale` and above, for any depth.

    >>> fb.theory.sharp_kernel_guarantee([[1.0, 2.0]], [1.0], eps=0.1).holds
    True
    """
    problem, least = _with_least_l2(X, y)
    used = at_least(log_scale, sharp_kernel_log_scale(eps, least, depth))
    ratio = float(np.linalg.norm(_limit(problem, depth, used)) / least) ** 2
    return _norm_claim("kernel guarantee, sharper", ratio, eps, _SHARPER, _KERNEL, problem)


@checked
def printed_scales_are_safe(
    eps: float, l1_norm: float, l2_norm: float, d: float
) -> tuple[Claim, Claim]:
    """The printed rich scale is below ours, the printed kernel scale above: Theorem 2 is true.

    For every eps with 1 + eps <= e d, which covers the paper's eps < d.

    >>> claims = fb.theory.printed_scales_are_safe(eps=0.1, l1_norm=1.0, l2_norm=1.0, d=1000)
    >>> all(claim.holds for claim in claims)
    True
    """
    words = "the scale of Theorem 2 satisfies the sharper condition"
    stated = Statement(_SHARPER, words, "rounding of the logarithms")
    rich = rich_log_scale(eps, l1_norm, d), sharp_rich_log_scale(eps, l1_norm, d)
    kernel = kernel_log_scale(eps, l2_norm), sharp_kernel_log_scale(eps, l2_norm)
    digits: Allowed = {"rtol": 1e-14, "atol": 1e-14}
    return (
        stated.at_most("printed rich scale is below ours", *rich, **digits),
        stated.at_least("printed kernel scale is above ours", *kernel, **digits),
    )


def _with_least_l1(X: Any, y: Any) -> tuple[Regression, float, int]:
    problem = Regression(X, y)
    return problem, float(np.abs(basis_pursuit(problem).w).sum()), problem.X.shape[1]


def _with_least_l2(X: Any, y: Any) -> tuple[Regression, float]:
    problem = Regression(X, y)
    return problem, float(np.linalg.norm(min_norm(problem).w))


def _limit(problem: Regression, depth: float, log_scale: float) -> FloatArray:
    return limit(DiagonalNet(depth=depth, log_scale=log_scale), problem).w


def _in_range_of_theorem_2(eps: float, d: int) -> None:
    if not eps < d:
        raise OutsideHypothesis(
            f"eps: must be < d = {d} for Theorem 2, got {eps!r}. Lower eps: what holds for a "
            "smaller excess holds for a larger one."
        )


def _norm_claim(
    name: str, ratio: float, eps: float, reference: Reference, statement: str, problem: Regression
) -> Claim:
    stated = Statement(reference, statement, "both norms come from limits certified to 1e-10")
    alone = only_one_fit(problem.X)
    return stated.at_most(name, ratio, 1.0 + eps, rtol=SOLVED.size, silence=alone)


_SELECTION = beyond_the_papers("7 The rich limit and its selection")


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
    problem = Regression(X, y)
    expansion = rich_expansion(model, problem.X.shape[1])
    w, target = limit(model, problem).w, rich_limit(model, problem).w
    better = expansion.selection(target) - expansion.selection(w)
    size, alone = expansion.l1(target), only_one_fit(problem.X)
    return (
        _bound(
            "excess l1 norm",
            expansion.l1(w) - size,
            expansion.small * (better + expansion.remainder),
            size,
            alone,
        ),
        _bound(
            "excess of what selects",
            -better,
            expansion.remainder,
            abs(expansion.selection(target)) + size,
            alone,
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
    problem = Regression(X, y)
    expansion = rich_expansion(model, problem.X.shape[1])
    w, rich = limit(model, problem).w, rich_limit(model, problem)
    support = _on_support(rich.w)
    columns = problem.X[:, support]
    if np.linalg.matrix_rank(columns) < support.sum():
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
    size = float(np.linalg.norm(rich.w))
    # A rounding of the l1 norm, 1e-10 of it, is magnified like the excess itself.
    return _bound(
        "distance to the rich limit",
        float(np.linalg.norm(w - rich.w)),
        factor * excess,
        size + factor * expansion.l1(rich.w),
        only_one_fit(problem.X),
    )


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
    problem = Regression(X, y)
    expansion = rich_expansion(model, problem.X.shape[1])
    w, rich = limit(model, problem).w, rich_limit(model, problem)
    support = _on_support(rich.w)
    rows = problem.X[:, support].T
    free = len(rows) - int(np.linalg.matrix_rank(rows))
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
        _bound(
            "selection beats a vertex",
            expansion.selection(w),
            expansion.selection(vertex) + expansion.remainder,
            abs(expansion.selection(vertex)) + expansion.l1(vertex),
            found if same else "",
        ),
    )


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
    stated = Statement(
        WOODWORTH("Theorem 3", "(66), with a rate"),
        "from a large start the limit is nearly the tangent-kernel interpolator",
        *SOLVED,
    )
    apart, alone = float(np.sqrt(np.sum(weights * (w - kernel) ** 2))), only_one_fit(problem.X)
    return stated.at_most("distance to the kernel limit", apart / norm, np.sqrt(eta), silence=alone)


def _bound(name: str, measured: float, predicted: float, size: float, silence: str) -> Claim:
    stated = Statement(
        _SELECTION,
        "towards scale 0 a weighted l1 norm decides first, then the selecting sum",
        *SOLVED,
    )
    return stated.at_most(name, measured, predicted, size=size, silence=silence)
