"""What one solve aims at, and all that follows from it: when to stop, hand over, lose patience."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerances:
    """Levels of the relative residual ||A w - b|| / ||b|| of one solve."""

    #: at which iterations stop: two digits below the default certificate, above rounding
    residual: float = 1e-13
    #: steps in a row that may fail to halve a residual at rest before it is taken for rounding
    patience: int = 2

    @property
    def repair(self) -> float:
        """Above which rounding of the dual, as for large biased starts, is worth repairing in w."""
        return 1e2 * self.residual

    @property
    def solved(self) -> float:
        """Up to which the digits that are missing are rounding, and no other method is tried."""
        return 1e3 * self.residual

    @property
    def rest(self) -> float:
        """Below which a residual that does not fall any more is rounding."""
        return 1e4 * self.residual

    @property
    def nearly_solved(self) -> float:
        """Below which what remains is linear: second-order terms are rounding."""
        return 1e6 * self.residual

    @property
    def not_solved(self) -> float:
        """Above which a method has not found the limit."""
        return 1e7 * self.residual


#: What every solve aims at unless it is told otherwise.
DEFAULT = Tolerances()
