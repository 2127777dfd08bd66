"""For every claim something that makes it fail: a wrong flow, a wrong limit, a wrong matrix.

A claim that no mutation breaks would hold whatever the code did. MUTATIONS maps the name of each
public claim to changes of what it is made of; each of its claims must fail under one of them.
"""

import dataclasses
import importlib
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg


class Mutation(NamedTuple):
    """What is changed, as `module:name` (in flowbias.theory unless it is absolute), and how."""

    where: str
    change: Callable[[Any], Any]

    def apply(self, monkeypatch):
        module, path = self.where.split(":")
        if not module.startswith(("flowbias", "numpy")):
            module = f"flowbias.theory.{module}"
        *owners, name = path.split(".")
        owner = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        original = vars(owner).get(name, getattr(owner, name))
        monkeypatch.setattr(owner, name, mutated(original, self.change))


def mutated(original, change):
    """A function or property whose result is changed, or a function changed as a whole."""
    if isinstance(change, OfTheFunction):
        return change.change(original)
    if isinstance(original, property):
        return property(lambda self: change(original.fget(self)))
    if isinstance(original, cached_property):
        return property(lambda self: change(original.func(self)))

    @wraps(original)
    def call(*args, **kwargs):
        return change(original(*args, **kwargs))

    return call


class OfTheFunction(NamedTuple):
    """A change of the function, where that of its result would not know enough."""

    change: Callable[[Any], Any]


class Changed:
    """An object with some attributes changed."""

    def __init__(self, original, changes):
        self._original, self._changes = original, changes

    def __getattr__(self, name):
        value = getattr(self._original, name)
        return self._changes[name](value) if name in self._changes else value

    def checked(self, _throw):
        return self


def attributes(**changes):
    return lambda original: Changed(original, changes)


def times(factor):
    return lambda value: factor * value


def plus(amount):
    return lambda value: value + amount


def each(change):
    """Of every part of a tuple of numbers or arrays."""
    return lambda parts: getattr(parts, "_make", tuple)(map(change, parts))


def bent(size):
    """A vector moved by `size` of its length, along no particular direction."""

    def change(w):
        wave = np.cos(np.arange(w.size, dtype=float)).reshape(w.shape)
        return w + size * np.linalg.norm(w) * wave / np.linalg.norm(wave)

    return change


def flow(weights=lambda x: x, w=lambda x: x, pull=lambda x: x):
    """A measured flow with other weights, predictors or integrated pulls."""

    def change(measured):
        return dataclasses.replace(
            measured,
            snapshots=tuple(
                dataclasses.replace(
                    at, parameters=tuple(map(weights, at.parameters)), w=w(at.w), pull=pull(at.pull)
                )
                for at in measured.snapshots
            ),
        )

    return change


def first_weights(change):
    """Only u+ of an untied network."""

    def changed(measured):
        snapshots = tuple(
            dataclasses.replace(at, parameters=(change(at.parameters[0]), *at.parameters[1:]))
            for at in measured.snapshots
        )
        return dataclasses.replace(measured, snapshots=snapshots)

    return changed


def later(change):
    """Factors that leave the flow after its start."""

    def changed(path):
        return dataclasses.replace(path, Z=np.concatenate([path.Z[:1], change(path.Z[1:])]))

    return changed


def slower(factor):
    """The same path on a clock that is `factor` times as slow."""
    return lambda path: dataclasses.replace(path, t=factor * path.t)


def turned_at_the_end(path):
    """Both factors with the other sign: the same product, far from where they were."""
    return dataclasses.replace(path, Z=np.concatenate([path.Z[:-1], -path.Z[-1:]]))


def with_less(name):
    """A call whose argument of this name is half of what it was asked for."""
    return OfTheFunction(
        lambda call: lambda *args, **how: call(*args, **{**how, name: 0.5 * how.get(name, 0.0)})
    )


def stationary_end(follow):
    """An end at which grad Q_mu lies in the span of the measurements, as at a minimizer."""

    def followed(model, problem, *args, **kwargs):
        path = follow(model, problem, *args, **kwargs)
        dual = np.linspace(0.5, 1.0, len(problem.target))
        left, values, right = scipy.linalg.svd(problem.adjoint(dual), full_matrices=False)
        M = (left * (model.gram[0, 0] * np.sinh(values))) @ right
        return Changed(path, {"M": lambda _: M[None]})

    return followed


