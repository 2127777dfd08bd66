"""Random instances of the claims about descent: shares of the step that is stable at the limit."""

import numpy as np

import flowbias as fb
from flowbias import theory
from flowbias.flows import stable_step
from tests.theory.starts import Instances, any_model, log_uniform, problem


def depth_2(rng, d=6):
    """Tied or untied, biased or not."""
    kind = rng.integers(4)
    if kind == 0:
        return fb.DiagonalNet(2, log_uniform(rng, 0.05, 1.0), w0=rng.uniform(0.5, 1.5, d))
    if kind == 1:
        return fb.DiagonalNet.from_weights(*rng.uniform(0.2, 1.0, (2, d)))
    if kind == 2:
        return fb.UntiedDiagonalNet(log_uniform(rng, 0.05, 1.0), shape=rng.uniform(-0.8, 0.8))
    return fb.UntiedDiagonalNet.from_weights(*rng.normal(0.0, 0.6, (4, d)))


def draw_descent_is_a_flow(rng):
    model, (X, y) = any_model(rng), problem(rng)
    batch_size = [None, None, 1, 2][rng.integers(4)]
    momentum = [0.0, 0.0, 0.5][rng.integers(3)]
    step = rng.uniform(0.05, 0.9) * stable_step(model, X, y, batch_size=batch_size)
    step *= (1.0 - momentum) ** 2
    return theory.descent_is_a_flow(model, X, y, step, batch_size, momentum, int(rng.integers(99)))


def draw_steps_shrink_the_start(rng):
    model, (X, y) = any_model(rng), problem(rng)
    momentum = [0.0, 0.0, 0.5][rng.integers(3)]
    step = 0.15 * stable_step(model, X, y) * (1.0 - momentum) ** 2
    return theory.steps_shrink_the_start(model, X, y, step, momentum)


def draw_batches_shrink_the_start(rng):
    model, (X, y) = depth_2(rng), problem(rng)
    batch_size = int(rng.integers(1, 3))
    step = 0.1 * stable_step(model, X, y, batch_size=batch_size)
    return theory.batches_shrink_the_start(model, X, y, step, batch_size)


def draw_momentum_lengthens_the_step(rng):
    model, (X, y), momentum = any_model(rng), problem(rng), rng.uniform(0.1, 0.7)
    step = 0.1 * stable_step(model, X, y) * (1.0 - momentum) ** 2
    return theory.momentum_lengthens_the_step(model, X, y, step, momentum)


def draw_weight_decay_is_a_lasso(rng):
    model, (X, y) = depth_2(rng), problem(rng)
    largest = float(np.abs(X.T @ y).max()) * model.step_rate
    step = 0.5 * stable_step(model, X, y)
    return theory.weight_decay_is_a_lasso(model, X, y, step, rng.uniform(0.05, 1.2) * largest)


def draw_label_noise_shrinks_the_start(rng):
    model, (X, y) = depth_2(rng), problem(rng)
    step = 0.05 * stable_step(model, X, y)
    return theory.label_noise_shrinks_the_start(
        model, X, y, step, rng.uniform(0.1, 1.0), 2000, int(rng.integers(99))
    )


def draw_rest_is_flat(rng):
    model, (X, y) = any_model(rng), problem(rng)
    momentum = [0.0, 0.3][rng.integers(2)]
    step = rng.uniform(0.3, 2.5) * stable_step(model, X, y, momentum=momentum)
    return theory.rest_is_flat(model, X, y, step, momentum)


def draw_imbalance_drifts(rng):
    net = fb.LinearNet.gaussian(6, 2, width=8, scale=log_uniform(rng, 0.05, 0.5), rng=rng)
    X, Y = rng.standard_normal((3, 6)), rng.standard_normal((3, 2))
    tried = fb.gradient_descent(net, X, Y, step_size=1e-4, max_steps=1)
    size = np.linalg.norm(X, 2) ** 2 * (np.linalg.norm(np.linalg.pinv(X) @ Y, 2) + 1.0)
    return theory.imbalance_drifts(net, X, Y, min(0.1, 0.1 / size, 0.1 * tried.stable_step_size))


DESCENT_CLAIMS = {
    "descent_is_a_flow": Instances(draw_descent_is_a_flow, 20),
    "steps_shrink_the_start": Instances(draw_steps_shrink_the_start, 8),
    "batches_shrink_the_start": Instances(draw_batches_shrink_the_start, 6),
    "momentum_lengthens_the_step": Instances(draw_momentum_lengthens_the_step, 6),
    "weight_decay_is_a_lasso": Instances(draw_weight_decay_is_a_lasso, 10),
    "label_noise_shrinks_the_start": Instances(draw_label_noise_shrinks_the_start, 8),
    "rest_is_flat": Instances(draw_rest_is_flat, 16),
    "imbalance_drifts": Instances(draw_imbalance_drifts, 8),
}
