"""Wide random starts: nearly invariant, hence nearly min-norm.  [min2021, section 4.2, appendix E]

Entries of U (d, h) and V (m, h) are N(0, h^(-2a)), 1/4 < a <= 1/2. With
T = sqrt(m + d) + sqrt(2 ln(2/delta)), all singular values of h^a [U; V] lie in sqrt(h) +- T with
probability 1 - delta, and on that event, for h > 16 T^2,

    level of imbalance >= 2 h^(-2a) (sqrt(h) - T)^2 > h^(1-2a)                              (33)
    ||[V U2^T; U1 U2^T]||_F <= 2 sqrt(m + r) T h^(1/2 - 2a)                                 (34)
    ||U1 V^T||_F            <= 2 sqrt(m) T h^(1/2 - 2a)                                     (35)

Statements with a probability are claims about counts: violations in independent draws, against the
number that a binomial law of rate delta exceeds once in a million.

A start off the invariant set V U2^T = 0, U1 U2^T = 0 drifts further while the error lasts, and no
longer; imbalance makes that time short, so that it ends near the fit of least norm [Theorem 12]:

    ||U V^T(inf) - Theta||_2 = ||U2 V(inf)^T||_2 = O(h^(1/2 - 2a)).

The last claim is about the law of such a start, drawn without its weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.special

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixRegression, checked_tensor
from flowbias.theory.arguments import OutsideHypothesis, checked, expects
from flowbias.theory.claim import MIN, Claim, Reference, Statement, beyond_the_papers
from flowbias.theory.imbalance_bounds import ROUNDING
from flowbias.theory.linear_networks import DRIFT
from flowbias.theory.measured_flow import MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    at,
    reduced_inputs,
    reduced_weights,
    regression,
    singular_values,
    weights_of,
)


class WideStart(NamedTuple):
    """The numbers of Lemma 11 for given sizes: bounds hold with probability 1 - delta."""

    width: float
    exponent: float
    T: float
    #: h^(1-2a), (33)
    level: float
    #: the level on the event itself, 2 h^(-2a) (sqrt(h) - T)^2: attained
    sharp_level: float
    #: 2 sqrt(m + r) T h^(1/2 - 2a), (34)
    invariance_defect: float
    #: 2 sqrt(m) T h^(1/2 - 2a), (35)
    product: float


expects(WideStart, "a WideStart", "Pass fb.theory.wide_start_bounds(d, m, rank, width).")


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
        MIN("Lemma E.1"),
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
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    words = "a factor shrinks singular values by at most its own least one"
    stated = Statement(MIN("Lemma E.2"), words, *ROUNDING)
    return tuple(
        stated.at_least(
            f"singular value {i} of a product", at(values, i), at(own, i) * least, size=size
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
    seen = reduced_inputs(net, X)
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
    size = float(np.sum(stack**2))

    def stated(equation: str) -> Statement:
        words = "singular values close together leave imbalance and near-orthogonality"
        return Statement(MIN("Lemma 11", equation), words, *ROUNDING)

    nearly = stated("(34)"), "near the invariant set"
    return (
        stated("(E.6)").at_least("level on the event", level, bounds.sharp_level, size=size),
        stated("(33)").at_least("level of a wide start", level, bounds.level, size=size),
        nearly[0].at_most(nearly[1], defect, bounds.invariance_defect, size=size),
        stated("(35)").at_most("small product", product, bounds.product, size=size),
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
        violations(name, int(bad.sum()), samples, delta, MIN("Lemma 11", f"({33 + k})"))
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


def violations(name: str, bad: int, samples: int, delta: float, reference: Reference) -> Claim:
    """At most as many violations as a rate of delta allows."""
    allowed = _unlikely_count(samples, min(delta, 1.0))
    stated = Statement(
        reference,
        f"fails with probability at most {delta:.6g}; {samples} draws were made",
        "none: the count is exact; at rate delta it is exceeded with probability 1e-6",
    )
    any_count = f"at a rate of {delta:.3g}, {samples} violations in {samples} draws are no surprise"
    silence = "" if allowed < samples else any_count
    return stated.at_most(f"{name}, violations", bad, allowed, silence=silence)


def _unlikely_count(samples: int, chance: float, surprise: float = 1e-6) -> float:
    """The least count that `samples` trials of this chance exceed with probability `surprise`.

    Not by scipy.stats, which takes as long to load as all the rest.
    """
    counts = np.arange(samples + 1)
    exceeded = scipy.special.bdtrc(counts, samples, chance)
    return float(counts[np.argmax(exceeded <= surprise)])


@checked
def growth_from_invariant_set(
    net: LinearStart, X: Any, Y: Any, *, path: MeasuredFactors | None = None
) -> tuple[Claim, Claim]:
    """||Z(t)||_F <= exp(l1(S)^(1/2) int_0^t ||E||_F) ||Z(0)||_F, Z = [V U2^T; U1 U2^T].

    [min2021, (E.11)], and with Corollary 4, where the level Dl is positive, at most
    exp(l1(S)^(1/2) ||E(0)||_F/(lr(S) Dl)) ||Z(0)||_F [(E.15)]. Both in logarithms, (E.11) at
    the time at which it is closest; (E.15) says nothing without imbalance.

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(claim.holds for claim in fb.theory.growth_from_invariant_set(net, X, [[1.0], [-1.0]]))
    True
    """
    problem = regression(net, X, Y)
    path = follow_weights(net, problem) if path is None else path
    nets = list(path.reduced(problem))
    sizes = [float(np.linalg.norm(np.vstack([s.V, s.U1]) @ s.U2.T)) for s in nets]
    weights = max(float(np.linalg.norm(Z) ** 2) for Z in path.Z)
    if not sizes[0] > ROUNDING.size * weights:
        raise OutsideHypothesis(
            "net: must start off the invariant set, got V U2^T = 0 and U1 U2^T = 0 up to "
            "rounding. It never leaves that set; see reaches_min_norm."
        )
    growth = np.log(np.array(sizes) / sizes[0])
    top, bottom = nets[0].conditioning
    allowed = np.sqrt(top) * path.error_integral * path.loss_constant
    if not (len(path.t) > 1 and allowed[-1] > 0.0):
        raise OutsideHypothesis("Y: must differ from X U V^T, got zero error. Nothing moves.")
    worst = 1 + int(np.argmax(growth[1:] - allowed[1:]))
    # Local errors move the weights, and the distance as much; relative to it where it is small.
    atol = DRIFT.size * weights / sizes[0]
    level = nets[0].imbalance.level
    imbalanced = level > ROUNDING.size * nets[0].size
    error = float(np.linalg.norm(nets[0].error))
    far = np.sqrt(top) * error / (bottom * level) if imbalanced else np.inf
    return (
        _growth("(E.11)", float(growth[worst]), float(allowed[worst]), atol),
        _growth("(E.15)", float(growth.max()), far, atol),
    )


def _growth(equation: str, measured: float, predicted: float, atol: float) -> Claim:
    few = f"the distance is known to a factor exp({atol:.1g}) only, and may grow by less"
    stated = Statement(
        MIN("Theorem 12", equation),
        "the faster the error vanishes, the less a start drifts from the invariant set",
        "factors followed at rtol 1e-12, relative to the distance at the start",
    )
    name, silence = f"distance from the invariant set {equation}", few if atol > predicted else ""
    return stated.at_most(name, measured, predicted, atol=atol, silence=silence)


@checked
def wide_limit_bound(
    problem: MatrixRegression, width: float, exponent: float = 0.5, delta: float = 0.01
) -> float:
    """2 C^(1/h^(1-2a)) sqrt(m + r) T h^(1/2 - 2a), C = exp(1 + l1(S)^(1/2) ||Y||_F/lr(S)).

    [min2021, Theorem 12, (36)]. Needs h > 16 T^2 and, for the initial error's part of C,
    h^(4a-1) >= 4 m T^2 (l1(S)/lr(S))^2.

    >>> problem = fb.MatrixRegression(np.eye(2, 3), [[1.0], [-1.0]])
    >>> round(fb.theory.wide_limit_bound(problem, width=1e6), 4)
    0.2035
    """
    d, m = problem.shape
    root = problem.spectrum.root
    top, bottom = float(root[0] ** 2), float(root[-1] ** 2)
    bounds = wide_start_bounds(d, m, len(root), width, exponent, delta)
    least = (4.0 * m * (bounds.T * top / bottom) ** 2) ** (1.0 / (4.0 * exponent - 1.0))
    if not width >= least:
        raise OutsideHypothesis(
            f"width: must be >= {least:.6g} for this data, got {width!r}. Widen the network, "
            "raise the exponent, or use better conditioned data."
        )
    log_C = 1.0 + np.sqrt(top) * float(np.linalg.norm(problem.Y)) / bottom
    return float(np.exp(log_C / bounds.level) * bounds.invariance_defect)


@checked
def wide_limit_rate(
    X: Any,
    Y: Any,
    width: int,
    rng: np.random.Generator,
    *,
    exponent: float = 0.5,
    delta: float = 0.1,
    samples: int = 20,
) -> Claim:
    """||U V^T(inf) - Theta||_2 exceeds (36) for at most a fraction delta of random starts.

    [min2021, Theorem 12]

    >>> rng = np.random.default_rng(0)
    >>> fb.theory.wide_limit_rate(np.eye(2, 3), [[1.0], [-1.0]], 700, rng, samples=8).holds
    True
    """
    problem = MatrixRegression(X, Y)
    bound = wide_limit_bound(problem, width, exponent, delta)
    distances = [_distance(problem, width, exponent, rng) for _ in range(samples)]
    bad = int((np.array(distances) > bound).sum())
    return violations("distance from min-norm", bad, samples, delta, MIN("Theorem 12", "(36)"))


def _distance(
    problem: MatrixRegression, width: int, exponent: float, rng: np.random.Generator
) -> float:
    d, m = problem.shape
    net = LinearNet.gaussian(d, m, width=width, scale=width**-exponent, rng=rng)
    M: FloatArray = follow_weights(net, problem).M[-1]
    return float(np.linalg.norm(M - problem.min_norm, 2))


@checked
def wishart_start(
    d: int, m: int, width: int, samples: int, rng: np.random.Generator
) -> tuple[Claim, Claim]:
    """G = [U; V][U; V]^T, drawn in place of standard normal weights, is Wishart: two of its laws.

        tr G ~ chi^2 with (d + m) h degrees of freedom,
        1/(G^-1)_11 ~ chi^2 with h - (d + m) + 1,       h = width >= d + m

    The largest distance between the distribution of `samples` draws and the one stated, against
    what it exceeds once in a million.

    >>> rng = np.random.default_rng(0)
    >>> all(c.holds for c in fb.theory.wishart_start(2, 1, width=9, samples=200, rng=rng))
    True
    """
    size = d + m
    if width < size:
        raise InputError(
            f"width: must be >= d + m = {size}, got {width}. Narrower, G has no inverse."
        )
    nets = (
        LinearNet.gaussian(d, m, width=width, scale=1.0, rng=rng, keep_weights=False)
        for _ in range(samples)
    )
    grams = np.array([net.gram for net in nets])
    apart = 1.0 / np.linalg.inv(grams)[:, 0, 0]
    allowed = float(np.sqrt(np.log(2.0 / 1e-6) / (2.0 * samples)))
    stated = Statement(
        beyond_the_papers("11 Gram matrices of wide starts", "linear_networks"),
        "the Gram matrix that stands for wide Gaussian weights has the law of theirs",
        "none: exceeded with probability 1e-6 (Dvoretzky, Kiefer, Wolfowitz; Massart's constant)",
    )
    traces = np.trace(grams, axis1=1, axis2=2)
    return (
        stated.at_most("law of the trace", _largest_gap(traces, size * width), allowed),
        stated.at_most("law of the first row", _largest_gap(apart, width - size + 1), allowed),
    )


def _largest_gap(values: FloatArray, freedom: int) -> float:
    """sup |F_n - F|, F the distribution function of chi^2."""
    expected = scipy.special.chdtr(float(freedom), np.sort(values))
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))
