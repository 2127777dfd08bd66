"""Tangent kernels of any torch module and of the library's own models, and what follows from them.

    K = tangent_kernel(module, x)                    (n, n, c, c), exact, within a bound on memory
    TangentMap(module, x)                            the same at moving parameters, and J, J^T
    top_eigenpairs(module, x)                        without the matrix
    chosen_outputs, loss_outputs, estimated_trace    where a module has very many outputs
    relative_kernel_change(K0, K), kernel_alignment(K0, K), label_alignment(K, y)
    grad_distance(before, after, x), parameter_movement(before, after)
    linearize(module)                                the linearized twin, trainable
    linearized_flow(module, x, y).predict(x_test)    its exact predictions, at any time
    infinite_width_kernels(x, depth=3)               NNGP and NTK of MLPs, ReLU or erf

Torch (extra `nets`) is loaded by the first call that needs it, not by importing this.
"""

from flowbias.kernels.compare import (
    kernel_alignment,
    kernel_matrix,
    label_alignment,
    relative_kernel_change,
)
from flowbias.kernels.infinite_width import InfiniteWidthKernels, infinite_width_kernels
from flowbias.kernels.linearize import LinearizedFlow, lazy_gap, linearize, linearized_flow
from flowbias.kernels.matrix_free import (
    Eigenpairs,
    TraceEstimate,
    chosen_outputs,
    estimated_trace,
    loss_outputs,
    tangent_operator,
    tangent_vector_product,
    top_eigenpairs,
)
from flowbias.kernels.movement import (
    GradDistance,
    ParameterMovement,
    grad_distance,
    parameter_movement,
)
from flowbias.kernels.tangent import TangentMap, tangent_kernel

__all__ = [
    "Eigenpairs",
    "GradDistance",
    "InfiniteWidthKernels",
    "LinearizedFlow",
    "ParameterMovement",
    "TangentMap",
    "TraceEstimate",
    "chosen_outputs",
    "estimated_trace",
    "grad_distance",
    "infinite_width_kernels",
    "kernel_alignment",
    "kernel_matrix",
    "label_alignment",
    "lazy_gap",
    "linearize",
    "linearized_flow",
    "loss_outputs",
    "parameter_movement",
    "relative_kernel_change",
    "tangent_kernel",
    "tangent_operator",
    "tangent_vector_product",
    "top_eigenpairs",
]
