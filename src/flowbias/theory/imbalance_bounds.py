"""How fast the loss falls now, from what is conserved.  [min2021, sections 3.1-3.3, appendix C]

Notation of flowbias.theory.reduced_net: E is the error, S the squared singular values of X,
D = U1^T U1 - V^T V the imbalance, with spreads D+, D- and level Dl. Nothing here follows a flow:
rates are derivatives of the loss at the weights given, for the loss (1/2) ||X U V^T - Y||^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from flowbias.ground.arguments import InputError
from flowbias.models.imbalance import Imbalance, gain
from flowbias.problems.matrix import checked_tensor
from flowbias.theory.arguments import OutsideHypothesis, checked, same_size
from flowbias.theory.claim import MIN, Claim, Reference, Statement, Tolerance
from flowbias.theory.reduced_net import (
    LinearStart,
    at,
    reduced,
    reduced_inputs,
    singular_values,
)

# Some dozen products and one symmetric eigenvalue problem of size r + m.
ROUNDING = Tolerance(
    "rounding of products and eigenvalues, relative to l1(S) (||U1||^2 + ||V||^2)", 1e-12
)


@checked
def convergence_rate(net: LinearStart, X: Any, Y: Any) -> Claim:
    """-(L - L*)'/(L - L*) >= lr(S) {-D+ + sqrt((D+ + Dl)^2 + 4 sm(U1 V^T)^2)
    - D- + sqrt((D- + Dl)^2 + 4 sr(U1 V^T)^2)}.

    [min2021, Proposition 1, (17)-(20)]. Attained: see `attained_rate`.

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.convergence_rate(net, X, [[1.0], [-1.0]]).holds
    True
    """
    seen = reduced(net, X, Y)
    stated = _stated(
        MIN("Proposition 1", "(17)"),
        "imbalance and product alone bound the rate at which the loss falls",
    )
    return stated.at_least(
        "rate from imbalance and product", seen.rate, seen.rate_bound(), size=seen.size
    )


@checked
def rate_from_layers(net: LinearStart, X: Any, Y: Any) -> tuple[Claim, Claim]:
    """-(L - L*)'/(L - L*) >= 2 lr(S) (lr(U1 U1^T) + lm(V V^T)) >= Proposition 1's bound.

    [min2021, Lemma 7 and, for the second inequality, Lemma 8 applied to both layers]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(claim.holds for claim in fb.theory.rate_from_layers(net, X, [[1.0], [-1.0]]))
    True
    """
    seen = reduced(net, X, Y)
    (r, _), (m, _) = seen.U1.shape, seen.V.shape
    layers = at(singular_values(seen.U1), r) ** 2 + at(singular_values(seen.V), m) ** 2
    bound = 2.0 * seen.conditioning[1] * layers
    layers_bound = _stated(
        MIN("Lemma 7"), "the least singular values of both layers bound the rate"
    )
    imbalance_bounds = _stated(
        MIN("Proposition 1", "(24)-(25)"),
        "imbalance and product bound the least singular values of both layers",
    )
    return (
        layers_bound.at_least("rate from the layers", seen.rate, bound, size=seen.size),
        imbalance_bounds.at_least(
            "layers from imbalance and product", bound, seen.rate_bound(), size=seen.size
        ),
    )


@checked
def smallest_singular_value(A: Any, B: Any) -> Claim:
    """lm(B^T B) >= 1/2 {-p + q + sqrt((p + q)^2 + 4 sm(AB)^2)} for A (r, h), B (h, m).

    D = A^T A - B B^T, p = [l1(D)]+, q = [lm(-D)]+.  [min2021, Lemma 8, (23)]

    >>> fb.theory.smallest_singular_value([[1.0, 0.5]], [[0.2], [1.0]]).holds
    True
    """
    left = checked_tensor("A", A, ("r", "h"))
    right = checked_tensor("B", B, ("h", "m"))
    if left.shape[1] != right.shape[0]:
        raise InputError(
            f"B: must have as many rows as A has columns ({left.shape[1]}), got shape "
            f"{right.shape}. Pass V^T for B when A is U1."
        )
    m = right.shape[1]
    imbalance = Imbalance.of_root(np.vstack([left, right.T]), len(left))
    p, q = float(imbalance.positive[0]), float(imbalance.negative[-1])
    # 1/2 (-p + q + sqrt((p+q)^2 + 4 s^2)) = q + gain/2, which does not cancel.
    bound = q + 0.5 * gain(p + q, at(singular_values(left @ right), m))
    stated = _stated(
        MIN("Lemma 8", "(23)"),
        "the imbalance of two factors and their product bound the least singular value of one",
    )
    return stated.at_least(
        "least eigenvalue of B^T B",
        at(singular_values(right), m) ** 2,
        bound,
        size=float(np.sum(left**2) + np.sum(right**2)),
    )


@checked
def rate_bound_range(net: LinearStart, X: Any, Y: Any) -> tuple[Claim, ...]:
    """Dl <= -D+ + sqrt((D+ + Dl)^2 + 4 s^2) <= sqrt(Dl^2 + 4 s^2), and the same with D-.

    The bound of Proposition 1 lies between what the level alone gives (wide spreads) and what it
    would be without spreads.  [min2021, after Remark 2]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(claim.holds for claim in fb.theory.rate_bound_range(net, X, [[1.0], [-1.0]]))
    True
    """
    seen = reduced(net, X, Y)
    (r, m), level = seen.target.shape, seen.imbalance.level
    values = singular_values(seen.product)
    sides = (
        (seen.imbalance.spread_plus, at(values, m)),
        (seen.imbalance.spread_minus, at(values, r)),
    )
    stated = _stated(
        MIN("section 3.2", "after Remark 2"),
        "spreads lower the bound, at most to what the level alone gives",
    )
    claims: list[Claim] = []
    for name, (spread, sigma) in zip(("spread_plus", "spread_minus"), sides, strict=True):
        bounds = (level, float(np.hypot(level, 2.0 * sigma)))
        value, size = level + gain(spread + level, sigma), level + spread + sigma
        claims += stated.between(f"term with {name}", value, bounds, size=size)
    return tuple(claims)


@checked
def scalar_rate(u: float, v: float, y: float) -> tuple[Claim, Claim]:
    """-L'/L = 2 sqrt(d^2 + 4 (u v)^2) >= 2 sqrt(d^2 + 4 [|y| - |y - u v|]+^2), d = u^2 - v^2.

    L = (1/2) (y - u v)^2. The equality is [min2021, (14)], the bound (15).

    >>> all(claim.holds for claim in fb.theory.scalar_rate(u=1.0, v=0.5, y=2.0))
    True
    """
    u, v, y = float(u), float(v), float(y)
    if y == u * v:
        raise OutsideHypothesis(
            f"y: must differ from u v, got {y!r}, where the loss is 0. Pass another y."
        )
    # In units of the larger weight: squares of the weights may be beyond the double range.
    unit = max(abs(u), abs(v))
    a, b = u / unit, v / unit
    # |y| - |y - u v| without its cancellation: u v itself, as long as y is beyond it.
    product = abs(a * b)
    margin = min(product, 2.0 * abs(y / unit / unit) - product) if y * a * b > 0.0 else 0.0
    exact = _stated(
        MIN("section 3.1", "(14)"),
        "with one weight per layer, imbalance and product give the rate exactly",
    )
    bounded = _stated(
        MIN("section 3.1", "(15)"), "imbalance or margin suffices for exponential convergence"
    )
    rate, imbalance = _scalar_loss_rate(a, b), (a - b) * (a + b)
    numbers = (
        rate * unit * unit,
        2.0 * float(np.hypot(imbalance, 2.0 * product)) * unit * unit,
        2.0 * float(np.hypot(imbalance, 2.0 * max(margin, 0.0))) * unit * unit,
    )
    normal = np.finfo(float).tiny < rate * unit * unit < np.inf
    silence = "" if normal else "the rate is beyond the range of doubles"
    return (
        exact.equal("scalar rate", *numbers[:2], rtol=ROUNDING.size, silence=silence),
        bounded.at_least(
            "scalar rate from the margin", *numbers[::2], rtol=ROUNDING.size, silence=silence
        ),
    )


def _scalar_loss_rate(u: float, v: float) -> float:
    """-L'/L along u' = r v, v' = r u, r = y - u v: r falls by u' v + u v', L at twice its rate."""
    step = 1e-30  # complex: it differentiates to the last digit
    return 2.0 * ((u + 1j * step * v) * (v + 1j * step * u)).imag / step


