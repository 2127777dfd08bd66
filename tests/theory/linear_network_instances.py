"""Random instances of the claims on two-layer linear networks, for the walk over all claims.

Claims that follow a flow are drawn a few times here; test_linear_networks.py checks them on
hundreds of starts whose flows are integrated together.
"""

import warnings

import numpy as np
import scipy.linalg

from flowbias import theory
from flowbias.models import LinearNet
from flowbias.models.lifted import NarrowWarning
from tests.theory.starts import Instances, log_uniform


def orthogonal(rng, n):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def inputs(rng, n, d, spread=(0.7, 1.4)):
    """X (n, d) with singular values in `spread`: flows that end soon."""
    k = min(n, d)
    left, right = orthogonal(rng, n)[:, :k], orthogonal(rng, d)[:, :k]
    return (left * rng.uniform(*spread, k)) @ right.T


def any_start(rng):
    """(net, X, Y) of random sizes and scales, rank-deficient X and narrow or wide nets included."""
    n, d, m = (int(size) for size in rng.integers(1, 6, 3))
    width = int(rng.integers(min(d, m), d + m + 4))
    X = rng.standard_normal((n, d)) * log_uniform(rng, 0.1, 10.0)
    if n > 1 and rng.random() < 0.2:
        X[-1] = X[0]
    net = LinearNet.gaussian(
        d,
        m,
        width=width,
        scale_u=log_uniform(rng, 1e-6, 1e6),
        scale_v=log_uniform(rng, 1e-6, 1e6),
        rng=rng,
    )
    return net, X, rng.standard_normal((n, m)) * log_uniform(rng, 0.1, 10.0)


def flow_start(rng):
    """(net, X, Y) with imbalance enough that its flow takes some milliseconds."""
    r, d, m = int(rng.integers(1, 4)), 4, int(rng.integers(1, 3))
    net = LinearNet.gaussian(d, m, width=d + m + 3, scale=rng.uniform(0.5, 0.9), rng=rng)
    return net, inputs(rng, r, d), rng.standard_normal((r, m))


def wide_flow_start(rng):
    """The same from far smaller and far less even layers, balanced ones and repeated samples."""
    net, X, Y = flow_start(rng)
    (d, m), kind = net.shape, rng.integers(5)
    if kind == 0:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NarrowWarning)
            return LinearNet.balanced(X.T @ Y * log_uniform(rng, 1e-3, 1.0), X), X, Y
    if kind == 1:
        return net, np.vstack([X, X[:1]]), np.vstack([Y, Y[:1]])
    sizes = {
        2: (log_uniform(rng, 1e-12, 1e-6),) * 2,
        3: (rng.uniform(1.0, 10.0), log_uniform(rng, 1e-5, 1e-1)),
        4: (log_uniform(rng, 1e-5, 1e-1), rng.uniform(1.0, 10.0)),
    }[kind]
    scales = {"scale_u": sizes[0], "scale_v": sizes[1]}
    return LinearNet.gaussian(d, m, width=d + m + 3, **scales, rng=rng), X, Y


def some_flow_start(rng):
    return flow_start(rng) if rng.random() < 0.5 else wide_flow_start(rng)


def margin_start(rng):
    """(net, X, Y) that starts close enough to zero error to have a margin."""
    while True:
        _, X, Y = flow_start(rng)
        if Y.shape[1] > len(Y):
            continue  # a balanced start of lower rank than Y has no margin
        theta = np.linalg.pinv(X) @ Y
        near = LinearNet.balanced(theta + 0.02 * X.T @ rng.standard_normal(Y.shape), X)
        error = np.linalg.norm(Y - X @ near.product)
        if error < 0.8 * np.linalg.svd(Y, compute_uv=False)[-1]:
            return near, X, Y


def attainable(rng):
    """(D, W) for which some weights attain Proposition 1."""
    r, m = (int(size) for size in rng.integers(1, 6, 2))
    least = min(r, m)
    h = int(rng.integers(least, r + m + 3))
    positive = int(rng.integers(0, min(r, h) + 1))
    negative = int(rng.integers(0, min(m, h - positive) + 1))
    eigenvalues = np.zeros(h)
    eigenvalues[:positive] = rng.exponential(size=positive)
    eigenvalues[positive : positive + negative] = -rng.exponential(size=negative)
    sigma = np.sort(rng.exponential(size=least))[::-1]
    if r == m:
        # the three cases in which the bound is attained for equal sizes
        case = rng.integers(3)
        if case == 0 or m == 1:
            sigma[-1] = 0.0
        elif case == 1:
            sigma[-2] = sigma[-1]
        else:
            eigenvalues[:] = 0.0
            eigenvalues[:r] = rng.normal()
    Q = orthogonal(rng, h)
    D = (Q * eigenvalues) @ Q.T
    W = (orthogonal(rng, r)[:, :least] * sigma) @ orthogonal(rng, m)[:, :least].T
    return 0.5 * (D + D.T), W


