"""Random instances of the claims on linear neurons, for the walk over all claims.

Claims that follow a flow are drawn a few times each: tests/limits/test_neuron.py has more of them.
"""

import numpy as np

from flowbias import Neuron, NeuronSum
from flowbias.theory import (
    balance_is_conserved,
    balanced_neurons_bias,
    hessian_at_start,
    identity_plus_outer_is_no_hessian,
    kernel_norm,
    large_scale_is_kernel,
    metric_is_no_hessian,
    neuron_bias,
    neuron_closed_form,
    neuron_tangent_kernel,
    resting_part,
    scale_shape_identities,
    shape_to_one,
    sign_changes_once,
    tangent_kernel_moves,
    taylor_remainder,
    third_order_at_start,
    vanishing_start,
    warp_at_zero,
    warp_is_positive_and_increasing,
    warped_metric_is_hessian,
)
from tests.theory.starts import Instances, log_uniform


def data(rng, d=None):
    """(X, y) with singular values in exp(-+0.6), so that flows end soon."""
    n = int(rng.integers(1, 4))
    d = n + int(rng.integers(1, 4)) if d is None else d
    left, _, right = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    X = (left * np.exp(rng.uniform(-0.6, 0.6, min(n, d)))) @ right
    return X, X @ rng.standard_normal(d)


def vector(rng, least=2):
    return log_uniform(rng, 1e-6, 1e6) * rng.standard_normal(int(rng.integers(least, 6)))


def neuron(rng, d, shape=(0.0, 0.9), scale=(0.5, 2.0)):
    size, s = log_uniform(rng, *scale), rng.uniform(*shape)
    return Neuron.from_scale_shape(size, s, rng.standard_normal(d), sign=int(rng.choice((-1, 1))))


def neurons(rng, d, size=1.0):
    count = int(rng.integers(2, 5))
    return NeuronSum(
        size * rng.standard_normal(count), size * rng.standard_normal((count, d)) / np.sqrt(d)
    )


def draw_neuron_bias(rng):
    X, y = data(rng)
    return neuron_bias(neuron(rng, X.shape[1]), X, y)


def draw_tangent_kernel_moves(rng):
    X, y = data(rng)
    return tangent_kernel_moves(neuron(rng, X.shape[1], (-0.9, 0.9), (1e-3, 2.0)), X, y)


def draw_neuron_closed_form(rng):
    X, y = data(rng)
    return neuron_closed_form(neuron(rng, X.shape[1], shape=(-0.8, 0.9)), X, y)


def draw_sign_changes_once(rng):
    """w pulls against a, so that about half of the outer weights turn around."""
    X, y = data(rng)
    w = rng.standard_normal(X.shape[1])
    a = -np.sign(w @ X.T @ y) * rng.uniform(0.05, 0.6) * np.linalg.norm(w)
    return sign_changes_once(Neuron(a, w), X, y)


def draw_balanced_neurons_bias(rng):
    X, y = data(rng)
    a, e = rng.standard_normal(int(rng.integers(2, 5))), rng.standard_normal(X.shape[1])
    return balanced_neurons_bias(NeuronSum(a, np.outer(a, e / np.linalg.norm(e))), X, y)


def on_neurons(claim, size=1.0):
    def draw(rng):
        X, y = data(rng)
        return claim(neurons(rng, X.shape[1], size), X, y)

    return draw


def draw_vanishing_start(rng):
    X, y = data(rng)
    return vanishing_start(neurons(rng, X.shape[1], log_uniform(rng, 1e-4, 10.0)), X, y)


def draw_warp_is_positive(rng):
    x = log_uniform(rng, 1e-12, 1e12)
    delta = float(rng.choice((-1.0, 0.0, 1.0))) * log_uniform(rng, 1e-6, 1e6)
    return warp_is_positive_and_increasing(delta, x, x * log_uniform(rng, 1.0, 1e3))


def draw_warp_at_zero(rng):
    delta = log_uniform(rng, 1e-6, 1e6)
    return warp_at_zero(delta, delta * log_uniform(rng, 1e-8, 1e2))


