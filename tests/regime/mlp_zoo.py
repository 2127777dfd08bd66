"""MLPs that differ in depth, width, labels, input scale, start and scale, and their training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# Shares of the stable step 2 / lambda; lambda is measured again after so many steps.
STEP, AGAIN = 0.5, 25
MOST_STEPS = 3000
# Of the loss at the start.
FITTED = 1e-4


@dataclass(frozen=True)
class Member:
    """A network before training, with its data."""

    label: str
    module: Any
    x: Any
    y: Any

    @property
    def norm(self) -> float:
        """||theta||: the predictor to beat."""
        return float(np.sqrt(sum(float((p.detach() ** 2).sum()) for p in self.module.parameters())))


def _teacher(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ rng.standard_normal((x.shape[1], 3)), 0.0) @ rng.standard_normal((3, 1))


#: Labels of several kinds and sizes.
LABELS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "teacher": _teacher,
    "linear": lambda rng, x: x @ rng.standard_normal((x.shape[1], 1)),
    "noise": lambda rng, x: rng.standard_normal((len(x), 1)),
    "signs": lambda rng, x: np.sign(x[:, :1] * x[:, 1:2]),
}


def members(count: int, seed: int, samples: int = 12) -> Iterator[Member]:
    """So many networks, drawn from the seed."""
    import torch

    from flowbias.nets import mlp, unbiased

    rng = np.random.default_rng(seed)
    for _ in range(count):
        depth, width = int(rng.integers(2, 5)), int(rng.choice([16, 32, 64]))
        d, start = int(rng.integers(3, 11)), str(rng.choice(["uniform", "normal"]))
        size, gain = (float(np.exp(rng.uniform(-1.2, 1.2))) for _ in range(2))
        kind, doubled = str(rng.choice(list(LABELS))), bool(rng.integers(2))
        x = rng.standard_normal((samples, d))
        y = gain * LABELS[kind](rng, x)
        scale = float(np.exp(rng.uniform(np.log(0.15), np.log(5.0)))) ** (2.0 / depth)
        net = mlp(
            (d, *[width] * (depth - 1), 1),
            scale=scale,
            start=start,
            rng=int(rng.integers(2**31)),
            dtype=torch.float64,
        )
        label = f"depth {depth}, width {width}, {kind}, x {size:.2f}, {start}, {scale:.2f}"
        yield Member(
            label + " doubled" * doubled,
            unbiased(net) if doubled else net,
            torch.as_tensor(size * x),
            torch.as_tensor(y),
        )


def trained(member: Member) -> tuple[Any, float]:
    """A trained copy by full-batch descent, and what is left of the loss at the start.

    The step follows the largest eigenvalue of the tangent kernel, so that large starts are stable
    and small ones leave their plateau.
    """
    import torch

    from flowbias.kernels import kernel_matrix, tangent_kernel

    module = copy.deepcopy(member.module)
    parameters = list(module.parameters())

    def loss() -> Any:
        return 0.5 * ((module(member.x) - member.y) ** 2).sum()

    value = loss()
    first, step = float(value.detach()), 0.0
    for i in range(MOST_STEPS):
        if i % AGAIN == 0:
            kernel = kernel_matrix(tangent_kernel(module, member.x))
            step = STEP / float(np.linalg.eigvalsh(kernel)[-1])
        found = torch.autograd.grad(value, parameters)
        last, value = float(value.detach()), None
        while value is None:
            with torch.no_grad():
                for parameter, gradient in zip(parameters, found, strict=True):
                    parameter -= step * gradient
            value = loss()
            if not float(value.detach()) <= last:
                # The kernel grew since it was measured: back, and half as far.
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, found, strict=True):
                        parameter += step * gradient
                step, value = step / 2.0, None
        if float(value.detach()) <= FITTED * first:
            break
    return module, float(value.detach()) / first
