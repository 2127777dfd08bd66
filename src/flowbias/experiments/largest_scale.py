"""The largest scale of the start from which the limit still finds the planted predictor.

[woodworth2020, Figures 1(c) and 3(c)] plot it against the sample size. Small starts are slow to
train, so it is the scale that one would like to use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from flowbias.certificates.certificate import Certificate
from flowbias.ground.arguments import InputError
from flowbias.ground.typing import ArrayLike, FloatArray
from flowbias.limits.continuation import Rescalable
from flowbias.limits.rich_regime import WarmStart
from flowbias.limits.solve import limit_with_state
from flowbias.problems.regression import Regression

TOLERANCE = 1e-10
# Below it no limit can be certified to TOLERANCE: feasibility is 2 |log scale| eps at best.
LOWEST_LOG_SCALE = -1e5
_SCAN_FIX = "Pass natural logarithms from large to small, for example np.linspace(0.0, -30.0, 16)."


@dataclass(frozen=True)
class LargestScale:
    """error <= threshold at log_scale, error_above > threshold at log_scale_above, just above it.

    log_scale is -inf where no scale passes; `error` is then that of the rich limit, and
    log_scale_above the smallest scale that was tried. log_scale_above is inf, and error_above NaN,
    where the first scale of the scan passes already: the scan should have begun higher.
    """

    log_scale: float
    error: float
    log_scale_above: float
    error_above: float
    #: worst of all limits on the way: what their certificates leave open, and ||w - exact limit||
    optimality: float
    error_bound: float
    solves: int


def optimality(certificate: Certificate) -> float:
    """How far a solution may be from feasible, stationary and free of gap, relatively."""
    return max(certificate.feasibility, *certificate.relative)


class _Errors:
    """Errors of the limit at one scale after the other, each started from the one before."""

    def __init__(
        self, model: Rescalable, problem: Regression, error: Callable[[FloatArray], float]
    ) -> None:
        self._model, self._problem, self._error = model, problem, error
        self._warm: WarmStart | None = None
        self.optimality = self.error_bound = 0.0
        self.solves = 0

    def at(self, log_scale: float) -> float:
        """The error at a scale; SolveError where the limit there cannot be certified."""
        model = self._model.at_log_scale(log_scale)
        found, state = limit_with_state(model, self._problem, tol=TOLERANCE, warm=self._warm)
        found.checked(throw=True)
        self._warm = None if state is None else WarmStart(state, state.dual)
        self.optimality = max(self.optimality, optimality(found.certificate))
        self.error_bound = max(self.error_bound, found.certificate.error_bound)
        self.solves += 1
        return float(self._error(found.w))

    def found(self, here: tuple[float, float], above: tuple[float, float]) -> LargestScale:
        """The answer, from (log-scale, error) of both ends."""
        return LargestScale(*here, *above, self.optimality, self.error_bound, self.solves)


def largest_scale(
    model: Rescalable,
    problem: Regression,
    error: Callable[[FloatArray], float],
    *,
    threshold: float,
    rich_error: float,
    log_scales: ArrayLike,
    halvings: int = 5,
) -> LargestScale:
    """The largest scale at which error(limit) <= threshold, as far as a scan can tell.

    The scan goes down `log_scales` to the first scale that passes. Its neighbour above failed, and
    the interval between the two, in the logarithm of the scale, is halved `halvings` times with a
    passing lower and a failing upper end; the lower end is returned. The error need not be monotone
    in the scale: what is certain is that every scale tried above the one returned fails. A window
    of passing scales narrower than a step of the scan can be missed.

    Where the whole scan fails, `rich_error`, the error of the limit of the limits as the scale goes
    to zero, decides. If it passes, the scan goes on, each time to the square of the scale, down to
    exp(LOWEST_LOG_SCALE); if it does not, no scale is taken to pass: -inf.
    """
    _check_threshold(threshold)
    scan = _checked_scan(log_scales)
    errors = _Errors(model, problem, error)
    above, error_above = np.inf, np.nan
    for here in _downward(scan, endless=rich_error <= threshold):
        error_here = errors.at(here)
        if error_here <= threshold:
            break
        above, error_above = here, error_here
    else:
        return errors.found((-np.inf, rich_error), (above, error_above))
    for _ in range(halvings if above < np.inf else 0):
        middle = 0.5 * (here + above)
        error_middle = errors.at(middle)
        if error_middle <= threshold:
            here, error_here = middle, error_middle
        else:
            above, error_above = middle, error_middle
    return errors.found((here, error_here), (above, error_above))


def _downward(scan: FloatArray, *, endless: bool) -> Iterator[float]:
    """The scales of the scan; where `endless`, then each the square of the last, to the lowest."""
    yield from map(float, scan)
    here = 2.0 * float(scan[-1])
    while endless and here >= LOWEST_LOG_SCALE:
        yield here
        here *= 2.0


def _checked_scan(log_scales: ArrayLike) -> FloatArray:
    scan = np.asarray(log_scales, dtype=np.float64)
    if scan.ndim != 1 or scan.size == 0 or not np.isfinite(scan).all():
        raise InputError(
            f"log_scales: must be a non-empty list of finite numbers, got {scan!r}. {_SCAN_FIX}"
        )
    if not (np.diff(scan) < 0.0).all() or scan[-1] >= 0.0:
        raise InputError(f"log_scales: must decrease and end below 0, got {scan!r}. {_SCAN_FIX}")
    return scan


def _check_threshold(threshold: float) -> None:
    if not 0.0 < threshold < np.inf:
        raise InputError(
            f"threshold: must be a positive number, got {threshold!r}. "
            "Pass the largest error that counts as success, for example 0.025."
        )
