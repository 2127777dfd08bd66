"""Scales that guarantee a regime.  [woodworth2020, Theorem 2], and sharper ones for every depth.

Printed and sharper conditions have the same conclusion: the flow's limit has an l1 norm (rich) or
a squared l2 norm (kernel) within a factor 1 + eps of the least possible. Scales are returned as
natural logarithms, because the rich ones underflow. What is reached beyond all scales is in
extremes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits import basis_pursuit, limit, min_norm
from flowbias.models import DiagonalNet
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import OutsideHypothesis, at_least, at_most, checked, positive
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
    problem, least, d = with_least_l1(X, y)
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
    problem, least, d = with_least_l1(X, y)
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
    problem, least, d = with_least_l2(X, y)
    _in_range_of_theorem_2(eps, d)
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
    problem, least, _ = with_least_l2(X, y)
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


def with_least_l1(X: Any, y: Any) -> tuple[Regression, float, int]:
    """The data, the least norm of a fit, and how many features there are."""
    problem = Regression(X, y)
    return problem, float(np.abs(basis_pursuit(problem).w).sum()), problem.X.shape[1]


def with_least_l2(X: Any, y: Any) -> tuple[Regression, float, int]:
    """The same for the l2 norm."""
    problem = Regression(X, y)
    return problem, float(np.linalg.norm(min_norm(problem).w)), problem.X.shape[1]


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
    return stated.at_most(name, ratio, 1.0 + eps, rtol=SOLVED.size, among=problem.X)
