"""Limits one scale after the other, each started from what the last two predict.

Towards the rich limit the normalized dual is nearly linear in 1 / log(1 / scale^2), so two states
predict the next one well enough that Newton's method finishes it in a step or two. That serves
`limit_path`, and a single limit that stalls from a cold start: where fewer coordinates carry the
fit than there are samples, the interior point may end where double precision no longer shows the
way, which a descent from a larger scale does not come near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from flowbias.ground.routing import first_fitting, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.limits.interior_point import State
from flowbias.limits.rich_regime import WarmStart
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.results.solution import Solution, Stats

StateT = TypeVar("StateT")
WarmT = TypeVar("WarmT")

#: a limit, and the state from which a nearby scale can start; None where there is none
FoundOf: TypeAlias = tuple[Solution, StateT | None]
Found: TypeAlias = FoundOf[State]
#: the limit of a model, from a warm start if there is one
AttemptOf: TypeAlias = Callable[[HasPotential, WarmT | None], FoundOf[StateT]]
#: log-scales and states of the last limits, oldest first; at most two
History: TypeAlias = list[tuple[float, StateT]]

# Scales on the way down, and where that fails.
RUNGS = (8, 20)
# How far up the descent begins: as a share of the logarithm of the scale, and at least.
RISE, LEAST_RISE = 0.9, 10.0
# Factorizations, in multiples of what has stalled, after which no further scale is tried. A descent
# that works takes 1 to 4 times as many; one that does not should not take ten times as long.
WORTH_TRYING = 5.0


class Rescalable(HasPotential, Protocol):
    """A model that knows the same start at another scale."""

    def at_log_scale(self, log_scale: float) -> HasPotential: ...


class Scaled(Rescalable, Protocol):
    """That also knows its own."""

    @property
    def log_scale(self) -> FloatArray: ...


@dataclass(frozen=True)
class Guide(Generic[StateT, WarmT]):
    """How a solver is led from one scale to the next."""

    predict: Callable[[History[StateT], float], WarmT | None]
    #: log-scales above that of the model, the largest first; one list after the other is tried
    ways_down: Callable[[Scaled, float], Iterable[Sequence[float]]]
    worth_trying: float = WORTH_TRYING


def in_turn(
    attempt: AttemptOf[WarmT, StateT],
    starts: Iterable[tuple[float, HasPotential]],
    of_data: int,
    guide: Guide[StateT, WarmT],
) -> Iterator[FoundOf[StateT]]:
    """The limit at each log-scale from a prediction of its state.

    The data were factored once (`of_data` factorizations), for all scales.
    """
    history: History[StateT] = []
    spared = 0
    for log_scale, model in starts:
        solution, state = attempt(model, guide.predict(history, log_scale))
        cost = solution.stats
        spent = Stats(cost.factorizations - spared, cost.steps, cost.seconds)
        yield replace(solution, stats=spent), state
        history = [*history[-1:], (log_scale, state)] if state is not None else []
        spared = of_data


def total(parts: Iterable[Stats]) -> Stats:
    """What several solves have cost."""
    costs = list(parts)
    return Stats(
        sum(cost.factorizations for cost in costs),
        sum(cost.steps for cost in costs),
        sum(cost.seconds for cost in costs),
    )


def _even_ways_down(_: Scaled, here: float) -> Iterator[Sequence[float]]:
    top = here + max(LEAST_RISE, RISE * abs(here))
    for rungs in RUNGS:
        yield [float(scale) for scale in np.linspace(top, here, rungs, endpoint=False)]


def _predicted(history: History[State], log_scale: float) -> WarmStart | None:
    """The last state, with its dual moved along the secant in 1 / log_scale."""
    if not history:
        return None
    last_scale, last = history[-1]
    before_scale, before = history[0]
    if not 0 > before_scale > last_scale > log_scale:
        return WarmStart(last, last.dual)
    ahead = (1.0 / log_scale - 1.0 / last_scale) / (1.0 / last_scale - 1.0 / before_scale)
    return WarmStart(last, last.dual + ahead * (last.dual - before.dual))


#: For X in memory: an interior point starts well anywhere.
IN_MEMORY = Guide(_predicted, _even_ways_down)


def from_larger_scales(
    model: Scaled,
    stalled: FoundOf[StateT],
    attempt: AttemptOf[WarmT, StateT],
    of_data: int,
    guide: Guide[Any, Any] = IN_MEMORY,
) -> FoundOf[StateT]:
    """The limit from a descent, if that is certified; what has stalled, if not.

    Either counts what all attempts have cost.
    """
    here = _own_log_scale(model)
    spent = [stalled[0].stats]
    for above in guide.ways_down(model, here):
        if not _is_worth_trying(spent, guide):
            break
        starts = [*((scale, model.at_log_scale(scale)) for scale in above), (here, model)]
        spent.append(Stats(-of_data, 0, 0.0))
        still_to_go = range(len(above), -1, -1)
        for left, found in zip(still_to_go, in_turn(attempt, starts, of_data, guide), strict=True):
            spent.append(found[0].stats)
            if not found[0].certificate.ok or (left and not _is_worth_trying(spent, guide)):
                break
        else:
            route = f"{found[0].route}, down from larger scales"
            return replace(found[0], route=route, stats=total(spent)), found[1]
    return replace(stalled[0], stats=total(spent)), stalled[1]


def _is_worth_trying(spent: list[Stats], guide: Guide[Any, Any]) -> bool:
    return total(spent).factorizations <= (1 + guide.worth_trying) * spent[0].factorizations


def _own_log_scale(model: Scaled) -> float:
    """The logarithm of the scale; the geometric mean where there is one per feature."""
    try:
        here = float(np.mean(model.log_scale))
    except (AttributeError, TypeError, ValueError):
        here = np.nan
    if not np.isfinite(here):
        raise unfitting(
            model,
            "have a finite `log_scale`, as it declares SCALE",
            "Give it one, with at_log_scale(log_scale), or do not declare SCALE.",
        )
    return here


@dataclass(frozen=True)
class LastResort:
    """What is left to try for models whose limit has stalled."""

    needs: frozenset[Provides]
    try_again: Callable[[Any, Any, Any, int, Guide[Any, Any]], Any]


def _ask_for_a_scale(
    model: HasPotential,
    stalled: FoundOf[StateT],
    attempt: Any,
    of_data: int,
    guide: Guide[Any, Any],
) -> FoundOf[StateT]:
    """What has stalled, and how another model could be helped, if its potential has a scale."""
    solution, state = stalled
    if model.potential.scale_derivative(np.zeros(1)) is None:
        return stalled
    hint = "a model that declares SCALE, as fb.DiagonalNet does, comes down from larger scales"
    return replace(solution, route=f"{solution.route}; {hint}"), state


def _give_up(
    model: Any, stalled: FoundOf[StateT], attempt: Any, of_data: int, guide: Guide[Any, Any]
) -> FoundOf[StateT]:
    return stalled


#: Descents serve the laws whose state at one scale predicts the next; without one each scale would
#: start cold, as the model itself did.
LAST_RESORTS = (
    LastResort(frozenset({Provides.SCALE, Provides.EXPONENTIAL_DUAL}), from_larger_scales),
    LastResort(frozenset({Provides.SCALE, Provides.POWER_DUAL}), from_larger_scales),
    LastResort(frozenset({Provides.POTENTIAL}), _ask_for_a_scale),
    LastResort(frozenset(), _give_up),
)


def or_last_resort(
    model: HasPotential,
    found: FoundOf[StateT],
    attempt: AttemptOf[WarmT, StateT],
    of_data: int,
    guide: Guide[StateT, WarmT],
) -> FoundOf[StateT]:
    """What was found, if that is certified; if not, what is left to try for such a model."""
    if found[0].certificate.ok:
        return found
    last_resort = first_fitting(model, LAST_RESORTS)
    again: FoundOf[StateT] = last_resort.try_again(model, found, attempt, of_data, guide)
    return again
