"""What Lemma 11 says of a wide random start, as numbers.  [min2021, section 4.2]"""

from __future__ import annotations

from typing import NamedTuple


class WideStart(NamedTuple):
    """The numbers of Lemma 11 for given sizes: bounds hold with probability 1 - delta."""

    width: float
    exponent: float
    T: float
    #: h^(1-2a), (33)
    level: float
    #: the level on the event itself, 2 h^(-2a) (sqrt(h) - T)^2: attained
    sharp_level: float
    #: 2 sqrt(m + r) T h^(1/2 - 2a), (34)
    invariance_defect: float
    #: 2 sqrt(m) T h^(1/2 - 2a), (35)
    product: float