def draw_imbalance_shows_the_layers(rng):
    if rng.random() < 0.3:
        return theory.imbalance_shows_the_layers(*any_start(rng)[:2])
    d, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    width = int(log_uniform(rng, d + m, 1e8))
    sizes = {"scale_u": log_uniform(rng, 1e-3, 1.0), "scale_v": log_uniform(rng, 1e-3, 1.0)}
    net = LinearNet.gaussian(d, m, width=width, **sizes, rng=rng)
    return theory.imbalance_shows_the_layers(net, inputs(rng, int(rng.integers(1, 6)), d))


def draw_smallest_singular_value(rng):
    r, h, m = (int(size) for size in rng.integers(1, 7, 3))
    sizes = log_uniform(rng, 1e-6, 1e6), log_uniform(rng, 1e-6, 1e6)
    A, B = rng.standard_normal((r, h)) * sizes[0], rng.standard_normal((h, m)) * sizes[1]
    return (theory.smallest_singular_value(A, B),)


def draw_error_operator(rng):
    r, h, m = (int(size) for size in rng.integers(1, 6, 3))
    shapes = (r, h), (m, h), (r, m)
    return theory.error_operator(
        *(rng.standard_normal(shape) * log_uniform(rng, 1e-6, 1e6) for shape in shapes)
    )


def draw_product_singular_values(rng):
    k, n = (int(size) for size in rng.integers(1, 6, 2))
    m = n + int(rng.integers(0, 4))
    sizes = log_uniform(rng, 1e-6, 1e6), log_uniform(rng, 1e-6, 1e6)
    A, B = rng.standard_normal((k, n)) * sizes[0], rng.standard_normal((n, m)) * sizes[1]
    return theory.product_singular_values(A, B)


def draw_gaussian_singular_values(rng):
    m = int(rng.integers(1, 6))
    n, t = m + int(rng.integers(0, 20)), rng.uniform(1.0, 3.0)
    return (theory.gaussian_singular_values(n, m, t, 500, rng),)


def wide_sizes(rng):
    """(X, m, bounds): data of rank below d, and a width above the least that Lemma 11 asks for."""
    d, m = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    rank = int(rng.integers(1, d))
    delta, exponent = rng.uniform(0.05, 0.3), rng.uniform(0.26, 0.5)
    least = 16.0 * (np.sqrt(m + d) + np.sqrt(2.0 * np.log(2.0 / delta))) ** 2
    width = int(least * rng.uniform(1.01, 4.0))
    bounds = theory.wide_start_bounds(d, m, rank, width, exponent, delta)
    return inputs(rng, rank, d), m, bounds


def draw_wide_start(rng):
    """Singular values anywhere in the interval of the event: likely and unlikely starts alike."""
    X, m, bounds = wide_sizes(rng)
    rows = X.shape[1] + m
    values = np.sqrt(bounds.width) + bounds.T * rng.uniform(-1.0, 1.0, rows)
    Z = orthogonal(rng, rows) * (values * bounds.width**-bounds.exponent)
    Z = Z @ orthogonal(rng, rows)
    return theory.wide_start(LinearNet(Z[: X.shape[1]], Z[X.shape[1] :]), X, bounds)


def draw_wide_start_rate(rng):
    X, m, bounds = wide_sizes(rng)
    delta = 2.0 * np.exp(-0.5 * (bounds.T - np.sqrt(X.shape[1] + m)) ** 2)
    return theory.wide_start_rate(
        X, m, int(bounds.width), rng, exponent=bounds.exponent, delta=delta, samples=100
    )


def draw_wide_limit_rate(rng):
    X = inputs(rng, 2, 3, spread=(1.0, 1.1))
    return (theory.wide_limit_rate(X, rng.standard_normal((2, 1)), 700, rng, samples=8),)


def draw_reaches_min_norm(rng):
    _, X, Y = flow_start(rng)
    net = LinearNet.invariant(X, Y.shape[1], width=9, scale=0.8, rng=rng)
    return (theory.reaches_min_norm(net, X, Y),)


def draw_scalar_rate(rng):
    signs, kind = rng.choice([-1.0, 1.0], 3), rng.integers(20)
    if kind == 0:
        size = float(rng.choice([1e160, 1e-170, 1e300]))
        return theory.scalar_rate(*(signs * size * rng.uniform(0.5, 2.0, 3)))
    if kind == 1:
        return theory.scalar_rate(*(signs * [1.0, 1e-160, 1e160]))
    return theory.scalar_rate(*(signs * [log_uniform(rng, 1e-3, 1e3) for _ in range(3)]))