def one_row(root):
    """All of a root's size in its first row: of the same trace, and far from the identity."""
    changed = np.zeros_like(root)
    changed[0, 0] = np.linalg.norm(root)
    return changed


def signs(t, a):
    """An outer weight that changes its sign all the time."""
    return a * np.sign(np.cos(1e3 * t + 0.1))


def replaced(index, change):
    """Of a tuple, one entry."""
    return lambda parts: tuple(change(p) if i == index else p for i, p in enumerate(parts))


def doubled_after_start(x):
    return np.concatenate([x[:1], 1.1 * x[1:] + 0.1])


UP, DOWN = times(1.5), times(0.5)
WRONG_LIMIT = attributes(w=bent(0.1))
LARGE_LIMIT, SMALL_LIMIT = attributes(w=times(20.0)), attributes(w=times(0.05))
WRONG_FACTORS = later(bent(0.1))
SLOW = slower(1e3)


def both_sides(where, up=UP, down=DOWN):
    return Mutation(where, up), Mutation(where, down)


MUTATIONS = {
    # stages
    "waking_times": both_sides("flowbias.limits.stage_path:StagePath.wake_times"),
    # diagonal networks
    "tied_limit": (Mutation("diagonal_networks:limit", WRONG_LIMIT),),
    "untied_limit": (Mutation("diagonal_networks:limit", WRONG_LIMIT),),
    "closed_form_flow": (Mutation("diagonal_networks:follow", flow(weights=UP, w=UP)),),
    "dual_stays_inside": (Mutation("diagonal_networks:follow", flow(pull=times(1e3))),),
    "equal_magnitudes": (Mutation("diagonal_networks:follow", first_weights(times(-1.1))),),
    "zero_error": (Mutation("diagonal_networks:follow", flow(w=plus(10.0))),),
    "loss_gap": (Mutation("diagonal_networks:follow", flow(w=plus(100.0))),),
    "start_kernel": (
        Mutation("flowbias.models:DiagonalNet.parameter_gradient", each(times(1.001))),
    ),
    "homogeneous_start": (
        Mutation("flowbias.models:DiagonalNet.parameter_gradient", each(times(1.001))),
    ),
    "metric_from_predictor": (Mutation("initialization_shape:follow", flow(weights=UP)),),
    # regularizers
    "hypentropy_small": both_sides("regularizers:_term"),
    "hypentropy_large": both_sides("regularizers:_term"),
    "depth_potential_small": both_sides("regularizers:_term"),
    "depth_potential_large": both_sides("regularizers:_term"),
    "nearly_l1": both_sides("flowbias.potentials:Hypentropy.value", times(20.0)),
    "not_l1": (Mutation("regularizers:_term", plus(1.0)),),
    "nearly_l2": both_sides("regularizers:_four_scale_squared", times(20.0)),
    "sharply_l2": both_sides("regularizers:_four_scale_squared"),
    "untied_near_l2": both_sides("flowbias.potentials:UntiedPotential.value"),
    "untied_near_l1": both_sides("flowbias.potentials:UntiedPotential.value"),
    "half_kernel_norm": (Mutation("flowbias.models:UntiedDiagonalNet.tangent_kernel", UP),),
    "distance_by_minimization": (Mutation("explicit_distance:_least_distance", times(1.001)),),
    "explicit_norm_is_quasi_norm": (Mutation("explicit_distance:_least_squares", times(1.001)),),
    "escape_from_the_saddle": (
        Mutation(
            "diagonal_networks:follow",
            lambda measured: dataclasses.replace(measured, snapshots=measured.snapshots[::-1]),
        ),
    ),
    "distance_quartic": (
        Mutation("explicit_distance:_depth_4", times(1.01)),
        Mutation("numpy:roots", np.real),
    ),
    "distance_is_depth_4": (Mutation("explicit_distance:_depth_4", times(1.001)),),
    "closest_interpolator": (Mutation("explicit_distance:limit", WRONG_LIMIT),),
    "hypentropy_needs_exponential_scale": both_sides(
        "regularizers:l1_approach_log_scale", plus(0.5), plus(-0.5)
    ),
    "depth_needs_polynomial_scale": both_sides(
        "regularizers:l1_approach_log_scale", plus(3.0), plus(-3.0)
    ),
    "distance_needs_polynomial_scale": both_sides(
        "regularizers:l1_approach_log_scale", plus(3.0), plus(-3.0)
    ),
    # scales that guarantee a regime
    "printed_scales_are_safe": (
        Mutation("regimes:sharp_rich_log_scale", plus(-1e6)),
        Mutation("regimes:sharp_kernel_log_scale", plus(10.0)),
    ),
    "rich_guarantee": (Mutation("regimes:limit", LARGE_LIMIT),),
    "kernel_guarantee": (Mutation("regimes:limit", LARGE_LIMIT),),
    "sharp_rich_guarantee": (Mutation("regimes:limit", LARGE_LIMIT),),
    "sharp_kernel_guarantee": (Mutation("regimes:limit", LARGE_LIMIT),),
    "rich_excess": both_sides("extremes:limit", LARGE_LIMIT, SMALL_LIMIT),
    "rich_distance": (Mutation("extremes:limit", LARGE_LIMIT),),
    "rich_selection": (
        Mutation("extremes:limit", WRONG_LIMIT),
        *both_sides("extremes:limit", LARGE_LIMIT, SMALL_LIMIT),
    ),
    "kernel_distance": (Mutation("extremes:limit", LARGE_LIMIT),),
    "race": (Mutation("initialization_shape:effective_log_scale", plus(0.5)),),
    "race_to_rich": (Mutation("initialization_shape:limit", LARGE_LIMIT),),
    "race_to_kernel": (Mutation("initialization_shape:limit", LARGE_LIMIT),),
    # two-layer linear networks
    "balanced_closed_form": (Mutation("linear_networks:follow_weights", WRONG_FACTORS),),
    "scalar_closed_form": (Mutation("linear_networks:follow_weights", WRONG_FACTORS),),
    "wishart_start": (Mutation("flowbias.models.lifted:bartlett_root", UP),),
    "convergence_rate": (Mutation("reduced_net:ReducedNet.rate", times(1e-2)),),
    "rate_from_layers": (
        Mutation("reduced_net:ReducedNet.rate", times(1e-2)),
        Mutation("reduced_net:ReducedNet.rate_bound", times(1e2)),
    ),
    "rate_bound_range": both_sides("imbalance_bounds:gain", times(1e2), times(-1.0)),
    "scaled_imbalance": (
        Mutation("imbalance_bounds:gain", UP),
        Mutation("reduced_net:ReducedNet.rate", UP),
    ),
    "imbalance_shows_the_layers": (
        Mutation("flowbias.models.imbalance:Imbalance.positive", DOWN),
        Mutation("flowbias.models.imbalance:Imbalance.negative", DOWN),
    ),
    "smallest_singular_value": (Mutation("imbalance_bounds:gain", times(1e2)),),
    "scalar_rate": (Mutation("imbalance_bounds:_scalar_loss_rate", times(0.999)),),
    "error_operator": (Mutation("numpy:kron", times(1.01)),),
    "attained_rate": (
        Mutation(
            "imbalance_tightness:attaining_weights", lambda found: found._replace(U=1.1 * found.U)
        ),
    ),
    "product_singular_values": (Mutation("wide_networks:singular_values", plus(1.0)),),
    "gaussian_singular_values": (Mutation("numpy.linalg:svd", times(3.0)),),
    "wide_start": (
        Mutation("wide_networks:_start_numbers", lambda n: (0.0, 1e3 * n[1], 1e3 * n[2])),
    ),
    "wide_start_rate": (
        Mutation("wide_networks:_start_numbers", lambda n: (0.0, 1e3 * n[1], 1e3 * n[2])),
    ),
    "wide_limit_rate": (Mutation("wide_networks:_distance", times(1e3)),),
    "exponential_guarantee": (Mutation("convergence_guarantees:follow_weights", SLOW),),
    "imbalance_guarantee": (Mutation("convergence_guarantees:follow_weights", SLOW),),
    "margin_guarantee": (
        Mutation("convergence_guarantees:follow_weights", SLOW),
        Mutation("convergence_guarantees:_margin_gain", times(1e2)),
    ),
    "local_guarantee": (Mutation("convergence_guarantees:follow_weights", SLOW),),
    "asymptotic_rate": (Mutation("convergence_guarantees:follow_weights", SLOW),),
    "conserved_imbalance": (Mutation("linear_networks:follow_weights", WRONG_FACTORS),),
    "weights_converge": (
        Mutation("linear_networks:follow_weights", later(times(1e6))),
        Mutation("linear_networks:follow_weights", turned_at_the_end),
    ),
    "limit_decomposition": (Mutation("linear_networks:follow_weights", WRONG_FACTORS),),
    "reaches_min_norm": (Mutation("linear_networks:follow_weights", WRONG_FACTORS),),
    "output_orthogonality_is_not_enough": (
        Mutation(
            "linear_networks:reduced_weights",
            lambda net: dataclasses.replace(net, U2=net.U2 + 1.0),
        ),
        Mutation("linear_networks:follow_weights", WRONG_FACTORS),
    ),
    "growth_from_invariant_set": (Mutation("wide_networks:follow_weights", later(times(1e4))),),
    "time_change": (Mutation("linear_networks:follow_weights", later(plus(0.1))),),
    # matrix factorization
    "commuting_is_not_enough": (
        Mutation("matrix_factorization:follow_factors", OfTheFunction(stationary_end)),
    ),
    "completion_kernel_formula": (Mutation("tangent_factorization:completion_kernel", UP),),
    "orthogonal_rows_give_delta": (
        Mutation("tangent_factorization:completion_kernel", plus(0.1)),
        Mutation("tangent_factorization:frobenius_norm", attributes(M=times(1.01))),
    ),
    "gaussian_rows_give_delta": (Mutation("flowbias.models.lifted:bartlett_root", one_row),),
    "wide_gram": (Mutation("flowbias.models.lifted:bartlett_root", one_row),),
    "hyperbolic_rows": (Mutation("matrix_factorization:follow_factors", WRONG_FACTORS),),
    "diagonal_bias": (Mutation("matrix_factorization:follow_factors", WRONG_FACTORS),),
    "schatten_bias": (Mutation("matrix_factorization:follow_factors", WRONG_FACTORS),),
    "resembles_schatten": (
        Mutation("matrix_factorization:_schatten_minimizer", replaced(0, times(2.0))),
    ),
    "linearized_flow": (
        Mutation("tangent_factorization:LinearizedFactorization.factors", times(1.01)),
    ),
    "symmetric_velocity": (
        Mutation("flowbias.problems.matrix:MatrixSensing.adjoint", times(1.01)),
    ),
    "residual_decay": (
        Mutation("measured_flow:follow_factors", SLOW),
        Mutation("tangent_factorization:LinearizedFactorization.speed", times(1e-3)),
    ),
    "kernel_regime": (Mutation("measured_flow:follow_factors", later(times(10.0))),),
    "wide_kernel_regime": (Mutation("measured_flow:follow_factors", later(times(10.0))),),
    "path_length": (
        Mutation("measured_flow:follow_factors", later(times(10.0))),
        Mutation("measured_flow:follow_factors", SLOW),
    ),
    # neurons
    "neuron_bias": (Mutation("neurons:followed", attributes(w=UP)),),
    "neuron_closed_form": (Mutation("neurons:followed", attributes(w=UP)),),
    "balanced_neurons_bias": (Mutation("neurons:followed", attributes(w=UP)),),
    "resting_part": (Mutation("neurons:followed", attributes(w=UP)),),
    "balance_is_conserved": (
        Mutation(
            "neurons:followed", attributes(parameters=lambda f: lambda t: each(UP)(tuple(f(t))))
        ),
    ),
    "tangent_kernel_moves": (
        Mutation("neurons:followed", attributes(parameters=lambda f: lambda t: f(0.0))),
    ),
    "sign_changes_once": (
        Mutation(
            "neurons:followed",
            attributes(parameters=lambda f: lambda t: replaced(0, lambda a: signs(t, a))(f(t))),
        ),
        Mutation("neurons:neuron_limit", attributes(details=lambda d: {**d, "a": -d["a"]})),
    ),
    "vanishing_start": (Mutation("neurons:neuron_sum_limit", LARGE_LIMIT),),
    "hessian_at_start": (Mutation("neuron_extremes:kernel_matrix", times(1.001)),),
    "third_order_at_start": (
        Mutation(
            "flowbias.potentials.neuron:NeuronPotential.curvatures", replaced(1, times(1.001))
        ),
    ),
    "taylor_remainder": (Mutation("neuron_extremes:kernel_matrix", UP),),
    "shape_to_one": (Mutation("neuron_extremes:neuron_limit", LARGE_LIMIT),),
    "large_scale_is_kernel": (Mutation("neuron_extremes:kernel_solution", times(20.0)),),
    "neuron_tangent_kernel": (
        Mutation("flowbias.models:Neuron.parameter_gradient", each(times(1.001))),
    ),
    "metric_is_no_hessian": (
        Mutation("neuron_geometry:neuron_metric", lambda metric: lambda v: 1.1 * metric(v)),
    ),
    "warped_metric_is_hessian": (
        Mutation(
            "neuron_geometry:neuron_metric",
            lambda metric: lambda v: np.linalg.norm(v) * metric(v),
        ),
    ),
    "identity_plus_outer_is_no_hessian": (Mutation("neuron_geometry:hessian_map_defect", UP),),
    "warp_is_positive_and_increasing": (
        *both_sides("neuron_geometry:time_warp", times(10.0), times(0.1)),
        Mutation("neuron_geometry:time_warp", lambda g: 1.0 / g),
    ),
    "warp_at_zero": both_sides("neuron_geometry:time_warp", times(1e3), DOWN),
    "scale_shape_identities": (Mutation("flowbias.models:Neuron.shape", times(0.99)),),
    "kernel_norm": (Mutation("numpy.linalg:lstsq", replaced(0, times(1.001))),),
    # leaky neurons
    "leaky_neuron_limit": (Mutation("neurons:leaky_limit", attributes(w=UP)),),
    "leaky_neuron_kkt": (
        Mutation("neurons:_converged", attributes(a=UP, inner=lambda x: x + bent(0.1)(x))),
    ),
    "leaky_neuron_signs": (
        Mutation("neurons:_converged", attributes(pattern=lambda f: lambda t: -f(t))),
    ),
    "leaky_neuron_conserved": (
        Mutation(
            "neurons:_converged",
            attributes(inner=doubled_after_start, conserved_drift=plus(1.0)),
        ),
    ),
    "leaky_neuron_converges": (
        Mutation("neurons:_converged", attributes(a=times(0.1))),
        Mutation("neurons:_converged", attributes(loss=lambda loss: loss[0] + 0.0 * loss)),
    ),
    # descent
    "descent_is_a_flow": (
        Mutation("flowbias.flows.descent:Descent.effective_limit", attributes(w=bent(1e-4))),
    ),
    "steps_shrink_the_start": both_sides(
        "descent:_first_order_error", lambda error: error**2, lambda error: error**0.5
    ),
    "batches_shrink_the_start": (Mutation("descent:_predicted_gain", times(1.3)),),
    "momentum_lengthens_the_step": (Mutation("descent:gradient_descent", with_less("momentum")),),
    "weight_decay_is_a_lasso": (
        Mutation("descent:gradient_descent", with_less("weight_decay")),
        Mutation("flowbias.flows.descent:Descent.lasso", lambda end: end._replace(gap=1.0)),
        Mutation(
            "flowbias.flows.descent:Descent.lasso",
            lambda end: end._replace(penalty=0.9 * end.penalty),
        ),
    ),
    "label_noise_shrinks_the_start": (
        Mutation("descent:gradient_descent", with_less("label_noise")),
    ),
    "rest_is_flat": (Mutation("descent:_descent", attributes(parameters=each(times(3.0)))),),
    "imbalance_drifts": both_sides(
        "flowbias.flows.lifted.descent:LiftedDescent.imbalance_drift_at",
        lambda drift: drift**2,
        lambda drift: drift**0.5,
    ),
}
