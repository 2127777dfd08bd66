"""Where gradient flow on a two-layer linear network ends.  [min2021, section 4.1]

    U V^T -> Theta + P2 U2(0) V(inf)^T,   Theta = X^+ Y the fit of least norm,

since the data moves U1 and V to zero error and never U2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix.regression import MatrixRegression
from flowbias.theory.arguments import checked
from flowbias.theory.claim import Claim, Reference, Statement
from flowbias.theory.conditions import OutsideHypothesis, only_one_fit, positive, unresolved
from flowbias.theory.imbalance_bounds import MIN
from flowbias.theory.linear_networks import END_ORIGIN, END_TOLERANCE, followed
from flowbias.theory.measured_factors import MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import LinearStart, reduced_weights, weights_of

_MAGNIFIED = END_ORIGIN + ", over the least singular value of X"


@checked
def limit_decomposition(
    net: LinearStart, X: Any, Y: Any, *, path: MeasuredFactors | None = None, loss: Any = "half"
) -> Claim:
    """U V^T(inf) = Theta + P2 U2(0) V(inf)^T.  [min2021, (30)]

    >>> net, X = fb.LinearNet.gaussian(3, 1, width=8, scale=0.7, rng=0), np.eye(2, 3)
    >>> fb.theory.limit_decomposition(net, X, [[1.0], [-1.0]]).holds
    True
    """
    problem, path = followed(net, X, Y, None, path, loss)
    U, _ = weights_of(net)
    predicted = problem.min_norm + problem.spectrum.off_range(U) @ path.V[-1].T
    stated = Statement(
        Reference(MIN, "section 4.1", "(30)"),
        "the limit is the min-norm fit plus what U2 adds where the data sees nothing",
        _MAGNIFIED,
    )
    return _ends_at(stated, "limit decomposes", path, predicted, problem)


@checked
def reaches_min_norm(
    net: LinearStart, X: Any, Y: Any, *, path: MeasuredFactors | None = None, loss: Any = "half"
) -> Claim:
    """From V U2^T = 0 and U1 U2^T = 0 the flow converges to Theta.  [min2021, Prop. 10, (31)]

    Both are needed: see `output_orthogonality_is_not_enough`.

    >>> net = fb.LinearNet.invariant(np.eye(2, 3), 1, width=8, scale=0.7, rng=0)
    >>> fb.theory.reaches_min_norm(net, np.eye(2, 3), [[1.0], [-1.0]]).holds
    True
    """
    problem, path = followed(net, X, Y, None, path, loss)
    start = reduced_weights(*weights_of(net), problem)
    rows = np.vstack([start.V, start.U1])
    defect = float(np.linalg.norm(rows @ start.U2.T))
    size = float(np.sum(rows**2) + np.sum(start.U2**2))
    if not defect <= 1e-12 * size:
        raise OutsideHypothesis(
            f"net: must have V U2^T = 0 and U1 U2^T = 0, got a defect of {defect:.3g}. "
            "Use LinearNet.invariant(X, m, ...)."
        )
    stated = Statement(
        Reference(MIN, "Proposition 10", "(31)"),
        "the set V U2^T = 0, U1 U2^T = 0 is invariant, and Theta is its only minimizer",
        _MAGNIFIED,
    )
    return _ends_at(stated, "min-norm from an orthogonal start", path, problem.min_norm, problem)


def _ends_at(
    stated: Statement,
    name: str,
    path: MeasuredFactors,
    predicted: FloatArray,
    problem: MatrixRegression,
) -> Claim:
    size = float(np.linalg.norm(predicted)) or 1.0
    off = float(np.linalg.norm(path.M[-1] - predicted)) / size
    root = problem.spectrum.root
    # The error at the end and the local errors are relative to the weights, not to their product.
    weights = max(size, float(np.linalg.norm(path.Z[-1]) ** 2), float(path.error[0] / root[0]))
    atol = END_TOLERANCE * float(root[0] / root[-1]) * weights / size
    silence = only_one_fit(problem.X) or unresolved(atol)
    return stated.equal(name, off, atol=atol, silence=silence)


class Counterexample(NamedTuple):
    """A start with V U2^T = 0 alone, its data, and how far from Theta its flow ends."""

    net: LinearNet
    X: FloatArray
    Y: FloatArray
    distance: float


@checked
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


@checked
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

    stated = Statement(
        Reference(MIN, "section 4.1", "after Proposition 10"),
        "a product in the span of the data does not stay there unless U1 U2^T = 0",
        END_ORIGIN,
    )
    overlap = float(np.abs(start.V @ start.U2.T).max())
    atol = END_TOLERANCE * (abs(y) + scale)
    return (
        stated.equal("V U2^T at the start", overlap),
        stated.equal("distance from min-norm", distance, example.distance, atol=atol),
    )
