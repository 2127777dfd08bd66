"""The path of a vanishing start as a result: stages, events and times, and how it shows itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flowbias.certificates.stage_certificate import StageCertificate, weights_of
from flowbias.designs import Design
from flowbias.flows.request import loss_constant
from flowbias.ground.arguments import InputError, as_float
from flowbias.ground.drawing import course, curves, picture
from flowbias.ground.extended import length
from flowbias.ground.html import some, table
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import ArrayLike, Axes, Figure, FloatArray
from flowbias.limits.inverse_scale_space import EPS, Columns, Stage
from flowbias.limits.rich_limit import rich_limit
from flowbias.limits.slow_clock import VanishingStart, wake_times
from flowbias.potentials import Provides
from flowbias.potentials.scale import read_real
from flowbias.results.solution import Solution, SolveError, Stats, Status


class Change(StrEnum):
    """What happens to a feature at the beginning of a stage."""

    WAKES = "wakes"
    SLEEPS = "falls asleep"


class Event(NamedTuple):
    """A feature that gets a weight, or loses it."""

    time: float
    feature: int
    change: Change
    #: of the weight: +1 or -1
    sign: int

    def told_of(self, name: str) -> str:
        """What happens, to a feature of this name."""
        return f"{name} {self.change.value} ({'+' if self.sign > 0 else '-'})"

    def __str__(self) -> str:
        return f"tau = {self.time:.6g}: {self.told_of(f'feature {self.feature}')}"


@dataclass(frozen=True, eq=False)
class Data:
    """X as it was given, y, and X by blocks."""

    X: Any
    y: FloatArray
    design: Design

    def columns(self) -> tuple[Columns, float]:
        """X / unit, and the unit: a power of two, which rounds nothing.

        So that no product of X and y leaves the double range.
        """
        if self.X is self.design:
            return Columns.of_design(self.design), 1.0
        unit = float(np.exp2(np.frexp(np.abs(self.X).max())[1] - 1))
        return Columns.of_array(self.X / unit), unit


@dataclass(frozen=True, eq=False)
class StagePath:
    """w from each of `times` on, until the next; the last stage is the end of the path.

    >>> X, y = np.array([[1, 0.5, 0.7, 0], [0.5, 1, 0.1, 0.7]]), np.array([1.0, 0.0])
    >>> path = fb.stages(fb.DiagonalNet(depth=2, scale=1.0), X, y)
    >>> path.times.round(3), path.w[-1].round(4)
    (array([0.   , 1.   , 4.   , 5.633]), array([ 0.    ,  0.    ,  1.4286, -0.2041]))
    >>> print(path.events[-1])
    tau = 5.63265: feature 3 wakes (-)
    """

    model: Any
    data: Data
    start: VanishingStart
    stages: tuple[Stage, ...]
    status: Status
    certificate: StageCertificate
    stats: Stats
    #: whether the last stage is the limit; False where `max_stages` cut the path short, or rounding
    is_whole: bool
    max_stages: int | None = None
    #: whether it took rational numbers, of which these are the nearest doubles
    is_exact: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """With the name of its status: skops restores no members of enumerations."""
        return {**self.__dict__, "status": self.status.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, status=Status[state["status"]])

    @cached_property
    def times(self) -> FloatArray:
        """In the slow time tau, from 0 on."""
        return np.array([stage.time for stage in self.stages])

    @property
    def w(self) -> FloatArray:
        """One stage per row."""
        return np.asarray(weights_of(self.stages, self.data.design.d).toarray())

    def _dense(self, stage: Stage) -> FloatArray:
        w = np.zeros(self.data.design.d)
        w[list(stage.support)] = stage.coefficients
        return w

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Which feature wakes or falls asleep, and when."""
        return tuple(event for k in range(len(self)) for event in self.events_at(k))

    def events_at(self, k: int) -> tuple[Event, ...]:
        """Those at the beginning of stage k; none at the first one, where all features sleep."""
        return tuple(_events(self.stages[k - 1], self.stages[k])) if k else ()

    @cached_property
    def residual(self) -> FloatArray:
        """||X w - y|| / ||y|| on each stage; no less than the rounding of y."""
        left = np.array([length(stage.residual) for stage in self.stages])
        return np.maximum(left / (length(self.data.y) or 1.0), EPS)

    def at(self, tau: ArrayLike) -> FloatArray:
        """w at these times: (d,) for one of them, one row for each of several."""
        asked = _read_tau(tau)
        numbers = np.searchsorted(self.times, asked, side="right") - 1
        rows = [self._dense(self.stages[k]) for k in np.ravel(numbers)]
        return np.reshape(rows, (*asked.shape, self.data.design.d))

    def stopped(
        self,
        *,
        n_features: int | None = None,
        tau: float | None = None,
        residual: float | None = None,
    ) -> Stage:
        """The last stage with so many features at most, or by this time; or the first that fits.

        >>> X, y = np.eye(2), np.array([2.0, 1.0])
        >>> fb.stages(fb.DiagonalNet(depth=2, scale=1.0), X, y).stopped(n_features=1).coefficients
        array([2.])
        """
        rules = {"n_features": n_features, "tau": tau, "residual": residual}
        given = {name: value for name, value in rules.items() if value is not None}
        numbers = [as_float(value) for value in given.values()]
        if len(numbers) != 1 or numbers[0] is None or not numbers[0] >= 0.0:
            raise InputError(
                f"n_features, tau, residual: exactly one must be given, and be >= 0, got {given}. "
                "For instance stopped(n_features=5)."
            )
        if tau is not None:
            return self.stages[int(np.searchsorted(self.times, tau, side="right")) - 1]
        if n_features is not None:
            # Features may fall asleep again: the last stage before there are ever more.
            counts = np.array([len(stage.support) for stage in self.stages])
            more = np.flatnonzero(counts > n_features)
            return self.stages[int(more[0]) - 1 if len(more) else -1]
        fits = np.flatnonzero(self.residual <= float(residual or 0.0))
        return self.stages[int(fits[0]) if len(fits) else -1]

    def time_at(
        self, log_scale: float, tau: ArrayLike | None = None, *, loss: str | float = "half"
    ) -> FloatArray:
        """Where the flow from a start of this scale is at `tau` (default: at `times`), in its time.

        To leading order: a jump is spread over 1/log(1/scale) of tau at depth 2.
        """
        pace = self.start.log_pace(_read_log_scale(log_scale))
        asked = self.times if tau is None else _read_tau(tau)
        c = loss_constant(loss, len(self.data.y))
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(np.exp(np.log(asked) + pace - np.log(c)))

    def wake_times(
        self, log_scale: float, *, share: float = 0.01, loss: str | float = "half"
    ) -> FloatArray:
        """When features wake in the flow from a start of this scale: at each event of that kind.

        Awake with `share` of the weight that they have on the next stage. To first order in
        1/log(1/scale) and in the share, where no feature falls asleep in that jump or before it
        (`slow_clock.py`); `time_at` is the leading order.
        """
        if Provides.SCALE not in provided_by(self.model):
            raise unfitting(self.model, "declare SCALE", "Take the stages of fb.DiagonalNet.")
        part = as_float(share)
        if part is None or not 0.0 < part <= 1.0:
            raise InputError(f"share: must be > 0 and at most 1, got {share!r}. Try share=0.01.")
        model = self.model.at_log_scale(_read_log_scale(log_scale))
        c = loss_constant(loss, len(self.data.y))
        columns, unit = self.data.columns()
        # With X in these units nu is in their inverse.
        jumps = wake_times(model, columns, self.stages, c * unit, part)
        return np.array([at for jump in jumps for at in jump])

    @cached_property
    def limit(self) -> Solution:
        """The rich limit, with its own certificate. For X in memory."""
        return rich_limit(self.model, self.data.X, self.data.y, throw=False)

    @property
    def message(self) -> str:
        """The status in words."""
        c = self.certificate
        ends = "to the limit" if self.is_whole else "cut short"
        if not self.is_whole and len(self) != self.max_stages:
            ends += f" where what still pulls is rounding, {self.residual[-1]:.1e} of y is left"
        count = f"{len(self)} stage{'s' * (len(self) != 1)}"
        how = " in rational numbers" if self.is_exact else ""
        words = {
            Status.CERTIFIED: f"{count}, certified{how}, {ends}",
            Status.NOT_UNIQUE: (
                f"{count}, certified, {ends}; on some of them columns depend on each "
                "other, and which weights the flow selects could not be proved: X w is right"
            ),
        }
        worst = max(c.excess, c.support, c.rest)
        words[Status.FEW_DIGITS] = (
            f"{count}, {ends}, right to {worst:.0e} of the bounds of zeta: rows or "
            "columns are nearly dependent, or of very different size"
        )
        failed = (
            f"{count}, not certified: zeta leaves its bounds by {c.excess:.1e} and the "
            f"bounds of weights by {c.support:.1e}, pull {c.rest:.1e} at the end; try a larger "
            "tol, columns of comparable length, or fewer stages (max_stages)"
        )
        return words.get(self.status, failed)

    def checked(self, throw: bool) -> StagePath:
        """Itself, or SolveError where it is not certified and `throw` is set."""
        if throw and not self.status.ok:
            raise SolveError(self.message, self)
        return self

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __getitem__(self, index: int) -> Stage:
        return self.stages[index]

    def __repr__(self) -> str:
        return (
            f"StagePath({self.message},\n"
            f"          {len(self.events)} events up to tau = {self.times[-1]:.4g}, "
            f"{len(self.stages[-1].support)} features at the end, "
            f"residual {self.residual[-1]:.1e}, seconds={self.stats.seconds:.3g})"
        )

    def plot(
        self,
        path: str | Path | None = None,
        *,
        ax: Axes | None = None,
        names: Sequence[str] | None = None,
    ) -> Figure:
        """Coefficients and residual against tau; the first alone on `ax` if given.

        `names` are those of the features, where they have some.
        """
        # Each stage from its beginning to its end: from half the time of the first jump on, since
        # jumps crowd at the beginning, to twice that of the last.
        last = self.times[-1] or 1.0
        ends = np.append(self.times[1:], 2.0 * last)
        tau = np.stack([np.maximum(self.times, 0.5 * ends[0]), ends], axis=1).ravel()

        def slow_clock(axes: Axes) -> None:
            axes.set_xscale("log")
            axes.set_xlabel(r"slow time  $\tau$")

        def weights(axes: Axes) -> None:
            curves(axes, tau, np.repeat(self.w, 2, axis=0), names=names)
            slow_clock(axes)
            axes.set_ylabel("coefficient  w")

        def misfit(axes: Axes) -> None:
            course(axes, tau, np.repeat(self.residual, 2), label=r"$\|Xw - y\| / \|y\|$")
            slow_clock(axes)

        return picture(weights, misfit, path=path, ax=ax)

    def _repr_html_(self) -> str:
        head = ("stage", "tau", "features", "l1 norm", "residual", "what happens")
        rows = [self._table_row(k) for k in some(len(self))]
        left_out = f"; {len(rows)} of {len(self)} shown" if len(rows) < len(self) else ""
        return table(f"StagePath: {self.message}{left_out}", rows, head=head)

    def _table_row(self, k: int) -> tuple[str, ...]:
        stage = self.stages[k]
        return (
            f"{k}",
            f"{stage.time:.6g}",
            f"{len(stage.support)}",
            f"{np.abs(stage.coefficients).sum():.6g}",
            f"{self.residual[k]:.1e}",
            ", ".join(f"{event.feature} {event.change.value}" for event in self.events_at(k)),
        )


def _read_tau(tau: ArrayLike) -> FloatArray:
    asked = read_real("tau", tau, "Pass times on the slow clock, as in `times`.")
    if not (asked >= 0.0).all():
        raise InputError(
            f"tau: must be >= 0, got {float(asked.min())!r}. The path begins at 0, with w = 0."
        )
    return asked


def _read_log_scale(log_scale: Any) -> float:
    number = as_float(log_scale)
    if number is None or not -np.inf < number < 0.0:
        raise InputError(
            f"log_scale: must be negative and finite, got {log_scale!r}. Stages are those of a "
            "vanishing start; natural logarithms are meant."
        )
    return number


def _events(before: Stage, after: Stage) -> Iterator[Event]:
    was, now = (dict(zip(s.support, np.sign(s.coefficients), strict=True)) for s in (before, after))
    for gone in sorted(was.keys() - now.keys()):
        yield Event(after.time, gone, Change.SLEEPS, int(was[gone]))
    for come in sorted(now.keys() - was.keys()):
        yield Event(after.time, come, Change.WAKES, int(now[come]))
