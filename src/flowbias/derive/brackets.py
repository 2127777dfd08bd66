"""Iterated Lie brackets of the gradient fields, exact up to rounding.

    X_1 = g(z_1),   X_k = [g(z_k), X_{k-1}],   g(z) = sum_i z_i grad F_i,   [X, Y] = DY X - DX Y

Such nested words span the whole Lie algebra, and as they are linear in each z, random words of
length k span all words of length k as soon as there are enough of them: no list of d^k words.
Each bracket is one more forward derivative of the one before, so a word costs about 3^k gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowbias.derive.parametrization import Parametrization
from flowbias.ground.arguments import InputError
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray

#: Gradients of F that one more bracket costs, as a factor: value, derivative along, derivative of.
COST_PER_LEVEL = 3
# Numbers that one batch of words may hold at a time: 80 MB.
_BATCH_NUMBERS = 1e7


def random_brackets(
    model: Parametrization, theta: FloatArray, length: int, count: int, rng: np.random.Generator
) -> FloatArray:
    """`count` random words of `length`, (count, p), each divided by the size of its two terms.

    So scaled, a word that vanishes is left with rounding, whatever the size of F.
    """
    torch = require_torch()
    point = model.tensor(theta)
    letters = torch.tensor(rng.standard_normal((count, length, model.d)))

    def word(z: Any) -> tuple[Any, Any]:
        field = _gradient_field(torch, model.torch_function, z[0])
        if length == 1:
            value = field(point)
            return value, value.norm()
        for k in range(1, length - 1):
            field = _bracket(torch, _gradient_field(torch, model.torch_function, z[k]), field)
        ahead, behind = _terms(
            torch, _gradient_field(torch, model.torch_function, z[-1]), field, point
        )
        return ahead - behind, ahead.norm() + behind.norm()

    chunk = max(1, int(_BATCH_NUMBERS / (model.p * COST_PER_LEVEL**length)))
    try:
        values, sizes = torch.func.vmap(word, chunk_size=chunk)(letters)
    except RuntimeError as error:
        raise InputError(
            f"F: must be differentiable by torch {length} times in a row, got: {error}. "
            "Write it with elementary torch functions, without in-place assignments."
        ) from error
    fields, scale = np.array(values.detach().numpy()), np.array(sizes.detach().numpy())
    if not (np.isfinite(fields).all() and np.isfinite(scale).all()):
        raise InputError(
            f"F: must have finite derivatives of order {length}, got NaN or infinity at "
            f"theta = {theta}. Start where F is smooth."
        )
    scaled: FloatArray = np.zeros_like(fields)
    np.divide(fields, scale[:, None], out=scaled, where=scale[:, None] > 0.0)
    return scaled


def _gradient_field(torch: Any, F: Callable[[Any], Any], z: Any) -> Callable[[Any], Any]:
    def field(theta: Any) -> Any:
        _, pull_back = torch.func.vjp(F, theta)
        return pull_back(z)[0]

    return field


def _terms(
    torch: Any, X: Callable[[Any], Any], Y: Callable[[Any], Any], theta: Any
) -> tuple[Any, Any]:
    """DY X and DX Y; each derivative hands over the value that the other one needs."""
    along = X(theta)
    value, ahead = torch.func.jvp(Y, (theta,), (along,))
    behind = torch.func.jvp(X, (theta,), (value,))[1]
    return ahead, behind


def _bracket(torch: Any, X: Callable[[Any], Any], Y: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def field(theta: Any) -> Any:
        ahead, behind = _terms(torch, X, Y, theta)
        return ahead - behind

    return field


def numbers_touched(model: Parametrization) -> int:
    """About how many numbers one call of F reads and writes: the unit of every cost estimate."""
    torch = require_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        total = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for item in (*args, result):
                self.total += item.numel() if isinstance(item, torch.Tensor) else 0
            return result

    with Counter() as counter, torch.no_grad():
        model.torch_function(model.tensor(model.start))
    return max(int(counter.total), model.p)
