"""What every call returns, how it ended, in words, and how that is shown, drawn and insisted on.

Of a solve: the predictor, its dual, the proof, and what it cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from flowbias.certificates.certificate import ONE_DIGIT, Certificate
from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import Panel, picture, stems
from flowbias.ground.html import coefficients, facts, shown
from flowbias.ground.typing import Axes, Figure, FloatArray
from flowbias.potentials import ConvexPotential


class ResultStatus(Protocol):
    """A status: a member of an enumeration whose failures carry their remedy."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...


class SolveError(RuntimeError):
    """A solve that could not be certified; `solution` holds what was reached, of whatever kind.

    >>> try:
    ...     fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0], tol=1e-30)
    ... except fb.SolveError as error:
    ...     print(error.solution.status.name)
    STALLED
    """

    def __init__(self, message: str, solution: Any) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made anew from `args` alone, which is the message.
        return type(self), (str(self), self.solution)


class Result(ABC):
    """A status in words, the error where it is a failure, a picture, a line and a table."""

    status: ResultStatus
    #: what `checked` raises
    raises: ClassVar[type[SolveError]] = SolveError

    @property
    @abstractmethod
    def message(self) -> str:
        """The status in words, with its numbers."""

    @abstractmethod
    def _panels(self) -> Sequence[Panel]:
        """What is drawn."""

    @abstractmethod
    def _facts(self) -> Mapping[str, str | float | None]:
        """What the table of a notebook says, by name."""

    @abstractmethod
    def _lines(self) -> Sequence[str]:
        """What is printed after the message."""

    def checked(self, throw: bool) -> Self:
        """Itself, or its error where it failed and `throw` is set."""
        if throw and not self.status.ok:
            raise self.raises(self.message, self)
        return self

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """Its panels side by side, or the first alone on `ax`; written to `path` if given."""
        return picture(*self._panels(), path=path, ax=ax)

    def _repr_html_(self) -> str:
        caption = f"{type(self).__name__}: {self.status.name}"
        return facts(caption, self._facts(), note=self.message)

    def __repr__(self) -> str:
        name = type(self).__name__
        indented = "\n" + " " * (len(name) + 1)
        return f"{name}({indented.join([self.message, *self._lines()])})"


class Shown(Protocol):
    """What every certificate offers."""

    def _repr_html_(self) -> str: ...


