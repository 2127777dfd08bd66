"""The exact limit of the linearized network under squared loss, at all scales from one kernel.

    f_lin(x) = f_0(x) + K(x, X) K^-1 (y - f_0(X))

Scaling a network of two homogeneous layers multiplies f_0 by scale^2 and leaves K(x, X) K^-1 as it
is, so that f_lin = fit + scale^2 rest, where fit is that of y and rest what is left of f_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flowbias.experiments._base import Task
from flowbias.experiments.table import Columns
from flowbias.experiments.torch_task import torch_device
from flowbias.experiments.woodworth.image_training import split_of
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.kernels import kernel_matrix, linearize, tangent_kernel
from flowbias.nets import mlp

# Test pictures whose outputs are computed at once.
_AT_ONCE = 1000
CLASSES = 10


def twin_columns(task: Task) -> Columns:
    """Errors of the twin: with the start's own output at each scale, and without any."""
    torch = require_torch()
    split = split_of(task)
    scales = np.array([float(word) for word in task.text("scales").split()])
    # On the CPU where there is a GPU as well: what takes long is one factorization in double.
    with torch_device():
        sizes = (split.train.x.shape[1], task.integer("width"), CLASSES)
        net = mlp(sizes, start="normal", rng=task.integer("replicate"), dtype=torch.float64)
        x, test = (torch.from_numpy(part.x).double() for part in (split.train, split.test))
        with torch.no_grad():
            start, start_test = net(x).numpy(), net(test).numpy()
        labels = np.eye(CLASSES)[split.train.y]
        # The kernel of the two right-hand sides is factored once.
        moves = _solved(net, x, [labels, start])
        (fit, fit_test), (own, own_test) = (_change(net, move, x, test) for move in moves)
    rest = start_test - own_test
    wrong = [fit_test + scale**2 * rest for scale in scales]
    return {
        "scale": scales,
        "error": [_error(outputs, split.test.y) for outputs in wrong],
        "limit_error": _error(fit_test, split.test.y),
        "residual": max(float(np.abs(fit - labels).max()), float(np.abs(own - start).max())),
    }


def _solved(net: Any, x: Any, targets: list[FloatArray]) -> list[dict[str, Any]]:
    """J^T K^-1 target: the movement of the parameters that changes the outputs by each target."""
    from scipy.linalg import cho_factor, cho_solve

    torch = require_torch()
    kernel = kernel_matrix(tangent_kernel(net, x))
    factor = cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
    duals = cho_solve(factor, np.stack([target.ravel() for target in targets], axis=1))
    names, parameters = zip(*net.named_parameters(), strict=True)
    moves = []
    for dual in duals.T:
        weighted = (net(x) * torch.from_numpy(dual.reshape(len(x), -1))).sum()
        gradients = torch.autograd.grad(weighted, parameters)
        moves.append(dict(zip(names, gradients, strict=True)))
    return moves


def _change(net: Any, move: dict[str, Any], *inputs: Any) -> list[FloatArray]:
    """J(x) move for each of the inputs."""
    torch = require_torch()
    twin = linearize(net)
    with torch.no_grad():
        for name, parameter in twin.named_point().items():
            parameter.add_(move[name])
        return [
            torch.cat([twin(part) - net(part) for part in x.split(_AT_ONCE)]).numpy()
            for x in inputs
        ]


def _error(outputs: FloatArray, labels: Any) -> float:
    return float((outputs.argmax(axis=1) != labels).mean())
