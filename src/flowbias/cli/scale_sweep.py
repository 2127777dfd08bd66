"""The limits along many scales, with both ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowbias._typing import FloatArray
from flowbias.cli.data import Data
from flowbias.cli.start import Network, log_of
from flowbias.limits import LimitPath, limit_path, min_norm, rich_limit
from flowbias.problem import InputError
from flowbias.solution import Solution

# More than any picture or screen can show, and all of them are kept in memory.
_MOST = 100_000


@dataclass(frozen=True)
class Sweep:
    """Limits from large scales to small ones, and what they tend to in both directions."""

    data: Data
    network: Network
    #: of an untied network
    shape: float | None
    path: LimitPath
    kernel: Solution
    rich: Solution

    @cached_property
    def w(self) -> FloatArray:
        """One limit per row."""
        return self.path.w

    @property
    def certified(self) -> bool:
        """Whether every limit is, and both ends."""
        return all(point.status.ok for point in (*self.path, self.kernel, self.rich))


def log_scales_between(largest: str, smallest: str, count: int) -> FloatArray:
    """Natural logarithms from the larger of two scales to the smaller, evenly spaced."""
    ends = sorted((log_of("--from", largest), log_of("--to", smallest)), reverse=True)
    if ends[0] == ends[1]:
        raise InputError(
            f"--from, --to: must be different scales, got {largest} and {smallest}. "
            "For a single scale use: flowbias limit DATA --scale ..."
        )
    if not 2 <= count <= _MOST:
        raise InputError(
            f"--count: must be between 2 and {_MOST}, got {count}. "
            "For a single scale use: flowbias limit DATA --scale ..."
        )
    return np.linspace(ends[0], ends[1], count)


def sweep(
    network: Network, shape: float | None, data: Data, log_scales: FloatArray, tol: float
) -> Sweep:
    """Solve at every scale. A limit that cannot be certified is kept; its status says so."""
    problem = data.problem
    return Sweep(
        data,
        network,
        shape,
        limit_path(network, problem, log_scales=log_scales, tol=tol, throw=False),
        min_norm(problem, tol=tol, throw=False),
        rich_limit(network, problem, tol=tol, throw=False),
    )
