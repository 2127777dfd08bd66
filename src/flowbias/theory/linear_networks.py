"""What the weights of a two-layer linear network do.  [min2021, section 4.1, appendices D, E]

Each claim follows the weights themselves (`path` may pass weights that were followed before); the
loss is (c/2) ||X U V^T - Y||^2. How fast the flow is is in convergence_guarantees, wide random
starts are in wide_networks. It ends at

    U V^T -> Theta + P2 U2(0) V(inf)^T,   Theta = X^+ Y the fit of least norm,

since the data moves U1 and V to zero error and never U2. With data of equal singular values s and a
start whose imbalance is lam I it is solved in time [docs/theory/linear_networks.md, section 10]:

    Z Z^T(t) = e^{F tau} Z0 N(tau)^{-1} Z0^T e^{F tau},   F = [[lam/2 I, Yt/s], [Yt^T/s, -lam/2 I]],
    N(tau) = I + Z0^T F^{-1} (e^{2 F tau} - I)/2 Z0,      tau = c s^2 t.

One weight per layer needs no balance. It is the closed form that `fb.flow` and `fb.limit` use where
it applies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from flowbias.flows.lifted.closed_form import (
    WITHIN_ROUNDING,
    BalancedForm,
    is_whitened,
    scalar_product,
)
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.models.linear_net import LinearNet
from flowbias.problems.matrix import MatrixRegression
from flowbias.theory.arguments import OutsideHypothesis, checked, positive, unresolved
from flowbias.theory.claim import MIN, Claim, Reference, Statement, Tolerance, beyond_the_papers
from flowbias.theory.imbalance_bounds import ROUNDING
from flowbias.theory.measured_flow import ENDED, FACTORS, MeasuredFactors, follow_weights
from flowbias.theory.reduced_net import (
    LinearStart,
    ReducedNet,
    reduced_weights,
    regression,
    weights_of,
)

DRIFT = Tolerance("factors followed at rtol 1e-12: up to a thousand local errors", 1e-9)
# A flow to its end adds what is left of the error there.
END = Tolerance(
    "factors followed at rtol 1e-12 to an error of 1e-11 of the first, or of the start", 1e3 * ENDED
)


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
    imbalance = Statement(MIN("section 3.2", "(16)"), words, *DRIFT)
    resting = Statement(MIN("section 3.2", "(7)"), words, *DRIFT)
    return (
        imbalance.equal("imbalance is conserved", drift),
        resting.equal("U2 does not move", still),
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
    if not rate > ROUNDING.size * start.size:
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
    words = "with c(0) > 0 the weights converge to an equilibrium of zero error"
    stated = Statement(MIN("Proposition 9"), words, END.origin)
    farthest, atol = norms.max(), DRIFT.size
    return (
        stated.at_most("weights stay bounded", growth, 2.0 * k * errors[0], atol=atol),
        stated.at_most("weights converge", left[worst], allowed[worst], atol=atol * farthest),
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
    words = "scaled weights with a factor before the product differ by the clock alone"
    stated = Statement(MIN("appendix D", "(D.3)-(D.4)"), words, *DRIFT)
    return stated.equal("tangent-kernel time", gap / size)


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
    words = "the limit is the min-norm fit plus what U2 adds where the data sees nothing"
    reference = MIN("section 4.1", "(30)")
    return _ends_at(reference, words, "limit decomposes", path, predicted, problem)


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
    words = "the set V U2^T = 0, U1 U2^T = 0 is invariant, and Theta is its only minimizer"
    reference, name = MIN("Proposition 10", "(31)"), "min-norm from an orthogonal start"
    return _ends_at(reference, words, name, path, problem.min_norm, problem)


def _ends_at(
    reference: Reference,
    words: str,
    name: str,
    path: MeasuredFactors,
    predicted: FloatArray,
    problem: MatrixRegression,
) -> Claim:
    stated = Statement(reference, words, END.origin + ", over the least singular value of X")
    size = float(np.linalg.norm(predicted)) or 1.0
    root = problem.spectrum.root
    # The error at the end and the local errors are relative to the weights, not to their product.
    weights = max(size, float(np.linalg.norm(path.Z[-1]) ** 2), float(path.error[0] / root[0]))
    atol = END.size * float(root[0] / root[-1]) * weights / size
    few = unresolved(atol)
    return stated.same(name, path.M[-1], predicted, atol=atol, among=problem.X, silence=few)


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

    words = "a product in the span of the data does not stay there unless U1 U2^T = 0"
    stated = Statement(MIN("section 4.1", "after Proposition 10"), words, *END)
    overlap, size = np.abs(start.V @ start.U2.T).max(), abs(y) + scale
    return (
        stated.equal("V U2^T at the start", overlap, atol=0.0),
        stated.equal("distance from min-norm", distance, example.distance, size=size),
    )


_IN_TIME = beyond_the_papers("10 Closed form in time", "linear_networks")


@checked
def balanced_closed_form(
    net: LinearStart, X: Any, Y: Any, t: ArrayLike, loss: Any = "half"
) -> tuple[Claim, ...]:
    """The Gram matrix of U1 and V at the times t, in closed form from a lambda-balanced start.

    Needs U1^T U1 - V^T V = lam I, as `LinearNet.balanced` has with lam = 0, and X with equal
    singular values.

    >>> net = fb.LinearNet.balanced([[0.5, 0.1], [0.2, -0.3]])
    >>> claims = fb.theory.balanced_closed_form(net, np.eye(2), [[1.0, 0.0], [0.5, 2.0]], t=[0.5])
    >>> all(claim.holds for claim in claims)
    True
    """
    problem = regression(net, X, Y)
    path = follow_weights(net, problem, t, loss)
    nets = list(path.reduced(problem))
    form, clock = _balanced_form(nets[0])
    stated = Statement(
        _IN_TIME, "a lambda-balanced start on whitened data is solved in time", *FACTORS
    )
    claims = []
    for time, at in zip(path.t[1:], nets[1:], strict=True):
        weights = form.at(path.loss_constant * clock * float(time))
        predicted, reached = weights @ weights.T, _moving(at) @ _moving(at).T
        name = f"balanced closed form at t = {time:.6g}"
        claims.append(stated.same(name, reached, predicted))
    return tuple(claims)


def _moving(at: ReducedNet) -> FloatArray:
    return np.vstack([at.U1, at.V])


def _balanced_form(start: ReducedNet) -> tuple[BalancedForm, float]:
    """The closed form and its clock s^2, if the start and the data have one."""
    if not is_whitened(start.root):
        raise OutsideHypothesis(
            f"X: must have equal singular values, got {start.root[0]:.6g} to "
            f"{start.root[-1]:.6g}. Whiten the data: X = W P1^T of its decomposition."
        )
    left, values, _ = scipy.linalg.svd(_moving(start), full_matrices=False)
    # Any root of the Gram matrix will do; columns that are zero would hide a level other than 0.
    kept = values > len(left) * np.finfo(float).eps * values[0]
    weights, rows = left[:, kept] * values[kept], len(start.U1)
    imbalance = weights[:rows].T @ weights[:rows] - weights[rows:].T @ weights[rows:]
    level = float(np.trace(imbalance)) / len(imbalance)
    off = float(np.abs(imbalance - level * np.eye(len(imbalance))).max())
    if off > WITHIN_ROUNDING * float(np.sum(values**2)):
        raise OutsideHypothesis(
            f"net: must be lambda-balanced, U1^T U1 - V^T V = lam I, got {off:.3g} off lam = "
            f"{level:.3g}. Use LinearNet.balanced(product, X)."
        )
    root = float(start.root.mean())
    return BalancedForm(weights, start.target / root), root * root


@checked
def scalar_closed_form(u: float, v: float, y: float, t: float) -> Claim:
    """p = u v at time t in closed form: p' = (y - p) sqrt(d^2 + 4 p^2), d = u^2 - v^2 at the start.

    The equation is [min2021, (14)] for the loss (y - u v)^2/2; its solution needs no balance.

    >>> fb.theory.scalar_closed_form(u=1.0, v=0.5, y=2.0, t=0.7).holds
    True
    """
    problem = MatrixRegression([[1.0]], [[y]])
    product = u * v
    reached = follow_weights(LinearNet([[u]], [[v]]), problem, t).M[-1, 0, 0]
    stated = Statement(_IN_TIME, "one weight per layer is solved in time from any start", *FACTORS)
    return stated.equal(
        "scalar closed form",
        reached,
        scalar_product(y, product, u * u - v * v, t),
        size=abs(y) + abs(product),
    )
