"""A theorem as code: what was measured, what was predicted, and how the two must relate.

A claim holds, fails, or says nothing here: where a hypothesis is not met, where its bound is
vacuous or where nothing is left to choose, numbers that happen to agree would support nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.ground.drawing import COLOURS, GREY, INK, RED, picture
from flowbias.ground.html import facts
from flowbias.ground.typing import Axes, Figure, FloatArray


class Kind(Enum):
    """How the measured number must relate to the predicted one.

    >>> [kind.value for kind in fb.theory.Kind]
    ['==', '<=', '>=']
    """

    EQUAL = "=="
    UPPER = "<="
    LOWER = ">="


class Verdict(Enum):
    """What an instance of a theorem shows.

    >>> [verdict.value for verdict in fb.theory.Verdict]
    ['holds', 'FAILS', 'says nothing here']
    """

    HOLDS = "holds"
    FAILS = "FAILS"
    SILENT = "says nothing here"


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


#: A place in each of the papers.
WOODWORTH = partial(Reference, "woodworth2020")
AZULAY = partial(Reference, "azulay2021")
MIN = partial(Reference, "min2021")


def beyond_the_papers(section: str, page: str = "overview") -> Reference:
    """A statement that no paper prints; it is proved in this section of a page of docs/theory."""
    return Reference("flowbias", f"docs/theory/{page}.md", section)


@dataclass(frozen=True)
class Claim:
    """One instance of a theorem: `measured` kind `predicted`, up to atol + rtol |predicted|.

    The tolerance is for the arithmetic alone, never for the mathematics; `tolerance_origin` says
    where it comes from. A claim about vectors measures a norm.

    `verdict` is one of three, and `reason` says why in words. `silence`, if given, says why nothing
    is claimed here; numbers that are not there (nan) and bounds that every number keeps (infinite
    ones) are silent by themselves. `holds`, and with it the truth value, is True for the first
    verdict only: a claim that says nothing is no proof, and `verdict` tells it from a failure.

    >>> claim = fb.theory.tied_limit(fb.DiagonalNet(depth=2, scale=0.5), [[1.0, 2.0]], [1.0])
    >>> claim.holds, claim.kind.name, str(claim.reference)
    (True, 'EQUAL', 'woodworth2020, Theorem 1, (4)-(5)')
    >>> claim = fb.theory.tied_limit(fb.DiagonalNet(depth=2, scale=0.5), [[2.0]], [1.0])
    >>> claim.holds, claim.verdict.name, claim.reason
    (False, 'SILENT', 'only one w fits the data, whatever the start')
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
    silence: str = ""

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
        # An exact claim about infinity has the tolerance 0, not 0 * inf.
        return self.atol + (self.rtol * abs(self.predicted) if self.rtol > 0.0 else 0.0)

    @property
    def slack(self) -> float:
        """How much more the measured number could be off; negative when the claim fails."""
        return self.tolerance - self._excess

    @property
    def _excess(self) -> float:
        away = self.measured - self.predicted
        return {Kind.EQUAL: abs(away), Kind.UPPER: away, Kind.LOWER: -away}[self.kind]

    @property
    def verdict(self) -> Verdict:
        """Holds, fails, or says nothing here."""
        if self._why_silent:
            return Verdict.SILENT
        return Verdict.HOLDS if self.slack >= 0.0 else Verdict.FAILS

    @property
    def holds(self) -> bool:
        """Whether the numbers support the claim; False as well where it says nothing."""
        return self.verdict is Verdict.HOLDS

    def __bool__(self) -> bool:
        return self.holds

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, in words."""
        if self._why_silent:
            return self._why_silent
        within = "within" if self.holds else "beyond"
        if self._excess <= 0.0:
            return f"{self._comparison} with {-self._excess:.2g} to spare"
        return f"off by {self._excess:.2g}, {within} the tolerance of {self.tolerance:.2g}"

    @property
    def _why_silent(self) -> str:
        if self.silence:
            return self.silence
        if np.isnan(self.measured):
            return "what it is about could not be measured"
        if np.isnan(self.predicted):
            return "what it predicts is no number here"
        vacuous = {
            Kind.EQUAL: np.isinf(self.predicted),
            Kind.UPPER: self.predicted == np.inf,
            Kind.LOWER: self.predicted == -np.inf,
        }
        return "the bound is infinite: every number keeps it" if vacuous[self.kind] else ""

    @property
    def _comparison(self) -> str:
        return f"{self.measured:.10g} {self.kind.value} {self.predicted:.10g}"

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
        mark, colour = _MARKS[self.verdict]
        axes.plot([measured], [0.0], mark, color=colour, markersize=11)
        axes.set_xlim(left, right)
        axes.set_yticks([])
        axes.set_title(f"{self.name}: {self.verdict.value}")
        axes.set_xlabel(
            "measured - predicted (mark), 0 (line)"
            if self.kind is Kind.EQUAL
            else f"measured {measured:.6g} (mark), predicted {predicted:.6g} (line)"
        )

    def _repr_html_(self) -> str:
        nothing = bool(np.isnan(self.measured))
        return facts(
            f"{self.name}: {self.verdict.value}",
            {
                "because": self.reason,
                "measured": None if nothing else f"{self.measured:.10g}",
                "must be": None if nothing else f"{self.kind.value} {self.predicted:.10g}",
                "slack": None if nothing else f"{self.slack:.2g}",
                "tolerance": f"{self.tolerance:.2g} ({self.tolerance_origin})",
                "reference": str(self.reference),
            },
            note=self.statement,
        )

    def __repr__(self) -> str:
        said = (
            f"{self.verdict.value}: {self.reason}"
            if self.verdict is Verdict.SILENT
            else f"{self._comparison} {self.verdict.value}, slack {self.slack:.2g}"
        )
        return f"Claim({self.name}: {said} [{self.reference}]\n      {self.statement})"


#: How a verdict is drawn: a dot, a cross, a grey diamond.
_MARKS = {Verdict.HOLDS: ("o", COLOURS[0]), Verdict.FAILS: ("X", RED), Verdict.SILENT: ("d", GREY)}


class Tolerance(NamedTuple):
    """What the arithmetic may add to a number of size 1, and where that comes from."""

    origin: str
    size: float = 0.0


ONE_PRODUCT = Tolerance("rounding of one product of matrices", 1e-13)


def relative(difference: Any, size: Any) -> float:
    """||difference||/||size||, or ||difference|| beside what vanishes."""
    return float(np.linalg.norm(difference) / (np.linalg.norm(size) or 1.0))


Number: TypeAlias = float | np.floating[Any]


class Allowed(TypedDict, total=False):
    """The tolerance of one claim: that of its statement for numbers of `size`, or its own.

    And where it says nothing: `silence` is why, and where `among`, a row per measurement and a
    column per unknown, leaves but one fit to choose, that is.
    """

    size: float
    rtol: float
    atol: float
    silence: str
    among: FloatArray


def only_one_fit(X: FloatArray) -> str:
    """Why a claim about which fit is chosen says nothing where there is but one; else ""."""
    alone = int(np.linalg.matrix_rank(X)) == X.shape[1]
    return "only one w fits the data, whatever the start" if alone else ""


@dataclass(frozen=True)
class Statement:
    """What the claims of one statement share: its place, its words, and a `Tolerance` unpacked."""

    reference: Reference
    words: str
    tolerance_origin: str
    tolerance: float = 0.0

    def equal(
        self, name: str, measured: Number, predicted: Number = 0.0, **allowed: Unpack[Allowed]
    ) -> Claim:
        """measured == predicted."""
        return self._claim(name, measured, predicted, Kind.EQUAL, **allowed)

    def same(self, name: str, measured: Any, predicted: Any, **allowed: Unpack[Allowed]) -> Claim:
        """||measured - predicted|| / ||predicted|| == 0, of arrays."""
        return self.equal(name, relative(measured - predicted, predicted), **allowed)

    def at_most(
        self, name: str, measured: Number, predicted: Number, **allowed: Unpack[Allowed]
    ) -> Claim:
        """measured <= predicted."""
        return self._claim(name, measured, predicted, Kind.UPPER, **allowed)

    def at_least(
        self, name: str, measured: Number, predicted: Number, **allowed: Unpack[Allowed]
    ) -> Claim:
        """measured >= predicted."""
        return self._claim(name, measured, predicted, Kind.LOWER, **allowed)

    def between(
        self, name: str, value: Number, bounds: tuple[Number, Number], **allowed: Unpack[Allowed]
    ) -> tuple[Claim, Claim]:
        """bounds[0] <= value <= bounds[1], as two claims."""
        return (
            self.at_least(f"{name}, below", value, bounds[0], **allowed),
            self.at_most(f"{name}, above", value, bounds[1], **allowed),
        )

    def _claim(
        self,
        name: str,
        measured: Number,
        predicted: Number,
        kind: Kind,
        *,
        size: float = 1.0,
        rtol: float = 0.0,
        atol: float | None = None,
        silence: str = "",
        among: FloatArray | None = None,
    ) -> Claim:
        alone = "" if among is None else only_one_fit(among)
        return Claim(
            name,
            float(measured),
            float(predicted),
            kind,
            self.reference,
            self.words,
            self.tolerance_origin,
            rtol=float(rtol),
            atol=float(self.tolerance * size if atol is None and not rtol else atol or 0.0),
            silence=alone or silence,
        )
