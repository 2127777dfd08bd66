"""What one solve aims at, and all that follows from it: when to stop, hand over, lose patience."""

from __future__ import annotations

from dataclasses import dataclass, field

# y counts as inside the range of X when the part outside is below this fraction of it: well above
# the rounding of a projection in an ill-conditioned basis, well below any real misfit.
IN_RANGE = 1e-10
# Relative error of what is only compared with others of its kind, to choose among them.
TO_CHOOSE = 1e-6


@dataclass(frozen=True)
class Tolerances:
    """Levels of the relative residual ||A w - b|| / ||b|| of one solve.

    residual       at which iterations stop: two digits below the default certificate, above
                   rounding
    repair         above which rounding of the dual, as for large biased starts, is worth repairing
                   in w
    solved         up to which the digits that are missing are rounding, and no other method is
                   tried
    rest           below which a residual that does not fall any more is rounding
    nearly_solved  below which what remains is linear: second-order terms are rounding
    not_solved     above which a method has not found the limit
    patience       steps in a row that may fail to halve a residual at rest
    """

    residual: float = 1e-13
    patience: int = 2
    repair: float = field(init=False)
    solved: float = field(init=False)
    rest: float = field(init=False)
    nearly_solved: float = field(init=False)
    not_solved: float = field(init=False)

    def __post_init__(self) -> None:
        for level, decades in _DECADES.items():
            object.__setattr__(self, level, 10.0**decades * self.residual)


#: Above the residual that is aimed at.
_DECADES = {"repair": 2, "solved": 3, "rest": 4, "nearly_solved": 6, "not_solved": 7}
#: What every solve aims at unless it is told otherwise.
DEFAULT = Tolerances()
