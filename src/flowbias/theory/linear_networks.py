"""Where gradient flow on a two-layer linear network goes.  [min2021, section 4.1, appendices D, E]

    U V^T -> Theta + P2 U2(0) V(inf)^T,   Theta = X^+ Y the fit of least norm,

since the data moves U1 and V to zero error and never U2. Each claim follows the weights themselves
(`path` may pass weights that were followed before); the loss is (c/2) ||X U V^T - Y||^2. Rates of
convergence are in flowbias.theory.convergence_guarantees, wide random starts in wide_networks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias._typing import ArrayLike, FloatArray
from flowbias.matrix_problems.regression import MatrixRegression
from flowbias.models.linear_net import LinearNet
from flowbias.problem import InputError
from flowbias.theory.claim import Claim, Kind, Reference
from flowbias.theory.conditions import positive
from flowbias.theory.imbalance_bounds import MIN
from flowbias.theory.measured_factors import ENDED, RTOL, MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    reduced_weights,
    regression,
    weights_of,
)

# Some hundred steps of local error RTOL; a flow to its end adds what is left of the error there.
STEPS = 1e3
DRIFT = STEPS * RTOL
DRIFT_ORIGIN = "factors followed at rtol 1e-12: up to a thousand local errors"
END_ORIGIN = "factors followed at rtol 1e-12 to an error of 1e-11 of the first, or of the start"
END_TOLERANCE = 1e3 * ENDED


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
    problem, path = _followed(net, X, Y, t, path, loss)
    nets = list(path.reduced(problem))
    size = max(float(np.sum(at.U1**2) + np.sum(at.V**2)) for at in nets)
    first = _imbalance(nets[0])
    drift = max(float(np.linalg.norm(_imbalance(at) - first)) for at in nets) / size
    still = max(float(np.linalg.norm(at.U2 - nets[0].U2)) for at in nets) / np.sqrt(size)

    def zero(name: str, measured: float, equation: str) -> Claim:
        return Claim(
            name,
            measured=measured,
            predicted=0.0,
            kind=Kind.EQUAL,
            reference=Reference(MIN, "section 3.2", equation),
            statement="gradient flow conserves the imbalance and leaves U2 where it is",
            tolerance_origin=DRIFT_ORIGIN,
            atol=DRIFT,
        )

    return zero("imbalance is conserved", drift, "(16)"), zero("U2 does not move", still, "(7)")


def _imbalance(at: ReducedNet) -> FloatArray:
    return at.U1.T @ at.U1 - at.V.T @ at.V


def weights_converge(
    net: LinearStart,
    X: Any,
    Y: Any,
    *,
    path: MeasuredFactors | None = None,
    loss: Any = "half",
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
    problem, path = _followed(net, X, Y, None, path, loss)
    nets = list(path.reduced(problem))
    start = nets[0]
    rate = start.guaranteed_rate()
    positive("net", rate, "Proposition 9 needs c(0) > 0: imbalance or a margin at the start.")
    k = np.sqrt(start.conditioning[0]) / rate
    stacks = [np.vstack([at.U1, at.V]) for at in nets]
    norms = np.array([np.linalg.norm(Z) for Z in stacks])
    errors = np.array([np.linalg.norm(at.error) for at in nets])
    left = np.array([np.linalg.norm(stacks[-1] - Z) for Z in stacks])
    allowed = 2.0 * k * errors * norms.max()
    size = max(float(errors[0]), float(np.sqrt(start.conditioning[0]) * norms[0] ** 2))
    lasting = np.flatnonzero(errors > ENDED * size)  # later, both sides are rounding
    worst = int(lasting[np.argmax(left[lasting] / allowed[lasting])])
    growth = float(np.log(norms.max() / norms[0]))
    reference = Reference(MIN, "Proposition 9")

    def claim(name: str, values: tuple[float, float], kind: Kind, atol: float) -> Claim:
        return Claim(
            name,
            measured=values[0],
            predicted=values[1],
            kind=kind,
            reference=reference,
            statement="with c(0) > 0 the weights converge to an equilibrium of zero error",
            tolerance_origin=END_ORIGIN,
            atol=atol,
        )

    last = float(errors[-1]) / size
    return (
        claim(
            "weights stay bounded",
            (growth, 2.0 * k * float(errors[0])),
            Kind.UPPER,
            DRIFT,
        ),
        claim(
            "weights converge",
            (float(left[worst]), float(allowed[worst])),
            Kind.UPPER,
            DRIFT * float(norms.max()),
        ),
        claim("zero error at the end", (last, 0.0), Kind.EQUAL, 2.0 * ENDED),
    )


def limit_decomposition(
    net: LinearStart,
    X: Any,
    Y: Any,
    *,
    path: MeasuredFactors | None = None,
    loss: Any = "half",
) -> Claim:
    """U V^T(inf) = Theta + P2 U2(0) V(inf)^T.  [min2021, (30)]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.limit_decomposition(net, X, [[1.0], [-1.0]]).holds
    True
    """
    problem, path = _followed(net, X, Y, None, path, loss)
    U, _ = weights_of(net)
    predicted = problem.min_norm + problem.spectrum.off_range(U) @ path.V[-1].T
    size = float(np.linalg.norm(predicted))
    return Claim(
        "limit decomposes",
        measured=float(np.linalg.norm(path.M[-1] - predicted)) / size,
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=Reference(MIN, "section 4.1", "(30)"),
        statement="the limit is the min-norm fit plus what U2 adds where the data sees nothing",
        tolerance_origin=END_ORIGIN + ", over the least singular value of X",
        atol=END_TOLERANCE * _condition(problem),
    )


def reaches_min_norm(
    net: LinearStart,
    X: Any,
    Y: Any,
    *,
    path: MeasuredFactors | None = None,
    loss: Any = "half",
) -> Claim:
    """From V U2^T = 0 and U1 U2^T = 0 the flow converges to Theta.  [min2021, Prop. 10, (31)]

    Both are needed: see `output_orthogonality_is_not_enough`.

    >>> net = fb.LinearNet.invariant(np.eye(2, 3), 1, width=8, scale=0.7, rng=0)
    >>> fb.theory.reaches_min_norm(net, np.eye(2, 3), [[1.0], [-1.0]]).holds
    True
    """
    problem, path = _followed(net, X, Y, None, path, loss)
    start = reduced_weights(*weights_of(net), problem)
    rows = np.vstack([start.V, start.U1])
    defect = float(np.linalg.norm(rows @ start.U2.T))
    size = float(np.sum(rows**2) + np.sum(start.U2**2))
    if not defect <= 1e-12 * size:
        raise InputError(
            f"net: must have V U2^T = 0 and U1 U2^T = 0, got a defect of {defect:.3g}. "
            "Use LinearNet.invariant(X, m, ...)."
        )
    theta = problem.min_norm
    return Claim(
        "min-norm from an orthogonal start",
        measured=float(np.linalg.norm(path.M[-1] - theta) / np.linalg.norm(theta)),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=Reference(MIN, "Proposition 10", "(31)"),
        statement="the set V U2^T = 0, U1 U2^T = 0 is invariant, and Theta is its only minimizer",
        tolerance_origin=END_ORIGIN + ", over the least singular value of X",
        atol=END_TOLERANCE * _condition(problem),
    )


class Counterexample(NamedTuple):
    """A start with V U2^T = 0 alone, its data, and how far from Theta its flow ends."""

    net: LinearNet
    X: FloatArray
    Y: FloatArray
    distance: float


def output_orthogonality_counterexample(y: float, scale: float) -> Counterexample:
    """X = (1, 0), Y = y, U = scale [[1, 0], [1, 0]], V = scale (0, 1): V U2^T = 0, U1 U2^T != 0.

    With one visible row and one output the flow is a hyperbolic rotation by theta,

        V(inf) = V cosh(theta) + U1 sinh(theta),   scale^2 sinh(2 theta) = y,

    so U2 V(inf)^T = scale^2 sinh(theta), though the start U V^T has its columns in the span of P1.

    >>> round(fb.theory.output_orthogonality_counterexample(y=1.0, scale=1.0).distance, 4)
    0.4551
    """
    size = positive("scale", scale, "It is the size of the weights at the start.")
    if not (np.isfinite(y) and y != 0.0):
        raise InputError(f"y: must be finite and not 0, got {y!r}. With y = 0 nothing moves.")
    U = size * np.array([[1.0, 0.0], [1.0, 0.0]])
    V = size * np.array([[0.0, 1.0]])
    angle = 0.5 * np.arcsinh(y / size**2)
    distance = float(size**2 * abs(np.sinh(angle)))
    return Counterexample(LinearNet(U, V), np.array([[1.0, 0.0]]), np.array([[y]]), distance)


def output_orthogonality_is_not_enough(y: float, scale: float) -> tuple[Claim, Claim]:
    """V U2^T = 0 alone does not lead to Theta: the end is scale^2 sinh(theta) away from it.

    [min2021, after Proposition 10] says so; the example and its distance are ours
    (`output_orthogonality_counterexample`).

    >>> all(claim.holds for claim in fb.theory.output_orthogonality_is_not_enough(y=1.0, scale=1.0))
    True
    """
    example = output_orthogonality_counterexample(y, scale)
    problem = MatrixRegression(example.X, example.Y)
    start = reduced_weights(*weights_of(example.net), problem)
    path = follow_weights(example.net, problem)
    distance = float(np.linalg.norm(path.M[-1] - problem.min_norm))

    def equal(name: str, measured: float, predicted: float, atol: float) -> Claim:
        return Claim(
            name,
            measured=measured,
            predicted=predicted,
            kind=Kind.EQUAL,
            reference=Reference(MIN, "section 4.1", "after Proposition 10"),
            statement="a product in the span of the data does not stay there unless U1 U2^T = 0",
            tolerance_origin=END_ORIGIN,
            atol=atol,
        )

    return (
        equal("V U2^T at the start", float(np.abs(start.V @ start.U2.T).max()), 0.0, 0.0),
        equal(
            "distance from min-norm", distance, example.distance, END_TOLERANCE * (abs(y) + scale)
        ),
    )


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


def _followed(
    net: LinearStart, X: Any, Y: Any, t: ArrayLike | None, path: MeasuredFactors | None, loss: Any
) -> tuple[MatrixRegression, MeasuredFactors]:
    problem = regression(net, X, Y)
    return problem, follow_weights(net, problem, t, loss) if path is None else path


def _condition(problem: MatrixRegression) -> float:
    root = problem.spectrum.root
    return float(root[0] / root[-1])
