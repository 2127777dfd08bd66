"""Theorems as code: each function returns one or more claims, measured against predicted.

A theorem says what it is about in the symbols of its paper; its arguments mean the same in all:

Parameters
----------
model : a network at its start: DiagonalNet, UntiedDiagonalNet, Neuron, NeuronSum, or a product of
    two factors, whichever the theorem is about
net : a LinearNet at its start
X, y, Y : data: samples in the rows of X, one output y or several Y per sample
problem : a matrix problem: MatrixCompletion, MatrixSensing or MatrixRegression
loss, loss_constant : c in (c/2) ||.||^2, by the names that `fb.flow` knows, or as a number
t : time or times of the flow; in bounds of random matrices their t
trajectory, path, measured : a flow that is at hand already; by default it is followed anew
w, w0, v, u, z, x : where a formula is evaluated: predictors, weights, dual points
weights, U, V, E, A, B, D, W, matrix : matrices by the names that the formula gives them
scale, log_scale : alpha, the size of the weights at the start, or its natural logarithm
depth : D, the number of layers
shape : (|v| - |u|) / (|v| + |u|) of untied weights; of a matrix, its rows and columns
d, m, n, rank : features, outputs, samples, rank
width, exponent : h hidden units, and a in the factor h^-a of their weights
eps : how near a regime or a norm, relatively
delta : |a|^2 - ||w||^2 of a neuron; of random starts, the chance that is left
l1_norm, l2_norm, least : the least norms among the interpolators
sqrt_k : the square root of k, by which untied starts differ
mu : least eigenvalue of the factors' Gram matrix at the start
potential, family : a potential, or that of each log-scale
metric : H(v), a function
factor, share : of all weights; of a weight that counts as awake
bounds : what `wide_start_bounds` returns
samples, rng : how many random starts, and the generator that draws them
step_size, batch_size, momentum, weight_decay, label_noise : as `fb.gradient_descent` takes them
steps, seed, seeds : of a descent: how many, and what its batches are drawn from, or from how many

Returns
-------
Claim, or a tuple of them, with measured, predicted, verdict and reference; a number where the name
is that of a number, such as `kernel_scale`

Raises
------
InputError for arguments that mean nothing. Outside its hypotheses a claim is silent instead
"""

