"""Random problems and starts from which the instances of the claims are made."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import flowbias as fb
from flowbias.theory import Claim


class Instances(NamedTuple):
    """How to draw one instance, and how many to draw."""

    draw: Callable[[np.random.Generator], Claim | tuple[Claim, ...]]
    count: int


def problem(rng, n=3, d=6):
    """Gaussian features, planted predictor of ordinary size; fewer samples than features.

    One in eight has a sample twice, and one in eight as many samples as features: one fit only.
    """
    kind = rng.integers(8)
    X = rng.standard_normal((d if kind == 0 else n, d))
    if kind == 1:
        X[-1] = -X[0]
    return X, X @ (rng.standard_normal(d) * rng.uniform(0.2, 2.0))


def simplex_problem(rng, weights, n=3):
    """Every non-negative solution minimizes sum weights |w|: the first row holds the weights."""
    d = len(weights)
    X = np.vstack([weights, rng.standard_normal((n - 1, d))])
    return X, X @ rng.uniform(0.1, 1.0, d)


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def tied(rng, d=6, scales=(0.05, 3.0), depths=(2, 2, 3, 4, 5, 2.5)):
    """A tied start of random depth, scale and shape."""
    depth = float(rng.choice(depths))
    return fb.DiagonalNet(depth=depth, scale=log_uniform(rng, *scales), w0=rng.uniform(0.5, 1.5, d))


def biased(rng, d=6):
    plus, minus = rng.uniform(0.2, 1.5, d), rng.uniform(0.2, 1.5, d)
    return fb.DiagonalNet.from_weights(plus, minus, depth=float(rng.choice([2, 3, 4])))


def untied(rng, d=6):
    if rng.random() < 0.3:
        shape = rng.uniform(-0.9, 0.9, d)
        return fb.UntiedDiagonalNet(scale=log_uniform(rng, 0.1, 2.0), shape=shape)
    return fb.UntiedDiagonalNet.from_weights(*rng.standard_normal((4, d)))


def one_sided(rng, d=6):
    """Some weights absent from the start: those coordinates keep one sign."""
    plus, minus = rng.uniform(0.2, 1.5, (2, d))
    plus[0], minus[1:3] = 0.0, 0.0
    return fb.DiagonalNet.from_weights(plus, minus, depth=float(rng.choice([2, 3])))


def any_tied(rng):
    return biased(rng) if rng.random() < 0.3 else tied(rng)


def any_model(rng):
    return untied(rng) if rng.random() < 0.3 else any_tied(rng)


def loss(rng):
    return ["half", "sum", "half_mean", "mean", 0.7][rng.integers(5)]


def outside_range(rng):
    """More samples than rank: y cannot be fitted, the flow goes to the least-squares fit."""
    X = rng.standard_normal((3, 6))
    X = np.vstack([X, X[0] - X[1]])
    return X, rng.standard_normal(4)


def small_start(rng, d=6):
    """A start towards the rich limit: any small scale at depth 2, alpha^(D-2) to e^-12 beyond."""
    depth = float(rng.choice([2, 3, 4, 6]))
    low, high = (-2000.0, -1.0) if depth == 2 else (-12.0 / (depth - 2.0), -0.5)
    return fb.DiagonalNet(
        depth=depth, log_scale=rng.uniform(low, high), w0=rng.uniform(0.5, 1.5, d)
    )


def l1_weights(model):
    """Weights of the l1 norm that the rich limit of this start minimizes, |w0|^(2-D)."""
    start = model.at_log_scale(0.0).initial_parameters().w_plus
    return np.abs(start) ** (2.0 - model.depth)
