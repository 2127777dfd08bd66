"""What gradient flow on diagonal networks does.  [woodworth2020, sections 4-5, appendices C, D, F]

Each claim follows the weights themselves and compares with the closed forms, which hold for any
start once int r is known, and with the minimizer, which needs no integration at all.

That the flow reaches the fit is what [woodworth2020, Theorems 1 and 3] and [azulay2021, Theorem 1]
start from; for diagonal networks it is a fact, with rates: docs/theory/overview.md, section 2.

A model of degree D, f(alpha theta) = alpha^D f(theta), has derivatives of degree D - 1 and D - 2,
by which kernel and laziness scale with the start [docs/theory/overview.md, section 10]:

    K -> alpha^(2 (D-1)) K,     kappa = ||f_0 - y|| ||D^2 f||/||D f||^2 -> alpha^(-D) kappa, f_0 = 0

Here for diagonal networks, whose degree is their depth; fb.regime.predict takes any module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.flows.request import loss_constant
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits import limit
from flowbias.models import DiagonalNet, UntiedDiagonalNet
from flowbias.models._base import MirrorModel, Parameters
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import (
    Matrix,
    OutsideHypothesis,
    Vector,
    checked,
    positive,
    same_size,
    unbiased_log_start,
)
from flowbias.theory.claim import (
    ONE_PRODUCT,
    WOODWORTH,
    Claim,
    Reference,
    Statement,
    beyond_the_papers,
    relative,
)
from flowbias.theory.measured_flow import FLOW, Snapshot, follow, jacobian


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
    reference = WOODWORTH(place, "(4)-(5)" if model.depth == 2 else "(60)")
    if model.is_biased:
        reference = beyond_the_papers("4 Biased starts")
    return flow_meets_minimizer(model, Regression(X, y), "tied limit", reference)


def flow_meets_minimizer(
    model: MirrorModel, problem: Regression, name: str, reference: Reference
) -> Claim:
    """||flow limit - argmin|| / ||argmin|| == 0, for any model with a potential."""
    words = "gradient flow converges to the minimizer of Q(w) - <grad Q(w(0)), w> on X w = y"
    stated = Statement(reference, words, *FLOW)
    reached, minimizer = follow(model, problem).last.w, limit(model, problem).w
    return stated.same(name, reached, minimizer, among=problem.X)


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
    words = "the flow depends on the past through X^T int r only, by the closed form"
    place = "appendices D and F"
    of_weights = Statement(WOODWORTH(place, "(16), (51), (53)"), words, *FLOW)
    of_predictor = Statement(WOODWORTH(place, "(17), (57)"), words, *FLOW)
    return (
        of_weights.same("weights in closed form", weights, predicted),
        of_predictor.same("predictor in closed form", measured.w, w),
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
    words = "the integrated residual never leaves the domain of the dual map"
    stated = Statement(WOODWORTH("Lemma 8"), words, *FLOW)
    bound = 1.0 / (c * depth * (depth - 2.0))
    return stated.at_most("dual stays inside its domain", max(shares), bound, rtol=FLOW.size)


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
    smallest = min(float(np.min(at.parameters[0] * np.sign(u0))) for at in snapshots)
    off = max(
        relative(at.parameters[0] - u0 * np.exp(np.sign(u0 * v0) * at.pull), u0)
        / max(1.0, float(np.exp(np.abs(at.pull)).max()))
        for at in snapshots
    )
    words = "equal input and output weights stay equal in size and keep their signs"
    stated = Statement(WOODWORTH("appendix C"), words, *FLOW)
    return (
        stated.equal("magnitudes stay equal", max(_imbalance(at) for at in snapshots)),
        stated.at_least("signs never flip", smallest, 0.0),
        stated.equal("growth is exponential", off),
    )


def _imbalance(at: Snapshot) -> float:
    u, _, v, _ = at.parameters
    return relative(np.abs(u) - np.abs(v), u)


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
    slopes = jacobian(model, parameters, features)
    a = np.abs(parameters.w_plus)
    weights = 2.0 * model.depth**2 * a ** (2.0 * model.depth - 2.0)
    predicted = (features * weights) @ features.T
    words = "the tangent kernel at the start is a weighted inner product"
    stated = Statement(WOODWORTH("section 4"), words, *ONE_PRODUCT)
    return stated.same("tangent kernel at the start", slopes @ slopes.T, predicted)


_CONVERGES = beyond_the_papers("2 Convergence")


@checked
def zero_error(
    model: MirrorModel, X: Any, y: Any, t: ArrayLike, loss: str | float = "half"
) -> tuple[Claim, ...]:
    """||P r(t)|| <= ||P r(0)|| exp(-c lambda t): the flow reaches the (least-squares) fit.

    lambda is the least non-zero eigenvalue of X diag(m) X^T, m the least value of the metric J J^T
    that the conserved quantities allow: 8 |w+ w-| at depth 2, sqrt k untied, and at an unbiased
    start of any depth the metric of the start itself. P projects on the range of X. The papers
    assume zero error [woodworth2020, Theorems 1 and 3]; that it is reached is ours.

    >>> model = fb.DiagonalNet(depth=2, scale=0.5)
    >>> all(claim.holds for claim in fb.theory.zero_error(model, [[1.0, 2.0]], [1.0], t=[0.5, 2.0]))
    True
    """
    problem = Regression(X, y)
    measured = follow(model, problem, t, loss)
    fitted = _on_range(problem.X, problem.y)
    rate = measured.loss_constant * _least_eigenvalue(problem.X, least_metric(model))
    start = np.broadcast_to(np.asarray(model.initial), problem.X.shape[1:])
    at_start = float(np.linalg.norm(problem.X @ start - fitted))
    words = "the residual decays at least at the rate of the least tangent kernel"
    stated = Statement(_CONVERGES, words, *FLOW)
    return tuple(
        stated.at_most(
            "zero error",
            np.linalg.norm(problem.X @ at.w - fitted),
            at_start * np.exp(-rate * at.t),
            rtol=FLOW.size,
            atol=FLOW.size * (at_start + float(np.linalg.norm(fitted))),
        )
        for at in measured.snapshots
    )


def least_metric(model: MirrorModel) -> FloatArray:
    """Least value of the metric J J^T, per coordinate, along any flow from this start."""
    potential: Any = model.potential
    if Provides.EXPONENTIAL_DUAL in model.provides:
        # g w'(z) = g rate (e^(log_plus + rate z) + e^(log_minus - rate z)): AM >= GM.
        size = np.exp(0.5 * potential.log_plus + 0.5 * potential.log_minus)
        unit = float(np.exp(potential.log_unit))
        return np.asarray(2.0 * model.mirror_rate * unit * potential.rate * size)
    depth = float(potential.depth)
    # D^2 (w+^(2D-2) + w-^(2D-2)) is convex in w+-^(2-D), whose sum is conserved: least when equal.
    with np.errstate(divide="ignore"):
        reach = np.exp((2.0 - depth) * potential.log_plus) / 2.0
        reach = reach + np.exp((2.0 - depth) * potential.log_minus) / 2.0
        return np.asarray(2.0 * depth**2 * reach ** (-(2.0 * depth - 2.0) / (depth - 2.0)))


@checked
def loss_gap(
    model: MirrorModel, X: Any, y: Any, t: ArrayLike, loss: str | float = "half"
) -> tuple[Claim, ...]:
    """L(w(t)) - L(v) <= D_Q(v, w(0)) / (g t) for every v, here the limit itself.

    D_Q is the Bregman divergence of the potential and g the rate of the mirror flow. It needs no
    lower bound of the metric, so that it holds where coordinates keep one sign as well.

    >>> model = fb.DiagonalNet(depth=2, scale=0.5)
    >>> all(claim.holds for claim in fb.theory.loss_gap(model, [[1.0, 2.0]], [1.0], t=[0.5, 2.0]))
    True
    """
    problem = Regression(X, y)
    positive("t", float(np.min(t)), "At t = 0 the statement is empty.")
    measured = follow(model, problem, t, loss)
    target = limit(model, problem).w
    start = np.broadcast_to(np.asarray(model.initial), target.shape)
    divergence = model.potential.bregman(target, start) / model.mirror_rate
    half = 0.5 * measured.loss_constant
    least = half * float(np.sum((problem.X @ target - problem.y) ** 2))
    at_start = half * float(np.sum((problem.X @ start - problem.y) ** 2))
    words = "the loss falls to its least value like 1/t from any start"
    stated = Statement(_CONVERGES, words, *FLOW)
    return tuple(
        stated.at_most(
            "loss gap",
            half * float(np.sum((problem.X @ at.w - problem.y) ** 2)) - least,
            divergence / at.t,
            rtol=FLOW.size,
            atol=FLOW.size * at_start,
        )
        for at in measured.snapshots
    )


@checked
def escape_from_the_saddle(
    model: DiagonalNet, X: Any, y: Any, loss: str | float = "half"
) -> tuple[Claim, Claim]:
    """At depth 2 the loss halves after a time of the order of ln(1/alpha), no more and no less.

        asinh((1 - 1/sqrt 2) ||y||/(2 sum ||x_i|| a_i^2))/(4 c max ||x_i|| ||y||)  <=  time
        time  <=  2 D_Q(w(inf), 0)/(g L(0)),     a = alpha w0,

    from |w_i| <= 2 a_i^2 sinh(4 c ||x_i|| ||y|| t) and from `loss_gap`; y is the part that can be
    fitted, and L counts from its least value. The paper says that the time grows
    [woodworth2020, section 4]; both sides are asinh or ln of 1/alpha^2 times what the data is.

    >>> model = fb.DiagonalNet(depth=2, scale=1e-4)
    >>> all(c.holds for c in fb.theory.escape_from_the_saddle(model, [[1.0, 2.0]], [1.0]))
    True
    """
    problem = Regression(X, y)
    if model.depth != 2:
        raise OutsideHypothesis(
            f"model: must have depth 2, got {model.depth:g}. Deeper networks leave the saddle "
            "after a power of 1/scale."
        )
    squares = np.exp(2.0 * unbiased_log_start(model, problem.X.shape[1]))
    c = loss_constant(loss, len(problem.y))
    fitted, columns = _on_range(problem.X, problem.y), np.linalg.norm(problem.X, axis=0)
    size = positive("y", float(np.linalg.norm(fitted)), "With nothing to fit nothing moves.")
    reach = (1.0 - np.sqrt(0.5)) * size / (2.0 * float(columns @ squares))
    early = float(np.arcsinh(reach)) / (4.0 * c * float(columns.max()) * size)
    target = limit(model, problem).w
    divergence = model.potential.bregman(target, np.zeros_like(target)) / model.mirror_rate
    late = 2.0 * divergence / (0.5 * c * size**2)
    shares = [
        float(np.sum((problem.X @ at.w - fitted) ** 2)) / size**2
        for at in follow(model, problem, [early, late], loss).snapshots
    ]
    words = "from a small start at depth 2 the saddle holds the flow for a time like ln(1/alpha)"
    stated = Statement(WOODWORTH("section 4"), words, *FLOW)
    return (
        stated.at_least("still near the saddle", shares[0], 0.5),
        stated.at_most("away from the saddle", shares[1], 0.5),
    )


def _on_range(X: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(X @ np.linalg.lstsq(X, y)[0])


def _least_eigenvalue(X: FloatArray, weights: FloatArray) -> float:
    """Least eigenvalue of X diag(weights) X^T on the range of X."""
    rank = int(np.linalg.matrix_rank(X))
    values = np.linalg.svd(X * np.sqrt(weights), compute_uv=False)
    return float(values[rank - 1] ** 2)


@checked
def homogeneous_start(model: DiagonalNet, X: Any, y: Any, factor: float) -> tuple[Claim, Claim]:
    """With all weights times `factor`: K by factor^(2D-2), kappa by factor^(-D), D the depth.

    kappa is what decides the regime [Chizat, Oyallon and Bach 2019]; at an unbiased start

        kappa = ||y|| max_i D (D-1) a_i^(D-2) ||X e_i|| / lmax(X diag(2 D^2 a^(2D-2)) X^T).

    Measured from the gradients of the scaled weights and their differences.

    >>> model = fb.DiagonalNet(depth=3, scale=0.5)
    >>> all(c.holds for c in fb.theory.homogeneous_start(model, [[1.0, 2.0]], [1.0], factor=2.0))
    True
    """
    problem, alpha = Regression(X, y), positive("factor", factor, "It multiplies the weights.")
    d, depth = problem.X.shape[1], model.depth
    a = np.exp(unbiased_log_start(model, d))
    start = [np.broadcast_to(part, (d,)) for part in model.initial_parameters()]
    weights = tuple(alpha * part for part in start)
    kernel = (problem.X * (2.0 * depth**2 * a ** (2.0 * depth - 2.0))) @ problem.X.T
    bend = depth * (depth - 1.0) * a ** (depth - 2.0) * np.linalg.norm(problem.X, axis=0)
    kappa = float(np.linalg.norm(problem.y) * bend.max() / np.linalg.norm(kernel, 2))
    grown, slopes = alpha ** (2.0 * depth - 2.0) * kernel, jacobian(model, weights, problem.X)
    scaling = "a model of degree D has a tangent kernel of degree 2 (D - 1) and a laziness of -D"
    place, powers = beyond_the_papers("10 Homogeneous starts"), " and of two powers"
    exact = Statement(place, scaling, ONE_PRODUCT.origin + powers, ONE_PRODUCT.size)
    measured = Statement(place, scaling, "central differences with steps of 1e-5")
    laziness = _laziness(model, problem, weights), alpha**-depth * kappa
    return (
        exact.same("kernel of a homogeneous start", slopes @ slopes.T, grown),
        # Their error is the square of the step, plus rounding divided by it.
        measured.equal("laziness of a homogeneous start", *laziness, rtol=1e-8),
    )


def _laziness(
    model: DiagonalNet, problem: Regression, weights: Parameters, step: float = 1e-5
) -> float:
    """kappa; D^2 f is diagonal, so that its norm is that of the largest column."""
    up, down = (
        jacobian(model, tuple(stretch * part for part in weights), problem.X)
        for stretch in (1.0 + step, 1.0 - step)
    )
    second = (up - down) / (2.0 * step * np.concatenate(weights))
    residual = np.linalg.norm(problem.X @ model.predictor(weights) - problem.y)
    slope = np.linalg.norm(jacobian(model, weights, problem.X), 2)
    return float(residual * np.linalg.norm(second, axis=0).max() / slope**2)