def at_delta(claim):
    def draw(rng):
        v = vector(rng)
        sign = rng.choice([-1.0, 0.0, 1.0])
        return claim(sign * log_uniform(rng, 1e-6, 1e6) * float(np.linalg.norm(v)), v)

    return draw


def draw_kernel_norm(rng):
    w = vector(rng)
    root = rng.standard_normal((w.size, w.size + int(rng.integers(0, 4))))
    root *= np.geomspace(1.0, log_uniform(rng, 1e-5, 1.0), w.size)[:, None]
    return kernel_norm(root @ root.T, w)


def at_start(claim, shape):
    def draw(rng):
        d = int(rng.integers(2, 6))
        if rng.random() < 0.5:
            return claim(neuron(rng, d, shape, (1e-6, 1e6)))
        w = rng.standard_normal(d) * log_uniform(rng, 1e-3, 1e3)
        return claim(Neuron(log_uniform(rng, 1e-3, 1e3), w))

    return draw


def draw_taylor_remainder(rng):
    model = neuron(rng, int(rng.integers(1, 6)), (-0.2, 0.95), (1e-6, 1e6))
    step = rng.standard_normal(model.w.size)
    share = log_uniform(rng, 1e-2, 2.0) * np.linalg.norm(model.initial) / np.linalg.norm(step)
    return taylor_remainder(model, model.initial + share * step)


def draw_shape_to_one(rng):
    X, y = data(rng)
    model = Neuron.from_scale_shape(
        log_uniform(rng, 0.01, 100.0),
        1.0 - log_uniform(rng, 1e-6, 0.8),
        rng.standard_normal(X.shape[1]),
    )
    return shape_to_one(model, X, y)


def draw_large_scale_is_kernel(rng):
    X, y = data(rng)
    model = neuron(rng, X.shape[1], (-0.1, 0.9), (0.3, 300.0))
    change = rng.uniform(0.1, 2.0) * model.scale / np.linalg.norm(np.linalg.pinv(X) @ y)
    return large_scale_is_kernel(model, X, X @ model.initial + change * y)


def draw_tangent_kernel(rng):
    d = int(rng.integers(1, 6))
    X = rng.standard_normal((int(rng.integers(1, 6)), d))
    w = rng.standard_normal(d) * log_uniform(rng, 1e-6, 1e6)
    return neuron_tangent_kernel(Neuron(log_uniform(rng, 1e-6, 1e6), w), X)


NEURON_CLAIMS = {
    "balance_is_conserved": Instances(on_neurons(balance_is_conserved), 5),
    "balanced_neurons_bias": Instances(draw_balanced_neurons_bias, 6),
    "hessian_at_start": Instances(at_start(hessian_at_start, (-0.9, 0.9)), 100),
    "identity_plus_outer_is_no_hessian": Instances(
        lambda rng: identity_plus_outer_is_no_hessian(vector(rng)), 50
    ),
    "kernel_norm": Instances(draw_kernel_norm, 100),
    "large_scale_is_kernel": Instances(draw_large_scale_is_kernel, 100),
    "metric_is_no_hessian": Instances(at_delta(metric_is_no_hessian), 50),
    "neuron_bias": Instances(draw_neuron_bias, 8),
    "neuron_closed_form": Instances(draw_neuron_closed_form, 8),
    "neuron_tangent_kernel": Instances(draw_tangent_kernel, 100),
    "resting_part": Instances(on_neurons(resting_part), 5),
    "scale_shape_identities": Instances(at_start(scale_shape_identities, (-0.999, 0.999)), 200),
    "shape_to_one": Instances(draw_shape_to_one, 100),
    "sign_changes_once": Instances(draw_sign_changes_once, 8),
    "taylor_remainder": Instances(draw_taylor_remainder, 200),
    "tangent_kernel_moves": Instances(draw_tangent_kernel_moves, 10),
    "third_order_at_start": Instances(at_start(third_order_at_start, (-0.9, 0.9)), 100),
    "vanishing_start": Instances(draw_vanishing_start, 4),
    "warp_at_zero": Instances(draw_warp_at_zero, 200),
    "warp_is_positive_and_increasing": Instances(draw_warp_is_positive, 200),
    "warped_metric_is_hessian": Instances(at_delta(warped_metric_is_hessian), 50),
}
