"""Random instances of every claim: one function per claim, from a generator to claims.

CLAIMS maps the name of each public claim of flowbias.theory to its instances and to how many of
them a test run draws: hundreds where a claim costs microseconds, fewer where it follows a flow.
"""

import numpy as np

import flowbias as fb
from flowbias import theory
from tests.theory.descent_instances import DESCENT_CLAIMS
from tests.theory.leaky_neuron_instances import LEAKY_NEURON_CLAIMS
from tests.theory.linear_network_instances import LINEAR_NETWORK_CLAIMS
from tests.theory.matrix_factorization_instances import MATRIX_FACTORIZATION_CLAIMS
from tests.theory.neuron_instances import NEURON_CLAIMS
from tests.theory.starts import (
    Instances,
    any_model,
    any_tied,
    biased,
    l1_weights,
    log_uniform,
    loss,
    one_sided,
    outside_range,
    problem,
    simplex_problem,
    small_start,
    tied,
    untied,
)


def draw_zero_error(rng):
    X, y = outside_range(rng) if rng.random() < 0.3 else problem(rng)
    times = np.sort(rng.uniform(0.01, 3.0, 3))
    return theory.zero_error(any_model(rng), X, y, times, loss(rng))


def draw_loss_gap(rng):
    X, y = outside_range(rng) if rng.random() < 0.3 else problem(rng)
    times = np.sort(rng.uniform(0.01, 10.0, 3))
    model = one_sided(rng) if rng.random() < 0.4 else any_model(rng)
    return theory.loss_gap(model, X, y, times, loss(rng))


def draw_equal_magnitudes(rng):
    u = rng.uniform(0.2, 1.5, 6) * rng.choice([-1.0, 1.0], 6)
    v = np.abs(u) * rng.choice([-1.0, 1.0], 6)
    return theory.equal_magnitudes(u, v, *problem(rng), np.sort(rng.uniform(0.1, 5.0, 3)))


def draw_dual_stays_inside(rng):
    depths = (2.5, 3, 4, 5, 6)
    model = tied(rng, depths=depths) if rng.random() < 0.7 else biased(rng)
    if model.depth <= 2:
        model = tied(rng, depths=depths)
    times = np.sort(rng.uniform(0.1, 20.0, 3))
    return (theory.dual_stays_inside(model, *problem(rng), times, loss(rng)),)


def draw_nearly_l1(rng):
    w = rng.standard_normal(rng.integers(1, 8)) * log_uniform(rng, 1e-2, 1e3)
    w *= rng.random(w.size) < 0.8
    w[0] = w[0] or 1.0
    eps = log_uniform(rng, 1e-3, 10.0)
    largest = theory.l1_log_scale(eps, np.abs(w).sum(), w.size)
    log_scale = largest - (rng.random() < 0.5) * log_uniform(rng, 1e-3, 1e3)
    return theory.nearly_l1(w, eps, log_scale)


def draw_not_l1(rng):
    eps = log_uniform(rng, 1e-2, 3.0)
    d = max(np.e, 12.0 ** (4.0 * eps)) * log_uniform(rng, 1.0, 1e6)
    above = (rng.random() < 0.5) * log_uniform(rng, 1e-3, 100.0)
    return (theory.not_l1(eps, d, theory.mismatch_log_scale(eps, d) + above),)


def draw_nearly_l2(rng):
    w = rng.standard_normal(rng.integers(1, 8)) * log_uniform(rng, 1e-3, 1e3)
    eps = log_uniform(rng, 1e-6, 10.0)
    least = theory.l2_log_scale(eps, np.linalg.norm(w))
    above = (rng.random() < 0.5) * log_uniform(rng, 1e-3, 10.0)
    return theory.nearly_l2(w, eps, least + above)


def draw_sharply_l2(rng):
    w = rng.standard_normal(rng.integers(1, 8)) * log_uniform(rng, 1e-3, 1e3)
    return theory.sharply_l2(w, log_uniform(rng, 1e-10, 1.0))


def draw_printed_scales(rng):
    d = int(rng.integers(1, 50))
    eps = float(rng.uniform(0, d)) if rng.random() < 0.5 else log_uniform(rng, 1e-3, 0.9 * d)
    return theory.printed_scales_are_safe(
        eps, log_uniform(rng, 1e-4, 1e4), log_uniform(rng, 1e-4, 1e4), d
    )


def draw_guarantee(guarantee, depths=(), eps=(0.02, 10.0)):
    def draw(rng):
        options = {"depth": float(rng.choice(depths))} if depths else {}
        # Some beyond the eps < d of Theorem 2.
        X, y = problem(rng)
        X, y = X, y * log_uniform(rng, 1e-6, 1e6)
        return (guarantee(X, y, log_uniform(rng, *eps), **options),)

    return draw


