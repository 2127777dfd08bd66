"""How small a scale must be for a regularizer to look like l1.  [woodworth2020, section 4 end, 5]

The yardstick is Lemma 6's: per unit of l1 norm, a one-sparse vector costs a factor rho more than a
dense one, and rho -> 1 as the scale goes to 0. For rho = 1 + eps the hypentropy Q needs a scale
exponentially small in 1/eps; R and every depth D >= 3 only a power of eps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.optimize

from flowbias.ground.arguments import InputError
from flowbias.potentials import DepthPotential, DistancePotential, Hypentropy, Potential
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, between, beyond_the_papers
from flowbias.theory.conditions import OutsideHypothesis, positive

_REFERENCE = beyond_the_papers("9 Explicit distance")
# Scales are found to rounding of their logarithm; rho - 1 = eps loses log10(1/eps) digits.
_ROUNDING = 1e-12
_ORIGIN = "root of rho = 1 + eps, where rho carries 15 digits"


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
    if not 1.0 + eps < np.sqrt(d):
        raise OutsideHypothesis(
            f"eps: must be < sqrt(d) - 1 = {np.sqrt(d) - 1.0:g}, got {eps!r}. rho is below "
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
    return between(
        name,
        value,
        bounds,
        reference=_REFERENCE,
        statement="the scale at which a sparse vector costs 1 + eps times a dense one",
        tolerance_origin=_ORIGIN,
        atol=_ROUNDING * max(1.0, abs(value)),
    )