@checked
def error_operator(U: Any, V: Any, E: Any) -> tuple[Claim, Claim, Claim]:
    """T E = U U^T E + E V V^T: rate 2 <E, TE>/<E, E>, eigenvalues li(U U^T) + lj(V V^T).

    For the loss (1/2) ||Y - U V^T||^2 with E = Y - U V^T (r, m), E' = -T E.  [min2021, appendix C]
    The rate is measured as the squared gradient over the loss, the spectrum on the matrix of T.

    >>> claims = fb.theory.error_operator([[1.0, 0.5]], [[0.2, 1.0]], [[0.3]])
    >>> all(claim.holds for claim in claims)
    True
    """
    left, right = checked_tensor("U", U, ("r", "h")), checked_tensor("V", V, ("m", "h"))
    error = checked_tensor("E", E, ("r", "m"))
    if not error.any():
        raise OutsideHypothesis("E: must not be all zeros, which has no rate. Pass an error.")
    r, m = error.shape
    same_size("U", len(left), r, "rows, one per row of E")
    same_size("V", len(right), m, "rows, one per column of E")
    same_size("V", right.shape[1], left.shape[1], "columns, one per column of U")
    first, second = left @ left.T, right @ right.T
    matrix = np.kron(first, np.eye(m)) + np.kron(np.eye(r), second)
    spectrum = scipy.linalg.eigvalsh(matrix)
    sums = np.sort(np.add.outer(*map(scipy.linalg.eigvalsh, (first, second))).ravel())
    gradient = float(np.sum((error @ right) ** 2) + np.sum((error.T @ left) ** 2))
    norm = float(np.sum(error**2))
    quotient = float(np.sum(error * (matrix @ error.ravel()).reshape(r, m)))
    least = at(singular_values(left), r) ** 2 + at(singular_values(right), m) ** 2
    size = float(np.sum(left**2) + np.sum(right**2)) * len(sums)
    stated = _stated(
        MIN("appendix C"),
        "the rate is twice the Rayleigh quotient of T at E; the eigenvalues of T are all sums of "
        "one of U U^T and one of V V^T, the least of them that of the slowest direction",
    )
    return (
        stated.equal(
            "rate is a Rayleigh quotient", 2.0 * gradient / norm, 2.0 * quotient / norm, size=size
        ),
        stated.equal("spectrum of the error operator", np.abs(spectrum - sums).max(), size=size),
        stated.equal("least eigenvalue of the error operator", spectrum[0], least, size=size),
    )


