"""A theorem as code: what was measured, what was predicted, and how the two must relate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flowbias.problem import InputError


class Kind(Enum):
    """How the measured number must relate to the predicted one."""

    EQUAL = "=="
    UPPER = "<="
    LOWER = ">="


@dataclass(frozen=True)
class Reference:
    """Where a statement is printed: paper (as cited in CITATION.cff), place, equation."""

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

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return (
            f"Claim({self.name}: {self.measured:.10g} {self.kind.value} {self.predicted:.10g} "
            f"{verdict}, slack {self.slack:.2g} [{self.reference}]\n"
            f"      {self.statement})"
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

    def side(label: str, predicted: float, kind: Kind) -> Claim:
        return Claim(
            f"{name}, {label}",
            measured=float(value),
            predicted=float(predicted),
            kind=kind,
            reference=reference,
            statement=statement,
            tolerance_origin=tolerance_origin,
            atol=float(atol),
        )

    return side("below", bounds[0], Kind.LOWER), side("above", bounds[1], Kind.UPPER)
