"""Wide random starts: nearly invariant, hence nearly min-norm.  [min2021, section 4.2, appendix E]

Entries of U (d, h) and V (m, h) are N(0, h^(-2a)), 1/4 < a <= 1/2. With
T = sqrt(m + d) + sqrt(2 ln(2/delta)), all singular values of h^a [U; V] lie in sqrt(h) +- T with
probability 1 - delta, and on that event, for h > 16 T^2,

    level of imbalance >= 2 h^(-2a) (sqrt(h) - T)^2 > h^(1-2a)                              (33)
    ||[V U2^T; U1 U2^T]||_F <= 2 sqrt(m + r) T h^(1/2 - 2a)                                 (34)
    ||U1 V^T||_F            <= 2 sqrt(m) T h^(1/2 - 2a)                                     (35)

Statements with a probability are claims about counts: violations in independent draws, against the
number that a binomial law of rate delta exceeds once in a million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from flowbias.ground.arguments import InputError
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix.reading import checked_tensor
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import OutsideHypothesis
from flowbias.theory.imbalance_bounds import MIN, ROUNDING, ROUNDING_ORIGIN
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    at,
    reduced_weights,
    regression,
    singular_values,
    weights_of,
)
from flowbias.theory.wide_bounds import WideStart

# A count above the binomial quantile would be seen once in this many runs if the rate were delta.
CHANCE = 1e-6
COUNT_ORIGIN = "none: the count is exact; at rate delta it is exceeded with probability 1e-6"


def deviation(delta: float) -> float:
    """t with 2 exp(-t^2/2) = delta: how far beyond sqrt(m) singular values stray (Lemma E.1)."""
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta: must be in (0, 1), got {delta!r}. It is a probability to fail.")
    return float(np.sqrt(2.0 * np.log(2.0 / delta)))


@checked
def wide_start_bounds(
    d: int, m: int, rank: int, width: float, exponent: float = 0.5, delta: float = 0.01
) -> WideStart:
    """(33)-(35) for h = width > 16 T^2 and a = exponent.  [min2021, Lemma 11]

    >>> round(fb.theory.wide_start_bounds(3, 1, rank=2, width=1e6).invariance_defect, 5)
    0.0182
    """
    if not 0.25 < exponent <= 0.5:
        raise InputError(
            f"exponent: must be in (1/4, 1/2], got {exponent!r}. "
            "Entries have standard deviation h^-exponent."
        )
    T = float(np.sqrt(m + d)) + deviation(delta)
    if not width > 16.0 * T * T:
        raise OutsideHypothesis(
            f"width: must be > 16 T^2 = {16.0 * T * T:.6g}, got {width!r}. Widen the network, or "
            "raise delta."
        )
    spread = 2.0 * T * width ** (0.5 - 2.0 * exponent)
    return WideStart(
        width,
        exponent,
        T,
        width ** (1.0 - 2.0 * exponent),
        2.0 * width ** (-2.0 * exponent) * (np.sqrt(width) - T) ** 2,
        float(np.sqrt(m + rank)) * spread,
        float(np.sqrt(m)) * spread,
    )


@checked
def gaussian_singular_values(
    n: int, m: int, t: float, samples: int, rng: np.random.Generator
) -> Claim:
    """sqrt(n) - sqrt(m) - t <= sm(A) <= s1(A) <= sqrt(n) + sqrt(m) + t but for 2 exp(-t^2/2).

    A is n x m with standard normal entries, m <= n.  [min2021, Lemma E.1; Davidson and Szarek 2001]

    >>> rng = np.random.default_rng(0)
    >>> fb.theory.gaussian_singular_values(10, 3, 2.0, samples=50, rng=rng).holds
    True
    """
    if not 1 <= m <= n:
        raise InputError(f"m: must be in 1 .. n = {n}, got {m!r}. Transpose the matrix.")
    values = np.linalg.svd(rng.standard_normal((samples, n, m)), compute_uv=False)
    far = np.abs(values - np.sqrt(n)).max(axis=1) > np.sqrt(m) + t
    return violations(
        "singular values of a Gaussian matrix",
        int(far.sum()),
        samples,
        2.0 * float(np.exp(-0.5 * t * t)),
        Reference(MIN, "Lemma E.1"),
    )


@checked
def product_singular_values(A: Any, B: Any) -> tuple[Claim, ...]:
    """si(A B) >= si(A) sn(B) for A (k, n), B (n, m), n <= m.  [min2021, Lemma E.2]

    >>> claims = fb.theory.product_singular_values([[1.0, 0.5]], [[0.2, 1.0, 0.0], [0.0, 0.3, 2.0]])
    >>> all(claim.holds for claim in claims)
    True
    """
    left, right = checked_tensor("A", A, ("k", "n")), checked_tensor("B", B, ("n", "m"))
    n = right.shape[0]
    if left.shape[1] != n or n > right.shape[1]:
        raise InputError(
            f"B: must be n x m with n = {left.shape[1]} <= m, got shape {right.shape}. "
            "For n > m the least singular value that counts is 0."
        )
    own, least = singular_values(left), at(singular_values(right), n)
    values = singular_values(left @ right)
    return tuple(
        Claim(
            f"singular value {i} of a product",
            measured=at(values, i),
            predicted=at(own, i) * least,
            kind=Kind.LOWER,
            reference=Reference(MIN, "Lemma E.2"),
            statement="a factor shrinks singular values by at most its own least one",
            tolerance_origin=ROUNDING_ORIGIN,
            atol=ROUNDING * float(np.linalg.norm(left) * np.linalg.norm(right)),
        )
        for i in range(1, min(left.shape) + 1)
    )


@checked
def wide_start(net: LinearStart, X: Any, bounds: WideStart) -> tuple[Claim, Claim, Claim, Claim]:
    """(33)-(35) for a start whose singular values lie in h^(-a) (sqrt(h) +- T): no chance left.

    [min2021, Lemma 11, the part after (E.5)], and before it the sharper level that the proof
    gives, which is attained. `bounds` comes from `wide_start_bounds`.

    >>> net = fb.LinearNet.gaussian(3, 1, width=1000, scale=1000**-0.5, rng=0)
    >>> bounds = fb.theory.wide_start_bounds(3, 1, rank=2, width=1000)
    >>> all(claim.holds for claim in fb.theory.wide_start(net, np.eye(2, 3), bounds))
    True
    """
    seen = reduced_weights(*weights_of(net), _without_outputs(net, X))
    stack = np.vstack([seen.V, seen.U1, seen.U2])
    values = singular_values(stack) * bounds.width**bounds.exponent
    off = float(np.abs(values - np.sqrt(bounds.width)).max())
    if len(values) < len(stack) or not off <= bounds.T * (1.0 + 1e-9):
        raise OutsideHypothesis(
            f"net: must have all {len(stack)} singular values of h^a [U; V] within T = "
            f"{bounds.T:.6g} of sqrt(h), got {off:.6g} away. Random starts do with probability "
            "1 - delta; see wide_start_rate."
        )
    level, defect, product = _start_numbers(seen)
    size = ROUNDING * float(np.sum(stack**2))

    def claim(name: str, values: tuple[float, float], kind: Kind, equation: str) -> Claim:
        return Claim(
            name,
            measured=values[0],
            predicted=values[1],
            kind=kind,
            reference=Reference(MIN, "Lemma 11", equation),
            statement="singular values close together leave imbalance and near-orthogonality",
            tolerance_origin=ROUNDING_ORIGIN,
            atol=size,
        )

    return (
        claim("level on the event", (level, bounds.sharp_level), Kind.LOWER, "(E.6)"),
        claim("level of a wide start", (level, bounds.level), Kind.LOWER, "(33)"),
        claim("near the invariant set", (defect, bounds.invariance_defect), Kind.UPPER, "(34)"),
        claim("small product", (product, bounds.product), Kind.UPPER, "(35)"),
    )


@checked
def wide_start_rate(
    X: Any,
    m: int,
    width: int,
    rng: np.random.Generator,
    *,
    exponent: float = 0.5,
    delta: float = 0.1,
    samples: int = 500,
) -> tuple[Claim, Claim, Claim]:
    """Each of (33)-(35) fails with probability at most delta.  [min2021, Lemma 11]

    >>> rng = np.random.default_rng(0)
    >>> claims = fb.theory.wide_start_rate(np.eye(2, 3), 1, 700, rng, samples=20)
    >>> all(claim.holds for claim in claims)
    True
    """
    inputs = checked_tensor("X", X, ("samples", "features"))
    data = MatrixRegression(inputs, np.zeros((len(inputs), m)))
    d, rank = inputs.shape[1], data.spectrum.rank
    bounds = wide_start_bounds(d, m, rank, width, exponent, delta)
    numbers = np.array(
        [_start_numbers(_draw(data, m, width, exponent, rng)) for _ in range(samples)]
    )
    failed = (
        numbers[:, 0] <= bounds.level,
        numbers[:, 1] > bounds.invariance_defect,
        numbers[:, 2] > bounds.product,
    )
    names = ("level of a wide start", "near the invariant set", "small product")
    claims = [
        violations(name, int(bad.sum()), samples, delta, Reference(MIN, "Lemma 11", f"({33 + k})"))
        for k, (name, bad) in enumerate(zip(names, failed, strict=True))
    ]
    return claims[0], claims[1], claims[2]


def _draw(
    data: MatrixRegression, m: int, width: int, exponent: float, rng: np.random.Generator
) -> ReducedNet:
    d = data.shape[0]
    net = LinearNet.gaussian(d, m, width=width, scale=width**-exponent, rng=rng)
    return reduced_weights(*weights_of(net), data)


def _start_numbers(seen: ReducedNet) -> tuple[float, float, float]:
    """Level of imbalance, distance from the invariant set, size of the product."""
    defect = float(np.linalg.norm(np.vstack([seen.V, seen.U1]) @ seen.U2.T))
    return seen.imbalance.level, defect, float(np.linalg.norm(seen.product))


def _without_outputs(net: LinearStart, X: Any) -> MatrixRegression:
    inputs = checked_tensor("X", X, ("samples", "features"))
    return regression(net, inputs, np.zeros((len(inputs), net.shape[1])))


def violations(name: str, bad: int, samples: int, delta: float, reference: Reference) -> Claim:
    """At most as many violations as a rate of delta allows."""
    allowed = _unlikely_count(samples, min(delta, 1.0))
    return Claim(
        f"{name}, violations",
        measured=float(bad),
        predicted=allowed,
        kind=Kind.UPPER,
        reference=reference,
        statement=f"fails with probability at most {delta:.6g}; {samples} draws were made",
        tolerance_origin=COUNT_ORIGIN,
        silence=""
        if allowed < samples
        else f"at a rate of {delta:.3g}, {samples} violations in {samples} draws are no surprise",
    )


def _unlikely_count(samples: int, chance: float) -> float:
    """The least count that `samples` trials of this chance exceed with probability CHANCE at most.

    Not by scipy.stats, which takes as long to load as all the rest.
    """
    counts = np.arange(samples + 1)
    exceeded = scipy.special.bdtrc(counts, samples, chance)
    return float(counts[np.argmax(exceeded <= CHANCE)])
