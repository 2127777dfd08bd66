"""Models whose regime is known: the limit of their flow and both of its extremes.

    position = ||w - w_k|| / (||w - w_k|| + ||w - w_r||)

w_k is the limit of the model linearized at its start, w_r that of starts of vanishing scale: by
linear algebra, but for w_r of matrix factorization, for which the flow from scale 1e-8 stands in.
Diagonal networks set the thresholds; the others only judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import flowbias as fb
from flowbias.models._base import Model, Parameters
from flowbias.regime import Verdict

# Where both extremes are as close as this, relatively, there is no regime to tell.
DISTINCT = 0.5


@dataclass(frozen=True)
class Case:
    """A start, where its flow ended, and the exact position of that between both extremes."""

    family: str
    label: str
    before: Any
    after: Any
    x: Any
    y: Any
    position: float


def true_verdict(position: float) -> Verdict:
    """By the exact position: kernel up to a tenth of the way, rich from nine tenths on."""
    if position <= 0.1:
        return Verdict.KERNEL
    return Verdict.RICH if position >= 0.9 else Verdict.IN_BETWEEN


class Extremes(NamedTuple):
    """Predictors as vectors: of the limit, of the linearized model and of vanishing scale."""

    limit: np.ndarray
    kernel: np.ndarray
    rich: np.ndarray

    @property
    def distinct(self) -> bool:
        apart = np.linalg.norm(self.kernel - self.rich)
        return bool(apart > DISTINCT * np.linalg.norm(self.rich))

    @property
    def position(self) -> float:
        lazy, rich = (np.linalg.norm(self.limit - e) for e in (self.kernel, self.rich))
        return float(lazy / (lazy + rich))


def linearized(features: np.ndarray, jacobian: np.ndarray, w0: np.ndarray, y: np.ndarray) -> Any:
    """w_0 + J J^T X^T (X J J^T X^T)^+ (y - X w_0), with X `features`."""
    pulled = features @ jacobian
    return w0 + jacobian @ (np.linalg.pinv(pulled, rcond=1e-10) @ (y - features @ w0))


def jacobian_of(model: Model) -> np.ndarray:
    """dw/dtheta, (features, parameters)."""
    parameters = model.initial_parameters()
    w = model.predictor(parameters)
    rows = (model.parameter_gradient(parameters, unit) for unit in np.eye(w.size))
    return np.array([np.concatenate([np.ravel(part) for part in row]) for row in rows])


def _sparse(rng: np.random.Generator, most: int = 25) -> Any:
    n = int(rng.integers(5, most))
    d = int(n * rng.uniform(1.3, 5.0))
    noise = float(rng.choice([0.0, 0.01]))
    return fb.datasets.sparse_regression(n=n, d=d, sparsity=3, noise_var=noise, rng=rng)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def diagonal(rng: np.random.Generator) -> Case | None:
    """Depths 2 to 6, even and uneven starts."""
    X, y, _ = _sparse(rng)
    depth = int(rng.integers(2, 7))
    # Below 1e-7 of the predictor's size (1e-14 at depth 2) doubles no longer hold the weights.
    scale = _log_uniform(rng, *((1e-7, 5.0) if depth == 2 else (10 ** (-7 / depth), 3.0)))
    w0 = np.exp(0.5 * rng.standard_normal(X.shape[1]) * rng.integers(2))
    model = fb.DiagonalNet(depth=depth, scale=scale, w0=w0)
    limit = fb.limit(model, X, y)
    weights = model.parameters(X.T @ limit.dual)
    kernel = linearized(X, jacobian_of(model), np.zeros(X.shape[1]), y)
    found = Extremes(limit.w, kernel, fb.rich_limit(model, X, y).w)
    if not found.distinct:
        return None
    return Case("diagonal", f"depth {depth}, {scale:.1e}", model, weights, X, y, found.position)


def neuron(rng: np.random.Generator) -> Case | None:
    """One linear neuron of any shape; its rich extreme has least norm."""
    X, y, _ = _sparse(rng)
    scale, shape = _log_uniform(rng, 1e-4, 1e2), float(rng.uniform(-0.95, 0.9))
    direction = rng.standard_normal(X.shape[1])
    model = fb.Neuron.from_scale_shape(scale, shape, direction)
    return _followed("neuron", f"{scale:.1e}, shape {shape:.1f}", model, X, y)


def _followed(family: str, label: str, model: Any, X: Any, y: Any) -> Case | None:
    flow = fb.flow(model, X, y, residual=1e-6)
    weights = flow.parameters(flow.t[-1])
    w0 = np.asarray(model.predictor(model.initial_parameters()))
    kernel = linearized(X, jacobian_of(model), w0, y)
    found = Extremes(np.asarray(model.predictor(weights)), kernel, fb.min_norm(X, y).w)
    return Case(family, label, model, weights, X, y, found.position) if found.distinct else None


class DeepLinear(Model):
    """f(x) = W_D ... W_1 x with one output, or the difference of two of them."""

    def __init__(self, *copies: list[np.ndarray]) -> None:
        self.depth = len(copies[0])
        self.weights = tuple(weight for copy in copies for weight in copy)

    def initial_parameters(self) -> Parameters:
        return self.weights

    def _copies(self, parameters: Parameters) -> tuple[tuple[float, Parameters], ...]:
        parts = parameters[: self.depth], parameters[self.depth :]
        return tuple((sign, part) for sign, part in zip((1.0, -1.0), parts, strict=True) if part)

    def predictor(self, parameters: Parameters) -> np.ndarray:
        total = 0.0
        for sign, weights in self._copies(parameters):
            product = weights[0]
            for weight in weights[1:]:
                product = weight @ product
            total = total + sign * product[0]
        return np.asarray(total)

    def parameter_gradient(self, parameters: Parameters, g: np.ndarray) -> Parameters:
        found: list[np.ndarray] = []
        for sign, weights in self._copies(parameters):
            below = [sign * g]  # W_l ... W_1 g
            for weight in weights[:-1]:
                below.append(weight @ below[-1])
            above, gradients = np.ones(1), []
            for weight, seen in zip(reversed(weights), reversed(below), strict=True):
                gradients.append(np.outer(above, seen))
                above = above @ weight
            found += reversed(gradients)
        return tuple(found)

    def module(self, parameters: Parameters) -> Any:
        """The same as a torch module."""
        import torch

        from flowbias.nets import mlp, unbiased

        first = parameters[: self.depth]
        sizes = [first[0].shape[1], *(len(weight) for weight in first)]
        module = mlp(sizes, slope=1.0, dtype=torch.float64)
        if len(parameters) > self.depth:
            module = unbiased(module)
        with torch.no_grad():
            for own, weight in zip(module.parameters(), parameters, strict=True):
                own.copy_(torch.as_tensor(weight))
        return module


def deep_linear(rng: np.random.Generator) -> Case | None:
    """Depths 2 to 4, as torch modules, half of them doubled; the rich extreme has least norm."""
    import torch

    X, y, _ = _sparse(rng, most=10)
    depth, width = int(rng.integers(2, 5)), int(rng.integers(2, 7))
    doubled = bool(rng.integers(2))
    # A start that is not doubled has outputs that grow with it: large ones are no more lazy.
    scale = _log_uniform(rng, 10 ** (-4 / depth), 10 ** (4 / depth) if doubled else 1.0)
    sizes = [X.shape[1], *[width] * (depth - 1), 1]
    weights = [scale * rng.standard_normal((m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    model = DeepLinear(weights, weights) if doubled else DeepLinear(weights)
    label = f"depth {depth}, {scale:.1e}{' doubled' * doubled}"
    case = _followed("deep linear", label, model, X, y)
    if case is None:
        return None
    modules = model.module(model.weights), model.module(case.after)
    return Case(case.family, case.label, *modules, torch.as_tensor(X), y, case.position)


def factorization(rng: np.random.Generator) -> Case | None:
    """Random measurements of low-rank matrices; the rich extreme is the flow's from scale 1e-8."""
    d, m = (int(size) for size in rng.integers(4, 9, size=2))
    count = int(rng.uniform(0.4, 0.8) * d * m)
    target = rng.standard_normal((d, 1)) @ rng.standard_normal((1, m))
    matrices = rng.standard_normal((count, d, m))
    problem = fb.MatrixSensing(matrices, np.einsum("nij,ij->n", matrices, target))
    width, scale = int(rng.integers(max(d, m), 25)), _log_uniform(rng, 1e-5, 1e1)
    U, V = rng.standard_normal((d, width)), rng.standard_normal((m, width))
    build: Callable[..., Any] = (
        fb.MatrixFactorization.unbiased
        if rng.integers(2)
        else lambda U, V, scale: fb.MatrixFactorization(scale * U, scale * V)
    )
    model = build(U, V, scale=scale)
    flow = fb.flow(model, problem)
    factors = flow.factors(-1)
    start = model.factors
    jacobian = np.vstack(
        [
            np.concatenate(
                [np.outer(unit_i, start.V[j]).ravel(), np.outer(unit_j, start.U[i]).ravel()]
            )
            for i, unit_i in enumerate(np.eye(d))
            for j, unit_j in enumerate(np.eye(m))
        ]
    )
    rows = matrices.reshape(count, -1)
    kernel = linearized(rows, jacobian, model.product.ravel(), problem.target)
    rich = fb.flow(build(U, V, scale=1e-8), problem, residual=1e-6).M[-1]
    found = Extremes((factors.U @ factors.V.T).ravel(), kernel, rich.ravel())
    label = f"{d} x {m}, width {width}, {scale:.1e}"
    if not found.distinct:
        return None
    return Case("factorization", label, model, factors, problem, problem.target, found.position)


#: What judges the thresholds: none of these took part in setting them.
JUDGES = (factorization, neuron, deep_linear)


def cases(
    make: Callable[[np.random.Generator], Case | None], count: int, seed: int
) -> Iterator[Case]:
    """So many cases of a family, drawn from the seed; those without a regime are passed over."""
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        case = make(rng)
        if case is not None:
            found += 1
            yield case
