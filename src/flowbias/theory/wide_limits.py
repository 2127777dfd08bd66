"""How far from min-norm a wide random start ends.  [min2021, Theorem 12, appendix E]

A start off the invariant set V U2^T = 0, U1 U2^T = 0 drifts further while the error lasts, and no
longer; imbalance makes that time short (`wide_networks` bounds both at the start), so that

    ||U V^T(inf) - Theta||_2 = ||U2 V(inf)^T||_2 = O(h^(1/2 - 2a)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import OutsideHypothesis
from flowbias.theory.imbalance_bounds import MIN, ROUNDING
from flowbias.theory.linear_networks import DRIFT
from flowbias.theory.measured_factors import MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import LinearStart, regression
from flowbias.theory.wide_networks import violations, wide_start_bounds


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
    if not sizes[0] > ROUNDING * weights:
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
    atol = DRIFT * weights / sizes[0]
    level = nets[0].imbalance.level
    imbalanced = level > ROUNDING * nets[0].size
    error = float(np.linalg.norm(nets[0].error))
    far = np.sqrt(top) * error / (bottom * level) if imbalanced else np.inf
    return (
        _growth("(E.11)", float(growth[worst]), float(allowed[worst]), atol),
        _growth("(E.15)", float(growth.max()), far, atol),
    )


def _growth(equation: str, measured: float, predicted: float, atol: float) -> Claim:
    few = f"the distance is known to a factor exp({atol:.1g}) only, and may grow by less"
    return Claim(
        f"distance from the invariant set {equation}",
        measured=measured,
        predicted=predicted,
        kind=Kind.UPPER,
        reference=Reference(MIN, "Theorem 12", equation),
        statement="the faster the error vanishes, the less a start drifts from the invariant set",
        tolerance_origin="factors followed at rtol 1e-12, relative to the distance at the start",
        atol=atol,
        silence=few if atol > predicted else "",
    )


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
    return violations(
        "distance from min-norm", bad, samples, delta, Reference(MIN, "Theorem 12", "(36)")
    )


def _distance(
    problem: MatrixRegression, width: int, exponent: float, rng: np.random.Generator
) -> float:
    d, m = problem.shape
    net = LinearNet.gaussian(d, m, width=width, scale=width**-exponent, rng=rng)
    M: FloatArray = follow_weights(net, problem).M[-1]
    return float(np.linalg.norm(M - problem.min_norm, 2))
