"""Where a network starts, in many digits: the logarithms of the weights behind its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from tests.fuzz.exact_data import rational
from tests.fuzz.problems import Start


@dataclass(frozen=True)
class Logs:
    """log of the weights behind each part, None where absent; parts are their depth-th powers."""

    plus: list[Any]
    minus: list[Any]
    depth: Any

    @property
    def signs(self) -> list[int | None]:
        """None: either sign; 1 or -1: one sign only; 0: frozen at zero."""
        table = {(True, True): None, (True, False): 1, (False, True): -1, (False, False): 0}
        pairs = zip(self.plus, self.minus, strict=True)
        return [table[p is not None, m is not None] for p, m in pairs]

    @property
    def is_unbiased(self) -> bool:
        pairs = zip(self.plus, self.minus, strict=True)
        return all(p is not None and m is not None and (p - m).contains(0) for p, m in pairs)

    def only(self, columns: Sequence[int]) -> Logs:
        return Logs([self.plus[i] for i in columns], [self.minus[i] for i in columns], self.depth)


def log_of(value: Any) -> Any:
    size = abs(arb(value))
    return None if size == 0 else size.log()


def logs_of(start: Start, d: int) -> Logs:
    """The start at the digits in force; depth 2 from sums and differences of its layers."""
    depth = arb(start.depth)
    common = arb(start.log_scale or 0.0) if start.scale is None else log_of(start.scale)
    if start.kind == "tied":
        w0 = start.weights[0] if start.weights else np.ones(d)
        logs = [common + log_of(float(value)) for value in w0]
        return Logs(logs, logs, depth)
    if start.kind == "tied_weights":
        plus, minus = ([log_of(float(v)) for v in part] for part in start.weights)
        shifted = [[None if v is None else v + common for v in part] for part in (plus, minus)]
        return Logs(*_swapped(start, *shifted), depth)
    if start.kind == "untied":
        s = arb(start.shape)
        half = common + ((1 + s * s) / (1 - s * s)).log() / 2
        return Logs([half] * d, [half] * d, depth)
    return _untied_logs(start, common, depth)


def _swapped(start: Start, plus: list[Any], minus: list[Any]) -> tuple[list[Any], list[Any]]:
    """At odd depth a negative weight takes from w what a positive one adds to it."""
    if not (start.depth.is_integer() and start.depth % 2 == 1):
        return plus, minus
    swap = [a < 0 or b < 0 for a, b in zip(*start.weights, strict=True)]
    first = [m if s else p for p, m, s in zip(plus, minus, swap, strict=True)]
    second = [p if s else m for p, m, s in zip(plus, minus, swap, strict=True)]
    return first, second


def _untied_logs(start: Start, common: Any, depth: Any) -> Logs:
    """P/4 and M/4 as squares: P = (u+ + v+)^2 + (u- - v-)^2, M = (u+ - v+)^2 + (u- + v-)^2."""
    sides: tuple[list[Any], list[Any]] = ([], [])
    for u_plus, u_minus, v_plus, v_minus in zip(*start.weights, strict=True):
        a, b, c, e = (rational(v) for v in (u_plus, u_minus, v_plus, v_minus))
        squares = (a + c) ** 2 + (b - e) ** 2, (a - c) ** 2 + (b + e) ** 2
        for side, square in zip(sides, squares, strict=True):
            side.append(None if square == 0 else common + arb(square / 4).log() / 2)
    return Logs(*sides, depth)


def initial_predictor(logs: Logs) -> list[Any]:
    """w(0), at the digits in force."""
    plus, minus = (
        [arb(0) if value is None else (logs.depth * value).exp() for value in side]
        for side in (logs.plus, logs.minus)
    )
    return [(p - m).mid() for p, m in zip(plus, minus, strict=True)]


def rich_costs(start: Start, d: int) -> tuple[list[Any], list[Any]]:
    """What a unit of each part costs in the rich limit: its start to the power 2 - depth."""
    logs = logs_of(start, d)
    plus, minus = (
        [arb(0) if v is None else ((2 - logs.depth) * v).exp() for v in side]
        for side in (logs.plus, logs.minus)
    )
    return plus, minus
