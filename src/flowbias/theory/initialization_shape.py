"""Untied diagonal networks: scale and shape of the start.  [azulay2021, sections 4, 7.1, app. A, E]

    w = u+ v+ - u- v-,   Q_k(w) = sum q_k(w_i),   q_k' = 1/2 asinh(2 w/sqrt k)

The paper's scale alpha = |u||v| is the square of the library's; its samples are columns, ours rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.potentials import UntiedPotential
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import Matrix, Vector, checked, positive, same_size
from flowbias.theory.claim import AZULAY, Claim, Statement, beyond_the_papers
from flowbias.theory.diagonal_networks import flow_meets_minimizer
from flowbias.theory.measured_flow import FLOW, follow
from flowbias.theory.regimes import (
    SOLVED,
    sharp_kernel_log_scale,
    sharp_rich_log_scale,
    with_least_l1,
    with_least_l2,
)
from flowbias.theory.regularizers import ROUNDING

_LIMITS = AZULAY("section 7.1 and appendix E")


@checked
def untied_limit(model: UntiedDiagonalNet, X: Any, y: Any) -> Claim:
    """Gradient flow converges to argmin Q_k(w) - <grad Q_k(w(0)), w> s.t. X w = y.

    [azulay2021, Theorem 1] for an unbiased start, where the shift is 0. For a biased one the
    paper's appendix A states argmin Q_k itself, which is wrong (docs/errata.md, A1).

    >>> model = fb.UntiedDiagonalNet(scale=0.5, shape=0.3)
    >>> fb.theory.untied_limit(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    biased = bool(np.any(np.asarray(model.shift) != 0.0))
    reference = beyond_the_papers("4 Biased starts") if biased else AZULAY("Theorem 1")
    return flow_meets_minimizer(model, Regression(X, y), "untied limit", reference)


@checked
def conserved_k(weights: Matrix) -> FloatArray:
    """k of the weights (u+, u-, v+, v-), in the rows of an array.  [azulay2021, appendix A]

    >>> fb.theory.conserved_k([[1.0], [1.0], [0.5], [0.5]])
    array([6.25])
    """
    same_size("weights", len(np.asarray(weights)), 4, "rows, u+, u-, v+ and v-")
    u_plus, u_minus, v_plus, v_minus = np.asarray(weights, dtype=np.float64)
    imbalance = v_plus**2 - u_plus**2 - v_minus**2 + u_minus**2
    return np.asarray(imbalance**2 + 4.0 * (u_plus * u_minus + v_plus * v_minus) ** 2)


@checked
def metric_from_predictor(model: UntiedDiagonalNet, X: Any, y: Any, t: float) -> Claim:
    """u+^2 + v+^2 + u-^2 + v-^2 = sqrt(k + 4 w^2) along the flow.  [azulay2021, (19)-(20)]

    >>> model = fb.UntiedDiagonalNet(scale=0.5, shape=0.3)
    >>> fb.theory.metric_from_predictor(model, [[1.0, 2.0]], [1.0], t=0.5).holds
    True
    """
    problem = Regression(X, y)
    d = problem.X.shape[1]
    start = [np.broadcast_to(part, (d,)) for part in model.initial_parameters()]
    at = follow(model, problem, t).last
    metric = np.sum(np.square(at.parameters), axis=0)
    predicted = np.sqrt(conserved_k(start) + 4.0 * at.w**2)
    words = "the metric of the flow depends on the weights through w and the start only"
    stated = Statement(AZULAY("appendix A", "(19)-(20)"), words, *FLOW)
    return stated.same("metric is a function of the predictor", metric, predicted)


@checked
def untied_near_l2(w: Vector, sqrt_k: float) -> tuple[Claim, Claim]:
    """sum w^2/(2 sqrt k) (1 - w^2/(3k)) <= Q_k(w) <= sum w^2/(2 sqrt k): the limit k -> infinity.

    [azulay2021, section 7.1 and appendix E] print w^2/sqrt k, twice too much (docs/errata.md, A2).

    >>> all(claim.holds for claim in fb.theory.untied_near_l2([0.5, -2.0], sqrt_k=100.0))
    True
    """
    vector, root = np.asarray(w, dtype=np.float64), _checked(sqrt_k)
    half = float(np.sum(vector**2)) / (2.0 * root)
    drop = float(np.sum(vector**4)) / (6.0 * root**3)
    return _sandwich("Q_k near l2", vector, root, (half - drop, half), half + drop)


@checked
def untied_near_l1(w: Vector, sqrt_k: float) -> tuple[Claim, Claim]:
    """0 <= Q_k(w) - 1/2 sum(|w| ln(4|w|/sqrt k) - |w|) <= d sqrt(k)/4: the limit k -> 0.

    So Q_k / (1/2 ln(1/sqrt k)) -> ||w||_1. One line of [azulay2021, appendix E] has + |w|/2 for
    - |w|/2 (docs/errata.md, A2).

    >>> all(claim.holds for claim in fb.theory.untied_near_l1([0.5, -2.0], sqrt_k=1e-3))
    True
    """
    vector, root = np.abs(np.asarray(w, dtype=np.float64)), _checked(sqrt_k)
    size = vector[vector > 0.0]
    entropy = size * np.log(4.0 * size / root)
    below = 0.5 * float(np.sum(entropy - size))
    room = 0.25 * root * vector.size
    total = 0.5 * float(np.sum(np.abs(entropy) + size)) + room
    return _sandwich("Q_k near l1", vector, root, (below, below + room), total)


@checked
def half_kernel_norm(model: UntiedDiagonalNet, w: Vector) -> Claim:
    """sum w^2/(2 sqrt k) is half the squared norm of the tangent kernel at an unbiased start.

    Measured as w^T K^-1 w / 2 with K the kernel on the unit vectors. [azulay2021, appendix E]

    >>> model = fb.UntiedDiagonalNet(scale=0.5, shape=0.3)
    >>> fb.theory.half_kernel_norm(model, [0.5, -2.0]).holds
    True
    """
    vector = np.asarray(w, dtype=np.float64)
    kernel = model.tangent_kernel(np.eye(vector.size))
    start = [np.broadcast_to(part, vector.shape) for part in model.initial_parameters()]
    predicted = float(np.sum(vector**2 / (2.0 * np.sqrt(conserved_k(start)))))
    words = "for k -> infinity the regularizer is the tangent kernel's, with a factor 1/2"
    stated = Statement(_LIMITS, words, "rounding of a diagonal solve")
    return stated.equal(
        "kernel limit is half the kernel norm",
        0.5 * float(vector @ np.linalg.solve(kernel, vector)),
        predicted,
        rtol=1e-13,
    )


@checked
def race(X: Any, y: Any, scale: float, shape: float) -> Claim:
    """Scale and shape count only through scale^2 (1+s^2)/(1-s^2), the square of a tied scale.

    [azulay2021, section 7.1], where alpha/(1-s^2) stands for it, which is the same up to a factor
    between 1 and 2.

    >>> fb.theory.race([[1.0, 2.0]], [1.0], scale=0.5, shape=0.9).holds
    True
    """
    problem = Regression(X, y)
    untied = limit(UntiedDiagonalNet(scale=scale, shape=shape), problem).w
    tied = limit(DiagonalNet(depth=2, log_scale=effective_log_scale(scale, shape)), problem).w
    stated = Statement(
        _LIMITS,
        "an unbiased untied start has the limit of a tied one of the effective scale",
        "two limits certified to 1e-10",
        SOLVED.size,
    )
    return stated.same("scale and shape race", untied, tied, among=problem.X)


@checked
def effective_log_scale(scale: float, shape: float) -> float:
    """log of scale sqrt((1+s^2)/(1-s^2)), the tied scale with the same limit.

    >>> round(float(np.exp(fb.theory.effective_log_scale(scale=0.1, shape=0.6))), 6)
    0.145774
    """
    scale = positive("scale", scale, "Pass sqrt(|u||v|).")
    if not abs(shape) < 1.0:
        raise InputError(f"shape: must be in (-1, 1), got {shape!r}. Pass (|v|-|u|)/(|v|+|u|).")
    return float(np.log(scale) + 0.5 * np.log((1.0 + shape**2) / ((1.0 - shape) * (1.0 + shape))))


@checked
def race_to_rich(X: Any, y: Any, shape: float, eps: float) -> Claim:
    """||w||_1 <= (1+eps) min ||.||_1 once scale^2 (1+s^2)/(1-s^2) is below the rich scale's square.

    However close |s| is to 1, a scale that is small enough wins the race.

    >>> fb.theory.race_to_rich([[1.0, 2.0]], [1.0], shape=0.9, eps=1e-3).holds
    True
    """
    problem, least, d = with_least_l1(X, y)
    log_scale = sharp_rich_log_scale(eps, least, d) - effective_log_scale(1.0, shape)
    w = limit(UntiedDiagonalNet(log_scale=log_scale, shape=shape), problem).w
    return _won("rich", float(np.abs(w).sum()) / least, eps, problem)


@checked
def race_to_kernel(X: Any, y: Any, scale: float, eps: float) -> Claim:
    """||w||_2^2 <= (1+eps) min ||.||_2^2 once 1 - s^2 is small enough for the scale.

    However small the scale is, a shape that is close enough to 1 wins the race.

    >>> fb.theory.race_to_kernel([[1.0, 2.0]], [1.0], scale=0.5, eps=1e-4).holds
    True
    """
    problem, least, _ = with_least_l2(X, y)
    log_scale = np.log(positive("scale", scale, "It is sqrt(|u| |v|) at the start."))
    stretch = np.exp(2.0 * (sharp_kernel_log_scale(eps, least) - log_scale))
    # (1+s^2)/(1-s^2) = stretch; a scale that is large already needs no shape.
    shape = float(np.sqrt(max(stretch - 1.0, 0.0) / (stretch + 1.0)))
    w = limit(UntiedDiagonalNet(scale=scale, shape=shape), problem).w
    return _won("kernel", float(np.linalg.norm(w) / least) ** 2, eps, problem)


def _won(regime: str, ratio: float, eps: float, problem: Regression) -> Claim:
    words = "whichever of scale and shape is faster decides the regime"
    stated = Statement(_LIMITS, words, "norms of limits certified to 1e-10")
    name = f"race to the {regime} regime"
    return stated.at_most(name, ratio, 1.0 + eps, rtol=SOLVED.size, among=problem.X)


def _checked(sqrt_k: float) -> float:
    return positive("sqrt_k", sqrt_k, "Pass sqrt k = 2 (u^2 + v^2).")


def _sandwich(
    name: str, w: FloatArray, sqrt_k: float, bounds: tuple[float, float], size: float
) -> tuple[Claim, Claim]:
    stated = Statement(_LIMITS, "the untied regularizer between its two limits", *ROUNDING)
    return stated.between(name, UntiedPotential.from_sqrt_k(sqrt_k).value(w), bounds, size=size)
