"""The exact twin of a wide network: what the linearized one learns under squared loss.

At all scales from one kernel:

    f_lin(x) = f_0(x) + K(x, X) K^-1 (y - f_0(X))

Scaling a network of two homogeneous layers multiplies f_0 by scale^2 and leaves K(x, X) K^-1 as it
is, so that f_lin = fit + scale^2 rest, where fit is that of y and rest what is left of f_0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from flowbias.experiments._base import Check, Task, torch_device
from flowbias.experiments.check import at_least, at_most
from flowbias.experiments.drawing import name_line, reference_line, say
from flowbias.experiments.table import Columns, Table
from flowbias.experiments.woodworth.image_training import CLASSES, as_percent, split_of
from flowbias.ground.drawing import BLUE, RED
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import Axes, FloatArray
from flowbias.kernels import kernel_matrix, linearize, tangent_kernel
from flowbias.nets import mlp


def twin_columns(task: Task) -> Columns:
    """Errors of the twin: with the start's own output at each scale, and without any."""
    torch = require_torch()
    split = split_of(task)
    scales = np.array(task.numbers("scales"))
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
    # Test pictures whose outputs are computed at once.
    at_once = 1000
    torch = require_torch()
    twin = linearize(net)
    with torch.no_grad():
        for name, parameter in twin.named_point().items():
            parameter.add_(move[name])
        return [
            torch.cat([twin(part) - net(part) for part in x.split(at_once)]).numpy() for x in inputs
        ]


def _error(outputs: FloatArray, labels: Any) -> float:
    return float((outputs.argmax(axis=1) != labels).mean())


def draw_twin(axes: Axes, twin: Table, network: Table) -> None:
    """Errors with the start's own output and without, beside the network on the same pictures."""
    own = twin.summary("error", by="scale")
    level = float(np.median(twin["limit_error"]))
    learned = float(np.median(network["error"]))
    axes.set(xscale="log", xlabel="scale of the start α", ylabel="test error")
    axes.plot(own.x, own.median, color=RED, linewidth=1.8, marker="o", markersize=4)
    name_line(axes, "with f₀", own.x[-2], own.median[-2], side="below", colour=RED)
    reference_line(axes, y=level, text="without f₀")
    axes.plot(1.0, learned, "s", color=BLUE, markersize=6)
    trained = (
        f"{twin['data'][0]}, {twin['images'][0]:.0f} images, width {twin['width'][0]:.0f},\n"
        f"squared loss; ■ network itself: {learned:.1%}"
    )
    say(axes, trained, 0.03, 0.97, va="top", fontsize=9)
    axes.set_ylim(0.0, 1.2)
    as_percent(axes)


def check_twin(twin: Table, network: Table) -> Iterator[Check]:
    """That the twin fits, and what the output of its start does to it."""
    left = float(np.max(twin["residual"]))
    yield Check(
        "twin-interpolates",
        "the linearized network fits the labels of its pictures exactly",
        f"largest residual {left:.1e} of outputs for labels 0 and 1",
        at_most(left, 1e-6),
    )
    level, learned = float(np.median(twin["limit_error"])), float(np.median(network["error"]))
    scale, own, *_ = twin.summary("error", by="scale")
    yield Check(
        "twin-learns-from-small-starts",
        "from a small start the linearized network learns what it would learn from zero output",
        f"{own[0]:.2%} at α = {scale[0]:g} against {level:.2%}; the network itself, from α = 1 on "
        f"the same {twin['images'][0]:.0f} images: {learned:.2%}",
        at_most(abs(own[0] - level), 0.1 * level),
    )
    yield Check(
        "twin-drowns-in-large-starts",
        "under squared loss with labels 0 and 1, the output of a large start drowns what the "
        "linearized network learns: no plateau as under cross-entropy",
        f"{own[-1]:.2%} at α = {scale[-1]:g}, a guess among ten being wrong in 90%",
        at_least(own[-1], 0.8),
        at_least(np.diff(own), -level / 3.0),
    )
