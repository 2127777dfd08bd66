"""The metric of one linear neuron: no Hessian, until time is warped.  [azulay2021, 5, app. B]

    H(v) = (a^2 I + w w^T)^{-1} = (I - v v^T/(2 a^2 S))/a^2,   a^2 = S + delta/2,
    S = sqrt(||v||^2 + delta^2/4)

For any H = h1(x) I - h2(x) v v^T, x = ||v||, the defect of the Hessian-map condition (6) is

    d_k H_ij - d_j H_ik = (h1'(x)/x + h2(x)) (v_k I_ij - v_j I_ik),

of Frobenius norm sqrt(2 (d - 1)) x |h1'/x + h2|: 1/(2 a^4 S) for H, 0 for |a| H, -1 for I + v v^T.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.typing import FloatArray
from flowbias.models.neuron import Neuron
from flowbias.potentials.neuron import NeuronPotential
from flowbias.theory.arguments import (
    Matrix,
    OutsideHypothesis,
    Vector,
    checked,
    positive,
    same_size,
    unresolved,
)
from flowbias.theory.claim import AZULAY, Allowed, Claim, Statement, Tolerance

# Step of central differences relative to ||v||; their error is its square times a few, plus
# rounding divided by it.
DIFFERENCE_STEP = 1e-5
DIFFERENCES = Tolerance("central differences with steps of 1e-5 ||v||", 1e-8)
FEW_ROUNDINGS = Tolerance("a few roundings of each term", 1e-14)


@checked
def hessian_map_defect(metric: Callable[[FloatArray], FloatArray], v: Vector) -> float:
    """||d_k H_ij - d_j H_ik||_F at v, by central differences: 0 where H is a Hessian (and d > 1).

    [azulay2021, (6)]

    >>> fb.theory.hessian_map_defect(lambda v: np.diag(v**2), [0.5, 0.2]) < 1e-8
    True
    """
    point = np.asarray(v, dtype=np.float64)
    if point.size < 2 or not point.any():
        raise InputError(
            f"v: must be a nonzero vector of at least 2 entries, got {v!r}. With one entry every "
            "positive function is a second derivative."
        )
    step = DIFFERENCE_STEP * float(np.linalg.norm(point))
    moves = step * np.eye(point.size)
    slopes = [(metric(point + move) - metric(point - move)) / (2.0 * step) for move in moves]
    derivative = np.stack(slopes, axis=2)  # d_k H_ij at [i, j, k]
    return float(np.linalg.norm(derivative - derivative.transpose(0, 2, 1)))


@checked
def neuron_metric(delta: float) -> Callable[[FloatArray], FloatArray]:
    """v -> H(v), with H v' = -c X^T r along the flow.  [azulay2021, (23)]

    >>> fb.theory.neuron_metric(delta=0.0)(np.array([3.0, 4.0])).round(6)
    array([[ 0.164, -0.048],
           [-0.048,  0.136]])
    """
    potential = NeuronPotential(delta)

    def metric(v: FloatArray) -> FloatArray:
        x = float(np.linalg.norm(v))
        a, m = potential.weights(x)
        # (a^2 I + w w^T)^{-1}, where a general inverse would lose the condition 1 + m^2/a^2.
        unit = v / x if x > 0.0 else v
        share = (m / np.hypot(a, m)) ** 2
        return np.asarray((np.eye(v.size) - share * np.outer(unit, unit)) / a**2)

    return metric


def time_warp(delta: float, x: float) -> float:
    """g(x) = |a| of a neuron whose predictor has length x.  [azulay2021, appendix B.1]

    The paper writes it as sqrt(S - delta/2) (S + delta/2)/x. With the 3/2 of qhat', which it drops
    there, g H is the Hessian of q for g = 3/2 |a|.
    """
    return NeuronPotential(delta).weights(x)[0]


@checked
def metric_is_no_hessian(delta: float, v: Vector) -> Claim:
    """The metric misses the Hessian-map condition by sqrt(2 (d-1)) ||v||/(2 a^4 S) > 0.

    [azulay2021, appendix B.1], which shows that it does for delta = 0.

    >>> fb.theory.metric_is_no_hessian(delta=0.5, v=[0.5, 0.2]).holds
    True
    """
    point = np.asarray(v, dtype=np.float64)
    x = float(np.linalg.norm(point))
    a, S = time_warp(delta, x), float(np.hypot(x, 0.5 * delta))
    predicted = np.sqrt(2.0 * (point.size - 1)) * x / (2.0 * a**4 * S)
    return _defect("metric of a neuron is no Hessian", neuron_metric(delta), point, predicted, a)


@checked
def warped_metric_is_hessian(delta: float, v: Vector) -> tuple[Claim, Claim]:
    """|a| H meets the condition, and 3/2 |a| H is the Hessian of q.  [azulay2021, appendix B.1]

    >>> all(claim.holds for claim in fb.theory.warped_metric_is_hessian(delta=0.5, v=[0.5, 0.2]))
    True
    """
    point = np.asarray(v, dtype=np.float64)
    x, metric = float(np.linalg.norm(point)), neuron_metric(delta)
    a = time_warp(delta, x)

    def warped(at: FloatArray) -> FloatArray:
        return time_warp(delta, float(np.linalg.norm(at))) * metric(at)

    potential = NeuronPotential(delta)
    inverse = np.linalg.inv(potential.hess_dual(potential.grad(point)))
    # m^2 - |delta| = a^2 keeps as many digits fewer as the matrix is ill-conditioned.
    atol = 10.0 * FEW_ROUNDINGS.size * (1.0 + x * x / a**4)
    hessian = Statement(
        AZULAY("appendix B", "(24)"),
        "3/2 |a| (a^2 I + w w^T)^{-1} is the Hessian of the potential",
        "an inverse of condition 1 + ||w||^2/a^2",
    )
    name, allowed = (
        "warped metric is the Hessian of q",
        Allowed(atol=atol, silence=unresolved(atol)),
    )
    return (
        _defect("warped metric meets the condition", warped, point, 0.0, np.sqrt(a)),
        hessian.same(name, 1.5 * warped(point), inverse, **allowed),
    )


@checked
def identity_plus_outer_is_no_hessian(v: Vector) -> Claim:
    """I + v v^T misses the condition by sqrt(2 (d-1)) ||v||: the test's negative control.

    [azulay2021, section 3, footnote 3]

    >>> fb.theory.identity_plus_outer_is_no_hessian([0.5, 0.2]).holds
    True
    """
    point = np.asarray(v, dtype=np.float64)
    x = float(np.linalg.norm(point))
    predicted = np.sqrt(2.0 * (point.size - 1)) * x
    size = 1.0 / np.sqrt(1.0 + x * x)

    def metric(at: FloatArray) -> FloatArray:
        return np.eye(at.size) + np.outer(at, at)

    return _defect("I + v v^T is no Hessian", metric, point, predicted, size)


def _defect(
    name: str,
    metric: Callable[[FloatArray], FloatArray],
    v: FloatArray,
    predicted: float,
    weight: float,
) -> Claim:
    """The defect against its closed form; the metric is of size 1/weight^2."""
    if not v.any():
        raise OutsideHypothesis(
            "v: must not be all zeros, where the defect is 0. Pass a predictor."
        )
    size = np.sqrt(float(v.size)) / (weight**2 * float(np.linalg.norm(v)))
    too_small = 0.0 < predicted <= DIFFERENCES.size * size
    words = "the Hessian-map condition, differentiated numerically"
    stated = Statement(AZULAY("section 3 and appendix B.1", "(6)"), words, *DIFFERENCES)
    silence = "differences do not tell a defect this small from none" if too_small else ""
    return stated.equal(name, hessian_map_defect(metric, v), predicted, size=size, silence=silence)


@checked
def warp_is_positive_and_increasing(delta: float, x: float, y: float) -> tuple[Claim, ...]:
    """sqrt(delta) <= g(x) <= g(y) <= sqrt(delta + y) for 0 < x <= y, and g > 0.

    [azulay2021, appendix B.1]

    >>> claims = fb.theory.warp_is_positive_and_increasing(delta=0.5, x=0.3, y=0.6)
    >>> all(claim.holds for claim in claims)
    True
    """
    if not 0.0 < x <= y:
        raise InputError(f"x: must satisfy 0 < x <= y, got {x!r} and y = {y!r}. Swap the two.")
    first, second = time_warp(delta, x), time_warp(delta, y)

    def bound(label: str, measured: float, predicted: float) -> Claim:
        words = "the warp is positive, increasing, and bounded for bounded predictors"
        stated = Statement(AZULAY("appendix B.1"), words, *FEW_ROUNDINGS)
        rounding = FEW_ROUNDINGS.size
        return stated.at_least(f"time warp, {label}", measured, predicted, rtol=rounding)

    return (
        bound("positive", first, float(np.sqrt(max(delta, 0.0)))),
        bound("increasing", second, first),
        bound("bounded", float(np.sqrt(max(delta, 0.0) + y)), second),
    )


@checked
def warp_at_zero(delta: float, x: float) -> tuple[Claim, Claim]:
    """sqrt(delta) <= g(x) <= sqrt(delta) + x^2/(2 delta^(3/2)): Lemma 3 with its limit put right.

    The statement prints the limit 0; its own proof ends with sqrt(delta). [azulay2021, Lemma 3]

    >>> all(claim.holds for claim in fb.theory.warp_at_zero(delta=0.5, x=0.3))
    True
    """
    root = float(np.sqrt(positive("delta", delta, "At delta = 0 the limit is 0 indeed.")))
    words = "the warp does not vanish at the zero predictor"
    stated = Statement(AZULAY("appendix H", "Lemma 3"), words, *FEW_ROUNDINGS)
    return stated.between(
        "time warp near zero",
        time_warp(delta, positive("x", x, "Pass a length.")),
        (root, root + x * x / (2.0 * root**3)),
        size=root,
    )


@checked
def scale_shape_identities(model: Neuron) -> tuple[Claim, ...]:
    """delta = 4 alpha s/(1 - s^2) and the three roots that go with it.  [azulay2021, Lemmas 1, 2]

    alpha = |a| ||w|| = scale^2, S = alpha (1 + s^2)/(1 - s^2), and
    S -+ delta/2 = alpha (1 -+ s)/(1 +- s).

    >>> model = fb.Neuron.from_scale_shape(scale=0.5, shape=0.2, direction=[1.0, 0.2])
    >>> all(claim.holds for claim in fb.theory.scale_shape_identities(model))
    True
    """
    alpha, s, delta = model.scale**2, model.shape, model.delta
    S = float(np.hypot(alpha, 0.5 * delta))
    outer, inner = model.a**2, float(model.w @ model.w)
    lemma_2 = {
        "sqrt(alpha^2 + delta^2/4)": (S, alpha * (1.0 + s * s) / (1.0 - s * s)),
        "... - delta/2 = ||w||^2": (inner, alpha * (1.0 - s) / (1.0 + s)),
        "... + delta/2 = a^2": (outer, alpha * (1.0 + s) / (1.0 - s)),
    }
    stated = {"delta": ("Lemma 1", (delta, 4.0 * alpha * s / (1.0 - s * s)))}
    stated |= {name: ("Lemma 2", pair) for name, pair in lemma_2.items()}
    # 1 - |s| keeps only eps/(1 - |s|) of its digits, and delta is a difference of squares.
    slack = FEW_ROUNDINGS.size / (1.0 - abs(s)) * (outer + inner)
    return tuple(
        Statement(
            AZULAY("appendix H", lemma),
            "balance, scale and shape of one neuron",
            "a few roundings, magnified by the cancellation in 1 - |s|",
        ).equal(f"scale and shape: {name}", *pair, atol=slack)
        for name, (lemma, pair) in stated.items()
    )


@checked
def kernel_norm(matrix: Matrix, w: Vector) -> Claim:
    """||f||_K^2 = w^T A^{-1} w for f = <w, .> and K(x, x') = x^T A x'.  [azulay2021, Lemma 4]

    Measured as the least squared norm of theta with A^(1/2) theta = w, the definition of the norm.

    >>> fb.theory.kernel_norm([[2.0, 0.0], [0.0, 1.0]], [0.5, 0.2]).holds
    True
    """
    A, vector = np.asarray(matrix, dtype=np.float64), np.asarray(w, dtype=np.float64)
    same_size("matrix", A.shape[0], A.shape[1], "rows, as many as columns")
    same_size("w", vector.size, len(A), "entries, one per row of the matrix")
    values, vectors = np.linalg.eigh(A)
    if not values[0] > 0.0:
        raise InputError(
            f"matrix: must be positive definite, got a least eigenvalue of {values[0]:.3g}. "
            "Pass that of a kernel on independent inputs."
        )
    rtol = 100.0 * FEW_ROUNDINGS.size * float(values[-1] / values[0])
    root = (vectors * np.sqrt(values)) @ vectors.T
    theta = np.linalg.lstsq(root, vector, rcond=None)[0]
    words = "the kernel norm of a linear predictor"
    stated = Statement(AZULAY("appendix H", "Lemma 4"), words, "two solves with the condition of A")
    return stated.equal(
        "norm of a linear kernel",
        float(theta @ theta),
        float(vector @ np.linalg.solve(A, vector)),
        rtol=rtol,
        silence=unresolved(rtol),
    )