def draw_rich_excess(rng):
    model = small_start(rng)
    if rng.random() < 0.5:
        return theory.rich_excess(model, *problem(rng))
    return theory.rich_excess(model, *simplex_problem(rng, l1_weights(model)))


def draw_rich_selection(rng):
    model = small_start(rng)
    if rng.random() < 0.2:
        return theory.rich_selection(model, *problem(rng))
    return theory.rich_selection(model, *simplex_problem(rng, l1_weights(model)))


def draw_kernel_distance(rng):
    depth = float(rng.choice([2, 3, 4, 5]))
    w0 = rng.uniform(0.7, 1.5, 6)
    X, y = problem(rng)
    least = np.abs(fb.min_norm(X, y).w).sum()
    # From outside the hypothesis T >= sqrt(27) to far within it, whatever w0 does to the norm.
    log_scale = (np.log(30.0 * least) + rng.uniform(-1.0, 8.0)) / depth
    model = fb.DiagonalNet(depth=depth, log_scale=log_scale, w0=w0)
    return (theory.kernel_distance(model, X, y),)


def draw_race(rng):
    shape = np.tanh(rng.uniform(-6.0, 6.0))
    return (theory.race(*problem(rng), log_uniform(rng, 1e-12, 1e6), shape),)


def draw_hypentropy_exponential(rng):
    return theory.hypentropy_needs_exponential_scale(
        log_uniform(rng, 1e-3, 0.5), log_uniform(rng, 4.0, 1e6)
    )


def draw_distance_polynomial(rng):
    return theory.distance_needs_polynomial_scale(
        log_uniform(rng, 1e-5, 0.3), log_uniform(rng, 4.0, 1e6)
    )


def draw_depth_polynomial(rng):
    return theory.depth_needs_polynomial_scale(
        log_uniform(rng, 1e-5, 0.3), log_uniform(rng, 4.0, 1e6), rng.choice([3, 4, 5, 8])
    )


def draw_waking_times(rng):
    X = np.linalg.qr(rng.standard_normal((7, 4)))[0] * log_uniform(rng, 0.1, 10.0)
    depth = float(rng.choice([2, 2, 2, 2.5, 3, 4]))
    model = fb.DiagonalNet(
        depth=depth,
        log_scale=-log_uniform(rng, 0.1, 300.0 if depth == 2 else 10.0 / (depth - 2.0)),
        w0=rng.uniform(0.5, 2.0, 4),
    )
    y = rng.standard_normal(7)
    return theory.waking_times(model, X * rng.uniform(0.5, 2.0, 4), y, rng.uniform(0.005, 0.9))