def balanced_start(rng):
    """(net, X, Y): equal singular values, and imbalance lam I with lam below, at or above 0."""
    r, m = (int(size) for size in rng.integers(1, 5, 2))
    size = rng.uniform(0.7, 1.4)
    basis = orthogonal(rng, r + int(rng.integers(0, 3)))[:r]
    X, Y = size * basis, rng.standard_normal((r, m))
    level = float(rng.choice([-1.0, 0.0, 1.0])) * rng.uniform(0.2, 2.0)
    if level == 0.0:
        theta = basis.T @ rng.standard_normal((r, m))
        return LinearNet.balanced(theta, X, width=min(r, m) + 3, rng=rng), X, Y
    large, small = (r, m) if level > 0.0 else (m, r)
    k = int(rng.integers(1, large + 1))
    B = rng.standard_normal((small, k))
    A = orthogonal(rng, large)[:, :k] @ scipy.linalg.sqrtm(B.T @ B + abs(level) * np.eye(k))
    U, V = (A, B) if level > 0.0 else (B, A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowWarning)  # narrow ones have the closed form as well
        return LinearNet(basis.T @ U, V), X, Y


def draw_scalar_closed_form(rng):
    u, v, y = rng.standard_normal(3) * np.exp(rng.uniform(-2.0, 1.5, 3))
    return (theory.scalar_closed_form(u, v, y, rng.uniform(0.01, 3.0)),)


def draw_wishart_start(rng):
    d, m = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    return theory.wishart_start(d, m, d + m + int(log_uniform(rng, 1, 1e6)), 300, rng)


def times(rng):
    return np.sort(rng.uniform(0.05, 1.0, 4))


LINEAR_NETWORK_CLAIMS = {
    "balanced_closed_form": Instances(
        lambda rng: theory.balanced_closed_form(
            *balanced_start(rng), times(rng), rng.uniform(0.5, 2.0)
        ),
        20,
    ),
    "scalar_closed_form": Instances(draw_scalar_closed_form, 50),
    "wishart_start": Instances(draw_wishart_start, 10),
    "convergence_rate": Instances(lambda rng: (theory.convergence_rate(*any_start(rng)),), 500),
    "rate_from_layers": Instances(lambda rng: theory.rate_from_layers(*any_start(rng)), 500),
    "rate_bound_range": Instances(lambda rng: theory.rate_bound_range(*any_start(rng)), 500),
    "imbalance_shows_the_layers": Instances(draw_imbalance_shows_the_layers, 200),
    "scaled_imbalance": Instances(
        lambda rng: theory.scaled_imbalance(*any_start(rng), log_uniform(rng, 1e-3, 10.0)), 200
    ),
    "smallest_singular_value": Instances(draw_smallest_singular_value, 500),
    "scalar_rate": Instances(draw_scalar_rate, 500),
    "error_operator": Instances(draw_error_operator, 200),
    "attained_rate": Instances(lambda rng: theory.attained_rate(*attainable(rng)), 500),
    "product_singular_values": Instances(draw_product_singular_values, 500),
    "gaussian_singular_values": Instances(draw_gaussian_singular_values, 20),
    "wide_start": Instances(draw_wide_start, 500),
    "wide_start_rate": Instances(draw_wide_start_rate, 8),
    "wide_limit_rate": Instances(draw_wide_limit_rate, 1),
    "exponential_guarantee": Instances(
        lambda rng: (theory.exponential_guarantee(*some_flow_start(rng), times(rng)),), 40
    ),
    "imbalance_guarantee": Instances(
        lambda rng: (theory.imbalance_guarantee(*some_flow_start(rng), times(rng)),), 40
    ),
    "margin_guarantee": Instances(
        lambda rng: theory.margin_guarantee(*margin_start(rng), times(rng)), 5
    ),
    "local_guarantee": Instances(
        lambda rng: theory.local_guarantee(*some_flow_start(rng), times(rng)), 40
    ),
    "asymptotic_rate": Instances(
        lambda rng: theory.asymptotic_rate(*some_flow_start(rng), 2.0 * times(rng)), 40
    ),
    "conserved_imbalance": Instances(
        lambda rng: theory.conserved_imbalance(*some_flow_start(rng), times(rng)), 10
    ),
    "weights_converge": Instances(lambda rng: theory.weights_converge(*some_flow_start(rng)), 10),
    "limit_decomposition": Instances(
        lambda rng: (theory.limit_decomposition(*some_flow_start(rng)),), 20
    ),
    "reaches_min_norm": Instances(draw_reaches_min_norm, 3),
    "output_orthogonality_is_not_enough": Instances(
        lambda rng: theory.output_orthogonality_is_not_enough(
            rng.uniform(0.3, 3.0) * rng.choice([-1.0, 1.0]), rng.uniform(0.5, 1.5)
        ),
        5,
    ),
    "growth_from_invariant_set": Instances(
        lambda rng: theory.growth_from_invariant_set(*some_flow_start(rng)), 20
    ),
    "time_change": Instances(
        lambda rng: (
            theory.time_change(
                *flow_start(rng), times(rng), rng.integers(2, 1000), rng.uniform(0.25, 0.5)
            ),
        ),
        3,
    ),
}
