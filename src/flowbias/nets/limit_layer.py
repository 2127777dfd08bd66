"""The limit as a differentiable function of its data and of the scale of the start.

With u = (dw/dy)^T g for a gradient g in w, and W = diag(w'(z)):

    grad y = u,     grad X = -u w^T + nu (W g - W X^T u)^T,     grad log_scale = <g, dw/dlog_scale>

From the implicit function theorem on w = grad Q*(shift + X^T nu), X w = y; `limits/sensitivity.py`
has the derivatives. The limit itself is solved in double precision and certified;
it comes back in the type and on the device of X. [woodworth2020, Theorems 1 and 3]
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.problems.regression import Regression
from flowbias.results.solution import Sensitivity, Solution


def limit_layer(model: Any, X: Any, y: Any, log_scale: Any = None, *, tol: float = 1e-10) -> Any:
    """`fb.limit(model, X, y).w` as a tensor that backpropagates into X, y and log_scale.

    First derivatives by torch.autograd; torch.func transforms do not go through it.

    Parameters
    ----------
    model : a network with a potential
    X, y : tensors (n, d) and (n); the rows of X must be independent, so that the limit interpolates
        (the limit on more samples than features is least squares: torch.linalg.lstsq)
    log_scale : a tensor of one number; the start is then `model.at_log_scale(log_scale)`
    tol : of the certificate

    Returns
    -------
    tensor (d,)

    Raises
    ------
    InputError for rows that depend on each other
    SolveError where the limit cannot be certified

    >>> import torch, flowbias as fb
    >>> X, y = torch.tensor([[1.0, 2.0]]), torch.tensor([1.0], requires_grad=True)
    >>> w = limit_layer(fb.DiagonalNet(depth=2, scale=0.1), X, y)
    >>> torch.autograd.grad(w @ X[0], y)[0].round(decimals=5)  # X w = y
    tensor([1.])
    """
    torch = require_torch()
    _check_tensors(torch, X, y, log_scale)
    if Provides.POTENTIAL not in provided_by(model):
        raise unfitting(model, "provide POTENTIAL", "Its limit has no such derivative.")
    return _limit_function().apply(X, y, log_scale, model, tol)


def _check_tensors(torch: Any, X: Any, y: Any, log_scale: Any) -> None:
    named = {"X": X, "y": y} | ({} if log_scale is None else {"log_scale": log_scale})
    for name, value in named.items():
        if not torch.is_tensor(value) or not value.is_floating_point():
            got = value.dtype if torch.is_tensor(value) else type(value).__name__
            raise InputError(
                f"{name}: must be a tensor of real floating-point numbers, got {got}. "
                f"Pass torch.as_tensor({name}, dtype=torch.float64)."
            )
        if value.layout is not torch.strided:
            raise InputError(
                f"{name}: must be dense, got layout {value.layout}. Pass {name}.to_dense(), or "
                "take fb.limit on a scipy.sparse X without gradients."
            )
    if log_scale is not None and log_scale.numel() != 1:
        raise InputError(
            f"log_scale: must hold one number, got shape {tuple(log_scale.shape)}. "
            "Give the shape of the start to the model, as w0."
        )


@cache
def _limit_function() -> Any:
    """The autograd function; a class of torch's, so made when torch is first used."""
    torch = require_torch()

    class LimitFunction(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, X: Any, y: Any, log_scale: Any, model: Any, tol: float) -> Any:
            start = model if log_scale is None else _at_log_scale(model, float(log_scale))
            problem = Regression(_as_doubles(X), _as_doubles(y))
            _check_rows(problem)
            solution: Solution = limit(start, problem, tol=tol)
            _check_fit(solution)
            ctx.adjoint = LimitAdjoint(start, problem, solution)
            ctx.save_for_backward(X, y, *(() if log_scale is None else (log_scale,)))
            # A copy: gradients need w as it was, whatever happens to the tensor in place.
            return torch.tensor(solution.w).to(X)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            if torch.is_grad_enabled():
                # once_differentiable would let a second derivative pass as zero where the
                # gradient that comes in is a constant.
                raise InputError(
                    "create_graph: must be False, got True. limit_layer has first derivatives "
                    "only; take differences of its gradients for second ones."
                )
            X, y, *rest = ctx.saved_tensors
            gradients = ctx.adjoint.gradients(_as_doubles(gradient), bool(rest))
            wanted = zip(gradients, (X, y, *rest), strict=True)
            found = [torch.as_tensor(value).to(like).reshape(like.shape) for value, like in wanted]
            return (*found, *[None] * (5 - len(found)))

    return LimitFunction


class LimitAdjoint:
    """Gradients at one limit; its derivatives are found by the first call and kept."""

    def __init__(self, model: HasPotential, problem: Regression, solution: Solution) -> None:
        self.model, self.problem, self.solution = model, problem, solution

    @cached_property
    def sensitivity(self) -> Sensitivity:
        return self.solution.sensitivity()

    @cached_property
    def curvature(self) -> FloatArray:
        """The diagonal of W."""
        z = np.asarray(self.model.shift + self.problem.X.T @ self.solution.dual)
        return np.broadcast_to(self.model.potential.hess_dual(z), self.solution.w.shape)

    def gradients(self, g: FloatArray, in_scale: bool) -> list[FloatArray]:
        """In X, in y, and in log_scale where asked for."""
        u = np.asarray(self.sensitivity.dw_dy.T @ g)
        across = self.curvature * (g - self.problem.X.T @ u)
        in_X = np.outer(self.solution.dual, across) - np.outer(u, self.solution.w)
        return [in_X, u, *([self._in_log_scale(g)] if in_scale else [])]

    def _in_log_scale(self, g: FloatArray) -> FloatArray:
        drift = self.sensitivity.dw_dlog_scale
        if drift is None:
            raise InputError(
                f"log_scale: must belong to a model with a scale, got {self.model!r}. "
                "Leave log_scale out."
            )
        return np.asarray(g @ drift)


def _as_doubles(tensor: Any) -> FloatArray:
    doubles: FloatArray = tensor.detach().to("cpu").double().numpy()
    return doubles


def _at_log_scale(model: Any, log_scale: float) -> Any:
    if Provides.SCALE not in provided_by(model):
        raise unfitting(model, "provide SCALE", "Leave log_scale out.")
    return model.at_log_scale(log_scale)


def _check_rows(problem: Regression) -> None:
    n, d = problem.X.shape
    rank = len(problem.constraint.target)
    if rank < n:
        raise InputError(
            f"X: must have independent rows, got rank {rank} with {n} rows and {d} columns. There "
            "the limit is a least-squares fit, which is not smooth in X; drop dependent rows, or "
            "use torch.linalg.lstsq where n >= d."
        )


def _check_fit(solution: Solution) -> None:
    if solution.distance > 0.0:
        raise InputError(
            "y: must be within reach of the model, got one that its coordinates, which keep one "
            f"sign, miss by a relative {solution.distance:.1e}. Start from weights without zeros."
        )
