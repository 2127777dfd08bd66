"""Continuation in the scale: each limit from a warm start that the last two predict.

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

from flowbias.ground.arguments import InputError
from flowbias.ground.routing import provided_by, unfitting
from flowbias.ground.typing import FloatArray
from flowbias.models._base import HasPotential
from flowbias.potentials import Provides
from flowbias.results.solution import Solution, Stats

StateT = TypeVar("StateT")
WarmT = TypeVar("WarmT")

#: a limit, and the state from which a nearby scale can start; None where there is none
Found: TypeAlias = tuple[Solution, StateT | None]
#: log-scales and states of the last limits, oldest first; at most two
History: TypeAlias = list[tuple[float, StateT]]

# Laws whose state at one scale predicts the next; without one each scale would start cold, as the
# model itself did.
PREDICTABLE = frozenset({Provides.EXPONENTIAL_DUAL, Provides.POWER_DUAL})


class Rescalable(HasPotential, Protocol):
    """A model that knows the same start at another scale."""

    def at_log_scale(self, log_scale: float) -> HasPotential: ...


class Scaled(Rescalable, Protocol):
    """That also knows its own."""

    @property
    def log_scale(self) -> FloatArray: ...


@dataclass(frozen=True)
class Continuation(Generic[StateT, WarmT]):
    """From scale to scale: predict a warm start, correct it to a limit, which its proof judges."""

    predict: Callable[[History[StateT], float], WarmT | None]
    #: the limit of a model, from a warm start if there is one, with its certificate
    correct: Callable[[HasPotential, WarmT | None], Found[StateT]]
    #: log-scales above that of the model, the largest first; one list after the other is tried
    ladders: Callable[[Scaled, float], Iterable[Sequence[float]]]
    #: factorizations of the data, made once for all scales
    of_data: int = 0
    #: factorizations, in multiples of what has stalled, after which no further scale is tried. A
    #: descent that works takes 1 to 4 times as many; one that does not should not take ten times
    worth_trying: float = 5.0
    #: what needs no descent, and can be gone on from on the way down
    accepts: Callable[[Solution], bool] = lambda solution: solution.certificate.ok

    def follow(self, starts: Iterable[tuple[float, HasPotential]]) -> Iterator[Found[StateT]]:
        """The limit at each log-scale in turn."""
        history: History[StateT] = []
        spared = 0
        for log_scale, model in starts:
            solution, state = self.correct(model, self.predict(history, log_scale))
            cost = solution.stats
            spent = Stats(cost.factorizations - spared, cost.steps, cost.seconds)
            yield replace(solution, stats=spent), state
            history = [*history[-1:], (log_scale, state)] if state is not None else []
            spared = self.of_data

    def rescued(self, model: Any, found: Found[StateT]) -> Found[StateT]:
        """What was found, if that is certified; if not, what is left to try for such a model."""
        solution, state = found
        declared = provided_by(model)
        if self.accepts(solution) or Provides.POTENTIAL not in declared:
            return found
        if Provides.SCALE in declared and declared & PREDICTABLE:
            return self.descended(model, found)
        if model.potential.scale_derivative(np.zeros(1)) is None:
            return found
        hint = "a model that declares SCALE, as fb.DiagonalNet does, comes down from larger scales"
        return replace(solution, route=f"{solution.route}; {hint}"), state

    def descended(self, model: Scaled, stalled: Found[StateT]) -> Found[StateT]:
        """The limit from a descent, if that is certified; what has stalled, if not.

        Either counts what all attempts have cost.
        """
        here = _own_log_scale(model)
        spent = [stalled[0].stats]
        for above in self.ladders(model, here):
            if not self._is_worth_trying(spent):
                break
            starts = [*_within_doubles(model, above), (here, model)]
            spent.append(Stats(-self.of_data, 0, 0.0))
            still_to_go = range(len(starts) - 1, -1, -1)
            for left, found in zip(still_to_go, self.follow(starts), strict=True):
                spent.append(found[0].stats)
                if not self.accepts(found[0]) or (left and not self._is_worth_trying(spent)):
                    break
            else:
                route = f"{found[0].route}, down from larger scales"
                return replace(found[0], route=route, stats=total(spent)), found[1]
        return replace(stalled[0], stats=total(spent)), stalled[1]

    def _is_worth_trying(self, spent: list[Stats]) -> bool:
        return total(spent).factorizations <= (1 + self.worth_trying) * spent[0].factorizations


def _within_doubles(
    model: Scaled, log_scales: Sequence[float]
) -> Iterator[tuple[float, HasPotential]]:
    """The same start at these scales, but for those at which w(0) is no double."""
    for log_scale in log_scales:
        rescaled = model.at_log_scale(log_scale)
        try:
            rescaled.potential  # noqa: B018
        except InputError:
            continue
        yield log_scale, rescaled


def total(parts: Iterable[Stats]) -> Stats:
    """What several solves have cost."""
    costs = list(parts)
    return Stats(
        sum(cost.factorizations for cost in costs),
        sum(cost.steps for cost in costs),
        sum(cost.seconds for cost in costs),
    )


def even_ladders(
    _: Scaled,
    here: float,
    rungs: tuple[int, ...] = (8, 20),
    rise: float = 0.9,
    least_rise: float = 10.0,
) -> Iterator[Sequence[float]]:
    """Scales on the way down, and where that fails: from a share of log(scale) above, at least."""
    top = here + max(least_rise, rise * abs(here))
    for count in rungs:
        yield [float(scale) for scale in np.linspace(top, here, count, endpoint=False)]


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