CLAIMS = {
    "waking_times": Instances(draw_waking_times, 20),
    "tied_limit": Instances(lambda rng: (theory.tied_limit(any_tied(rng), *problem(rng)),), 30),
    "untied_limit": Instances(lambda rng: (theory.untied_limit(untied(rng), *problem(rng)),), 20),
    "closed_form_flow": Instances(
        lambda rng: theory.closed_form_flow(
            any_model(rng), *problem(rng), log_uniform(rng, 0.05, 10.0), loss(rng)
        ),
        30,
    ),
    "dual_stays_inside": Instances(draw_dual_stays_inside, 20),
    "equal_magnitudes": Instances(draw_equal_magnitudes, 20),
    "zero_error": Instances(draw_zero_error, 30),
    "loss_gap": Instances(draw_loss_gap, 30),
    "start_kernel": Instances(
        lambda rng: (
            theory.start_kernel(tied(rng, scales=(1e-6, 1e6)), rng.standard_normal((4, 6))),
        ),
        300,
    ),
    "homogeneous_start": Instances(
        lambda rng: theory.homogeneous_start(
            tied(rng, scales=(1e-3, 1e3)), *problem(rng), factor=log_uniform(rng, 0.05, 20.0)
        ),
        200,
    ),
    "metric_from_predictor": Instances(
        lambda rng: (theory.metric_from_predictor(untied(rng), *problem(rng), rng.uniform(0, 3)),),
        20,
    ),
    "hypentropy_small": Instances(
        lambda rng: theory.hypentropy_small(log_uniform(rng, 1e-150, 1e3)), 500
    ),
    "hypentropy_large": Instances(
        lambda rng: theory.hypentropy_large(log_uniform(rng, 1e-3, 1e300)), 500
    ),
    "depth_potential_small": Instances(
        lambda rng: theory.depth_potential_small(
            log_uniform(rng, 1e-100, 1e2), 2.0 + log_uniform(rng, 0.05, 20.0)
        ),
        500,
    ),
    "depth_potential_large": Instances(
        lambda rng: theory.depth_potential_large(
            log_uniform(rng, 1e-3, 1e100), 2.0 + log_uniform(rng, 0.05, 20.0)
        ),
        500,
    ),
    "nearly_l1": Instances(draw_nearly_l1, 500),
    "not_l1": Instances(draw_not_l1, 500),
    "nearly_l2": Instances(draw_nearly_l2, 500),
    "sharply_l2": Instances(draw_sharply_l2, 500),
    "printed_scales_are_safe": Instances(draw_printed_scales, 2000),
    "rich_guarantee": Instances(draw_guarantee(theory.rich_guarantee), 100),
    "kernel_guarantee": Instances(draw_guarantee(theory.kernel_guarantee), 200),
    "sharp_rich_guarantee": Instances(
        draw_guarantee(theory.sharp_rich_guarantee, (2, 3, 4, 6)), 100
    ),
    "sharp_kernel_guarantee": Instances(
        draw_guarantee(theory.sharp_kernel_guarantee, (2, 3, 4, 6), (1e-6, 10.0)), 200
    ),
    "rich_excess": Instances(draw_rich_excess, 100),
    "rich_distance": Instances(
        lambda rng: (theory.rich_distance(small_start(rng), *problem(rng)),), 100
    ),
    "rich_selection": Instances(draw_rich_selection, 100),
    "kernel_distance": Instances(draw_kernel_distance, 200),
    "distance_by_minimization": Instances(
        lambda rng: (
            theory.distance_by_minimization(
                rng.standard_normal(4) * log_uniform(rng, 1e-2, 1e2),
                log_uniform(rng, 0.05, 5.0),
                rng.uniform(0.5, 2.0, 4),
            ),
        ),
        200,
    ),
    "distance_quartic": Instances(
        lambda rng: theory.distance_quartic(log_uniform(rng, 1e-2, 1e3)), 300
    ),
    "distance_is_depth_4": Instances(
        lambda rng: (theory.distance_is_depth_4(log_uniform(rng, 1e-2, 1e6)),), 300
    ),
    "explicit_norm_is_quasi_norm": Instances(
        lambda rng: theory.explicit_norm_is_quasi_norm(
            rng.standard_normal(4) * log_uniform(rng, 1e-6, 1e6), rng.uniform(2.0, 8.0)
        ),
        100,
    ),
    "escape_from_the_saddle": Instances(
        lambda rng: theory.escape_from_the_saddle(
            tied(rng, scales=(1e-12, 0.1), depths=(2, 2, 2, 3)), *problem(rng), loss(rng)
        ),
        20,
    ),
    "closest_interpolator": Instances(
        lambda rng: (
            theory.closest_interpolator(
                *problem(rng), log_uniform(rng, 0.3, 3.0), rng.uniform(0.5, 2.0, 6)
            ),
        ),
        50,
    ),
    "hypentropy_needs_exponential_scale": Instances(draw_hypentropy_exponential, 200),
    "depth_needs_polynomial_scale": Instances(draw_depth_polynomial, 200),
    "distance_needs_polynomial_scale": Instances(draw_distance_polynomial, 200),
    "untied_near_l2": Instances(
        lambda rng: theory.untied_near_l2(rng.standard_normal(5), log_uniform(rng, 1e-3, 1e6)), 500
    ),
    "untied_near_l1": Instances(
        lambda rng: theory.untied_near_l1(rng.standard_normal(5), log_uniform(rng, 1e-300, 10.0)),
        500,
    ),
    "half_kernel_norm": Instances(
        lambda rng: (
            theory.half_kernel_norm(
                fb.UntiedDiagonalNet(
                    scale=log_uniform(rng, 1e-6, 1e6), shape=rng.uniform(-1, 1, 5)
                ),
                rng.standard_normal(5),
            ),
        ),
        200,
    ),
    "race": Instances(draw_race, 100),
    "race_to_rich": Instances(
        lambda rng: (
            theory.race_to_rich(
                *problem(rng), np.tanh(rng.uniform(-8.0, 8.0)), log_uniform(rng, 0.02, 3.0)
            ),
        ),
        100,
    ),
    "race_to_kernel": Instances(
        lambda rng: (
            theory.race_to_kernel(
                *problem(rng), log_uniform(rng, 1e-4, 10.0), log_uniform(rng, 1e-3, 3.0)
            ),
        ),
        100,
    ),
}
CLAIMS |= LINEAR_NETWORK_CLAIMS | MATRIX_FACTORIZATION_CLAIMS
CLAIMS |= NEURON_CLAIMS | LEAKY_NEURON_CLAIMS | DESCENT_CLAIMS
