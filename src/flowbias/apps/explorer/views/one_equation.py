"""One equation <x, w> = y: its solutions, the flow's way to one of them, and the two extremes.

With a single equation the dual nu is one number, and the flow moves it from 0 to its limit without
ever turning back. The path is therefore known without integration, at any scale:

    w = grad Q*(shift + x nu s),   0 <= s <= 1     [woodworth2020, proof of Theorem 1]

Seen otherwise, the point where <x, w> = c y is the limit of the same flow for the target c y.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from flowbias.apps.explorer.controls import Slider, scale_slider
from flowbias.apps.explorer.views.proof_words import Extremes
from flowbias.ground.typing import FloatArray
from flowbias.limits.solve import limit
from flowbias.models.diagonal import DiagonalNet
from flowbias.models.untied import UntiedDiagonalNet
from flowbias.problems.regression import Regression
from flowbias.results.solution import Solution

# Shares of the dual's way: dense near the end, where a tiny start does all its moving.
SHARES = np.append(1.0 - np.geomspace(1.0, 1e-5, 200), 1.0)
# Shares of the target where the dual cannot be told from its limit in doubles.
FEW_SHARES = (0.25, 0.5, 0.75)


def scale_stops() -> tuple[float, ...]:
    """Base-10 logarithms from -100 to 2, by tenths down to 1e-6 and then in growing steps."""
    stops, step = [-6.0], 0.1
    while stops[-1] > -100.0:
        step *= 1.1
        stops.append(max(round(stops[-1] - step, 1), -100.0))
    return (*reversed(stops), *(round(0.1 * k, 1) for k in range(-59, 21)))


WIDE_SCALE = scale_slider(-100.0, 2.0, 0.1, -0.5, scale_stops(), plays=True)
DEPTH = Slider("depth", "Depth D", 2, 6, 1, 2)


@dataclass(frozen=True)
class DiagonalStart:
    """A diagonal network at its start: d features, the first of them at `first`, the rest at 0."""

    scale: float
    depth: int
    shape: float
    first: float

    def model(self, d: int) -> Any:
        """Untied at depth 2, where the two layers may differ in size; tied above it."""
        start = np.zeros(d)
        start[0] = self.first
        # Not the sum for all: the power of a tiny scale is no double, and a weight 0 stays 0.
        moved = (self.scale**self.depth + np.abs(start)) ** (1 / self.depth)
        plus = np.where(start > 0.0, moved, self.scale)
        minus = np.where(start < 0.0, moved, self.scale)
        if self.depth > 2:
            return DiagonalNet.from_weights(plus, minus, depth=self.depth)
        ratio = np.sqrt((1 + self.shape) / (1 - self.shape))
        return UntiedDiagonalNet.from_weights(
            plus / ratio, minus / ratio, plus * ratio, minus * ratio
        )

    def code(self, d: int) -> str:
        """Lines that make the same model and call it `net`."""
        zeros = f"{self.first!r}, " + ", ".join(["0.0"] * (d - 1))
        lines = [
            f"scale, start = {self.scale!r}, np.array([{zeros}])",
            f"moved = (scale**{self.depth} + np.abs(start)) ** (1 / {self.depth})",
            "plus = np.where(start > 0, moved, scale)",
            "minus = np.where(start < 0, moved, scale)",
        ]
        if self.depth > 2:
            lines.append(f"net = fb.DiagonalNet.from_weights(plus, minus, depth={self.depth})")
        else:
            lines += [
                f"ratio = np.sqrt((1 + {self.shape!r}) / (1 - {self.shape!r}))  # v over u",
                "net = fb.UntiedDiagonalNet.from_weights(",
                "    plus / ratio, minus / ratio, plus * ratio, minus * ratio",
                ")",
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Ends:
    """Where the flow ends on one equation, how it gets there, and the two extreme solutions."""

    x: FloatArray
    y: float
    solution: Solution
    path: FloatArray
    extremes: Extremes
    # Q(w) - <shift, w>: what the limit minimizes on the line; terms per coordinate.
    potential: Any
    shift: FloatArray

    @property
    def points(self) -> tuple[FloatArray, ...]:
        """All that has to be seen of it."""
        return self.solution.w, self.path, self.extremes.rich, self.extremes.kernel

    def terms(self, w: FloatArray) -> FloatArray:
        """The regularizer per coordinate, for points (..., d)."""
        return np.asarray(self.potential.value_terms(w) - self.shift * w)


def follow(start: DiagonalStart, x: FloatArray, y: float) -> Ends:
    """Limit, path and extremes; SolveError where the limit cannot be certified."""
    X, target = x[np.newaxis], np.array([y])
    model = start.model(len(x))
    solution = limit(model, X, target)
    shift = np.broadcast_to(np.asarray(model.shift, dtype=np.float64), x.shape)
    return Ends(
        x=x,
        y=y,
        solution=solution,
        path=_path(model, X, target, solution, shift),
        extremes=_extremes(tuple(x.tolist()), y),
        potential=model.potential,
        shift=shift,
    )


# A scale that moves leaves the equation as it is.
@lru_cache(maxsize=32)
def _extremes(x: tuple[float, ...], y: float) -> Extremes:
    return Extremes.of(Regression(np.array([x]), np.array([y])))


def _path(
    model: Any, X: FloatArray, y: FloatArray, solution: Solution, shift: FloatArray
) -> FloatArray:
    moved = np.multiply.outer(SHARES, X[0] * float(solution.dual[0]))
    path = np.asarray(model.potential.grad_dual(shift + moved))
    gap = np.abs(path[-1] - solution.w).max()
    # A path that ends further away from the limit, in shares of its size, is not its path.
    if gap <= 1e-3 * np.abs(solution.w).max():
        return path
    first = np.broadcast_to(np.asarray(model.initial, dtype=np.float64), solution.w.shape)
    reached = float(X[0] @ first)
    targets = (reached + share * (y - reached) for share in FEW_SHARES)
    between = [limit(model, X, target).w for target in targets]
    return np.array([first, *between, solution.w])