from flowbias.theory.claim import Claim, Kind, Reference, Verdict
from flowbias.theory.convergence_guarantees import (
    asymptotic_rate,
    exponential_guarantee,
    imbalance_guarantee,
    local_guarantee,
    margin_guarantee,
)
from flowbias.theory.descent import (
    batches_shrink_the_start,
    descent_is_a_flow,
    imbalance_drifts,
    label_noise_shrinks_the_start,
    momentum_lengthens_the_step,
    rest_is_flat,
    steps_shrink_the_start,
    weight_decay_is_a_lasso,
)
from flowbias.theory.diagonal_networks import (
    closed_form_flow,
    dual_stays_inside,
    equal_magnitudes,
    escape_from_the_saddle,
    homogeneous_start,
    loss_gap,
    start_kernel,
    tied_limit,
    zero_error,
)
from flowbias.theory.explicit_distance import (
    closest_interpolator,
    distance_by_minimization,
    distance_is_depth_4,
    distance_quartic,
    explicit_norm_is_quasi_norm,
)
from flowbias.theory.extremes import (
    kernel_distance,
    rich_distance,
    rich_excess,
    rich_selection,
    waking_times,
)
from flowbias.theory.factorization_kernel_regime import (
    KernelRegime,
    WideRegime,
    kernel_regime,
    residual_decay,
    wide_gram,
    wide_kernel_regime,
)
from flowbias.theory.imbalance_bounds import (
    convergence_rate,
    error_operator,
    imbalance_shows_the_layers,
    rate_bound_range,
    rate_from_layers,
    scalar_rate,
    scaled_imbalance,
    smallest_singular_value,
)
from flowbias.theory.imbalance_tightness import attained_rate, attaining_weights
from flowbias.theory.initialization_shape import (
    conserved_k,
    effective_log_scale,
    half_kernel_norm,
    metric_from_predictor,
    race,
    race_to_kernel,
    race_to_rich,
    untied_limit,
    untied_near_l1,
    untied_near_l2,
)
from flowbias.theory.linear_networks import (
    balanced_closed_form,
    conserved_imbalance,
    limit_decomposition,
    output_orthogonality_counterexample,
    output_orthogonality_is_not_enough,
    reaches_min_norm,
    scalar_closed_form,
    time_change,
    weights_converge,
)
from flowbias.theory.matrix_factorization import (
    Reach,
    commuting_is_not_enough,
    diagonal_bias,
    hyperbolic_rows,
    infinitely_wide,
    linearized_flow,
    path_length,
    resembles_schatten,
    schatten_bias,
    symmetric_velocity,
)
from flowbias.theory.neuron_extremes import (
    hessian_at_start,
    kernel_matrix,
    large_scale_is_kernel,
    neuron_tangent_kernel,
    shape_to_one,
    taylor_remainder,
    third_order_at_start,
)
from flowbias.theory.neuron_geometry import (
    hessian_map_defect,
    identity_plus_outer_is_no_hessian,
    kernel_norm,
    metric_is_no_hessian,
    neuron_metric,
    scale_shape_identities,
    warp_at_zero,
    warp_is_positive_and_increasing,
    warped_metric_is_hessian,
)
from flowbias.theory.neurons import (
    balance_is_conserved,
    balanced_neurons_bias,
    leaky_neuron_conserved,
    leaky_neuron_converges,
    leaky_neuron_kkt,
    leaky_neuron_limit,
    leaky_neuron_signs,
    neuron_bias,
    neuron_closed_form,
    resting_part,
    sign_changes_once,
    tangent_kernel_moves,
    vanishing_start,
)
from flowbias.theory.regimes import (
    kernel_guarantee,
    kernel_log_scale,
    kernel_scale,
    printed_scales_are_safe,
    rich_guarantee,
    rich_log_scale,
    rich_scale,
    sharp_kernel_guarantee,
    sharp_kernel_log_scale,
    sharp_rich_guarantee,
    sharp_rich_log_scale,
)
from flowbias.theory.regularizers import (
    depth_needs_polynomial_scale,
    depth_potential_large,
    depth_potential_small,
    distance_needs_polynomial_scale,
    hypentropy_large,
    hypentropy_needs_exponential_scale,
    hypentropy_small,
    l1_approach_log_scale,
    l1_log_scale,
    l2_log_scale,
    mismatch_log_scale,
    nearly_l1,
    nearly_l2,
    not_l1,
    sharply_l2,
    sparse_to_dense_cost,
)
from flowbias.theory.tangent_factorization import (
    LinearizedFactorization,
    completion_kernel,
    completion_kernel_formula,
    gaussian_rows_give_delta,
    orthogonal_rows_give_delta,
)
from flowbias.theory.wide_networks import (
    gaussian_singular_values,
    growth_from_invariant_set,
    product_singular_values,
    wide_limit_bound,
    wide_limit_rate,
    wide_start,
    wide_start_bounds,
    wide_start_rate,
    wishart_start,
)

