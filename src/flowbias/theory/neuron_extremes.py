"""One linear neuron near its start: kernel regimes of scale and shape.  [azulay2021, 7.2, app. F]

q' = 0 at the start v(0), up to the linear term, and with alpha = ||v(0)||, u = w(0)/||w(0)||

    Hess q(v(0)) = 3/2 sqrt((1-s)/(alpha (1+s))) B,    B = I - (1-s)^2/(2 (1+s^2)) u u^T.

The paper's appendix F.2 has lost the factor 3/2. For delta >= 0 the third derivative of q at
length x is at most 8 x/|a|^5 in any direction, a^2 = S + delta/2 (docs/theory/neurons.md), so that
a step e leaves the quadratic by at most 4/3 ||e||^3 (alpha + ||e||)/|a|^5, with a at length
alpha - ||e||: small against the quadratic itself when

    ||e|| (1-s)^2/alpha << 1,

which is the paper's condition (26) with the distance that it leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.ground.typing import FloatArray
from flowbias.limits.neurons.linear import neuron_limit
from flowbias.models.neuron import Neuron
from flowbias.potentials.neuron import NeuronPotential
from flowbias.problems.regression import Regression
from flowbias.theory.arguments import Matrix, OutsideHypothesis, Vector, checked, same_size
from flowbias.theory.claim import AZULAY, Claim, Statement
from flowbias.theory.measured_flow import jacobian
from flowbias.theory.neuron_geometry import DIFFERENCE_STEP, DIFFERENCES
from flowbias.theory.neurons import driven
from flowbias.theory.regimes import SOLVED

COLUMNS = "columns, one per inner weight of the model"
_TAYLOR = AZULAY("appendix F.2")


@checked
def kernel_matrix(model: Neuron) -> FloatArray:
    """B, for which the tangent kernel is a^2 x^T B^{-1} x'.  [azulay2021, (27)]

    >>> fb.theory.kernel_matrix(fb.Neuron(a=2.0, w=[1.0, 0.0]))
    array([[0.8, 0. ],
           [0. , 1. ]])
    """
    s = model.shape
    u = model.w / np.linalg.norm(model.w)
    return np.asarray(np.eye(u.size) - (1.0 - s) ** 2 / (2.0 * (1.0 + s * s)) * np.outer(u, u))


def _along_w(model: Neuron) -> float:
    """(1+s)^2/(2 (1+s^2)): what B does along w, without the cancellation of s near -1."""
    s, complement = model.shape, 2.0 * abs(model.a) / (abs(model.a) + np.linalg.norm(model.w))
    return float(complement**2 / (2.0 * (1.0 + s * s)))


def _inverse_kernel(model: Neuron, X: FloatArray) -> FloatArray:
    """X B^{-1}: B is 1 across w, so that only its part along w is inverted."""
    u = model.w / np.linalg.norm(model.w)
    return np.asarray(X + (1.0 / _along_w(model) - 1.0) * np.outer(X @ u, u))


@checked
def hessian_at_start(model: Neuron) -> Claim:
    """Hess q(v(0)) = 3/2 sqrt((1-s)/(alpha (1+s))) B, by differences of grad q.

    [azulay2021, appendix F.2], with the 3/2 that it drops.

    >>> fb.theory.hessian_at_start(fb.Neuron(a=1.0, w=[0.5, 0.2])).holds
    True
    """
    v, s = model.initial, model.shape
    step = DIFFERENCE_STEP * float(np.linalg.norm(v))
    moves = step * np.eye(v.size)
    grad = model.potential.grad
    measured = np.stack([(grad(v + move) - grad(v - move)) / (2.0 * step) for move in moves])
    factor = 1.5 * np.sqrt((1.0 - s) / (1.0 + s)) / model.scale
    predicted = factor * kernel_matrix(model)
    stated = Statement(
        _TAYLOR, "the quadratic form around the start is the tangent kernel's", *DIFFERENCES
    )
    return stated.same("Hessian of q at the start", measured, predicted)


@checked
def third_order_at_start(model: Neuron) -> Claim:
    """d/dx (qhat'(x)/x) = -3/4 (1-s)^(5/2)/(alpha^(3/2) (1+s^2) sqrt(1+s)) at x = alpha.

    [azulay2021, appendix F.2], again with the factor 3/2.

    >>> fb.theory.third_order_at_start(fb.Neuron(a=1.0, w=[0.5, 0.2])).holds
    True
    """
    alpha, s, potential = model.scale**2, model.shape, model.potential
    step = DIFFERENCE_STEP * alpha

    def across(x: float) -> float:
        return potential.curvatures(x)[1]

    slope = (across(alpha + step) - across(alpha - step)) / (2.0 * step)
    top = 0.75 * (1.0 - s) ** 2.5 / (model.scale**3 * (1.0 + s * s) * np.sqrt(1.0 + s))
    stated = Statement(_TAYLOR, "what the quadratic form around the start leaves out", *DIFFERENCES)
    size = across(alpha) / alpha
    return stated.equal("third order of q at the start", slope, -top, size=size)


def third_derivative_bound(potential: NeuronPotential, x: float, radius: float) -> float:
    """8 (x + r)/|a|^5 with a at length x - r: bounds the third derivative of q that near x."""
    if not (potential.delta >= 0.0 and radius < x):
        return np.inf
    a = potential.weights(x - radius)[0]
    return 8.0 * (x + radius) / float(a**5)


def _within_its_length(moved: float, alpha: float, what: str) -> None:
    if not moved < alpha:
        raise OutsideHypothesis(
            f"{what}: must stay within ||v(0)|| = {alpha:.6g} of the start, got {moved:.6g}. The "
            "third derivative of q is not bounded beyond it: raise the scale of the start."
        )


@checked
def taylor_remainder(model: Neuron, v: Vector) -> Claim:
    """|D_q(v, v(0)) - 1/2 e^T Hess q(v(0)) e| <= ||e||^3/6 times the third derivative's bound.

    e = v - v(0), ||e|| < ||v(0)||, delta >= 0. [azulay2021, appendix F.2, (26)]

    >>> fb.theory.taylor_remainder(fb.Neuron(a=1.0, w=[0.5, 0.2]), [0.01, 0.02]).holds
    True
    """
    _unbalanced_towards_a(model)
    point, start = np.asarray(v, dtype=np.float64), model.initial
    same_size("v", point.size, start.size, "entries, one per inner weight of the model")
    e, alpha = point - start, float(np.linalg.norm(start))
    distance = float(np.linalg.norm(e))
    _within_its_length(distance, alpha, "v")
    factor = 1.5 / abs(model.a)
    quadratic = 0.5 * factor * float(e @ kernel_matrix(model) @ e)
    potential = model.potential
    value = potential.bregman(point, start)
    size = potential.value(point) + potential.value(start)
    size += float(np.linalg.norm(potential.grad(start))) * distance
    bound = third_derivative_bound(potential, alpha, distance) * distance**3 / 6.0
    stated = Statement(
        AZULAY("appendix F.2", "(26)"),
        "q is its quadratic form up to the third order",
        "rounding of the two values of q and of the slope between them",
    )
    return stated.at_most(
        "quadratic form around the start", abs(value - quadratic), bound, atol=1e-14 * size
    )


@checked
def shape_to_one(model: Neuron, X: Any, y: Any) -> Claim:
    """||v(inf) - argmin ||v - v(0)|| || <= ||P_null w|| max(||P w||^2, ||m||^2/D)/|a|, s -> 1.

    D = a^2 - ||P w||^2 > 0, all at the start: at a fixed scale the right side is of the order of
    (1 - s)^2. [azulay2021, section 7.2 and appendix F.2.2]

    >>> model = fb.Neuron.from_scale_shape(scale=0.5, shape=0.999, direction=[1.0, 0.2])
    >>> fb.theory.shape_to_one(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    problem = Regression(X, y)
    same_size("X", problem.X.shape[1], model.w.size, COLUMNS)
    shortest, moving, _ = driven(model, problem)
    resting = model.w - moving
    D = model.a**2 - float(moving @ moving)
    if not D > 0.0:
        raise OutsideHypothesis(
            f"model: must have |a| > ||P w||, got a^2 - ||P w||^2 = {D:.6g}. "
            "The statement is about shapes near 1: use a larger shape."
        )
    nearest = shortest + model.a * resting
    end = neuron_limit(model, problem, None, 1e-10).checked(True).w
    reach = max(float(moving @ moving), float(shortest @ shortest) / D) / abs(model.a)
    stated = Statement(
        AZULAY("section 7.2 and appendix F.2.2"),
        "an outer weight that dominates does not move: l2 distance to the start",
        "a limit certified to 1e-10",
        SOLVED.size,
    )
    return stated.at_most(
        "shape near 1 stays near the start",
        np.linalg.norm(end - nearest),
        np.linalg.norm(resting) * reach,
        size=float(np.linalg.norm(end) + np.linalg.norm(nearest)),
        among=problem.X,
    )


def kernel_solution(model: Neuron, problem: Regression) -> FloatArray:
    """argmin (v - v(0))^T B (v - v(0)) with X v = y: the tangent kernel's interpolant."""
    moves = _inverse_kernel(model, problem.X).T
    misfit = problem.y - problem.X @ model.initial
    return np.asarray(
        model.initial + moves @ np.linalg.lstsq(problem.X @ moves, misfit, rcond=None)[0]
    )


@checked
def large_scale_is_kernel(model: Neuron, X: Any, y: Any) -> Claim:
    """||v(inf) - v_kernel|| <= T ||e||^2/(2 mu), e = v(inf) - v(0), ||e|| < alpha, delta >= 0.

    T bounds the third derivative of q within ||e|| of the start, and mu = 3 |a|/(4 S) its Hessian
    from below there; T/mu is of the order of (1-s)^2/alpha. So alpha -> infinity gives the kernel's
    interpolant if the residual at the start, hence e, is o(alpha) (o(sqrt(alpha)) for the distance
    itself to vanish); the paper has no such condition. [azulay2021, appendix F.2.1]

    >>> model = fb.Neuron.from_scale_shape(scale=30.0, shape=0.5, direction=[1.0, 0.2])
    >>> fb.theory.large_scale_is_kernel(model, [[1.0, 2.0]], [1.0]).holds
    True
    """
    _unbalanced_towards_a(model)
    problem = Regression(X, y)
    end = neuron_limit(model, problem, None, 1e-10).checked(True).w
    alpha = float(np.linalg.norm(model.initial))
    moved = float(np.linalg.norm(end - model.initial))
    _within_its_length(moved, alpha, "limit")
    bound = third_derivative_bound(model.potential, alpha, moved)
    least = model.potential.curvatures(alpha)[0]
    stated = Statement(
        AZULAY("section 7.2 and appendix F.2.1"),
        "a start that the data moves by little has the tangent kernel's limit",
        "a limit certified to 1e-10, and a solve",
        SOLVED.size,
    )
    return stated.at_most(
        "large scale is the kernel regime",
        np.linalg.norm(end - kernel_solution(model, problem)),
        bound * moved**2 / (2.0 * least),
        size=alpha,
        among=problem.X,
    )


@checked
def neuron_tangent_kernel(model: Neuron, X: Matrix) -> Claim:
    """K(x, x') = a^2 x^T B^{-1} x', as the weights' gradients have it.

    [azulay2021, section 7.2], which leaves out a^2; its appendix F has it.

    >>> fb.theory.neuron_tangent_kernel(fb.Neuron(a=1.0, w=[0.5, 0.2]), [[1.0, 2.0]]).holds
    True
    """
    data = np.asarray(X, dtype=np.float64)
    same_size("X", data.shape[1], model.w.size, COLUMNS)
    slopes = jacobian(model, model.initial_parameters(), data)
    predicted = model.a**2 * _inverse_kernel(model, data) @ data.T
    stated = Statement(
        AZULAY("section 7.2"),
        "the matrix B is the inverse of the tangent kernel's, up to a^2",
        "rounding of products; B is inverted in closed form",
        1e-12,
    )
    return stated.same("tangent kernel of one neuron", slopes @ slopes.T, predicted)


def _unbalanced_towards_a(model: Neuron) -> None:
    if model.delta < 0.0:
        raise OutsideHypothesis(
            f"model: must have delta >= 0 (shape >= 0), got {model.delta:.6g}. The bound on the "
            "third derivative of q is proved there."
        )
