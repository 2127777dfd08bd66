"""How much of parameter space the gradient fields can reach, and what they leave unchanged.

The points that can be reached from theta0, whatever the data, form a manifold whose tangent space
is spanned by all iterated brackets of the grad F_i. Its dimension r decides two things:

    r = d makes the metric J J^T a function of the predictor alone on it;
    p - r independent quantities are conserved, r taken at a generic start: a special one (balanced
    neurons) can lie on a smaller orbit, which no function around it need see.

The first is sufficient, not necessary: W = U U^T has r > d, and still J J^T depends on W alone.
So its derivative along the reachable directions that leave w at rest is reported as well; J J^T is
a function of w near theta0 exactly if that vanishes on the orbit.

Every rank found is a lower bound: at a special point brackets may add nothing at one length and
something at the next. The dimension of the orbit is the same at all its points (F analytic), so the
largest rank among theta0 and a few generic points is the answer.

The iterated brackets are exact up to rounding:

    X_1 = g(z_1),   X_k = [g(z_k), X_{k-1}],   g(z) = sum_i z_i grad F_i,   [X, Y] = DY X - DX Y

Such nested words span the whole Lie algebra, and as they are linear in each z, random words of
length k span all words of length k as soon as there are enough of them: no list of d^k words.
Each bracket is one more forward derivative of the one before, so a word costs about 3^k gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowbias.derive.hessian_map import FrameError, metric_derivatives_along
from flowbias.derive.parametrization import (
    Parametrization,
    as_parametrization,
    generic_point,
    reachable_points,
)
from flowbias.derive.unit_time import CLEARLY
from flowbias.ground.arguments import InputError, read_rng
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray

#: Distance of a unit field from the span of the others below which it counts as inside.
INSIDE_SPAN = float(np.sqrt(np.finfo(float).eps))
TOLERANCE_ORIGIN = "square root of eps: halfway, in digits, between rounding and an honest field"
#: Gradients of F that one more bracket costs, as a factor: value, derivative along, derivative of.
COST_PER_LEVEL = 3


@dataclass(frozen=True, repr=False)
class OrbitDimension:
    """Dimension of the reachable set, how clearly it was decided, and what follows."""

    dimension: int
    #: the same from a generic start near theta0: larger where theta0 is special
    generic_dimension: int
    parameters: int
    predictors: int
    #: ranks found at theta0 and at the points along random flows
    at_points: tuple[int, ...]
    #: length of the longest bracket that added a direction
    longest: int
    #: distance from the span: the smallest of a field that was kept, the largest of one dropped
    smallest_kept: float
    largest_dropped: float
    #: False if `max_cost` stopped the search: `dimension` is then only a lower bound
    complete: bool
    #: change of J J^T along reachable directions that leave w at rest, relative; NaN: J singular
    metric_change: float
    tolerance: float = INSIDE_SPAN
    tolerance_origin: str = TOLERANCE_ORIGIN
    metric_tolerance: float = 1e-8

    @property
    def gap(self) -> float:
        """Smallest kept over largest dropped; infinite if nothing was near the decision."""
        return self.smallest_kept / max(self.largest_dropped, float(np.finfo(float).tiny))

    @property
    def decided(self) -> bool:
        # Flows followed to 1e-12 and rounding leave 1e-11 of a zero.
        return self.complete and self.gap >= CLEARLY and self.largest_dropped <= 1e-11

    @property
    def conservation_laws(self) -> int:
        """Independent conserved quantities around theta0, polynomial or not."""
        return self.parameters - self.generic_dimension

    @property
    def holds(self) -> bool:
        """Whether the orbit has the dimension of the predictor."""
        return self.decided and self.dimension == self.predictors

    @property
    def metric_from_predictor(self) -> bool:
        """Whether J J^T is a function of w alone on the orbit."""
        return self.decided and self.metric_change <= self.metric_tolerance

    @property
    def summary(self) -> str:
        if not self.complete:
            return (
                f"orbit dimension at least {self.dimension} of {self.parameters}; longer brackets "
                "would exceed max_cost"
            )
        special = (
            ""
            if self.dimension == self.generic_dimension
            else f", from a generic start {self.generic_dimension}"
        )
        text = (
            f"orbit dimension {self.dimension} (predictors {self.predictors}, parameters "
            f"{self.parameters}{special}), {self.conservation_laws} conservation law(s); "
            f"kept >= {self.smallest_kept:.1e}, dropped <= {self.largest_dropped:.1e}"
        )
        if not self.decided:
            return text + ": no clear gap, not decided"
        if np.isnan(self.metric_change):
            return text + "; J J^T is singular on it"
        word = "depends" if self.metric_from_predictor else "does not depend"
        return text + f"; J J^T {word} on w alone (change at fixed w {self.metric_change:.1e})"

    def __repr__(self) -> str:
        return f"OrbitDimension({self.summary})"


def orbit_dimension(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    *,
    points: int = 3,
    rng: int | np.random.Generator = 0,
    max_cost: float = 3e10,
) -> OrbitDimension:
    """Dimension of the Lie algebra generated by the gradient fields, at theta and on its orbit.

    Parameters
    ----------
    F, theta, points, rng : as for `commuting`
    max_cost : floating-point operations allowed, about: 3e10 are a minute on one core

    Returns
    -------
    OrbitDimension

    Raises
    ------
    InputError where F is no smooth function of a vector

    >>> fb.derive.orbit_dimension(lambda theta: theta[:1] * theta[1:], [0.5, 0.2]).dimension
    1
    """
    model = as_parametrization(F, theta)
    random = read_rng(rng)
    # A gradient costs about four calls of F, and a number touched by torch about ten flops.
    gradient = 40.0 * numbers_touched(model)
    budget = _Budget(model.p, points + 2, gradient, max_cost)
    budget.require(2, model.p)
    spans = [_span(model, at, random, budget) for at in reachable_points(model, points, random)]
    generic = _span(model, generic_point(model, random), random, budget)
    dimension = max(span.rank for span in spans)
    full = [span for span in spans if span.rank == dimension]
    return OrbitDimension(
        dimension=dimension,
        generic_dimension=generic.rank,
        parameters=model.p,
        predictors=model.d,
        at_points=tuple(span.rank for span in spans),
        longest=max(span.longest for span in full),
        smallest_kept=min(span.kept for span in (*full, generic)),
        largest_dropped=max(span.dropped for span in (*full, generic)),
        complete=all(span.complete for span in (*full, generic)),
        # np.max, unlike max, lets NaN through.
        metric_change=float(np.max([_metric_change(model, span) for span in full])),
    )


@dataclass
class _Span:
    """An orthonormal basis that grows field by field at one point."""

    theta: FloatArray
    basis: FloatArray
    kept: float = np.inf
    dropped: float = 0.0
    longest: int = 0
    complete: bool = True

    @property
    def rank(self) -> int:
        return len(self.basis)

    def add(self, fields: FloatArray, length: int) -> bool:
        """Take in what lies outside the span; whether there was anything."""
        outside = fields - (fields @ self.basis.T) @ self.basis
        _, values, right = np.linalg.svd(outside, full_matrices=False)
        new = values > INSIDE_SPAN
        self.dropped = max(self.dropped, float(values[~new].max(initial=0.0)))
        if not new.any():
            return False
        self.kept = min(self.kept, float(values[new].min()))
        self.longest = length
        # Projecting once more removes what cancellation left along the old directions.
        added = right[new] - (right[new] @ self.basis.T) @ self.basis
        self.basis = np.linalg.qr(np.vstack([self.basis, added]).T)[0].T
        return True


@dataclass(frozen=True)
class _Budget:
    """What words of a given length cost at all points together, and what they may cost."""

    p: int
    points: int
    gradient: float
    max_cost: float

    def cost(self, length: int, words: int) -> float:
        gradients = words * float(COST_PER_LEVEL) ** (length - 1)
        algebra = 10.0 * words * words * self.p
        return self.points * (gradients * self.gradient + algebra)

    def allows(self, length: int, words: int) -> bool:
        return self.cost(length, words) <= self.max_cost

    def require(self, length: int, words: int) -> None:
        """Refuse before any work, with the price."""
        if self.allows(length, words):
            return
        cost = self.cost(length, words)
        raise InputError(
            f"theta: must have few enough parameters for the bracket test, got {self.p}: "
            f"{words} brackets at {self.points} points take about {cost:.1e} operations "
            f"(allowed {self.max_cost:.1e}) and {8e-9 * words * self.p:.1g} GB. Study a "
            f"smaller instance of the same F, or pass max_cost={2 * cost:.0e}."
        )


def _span(
    model: Parametrization, theta: FloatArray, random: np.random.Generator, budget: _Budget
) -> _Span:
    """All brackets at one point, longer and longer until a length adds nothing."""
    span = _Span(theta, np.zeros((0, model.p)))
    J = model.jacobian(theta)
    sizes = np.linalg.norm(J, axis=1, keepdims=True)
    if not sizes.any():
        return span
    span.add(np.divide(J, sizes, out=np.zeros_like(J), where=sizes > 0.0), 1)
    length = 2
    while span.rank < model.p:
        # Three more than needed to fill the space: all of them must fall inside the span.
        words = model.p - span.rank + 3
        if not budget.allows(length, words):
            span.complete = False
            break
        if not span.add(random_brackets(model, theta, length, words, random), length):
            break
        length += 1
    return span


def _metric_change(model: Parametrization, span: _Span) -> float:
    """||D(J J^T)|| along the part of the span that leaves w at rest, relative to the whole span."""
    J = model.jacobian(span.theta)
    try:
        changes = metric_derivatives_along(model, span.theta, span.basis)
    except FrameError:
        return float("nan")
    _, _, right = np.linalg.svd(J @ span.basis.T)
    at_rest = np.tensordot(right[model.d :], changes, axes=1)
    whole = float(np.linalg.norm(changes))
    # No reachable direction leaves w at rest, or a metric that never changes: nothing to compare.
    return float(np.linalg.norm(at_rest)) / whole if at_rest.size and whole > 0.0 else 0.0


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

    # Numbers that one batch of words may hold at a time: 80 MB.
    chunk = max(1, int(1e7 / (model.p * COST_PER_LEVEL**length)))
    try:
        values, sizes = torch.func.vmap(word, chunk_size=chunk)(letters)
    except RuntimeError as error:
        raise InputError(
            f"F: must be differentiable by torch {length} times in a row, got: {error}. "
            "Write it with elementary torch functions, without in-place assignments."
        ) from error
    fields, scale = np.array(values.numpy(force=True)), np.array(sizes.numpy(force=True))
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