__all__ = [
    "Claim",
    "KernelRegime",
    "Kind",
    "LinearizedFactorization",
    "Reach",
    "Reference",
    "Verdict",
    "WideRegime",
    "asymptotic_rate",
    "attained_rate",
    "attaining_weights",
    "balance_is_conserved",
    "balanced_closed_form",
    "balanced_neurons_bias",
    "batches_shrink_the_start",
    "closed_form_flow",
    "closest_interpolator",
    "commuting_is_not_enough",
    "completion_kernel",
    "completion_kernel_formula",
    "conserved_imbalance",
    "conserved_k",
    "convergence_rate",
    "depth_needs_polynomial_scale",
    "depth_potential_large",
    "depth_potential_small",
    "descent_is_a_flow",
    "diagonal_bias",
    "distance_by_minimization",
    "distance_is_depth_4",
    "distance_needs_polynomial_scale",
    "distance_quartic",
    "dual_stays_inside",
    "effective_log_scale",
    "equal_magnitudes",
    "error_operator",
    "escape_from_the_saddle",
    "explicit_norm_is_quasi_norm",
    "exponential_guarantee",
    "gaussian_rows_give_delta",
    "gaussian_singular_values",
    "growth_from_invariant_set",
    "half_kernel_norm",
    "hessian_at_start",
    "hessian_map_defect",
    "homogeneous_start",
    "hypentropy_large",
    "hypentropy_needs_exponential_scale",
    "hypentropy_small",
    "hyperbolic_rows",
    "identity_plus_outer_is_no_hessian",
    "imbalance_drifts",
    "imbalance_guarantee",
    "imbalance_shows_the_layers",
    "infinitely_wide",
    "kernel_distance",
    "kernel_guarantee",
    "kernel_log_scale",
    "kernel_matrix",
    "kernel_norm",
    "kernel_regime",
    "kernel_scale",
    "l1_approach_log_scale",
    "l1_log_scale",
    "l2_log_scale",
    "label_noise_shrinks_the_start",
    "large_scale_is_kernel",
    "leaky_neuron_conserved",
    "leaky_neuron_converges",
    "leaky_neuron_kkt",
    "leaky_neuron_limit",
    "leaky_neuron_signs",
    "limit_decomposition",
    "linearized_flow",
    "local_guarantee",
    "loss_gap",
    "margin_guarantee",
    "metric_from_predictor",
    "metric_is_no_hessian",
    "mismatch_log_scale",
    "momentum_lengthens_the_step",
    "nearly_l1",
    "nearly_l2",
    "neuron_bias",
    "neuron_closed_form",
    "neuron_metric",
    "neuron_tangent_kernel",
    "not_l1",
    "orthogonal_rows_give_delta",
    "output_orthogonality_counterexample",
    "output_orthogonality_is_not_enough",
    "path_length",
    "printed_scales_are_safe",
    "product_singular_values",
    "race",
    "race_to_kernel",
    "race_to_rich",
    "rate_bound_range",
    "rate_from_layers",
    "reaches_min_norm",
    "resembles_schatten",
    "residual_decay",
    "rest_is_flat",
    "resting_part",
    "rich_distance",
    "rich_excess",
    "rich_guarantee",
    "rich_log_scale",
    "rich_scale",
    "rich_selection",
    "scalar_closed_form",
    "scalar_rate",
    "scale_shape_identities",
    "scaled_imbalance",
    "schatten_bias",
    "shape_to_one",
    "sharp_kernel_guarantee",
    "sharp_kernel_log_scale",
    "sharp_rich_guarantee",
    "sharp_rich_log_scale",
    "sharply_l2",
    "sign_changes_once",
    "smallest_singular_value",
    "sparse_to_dense_cost",
    "start_kernel",
    "steps_shrink_the_start",
    "symmetric_velocity",
    "tangent_kernel_moves",
    "taylor_remainder",
    "third_order_at_start",
    "tied_limit",
    "time_change",
    "untied_limit",
    "untied_near_l1",
    "untied_near_l2",
    "vanishing_start",
    "waking_times",
    "warp_at_zero",
    "warp_is_positive_and_increasing",
    "warped_metric_is_hessian",
    "weight_decay_is_a_lasso",
    "weights_converge",
    "wide_gram",
    "wide_kernel_regime",
    "wide_limit_bound",
    "wide_limit_rate",
    "wide_start",
    "wide_start_bounds",
    "wide_start_rate",
    "wishart_start",
    "zero_error",
]
