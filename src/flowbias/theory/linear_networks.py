"""What the weights of a two-layer linear network do.  [min2021, section 4.1, appendices D, E]

Each claim follows the weights themselves (`path` may pass weights that were followed before); the
loss is (c/2) ||X U V^T - Y||^2. Where the flow ends is in flowbias.theory.linear_network_limits,
how fast in convergence_guarantees, and wide random starts are in wide_networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Kind, Reference, Statement
from flowbias.theory.conditions import OutsideHypothesis, positive
from flowbias.theory.imbalance_bounds import MIN, ROUNDING
from flowbias.theory.measured_factors import ENDED, RTOL, MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    regression,
    weights_of,
)

# Some hundred steps of local error RTOL; a flow to its end adds what is left of the error there.
STEPS = 1e3
DRIFT = STEPS * RTOL
DRIFT_ORIGIN = "factors followed at rtol 1e-12: up to a thousand local errors"
END_ORIGIN = "factors followed at rtol 1e-12 to an error of 1e-11 of the first, or of the start"
END_TOLERANCE = 1e3 * ENDED


def followed(
    net: LinearStart, X: Any, Y: Any, t: ArrayLike | None, path: MeasuredFactors | None, loss: Any
) -> tuple[MatrixRegression, MeasuredFactors]:
    """The data, and the flow given or followed here."""
    problem = regression(net, X, Y)
    return problem, follow_weights(net, problem, t, loss) if path is None else path


@checked
def conserved_imbalance(
    net: LinearStart,
    X: Any,
    Y: Any,
    t: ArrayLike | None = None,
    *,
    path: MeasuredFactors | None = None,
    loss: Any = "half",
) -> tuple[Claim, Claim]:
    """D = U1^T U1 - V^T V and U2 are constant along the flow.  [min2021, (7), (16)]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(c.holds for c in fb.theory.conserved_imbalance(net, X, [[1.0], [-1.0]], t=[0.5, 1.0]))
    True
    """
    problem, path = followed(net, X, Y, t, path, loss)
    nets = list(path.reduced(problem))
    size = max(float(np.sum(at.U1**2) + np.sum(at.V**2)) for at in nets)
    first = _imbalance(nets[0])
    drift = max(float(np.linalg.norm(_imbalance(at) - first)) for at in nets) / size
    still = max(float(np.linalg.norm(at.U2 - nets[0].U2)) for at in nets) / np.sqrt(size)

    words = "gradient flow conserves the imbalance and leaves U2 where it is"
    imbalance = Statement(Reference(MIN, "section 3.2", "(16)"), words, DRIFT_ORIGIN)
    resting = Statement(Reference(MIN, "section 3.2", "(7)"), words, DRIFT_ORIGIN)
    return (
        imbalance.equal("imbalance is conserved", drift, atol=DRIFT),
        resting.equal("U2 does not move", still, atol=DRIFT),
    )


def _imbalance(at: ReducedNet) -> FloatArray:
    return at.U1.T @ at.U1 - at.V.T @ at.V


@checked
def weights_converge(
    net: LinearStart, X: Any, Y: Any, *, path: MeasuredFactors | None = None, loss: Any = "half"
) -> tuple[Claim, Claim, Claim]:
    """Where c(0) > 0: U1, V stay bounded, and converge to weights with E = 0.  [min2021, Prop. 9]

    With Z = [U1; V] and k = l1(S)^(1/2)/(lr(S) c(0)):

        ln(||Z(t)||_F/||Z(0)||_F) <= 2 k ||E(0)||_F                         (appendix E)
        ||Z(inf) - Z(t)||_F <= 2 k ||E(t)||_F sup ||Z||_F                   (ours)

    The second makes convergence explicit: Z' = A Z with ||A|| <= l1^(1/2) ||E||, whose integral
    from t on is at most 2 k ||E(t)||_F. It is claimed at the time at which it is closest.

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> all(claim.holds for claim in fb.theory.weights_converge(net, X, [[1.0], [-1.0]]))
    True
    """
    problem, path = followed(net, X, Y, None, path, loss)
    nets = list(path.reduced(problem))
    start = nets[0]
    rate = start.guaranteed_rate()
    if not rate > ROUNDING * start.size:
        raise OutsideHypothesis(
            f"net: must have c(0) > 0 beyond rounding, got lr(S) c(0) = {rate:.3g}. Proposition 9 "
            "needs imbalance or a margin at the start."
        )
    k = np.sqrt(start.conditioning[0]) / rate
    Z = np.stack([np.vstack([at.U1, at.V]) for at in nets])
    norms = np.linalg.norm(Z, axis=(1, 2))
    errors = np.array([np.linalg.norm(at.error) for at in nets])
    left = np.linalg.norm(Z[-1] - Z, axis=(1, 2))
    allowed = 2.0 * k * errors * norms.max()
    size = max(errors[0], np.sqrt(start.conditioning[0]) * norms[0] ** 2)
    lasting = np.flatnonzero(errors > ENDED * size)  # later, both sides are rounding
    if not len(lasting):
        raise OutsideHypothesis("net: must not fit at the start, got E(0) = 0. It stays there.")
    worst = lasting[np.argmax(left[lasting] / allowed[lasting])]
    growth = np.log(norms.max() / norms[0])
    stated = Statement(
        Reference(MIN, "Proposition 9"),
        "with c(0) > 0 the weights converge to an equilibrium of zero error",
        END_ORIGIN,
    )
    return (
        stated.at_most("weights stay bounded", growth, 2.0 * k * errors[0], atol=DRIFT),
        stated.at_most("weights converge", left[worst], allowed[worst], atol=DRIFT * norms.max()),
        stated.equal("zero error at the end", errors[-1] / size, atol=2.0 * ENDED),
    )


@checked
def time_change(
    net: LinearStart, X: Any, Y: Any, t: ArrayLike, width: float, exponent: float
) -> Claim:
    """Weights h^a U, h^a V on (1/2) ||Y - h^(-2a) X U V^T||^2 follow the same path, h^(2a) slower.

    The parametrization of the tangent-kernel literature: standard normal weights and a factor
    before the product are our N(0, h^(-2a)) weights without it; its time is h^(2a) times ours.
    [min2021, appendix D]. `width` h and `exponent` a are free: only h^a enters.

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.time_change(net, X, [[1.0], [-1.0]], t=[0.5], width=100, exponent=0.5).holds
    True
    """
    factor = positive("width", width, "It is the number h in h^a.") ** exponent
    problem = regression(net, X, Y)
    ours = follow_weights(net, problem, t)
    U, V = weights_of(net)
    scaled = MatrixRegression(problem.X / factor**2, problem.Y)
    theirs = follow_weights(LinearNet(factor * U, factor * V), scaled, factor**2 * ours.t[1:])
    gap = np.linalg.norm(theirs.U / factor - ours.U) + np.linalg.norm(theirs.V / factor - ours.V)
    size = np.linalg.norm(ours.U) + np.linalg.norm(ours.V)
    return Claim(
        "tangent-kernel time",
        measured=float(gap / size),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=Reference(MIN, "appendix D", "(D.3)-(D.4)"),
        statement="scaled weights with a factor before the product differ by the clock alone",
        tolerance_origin=DRIFT_ORIGIN,
        atol=DRIFT,
    )
