"""Tangent kernels of any torch module and of the library's own models, and what follows from them.

    K = tangent_kernel(module, x)                    (n, n, c, c), exact, within a bound on memory
    TangentMap(module, x)                            the same at moving parameters, and J, J^T
    top_eigenpairs(module, x)                        without the matrix
    relative_kernel_change(K0, K), kernel_alignment(K0, K), label_alignment(K, y)
    grad_distance(before, after, x), parameter_movement(before, after)
    linearize(module)                                the linearized twin, trainable
    linearized_flow(module, x, y).predict(x_test)    its exact predictions, at any time

Torch (extra `nets`) is loaded by the first call that needs it, not by importing this.
"""

from flowbias.kernels.compare import (
    ParameterMovement,
    kernel_alignment,
    kernel_matrix,
    label_alignment,
    parameter_movement,
    relative_kernel_change,
)
from flowbias.kernels.feature_distance import GradDistance, grad_distance
from flowbias.kernels.linearize import LinearizedFlow, lazy_gap, linearize, linearized_flow
from flowbias.kernels.matrix_free import (
    Eigenpairs,
    tangent_operator,
    tangent_vector_product,
    top_eigenpairs,
)
from flowbias.kernels.tangent import TangentMap, tangent_kernel

__all__ = [
    "Eigenpairs",
    "GradDistance",
    "LinearizedFlow",
    "ParameterMovement",
    "TangentMap",
    "grad_distance",
    "kernel_alignment",
    "kernel_matrix",
    "label_alignment",
    "lazy_gap",
    "linearize",
    "linearized_flow",
    "parameter_movement",
    "relative_kernel_change",
    "tangent_kernel",
    "tangent_operator",
    "tangent_vector_product",
    "top_eigenpairs",
]
