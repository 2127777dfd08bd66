"""The flow as the integrator's driver sees it: where it ends, and how far a state has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.integrate import OdeSolver

from flowbias.flows.coordinates import FlowCoordinates
from flowbias.flows.fit import SETTLED, Quality
from flowbias.flows.march import Curve, FlowProgress
from flowbias.flows.trajectory import FlowStatus
from flowbias.ground.arguments import InputError, as_float, shown
from flowbias.ground.typing import ArrayLike, FloatArray

# Local error per step for states asked for by time.
RTOL_AT_TIMES = 1e-11
# Residual in units of rtol below which a flow that no longer falls may count as being at rest.
_REST = 1e3
# By how much rtol is lowered where it stands in the way, and the least the integrators accept.
_TIGHTER, TIGHTEST = 1e-2, 1e-13
# Roundings of the state that may add up in the misfit, and the residual up to which a flow that
# they have stopped may still be called one that has ended.
_FEW, _STILL_A_FIT = 10.0, 1e-4
# Internal times end here, far beyond rest and before overflow.
FOREVER = 1e300


class Judge(Protocol):
    """Says how well a predictor fits."""

    @property
    def size(self) -> float:
        """What the residual is relative to."""

    def quality(self, predictor: FloatArray, /) -> Quality:
        """Of all measurements in one, and of each by itself."""


class FlowJourney:
    """The flow as `march` sees it: to a residual, or to the last of the times asked for."""

    def __init__(
        self,
        coordinates: FlowCoordinates,
        fit: Judge,
        rtol: float,
        atol: float | None,
        times: FloatArray | None,
        residual: float,
    ) -> None:
        self.coordinates, self.fit, self.rtol = coordinates, fit, rtol
        size, duration = coordinates.natural_scales()
        self.size = size if atol is None else atol / rtol
        self.first_step = float(np.sqrt(rtol)) * duration
        self.residual = None if times is not None else residual
        last = np.inf if times is None else times[-1] * coordinates.time_rate
        self.end = float(min(last, FOREVER))

    def depart(self, time: float, state: FloatArray, first_step: float) -> OdeSolver:
        step = min(first_step, self.end - time)
        atol = self.rtol * self.size
        return self.coordinates.solver(time, state, self.end, step, self.rtol, atol)

    def tighten(self) -> bool:
        if self.rtol <= TIGHTEST:
            return False
        self.rtol = max(_TIGHTER * self.rtol, TIGHTEST)
        return True

    def is_rounding(self, state: FloatArray) -> bool:
        quality = self.fit.quality(self.coordinates.predictor(state))
        undecided = _FEW * self.coordinates.rounding(state)
        return quality.within(_STILL_A_FIT) and bool(np.all(quality.left <= undecided))

    def progress(self, state: FloatArray) -> FlowProgress:
        quality = self.fit.quality(self.coordinates.predictor(state))
        if self.residual is None:
            asked, is_done = SETTLED, self.end == 0.0
            is_close = quality.within(_REST * self.rtol)
        else:
            asked, is_close = self.residual, False
            is_done = quality.residual <= asked and quality.within(asked)
        # Of what is as small as asked for, no rise is a fault and no fall a progress.
        misfit = max(quality.misfit, asked * self.fit.size)
        left = np.append(quality.shares, quality.residual)
        residuals = np.append(np.maximum(left, asked), self.coordinates.ahead(state))
        stage = self.coordinates.stage(state)
        return FlowProgress(misfit, residuals, is_done, quality.is_settled, is_close, stage)

    def status(self, curve: Curve) -> FlowStatus:
        status = FlowStatus.STOPPED
        if self.residual is None:
            status = FlowStatus.STOPPED if curve.failure else FlowStatus.FOLLOWED
        elif self.progress(curve.states[-1]).is_done:
            status = FlowStatus.CONVERGED
        elif curve.settled:
            status = FlowStatus.AT_REST
        is_tied = status.ok and self.coordinates.undecided(curve.states)
        return FlowStatus.TIED if is_tied else status


def sampled(
    curve: Curve, coordinates: FlowCoordinates, times: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Times and states to return: all steps, or those asked for as far as they were reached."""
    if times is None:
        return coordinates.times(np.array(curve.times)), np.array(curve.states)
    if curve.failure is not None:
        end = float(coordinates.times(np.array([curve.end]))[0])
        times = np.append(times[times < end], end)
    return times, curve(coordinates.readings(times))


@dataclass(frozen=True)
class FlowRequest:
    """What was asked of `flow`, checked."""

    times: FloatArray | None
    loss: str | float
    residual: float
    rtol: float | None
    atol: float | None
    route: str | None

    @classmethod
    def of(
        cls,
        t: ArrayLike | None,
        loss: str | float,
        residual: float,
        rtol: float | None,
        atol: float | None,
        route: str | None,
    ) -> FlowRequest:
        times = None if t is None else checked_times(t)
        check_tolerance("residual", residual)
        for name, value in (("rtol", rtol), ("atol", atol)):
            if value is not None:
                check_tolerance(name, value)
        return cls(times, loss, residual, rtol, atol, route)


def checked_times(t: ArrayLike) -> FloatArray:
    """Times from 0 on, increasing."""
    try:
        times = np.atleast_1d(np.asarray(t, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"t: must be a list of times, got {t!r}. Pass t=[0.1, 1.0].") from None
    if times.ndim != 1 or times.size == 0:
        raise InputError(f"t: must be a list of times, got shape {times.shape}. Pass t=[0.1, 1.0].")
    right = np.isfinite(times) & (np.diff(times, prepend=-np.inf) > 0.0) & (times >= 0.0)
    if not right.all():
        first = int(np.argmin(right))
        raise InputError(
            f"t: must be finite, non-negative and increasing, got {times[first]:g} at index "
            f"{first}. Sort the times with np.unique(t)."
        )
    return times


def check_tolerance(name: str, value: object) -> None:
    """A tolerance is a small positive number."""
    number = as_float(value)
    if number is None or not 0.0 < number < 1.0:
        raise InputError(f"{name}: must lie in (0, 1), got {shown(value)}. Pass 1e-8 for instance.")
