"""How close the regularizers come to l1 and l2.  [woodworth2020, section 4 and Lemmas 5-7]

Everything here is about the functions q and q_D alone: no data, no flow.

How small a scale must be to look like l1 is measured with Lemma 6's yardstick [section 4 end, 5]:
per unit of l1 norm, a one-sparse vector costs a factor rho more than a dense one, and rho -> 1 as
the scale goes to 0. For rho = 1 + eps the hypentropy Q needs a scale
exponentially small in 1/eps; R and every depth D >= 3 only a power of eps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.optimize

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike
from flowbias.potentials import DepthPotential, DistancePotential, Hypentropy, Potential
from flowbias.theory.arguments import (
    OutsideHypothesis,
    Vector,
    at_least,
    at_most,
    checked,
    positive,
)
from flowbias.theory.claim import WOODWORTH, Claim, Statement, Tolerance, beyond_the_papers

# The potentials keep 15 digits; a prediction adds a handful of roundings of its largest term.
ROUNDING = Tolerance("rounding of the potential and of the prediction's largest term", 1e-14)
_EPS_FIX = "Pass the relative accuracy, for instance eps=0.1."


@checked
def hypentropy_small(z: float) -> tuple[Claim, Claim]:
    """z^2/4 - z^4/192 <= q(z) <= z^2/4 - z^4/192 + z^6/2560 for every z.  [woodworth2020, (6)]

    >>> all(claim.holds for claim in fb.theory.hypentropy_small(0.1))
    True
    """
    square = float(z) * float(z)
    leading = square / 4.0
    stated = Statement(
        WOODWORTH("section 4", "(6)"), "q is a quarter of the square up to fourth order", *ROUNDING
    )
    return stated.between(
        "q near 0",
        _term(Hypentropy(scale=1.0), z),
        (
            leading * (1.0 - square / 48.0),
            leading * (1.0 - square / 48.0 * (1.0 - 3.0 * square / 40.0)),
        ),
        size=leading * (1.0 + square / 48.0 * (1.0 + square / 13.0)),
    )


@checked
def hypentropy_large(z: float) -> tuple[Claim, Claim]:
    """0 <= q(z) - (z ln z - z + 2 - 1/z) <= 1/(2 z^3) for every z > 0.

    The paper prints q = z log z + O(1/z) before (7) [woodworth2020, section 4]; the terms -z + 2
    are missing (docs/errata.md, W1). (7) itself is not affected.

    >>> all(claim.holds for claim in fb.theory.hypentropy_large(100.0))
    True
    """
    z = positive("z", abs(float(z)), "The expansion at infinity has no value at 0.")
    below, next_term = z * np.log(z) - z + 2.0 - 1.0 / z, 0.5 / z / z / z
    words = "q is z ln z - z + 2 - 1/z up to third order"
    stated = Statement(WOODWORTH("section 4", "before (7), corrected"), words, *ROUNDING)
    return stated.between(
        "q at infinity",
        _term(Hypentropy(scale=1.0), z),
        (below, below + next_term),
        size=abs(z * np.log(z)) + z + 2.0 + 1.0 / z + next_term,
    )


@checked
def depth_potential_small(z: float, depth: float) -> tuple[Claim, Claim]:
    """u^2 k (1 - c u^2/2) <= q_D(z) <= u^2 k,  u = z/(2k), k = D/(D-2), c = (k+1)(k+2)/6.

    The leading term is (D-2) z^2/(4D) [woodworth2020, (65)]; the lower bound is ours.

    >>> all(claim.holds for claim in fb.theory.depth_potential_small(0.1, depth=3))
    True
    """
    potential = DepthPotential(depth, scale=1.0)
    z, k = abs(float(z)), depth / (depth - 2.0)
    leading = z**2 / (4.0 * k)
    drop = (k + 1.0) * (k + 2.0) / 6.0 * (z / (2.0 * k)) ** 2 / 2.0
    words = "q_D is quadratic near 0, with a quartic correction"
    stated = Statement(WOODWORTH("appendix F", "(65)"), words, *ROUNDING)
    return stated.between(
        "q_D near 0",
        _term(potential, z),
        (leading * (1.0 - drop), leading),
        size=leading * (1.0 + drop),
    )


@checked
def depth_potential_large(z: float, depth: float) -> tuple[Claim, Claim]:
    """0 <= z - (D/2) z^(2/D) + (D-2)(1 - 2^-k) - q_D(z) <= z^(2/D - 1) for every z > 0.

    The order of the second term is why depth D >= 3 reaches l1 at polynomial scales
    [woodworth2020, section 5]; the expansion is ours.

    >>> all(claim.holds for claim in fb.theory.depth_potential_large(100.0, depth=3))
    True
    """
    z = positive("z", abs(float(z)), "The expansion at infinity has no value at 0.")
    potential = DepthPotential(depth, scale=1.0)
    k = depth / (depth - 2.0)
    constant = (depth - 2.0) * (1.0 - 2.0**-k)
    bend = 0.5 * depth * z ** (2.0 / depth)
    above = z - bend + constant
    words = "q_D is linear at infinity, up to a power 2/D and a constant"
    stated = Statement(beyond_the_papers("3 Potentials"), words, *ROUNDING)
    return stated.between(
        "q_D at infinity",
        _term(potential, z),
        (above - z ** (2.0 / depth - 1.0), above),
        size=z + bend + constant + z ** (2.0 / depth - 1.0),
    )


@checked
def l1_log_scale(eps: float, l1_norm: float, d: float) -> float:
    """log of alpha_1(eps, ||w||_1, d), below which Q is nearly l1.  [woodworth2020, Lemma 5]

    >>> round(fb.theory.l1_log_scale(eps=0.1, l1_norm=1.0, d=1000), 3)
    -5000.0
    """
    positive("eps", eps, _EPS_FIX)
    norm = positive("l1_norm", l1_norm, "Pass the l1 norm of a predictor that is not zero.")
    positive("d", d, "Pass the number of features; only its size counts.")
    parts = (0.0, 0.5 * np.log(norm), -np.log(2.0 * norm) / (2.0 * eps), -d / (2.0 * eps * norm))
    return float(min(parts))


@checked
def nearly_l1(w: Vector, eps: float, log_scale: float | None = None) -> tuple[Claim, Claim]:
    """(1-eps) ||w||_1 <= Q(w)/ln(1/alpha^2) <= (1+eps) ||w||_1 for alpha <= alpha_1.

    [woodworth2020, Lemma 5], at alpha_1 itself by default. (22) in its proof prints arcsin for
    arcsinh (docs/errata.md, W7).

    >>> all(claim.holds for claim in fb.theory.nearly_l1([0.5, -2.0], eps=0.1))
    True
    """
    vector = np.asarray(w, dtype=np.float64)
    norm = float(np.abs(vector).sum())
    log_alpha = at_most(log_scale, l1_log_scale(eps, norm, vector.size))
    value = Hypentropy(log_scale=log_alpha).value(vector) / (-2.0 * log_alpha)
    words = "below alpha_1 the regularizer is the l1 norm up to a factor 1 +- eps"
    stated = Statement(WOODWORTH("Lemma 5", "(30)"), words, *ROUNDING)
    return stated.between(
        "Q is nearly l1", value, ((1.0 - eps) * norm, (1.0 + eps) * norm), size=norm * (1.0 + eps)
    )


@checked
def mismatch_log_scale(eps: float, d: float) -> float:
    """log of d^(-1/4 - 1/(8 eps)), above which Q is not l1.  [woodworth2020, Lemma 6]

    >>> round(fb.theory.mismatch_log_scale(eps=0.1, d=1000), 3)
    -10.362
    """
    positive("eps", eps, _EPS_FIX)
    least = max(np.e, 12.0 ** (4.0 * eps))
    if not d >= least:
        raise OutsideHypothesis(
            f"d: must be >= max(e, 12^(4 eps)) = {least:g}, got {d!r}. Lower eps."
        )
    return float(-(0.25 + 0.125 / eps) * np.log(d))


@checked
def not_l1(eps: float, d: float, log_scale: float | None = None) -> Claim:
    """Q(e_1)/||e_1||_1 >= (1+eps) Q(1/sqrt d)/||1/sqrt d||_1 for alpha >= d^(-1/4 - 1/(8 eps)).

    [woodworth2020, Lemma 6], for d >= max(e, 12^(4 eps)); d enters through sqrt d only, so that
    any real number will do. (31) in its proof prints 1/2 for 1/4 (docs/errata.md, W7).

    >>> fb.theory.not_l1(eps=0.1, d=1000).holds
    True
    """
    log_alpha = at_least(log_scale, mismatch_log_scale(eps, d))
    potential, root = Hypentropy(log_scale=log_alpha), float(np.sqrt(d))
    words = "per unit of l1 norm, a sparse vector costs 1 + eps times a dense one"
    stated = Statement(WOODWORTH("Lemma 6", "(36)"), words, *ROUNDING)
    return stated.at_least(
        "Q is not l1",
        _term(potential, 1.0) / (root * _term(potential, 1.0 / root)),
        1.0 + eps,
        rtol=ROUNDING.size,
    )


@checked
def l2_log_scale(eps: float, l2_norm: float) -> float:
    """log of alpha_2 = sqrt(||w||_2) (1 + eps^(-1/4)).  [woodworth2020, Lemma 7]

    >>> round(fb.theory.l2_log_scale(eps=0.1, l2_norm=1.0), 3)
    1.022
    """
    positive("eps", eps, _EPS_FIX)
    norm = positive("l2_norm", l2_norm, "Pass the l2 norm of a predictor that is not zero.")
    return float(0.5 * np.log(norm) + np.log1p(eps**-0.25))


@checked
def nearly_l2(w: Vector, eps: float, log_scale: float | None = None) -> tuple[Claim, Claim]:
    """(1-eps) ||w||_2^2 <= 4 alpha^2 Q(w) <= (1+eps) ||w||_2^2 for alpha >= alpha_2.

    [woodworth2020, Lemma 7], at alpha_2 itself by default. (40)-(41) in its proof print the third
    derivative for the fourth (docs/errata.md, W7).

    >>> all(claim.holds for claim in fb.theory.nearly_l2([0.5, -2.0], eps=0.1))
    True
    """
    square = float(np.sum(np.square(w)))
    log_alpha = at_least(log_scale, l2_log_scale(eps, np.sqrt(square)))
    words = "above alpha_2 the regularizer is the squared l2 norm up to a factor 1 +- eps"
    stated = Statement(WOODWORTH("Lemma 7", "(43)"), words, *ROUNDING)
    return stated.between(
        "Q is nearly l2",
        _four_scale_squared(w, log_alpha),
        ((1.0 - eps) * square, (1.0 + eps) * square),
        size=square * (1.0 + eps),
    )


@checked
def sharply_l2(w: Vector, eps: float) -> tuple[Claim, Claim]:
    """(1-eps) ||w||_2^2 <= 4 alpha^2 Q(w) <= ||w||_2^2 already from alpha^2 = ||w||_2/sqrt(48 eps).

    Lemma 7 with the best constant: equality is approached by one-sparse w as eps -> 0.

    >>> all(claim.holds for claim in fb.theory.sharply_l2([0.5, -2.0], eps=0.1))
    True
    """
    positive("eps", eps, _EPS_FIX)
    square = float(np.sum(np.square(w)))
    norm = positive("w", np.sqrt(square), "Pass a predictor that is not zero.")
    log_alpha = 0.5 * np.log(norm) - 0.25 * np.log(48.0 * eps)
    words = "4 alpha^2 Q is below the squared l2 norm, by at most ||w||_4^4/(48 alpha^4)"
    stated = Statement(beyond_the_papers("8 Scales that guarantee a regime"), words, *ROUNDING)
    return stated.between(
        "Q is nearly l2, sharp",
        _four_scale_squared(w, log_alpha),
        ((1.0 - eps) * square, square),
        size=square * (1.0 + eps),
    )


def _term(potential: Potential, z: float) -> float:
    return float(potential.value_terms(np.asarray(z, dtype=np.float64)))


def _four_scale_squared(w: ArrayLike, log_alpha: float) -> float:
    value = Hypentropy(log_scale=log_alpha).value(np.asarray(w, dtype=np.float64))
    return float(4.0 * np.exp(2.0 * log_alpha) * value)


@checked
def sparse_to_dense_cost(potential: Potential, d: float) -> float:
    """rho = (Q(e_1)/||e_1||_1) / (Q(1/sqrt d)/||1/sqrt d||_1), both vectors of unit length.

    >>> round(fb.theory.sparse_to_dense_cost(fb.L2(), d=100), 6)
    10.0
    """
    root = float(np.sqrt(positive("d", d, "It is the dimension of the dense vector.")))
    sparse, dense = potential.value_terms(np.array([1.0, 1.0 / root]))
    return float(sparse / (root * dense))


@checked
def l1_approach_log_scale(
    family: Callable[[float], Potential], eps: float, d: float, least: float = -1e5
) -> float:
    """The log-scale at which rho = 1 + eps; `family` gives the potential of a log-scale.

    >>> family = lambda log_scale: fb.Hypentropy(log_scale=log_scale)
    >>> round(fb.theory.l1_approach_log_scale(family, eps=0.1, d=1000), 3)
    -19.496
    """
    positive("eps", eps, "Pass the accepted relative difference, for instance eps=0.1.")
    root = float(np.sqrt(positive("d", d, "It is the dimension of the dense vector.")))
    if not 1.0 + eps < root:
        raise OutsideHypothesis(
            f"eps: must be < sqrt(d) - 1 = {root - 1.0:g}, got {eps!r}. rho is below "
            "sqrt(d) at every scale."
        )

    def excess(log_scale: float) -> float:
        return sparse_to_dense_cost(family(log_scale), d) - 1.0 - eps

    if not (least < 50.0 and excess(least) < 0.0):
        raise InputError(
            f"least: must be a log-scale with rho below 1 + eps, got {least!r}. Lower it, as far "
            "as the family allows."
        )
    return float(scipy.optimize.brentq(excess, least, 50.0, xtol=1e-13, rtol=1e-15))


@checked
def hypentropy_needs_exponential_scale(eps: float, d: float) -> tuple[Claim, Claim]:
    """ln(1/alpha^2) = (1 + 1/eps) ln(d)/2 + 1 where rho = 1 + eps, up to O(alpha^2/eps).

    So alpha = d^(-1/(4 eps)) up to a factor: footnote 3 and Lemma 6 of [woodworth2020], exactly.

    >>> all(claim.holds for claim in fb.theory.hypentropy_needs_exponential_scale(eps=0.1, d=1000))
    True
    """
    log_alpha = l1_approach_log_scale(lambda log: Hypentropy(log_scale=log), eps, d)
    leading = 0.5 * np.log(d) * (1.0 + 1.0 / eps) + 1.0
    error = 2.0 * np.exp(2.0 * log_alpha) / eps
    return _between(
        "hypentropy approaches l1 exponentially",
        -2.0 * log_alpha,
        (leading - error * (1.0 + eps) * np.sqrt(d), leading + error),
    )


@checked
def depth_needs_polynomial_scale(eps: float, d: float, depth: float) -> tuple[Claim, Claim]:
    """alpha^(D-2) = (2/D) eps / ((1+eps) d^(1/2 - 1/D) - 1) where rho = 1 + eps, to leading order.

    Polynomial in eps and d from depth 3 on, as [woodworth2020, section 5] observes.

    >>> claims = fb.theory.depth_needs_polynomial_scale(eps=0.1, d=1000, depth=3)
    >>> all(claim.holds for claim in claims)
    True
    """
    log_alpha = l1_approach_log_scale(
        lambda log: DepthPotential(depth, log_scale=log), eps, d, least=-200.0
    )
    x = float(np.exp((depth - 2.0) * log_alpha))
    return _between(
        f"depth {depth:g} approaches l1 polynomially", x, _polynomial_bounds(x, eps, d, depth)
    )


@checked
def distance_needs_polynomial_scale(eps: float, d: float) -> tuple[Claim, Claim]:
    """alpha = eps/(2 ((1+eps) d^(1/4) - 1)) where rho = 1 + eps for R, to leading order.

    The algebraic R approaches l1 polynomially [woodworth2020, section 4, end]: like depth 4.

    >>> all(claim.holds for claim in fb.theory.distance_needs_polynomial_scale(eps=0.1, d=1000))
    True
    """
    log_alpha = l1_approach_log_scale(
        lambda log: DistancePotential(log_scale=log), eps, d, least=-200.0
    )
    x = float(np.exp(log_alpha))
    return _between(
        "explicit distance approaches l1 polynomially", x, _polynomial_bounds(x, eps, d, 4.0)
    )


def _polynomial_bounds(x: float, eps: float, d: float, depth: float) -> tuple[float, float]:
    """From 0 <= q_D(z) - z + (D/2) z^(2/D) <= C at z and z/sqrt d, x = z^(2/D - 1)."""
    k = depth / (depth - 2.0)
    remainder = (depth - 2.0) * (1.0 - 2.0**-k) * x**k
    gap = 0.5 * depth * ((1.0 + eps) * d ** (0.5 / k) - 1.0)
    return (eps - remainder) / gap, (eps + (1.0 + eps) * np.sqrt(d) * remainder) / gap


def _between(name: str, value: float, bounds: tuple[float, float]) -> tuple[Claim, Claim]:
    stated = Statement(
        beyond_the_papers("9 Explicit distance"),
        "the scale at which a sparse vector costs 1 + eps times a dense one",
        # Scales are found to rounding of their logarithm; rho - 1 = eps loses log10(1/eps) digits.
        "root of rho = 1 + eps, where rho carries 15 digits",
        1e-12,
    )
    return stated.between(name, value, bounds, size=max(1.0, abs(value)))