class Proof(Shown, Protocol):
    """What every certificate of a minimizer offers."""

    @property
    def feasibility(self) -> float: ...
    @property
    def stationarity(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def ok(self) -> bool: ...


OUT_OF_RANGE = (
    "y is not in the range that the model can reach on X (relative distance {distance:.1e})"
)


class Status(Enum):
    """How a solve ended; each failure carries its remedy.

    >>> [status.name for status in fb.Status if not status.ok]
    ['STALLED']
    """

    CERTIFIED = "certified: feasibility {feasibility:.1e}, gap {gap:.1e}"
    PROJECTED = (
        f"{OUT_OF_RANGE}; "
        "this is the least-squares limit, certified: feasibility {feasibility:.1e}, gap {gap:.1e}"
    )
    NOT_UNIQUE = (
        "certified minimizer, but not the only one: feasibility {feasibility:.1e}, gap {gap:.1e}; "
        "{choice}"
    )
    FEW_DIGITS = (
        "proved to about {digits} digits, not to the tolerance: feasibility {feasibility:.1e}, "
        "gap {gap:.1e}; rows of X are nearly dependent, or columns of very different size"
    )
    INTEGRATED = (
        "followed by integration: feasibility {feasibility:.1e}, error estimate {error:.1e} from "
        "two tolerances and the integrators of its route, not a certificate"
    )
    STALLED = (
        "not certified: feasibility {feasibility:.1e}, stationarity {stationarity:.1e}, "
        "gap {gap:.1e} after {steps} steps; try a larger tol, take the limit at a nearby scale, or "
        "remove rows of X that nearly depend on others, if there are any"
    )

    @property
    def ok(self) -> bool:
        return self is not Status.STALLED

    def words(
        self, proof: Proof, distance: float, steps: int, digits: int = 0, choice: str = ""
    ) -> str:
        """The status with its numbers, for minimizers of a potential."""
        projected = f"; {OUT_OF_RANGE}, and its projection is fitted"
        is_told = self is Status.PROJECTED or not distance > 0.0
        return (self.value if is_told else self.value + projected).format(
            choice=choice,
            digits=digits,
            feasibility=proof.feasibility,
            stationarity=proof.stationarity,
            gap=proof.gap,
            distance=distance,
            steps=steps,
        )


def status_of(certificate: Certificate, distance: float) -> Status:
    """What a certificate says of a limit, y being at this distance from what X can fit."""
    if certificate.ok:
        return Status.PROJECTED if distance > 0.0 else Status.CERTIFIED
    if certificate.relative_error <= ONE_DIGIT and certificate.feasibility <= certificate.tol:
        return Status.FEW_DIGITS
    return Status.STALLED


class UnresolvedError(ArithmeticError):
    """A derivative that double precision does not show; `Solution.sensitivity` says of what."""


@dataclass(frozen=True)
class Stats:
    """What a solve cost, its certificate not included.

    A factorization is one product A diag(c) A^T with its Cholesky factor.
    """

    factorizations: int
    steps: int
    seconds: float


class Sensitivity(NamedTuple):
    """Derivatives of the limit: (d, n) in y, and (d,) in the log of the scale."""

    dw_dy: FloatArray
    dw_dlog_scale: FloatArray | None


class Solved(Result):
    """A result with a proof: what solutions of any kind share."""

    route: str
    certificate: Shown
    stats: Stats
    details: dict[str, float]

    @abstractmethod
    def _looks(self) -> Mapping[str, str | float]:
        """What the answer looks like."""

    def _facts(self) -> Mapping[str, str | float | None]:
        cost = {"seconds": f"{self.stats.seconds:.3g}"}
        return {"route": self.route, **self._looks(), **self.details, **cost}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.certificate._repr_html_()


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Solved):
    """The limit w of gradient flow with its dual: grad Q(w) = shift + X^T dual.

    >>> solution = fb.limit(fb.DiagonalNet(depth=2, scale=0.1), [[1.0, 2.0]], [1.0])
    >>> solution.w.round(3), solution.status.name
    (array([0.067, 0.467]), 'CERTIFIED')
    """

    w: FloatArray
    dual: FloatArray
    status: Status
    route: str
    certificate: Certificate
    stats: Stats
    potential: ConvexPotential
    shift: FloatArray | float = 0.0
    distance: float = 0.0
    details: dict[str, float] = field(default_factory=dict)
    #: which of several minimizers gradient flow selects, in words
    choice: str = field(
        default="fb.rich_limit(model, X, y) returns the one that gradient flow selects", repr=False
    )
    _sensitivity: Callable[[], Sensitivity] | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """The status in words, with its numbers."""
        certificate = self.certificate
        words = self.status.words(
            certificate, self.distance, self.stats.steps, certificate.digits, self.choice
        )
        if self.status.ok and certificate.by_measures_alone:
            return f"{words}; how far w is from the limit is not proved"
        if self.status.ok:
            return words
        # Where it stalled says why, on routes that follow a flow; no measure need be too large.
        return f"{words} ({': '.join(filter(None, (self.route, certificate.failing)))})"

    def sensitivity(self) -> Sensitivity:
        """Derivatives of the limit in y and in the log of the scale."""
        if self._sensitivity is None:
            raise InputError(
                f"solution: must come by a route that has a derivative, got {self.route!r}, whose "
                "minimizer need not be smooth in y. Take fb.limit at a small positive scale."
            )
        try:
            return self._sensitivity()
        except UnresolvedError as lost:
            raise SolveError(str(lost), self) from lost

    def derivatives_at(self, dual: FloatArray) -> Callable[[], Sensitivity] | None:
        """What `sensitivity` computes, at another dual: the last thing that it is given."""
        if not isinstance(self._sensitivity, partial):
            return self._sensitivity
        return partial(self._sensitivity.func, *self._sensitivity.args[:-1], dual)

    def _lines(self) -> tuple[str, ...]:
        return (
            f"route={self.route}, d={len(self.w)}, {self._coefficients()},",
            f"error_bound={self.certificate.error_bound:.1e}, "
            f"factorizations={self.stats.factorizations}, seconds={self.stats.seconds:.3g}",
        )

    def _coefficients(self) -> str:
        """What they look like."""
        _, *seen = coefficients(self.w).values()
        if not seen:
            return "w not computed yet"
        nonzero, l1, l2 = map(shown, seen)
        return f"entries above 1e-6 of the largest: {nonzero}, l1={l1}, l2={l2}"

    def _panels(self) -> tuple[Panel, ...]:
        """The coefficients, of many the largest."""

        def panel(axes: Axes) -> None:
            axes.set_title(f"{self.status.name}, {self.route}")
            stems(axes, np.asarray(self.w))

        return (panel,)

    def _looks(self) -> Mapping[str, str | float]:
        return coefficients(self.w)

    def _facts(self) -> Mapping[str, str | float | None]:
        return {**super()._facts(), "factorizations": f"{self.stats.factorizations}"}