@checked
def imbalance_shows_the_layers(net: LinearStart, X: Any) -> tuple[Claim, Claim]:
    """Positive eigenvalues of D are those of U1 U1^T, negative ones those of V V^T, nearly.

    By no more than ||U1 V^T||^2/sr(U1)^2 and ||U1 V^T||^2/sm(V)^2: on the row space of U1 the part
    V^T V of D is at most that, and it only lowers the others. So for nearly orthogonal layers, as
    wide random ones are, spreads and level are gaps between eigenvalues of the layers.
    [min2021, appendix A.1], with a bound.

    >>> net = fb.LinearNet.gaussian(3, 1, width=1000, scale=0.1, rng=0)
    >>> all(claim.holds for claim in fb.theory.imbalance_shows_the_layers(net, np.eye(2, 3)))
    True
    """
    seen = reduced_inputs(net, X)
    product = at(singular_values(seen.product), 1)
    stated = _stated(
        MIN("appendix A.1"),
        "the eigenvalues of the imbalance are those of the layers, as far as these are orthogonal",
    )
    claims = []
    layers = (("U1", seen.U1, seen.imbalance.positive), ("V", seen.V, seen.imbalance.negative))
    for name, layer, shown in layers:
        values = singular_values(layer)
        own = np.array([at(values, i) ** 2 for i in range(1, len(layer) + 1)])
        bound = (product / np.sqrt(own[-1])) ** 2 if own[-1] > 0.0 else np.inf
        claims.append(
            stated.at_most(
                f"eigenvalues of {name} {name}^T in the imbalance",
                float(np.abs(own - shown).max()),
                bound,
                size=float(np.sum(seen.U1**2) + np.sum(seen.V**2)),
                silence="" if bound < own[0] else "the layers overlap too much for a bound",
            )
        )
    return claims[0], claims[1]


@checked
def scaled_imbalance(net: LinearStart, X: Any, Y: Any, factor: float) -> tuple[Claim, Claim]:
    """With outputs factor * X U V^T all enters through factor^2 D and factor^2 U1 V^T.

    The rate and its bound for X replaced by factor * X are those for X with weights scaled by
    factor: Xavier's network is factor = 1/sqrt(m h), X = I.  [min2021, Remark 13]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(c.holds for c in fb.theory.scaled_imbalance(net, X, [[1.0], [-1.0]], factor=0.5))
    True
    """
    if not (np.isfinite(factor) and factor != 0.0):
        raise InputError(f"factor: must be finite and not 0, got {factor!r}. Pass 1/sqrt(m h).")
    seen = reduced(net, X, Y)
    scaled = reduced(net, factor * np.asarray(X, dtype=np.float64), Y)
    root = np.vstack([scaled.U1, scaled.V]) * abs(factor)
    imbalance = Imbalance.of_root(root, len(scaled.U1))
    r, m = seen.target.shape
    values = singular_values(factor**2 * seen.product)
    level, spreads = imbalance.level, (imbalance.spread_plus, imbalance.spread_minus)
    terms = [gain(s + level, at(values, i)) for s, i in zip(spreads, (m, r), strict=True)]
    bound = seen.conditioning[1] * (2.0 * level + sum(terms))
    error = scaled.error
    moved = seen.root[:, None] * error
    direct = 2.0 * factor**2 * (np.sum((seen.U1.T @ moved) ** 2) + np.sum((moved @ seen.V) ** 2))
    stated = _stated(
        MIN("Remark 13"), "a factor before the product scales imbalance, product and rate alike"
    )
    rate = direct / np.sum(error**2)
    return (
        stated.equal("scaled bound", scaled.rate_bound(), bound, size=scaled.size),
        stated.equal("scaled rate", scaled.rate, rate, size=scaled.size),
    )


def _stated(reference: Reference, words: str) -> Statement:
    return Statement(reference, words, *ROUNDING)
