"""Networks and their training: what the papers do with ReLU networks, on any torch module.

    mlp(widths, scale=...), univariate(width), vgg11_like(...)    networks at scale times He's rule
    unbiased(module)                                    zero output at the start, by doubling
    scaled(module, scale), relative_layer_scales(module, factors)
    train(module, x, y, step_size=...)                  descent or SGD to a target, resumable
    train_copies(modules, x, y, step_size=...)          many small networks in one loop
    flow_copies(modules, x, y)                          their gradient flow, without small steps
    train_last_layer(module, x, y, step_size=...)       a linear model over random features
    stable_step_size(module, x)                         from the tangent kernel
    record_descent(model, optimizer, weights)           the effective start of your own training
    limit_layer(model, X, y)                            a limit that backpropagates into its data
    linear_spline, natural_cubic_spline, tangent_kernel_interpolant, wide_interpolant
                                                        limits in one variable

Torch (extra `nets`) is loaded by the first call that needs it, not by importing this.
"""

from flowbias.nets.architectures import Start, Version, mlp, univariate, vgg11_like
from flowbias.nets.copies import TrainedCopies, train_copies
from flowbias.nets.copies_flow import flow_copies
from flowbias.nets.limit_layer import limit_layer
from flowbias.nets.record import DescentRecorder, record_descent
from flowbias.nets.splines import (
    Spline,
    linear_spline,
    natural_cubic_spline,
    tangent_kernel_interpolant,
    wide_interpolant,
)
from flowbias.nets.train import Moment, stable_step_size, train, train_last_layer
from flowbias.nets.training import Training, TrainingStatus
from flowbias.nets.unbiased import relative_layer_scales, scaled, unbiased

__all__ = [
    "DescentRecorder",
    "Moment",
    "Spline",
    "Start",
    "TrainedCopies",
    "Training",
    "TrainingStatus",
    "Version",
    "flow_copies",
    "limit_layer",
    "linear_spline",
    "mlp",
    "natural_cubic_spline",
    "record_descent",
    "relative_layer_scales",
    "scaled",
    "stable_step_size",
    "tangent_kernel_interpolant",
    "train",
    "train_copies",
    "train_last_layer",
    "unbiased",
    "univariate",
    "vgg11_like",
    "wide_interpolant",
]
