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

from flowbias.theory.claim import (
    Claim as Claim,
    Kind as Kind,
    Reference as Reference,
    Verdict as Verdict,
)
from flowbias.theory.convergence_guarantees import (
    asymptotic_rate as asymptotic_rate,
    exponential_guarantee as exponential_guarantee,
    imbalance_guarantee as imbalance_guarantee,
    local_guarantee as local_guarantee,
    margin_guarantee as margin_guarantee,
)
from flowbias.theory.descent import (
    batches_shrink_the_start as batches_shrink_the_start,
    descent_is_a_flow as descent_is_a_flow,
    imbalance_drifts as imbalance_drifts,
    label_noise_shrinks_the_start as label_noise_shrinks_the_start,
    momentum_lengthens_the_step as momentum_lengthens_the_step,
    rest_is_flat as rest_is_flat,
    steps_shrink_the_start as steps_shrink_the_start,
    weight_decay_is_a_lasso as weight_decay_is_a_lasso,
)
from flowbias.theory.diagonal_networks import (
    closed_form_flow as closed_form_flow,
    dual_stays_inside as dual_stays_inside,
    equal_magnitudes as equal_magnitudes,
    escape_from_the_saddle as escape_from_the_saddle,
    homogeneous_start as homogeneous_start,
    loss_gap as loss_gap,
    start_kernel as start_kernel,
    tied_limit as tied_limit,
    zero_error as zero_error,
)
from flowbias.theory.explicit_distance import (
    closest_interpolator as closest_interpolator,
    distance_by_minimization as distance_by_minimization,
    distance_is_depth_4 as distance_is_depth_4,
    distance_quartic as distance_quartic,
    explicit_norm_is_quasi_norm as explicit_norm_is_quasi_norm,
)
from flowbias.theory.extremes import (
    kernel_distance as kernel_distance,
    rich_distance as rich_distance,
    rich_excess as rich_excess,
    rich_selection as rich_selection,
    waking_times as waking_times,
)
from flowbias.theory.factorization_kernel_regime import (
    KernelRegime as KernelRegime,
    WideRegime as WideRegime,
    kernel_regime as kernel_regime,
    residual_decay as residual_decay,
    wide_gram as wide_gram,
    wide_kernel_regime as wide_kernel_regime,
)
from flowbias.theory.imbalance_bounds import (
    convergence_rate as convergence_rate,
    error_operator as error_operator,
    imbalance_shows_the_layers as imbalance_shows_the_layers,
    rate_bound_range as rate_bound_range,
    rate_from_layers as rate_from_layers,
    scalar_rate as scalar_rate,
    scaled_imbalance as scaled_imbalance,
    smallest_singular_value as smallest_singular_value,
)
from flowbias.theory.imbalance_tightness import (
    attained_rate as attained_rate,
    attaining_weights as attaining_weights,
)
from flowbias.theory.initialization_shape import (
    conserved_k as conserved_k,
    effective_log_scale as effective_log_scale,
    half_kernel_norm as half_kernel_norm,
    metric_from_predictor as metric_from_predictor,
    race as race,
    race_to_kernel as race_to_kernel,
    race_to_rich as race_to_rich,
    untied_limit as untied_limit,
    untied_near_l1 as untied_near_l1,
    untied_near_l2 as untied_near_l2,
)
from flowbias.theory.linear_networks import (
    balanced_closed_form as balanced_closed_form,
    conserved_imbalance as conserved_imbalance,
    limit_decomposition as limit_decomposition,
    output_orthogonality_counterexample as output_orthogonality_counterexample,
    output_orthogonality_is_not_enough as output_orthogonality_is_not_enough,
    reaches_min_norm as reaches_min_norm,
    scalar_closed_form as scalar_closed_form,
    time_change as time_change,
    weights_converge as weights_converge,
)
from flowbias.theory.matrix_factorization import (
    Reach as Reach,
    commuting_is_not_enough as commuting_is_not_enough,
    diagonal_bias as diagonal_bias,
    hyperbolic_rows as hyperbolic_rows,
    infinitely_wide as infinitely_wide,
    linearized_flow as linearized_flow,
    path_length as path_length,
    resembles_schatten as resembles_schatten,
    schatten_bias as schatten_bias,
    symmetric_velocity as symmetric_velocity,
)
from flowbias.theory.neuron_extremes import (
    hessian_at_start as hessian_at_start,
    kernel_matrix as kernel_matrix,
    large_scale_is_kernel as large_scale_is_kernel,
    neuron_tangent_kernel as neuron_tangent_kernel,
    shape_to_one as shape_to_one,
    taylor_remainder as taylor_remainder,
    third_order_at_start as third_order_at_start,
)
from flowbias.theory.neuron_geometry import (
    hessian_map_defect as hessian_map_defect,
    identity_plus_outer_is_no_hessian as identity_plus_outer_is_no_hessian,
    kernel_norm as kernel_norm,
    metric_is_no_hessian as metric_is_no_hessian,
    neuron_metric as neuron_metric,
    scale_shape_identities as scale_shape_identities,
    warp_at_zero as warp_at_zero,
    warp_is_positive_and_increasing as warp_is_positive_and_increasing,
    warped_metric_is_hessian as warped_metric_is_hessian,
)
from flowbias.theory.neurons import (
    balance_is_conserved as balance_is_conserved,
    balanced_neurons_bias as balanced_neurons_bias,
    leaky_neuron_conserved as leaky_neuron_conserved,
    leaky_neuron_converges as leaky_neuron_converges,
    leaky_neuron_kkt as leaky_neuron_kkt,
    leaky_neuron_limit as leaky_neuron_limit,
    leaky_neuron_signs as leaky_neuron_signs,
    neuron_bias as neuron_bias,
    neuron_closed_form as neuron_closed_form,
    resting_part as resting_part,
    sign_changes_once as sign_changes_once,
    tangent_kernel_moves as tangent_kernel_moves,
    vanishing_start as vanishing_start,
)
from flowbias.theory.regimes import (
    kernel_guarantee as kernel_guarantee,
    kernel_log_scale as kernel_log_scale,
    kernel_scale as kernel_scale,
    printed_scales_are_safe as printed_scales_are_safe,
    rich_guarantee as rich_guarantee,
    rich_log_scale as rich_log_scale,
    rich_scale as rich_scale,
    sharp_kernel_guarantee as sharp_kernel_guarantee,
    sharp_kernel_log_scale as sharp_kernel_log_scale,
    sharp_rich_guarantee as sharp_rich_guarantee,
    sharp_rich_log_scale as sharp_rich_log_scale,
)
from flowbias.theory.regularizers import (
    depth_needs_polynomial_scale as depth_needs_polynomial_scale,
    depth_potential_large as depth_potential_large,
    depth_potential_small as depth_potential_small,
    distance_needs_polynomial_scale as distance_needs_polynomial_scale,
    hypentropy_large as hypentropy_large,
    hypentropy_needs_exponential_scale as hypentropy_needs_exponential_scale,
    hypentropy_small as hypentropy_small,
    l1_approach_log_scale as l1_approach_log_scale,
    l1_log_scale as l1_log_scale,
    l2_log_scale as l2_log_scale,
    mismatch_log_scale as mismatch_log_scale,
    nearly_l1 as nearly_l1,
    nearly_l2 as nearly_l2,
    not_l1 as not_l1,
    sharply_l2 as sharply_l2,
    sparse_to_dense_cost as sparse_to_dense_cost,
)
from flowbias.theory.tangent_factorization import (
    LinearizedFactorization as LinearizedFactorization,
    completion_kernel as completion_kernel,
    completion_kernel_formula as completion_kernel_formula,
    gaussian_rows_give_delta as gaussian_rows_give_delta,
    orthogonal_rows_give_delta as orthogonal_rows_give_delta,
)
from flowbias.theory.wide_networks import (
    gaussian_singular_values as gaussian_singular_values,
    growth_from_invariant_set as growth_from_invariant_set,
    product_singular_values as product_singular_values,
    wide_limit_bound as wide_limit_bound,
    wide_limit_rate as wide_limit_rate,
    wide_start as wide_start,
    wide_start_bounds as wide_start_bounds,
    wide_start_rate as wide_start_rate,
    wishart_start as wishart_start,
)

#: What is imported above, each with a name of its own, is public.
__all__ = sorted(
    name for name, value in globals().items() if name[0] != "_" and hasattr(value, "__module__")
)
