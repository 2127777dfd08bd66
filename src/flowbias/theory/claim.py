"""A theorem as code: what was measured, what was predicted, and how the two must relate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flowbias._drawing import picture
from flowbias._html import facts
from flowbias._look import COLOURS, GREY, INK, RED
from flowbias.problem import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Kind(Enum):
    """How the measured number must relate to the predicted one.

    >>> [kind.value for kind in fb.theory.Kind]
    ['==', '<=', '>=']
    """

    EQUAL = "=="
    UPPER = "<="
    LOWER = ">="


@dataclass(frozen=True)
class Reference:
    """Where a statement is printed: paper (as cited in CITATION.cff), place, equation.

    >>> print(fb.theory.Reference("woodworth2020", "Theorem 1", "(4)"))
    woodworth2020, Theorem 1, (4)
    """

    paper: str
    place: str
    equation: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.paper, self.place, self.equation) if part)


def beyond_the_papers(section: str) -> Reference:
    """A statement that no paper prints; it is proved in docs/theory/overview.md."""
    return Reference("flowbias", "docs/theory/overview.md", section)


@dataclass(frozen=True)
class Claim:
    """One instance of a theorem: `measured` kind `predicted`, up to atol + rtol |predicted|.

    The tolerance is for the arithmetic alone, never for the mathematics; `tolerance_origin` says
    where it comes from. A claim about vectors measures a norm.

    >>> claim = fb.theory.tied_limit(fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0])
    >>> claim.holds, claim.kind.name, str(claim.reference)
    (True, 'EQUAL', 'woodworth2020, Theorem 1, (4)-(5)')
    """

    name: str
    measured: float
    predicted: float
    kind: Kind
    reference: Reference
    statement: str
    tolerance_origin: str
    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not value >= 0.0:
                raise InputError(
                    f"{name}: must be >= 0, got {value!r}. Pass 0.0 for a claim that is exact."
                )

    @property
    def tolerance(self) -> float:
        """What rounding and integration may add: atol + rtol |predicted|."""
        return self.atol + self.rtol * abs(self.predicted)

    @property
    def slack(self) -> float:
        """How much more the measured number could be off; negative when the claim fails."""
        excess = {
            Kind.EQUAL: abs(self.measured - self.predicted),
            Kind.UPPER: self.measured - self.predicted,
            Kind.LOWER: self.predicted - self.measured,
        }
        return self.tolerance - excess[self.kind]

    @property
    def holds(self) -> bool:
        # NaN compares false: a number that could not be measured supports nothing.
        return self.slack >= 0.0

    @property
    def _verdict(self) -> str:
        return "holds" if self.holds else "FAILS"

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The measured number beside the predicted one, and the side where it belongs."""
        return picture(self._draw, path=path, ax=ax)

    def _draw(self, axes: Axes) -> None:
        if not np.isfinite([self.measured, self.predicted]).all():
            raise InputError(
                f"claim: must hold finite numbers to be drawn, got measured {self.measured} and "
                f"predicted {self.predicted}. Print it instead."
            )
        # Numbers that should be equal differ in digits that no axis shows: draw the difference.
        origin = self.predicted if self.kind is Kind.EQUAL else 0.0
        measured, predicted = self.measured - origin, self.predicted - origin
        low, high = min(measured, predicted), max(measured, predicted)
        room = max(0.25 * (high - low), 1.5 * self.tolerance) or 0.1 * abs(high) or 1.0
        left, right = low - room, high + room
        ends = {
            Kind.EQUAL: (predicted - self.tolerance, predicted + self.tolerance),
            Kind.UPPER: (left, predicted + self.tolerance),
            Kind.LOWER: (predicted - self.tolerance, right),
        }
        axes.axvspan(*ends[self.kind], color=GREY, alpha=0.25, linewidth=0)
        axes.axvline(predicted, color=INK, linewidth=1.6)
        mark, colour = ("o", COLOURS[0]) if self.holds else ("X", RED)
        axes.plot([measured], [0.0], mark, color=colour, markersize=11)
        axes.set_xlim(left, right)
        axes.set_yticks([])
        axes.set_title(f"{self.name}: {self._verdict}")
        axes.set_xlabel(
            "measured - predicted (mark), 0 (line)"
            if self.kind is Kind.EQUAL
            else f"measured {measured:.6g} (mark), predicted {predicted:.6g} (line)"
        )

    def _repr_html_(self) -> str:
        return facts(
            f"{self.name}: {self._verdict}",
            {
                "measured": f"{self.measured:.10g}",
                "must be": f"{self.kind.value} {self.predicted:.10g}",
                "slack": f"{self.slack:.2g}",
                "tolerance": f"{self.tolerance:.2g} ({self.tolerance_origin})",
                "reference": str(self.reference),
            },
            note=self.statement,
        )

    def __repr__(self) -> str:
        return (
            f"Claim({self.name}: {self.measured:.10g} {self.kind.value} {self.predicted:.10g} "
            f"{self._verdict}, slack {self.slack:.2g} [{self.reference}]\n"
            f"      {self.statement})"
        )


@dataclass(frozen=True)
class Statement:
    """What the claims of one statement share: its place, its words, where the tolerance is from."""

    reference: Reference
    words: str
    tolerance_origin: str

    def equal(
        self, name: str, measured: float, predicted: float = 0.0, **tolerance: float
    ) -> Claim:
        """measured == predicted; the tolerance is `rtol` and `atol`, as in `Claim`."""
        return self._claim(name, measured, predicted, Kind.EQUAL, tolerance)

    def at_most(self, name: str, measured: float, predicted: float, **tolerance: float) -> Claim:
        """measured <= predicted."""
        return self._claim(name, measured, predicted, Kind.UPPER, tolerance)

    def at_least(self, name: str, measured: float, predicted: float, **tolerance: float) -> Claim:
        """measured >= predicted."""
        return self._claim(name, measured, predicted, Kind.LOWER, tolerance)

    def _claim(
        self, name: str, measured: float, predicted: float, kind: Kind, tolerance: dict[str, float]
    ) -> Claim:
        return Claim(
            name,
            float(measured),
            float(predicted),
            kind,
            self.reference,
            self.words,
            self.tolerance_origin,
            **{which: float(size) for which, size in tolerance.items()},
        )


def between(
    name: str,
    value: float,
    bounds: tuple[float, float],
    *,
    reference: Reference,
    statement: str,
    tolerance_origin: str,
    atol: float,
) -> tuple[Claim, Claim]:
    """bounds[0] <= value <= bounds[1], as two claims."""
    shared = Statement(reference, statement, tolerance_origin)
    return (
        shared.at_least(f"{name}, below", value, bounds[0], atol=atol),
        shared.at_most(f"{name}, above", value, bounds[1], atol=atol),
    )
