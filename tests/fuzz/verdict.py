"""What can be said of an answer.

FALSE       the status is good and w is further than 1e-6 from the limit, relative to its norm
BOUND       the status is good and w is further from the limit than its own finite error bound
FOREIGN     an exception that is not one of the library's own left a front door
HANGS       no answer in half a minute of processor time
REFUSED     the library says that it could not: STALLED, SolveError, InputError
UNJUDGED    no reference was proved

A status that states a number of digits is held to these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GOOD, REFUSED, FALSE = "good", "refused", "false"
BOUND, FOREIGN, UNJUDGED, HANGS = "bound", "foreign", "unjudged", "hangs"
# From the mildest to the worst: a problem of several answers is as bad as the worst of them.
ORDER = (GOOD, UNJUDGED, REFUSED, BOUND, FALSE, FOREIGN, HANGS)
WORST = (BOUND, FALSE, FOREIGN, HANGS)

# What a good status promises where it says nothing else.
RELATIVE_ERROR = 1e-6
# What rounding may leave of sums that cancel: of the way from w(0) where w nearly vanishes, of X w.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Verdict:
    kind: str
    reason: str = ""
    error: float = math.nan
    bound: float = math.nan
    status: str = ""
