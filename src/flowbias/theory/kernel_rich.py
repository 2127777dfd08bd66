"""What gradient flow on diagonal networks does.  [woodworth2020, sections 4-5, appendices C, D, F]

Each claim follows the weights themselves and compares with the closed forms, which hold for any
start once int r is known, and with the minimizer, which needs no integration at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models._base import MirrorModel
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import Matrix, Vector, checked
from flowbias.theory.claim import Claim, Kind, Reference, beyond_the_papers
from flowbias.theory.conditions import OutsideHypothesis, only_one_fit, same_size
from flowbias.theory.measured_flow import FLOW_ORIGIN, FLOW_TOLERANCE, Snapshot, follow

WOODWORTH = "woodworth2020"


@checked
def tied_limit(model: DiagonalNet, X: Any, y: Any) -> Claim:
    """Gradient flow on w = w+^D - w-^D converges to argmin Q s.t. X w = y.

    [woodworth2020, Theorem 1 (depth 2, any w0) and Theorem 3 (depth D >= 3)]; the Bregman form for
    a biased start and the general w0 at depth D >= 3 are ours. Q carries the factor alpha^2 w0^2
    that the ICLR version leaves out of its Theorems 1 and 3; for a uniform start the minimizer is
    the same (docs/errata.md, W6).

    >>> fb.theory.tied_limit(fb.DiagonalNet(depth=3, scale=0.5), [[1.0, 2.0]], [1.0]).holds
    True
    """
    place = "Theorem 1" if model.depth == 2 else "Theorem 3"
    reference = Reference(WOODWORTH, place, "(4)-(5)" if model.depth == 2 else "(60)")
    if model.is_biased:
        reference = beyond_the_papers("4 Biased starts")
    return flow_meets_minimizer(model, Regression(X, y), "tied limit", reference)


def flow_meets_minimizer(
    model: MirrorModel, problem: Regression, name: str, reference: Reference
) -> Claim:
    """||flow limit - argmin|| / ||argmin|| == 0, for any model with a potential."""
    reached = follow(model, problem).last.w
    minimizer = limit(model, problem).w
    return Claim(
        name,
        measured=relative(reached - minimizer, minimizer),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=reference,
        statement="gradient flow converges to the minimizer of Q(w) - <grad Q(w(0)), w> on X w = y",
        tolerance_origin=FLOW_ORIGIN,
        atol=FLOW_TOLERANCE,
        silence=only_one_fit(problem.X),
    )


@checked
def closed_form_flow(
    model: MirrorModel, X: Any, y: Any, t: float, loss: str | float = "sum"
) -> tuple[Claim, Claim]:
    """Weights and predictor at time t from X^T int_0^t r alone.

    Under the loss (c/2) ||X w - y||^2, with Xt = [X -X]:

        depth 2:  (w+, w-) = (w+, w-)(0) exp(-2c Xt^T int r)
                  w        = 2 (alpha w0)^2 sinh(-4c X^T int r)
        depth D:  (w+, w-) = ((w+, w-)(0)^(2-D) + c D(D-2) Xt^T int r)^(-1/(D-2))

    [woodworth2020, (15)-(19) and (50)-(58)]. The paper's loss is the sum of squares, c = 2, for
    which it prints half of each factor (docs/errata.md, W2 and W3).

    >>> model = fb.DiagonalNet(depth=3, scale=0.5)
    >>> all(claim.holds for claim in fb.theory.closed_form_flow(model, [[1.0, 2.0]], [1.0], t=0.5))
    True
    """
    measured = follow(model, Regression(X, y), t, loss).last
    z = model.mirror_rate * measured.pull
    weights = np.concatenate([np.atleast_1d(part) for part in measured.parameters])
    predicted = np.concatenate([np.atleast_1d(part) for part in model.parameters(z)])
    w = model.potential.grad_dual(model.shift + z)
    return (
        _same("weights in closed form", weights, predicted, "(16), (51), (53)"),
        _same("predictor in closed form", measured.w, w, "(17), (57)"),
    )


def _same(name: str, measured: FloatArray, predicted: FloatArray, equation: str) -> Claim:
    return Claim(
        name,
        measured=relative(measured - predicted, predicted),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=Reference(WOODWORTH, "appendices D and F", equation),
        statement="the flow depends on the past through X^T int r only, by the closed form",
        tolerance_origin=FLOW_ORIGIN,
        atol=FLOW_TOLERANCE,
    )


@checked
def dual_stays_inside(
    model: DiagonalNet, X: Any, y: Any, t: ArrayLike, loss: str | float = "sum"
) -> Claim:
    """max_i |X^T int_0^t r|_i a_i^(D-2) <= 1/(c D (D-2)) at depth D >= 3, a = alpha w0.

    [woodworth2020, Lemma 8], with the constant of the loss: for its sum loss, c = 2, the printed
    bound is twice too large (docs/errata.md, W3). For a biased start the bound is one-sided.

    >>> model = fb.DiagonalNet(depth=3, scale=0.5)
    >>> fb.theory.dual_stays_inside(model, [[1.0, 2.0]], [1.0], t=[0.5, 2.0]).holds
    True
    """
    if model.depth <= 2:
        raise OutsideHypothesis(
            f"model: must have depth > 2, got depth {model.depth:g}. "
            "At depth 2 the dual is unbounded; use closed_form_flow."
        )
    measured = follow(model, Regression(X, y), t, loss)
    potential: Any = model.potential
    depth, c = model.depth, measured.loss_constant
    up, down = (np.exp((depth - 2.0) * log) for log in (potential.log_plus, potential.log_minus))
    shares = [np.maximum(at.pull * up, -at.pull * down).max() / c for at in measured.snapshots]
    return Claim(
        "dual stays inside its domain",
        measured=float(max(shares)),
        predicted=1.0 / (c * depth * (depth - 2.0)),
        kind=Kind.UPPER,
        reference=Reference(WOODWORTH, "Lemma 8"),
        statement="the integrated residual never leaves the domain of the dual map",
        tolerance_origin=FLOW_ORIGIN,
        rtol=FLOW_TOLERANCE,
    )


@checked
def equal_magnitudes(u: Vector, v: Vector, X: Any, y: Any, t: ArrayLike) -> tuple[Claim, ...]:
    """On w = u v with |u(0)| = |v(0)|: magnitudes stay equal, signs never flip.

    Because u(t) = u(0) exp(sign(u(0) v(0)) int G), which is the third claim.
    [woodworth2020, appendix C]; (11)-(14) are printed with a wrong sign and with the residual
    squared (docs/errata.md, W5).

    >>> X, y, t = [[1.0, 2.0]], [1.0], [0.5, 1.0]
    >>> claims = fb.theory.equal_magnitudes([0.5, -0.3], [0.5, 0.3], X, y, t)
    >>> all(claim.holds for claim in claims)
    True
    """
    u0, v0 = np.asarray(u, dtype=np.float64), np.asarray(v, dtype=np.float64)
    problem = Regression(X, y)
    same_size("v", v0.size, u0.size, "entries, one per entry of u")
    same_size("X", problem.X.shape[1], u0.size, "columns, one per entry of u and v")
    if not np.array_equal(np.abs(u0), np.abs(v0)):
        gap = float(np.abs(np.abs(u0) - np.abs(v0)).max())
        raise OutsideHypothesis(
            f"v: must have |v| = |u|, got a difference of {gap:g}. Pass v = +-u."
        )
    net = UntiedDiagonalNet.from_weights(u0, np.zeros_like(u0), v0, np.zeros_like(v0))
    snapshots = follow(net, problem, t).snapshots
    return (
        _magnitude_claim(
            "magnitudes stay equal", max(_imbalance(at) for at in snapshots), Kind.EQUAL
        ),
        _magnitude_claim(
            "signs never flip",
            min(float(np.min(at.parameters[0] * np.sign(u0))) for at in snapshots),
            Kind.LOWER,
        ),
        _magnitude_claim(
            "growth is exponential",
            max(
                relative(at.parameters[0] - u0 * np.exp(np.sign(u0 * v0) * at.pull), u0)
                / max(1.0, float(np.exp(np.abs(at.pull)).max()))
                for at in snapshots
            ),
            Kind.EQUAL,
        ),
    )


def _imbalance(at: Snapshot) -> float:
    u, _, v, _ = at.parameters
    return relative(np.abs(u) - np.abs(v), u)


def _magnitude_claim(name: str, measured: float, kind: Kind) -> Claim:
    return Claim(
        name,
        measured=measured,
        predicted=0.0,
        kind=kind,
        reference=Reference(WOODWORTH, "appendix C"),
        statement="equal input and output weights stay equal in size and keep their signs",
        tolerance_origin=FLOW_ORIGIN,
        atol=FLOW_TOLERANCE,
    )


@checked
def start_kernel(model: DiagonalNet, X: Matrix) -> Claim:
    """The tangent kernel at an unbiased start is X diag(2 D^2 a^(2D-2)) X^T, a = alpha w0.

    [woodworth2020, section 4]: 8 alpha^2 <x, x'> at depth 2. Measured from the weights' gradients.

    >>> fb.theory.start_kernel(fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]]).holds
    True
    """
    features = np.asarray(X, dtype=np.float64)
    parameters = model.initial_parameters()
    if parameters.w_plus.ndim == 1:
        same_size("X", features.shape[1], parameters.w_plus.size, "columns, one per weight")
    jacobian = np.stack(
        [
            np.concatenate(np.broadcast_arrays(*model.parameter_gradient(parameters, row)))
            for row in features
        ]
    )
    a = np.abs(parameters.w_plus)
    weights = 2.0 * model.depth**2 * a ** (2.0 * model.depth - 2.0)
    predicted = (features * weights) @ features.T
    return Claim(
        "tangent kernel at the start",
        measured=relative(jacobian @ jacobian.T - predicted, predicted),
        predicted=0.0,
        kind=Kind.EQUAL,
        reference=Reference(WOODWORTH, "section 4"),
        statement="the tangent kernel at the start is a weighted inner product",
        tolerance_origin="rounding of one product of matrices",
        atol=1e-13,
    )


def relative(difference: FloatArray, size: FloatArray) -> float:
    return float(np.linalg.norm(difference) / (np.linalg.norm(size) or 1.0))
