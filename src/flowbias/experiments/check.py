"""What a caption says of its figure, as a claim of `fb.theory` about the table.

    Check("falls", "the error falls", f"from {a:.2g} to {b:.2g}", at_most(b, 0.1 * a))

A check is a claim with a sentence for the reader and the measured numbers in words. Comparison and
verdict are those of `Claim`. Where several comparisons make one check, the worst of them decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from flowbias.ground.typing import ArrayLike
from flowbias.theory import Claim, Reference, Verdict
from flowbias.theory.claim import Kind


def at_most(values: ArrayLike, bound: ArrayLike) -> Claim:
    """values <= bound, each of them; nothing can be said of none, nor of NaN."""
    return _worst_of(values, bound, Kind.UPPER)


def at_least(values: ArrayLike, bound: ArrayLike) -> Claim:
    """values >= bound, each of them."""
    return _worst_of(values, bound, Kind.LOWER)


def less_than(values: ArrayLike, bound: ArrayLike) -> Claim:
    """values < bound, each of them."""
    return at_most(values, np.nextafter(bound, -np.inf))


def more_than(values: ArrayLike, bound: ArrayLike) -> Claim:
    """values > bound, each of them."""
    return at_least(values, np.nextafter(bound, np.inf))


def within(values: ArrayLike, low: float, high: float) -> tuple[Claim, Claim]:
    """low <= values <= high, each of them."""
    return at_least(values, low), at_most(values, high)


def true(facts: object) -> Claim:
    """Facts that are no comparisons of numbers, all of them; nothing can be said of none."""
    return at_least(np.asarray(facts).astype(bool), 1.0)


def _worst_of(values: ArrayLike, bounds: ArrayLike, kind: Kind) -> Claim:
    """The comparison of the pair that comes nearest to failing."""
    measured, predicted = np.broadcast_arrays(
        np.asarray(values, dtype=float), np.asarray(bounds, dtype=float)
    )
    if measured.size == 0:
        return _comparison(np.nan, np.nan, kind)
    with np.errstate(invalid="ignore"):  # of two infinities
        spare = (predicted - measured) if kind is Kind.UPPER else (measured - predicted)
    # Two equal infinities keep each other; NaN is a minimum to NumPy.
    worst = int(np.argmin(np.where(measured == predicted, 0.0, spare)))
    return _comparison(float(measured.flat[worst]), float(predicted.flat[worst]), kind)


def _comparison(measured: float, predicted: float, kind: Kind) -> Claim:
    return Claim("", measured, predicted, kind, Reference("", ""), "", "none: measured on a table")


@dataclass(frozen=True, init=False)
class Check:
    """Something that the paper claims about its figure, and whether this table shows it.

    `holds` is what decides: comparisons such as `at_most(error, 0.1)`, of which the worst counts,
    or a truth value. As any claim it may say nothing: `silence` is why.

    >>> print(fb.experiments.Check("faster", "b is faster than a", "0.1 s and 0.2 s", holds=True))
    holds: b is faster than a (0.1 s and 0.2 s)
    """

    name: str
    #: what is claimed, and what was measured (or why there is nothing to say), in words
    claim: str
    measured: str
    #: the comparison that decides
    decisive: Claim
    silence: str

    def __init__(
        self,
        name: str,
        claim: str,
        measured: str,
        holds: object,
        *more: Claim,
        silence: str = "",
    ) -> None:
        first = holds if isinstance(holds, Claim) else true(holds)
        decisive = replace(_decisive((first, *more)), name=name, statement=claim)
        silence = silence or decisive.silence
        for field, value in zip(
            ("name", "claim", "measured", "decisive", "silence"),
            (name, claim, silence or measured, decisive, silence),
            strict=True,
        ):
            object.__setattr__(self, field, value)

    @property
    def verdict(self) -> Verdict:
        """What could not be measured fails: only `silence` says that there is nothing to say."""
        if self.silence:
            return Verdict.SILENT
        return Verdict.HOLDS if self.decisive.holds else Verdict.FAILS

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.HOLDS

    @property
    def unmeasured(self) -> bool:
        """Whether what it is about is not in the table: its numbers, or its words, are NaN."""
        if self.silence:
            return False
        missing = self.decisive.verdict is Verdict.SILENT
        return missing or (not self.holds and bool(re.search(r"\bnan\b", self.measured)))

    def silenced(self, why: str) -> Check:
        """The same check where there is nothing to say."""
        return Check(self.name, self.claim, self.measured, self.decisive, silence=why)

    def reworded(self, claim: str) -> Check:
        """The same check with another sentence for the reader."""
        return Check(self.name, claim, self.measured, self.decisive, silence=self.silence)

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.claim} ({self.measured})"


def _decisive(claims: Iterable[Claim]) -> Claim:
    """The first of the worst: one that fails, else one that cannot be judged."""
    order = (Verdict.FAILS, Verdict.SILENT, Verdict.HOLDS)
    return min(claims, key=lambda claim: order.index(claim.verdict))
